"""Measurements of marginals, linear queries, the total, and losses."""

from consilience.measurements.controls import (
    BoundControl,
    Bounds,
    Control,
    Exact,
    bound_controls,
    public_total,
)
from consilience.measurements.custom import CustomLoss, jax_loss
from consilience.measurements.loss import BoundLoss, Loss
from consilience.measurements.losses import AbsoluteLoss, Separable, SquaredLoss
from consilience.measurements.measurement import BoundMeasurement, Measurement, Noise
from consilience.measurements.measurements import Measurements
from consilience.measurements.queries import Dense, Identity, Operator, Query, Sparse, as_query
from consilience.measurements.structured import Centring, Coarsened, Kronecker, Prefix, Ranges
from consilience.measurements.total import Total, estimate_total

__all__ = [
    "AbsoluteLoss",
    "BoundControl",
    "BoundLoss",
    "BoundMeasurement",
    "Bounds",
    "Centring",
    "Coarsened",
    "Control",
    "CustomLoss",
    "Dense",
    "Exact",
    "Identity",
    "Kronecker",
    "Loss",
    "Measurement",
    "Measurements",
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
    "bound_controls",
    "estimate_total",
    "jax_loss",
    "public_total",
]
