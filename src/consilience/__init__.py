"""Consilience: one consistent, non-negative set of answers from noisy, differentially private marginals.

Every name here is a promise to users; what is not here may change. A name's module is imported when the name is first asked
for, so that a script pays only for what it uses: compiled kernels and the noise library take a second to load.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from consilience import baselines, mechanisms
    from consilience.comparison import compare
    from consilience.data import Schema, population
    from consilience.data.tables import read_table
    from consilience.domain import CliqueVector, Domain, Workload, all_marginals, random_marginals
    from consilience.errors import ConsilienceError
    from consilience.fits import (
        Fit,
        LaplaceLikelihood,
        LatentClasses,
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
        Bounds,
        CustomLoss,
        Exact,
        Loss,
        Measurement,
        Measurements,
        SquaredLoss,
        estimate_total,
    )
    from consilience.model import Model
    from consilience.privacy import Budget
    from consilience.records import Dataset
    from consilience.regions import RegionGraph
    from consilience.release import read_release, release
    from consilience.solvers.convex_gbp import convex_gbp
    from consilience.solvers.private_pgm import private_pgm
    from consilience.solvers.prox import prox_pgm
    from consilience.solvers.solution import Solution
    from consilience.solvers.splitting import splitting

__all__ = [
    "AbsoluteLoss",
    "Bounds",
    "Budget",
    "CliqueVector",
    "ConsilienceError",
    "CustomLoss",
    "Dataset",
    "Domain",
    "Exact",
    "Fit",
    "LaplaceLikelihood",
    "LatentClasses",
    "LeastSquares",
    "Loss",
    "Measurement",
    "Measurements",
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
    "read_release",
    "read_table",
    "reconstruct",
    "release",
    "splitting",
]

_HOMES = {
    "comparison": ("compare",),
    "data": ("Schema", "population"),
    "data.tables": ("read_table",),
    "domain": ("CliqueVector", "Domain", "Workload", "all_marginals", "random_marginals"),
    "errors": ("ConsilienceError",),
    "fits": (
        "Fit", "LaplaceLikelihood", "LatentClasses", "LeastSquares", "NormCut", "PossibleCells", "SelectionLikelihood", "Shrunk",
        "load", "plan", "reconstruct",
    ),
    "measurements": (
        "AbsoluteLoss", "Bounds", "CustomLoss", "Exact", "Loss", "Measurement", "Measurements", "SquaredLoss", "estimate_total",
    ),
    "model": ("Model",),
    "privacy": ("Budget",),
    "records": ("Dataset",),
    "regions": ("RegionGraph",),
    "release": ("read_release",),
    "solvers.convex_gbp": ("convex_gbp",),
    "solvers.private_pgm": ("private_pgm",),
    "solvers.prox": ("prox_pgm",),
    "solvers.solution": ("Solution",),
    "solvers.splitting": ("splitting",),
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_PACKAGES = ("baselines", "mechanisms", "release")
"""Names that are the package itself; calling the package `release` makes one."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("consilience")
    if name in _PACKAGES:
        return import_module(f"consilience.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'consilience' has no attribute {name!r}")
    found = getattr(import_module(f"consilience.{_HOME[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
