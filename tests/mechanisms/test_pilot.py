"""Pilot and Auto: what is charged is what is drawn, what is chosen rests on noisy values, and a run goes on where it was."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from consilience.domain import Domain, Workload, all_marginals
from consilience.errors import BudgetError, ConsilienceError
from consilience.fits import LatentClasses, LeastSquares
from consilience.measurements import Centring
from consilience.mechanisms import Auto, Gaussian, Laplace, Pilot, ResidualPlanner
from consilience.mechanisms.mechanism import Tape
from consilience.mechanisms.pilot import FIRST_TOTAL, _water_filling
from consilience.mechanisms.residual_parts import prices
from consilience.privacy import Budget, SeededNoise
from consilience.records import Dataset

DOMAIN = Domain({"a": 4, "b": 6, "c": 3, "d": 5, "one": 1})
PAIRS = all_marginals(DOMAIN, 2)
RELATIONS = {
    "replace-one": {"neighbours": "replace-one"},
    "add-remove": {"neighbours": "add-remove"},
    "replace a person": {"neighbours": "replace-one", "unit": "id", "rows_per_unit": 3},
    "add a person": {"neighbours": "add-remove", "unit": "id", "rows_per_unit": 3},
}


def people(records: int) -> Dataset:
    rng = np.random.default_rng(2)
    a = rng.integers(0, 4, records)
    b = np.minimum(5, a + rng.integers(0, 3, records))
    rest = [rng.integers(0, n, records) for n in (3, 5, 1)]
    rest[0] = np.where(rng.random(records) < 0.7, a % 3, rest[0])
    return Dataset(np.stack([a, b, *rest], axis=1), DOMAIN)


def spent(ready, release) -> float:
    """rho by the widths that are stated, residual by residual, each at its own price: never less than what was charged."""
    found = 0.0
    for m in release.measurements:
        (price,) = prices(DOMAIN, [m.attributes], ready.budget.neighbours)
        found += price / (2 * m.stddev**2)
    return found


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 20.0])
@pytest.mark.parametrize("relation", ["add-remove", "add a person"])
def test_the_noise_that_is_drawn_costs_what_was_reserved(relation: str, epsilon: float) -> None:
    rows = {k: v for k, v in RELATIONS[relation].items() if k != "unit"}
    budget = Budget(epsilon=epsilon, delta=1e-6, **RELATIONS[relation])
    data = people(20_000)
    if "rows_per_unit" in rows:
        data = data.few_of_each_unit(np.arange(20_000) // 3, 3, "id")
    ready = Pilot(PAIRS).calibrate(budget)
    release = ready.measure(data, noise=SeededNoise(seed=1))
    rho = float(ready.cost.rho.value)
    assert spent(ready, release) == pytest.approx(rho, rel=0.02)
    assert spent(ready, release) <= rho * (1 + 1e-9)


@pytest.mark.parametrize("relation", ["replace-one", "replace a person"])
def test_replacing_is_charged_together_and_never_beyond(relation: str) -> None:
    budget = Budget(epsilon=1.0, delta=1e-6, **RELATIONS[relation])
    data = people(20_000)
    if relation == "replace a person":
        data = data.few_of_each_unit(np.arange(20_000) // 3, 3, "id")
    ready = Pilot(PAIRS).calibrate(budget)
    release = ready.measure(data, noise=SeededNoise(seed=1))
    # Residual by residual the price is an upper bound: together they cost less, and use the whole of rho.
    assert spent(ready, release) > float(ready.cost.rho.value)
    assert budget.admits(ready.cost)


def test_a_pilot_comes_first_unless_noise_is_large_or_very_small() -> None:
    data = people(20_000)
    readies = [
        Pilot(PAIRS).calibrate(Budget(epsilon=e, delta=1e-6, neighbours="add-remove"))
        for e in (0.002, 0.5, 20.0)
    ]
    tapes = [Tape() for _ in readies]
    alike, divided, closed = (
        ready.measure(data, noise=SeededNoise(seed=0), tape=tape).measurements
        for ready, tape in zip(readies, tapes, strict=True)
    )
    assert [any("shares" in piece for piece in tape.pieces) for tape in tapes] == [
        False,
        True,
        False,
    ]
    planned = ResidualPlanner(PAIRS).calibrate(readies[2].budget).parts
    found = {m.attributes: m.stddev for m in closed}
    ratios = [found[part.clique] / part.stddev for part in planned if part.clique]
    np.testing.assert_allclose(ratios, (1 - FIRST_TOTAL) ** -0.5, rtol=1e-3)
    pairs = [m.stddev for m in alike if len(m.attributes) == 2]
    assert np.ptp(pairs) < 1e-6 * pairs[0]
    assert len({m.stddev for m in divided if len(m.attributes) == 2}) > 2
    assert all(isinstance(m.query, Centring) for m in (*alike, *divided))


def test_what_is_divided_rests_on_noisy_values_alone() -> None:
    """Two tables whose draws come out the same are divided the same: the rest is a function of what was drawn."""
    budget = Budget(epsilon=1.0, delta=1e-6, neighbours="replace-one")
    ready = Pilot(PAIRS).calibrate(budget)
    tape = Tape()
    first = ready.measure(people(20_000), noise=SeededNoise(seed=3), tape=tape)
    cut = next(i for i, piece in enumerate(tape.pieces) if "shares" in piece)
    again = Tape(tape.pieces[:cut])
    columns = [np.roll(people(20_000).column(a), 1) for a in DOMAIN]
    other = Dataset(np.stack(columns, axis=1), DOMAIN)
    ready.measure(other, noise=SeededNoise(seed=9), tape=again)
    for name in ("variances", "shares"):
        np.testing.assert_array_equal(again.pieces[cut][name], tape.pieces[cut][name])
    assert first.measurements


@pytest.mark.parametrize("kept", [1, 2, 3, 4])
def test_a_run_that_was_interrupted_goes_on(kept: int) -> None:
    budget = Budget(epsilon=1.0, delta=1e-6, neighbours="add-remove")
    ready, data = Pilot(PAIRS).calibrate(budget), people(20_000)
    tape = Tape()
    whole = ready.measure(data, noise=SeededNoise(seed=3), tape=tape)
    rest = ready.measure(data, noise=SeededNoise(seed=4), tape=Tape(tape.pieces[:kept]))
    assert [m.attributes for m in rest.measurements] == [m.attributes for m in whole.measurements]
    np.testing.assert_array_equal(rest.measurements[0].values, whole.measurements[0].values)


def test_a_huge_budget_gives_the_truth() -> None:
    data = people(5_000)
    ready = Pilot(PAIRS).calibrate(Budget(rho=1e6, neighbours="replace-one"))
    model = ready(data, noise=SeededNoise(seed=0)).model
    for clique in combinations(("a", "b", "c", "d"), 2):
        assert np.abs(model.marginal(clique) - data.marginal(clique)).sum() < 50


def test_it_is_closer_than_plain_gaussian_noise() -> None:
    data, budget = people(20_000), Budget(epsilon=0.3, delta=1e-6, neighbours="replace-one")
    cliques = [c for c in PAIRS if "one" not in c]
    found = []
    for mechanism in (Pilot(PAIRS), Gaussian(PAIRS)):
        model = mechanism.calibrate(budget)(data, noise=SeededNoise(seed=0)).model
        found.append(sum(np.abs(model.marginal(c) - data.marginal(c)).sum() for c in cliques))
    assert found[0] < 0.8 * found[1]


def test_other_fits_and_orders() -> None:
    data, budget = people(5_000), Budget(epsilon=2, delta=1e-6, neighbours="add-remove")
    workload = Workload(DOMAIN, {("a", "b", "c"): 2.0, ("c", "d"): 1.0, ("one",): 1.0})
    model = (
        Pilot(workload, fit=LeastSquares()).calibrate(budget)(data, noise=SeededNoise(seed=0)).model
    )
    assert model.marginal(("a", "b", "c")).min() >= 0


def test_water_filling_equals_slopes_where_it_pours() -> None:
    rng = np.random.default_rng(0)
    kinds, variances = rng.integers(0, 9, (6, 5)).astype(float), np.geomspace(0.1, 1e3, 5)
    known, part = rng.uniform(0.1, 1, 6), rng.uniform(0.3, 1, 6)
    price, weight = part.copy(), np.ones(6)
    more = _water_filling(kinds, variances, known, part, price, weight, 2.0)
    assert price @ more == pytest.approx(2.0)

    def expected(p: np.ndarray) -> float:
        return float((kinds * np.sqrt(1 / (1 / variances + ((known + p) / part)[:, None]))).sum())

    for i, j in combinations(range(6), 2):
        step = np.zeros(6)
        step[i], step[j] = 1e-4 / price[i], -1e-4 / price[j]
        for move in (step, -step):
            if (more + move >= 0).all():
                assert expected(more + move) >= expected(more) - 1e-9


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (Budget(epsilon=1, neighbours="replace-one"), "Pilot spends rho"),
        (Budget(epsilon=1, delta=1e-6, neighbours="replace-one", accounting="gaussian"), "zcdp"),
        (Budget(rho=1e-30, neighbours="replace-one"), "spend more of the budget"),
    ],
)
def test_refusals(budget: Budget, words: str) -> None:
    with pytest.raises((BudgetError, ConsilienceError), match=words):
        Pilot(PAIRS).calibrate(budget)


# -- Auto ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workload", "budget", "kind"),
    [
        (PAIRS, {"epsilon": 1, "delta": 1e-6}, Pilot),
        (PAIRS, {"rho": 0.1}, Pilot),
        (PAIRS, {"epsilon": 1, "delta": 1e-6, "accounting": "gaussian"}, Gaussian),
        (Workload(DOMAIN, [("a", "b")]), {"epsilon": 1}, Laplace),
        (Workload(DOMAIN, [("a", "b"), ("b", "c")]), {"epsilon": 1, "delta": 1e-6}, Gaussian),
        (all_marginals(Domain({"a": 9_000, "b": 9_000}), 1), {"rho": 1}, ResidualPlanner),
    ],
)
def test_auto_chooses_by_what_is_public(workload: Workload, budget: dict, kind: type) -> None:
    chosen, why = Auto(workload).choose(Budget(neighbours="replace-one", **budget))
    assert type(chosen) is kind
    assert why
    ready = Auto(workload).calibrate(Budget(neighbours="replace-one", **budget))
    assert type(ready.mechanism) is kind


def test_auto_passes_on_the_fit_that_is_asked_for() -> None:
    budget = Budget(epsilon=1, delta=1e-6, neighbours="replace-one")
    chosen, _ = Auto(PAIRS, fit=LeastSquares()).choose(budget)
    assert isinstance(chosen.fit, LeastSquares)
    assert isinstance(Auto(PAIRS).choose(budget)[0].fit, LatentClasses)
