"""What is said before a release is bought: ranges, in the words and numbers that follow from the noise."""

import numpy as np
import pytest

import consilience as cs
from consilience.errors import ConsilienceError
from consilience.mechanisms import AIM, FEM, MWEM, Auto, Gaussian, Laplace, Pilot
from consilience.mechanisms.experience import CURVES, GRID, TOLD
from consilience.mechanisms.foresight import beside, design_of, even_noise, expected, needed

DOMAIN = cs.Domain({f"a{i}": 4 for i in range(8)})
PAIRS = cs.all_marginals(DOMAIN, 2)


def budget(epsilon, delta=1e-6):
    return cs.Budget(epsilon=epsilon, delta=delta, neighbours="replace-one")


def test_even_noise_is_what_gaussian_states():
    ready = Gaussian(PAIRS).calibrate(budget(1))
    stated = np.array(list(ready.expected_total_variation(5000).values()))
    assert even_noise(PAIRS, budget(1), 5000) == pytest.approx(stated, rel=1e-6)


@pytest.mark.parametrize("design", CURVES)
@pytest.mark.parametrize("order", [1, 2, 3])
def test_curves_rise_with_the_noise_and_hold_their_middle(design, order):
    curves = np.array(CURVES[design][order])
    assert curves.shape == (5, len(GRID))
    assert np.array(TOLD[order]).shape == (3, len(GRID))
    assert (np.diff(curves, axis=1) >= 0).all()
    assert (curves <= 1).all()
    assert (curves[0] <= curves[1]).all()
    assert (curves[1] <= curves[2]).all()


@pytest.mark.parametrize(
    ("mechanism", "delta", "design"),
    [
        (Pilot(PAIRS), 1e-6, "pilot"),
        (Gaussian(PAIRS, fit=cs.LatentClasses()), 1e-6, "gaussian-latent"),
        (Laplace(PAIRS), None, "laplace"),
        (AIM(PAIRS), 1e-6, "aim"),
        (AIM(PAIRS, rounds_per_attribute=3), 1e-6, None),
        (AIM(PAIRS, fit=cs.PossibleCells()), 1e-6, None),
        (AIM(PAIRS, fit=cs.LeastSquares()), 1e-6, None),
        (MWEM(PAIRS), 1e-6, "mwem"),
        (MWEM(PAIRS), None, None),
        (MWEM(PAIRS, rounds=3), 1e-6, None),
    ],
)
def test_experience_is_with_a_design_as_it_was_tried(mechanism, delta, design):
    assert design_of(mechanism, mechanism.fit, budget(1, delta)) == design
    assert design is None or design in CURVES


def test_more_budget_or_more_rows_is_closer():
    far = [Pilot(PAIRS).calibrate(budget(e)).expect(5000).mean.middle for e in (0.1, 1, 10)]
    assert far[0] > far[1] > far[2]
    ready = Pilot(PAIRS).calibrate(budget(1))
    assert ready.expect(500).mean.middle > ready.expect(50_000).mean.middle
    assert ready.expect(500).told.middle <= ready.expect(50_000).told.middle


def test_every_design_beside_each_other_is_one_that_the_budget_pays_for():
    assert {e.design for e in beside(PAIRS, budget(1, None), 5000)} == {"laplace", "hdmm-laplace"}
    found = beside(PAIRS, budget(1), 5000)
    assert "pilot" in {e.design for e in found}
    assert "laplace" not in {e.design for e in found}
    middles = [e.mean.middle for e in found]
    assert middles == sorted(middles)


def test_what_would_be_noise_is_said():
    lost = expected("gaussian", PAIRS, budget(0.01), 500)
    assert len(lost.hopeless) == len(PAIRS)
    assert "mostly noise" in (lost.warning or "")
    fine = expected("gaussian", PAIRS, budget(10), 100_000)
    assert not fine.hopeless
    assert fine.warning is None
    assert "pairs: mean total variation" in str(fine)


def test_what_it_would_take_is_enough():
    here = expected("pilot", PAIRS, budget(0.1), 5000)
    take = needed(here, budget(0.1))
    assert take is not None
    assert take.middle is not None
    assert expected("pilot", PAIRS, budget(take.middle), 5000).mean.middle <= 0.05 * 1.001
    assert expected("pilot", PAIRS, budget(take.middle * 0.97), 5000).mean.middle > 0.05
    assert f"you need epsilon {take.middle:.2g}" in str(take)
    assert needed(expected("pilot", PAIRS, budget(10), 1e6), budget(10)) is None


def test_columns_to_drop_are_the_large_ones():
    wide = cs.Domain({"zip": 900, **{f"a{i}": 3 for i in range(6)}})
    tables = cs.all_marginals(wide, 2)
    take = needed(expected("pilot", tables, budget(1), 20_000), budget(1))
    assert take is not None
    assert take.columns == ("zip",)
    assert "or drop zip" in str(take)


def test_refusals_say_what_must_hold():
    with pytest.raises(ConsilienceError, match="rows must be positive and finite, got 0"):
        Auto(PAIRS).calibrate(budget(1)).expect(0)
    with pytest.raises(ConsilienceError, match="there must be experience with the design, got FEM"):
        FEM(PAIRS, rounds=2).calibrate(budget(1)).expect(100)
