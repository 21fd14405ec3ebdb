"""Tables: the declared schema and its coding, and the population that the demo is made of."""

from consilience.data.columns import MISSING, OTHER, OUTSIDE, Boolean, Categorical, Column
from consilience.data.dates import Dates
from consilience.data.numeric import Numeric
from consilience.data.population import POPULATION_SCHEMA, population, population_table
from consilience.data.schema import Schema

__all__ = [
    "MISSING",
    "OTHER",
    "OUTSIDE",
    "POPULATION_SCHEMA",
    "Boolean",
    "Categorical",
    "Column",
    "Dates",
    "Numeric",
    "Schema",
    "population",
    "population_table",
]
