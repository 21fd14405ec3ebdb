"""Tables: the declared schema and its coding, and the population that the demo is made of."""

from consilience.data.columns import MISSING, Boolean, Categorical, Column, Numeric
from consilience.data.population import POPULATION_SCHEMA, population, population_table
from consilience.data.schema import Schema

__all__ = [
    "MISSING",
    "POPULATION_SCHEMA",
    "Boolean",
    "Categorical",
    "Column",
    "Numeric",
    "Schema",
    "population",
    "population_table",
]
