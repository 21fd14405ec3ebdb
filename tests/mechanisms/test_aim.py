"""AIM: its budget, its candidates, its rounds."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from consilience.domain import Domain, Workload, all_marginals
from consilience.errors import BudgetError, CapacityError, ConsilienceError
from consilience.fits import LeastSquares, SelectionLikelihood, Shrunk
from consilience.mechanisms import AIM
from consilience.mechanisms.estimates import Room
from consilience.mechanisms.moments import mean_absolute
from consilience.mechanisms.rounds import Run
from consilience.privacy import Budget, Cost, Ledger, SecureNoise, SeededNoise
from mechanisms.cases import DOMAIN, people

TRIPLES = all_marginals(DOMAIN, 3)
DATA = people(2000)
CHANGED = {"replace-one": 2, "add-remove": 1}
BUDGET = Budget(rho=0.5, neighbours="replace-one")


def rho_of(ask, neighbours: str) -> float:
    """By the closed forms: epsilon^2 / 8 for choosing, c / (2 sigma^2) for measuring."""
    choose = 0.0 if ask.selection is None else float(ask.selection.value) ** 2 / 8
    return choose + CHANGED[neighbours] / (2 * ask.width.value**2)


class Told:
    """What a loop sees of its run, told of the same movement every time."""

    def __init__(self, ready, moved: float = 1e12, begun: int = 0, cliques=()) -> None:
        self.spent, self.neighbours = Cost(ready.budget.neighbours), ready.budget.neighbours
        self.begun, self.cliques, self.share = begun, list(cliques), None
        self.moved = lambda clique: moved

    def charge(self, ask) -> None:
        self.spent += ask.cost(self.neighbours)
        self.begun += 1


def asks(ready, moved: float):
    """Every round of the loop, and the rho that it leaves. Each round measures its first candidate."""
    run, made = Told(ready, moved), []
    loop, measured = ready.asks(run), None
    while True:
        try:
            made.append(loop.send(measured))
        except StopIteration:
            return made, ready.cost.rho.value - run.spent.rho.value
        run.charge(made[-1])
        measured = made[-1].candidates[0]
        run.cliques.append(measured)


def opened(ready, run):
    """The loop behind its one-way marginals, and the first round that chooses."""
    loop = ready.asks(run)
    ask = next(loop)
    while ask.selection is None:
        run.charge(ask)
        ask = loop.send(ask.candidates[0])
    return loop, ask


# -- the budget ------------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbours", CHANGED)
@pytest.mark.parametrize("moved", [0.0, 1e12], ids=["always annealed", "never annealed"])
@pytest.mark.parametrize("budget", [{"rho": 0.5}, {"epsilon": 1, "delta": 1e-9}])
def test_every_path_spends_the_budget_and_no_more(neighbours, moved, budget):
    ready = AIM(TRIPLES).calibrate(Budget(**budget, neighbours=neighbours))
    made, left = asks(ready, moved)
    capacity = ready.budget.capacity
    assert ready.cost.rho == capacity
    exact = Cost.sum(ready.cost.neighbours, (a.cost(ready.cost.neighbours) for a in made))
    assert exact.rho <= capacity
    assert sum(rho_of(a, neighbours) for a in made) == pytest.approx(float(capacity.value))
    assert 0 <= left <= capacity.value * Fraction(1, 10**9)


def test_the_schedule_of_the_paper():
    """sigma^2 = T / (1.8 rho) and epsilon^2 = 0.8 rho / T under add-remove, T = 16 d."""
    ready = AIM(TRIPLES).calibrate(Budget(rho=0.5, neighbours="add-remove"))
    made, _ = asks(ready, 1e12)
    t = 16 * len(DOMAIN)
    assert [a.selection for a in made[:4]] == [None] * 4
    assert [a.candidates for a in made[:4]] == [
        (("age",),),
        (("sex",),),
        (("region",),),
        (("income",),),
    ]
    for ask in made[:-1]:
        assert ask.width.value == pytest.approx(np.sqrt(t / (1.8 * 0.5)), rel=1e-9)
    for ask in made[4:-1]:
        assert float(ask.selection.value) == pytest.approx(np.sqrt(0.8 * 0.5 / t), rel=1e-9)
    # the first four do not choose, so a little is over for the last round, which takes up to two rounds' rho
    assert rho_of(made[-1], "add-remove") < 2 * 0.5 / t
    assert len(made) in (t, t + 1)


def test_annealing_halves_the_noise_and_doubles_the_epsilon():
    ready = AIM(TRIPLES).calibrate(BUDGET)
    made, _ = asks(ready, 0.0)
    first, second = made[4], made[5]
    assert second.width.value == pytest.approx(first.width.value / 2, rel=1e-9)
    assert second.selection.value / first.selection.value == pytest.approx(2, rel=1e-9)


def test_annealing_is_decided_by_the_noise_of_the_table():
    ready = AIM(TRIPLES).calibrate(BUDGET)
    clique = ("age", "income")
    noise = mean_absolute(ready.sigma) * DOMAIN.size(clique)

    def then(moved, measured):
        """How much narrower the round after one that moved the model by so much is."""
        run = Told(ready, moved)
        loop, ask = opened(ready, run)
        run.charge(ask)
        return ask.width.value / loop.send(measured).width.value

    assert then(1.001 * noise, clique) == 1
    assert then(0.999 * noise, clique) == pytest.approx(2, rel=1e-9)
    assert then(0.0, None) == 1, "a round that was cut short says nothing"


# -- candidates ------------------------------------------------------------------------------------


def test_candidates_are_the_subsets_and_weights_count_common_attributes():
    workload = Workload(DOMAIN, {("age", "sex", "region"): 2.0, ("region", "income"): 3.0})
    aim = AIM(workload)
    wanted = {DOMAIN.clique(s) for c in workload for k in (1, 2, 3) for s in combinations(c, k)}
    assert set(aim.candidates) == wanted
    assert len(aim.candidates) == len(wanted), "each once"
    for r in wanted:
        by_definition = sum(w * len(set(r) & set(s)) for s, w in workload.items())
        assert aim.weights[r] == pytest.approx(by_definition)


def test_candidates_that_do_not_fit_are_left_out_of_the_rounds():
    """One table of a million cells: counted, but too large to reconstruct in 70 MB."""
    domain = Domain({"a": 100, "b": 100, "c": 100, "d": 2})
    workload = Workload(domain, [("a", "b", "c"), ("c", "d")])
    ready = AIM(workload, fit=LeastSquares(consistency="local", memory="45 MB")).calibrate(BUDGET)
    ask = next(ready.asks(Told(ready, begun=4, cliques=[("a",), ("b",)])))
    assert ("a", "b", "c") not in ask.candidates
    assert {("a", "b"), ("c", "d"), ("a",)} <= set(ask.candidates)
    roomy = AIM(workload, fit=LeastSquares(consistency="local")).calibrate(BUDGET)
    ask = next(roomy.asks(Told(roomy, begun=4, cliques=[("a",), ("b",)])))
    assert ("a", "b", "c") in ask.candidates


# -- refusals --------------------------------------------------------------------------------------


def test_a_billion_cells_are_refused():
    with pytest.raises(CapacityError, match="1,000,000,000 cells"):
        AIM(all_marginals(Domain({"a": 1000, "b": 1000, "c": 1000}), 3))


def test_fits_that_would_fail_after_the_budget_was_spent_are_refused():
    with pytest.raises(ConsilienceError, match="fits the choices of FEM and DualQuery"):
        AIM(TRIPLES, fit=SelectionLikelihood()).calibrate(BUDGET)


@pytest.mark.parametrize("given", [1, 0, 2.5, "many"])
def test_rounds_per_attribute(given):
    with pytest.raises(ConsilienceError, match="rounds_per_attribute must be a whole number of at"):
        AIM(TRIPLES, rounds_per_attribute=given)


@pytest.mark.parametrize(
    "budget, error, words",
    [
        (1.0, BudgetError, "calibrated to a Budget"),
        (Budget(epsilon=1, neighbours="replace-one"), BudgetError, "AIM spends rho"),
        (
            Budget(epsilon=1, delta=1e-6, neighbours="replace-one", accounting="gaussian"),
            BudgetError,
            "with zcdp accounting",
        ),
        (Budget(rho=1e-19, neighbours="add-remove"), BudgetError, "too much for any table of pe"),
    ],
)
def test_a_calibration_refuses(budget, error, words):
    with pytest.raises(error, match=words.replace("(", r"\(")):
        AIM(TRIPLES).calibrate(budget)


def test_hopeless_noise_is_refused_before_it_is_paid_for(tmp_path):
    budget = Budget(rho=1e-7, neighbours="replace-one")
    ledger = Ledger.create(tmp_path / "a.ledger", table="a", total=budget)
    with pytest.raises(BudgetError, match=r"too much for 2,000 rows.*nothing was spent"):
        AIM(TRIPLES).calibrate(budget)(DATA, ledger=ledger)
    assert ledger.read().entries == ()


# -- a run -----------------------------------------------------------------------------------------


class Stopping(SecureNoise):
    def __init__(self, at: int) -> None:
        super().__init__()
        self.at, self.drawn = at, 0

    def discrete_gaussian(self, counts, sigma, progress=None):
        self.drawn += 1
        if self.drawn == self.at:
            raise KeyboardInterrupt
        return super().discrete_gaussian(counts, sigma, progress)


@pytest.mark.parametrize("at", [1, 3, 7])
def test_an_interruption_keeps_what_was_measured(at, tmp_path):
    ready = AIM(TRIPLES, rounds_per_attribute=4).calibrate(BUDGET)
    ledger = Ledger.create(tmp_path / "a.ledger", table="a", total=BUDGET)
    run = ready.start(DATA, noise=Stopping(at), ledger=ledger)
    with pytest.raises(KeyboardInterrupt):
        for _ in run:
            pass
    assert len(run.release.measurements) == at - 1
    assert ledger.read().spent == ready.cost
    for _ in run:
        pass
    assert run.spent.rho <= ready.cost.rho
    assert ledger.read().spent == ready.cost
    assert len(run.release.measurements) >= 4 - (at <= 4)


@pytest.mark.parametrize("work", [(Run, "moved"), (Room, "left")], ids=["moved", "left"])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_loop_that_is_interrupted_goes_on(work, at, monkeypatch, tmp_path):
    """What was measured is kept, no round is drawn twice, and all that was paid for is drawn."""
    ready = AIM(TRIPLES, rounds_per_attribute=4).calibrate(BUDGET)
    ledger = Ledger.create(tmp_path / "a.ledger", table="a", total=BUDGET)
    honest, calls = getattr(*work), []

    def stop(self, *args):
        calls.append(args)
        if len(calls) == at:
            raise KeyboardInterrupt
        return honest(self, *args)

    monkeypatch.setattr(*work, stop)
    noise = Stopping(at=0)
    run = ready.start(DATA, noise=noise, ledger=ledger)
    with pytest.raises(KeyboardInterrupt):
        for _ in run:
            pass
    kept, spent, share = run.release.measurements, run.spent, run.share
    assert len(kept) == noise.drawn >= 4
    rest = list(run)
    assert rest, "the rest is paid for"
    assert run.release.measurements[: len(kept)] == kept
    assert len(run.release.measurements) == noise.drawn == len(kept) + len(rest)
    assert share is None or run.share >= share, "what was annealed stays so"
    assert spent.rho < run.spent.rho <= ready.cost.rho
    assert float(run.spent.rho.value) == pytest.approx(float(ready.cost.rho.value))
    assert ledger.read().spent == ready.cost
    with pytest.raises(StopIteration):
        next(run)


@pytest.mark.parametrize(
    "neighbours, fit",
    [("replace-one", LeastSquares), ("add-remove", LeastSquares), ("replace-one", Shrunk)],
)
def test_a_run(neighbours, fit):
    budget = Budget(rho=2, neighbours=neighbours)
    workload = TRIPLES if fit is LeastSquares else all_marginals(DOMAIN, 2)
    ready = AIM(workload, rounds_per_attribute=3, fit=fit(tolerance=1e-4)).calibrate(budget)
    result = ready(DATA, noise=SeededNoise(seed=0))
    assert {(a,) for a in DOMAIN} <= {m.attributes for m in result.measurements}
    assert any(len(m.attributes) > 1 for m in result.measurements)
    again = ready(DATA, noise=SeededNoise(seed=0))
    np.testing.assert_array_equal(result.model.tau.values, again.model.tau.values)
    assert result.model.total == pytest.approx(2000, rel=0.05)
    for m in result.measurements:
        truth = DATA.marginals([m.attributes])[m.attributes]
        assert np.abs(result.model.marginal(m.attributes) - truth).sum() < 0.3 * 2000


def test_a_ledger_keeps_an_adaptive_cost(tmp_path):
    """Read back from the file, with what is left refused in its own words."""
    ready = AIM(TRIPLES, rounds_per_attribute=2).calibrate(BUDGET)
    path = tmp_path / "a.ledger"
    ready(DATA, ledger=Ledger.create(path, table="a", total=BUDGET))
    again = Ledger(path, table="a").read()
    assert again.spent == ready.cost
    assert again.entries[0].description.startswith("AIM: 4 tables, 14 candidates, sigma ")
    with pytest.raises(BudgetError, match="nothing was spent"):
        ready(DATA, ledger=Ledger(path, table="a"))


# -- scores ----------------------------------------------------------------------------------------


class Listening(SeededNoise):
    """Keeps the scores that it chose by."""

    def __init__(self) -> None:
        super().__init__(seed=0)
        self.heard: list[np.ndarray] = []

    def select(self, scores, sensitivity, epsilon):
        self.heard.append(np.array(scores))
        return super().select(scores, sensitivity, epsilon)


@pytest.mark.parametrize("neighbours", CHANGED)
def test_tables_that_would_drown_are_not_looked_at(neighbours):
    """Where the noise passes twice the rows, however far the model is off, the score is a bound that no data moves."""
    ready = AIM(TRIPLES).calibrate(Budget(rho=0.003, neighbours=neighbours))
    noise = Listening()
    run = ready.start(DATA, noise=noise)
    for _ in DOMAIN:
        next(run)
    assert run.model is not None
    most = 2 * run.model.total
    answers = dict(zip(ready.candidates, run.answers(ready.candidates), strict=True))
    next(run)
    drowned = 0
    for clique, score in zip(ready.candidates, noise.heard[0], strict=True):
        allowance = mean_absolute(ready.sigma) * DOMAIN.size(clique)
        apart = np.abs(DATA.marginal(clique) - answers[clique]).sum()
        drowned += allowance >= most
        apart = most if allowance >= most else apart
        assert score == pytest.approx(ready.mechanism.weights[clique] * (apart - allowance))
    assert 0 < drowned < len(ready.candidates)
