"""A county of invented blocks, and its noisy files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from consilience.census.simulate import WIDE, read_truth, simulate
from consilience.privacy.noise import SeededNoise


def write_blocks(path: Path, seed: int = 0) -> Path:
    """Two counties, three tracts, four block groups, 17 blocks; one block group and one tract are only children."""
    rng = np.random.default_rng(seed)
    groups = ("150010001001", "150010001002", "150010002001", "150030001001")
    rows = [f"{g}{k:03d}" for g, many in zip(groups, (6, 1, 5, 5), strict=True) for k in range(many)]  # fmt: skip
    lines = ["block," + ",".join(WIDE)]
    for block in rows:
        counts = rng.poisson(rng.gamma(0.7, 6.0, len(WIDE)))
        lines.append(block + "," + ",".join(map(str, counts)))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="session")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_blocks(tmp_path_factory.mktemp("truth") / "blocks.csv")


@pytest.fixture(scope="session")
def files(blocks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("noisy") / "files"
    simulate(read_truth(blocks), out, SeededNoise(seed=1))
    return out
