"""What every mechanism must keep: cost known beforehand, spent once, refused beyond; marks; repeatability."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pytest

from consilience.errors import InsufficientBudgetError, LedgerError, NoiseError, UncountedWarning
from consilience.measurements import estimate_total
from consilience.mechanisms import Calibrated, Mechanism, Release, Result, Source
from consilience.mechanisms import mechanism as mechanism_module
from consilience.mechanisms.mechanism import NOT_PRIVATE
from consilience.privacy import Budget, Ledger, Neighbours, SecureNoise, SeededNoise
from consilience.progress import Step
from mechanisms.cases import CALIBRATIONS, CASES, DOMAIN, WORKLOAD, people

DATA = people(400)
NAMES = list(CASES)


def calibrated(name: str, neighbours: str = "replace-one", i: int = 0) -> Calibrated:
    case = CASES[name]
    return case.build(WORKLOAD).calibrate(case.budgets(neighbours)[i])


class Failing(SecureNoise):
    """A source of noise that dies before it draws."""

    def discrete_gaussian(self, counts, sigma, progress=None):
        raise KeyboardInterrupt

    discrete_laplace = discrete_gaussian


class Watching(SecureNoise):
    """Looks at the ledger at the moment of each draw."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self.ledger, self.seen = ledger, []

    def discrete_gaussian(self, counts, sigma, progress=None):
        self.seen.append(len(self.ledger.read().entries))
        return super().discrete_gaussian(counts, sigma, progress)

    def discrete_laplace(self, counts, scale, progress=None):
        self.seen.append(len(self.ledger.read().entries))
        return super().discrete_laplace(counts, scale, progress)


@pytest.fixture
def new_ledger(tmp_path):
    def make(total: Budget, table: str = "people") -> Ledger:
        return Ledger.create(tmp_path / f"{table}.ledger", table=table, total=total)

    return make


@pytest.mark.parametrize("name, neighbours, i", CALIBRATIONS)
def test_cost_is_known_before_data_and_within_the_budget(name, neighbours, i):
    ready = calibrated(name, neighbours, i)
    budget = CASES[name].budgets(neighbours)[i]
    assert ready.budget == budget
    assert ready.cost.neighbours == Neighbours.of(neighbours)
    assert budget.admits(ready.cost)
    assert not budget.admits(ready.cost + ready.cost), "half of the budget would be left unused"


@pytest.mark.parametrize("name, neighbours, i", CALIBRATIONS)
def test_cost_does_not_depend_on_data(name, neighbours, i):
    ready = calibrated(name, neighbours, i)
    before = ready.cost
    releases = [ready.measure(people(n, seed=n), noise=SeededNoise(seed=0)) for n in (1, 7, 300)]
    assert {r.cost for r in releases} == {before} == {ready.cost}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_a_call_gives_a_model_of_the_workload(name, neighbours):
    ready = calibrated(name, neighbours)
    result = ready(DATA)
    assert isinstance(result, Result)
    assert (result.private, result.mark) == (True, "private")
    assert result.cost == ready.cost
    assert result.diagnostics is result.model.diagnostics
    assert result.diagnostics.converged
    assert [m.attributes for m in result.measurements] == list(WORKLOAD)
    for clique in WORKLOAD:
        table = result.model.marginal(clique)
        assert table.min() >= 0
        assert table.sum() == pytest.approx(result.model.total)
    if neighbours == "replace-one":
        assert result.model.total == DATA.records, "the number of rows is public"
    else:
        assert result.release.total is None
        estimate = estimate_total(DOMAIN, result.measurements)
        assert result.model.total == estimate.value, "the number of rows is protected"
        assert abs(estimate.value - DATA.records) < 6 * estimate.stddev


@pytest.mark.parametrize("name", NAMES)
def test_the_ledger_is_charged_once_and_before_noise(name, new_ledger):
    ready = calibrated(name)
    ledger = new_ledger(ready.budget)
    noise = Watching(ledger)
    ready(DATA, noise=noise, ledger=ledger)
    assert set(noise.seen) == {1}, "the reservation was on disk at every draw"
    (entry,) = ledger.read().entries
    assert ledger.read().spent == ready.cost
    assert entry.cost == ready.cost
    assert "4 tables, 33 cells" in entry.description


@pytest.mark.parametrize("name", NAMES)
def test_a_second_call_is_refused_and_costs_nothing(name, new_ledger):
    ready = calibrated(name)
    ledger = new_ledger(ready.budget)
    ready(DATA, ledger=ledger)
    counted = []

    class Counting:
        domain, records = DATA.domain, DATA.records

        def marginals(self, cliques):
            counted.append(cliques)
            return DATA.marginals(cliques)

    with pytest.raises(InsufficientBudgetError, match="nothing was spent"):
        ready(Counting(), noise=Failing(), ledger=ledger)
    assert counted == [], "refused before the table was read"
    assert len(ledger.read().entries) == 1


@pytest.mark.parametrize("name", NAMES)
def test_an_interruption_leaves_the_spending_on_record(name, new_ledger):
    ready = calibrated(name)
    ledger = new_ledger(ready.budget)
    with pytest.raises(KeyboardInterrupt):
        ready(DATA, noise=Failing(), ledger=ledger)
    assert ledger.read().spent == ready.cost


@pytest.mark.parametrize("name", NAMES)
def test_measurements_survive_an_interrupted_reconstruction(name):
    """`measure` returns all that was paid for; `reconstruct` is free and repeats itself."""
    ready = calibrated(name)
    release = ready.measure(DATA)

    def interrupt(step: Step) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ready.reconstruct(release, progress=interrupt)
    first, again = ready.reconstruct(release), ready.reconstruct(release)
    assert first.measurements is release.measurements
    np.testing.assert_array_equal(first.model.tau.values, again.model.tau.values)


@pytest.mark.parametrize("name", NAMES)
def test_seeded_results_are_marked_and_repeat(name):
    ready = calibrated(name)
    first, again, other = (ready(DATA, noise=SeededNoise(seed=s)) for s in (3, 3, 4))
    assert not first.private
    assert first.mark == NOT_PRIVATE
    assert "NOT PRIVATE" in repr(first)
    assert "NOT PRIVATE" in repr(first.release)
    for a, b, c in zip(first.measurements, again.measurements, other.measurements, strict=True):
        np.testing.assert_array_equal(a.values, b.values)
        assert not np.array_equal(a.values, c.values)
    np.testing.assert_array_equal(first.model.tau.values, again.model.tau.values)


@pytest.mark.parametrize("name", NAMES)
def test_secure_results_do_not_repeat(name):
    ready = calibrated(name)
    first, again = ready.measure(DATA), ready.measure(DATA)
    assert "private" in repr(first)
    assert "NOT" not in repr(first)
    assert any(
        not np.array_equal(a.values, b.values)
        for a, b in zip(first.measurements, again.measurements, strict=True)
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_ledger_takes_no_seeded_run(name, new_ledger):
    ready = calibrated(name)
    ledger = new_ledger(ready.budget)
    with pytest.raises(LedgerError, match="records private releases, got seeded noise"):
        ready(DATA, noise=SeededNoise(seed=0), ledger=ledger)
    assert ledger.read().entries == ()


@pytest.mark.slow
@pytest.mark.parametrize("name, neighbours, i", CALIBRATIONS)
def test_noise_is_unbiased_with_the_stddev_that_is_stated(name, neighbours, i):
    """Whole numbers; squares in units of the stated stddev accept it and reject 0.9 and 1.1 of it."""
    ready = calibrated(name, neighbours, i)
    noise = SeededNoise(seed=8)
    exact = DATA.marginals(WORKLOAD)
    residuals = []
    for _ in range(300):
        for m in ready.measure(DATA, noise=noise).measurements:
            difference = m.values - exact[m.attributes]
            np.testing.assert_array_equal(difference, np.rint(difference))
            residuals.append(difference.ravel() / m.stddev)
    z = np.concatenate(residuals)
    assert abs(z.mean()) < 5 / np.sqrt(z.size)

    def accepted(scale: float) -> bool:
        squares = (z / scale) ** 2
        return abs(squares.mean() - 1) < 5 * squares.std() / np.sqrt(z.size)

    assert accepted(1.0)
    assert not accepted(0.9)
    assert not accepted(1.1)


@pytest.mark.parametrize("name", NAMES)
def test_progress_names_its_stages(name):
    steps: list[Step] = []
    calibrated(name)(DATA, progress=steps.append)
    drawn = [s for s in steps if s.stage == "drawing noise"]
    assert [s.done for s in drawn] == sorted(s.done for s in drawn)
    assert (drawn[-1].done, drawn[-1].total) == (WORKLOAD.cells, WORKLOAD.cells)
    assert {s.stage for s in steps} == {"drawing noise", "reconstructing"}


@pytest.mark.parametrize("name", NAMES)
def test_settings_and_calibrations_are_frozen(name):
    mechanism = CASES[name].build(WORKLOAD)
    assert isinstance(mechanism, Mechanism)
    for value in (mechanism, calibrated(name)):
        field = dataclasses.fields(value)[0].name
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, field, None)


def test_a_dataset_is_a_source():
    assert isinstance(DATA, Source)


@pytest.mark.parametrize("name", NAMES)
def test_the_empty_table(name):
    """Public under replace-one, so refused; under add-remove it must look like any other."""
    empty = people(0)
    release = calibrated(name, "add-remove").measure(empty)
    assert isinstance(release, Release)
    result = calibrated(name, "add-remove").reconstruct(release)
    assert result.model.total >= 1
    with pytest.raises(ValueError, match="under replace-one must have at least one row"):
        calibrated(name, "replace-one").measure(empty)


@pytest.mark.parametrize("name", NAMES)
def test_noise_must_be_a_source_of_noise(name):
    with pytest.raises(NoiseError, match="must be a NoiseSource, got 7"):
        calibrated(name)(DATA, noise=7)


def test_a_release_that_nobody_counts_is_warned_of_once(new_ledger) -> None:
    mechanism_module._warn_uncounted.cache_clear()
    ready = calibrated("gaussian")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        ready(DATA, noise=SeededNoise(seed=1))
        ready(DATA, ledger=new_ledger(ready.budget))
        assert seen == []
        ready(DATA)
        ready(DATA)
    assert [w.category for w in seen] == [UncountedWarning]
    assert "nothing keeps count" in str(seen[0].message)
