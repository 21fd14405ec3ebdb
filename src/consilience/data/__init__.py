"""Tables: the declared schema and its coding, records in memory, and their exact counts."""

from consilience.data.columns import MISSING, Boolean, Categorical, Column, Numeric
from consilience.data.dataset import Dataset
from consilience.data.population import POPULATION_SCHEMA, population, population_table
from consilience.data.schema import Schema

__all__ = [
    "MISSING",
    "POPULATION_SCHEMA",
    "Boolean",
    "Categorical",
    "Column",
    "Dataset",
    "Numeric",
    "Schema",
    "population",
    "population_table",
]
