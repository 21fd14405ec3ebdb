"""The experiments are scripts beside the package; here they are importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))
