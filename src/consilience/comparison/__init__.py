"""Comparison: every reconstruction on one set of measurements, one row each."""

from consilience.comparison.compare import METHODS, compare
from consilience.comparison.rows import Comparison, Row

__all__ = ["METHODS", "Comparison", "Row", "compare"]
