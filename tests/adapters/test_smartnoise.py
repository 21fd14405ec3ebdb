"""SmartNoise's MST and AIM with our estimator under them, by the mbi adapter's `replacing()`. Runs where smartnoise-synth is."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from consilience.adapters.mbi import replacing
from consilience.model.model import Model

pytestmark = pytest.mark.slow

SIZES = {"a": 3, "b": 4, "c": 2, "d": 5}
ROWS = 3000


@pytest.fixture(scope="module")
def synthesizer() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("snsynth", reason="needs smartnoise-synth").Synthesizer


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["mst", "aim"])
def test_smartnoises_own_mechanisms(synthesizer: Any, name: str) -> None:
    import pandas as pd

    rng = np.random.default_rng(0)
    first = rng.integers(0, 6, ROWS)
    frame = pd.DataFrame(
        {
            a: (first * (i + 1) + rng.integers(0, 3, ROWS)) % n
            for i, (a, n) in enumerate(SIZES.items())
        }
    )
    mechanism = synthesizer.create(name, epsilon=2.0, delta=1e-9)
    with replacing():
        mechanism.fit(frame, categorical_columns=list(SIZES))
    assert isinstance(mechanism.synthesizer.ours, Model)
    rows = mechanism.sample(ROWS)
    for a, n in SIZES.items():
        shares = [
            np.bincount(np.asarray(t[a], np.int64), minlength=n) / ROWS for t in (frame, rows)
        ]
        assert 0.5 * np.abs(shares[0] - shares[1]).sum() < 0.06
