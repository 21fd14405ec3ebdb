"""Models: reconstruction, answers, uncertainty, files."""

from consilience.inference.diagnostics import Diagnostics
from consilience.inference.fit import Fit
from consilience.inference.model import Model
from consilience.inference.sampling import SampledRows
from consilience.inference.trust import Trust
from consilience.inference.uncertainty import Uncertainty

__all__ = [
    "Diagnostics",
    "Fit",
    "Model",
    "SampledRows",
    "Trust",
    "Uncertainty",
]
