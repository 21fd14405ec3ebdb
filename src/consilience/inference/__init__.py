"""Models: reconstruction, answers, uncertainty, files."""

from consilience.inference.diagnostics import Diagnostics
from consilience.inference.model import Model
from consilience.inference.reconstruct import plan, reconstruct
from consilience.inference.settings import Settings

__all__ = ["Diagnostics", "Model", "Settings", "plan", "reconstruct"]
