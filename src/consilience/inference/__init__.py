"""Models: reconstruction, answers, uncertainty, files."""

from consilience.inference.model import Diagnostics, Model
from consilience.inference.reconstruct import plan, reconstruct

__all__ = ["Diagnostics", "Model", "plan", "reconstruct"]
