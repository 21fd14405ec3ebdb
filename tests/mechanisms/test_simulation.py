"""Simulated errors: repeatable, never near the table or a ledger, those of refits where nothing was chosen, and kept in files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from consilience.domain import CliqueVector, Workload, all_marginals
from consilience.errors import ConsilienceError, MeasurementError
from consilience.fits import LeastSquares, load, reconstruct
from consilience.mechanisms import AIM, FEM, HDMM, MWEM, Gaussian, Laplace, Mechanism, Pilot
from consilience.mechanisms.simulation import RUNS
from consilience.model import Model
from consilience.privacy import Budget, Ledger, SeededNoise
from consilience.progress import Step
from consilience.records import Dataset
from mechanisms.cases import DOMAIN, WORKLOAD, people

PAIRS = all_marginals(DOMAIN, 2)
FEW = Workload(DOMAIN, [("age", "sex"), ("sex", "income"), ("age", "income")])
BUDGET = Budget(epsilon=2, delta=1e-6, neighbours="replace-one")
HIDDEN = Budget(epsilon=2, delta=1e-6, neighbours="add-remove")
LOCAL = LeastSquares(consistency="local")
DATA = people(3000)


class Once:
    """A table that can be counted once."""

    def __init__(self, data: Dataset) -> None:
        self.data, self.counted = data, False
        self.domain, self.records = data.domain, data.records

    def marginals(self, cliques) -> CliqueVector:
        assert not self.counted, "the table was counted again"
        self.counted = True
        return self.data.marginals(cliques)


def same(one: Model, two: Model) -> bool:
    assert one.replicates is not None
    assert two.replicates is not None
    return np.array_equal(one.replicates.deviations, two.replicates.deviations) and np.array_equal(
        one.replicates.totals, two.replicates.totals
    )


@pytest.mark.parametrize(
    ("mechanism", "budget"),
    [
        (Pilot(FEW, fit=LOCAL), Budget(epsilon=0.05, delta=1e-6, neighbours="add-remove")),
        (AIM(PAIRS, rounds_per_attribute=2), BUDGET),
        (AIM(PAIRS, rounds_per_attribute=2, fit=LOCAL), HIDDEN),
        (MWEM(PAIRS, rounds=2), BUDGET),
        (MWEM(PAIRS, rounds=2, fit=LOCAL), Budget(epsilon=2, neighbours="add-remove")),
        (HDMM(WORKLOAD, restarts=1), BUDGET),
    ],
    ids=[
        "pilot",
        "aim",
        "aim, least squares",
        "mwem",
        "mwem, laplace",
        "hdmm",
    ],
)
def test_a_simulation_repeats_itself_and_counts_no_table(
    mechanism: Mechanism, budget: Budget
) -> None:
    ready = mechanism.calibrate(budget)
    result = ready(Once(DATA), noise=SeededNoise(seed=1))
    seen: list[Step] = []
    made = ready.simulated(result, 2, progress=seen.append)
    assert [(s.stage, s.done, s.total) for s in seen] == [
        ("simulated runs", 1, 2), ("simulated runs", 2, 2),
    ]  # fmt: skip
    assert same(made, ready.simulated(result, 2, np.random.default_rng(0)))
    for clique in mechanism.workload:
        found = made.uncertainty(clique)
        np.testing.assert_array_equal(found.answer, result.model.marginal(clique))
        assert found.replicates == 2
        assert found.stderr.max() > 0
        assert np.isfinite(found.interval()).all()


def test_the_ledger_has_one_entry_whatever_is_simulated(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "people.ledger", table="people", total=BUDGET)
    ready = Gaussian(WORKLOAD, fit=LOCAL).calibrate(BUDGET)
    result = ready(DATA, ledger=ledger)
    before = (tmp_path / "people.ledger").read_bytes()
    ready.simulated(result, 2)
    assert (tmp_path / "people.ledger").read_bytes() == before
    assert len(ledger.read().entries) == 1


@pytest.mark.parametrize("kind", [Gaussian, Laplace])
def test_errors_of_a_fixed_mechanism_are_those_of_refits(kind: type[Mechanism]) -> None:
    """Nothing is chosen and least squares pull towards nothing: both estimate the same spread."""
    amount = {"rho": 0.5} if kind is Gaussian else {"epsilon": 4}
    ready = kind(WORKLOAD, fit=LOCAL).calibrate(Budget(**amount, neighbours="replace-one"))
    result = ready(DATA, noise=SeededNoise(seed=0))
    simulated = ready.simulated(result, 50)
    for clique in WORKLOAD:
        one = simulated.uncertainty(clique, method="bootstrap")
        two = result.model.uncertainty(clique, method="bootstrap", replicates=50, rng=5)
        # Each standard error of 50 replicates scatters by a tenth; of 500 the tables' agree to 3 %.
        assert np.sqrt(np.mean(one.stderr**2)) == pytest.approx(
            np.sqrt(np.mean(two.stderr**2)), rel=0.25
        )
        assert np.abs(one.bias).max() < 4 * two.stderr.max() / 7


def test_what_a_mechanism_chose_is_drawn_anew() -> None:
    """Choices are nearly blind here and tables precise: what other runs leave to be inferred has an error that refits lack."""
    blind = MWEM(PAIRS, rounds=2, select_share=1e-6, fit=LOCAL)
    ready = blind.calibrate(Budget(rho=1, neighbours="replace-one"))
    result = ready(DATA, noise=SeededNoise(seed=1))
    simulated = ready.simulated(result, 12)
    wider = [
        simulated.uncertainty(m.attributes, method="bootstrap").distance.sum()
        / result.model.uncertainty(m.attributes, method="bootstrap", replicates=12).distance.sum()
        for m in result.measurements
    ]
    assert min(wider) > 2, wider


def test_people_are_drawn_for_whom_the_budget_protects() -> None:
    budget = Budget(rho=1, neighbours="add-remove", unit="id", rows_per_unit=3)
    data = DATA.few_of_each_unit(np.arange(DATA.records) // 3, 3, "id")
    ready = Gaussian(WORKLOAD, fit=LOCAL).calibrate(budget)
    made = ready.simulated(ready(data, noise=SeededNoise(seed=0)), 3)
    assert made.replicates is not None
    assert len(set(made.replicates.totals.tolist())) == 3, "the number of rows is estimated anew"


def test_files_keep_them_and_refits_do_not_take_their_place(tmp_path: Path) -> None:
    """Where least squares are plain as well: they were asked for."""
    ready = Gaussian(WORKLOAD, fit=LOCAL).calibrate(Budget(rho=1e4, neighbours="replace-one"))
    result = ready(DATA, noise=SeededNoise(seed=0))
    assert result.model.uncertainty(("age", "sex")).method == "closed-form"
    made = ready.simulated(result, 4).lasting()
    made.save(tmp_path / "model.npz")
    again = load(tmp_path / "model.npz")
    for asked in (("age", "sex"), ("age", "income")):
        one, two = made.uncertainty(asked), again.uncertainty(asked)
        assert (one.method, one.replicates) == ("bootstrap", 4)
        np.testing.assert_array_equal(one.stderr, two.stderr)
    assert again.replicates is not None
    assert again.replicates.simulated


def test_a_cell_that_people_fall_into_is_as_uncertain_as_they_are_many() -> None:
    """Rows of the model may be where it has next to nobody and their refit nobody: that error is not cut at zero."""
    ready = Gaussian(WORKLOAD, fit=LOCAL).calibrate(BUDGET)
    result = ready(DATA, noise=SeededNoise(seed=0))
    model = ready.simulated(result, 2)
    assert model.replicates is not None
    kept = model.replicates
    down = np.full_like(kept.deviations, -1.0)
    lower = replace(model, replicates=replace(kept, deviations=down, scales=np.full_like(kept.scales, 0.5)))  # fmt: skip
    np.testing.assert_allclose(lower.stderr(("age", "sex")), 0.5 * model.total, rtol=1e-3)
    assert (lower.replicated(("age", "sex"))[1] == 0).all(), "counts that ratios are made of"


@pytest.mark.parametrize(
    ("count", "words"), [(1, "replicates must be at least 2, got 1"), (0, "got 0")]
)
def test_too_few(count: int, words: str) -> None:
    ready = Gaussian(WORKLOAD, fit=LOCAL).calibrate(BUDGET)
    with pytest.raises(ConsilienceError, match=words):
        ready.simulated(ready(DATA, noise=SeededNoise(seed=0)), count)
    assert RUNS > 2


def test_what_cannot_be_simulated_is_refused() -> None:
    one, two = (Gaussian(WORKLOAD, fit=LOCAL).calibrate(b) for b in (BUDGET, HIDDEN))
    of_another = one(DATA, noise=SeededNoise(seed=0))
    empty = replace(of_another, model=reconstruct(DOMAIN, [], 5.0))
    game = FEM(WORKLOAD, rounds=2).calibrate(BUDGET)
    with pytest.raises(MeasurementError, match=r"a simulation needs measurements .* FEM publishes"):
        game.simulated(empty)
    with pytest.raises(ConsilienceError, match="must be of the mechanism that is simulated"):
        two.simulated(of_another)
