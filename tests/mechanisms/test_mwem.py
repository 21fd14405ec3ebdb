"""MWEM: what it charges, what it chooses, and what is left when it is stopped."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience import fits
from consilience.domain import Domain, Workload, all_marginals
from consilience.errors import (
    BudgetError,
    CapacityError,
    ConsilienceError,
    DomainError,
    InsufficientBudgetError,
    MeasurementError,
)
from consilience.measurements import Measurement
from consilience.mechanisms import MWEM
from consilience.mechanisms.estimates import Room
from consilience.mechanisms.moments import mean_absolute
from consilience.mechanisms.rounds import Meter
from consilience.privacy import (
    Budget,
    Cost,
    Epsilon,
    Ledger,
    Neighbours,
    Rho,
    Scale,
    SecureNoise,
    SeededNoise,
    marginals,
    weighted_l1_score,
)
from consilience.progress import Step
from consilience.records import Dataset
from consilience.regions import RegionGraph
from mechanisms.cases import DOMAIN, people

PAIRS = all_marginals(DOMAIN, 2)
DATA = people(2000)
CHANGED = {"replace-one": 2, "add-remove": 1}
PURE = Budget(epsilon=3, neighbours="replace-one")
RHO = Budget(rho=0.3, neighbours="replace-one")


class Stopping(SecureNoise):
    """Raises in the draw of this number, whatever it draws."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at, self.drawn = at, 0

    def _count(self) -> None:
        self.drawn += 1
        if self.drawn == self.at:
            raise KeyboardInterrupt

    def select(self, scores, sensitivity, epsilon):
        self._count()
        return super().select(scores, sensitivity, epsilon)

    def discrete_laplace(self, counts, scale, progress=None):
        self._count()
        return super().discrete_laplace(counts, scale, progress)


# -- what it charges -------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbours", CHANGED)
@pytest.mark.parametrize("rounds", [1, 4, 6])
def test_a_total_is_divided_evenly(neighbours, rounds):
    """epsilon / rounds each, half of it for choosing: scale = changed cells over the other half."""
    ready = MWEM(PAIRS, rounds).calibrate(Budget(epsilon=3, neighbours=neighbours))
    assert ready.selection == Epsilon(Fraction(3, 2 * rounds))
    assert ready.width.value == pytest.approx(CHANGED[neighbours] * 2 * rounds / 3, rel=1e-12)
    assert ready.cost.epsilon.value == pytest.approx(3, rel=1e-12)
    assert ready.budget.admits(ready.cost)


@pytest.mark.parametrize("neighbours", CHANGED)
@pytest.mark.parametrize(
    "budget", [{"rho": 0.3}, {"epsilon": 1, "delta": 1e-6}], ids=["rho", "delta"]
)
def test_gaussian_rounds_spend_rho(neighbours, budget):
    """choosing: epsilon^2 / 8 = rho / 2; measuring: c / (2 sigma^2) = rho / 2."""
    ready = MWEM(PAIRS, 3).calibrate(Budget(**budget, neighbours=neighbours))
    share = float(ready.budget.capacity.value) / 3
    assert float(ready.selection.value) ** 2 / 8 == pytest.approx(share / 2, rel=1e-9)
    assert CHANGED[neighbours] / (2 * ready.width.value**2) == pytest.approx(share / 2, rel=1e-9)
    assert ready.cost.rho <= ready.budget.capacity
    assert ready.cost.rho.value == pytest.approx(3 * share, rel=1e-9)


def test_an_amount_per_round():
    budget = Budget(epsilon=1, neighbours="replace-one")
    ready = MWEM(PAIRS, 4, Epsilon(0.2), select_share=0.25).calibrate(budget)
    assert (ready.rounds, ready.selection) == (4, Epsilon(0.05))
    assert ready.width.value == pytest.approx(2 / 0.15, rel=1e-12)
    assert float(ready.cost.epsilon.value) == pytest.approx(0.8, rel=1e-12)
    assert MWEM(PAIRS, None, Epsilon(0.2)).calibrate(budget).rounds == 5, "as many as fit"
    assert MWEM(PAIRS, None, Epsilon(0.01)).calibrate(budget).rounds == len(PAIRS)
    assert MWEM(PAIRS).calibrate(budget).rounds == len(DOMAIN), "else one per attribute"
    found = [
        MWEM(PAIRS).calibrate(Budget(epsilon=e, delta=1e-9, neighbours="add-remove")).rounds
        for e in (0.01, 0.5, 10)
    ]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (len(DOMAIN), len(PAIRS)), "more, up to all, where there is rho"


def test_the_published_noise_is_charged_as_what_it_is():
    """Selection by exp(e score / 2) and Laplace noise of 2 / e, e = 0.05; under replace-one that is 0.15 a round."""
    ready = MWEM.as_published(PAIRS).calibrate(Budget(epsilon=1, neighbours="replace-one"))
    sensitivity = weighted_l1_score(Neighbours.REPLACE_ONE, PAIRS.weights.values())
    assert ready.selection.value / (2 * sensitivity) == Fraction("0.05") / 2
    assert ready.width.value == 40
    assert (ready.rounds, ready.cost.epsilon.value) == (6, Fraction("0.9"))


BUILDS = [
    ({"rounds": 7}, DomainError, "rounds must be a whole number from 1 to the 6 marginals"),
    ({"rounds": 0}, DomainError, "each measured at most once, got 0"),
    ({"rounds": 2.5}, DomainError, "got 2.5"),
    ({"per_round": 0.1}, BudgetError, "per_round must be Epsilon(...) or Rho(...), got 0.1"),
    ({"noise": "uniform"}, ConsilienceError, "got 'uniform'"),
    ({"allowance": "some"}, ConsilienceError, "allowance 'noise' or 'cells'"),
    ({"select_share": 1}, ConsilienceError, "select_share must be between 0 and 1, got 1"),
    (
        {"fit": "mine"},
        ConsilienceError,
        "fit must be an estimator such as LeastSquares(), got",
    ),
    ({"fit": fits.LeastSquares}, ConsilienceError, "; call it"),
]


@pytest.mark.parametrize("options, error, words", BUILDS)
def test_a_mechanism_refuses(options, error, words):
    with pytest.raises(error) as caught:
        MWEM(PAIRS, **options)
    assert words in str(caught.value)


def test_a_billion_cells_are_refused():
    huge = Domain({"a": 1000, "b": 1000, "c": 1000})
    with pytest.raises(CapacityError, match=r"1,000,000,000 cells need about 40\.0 GB"):
        MWEM(all_marginals(huge, 3))


CALIBRATES = [
    ({}, 1.0, BudgetError, "calibrated to a Budget"),
    ({"noise": "gaussian"}, PURE, BudgetError, "MWEM with Gaussian noise spends rho"),
    ({"noise": "laplace"}, RHO, BudgetError, "MWEM with Laplace noise spends a pure epsilon"),
    (
        {},
        Budget(epsilon=1, delta=1e-6, neighbours="replace-one", accounting="gaussian"),
        BudgetError,
        "with zcdp accounting",
    ),
    ({"per_round": Rho(0.1)}, PURE, BudgetError, "per_round must be in the unit"),
    ({"per_round": Epsilon(4)}, PURE, BudgetError, "must hold 1 rounds of Epsilon(4), got Eps"),
    (
        {"per_round": Epsilon(1), "rounds": 4},
        PURE,
        BudgetError,
        "enough for 3; lower rounds= or per_round=, or raise the budget",
    ),
    (
        {"fit": fits.Shrunk()},
        PURE,
        ConsilienceError,
        "Shrunk takes gaussian noise, got laplace noise",
    ),
    (
        {"fit": fits.SelectionLikelihood()},
        PURE,
        ConsilienceError,
        "fits the choices of FEM and Dual",
    ),
    ({"fit": fits.LeastSquares("very")}, PURE, ConsilienceError, "consistency must be"),
    (
        {},
        Budget(epsilon=1e-9, neighbours="add-remove"),
        BudgetError,
        "too much for any table of people; give more budget",
    ),
]


@pytest.mark.parametrize("options, budget, error, words", CALIBRATES)
def test_a_calibration_refuses(options, budget, error, words):
    with pytest.raises(error) as caught:
        MWEM(PAIRS, **options).calibrate(budget)
    assert words in str(caught.value)


def test_the_laplace_likelihood_takes_one_table_inside_another():
    nested = Workload(DOMAIN, [("age", "sex"), ("age",), ("region", "income")])
    ready = MWEM(nested, 3, fit=fits.LaplaceLikelihood()).calibrate(PURE)
    assert ready(DATA, noise=SeededNoise(seed=2)).model.diagnostics.converged


def test_a_fit_refuses_before_a_mechanism_has_it():
    with pytest.raises(ConsilienceError, match="tolerance must be positive"):
        MWEM(PAIRS, fit=fits.LeastSquares(tolerance=0))


# -- a run -----------------------------------------------------------------------------------------


@pytest.fixture
def new_ledger(tmp_path):
    return lambda total: Ledger.create(tmp_path / "a.ledger", table="a", total=total)


def test_noise_that_drowns_every_row_is_refused_before_it_is_paid_for(new_ledger):
    """Under replace-one the number of rows is public and may decide; under add-remove it may not."""
    budget = Budget(epsilon=0.01, neighbours="replace-one")
    ledger = new_ledger(budget)
    with pytest.raises(BudgetError, match=r"too much for 2,000 rows.*nothing was spent"):
        MWEM(PAIRS, 6).calibrate(budget).start(DATA, ledger=ledger)
    assert ledger.read().entries == ()
    hidden = Budget(epsilon=0.01, neighbours="add-remove")
    assert MWEM(PAIRS, 6).calibrate(hidden).start(DATA) is not None


def test_the_whole_run_is_reserved_before_the_first_draw(new_ledger):
    ready = MWEM(PAIRS, 4).calibrate(PURE)
    ledger = new_ledger(PURE)
    run = ready.start(DATA, noise=Stopping(at=1), ledger=ledger)
    assert ledger.read().spent == ready.cost
    assert run.release.measurements == ()
    with pytest.raises(MeasurementError, match="at least one measurement, got none"):
        ready.reconstruct(run.release)
    with pytest.raises(InsufficientBudgetError, match="nothing was spent"):
        ready.start(DATA, ledger=ledger)
    assert ledger.read().spent == ready.cost


@pytest.mark.parametrize("at, kept, left", [(3, 1, 2), (4, 1, 2), (7, 3, 0), (8, 3, 0)])
def test_an_interruption_keeps_what_was_measured_and_never_draws_a_round_twice(
    at, kept, left, new_ledger
):
    """Draws alternate: choose, measure. The round that was cut short is lost; the rest can go on."""
    ready = MWEM(PAIRS, 4).calibrate(PURE)
    ledger = new_ledger(PURE)
    noise = Stopping(at)
    run = ready.start(DATA, noise=noise, ledger=ledger)
    with pytest.raises(KeyboardInterrupt):
        for _ in run:
            pass
    assert len(run.release.measurements) == kept
    assert ledger.read().spent == ready.cost == run.release.cost
    assert ready.reconstruct(run.release).model.cliques == tuple(
        m.attributes for m in run.release.measurements
    )
    assert len(list(run)) == left
    assert len(run.release.measurements) == 3, "four rounds were paid for, one was lost"
    assert run.spent == ready.cost
    assert noise.drawn <= 8


def test_an_interrupted_fit_is_made_up_for(monkeypatch):
    ready = MWEM(PAIRS, 3).calibrate(PURE)
    run = ready.start(DATA, noise=SeededNoise(seed=1))
    next(run)
    with monkeypatch.context() as patched:

        def stop(self, *args, **options):
            raise KeyboardInterrupt

        patched.setattr(fits.PossibleCells, "__call__", stop)
        with pytest.raises(KeyboardInterrupt):
            next(run)
    assert len(run.release.measurements) == 2, "what was drawn is kept"
    assert run.model.cliques == tuple(m.attributes for m in run.release.measurements)
    assert len(list(run)) == 1


@pytest.mark.parametrize("at", [1, 2, 4])
def test_a_loop_that_is_interrupted_goes_on(at, monkeypatch):
    """While the next round is made up nothing is charged, so nothing is lost."""
    ready = MWEM(PAIRS, 4).calibrate(PURE)
    honest, calls = Room.left, []

    def stop(self, *args):
        calls.append(args)
        if len(calls) == at:
            raise KeyboardInterrupt
        return honest(self, *args)

    monkeypatch.setattr(Room, "left", stop)
    noise = Stopping(at=0)
    run = ready.start(DATA, noise=noise)
    with pytest.raises(KeyboardInterrupt):
        for _ in run:
            pass
    assert len(run.release.measurements) == at - 1
    assert len(list(run)) == 4 - (at - 1)
    assert len(set(run.cliques)) == 4
    assert run.spent == ready.cost
    assert noise.drawn == 8


def test_each_marginal_is_measured_at_most_once_and_rounds_are_reported():
    ready = MWEM(PAIRS, 6).calibrate(PURE)
    steps: list[Step] = []
    seen = []
    for number, made in enumerate(ready.start(DATA, progress=steps.append), 1):
        assert (made.number, made.of) == (number, 6)
        assert made.measurement.attributes in made.model.cliques
        seen.append(made.measurement.attributes)
    assert sorted(seen) == sorted(PAIRS)
    assert [(s.stage, s.done, s.total) for s in steps] == [("rounds", i, 6) for i in range(1, 7)]
    assert all(s.seconds_left >= 0 for s in steps)


def test_tables_are_counted_once_before_the_rounds():
    counted = []

    class Counting:
        domain, records = DATA.domain, DATA.records

        def marginals(self, cliques):
            counted.append(list(cliques))
            return DATA.marginals(counted[-1])

    result = MWEM(PAIRS, 6).calibrate(PURE)(Counting())
    assert counted == [list(PAIRS)]
    assert result.private


@pytest.mark.parametrize("allowance", ["noise", "cells"])
def test_without_noise_to_speak_of_the_worst_is_chosen(allowance):
    """Against scores computed here: uniform at first, then the model's own answers."""
    weights = {c: 1.0 + i % 2 for i, c in enumerate(PAIRS)}
    workload = Workload(DOMAIN, weights)
    budget = Budget(epsilon=9e5, neighbours="replace-one")
    ready = MWEM(
        workload, 5, allowance=allowance, fit=fits.LeastSquares(consistency="local")
    ).calibrate(budget)
    per_cell = 1.0 if allowance == "cells" else mean_absolute(ready.width)
    exact = DATA.marginals(PAIRS)
    model, left = None, list(PAIRS)
    for made in ready.start(DATA, noise=SeededNoise(seed=0)):
        scores = []
        for c in left:
            if model is None:
                guess = np.full(DOMAIN.shape_of(c), DATA.records / DOMAIN.size(c))
            elif model.in_model(c):
                guess = model.marginal(c)
            else:
                guess = DATA.records * np.multiply.outer(*(_share(model, a) for a in c))
            away = np.abs(exact[c] - guess).sum()
            scores.append(weights[c] * (away - per_cell * DOMAIN.size(c)))
        worst = left[int(np.argmax(scores))]
        assert made.measurement.attributes == worst
        left.remove(worst)
        model = made.model


def _share(model, attribute):
    size = DOMAIN[attribute]
    if not model.in_model(attribute):
        return np.full(size, 1 / size)
    return model.marginal(attribute) / model.total


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_neighbour_moves_a_score_by_more_than_the_sensitivity(data):
    """Scores of a run in flight, recomputed on a neighbour; the bound is met by some pair (below)."""
    relation = data.draw(st.sampled_from([Neighbours.REPLACE_ONE, Neighbours.ADD_REMOVE]))
    cells = st.integers(0, 59)
    rows = data.draw(st.lists(cells, min_size=2, max_size=6))
    other = rows[1:] if relation == Neighbours.ADD_REMOVE else [data.draw(cells), *rows[1:]]
    weights = data.draw(st.lists(st.floats(0.1, 9), min_size=6, max_size=6))
    moved = np.abs(_scores(rows, weights) - _scores(other, weights))
    assert moved.max() <= float(weighted_l1_score(relation, weights)) + 1e-9


def test_the_score_sensitivity_is_met():
    weights = [1.0, 2.0, 7.0, 1.0, 1.0, 1.0]
    rows, removed, replaced = [0] * 5, [0] * 4, [59] + [0] * 4
    for relation, other in ((Neighbours.ADD_REMOVE, removed), (Neighbours.REPLACE_ONE, replaced)):
        moved = np.abs(_scores(rows, weights) - _scores(other, weights)).max()
        assert moved == pytest.approx(float(weighted_l1_score(relation, weights)))


def _scores(rows, weights):
    """Of tables over 60 cells against a fixed estimate, by the definition."""
    joint = np.bincount(rows, minlength=60).reshape(5, 2, 3, 2)
    guess = np.zeros((5, 2, 3, 2))
    guess[-1, -1, -1, -1] = 5
    out = []
    for (i, j), w in zip([(a, b) for a in range(4) for b in range(a)], weights, strict=True):
        axes = tuple(k for k in range(4) if k not in (i, j))
        out.append(w * np.abs(joint.sum(axis=axes) - guess.sum(axis=axes)).sum())
    return np.array(out)


def test_a_run_never_draws_more_than_was_reserved():
    """Planted: a loop that asks for more rounds than were paid for."""
    ready = replace(MWEM(PAIRS, 2).calibrate(PURE), rounds=4)
    noise = Stopping(at=5)
    run = ready.start(DATA, noise=noise)
    next(run), next(run)
    with pytest.raises(BudgetError, match="would pass it and was not drawn"):
        next(run)
    assert noise.drawn == 4


def test_a_meter_counts_pure_epsilon_and_rho():
    relation = Neighbours.ADD_REMOVE
    meter = Meter(Cost.selection(relation, Epsilon(1)) * 2)
    meter.charge(Cost.selection(relation, Epsilon(1)))
    with pytest.raises(BudgetError, match="must stay within"):
        meter.charge(
            Cost.laplace(marginals(relation), Scale(1))
        )  # same epsilon, four times the rho
    meter.charge(Cost.selection(relation, Epsilon(1)))
    with pytest.raises(BudgetError, match="must stay within"):
        meter.charge(Cost.selection(relation, Epsilon(1e-6)))


def test_seeded_runs_repeat_and_are_marked():
    ready = MWEM(PAIRS, 4).calibrate(PURE)
    first, again, other = (ready(DATA, noise=SeededNoise(seed=s)) for s in (3, 3, 4))
    assert not first.private
    np.testing.assert_array_equal(first.model.tau.values, again.model.tau.values)
    assert not np.array_equal(first.measurements[0].values, other.measurements[0].values)


FITS = [
    fits.PossibleCells(),
    fits.LeastSquares(),
    fits.LeastSquares("local"),
    fits.LeastSquares("factor"),
    fits.LeastSquares("global"),
    fits.LeastSquares(RegionGraph.saturated(DOMAIN, PAIRS)),
    fits.LeastSquares(solver="prox", tolerance=1e-3),
    fits.Shrunk(),
    fits.LaplaceLikelihood(),
    fits.NormCut(),
]


@pytest.mark.parametrize("neighbours", CHANGED)
@pytest.mark.parametrize("fit", FITS, ids=repr)
def test_any_reconstruction(fit, neighbours):
    budget = Budget(rho=0.5, neighbours=neighbours)
    result = MWEM(PAIRS, 3, fit=fit).calibrate(budget)(DATA, noise=SeededNoise(seed=2))
    assert len(result.measurements) == 3
    assert result.model.total == pytest.approx(2000, rel=0.2)
    for m in result.measurements:
        table = result.model.marginal(m.attributes)
        assert table.min() >= 0
        assert np.abs(table - DATA.marginals([m.attributes])[m.attributes]).sum() < 400


def test_the_empty_table_of_add_remove():
    ready = MWEM(PAIRS, 2).calibrate(Budget(epsilon=1, neighbours="add-remove"))
    assert ready(people(0)).model.total >= 1


# -- refits and room -------------------------------------------------------------------------------


def test_a_warm_refit_is_the_cold_one_and_shorter():
    rng = np.random.default_rng(0)
    domain = Domain(dict.fromkeys("abcde", 12))
    codes = np.minimum(rng.geometric(0.3, (2000, 5)) - 1, 11)
    tables = Dataset(codes, domain).marginals(all_marginals(domain, 2))
    made = [Measurement(c, t + rng.normal(0, 20, t.shape), stddev=20.0) for c, t in tables.items()]
    fit, warm = fits.LeastSquares(tolerance=1e-9).in_rounds(), None
    saved = 0
    for k in range(1, len(made) + 1):
        cold = fit(domain, made[:k], 2000.0)
        warm = fit(domain, made[:k], 2000.0, warm=warm)
        np.testing.assert_allclose(warm.tau.values, cold.tau.values, atol=2e-5)
        saved += cold.diagnostics.iterations - warm.diagnostics.iterations
    again = fit(domain, made, 2000.0, warm=warm)
    assert again.diagnostics.iterations <= 20
    assert saved > 0


def test_the_default_fits_the_exact_model_and_other_fits_local_tables():
    budget = Budget(epsilon=20, neighbours="replace-one")
    ready = MWEM(PAIRS, 3).calibrate(budget)
    assert isinstance(ready.fit, fits.PossibleCells)
    run = ready.start(DATA, noise=SeededNoise(seed=0))
    made = list(run)[-1].model
    assert made.diagnostics.status == "stopped early"
    assert made.diagnostics.method == "exact model of 3 tables on possible cells"
    assert made.diagnostics.violation < 1e-9
    measured = [m.clique for m in made.measurements]
    backbone = made.tree
    assert backbone is not None
    assert set(backbone.cliques) == set(measured)
    for clique, answer in zip(PAIRS, run.answers(PAIRS.cliques), strict=True):
        np.testing.assert_allclose(
            answer, made.total * backbone.marginal(clique), atol=1e-6 * made.total
        )
    again = ready.reconstruct(run.release).model
    np.testing.assert_allclose(again.tau.values, made.tau.values, atol=0.01)
    for asked in (fits.LeastSquares("local"), fits.LeastSquares(solver="splitting")):
        other = MWEM(PAIRS, 3, fit=asked).calibrate(budget)(DATA, noise=SeededNoise(seed=0)).model
        assert other.tree is None
        assert "exact" not in other.diagnostics.method


def test_room_is_the_planners():
    triples = all_marginals(DOMAIN, 3).cliques
    prices = sorted(fits.LeastSquares("local").plan(DOMAIN, [c]).bytes for c in PAIRS)
    tight = fits.LeastSquares("local", memory=prices[len(prices) // 2])
    assert not Room(DOMAIN, triples, tight).all_fit
    small = Room(DOMAIN, tuple(PAIRS), tight)
    assert small.left([], list(PAIRS)) == tuple(c for c in PAIRS if small._fits([c]))
    first, rest = PAIRS.cliques[:3], PAIRS.cliques[3:]
    least = min(fits.LeastSquares("global").plan(DOMAIN, [*first, c]).bytes for c in rest)
    wide = fits.LeastSquares("global", memory=least)
    room = Room(DOMAIN, tuple(PAIRS), wide)
    open_ones = room.left(PAIRS.cliques[:3], list(PAIRS))
    assert set(PAIRS.cliques[:3]) <= set(open_ones)
    for c in PAIRS.cliques[3:]:
        assert (c in open_ones) == room._fits((*PAIRS.cliques[:3], c))
    assert len(open_ones) < len(PAIRS)


def test_global_runs_stop_where_no_candidate_fits():
    budget = Budget(epsilon=30, neighbours="replace-one")
    one_by_one = [fits.LeastSquares("global").plan(DOMAIN, [c]).bytes for c in PAIRS]
    ready = MWEM(
        PAIRS, 6, fit=fits.LeastSquares(consistency="global", memory=max(one_by_one))
    ).calibrate(budget)
    release = ready.measure(DATA, noise=SeededNoise(seed=0))
    assert 1 <= len(release.measurements) < 6
    assert release.cost == ready.cost
