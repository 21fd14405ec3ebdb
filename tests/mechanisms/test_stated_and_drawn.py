"""Every mechanism draws the noise that it states and charges for: thousands of draws, in units of the stated deviation."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.domain import Domain, Workload, all_marginals
from consilience.mechanisms import (
    AIM,
    HDMM,
    MWEM,
    Gaussian,
    Laplace,
    Mechanism,
    Pilot,
    ResidualPlanner,
)
from consilience.privacy import Budget, Epsilon, SecureNoise, SeededNoise
from consilience.privacy import noise as noise_module
from consilience.privacy.calibration import selection_scale
from consilience.records import Dataset

DOMAIN = Domain({"a": 40, "b": 50, "c": 3}, levels={"tens": ("b", np.arange(50) // 10)})
RNG = np.random.default_rng(0)
DATA = Dataset(np.stack([RNG.integers(0, n, 5000) for n in DOMAIN.shape], axis=1), DOMAIN)
PAIRS = all_marginals(DOMAIN, 2)
LEVELS = Workload(DOMAIN, [("a", "tens"), ("b", "c"), ("tens", "c")])
APPROXIMATE = Budget(epsilon=1, delta=1e-6, neighbours="replace-one")
PURE = Budget(epsilon=1, neighbours="add-remove")
CASES: dict[str, tuple[Mechanism, Budget]] = {
    "gaussian": (Gaussian(PAIRS), APPROXIMATE),
    "laplace": (Laplace(PAIRS), PURE),
    "residual planner": (ResidualPlanner(PAIRS), APPROXIMATE),
    "residual planner at levels": (ResidualPlanner(LEVELS), APPROXIMATE),
    "HDMM, gaussian": (HDMM(PAIRS), APPROXIMATE),
    "HDMM, laplace": (HDMM(PAIRS), PURE),
    "MWEM, gaussian": (MWEM(PAIRS, rounds=3), APPROXIMATE),
    "MWEM, laplace": (MWEM(PAIRS, rounds=3), PURE),
    "AIM": (AIM(PAIRS), APPROXIMATE),
    "Pilot": (Pilot(PAIRS), APPROXIMATE),
}


@pytest.mark.parametrize("source", ["secure", "seeded"])
@pytest.mark.parametrize("name", CASES)
def test_the_noise_is_as_wide_as_is_stated(name: str, source: str) -> None:
    """Five and a half standard errors around one; noise of 0.9 of the stated width would lie outside."""
    mechanism, budget = CASES[name]
    ready = mechanism.calibrate(budget)
    noise = SecureNoise() if source == "secure" else SeededNoise(seed=4)
    z = []
    while sum(map(len, z)) < 6000:
        for m in ready.measure(DATA, noise=noise).measurements:
            exact = DATA.marginal(m.attributes).astype(float).reshape(-1)
            answer = exact if m.query is None else m.query.apply(exact)
            z.append((m.values.reshape(-1) - answer) / m.stddev)
    drawn = np.concatenate(z)
    squares = drawn**2
    spread = 5.5 * squares.std() / np.sqrt(drawn.size)
    assert abs(squares.mean() - 1) < spread
    assert spread < 0.19, "0.9 of the width would be seen: 1 - 0.81"
    assert abs(drawn.mean()) < 5.5 / np.sqrt(drawn.size)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=6),
    st.lists(st.floats(-1, 1), min_size=6, max_size=6),
    st.fractions(min_value=Fraction(1, 8), max_value=64),
)
def test_scores_on_a_grid_move_no_further_than_is_charged(
    scores: list[float], moved: list[float], sensitivity: Fraction
) -> None:
    """What OpenDP is told of integer scores holds for the scores that it gets: neighbours, rounded, are as near as stated."""
    before = np.array(scores)
    after = before + float(sensitivity) * np.array(moved[: len(scores)])
    seen = [_given(s, sensitivity) for s in (before, after)]
    assert seen[0][0] == seen[1][0]
    apart = np.abs(seen[0][1] - seen[1][1]).max()
    assert apart <= seen[0][0]


def test_rounding_can_move_scores_past_the_grid() -> None:
    """So that stating the bare grid would be too little: one step more is reached."""
    unit = 1 / 2**16
    before, after = np.array([0.5001 * unit, 0.0]), np.array([-1 + 0.4999 * unit, 0.0])
    stated, low = _given(after, Fraction(1))
    _, high = _given(before, Fraction(1))
    assert np.abs(high - low).max() > 2**16
    assert stated >= 2**16 + 3, "rounding, the division, and half a step in each score"


def _given(scores: np.ndarray, sensitivity: Fraction) -> tuple[int, np.ndarray]:
    """The sensitivity and the integer scores that OpenDP's selection is called with."""
    seen: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            noise_module, "_selector", lambda width, change, epsilon: seen.append((width, change))
        )
        patch.setattr(noise_module, "_invoke", lambda selector, values: seen.append(values) or 0)
        SecureNoise().select(scores, sensitivity, Epsilon(1))
    (width, change), values = seen  # type: ignore[misc]
    assert width >= selection_scale(Fraction(change), Epsilon(1)).value  # type: ignore[has-type]
    return change, values.astype(float)  # type: ignore[has-type, attr-defined]
