"""Models: reconstruction, answers, uncertainty, files."""

from consilience.inference.diagnostics import Diagnostics
from consilience.inference.model import Model, load
from consilience.inference.reconstruct import plan, reconstruct
from consilience.inference.sampling import SampledRows
from consilience.inference.settings import Settings
from consilience.inference.trust import Trust
from consilience.inference.uncertainty import Uncertainty

__all__ = [
    "Diagnostics",
    "Model",
    "SampledRows",
    "Settings",
    "Trust",
    "Uncertainty",
    "load",
    "plan",
    "reconstruct",
]
