"""A page to ask a release questions on: served to this machine alone, or exported as files."""

from consilience.explore.export import export
from consilience.explore.server import serve

__all__ = ["export", "serve"]
