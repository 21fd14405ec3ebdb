"""Measurements of marginals, linear queries, the total, and losses."""

from consilience.measurements.custom import CustomLoss, jax_loss
from consilience.measurements.loss import BoundLoss, Loss
from consilience.measurements.losses import AbsoluteLoss, Separable, SquaredLoss
from consilience.measurements.measurement import (
    BoundMeasurement,
    Measurement,
    Noise,
    Total,
    estimate_total,
)
from consilience.measurements.queries import Dense, Identity, Operator, Query, Sparse, as_query
from consilience.measurements.structured import Kronecker, Prefix, Ranges

__all__ = [
    "AbsoluteLoss",
    "BoundLoss",
    "BoundMeasurement",
    "CustomLoss",
    "Dense",
    "Identity",
    "Kronecker",
    "Loss",
    "Measurement",
    "Noise",
    "Operator",
    "Prefix",
    "Query",
    "Ranges",
    "Separable",
    "Sparse",
    "SquaredLoss",
    "Total",
    "as_query",
    "estimate_total",
    "jax_loss",
]
