"""Tables: the declared schema and its coding, and the population that the demo is made of."""

from consilience.data.binned import Dates, Numeric
from consilience.data.columns import MISSING, OTHER, OUTSIDE, Boolean, Categorical, Column
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
