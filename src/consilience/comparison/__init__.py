"""Comparison: every reconstruction on one set of measurements, one row each."""

from consilience.comparison.compare import METHODS, Comparison, Row, compare

__all__ = ["METHODS", "Comparison", "Row", "compare"]
