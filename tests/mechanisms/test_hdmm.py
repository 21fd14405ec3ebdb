"""HDMM: noise and cost known beforehand, expected errors that come true, promises that hold and faults that are found out."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import consilience.mechanisms.integer_queries
from consilience import fits
from consilience.domain import Domain, Workload, all_marginals
from consilience.errors import BudgetError, CapacityError, ConsilienceError, DataError, DomainError
from consilience.measurements import Kronecker, Prefix, Ranges
from consilience.mechanisms import HDMM, Laplace
from consilience.mechanisms.fixed import Part
from consilience.privacy import (
    Budget,
    Ledger,
    Neighbours,
    Scale,
    SeededNoise,
    Sigma,
    marginals,
    products,
    run_audit,
)
from consilience.progress import Step
from consilience.records import Dataset
from mechanisms.cases import DOMAIN, FIRE_TRIPLES, WORKLOAD, fire_workload, people

DATA = people(400)
PURE = Budget(epsilon=1, neighbours="add-remove")
LOOSE = Budget(epsilon=1, delta=1e-6, neighbours="replace-one")
QUERIES = {"age": Prefix(5), "income": Ranges(4, [(0, 2), (1, 3), (2, 4), (0, 4)])}
BUILDS = {
    "marginals": lambda **k: HDMM(WORKLOAD, **k),
    "ordered": lambda **k: HDMM(WORKLOAD, QUERIES, **k),
}
BUDGETS = [
    PURE,
    LOOSE,
    Budget(epsilon=1, delta=1e-6, neighbours="replace-one", accounting="gaussian"),
    Budget(rho=0.1, neighbours="add-remove"),
    Budget(epsilon=1, neighbours="replace-one"),
]
ALL = [(name, i) for name in BUILDS for i in range(len(BUDGETS))]


@pytest.mark.parametrize("name, i", ALL)
def test_cost_is_known_before_data_and_uses_the_budget(name, i):
    ready = BUILDS[name]().calibrate(BUDGETS[i])
    assert BUDGETS[i].admits(ready.cost)
    assert not BUDGETS[i].admits(ready.cost + ready.cost)
    spent, whole = BUDGETS[i].spent(ready.cost), BUDGETS[i].capacity
    if ready.strategy.law == "laplace":
        spent, whole = ready.cost.epsilon, BUDGETS[i].epsilon
    assert float(spent.value) == pytest.approx(float(whole.value), rel=1e-6), "nothing left over"


@pytest.mark.slow
@pytest.mark.parametrize("name, i", ALL)
def test_expected_errors_come_true(name, i):
    """Least squares on many draws, by dense algebra, errs as was said, for each clique and together."""
    ready = BUILDS[name]().calibrate(BUDGETS[i])
    maps = _least_squares(ready, BUDGETS[i].neighbours == Neighbours.REPLACE_ONE)
    noise, runs, exact = SeededNoise(seed=5), 400, DATA.marginals(WORKLOAD)
    squares = {c: np.zeros(runs) for c in WORKLOAD}
    for run in range(runs):
        values = [m.values.ravel() for m in ready.measure(DATA, noise=noise).measurements]
        y = np.concatenate([*values, [DATA.records]])
        for clique, solve in maps.items():
            truth = ready.mechanism.query(clique).apply(exact[clique].ravel())
            squares[clique][run] = np.mean((solve @ y - truth) ** 2)
    for clique, expected in ready.expected_rmse.items():
        seen = squares[clique]
        assert abs(seen.mean() - expected**2) < 4.5 * seen.std() / math.sqrt(runs), clique
    rows = {c: ready.mechanism.query(c).rows for c in WORKLOAD}
    count = sum(rows.values())
    observed = math.sqrt(sum(r * squares[c].mean() for c, r in rows.items()) / count)
    assert observed == pytest.approx(ready.expected_overall_rmse, rel=0.08)
    mean = sum(r * ready.expected_rmse[c] ** 2 for c, r in rows.items()) / count
    assert ready.expected_overall_rmse == pytest.approx(math.sqrt(mean))


def _matrix(clique) -> np.ndarray:
    """A marginal as a matrix on the whole domain."""
    out = np.ones((1, 1))
    for a, n in DOMAIN.sizes.items():
        out = np.kron(out, np.eye(n) if a in clique else np.ones((1, n)))
    return out


def _least_squares(ready, total_known) -> dict:
    """From all values and the number of rows to the answers on each clique, as matrices.

    Plain cliques are answered from all plain tables, others from their own measurement.
    """
    blocks = [
        np.eye(DOMAIN.size(p.clique)) if p.query.query is None else p.query.query.apply(np.eye(DOMAIN.size(p.clique)))
        for p in ready.parts
    ]  # fmt: skip
    ends = np.cumsum([len(b) for b in blocks])
    width = ends[-1] + 1
    plain = [i for i, p in enumerate(ready.parts) if p.query.query is None]
    maps = {}
    if plain:
        weigh, rows = np.zeros((0, width)), np.zeros((0, DOMAIN.size()))
        for i in plain:
            p, block = ready.parts[i], np.zeros((len(blocks[i]), width))
            block[:, ends[i] - len(blocks[i]) : ends[i]] = np.eye(len(blocks[i])) / p.stddev
            weigh = np.concatenate([weigh, block])
            rows = np.concatenate([rows, _matrix(p.clique) / p.stddev])
        if total_known:
            last = np.zeros((1, width))
            last[0, -1] = 1e4
            weigh = np.concatenate([weigh, last])
            rows = np.concatenate([rows, 1e4 * np.ones((1, DOMAIN.size()))])
        solve = np.linalg.pinv(rows, rcond=1e-10) @ weigh
        maps = {c: _matrix(c) @ solve for c in ready.strategy.plain}
    for i, p in enumerate(ready.parts):
        if i not in plain:
            answer = np.zeros((ready.mechanism.query(p.clique).rows, width))
            inverse = np.linalg.pinv(blocks[i])
            answer[:, ends[i] - len(blocks[i]) : ends[i]] = ready.mechanism.query(p.clique).apply(
                inverse
            )
            maps[p.clique] = answer
    return maps


@pytest.mark.parametrize("name", BUILDS)
@pytest.mark.parametrize("budget", [PURE, LOOSE])
def test_a_call_gives_a_consistent_model(name, budget, tmp_path):
    ready = BUILDS[name]().calibrate(budget)
    ledger = Ledger.create(tmp_path / "l", table="people", total=budget)
    steps: list[Step] = []
    result = ready(DATA, ledger=ledger, progress=steps.append)
    assert result.private
    assert ledger.read().spent == ready.cost
    assert "HDMM: 4 cliques by" in ledger.read().entries[0].description
    assert {s.stage for s in steps} == {"drawing noise", "reconstructing"}
    assert result.diagnostics.converged
    for clique in WORKLOAD:
        assert result.model.marginal(clique).min() >= 0
        answers = result.model.answer(clique, ready.mechanism.query(clique))
        assert answers.shape == (ready.mechanism.query(clique).rows,)
    if budget is LOOSE:
        assert result.model.total == DATA.records
    path = tmp_path / "model"
    result.model.save(path)
    np.testing.assert_array_equal(fits.load(path).tau.values, result.model.tau.values)


@pytest.mark.parametrize("name", BUILDS)
def test_noise_is_discrete_on_a_grid(name):
    """Every value is a whole number over the part's unit, as noise in floating point is not."""
    ready = BUILDS[name]().calibrate(PURE)
    for part, m in zip(ready.parts, ready.measure(DATA).measurements, strict=True):
        scaled = m.values * part.query.unit
        np.testing.assert_array_equal(scaled, np.rint(scaled))


@pytest.mark.slow
def test_the_law_that_errs_less_is_chosen():
    few, many = Workload(DOMAIN, [("age", "sex")]), all_marginals(DOMAIN, 2)
    assert HDMM(few).calibrate(LOOSE).strategy.law == "laplace"
    wide = Domain({f"x{i}": 3 for i in range(12)})
    assert HDMM(all_marginals(wide, 2)).calibrate(LOOSE).strategy.law == "gaussian"
    assert HDMM(many, noise="gaussian").calibrate(LOOSE).strategy.law == "gaussian"
    assert HDMM(many, noise="laplace").calibrate(LOOSE).strategy.law == "laplace"


def test_the_strategy_is_at_least_as_good_as_the_workload_itself():
    workload = Workload(DOMAIN, [("age", "sex", "region"), ("age",), ("income",), ("age", "sex")])
    ours = HDMM(workload, slack=0).calibrate(PURE)
    naive = Laplace(workload).calibrate(PURE)
    cells = {c: DOMAIN.size(c) for c in workload}
    mean = sum(n * naive.expected_rmse[c] ** 2 for c, n in cells.items()) / sum(cells.values())
    assert ours.expected_overall_rmse < 0.9 * math.sqrt(mean)


@pytest.mark.slow
def test_prefixes_are_answered_better_than_from_cells():
    domain = Domain({"age": 64, "sex": 2})
    workload = Workload(domain, [("age", "sex")])
    ready = HDMM(workload, {"age": Prefix(64)}).calibrate(PURE)
    query = ready.mechanism.query(("age", "sex"))
    assert isinstance(query, Kronecker)
    cells = math.sqrt(2) * math.sqrt(np.trace(query.gram()) / query.rows)
    assert ready.expected_overall_rmse < 0.7 * cells


# -- the experiment of the paper -----------------------------------------------------------------------

LISTED = (1.414, 1.924, 4.140, 8.886, 17.586, 28.673, 58.199, 112.04, 227.32, 399.31)
EXPECTED = dict(zip(FIRE_TRIPLES, LISTED, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("k", EXPECTED)
def test_expected_rmse_on_fire(k):
    workload = fire_workload(k)
    ready = HDMM(workload, fit=fits.LeastSquares(consistency="local")).calibrate(PURE)
    assert 0.9 * EXPECTED[k] < ready.expected_overall_rmse <= 1.005 * EXPECTED[k]


# -- audits --------------------------------------------------------------------------------------------

RUNS = 20_000
TABLES = {
    "replace-one": ([(0, 0), (1, 1)], [(1, 1), (1, 1)]),
    "add-remove": ([(0, 0), (1, 1)], [(1, 1)]),
}
AUDITED = {
    "laplace": ({"epsilon": 1.0}, {}),
    "gaussian": ({"epsilon": 0.5, "delta": 1e-2, "accounting": "gaussian"}, {}),
    "laplace, ordered": ({"epsilon": 1.0}, {"a": Prefix(4)}),
    "gaussian, ordered": (
        {"epsilon": 0.5, "delta": 1e-2, "accounting": "gaussian"},
        {"a": Prefix(4)},
    ),
}
CASES = [(name, neighbours) for name in AUDITED for neighbours in TABLES]


def strata(rows, runs: int) -> Dataset:
    codes = np.repeat(np.arange(runs), len(rows))
    domain = Domain({"run": runs, "a": 4, "b": 2})
    return Dataset(np.column_stack([codes, np.tile(rows, (runs, 1))]), domain)


def audited(name: str, neighbours: str, runs: int):
    """Cliques that hold "run", so that a call on all strata is that many independent calls."""
    amounts, queries = AUDITED[name]
    domain = Domain({"run": runs, "a": 4, "b": 2})
    workload = Workload(domain, [("run", "a"), ("run", "b")])
    return HDMM(workload, queries, fit=fits.LeastSquares(consistency="local")).calibrate(
        Budget(**amounts, neighbours=neighbours)
    )


def ratio(ready, release, pair):
    """Per stratum, the log of how much more likely the first table made these measurements."""
    out = 0.0
    for part, m in zip(ready.parts, release.measurements, strict=True):
        column = {("run", "a"): 0, ("run", "b"): 1}[m.attributes]
        size = (4, 2)[column]
        x, y = (np.bincount(np.array(rows)[:, column], minlength=size) for rows in pair)
        if m.query is not None:
            a = m.query.factors[1].matrix
            x, y = a @ x, a @ y
        values = m.values.reshape(len(m.values) if m.query is None else -1, len(x))
        if isinstance(part.width, Sigma):
            out = out + (values * (x - y)).sum(axis=1) / m.stddev**2
        else:
            out = out + (np.abs(values - y) - np.abs(values - x)).sum(axis=1) / m.stddev
    return out


def passes(name, neighbours, ready, confidence, noise=None) -> bool:
    """Seeded noise has the law of the secure one, which tests/privacy audits, and is quick."""
    pair, source = TABLES[neighbours], noise or SeededNoise(seed=6)

    def sampler(rows, count):
        return ratio(ready, ready.measure(strata(rows, count), noise=source), pair)

    promise = audited(name, neighbours, RUNS // 2).cost
    return run_audit(sampler, pair, promise, runs=RUNS, confidence=confidence).passed


def found_out(*args, **options) -> bool:
    return not passes(*args, confidence=0.99, **options)


class Narrow(SeededNoise):
    """Planted: noise of 0.6 times the width asked for."""

    def discrete_gaussian(self, counts, sigma, progress=None):
        return super().discrete_gaussian(counts, Sigma(0.6 * sigma.value), progress)

    def discrete_laplace(self, counts, scale, progress=None):
        return super().discrete_laplace(counts, Scale(0.6 * scale.value), progress)


@pytest.mark.slow
@pytest.mark.parametrize("name, neighbours", CASES)
def test_the_real_thing_passes(name, neighbours):
    assert passes(name, neighbours, audited(name, neighbours, RUNS // 2), 1 - 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name, neighbours", CASES)
def test_too_little_noise_is_found_out(name, neighbours):
    ready = audited(name, neighbours, RUNS // 2)
    assert found_out(name, neighbours, ready, noise=Narrow(seed=7))


@pytest.mark.slow
@pytest.mark.parametrize("name", AUDITED)
def test_half_the_sensitivity_is_found_out(name, monkeypatch):
    def half(true):
        return replace(true, l1=true.l1 / 2, l2_squared=true.l2_squared / 4)

    module = consilience.mechanisms.integer_queries
    monkeypatch.setattr(module, "marginals", lambda *a: half(marginals(*a)))
    monkeypatch.setattr(module, "products", lambda *a: half(products(*a)))
    ready = audited(name, "replace-one", RUNS // 2)
    monkeypatch.undo()
    assert found_out(name, "replace-one", ready)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["laplace, ordered", "gaussian, ordered"])
def test_a_strategy_that_counts_more_than_was_priced_is_found_out(name):
    """Planted: the matrix is multiplied after its noise was calibrated."""
    ready = audited(name, "add-remove", RUNS // 2)
    parts = []
    for part in ready.parts:
        query = part.query
        if part.clique == ("run", "a"):
            query = replace(query, factors=(None, 3 * query.factors[1]))
        parts.append(Part(part.clique, part.width, query))
    assert found_out(name, "add-remove", replace(ready, parts=parts))


# -- refusals ------------------------------------------------------------------------------------------

HUGE = Domain({"a": 1000, "b": 1000, "c": 1000})
REFUSED = [
    (lambda: HDMM(all_marginals(HUGE, 3)), CapacityError, "1,000,000,000 cells need"),
    (lambda: HDMM([("age",)]), DomainError, "must be a Workload"),
    (lambda: HDMM(WORKLOAD, noise="uniform"), ConsilienceError, "noise must be 'auto'"),
    (lambda: HDMM(WORKLOAD, slack=-1), ConsilienceError, "slack must be from 0 to 1"),
    (lambda: HDMM(WORKLOAD, restarts=0), ConsilienceError, "restarts must be at least 1"),
    (lambda: HDMM(WORKLOAD, {"height": Prefix(5)}), DomainError, "got 'height'; leave it out"),
    (lambda: HDMM(WORKLOAD, {"age": Prefix(6)}), ConsilienceError, "one column per cell"),
    (lambda: HDMM(WORKLOAD, [Prefix(5)]), DomainError, "must be a mapping of attribute to query"),
    (
        lambda: HDMM(Workload(Domain({"x": 5000}), [("x",)]), {"x": Prefix(5000)}),
        DomainError,
        "at most 2048 values, got 5000 for 'x'; merge values",
    ),
    *(
        (
            lambda kind=kind: HDMM(WORKLOAD, QUERIES, fit=kind()),
            ConsilienceError,
            f"{kind.__name__} needs plain tables, got queries for 'age'",
        )
        for kind in (fits.Shrunk, fits.NormCut, fits.LaplaceLikelihood, fits.PossibleCells)
    ),
    (
        lambda: HDMM(WORKLOAD, fit=fits.SelectionLikelihood()).calibrate(LOOSE),
        ConsilienceError,
        "fits the choices of FEM and DualQuery (Selections), got tables with",
    ),
    (lambda: HDMM(WORKLOAD, fit="mine"), ConsilienceError, "fit must be an estimator such as"),
    (lambda: HDMM(WORKLOAD, noise="gaussian").calibrate(PURE), BudgetError, "gaussian noise with"),
    (
        lambda: HDMM(WORKLOAD, noise="laplace").calibrate(Budget(rho=1, neighbours="add-remove")),
        BudgetError,
        "Laplace noise spends a pure epsilon",
    ),
    (
        lambda: HDMM(WORKLOAD, fit=fits.Shrunk()).calibrate(PURE),
        ConsilienceError,
        "Shrunk takes gaussian noise, got laplace noise",
    ),
    (lambda: HDMM(WORKLOAD).calibrate(1.0), BudgetError, "calibrated to a Budget"),
    (
        lambda: HDMM(WORKLOAD, fit=fits.LeastSquares(consistency="very")).calibrate(PURE),
        ConsilienceError,
        "consistency",
    ),
    (
        lambda: HDMM(WORKLOAD).calibrate(Budget(epsilon=1e-16, neighbours="add-remove")),
        ConsilienceError,
        "must be at most 2^50",
    ),
]


@pytest.mark.parametrize("make, error, words", REFUSED)
def test_the_impossible_is_refused_before_anything_is_spent(make, error, words):
    with pytest.raises(error) as caught:
        make()
    assert words in str(caught.value)


def test_a_prior_takes_gaussian_noise():
    assert HDMM(WORKLOAD, fit=fits.Shrunk()).calibrate(LOOSE).strategy.law == "gaussian"


def test_answers_beyond_64_bits_are_refused(tmp_path):
    ready = HDMM(WORKLOAD, QUERIES).calibrate(PURE)

    class Crowd:
        domain, records = DOMAIN, 2**63
        marginals = None

    crowd = Crowd()
    crowd.marginals = lambda cliques: pytest.fail("counted")
    ledger = Ledger.create(tmp_path / "l", table="people", total=PURE)
    with pytest.raises(DataError, match=r"must fit 64-bit integers.*nothing was spent"):
        ready.measure(crowd, ledger=ledger)
    assert ledger.read().entries == ()
