"""FEM and DualQuery: records against brute force, rounds that never overspend, reservations first, choices fitted."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import consilience as cs
from consilience.errors import (
    BudgetError,
    CapacityError,
    ConsilienceError,
    DataError,
    InsufficientBudgetError,
    MeasurementError,
)
from consilience.fits import SelectionLikelihood
from consilience.mechanisms import FEM, DualQuery, SelectionRelease
from consilience.mechanisms.game import Conjunctions, Game, chosen_cell
from consilience.privacy import Budget, Cost, Epsilon, Ledger, NoiseSource, Rho, SeededNoise
from consilience.privacy.accounting import standard_zcdp_epsilon
from mechanisms.cases import DOMAIN, WORKLOAD, people

BUDGET = Budget(epsilon=1, delta=1e-6, neighbours="replace-one")
MADE = {
    "fem": lambda **k: FEM(WORKLOAD, rounds=6, samples=8, **k),
    "dual query": lambda **k: DualQuery(WORKLOAD, rounds=6, samples=3, **k),
}


# -- records -------------------------------------------------------------------------------------------


def worth(x, wanted, cost, game) -> float:
    met = [
        all(a < 0 or x[a] == v for a, v in zip(wanted.attribute[q], wanted.value[q], strict=True))
        for q in range(len(wanted))
    ]
    return float(wanted.weight @ np.array(met, float)) - sum(
        cost[game.first[i] + x[i]] for i in range(len(x))
    )


def searched(seed, queries):
    """A random search: the game, what is wanted, what each of three records' values cost, and the records found."""
    rng = np.random.default_rng(seed)
    game = Game(WORKLOAD)
    cells = rng.integers(0, game.layout.cells, queries)
    wanted = game.conditions(cells, rng.choice([-1, 1, 1], queries))
    costs = rng.exponential(0.7, (3, game.values))
    able = np.flatnonzero(wanted.weight > 0)
    starts = np.tile(able, (3, 1)) if len(able) else np.full((3, 1), -1)
    return game, wanted, costs, game.best(wanted, costs, starts.astype(np.int64))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 25))
def test_no_single_move_and_no_jump_improves_a_record(seed, queries) -> None:
    game, wanted, costs, found = searched(seed, queries)
    for x, cost in zip(found, costs, strict=True):
        others = []
        for i, n in enumerate(DOMAIN.shape):
            for v in range(n):
                others.append(x.copy())
                others[-1][i] = v
        for q in np.flatnonzero(wanted.weight > 0):
            others.append(x.copy())
            for a, v in zip(wanted.attribute[q], wanted.value[q], strict=True):
                if a >= 0:
                    others[-1][a] = v
        own = worth(x, wanted, cost, game)
        assert max(worth(y, wanted, cost, game) for y in others) <= own + 1e-9


def test_most_records_are_the_best_of_all() -> None:
    """Against all 120 records; local search may miss, but seldom and by little."""
    everything = list(product(*(range(n) for n in DOMAIN.shape)))
    short = []
    for seed in range(40):
        game, wanted, costs, found = searched(seed, 20)
        for x, cost in zip(found, costs, strict=True):
            best = max(worth(y, wanted, cost, game) for y in everything)
            short.append(best - worth(x, wanted, cost, game))
    assert min(short) > -1e-9
    assert np.mean(np.array(short) < 1e-9) > 0.9
    assert np.mean(short) < 0.05


def test_cells_conditions_and_scores_mean_what_they_say() -> None:
    game, data = Game(WORKLOAD), people(50)
    counts = data.marginals(WORKLOAD.cliques)
    records = np.array([[4, 1, 2, 3], [4, 1, 2, 3], [0, 0, 0, 0]])
    cells, answers = game.cells(records)
    dense = cs.Dataset(records, DOMAIN).marginals(WORKLOAD.cliques).values
    np.testing.assert_array_equal(np.bincount(cells, answers, minlength=game.layout.cells), dense)
    wanted = game.conditions(cells, np.ones(len(cells), np.int64))
    assert isinstance(wanted, Conjunctions)
    for q, cell in enumerate(np.unique(cells)):
        table = int(np.searchsorted(game.layout.offsets, cell, side="right")) - 1
        named = {
            DOMAIN.attributes[a]: int(v)
            for a, v in zip(wanted.attribute[q], wanted.value[q], strict=True)
            if a >= 0
        }
        assert tuple(named) == game.layout.cliques[table]
        place = np.ravel_multi_index(tuple(named.values()), game.layout.shapes[table])
        assert place + game.layout.offsets[table] == cell
    scores = game.scores(counts, 3, cells, answers, 50)
    np.testing.assert_array_equal(scores[: game.layout.cells], 3 * counts.values - 50 * dense)
    np.testing.assert_array_equal(scores[game.layout.cells :], -scores[: game.layout.cells])
    assert scores.dtype == np.int64
    assert chosen_cell(game.layout.cells + 2, game.layout.cells) == (2, -1)


def test_a_cell_chosen_both_ways_counts_for_nothing() -> None:
    wanted = Game(WORKLOAD).conditions(np.array([3, 3, 5]), np.array([1, -1, 1]))
    np.testing.assert_array_equal(wanted.weight, [0, 1])


# -- budgets -------------------------------------------------------------------------------------------


class Counting(SeededNoise):
    """Adds up what is really drawn."""

    def __init__(self) -> None:
        super().__init__(seed=0)
        self.drawn: list[tuple[Fraction, Epsilon]] = []

    def select(self, scores, sensitivity, epsilon):
        self.drawn.append((Fraction(sensitivity), epsilon))
        return super().select(scores, sensitivity, epsilon)


@settings(max_examples=25, deadline=None)
@given(
    st.floats(0.5, 5),
    st.sampled_from([1e-9, 1e-6, 1e-3]),
    st.sampled_from([0.02, 0.05, 0.1]),
    st.booleans(),
)
def test_what_fem_draws_is_what_it_charges_and_within_the_budget(
    epsilon, delta, split, published
) -> None:
    budget = Budget(epsilon=epsilon, delta=delta, neighbours="replace-one")
    ready = FEM(WORKLOAD, split=split, published=published, samples=2).calibrate(budget)
    noise = Counting()
    ready.measure(people(40), noise=noise)
    each = (Cost.selection(budget.neighbours, e) for _, e in noise.drawn)
    assert Cost.sum(budget.neighbours, each) == ready.cost
    assert {s for s, _ in noise.drawn} == {Fraction(2)}
    assert budget.admits(ready.cost)
    assert len(noise.drawn) == ready.rounds
    if published:  # the authors' own accounting holds too, which one round more would break
        nominal = Fraction(split) ** 2 * Fraction(epsilon) / 2
        stated = [
            float(standard_zcdp_epsilon(Rho(nominal * n), delta).value)
            for n in (ready.rounds, ready.rounds + 1)
        ]
        assert stated[0] <= epsilon * (1 + 1e-9) < stated[1] * (1 + 1e-6)


@pytest.mark.parametrize(
    "budget",
    [
        BUDGET,
        Budget(rho=0.2, neighbours="replace-one"),
        Budget(epsilon=2, neighbours="replace-one"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("name", MADE)
def test_draws_add_up_to_nearly_the_whole_budget(name, budget) -> None:
    ready = MADE[name]().calibrate(budget)
    noise = Counting()
    release = ready.measure(people(60), noise=noise)
    assert isinstance(release, SelectionRelease)
    # The sensitivity that is passed on is that of whole-number scores; epsilon is what is charged.
    each = (Cost.selection(budget.neighbours, e) for _, e in noise.drawn)
    drawn = Cost.sum(budget.neighbours, each)
    assert drawn.rho == ready.cost.rho
    assert budget.admits(ready.cost)
    assert not budget.admits(ready.cost * 2)
    spent, capacity = budget.spent(ready.cost), budget.capacity
    assert spent is not None
    assert float(spent.value) > 0.999 * float(capacity.value)


def test_dual_query_weighs_counts_by_the_rounds_behind_it() -> None:
    ready = DualQuery(WORKLOAD, rounds=4, samples=2).calibrate(BUDGET)
    noise = Counting()
    release = ready.measure(people(60), noise=noise)
    assert [s for s, _ in noise.drawn] == [1, 1, 2, 2, 3, 3]
    assert [e.value / s for s, e in noise.drawn] == [2 * ready.eta] * 6
    np.testing.assert_allclose(
        release.selections.beta, [float(ready.eta) * k * 60 for k in (1, 2, 3)]
    )
    assert len(release.codes) == 4


@pytest.mark.parametrize("name", MADE)
def test_the_ledger_has_the_cost_before_anything_is_drawn(name, tmp_path) -> None:
    class Interrupted(NoiseSource):
        private = True

        def discrete_gaussian(self, *_, **__):
            raise AssertionError

        def discrete_laplace(self, *_, **__):
            raise AssertionError

        def select(self, *_, **__):
            raise KeyboardInterrupt

    ready = MADE[name]().calibrate(Budget(rho=0.1, neighbours="replace-one"))
    ledger = Ledger.create(
        tmp_path / "l", table="t", total=Budget(rho=0.15, neighbours="replace-one")
    )
    with pytest.raises(KeyboardInterrupt):
        ready.measure(people(60), noise=Interrupted(), ledger=ledger)
    assert ledger.read().spent == ready.cost
    with pytest.raises(InsufficientBudgetError):
        ready.measure(people(60), ledger=ledger)


# -- results -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MADE)
def test_a_call_gives_rows_and_a_model(name) -> None:
    ready = MADE[name]().calibrate(BUDGET)
    steps: list[cs.mechanisms.Step] = []
    result = ready(people(2000), noise=SeededNoise(seed=1), progress=steps.append)
    assert [s.done for s in steps if s.stage == "rounds"] == [1, 2, 3, 4, 5, 6]
    assert all(s.total == 6 for s in steps if s.stage == "rounds")
    assert steps[-1].stage == "reconstructing"
    assert not result.private
    release = result.release
    assert isinstance(release, SelectionRelease)
    assert release.rows.records == len(release.codes) == (48 if name == "fem" else 6)
    assert "NOT PRIVATE" in repr(release)
    for clique in WORKLOAD:
        table = result.model.marginal(clique)
        assert table.min() >= 0
        assert table.sum() == pytest.approx(2000)
    by_sex = result.model.marginal(("age", "sex")).sum(axis=0)
    np.testing.assert_allclose(
        by_sex, result.model.marginal(("sex", "region")).sum(axis=1), rtol=1e-6
    )


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("method", ["auto", "closed-form", "bootstrap"])
def test_choices_have_no_standard_errors_and_say_so(name, method) -> None:
    model = MADE[name]().calibrate(BUDGET)(people(300), noise=SeededNoise(seed=1)).model
    with pytest.raises(
        MeasurementError, match=r"the model has none \(FEM and DualQuery release"
    ) as refused:
        model.stderr(DOMAIN.attributes[:1], method=method)
    assert "\n" not in str(refused.value)


def test_secure_noise_takes_whole_number_scores() -> None:
    result = FEM(WORKLOAD, rounds=3, samples=4).calibrate(BUDGET)(people(500))
    assert result.private


def distance(tables, truth) -> float:
    return (
        float(
            np.mean(
                [
                    np.abs(tables[c] / tables[c].sum() - truth[c] / truth[c].sum()).sum()
                    for c in truth
                ]
            )
        )
        / 2
    )


def test_the_reconstruction_is_closer_than_the_records() -> None:
    """Mean of five runs at a budget where the choices mean something."""
    data = people(5000)
    truth = data.marginals(WORKLOAD.cliques)
    ready = FEM(WORKLOAD, rounds=30, samples=20, perturbation=0.2).calibrate(
        Budget(epsilon=4, delta=1e-6, neighbours="replace-one")
    )
    own, fitted = [], []
    for seed in range(5):
        result = ready(data, noise=SeededNoise(seed=seed))
        rows = result.release.rows.marginals(WORKLOAD.cliques)  # type: ignore[attr-defined]
        own.append(distance({c: rows[c] for c in truth}, truth))
        fitted.append(distance({c: result.model.marginal(c) for c in truth}, truth))
    assert np.mean(fitted) < np.mean(own)
    uniform = cs.CliqueVector.uniform(DOMAIN, WORKLOAD.cliques)
    assert np.mean(own) < distance({c: uniform[c] for c in truth}, truth)


def test_reconstruction_can_be_repeated_with_other_settings() -> None:
    ready = FEM(WORKLOAD, rounds=5, samples=5).calibrate(BUDGET)
    release = ready.measure(people(800), noise=SeededNoise(seed=0))
    same = [ready.reconstruct(release).model.marginal("age") for _ in range(2)]
    np.testing.assert_array_equal(*same)
    evidence = ready.evidence(release)
    fit = SelectionLikelihood(consistency="factor", iterations=5, blend=1.0)
    other = fit(DOMAIN, evidence, 800.0)
    assert other.marginal("age").sum() == pytest.approx(800)
    graph = cs.RegionGraph.saturated(DOMAIN, WORKLOAD.cliques)
    assert SelectionLikelihood(consistency=graph)(DOMAIN, evidence, 800.0).graph is graph


# -- refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MADE)
def test_impossible_wishes_are_refused_before_anything_is_spent(name) -> None:
    with pytest.raises(BudgetError, match="replace-one neighbours, got add-remove"):
        MADE[name]().calibrate(Budget(epsilon=1, neighbours="add-remove"))
    with pytest.raises(BudgetError, match="spends rho or a pure epsilon"):
        MADE[name]().calibrate(
            Budget(epsilon=1, delta=1e-6, neighbours="replace-one", accounting="gaussian")
        )
    other = cs.Dataset(np.zeros((3, 1), int), cs.Domain({"z": 2}))
    ready = MADE[name]().calibrate(BUDGET)
    with pytest.raises(DataError, match="nothing was spent"):
        ready.measure(other)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: FEM(WORKLOAD, samples=0), "samples must be positive and finite, got 0"),
        (lambda: FEM(WORKLOAD, split=float("nan")), "split must be positive and finite"),
        (lambda: FEM(WORKLOAD, rounds=0), "rounds must be a whole number from 1 on"),
        (lambda: FEM(WORKLOAD, rounds=5, published=True), "follow from split where published"),
        (lambda: FEM.as_published(WORKLOAD, "mars"), "preset must be one of adult, 3-way"),
        (lambda: DualQuery(WORKLOAD, rounds=1), "rounds must be a whole number from 2 on, got 1"),
        (lambda: DualQuery(WORKLOAD, samples=0), "samples must be a whole number from 1 on, got 0"),
        (lambda: SelectionLikelihood(consistency="global"), "fitted over region graphs"),
        (lambda: FEM(WORKLOAD, fit=cs.LeastSquares()), "publishes choices, which SelectionLikelih"),
        (lambda: DualQuery(WORKLOAD, fit="mine"), "a game publishes choices.*got 'mine'"),
        (lambda: SelectionLikelihood(iterations=0), "iterations must be at least 1, got 0"),
        (lambda: SelectionLikelihood(blend=0), "blend must be above 0 and at most 1, got 0"),
    ],
)
def test_bad_settings_are_refused(make, words) -> None:
    with pytest.raises(ConsilienceError, match=words):
        make()


def test_a_clique_of_a_billion_cells_is_refused() -> None:
    big = cs.Domain({"a": 1000, "b": 1000, "c": 1000})
    for build in (FEM, DualQuery):
        with pytest.raises(CapacityError, match="memory"):
            build(cs.Workload(big, [("a", "b", "c")]))


def test_the_rule_for_rounds_needs_a_delta_and_room_for_one() -> None:
    with pytest.raises(BudgetError, match="needs epsilon and delta"):
        FEM(WORKLOAD).calibrate(Budget(rho=0.1, neighbours="replace-one"))
    with pytest.raises(BudgetError, match="at least one round of epsilon"):
        FEM(WORKLOAD, split=9).calibrate(BUDGET)


def test_only_its_own_release_is_reconstructed() -> None:
    ready = FEM(WORKLOAD, rounds=2, samples=2).calibrate(BUDGET)
    other = cs.mechanisms.Release(DOMAIN, (), 5, ready.cost, False)
    with pytest.raises(ConsilienceError, match="from its own release"):
        ready.reconstruct(other)
    release = ready.measure(people(30), noise=SeededNoise(seed=0))
    with pytest.raises(MeasurementError, match="at least one choice"):
        ready.reconstruct(replace(release, total=None))
    with pytest.raises(
        MeasurementError, match=r"fits the choices of FEM .* got tuple; use another"
    ):
        SelectionLikelihood()(DOMAIN, release.measurements, 30.0)


def test_as_published_has_the_authors_rounds_less_the_one_that_overspends() -> None:
    work = cs.Workload(DOMAIN, [("age", "sex")])
    rounds = [
        FEM.as_published(work)
        .calibrate(Budget(epsilon=e, delta=1 / 48842**2, neighbours="replace-one"))
        .rounds
        for e in (0.1, 0.15, 0.2, 0.25, 0.5, 1)
    ]
    assert rounds == [36, 54, 72, 89, 178, 353]
