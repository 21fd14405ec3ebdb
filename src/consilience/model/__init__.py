"""Models: what an estimator is and what it makes; answers, uncertainty, rows, files."""

from consilience.model.diagnostics import Diagnostics
from consilience.model.fit import Fit
from consilience.model.model import Model
from consilience.model.sampling import SampledRows
from consilience.model.trust import Trust
from consilience.model.uncertainty import Uncertainty
from consilience.model.whole import Rounding

__all__ = [
    "Diagnostics",
    "Fit",
    "Model",
    "Rounding",
    "SampledRows",
    "Trust",
    "Uncertainty",
]
