"""Consilience: one consistent, non-negative set of answers from noisy, differentially private marginals.

Every name here is a promise to users; what is not here may change.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from consilience.data import Schema, population
from consilience.domain import CliqueVector, Domain, Workload, all_marginals, random_marginals
from consilience.errors import ConsilienceError
from consilience.fits import (
    Fit,
    LaplaceLikelihood,
    LeastSquares,
    NormCut,
    PossibleCells,
    SelectionLikelihood,
    Shrunk,
    load,
    plan,
    reconstruct,
)
from consilience.measurements import (
    AbsoluteLoss,
    CustomLoss,
    Loss,
    Measurement,
    SquaredLoss,
    estimate_total,
)
from consilience.model import Model
from consilience.records import Dataset
from consilience.regions import RegionGraph
from consilience.solvers.convex_gbp import convex_gbp
from consilience.solvers.private_pgm import private_pgm
from consilience.solvers.prox import prox_pgm
from consilience.solvers.solution import Solution
from consilience.solvers.splitting import splitting

if TYPE_CHECKING:
    from consilience import baselines, mechanisms
    from consilience.comparison import compare
    from consilience.data.tables import read_table
    from consilience.privacy import Budget
    from consilience.release import release

__all__ = [
    "AbsoluteLoss",
    "Budget",
    "CliqueVector",
    "ConsilienceError",
    "CustomLoss",
    "Dataset",
    "Domain",
    "Fit",
    "LaplaceLikelihood",
    "LeastSquares",
    "Loss",
    "Measurement",
    "Model",
    "NormCut",
    "PossibleCells",
    "RegionGraph",
    "Schema",
    "SelectionLikelihood",
    "Shrunk",
    "Solution",
    "SquaredLoss",
    "Workload",
    "all_marginals",
    "baselines",
    "compare",
    "convex_gbp",
    "estimate_total",
    "load",
    "mechanisms",
    "plan",
    "population",
    "private_pgm",
    "prox_pgm",
    "random_marginals",
    "read_table",
    "reconstruct",
    "release",
    "splitting",
]

_FROM_PRIVACY = frozenset({"Budget"})
"""Fetched when first asked for: OpenDP takes as long to load as everything else together."""


def __getattr__(name: str) -> Any:
    if name in _FROM_PRIVACY:
        return getattr(import_module("consilience.privacy"), name)
    if name in ("baselines", "mechanisms", "release"):  # calling the package `release` makes one
        return import_module(f"consilience.{name}")
    if name == "read_table":
        return import_module("consilience.data.tables").read_table
    if name == "compare":
        return import_module("consilience.comparison").compare
    raise AttributeError(f"module 'consilience' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
