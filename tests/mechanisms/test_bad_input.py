"""One clear line for each misuse, and a ledger that shows that nothing was spent."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from consilience.domain import CliqueVector, Domain, Workload, all_marginals
from consilience.errors import (
    BudgetError,
    CapacityError,
    ConsilienceError,
    DataError,
    DomainError,
    InsufficientBudgetError,
    LedgerError,
    NoiseError,
)
from consilience.fits import LeastSquares, SelectionLikelihood, Shrunk
from consilience.mechanisms import Gaussian, Laplace
from consilience.privacy import Budget, Ledger, SecureNoise
from consilience.records import Dataset
from consilience.regions import RegionGraph
from mechanisms.cases import CASES, DOMAIN, WEIGHTS, WORKLOAD, people

DATA = people(50)
BUDGET = Budget(epsilon=1, delta=1e-6, neighbours="replace-one")
HUGE = Domain({"a": 1000, "b": 1000, "c": 1000})
OTHER = Domain({"x": 2})
BOTH = [Gaussian, Laplace]
CYCLE = Workload(DOMAIN, [("age", "sex"), ("sex", "region"), ("age", "region")])
CYCLE_TREE = RegionGraph.saturated(DOMAIN, [("age", "sex", "region")])
POSSIBLE = np.ones((5, 2), bool)


class Forbidden(SecureNoise):
    """Fails the test if noise is drawn."""

    def discrete_gaussian(self, counts, sigma, progress=None):
        raise AssertionError("noise was drawn")

    discrete_laplace = discrete_gaussian


BUILDS = [
    (lambda M: M(Workload(DOMAIN, [])), DomainError, "at least one clique, got none"),
    (lambda M: M([("age", "sex")]), DomainError, "must be a Workload"),
    (lambda M: M(Workload(DOMAIN, [(), ("age",)])), DomainError, "got the empty one"),
    (
        lambda M: M(Workload(DOMAIN, [("age", "height")])),
        DomainError,
        "every attribute must be in the domain, got 'height'",
    ),
    (
        lambda M: M(all_marginals(HUGE, 3)),
        CapacityError,
        "1,000,000,000 cells need about 40.0 GB; choose smaller cliques or raise memory=",
    ),
    (
        lambda M: M(WORKLOAD, fit=LeastSquares(memory="1 kB")),
        CapacityError,
        "33 cells need about 1.3 kB",
    ),
    (
        lambda M: M(WORKLOAD, fit=LeastSquares(memory="much")),
        ConsilienceError,
        "memory must be a number of bytes",
    ),
    (lambda M: M(WORKLOAD, fit="mine"), ConsilienceError, "fit must be an estimator such as"),
    (lambda M: M(WORKLOAD, fit=LeastSquares), ConsilienceError, "; call it"),
    (
        lambda M: M(WORKLOAD, fit=SelectionLikelihood()),
        ConsilienceError,
        "fits the choices of FEM and DualQuery (Selections), got tables with",
    ),
    (
        lambda M: M(WORKLOAD, weights={**WEIGHTS, ("age",): -1}),
        BudgetError,
        "a weight must be greater than zero, got -1",
    ),
    (
        lambda M: M(WORKLOAD, weights={**WEIGHTS, ("age",): 0}),
        BudgetError,
        "a weight must be greater than zero, got 0",
    ),
    (
        lambda M: M(WORKLOAD, weights={**WEIGHTS, ("age",): float("nan")}),
        BudgetError,
        "a weight must be finite, got nan",
    ),
    (
        lambda M: M(WORKLOAD, weights={("age", "sex"): 1}),
        BudgetError,
        "must name each clique of the workload once, got none for ('sex', 'region')",
    ),
    (
        lambda M: M(WORKLOAD, weights={**WEIGHTS, ("income",): 1}),
        BudgetError,
        "once, got one for ('income',)",
    ),
    (
        lambda M: M(WORKLOAD, weights={**WEIGHTS, ("sex", "age"): 1}),
        BudgetError,
        "once, got one clique spelled twice",
    ),
    (lambda M: M(WORKLOAD, weights="best"), BudgetError, "None, 'optimal', 'census' or a mapping"),
    (
        lambda M: M(WORKLOAD, weights=[1, 2, 3, 4]),
        BudgetError,
        "None, 'optimal', 'census' or a mapping",
    ),
]


@pytest.mark.parametrize("mechanism", BOTH)
@pytest.mark.parametrize("build, error, words", BUILDS)
def test_a_mechanism_refuses(mechanism, build, error, words):
    with pytest.raises(error) as caught:
        build(mechanism)
    assert words in str(caught.value)


CALIBRATES = [
    (lambda M: M(WORKLOAD), 1.0, BudgetError, "calibrated to a Budget"),
    (
        lambda M: M(WORKLOAD, fit=LeastSquares("very")),
        BUDGET,
        ConsilienceError,
        "consistency must be",
    ),
    (
        lambda M: M(WORKLOAD, fit=LeastSquares(solver="magic")),
        BUDGET,
        ConsilienceError,
        "solver must be",
    ),
    (
        lambda M: M(WORKLOAD, fit=LeastSquares(tolerance=0)),
        BUDGET,
        ConsilienceError,
        "tolerance must be positive",
    ),
    (
        lambda M: M(WORKLOAD, fit=LeastSquares(tolerance=float("nan"))),
        BUDGET,
        ConsilienceError,
        "tolerance must be positive",
    ),
    (
        lambda M: M(WORKLOAD, fit=LeastSquares(memory="1 MB")),
        BUDGET,
        CapacityError,
        "even local consistency",
    ),
    (
        lambda M: M(WORKLOAD, fit=LeastSquares(RegionGraph.saturated(DOMAIN, [("age", "sex")]))),
        BUDGET,
        ConsilienceError,
        "some region of the graph must contain ('sex', 'region')",
    ),
    (
        lambda M: M(WORKLOAD, fit=LeastSquares(RegionGraph.saturated(OTHER, [("x",)]))),
        BUDGET,
        ConsilienceError,
        "the graph must be over the same domain as the measurements",
    ),
    (
        lambda M: M(WORKLOAD),
        Budget(epsilon=1e-16, delta=1e-30, neighbours="replace-one"),
        NoiseError,
        "must be at most 2^50",
    ),
]


@pytest.mark.parametrize("mechanism", BOTH)
@pytest.mark.parametrize("build, budget, error, words", CALIBRATES)
def test_a_calibration_refuses(mechanism, build, budget, error, words):
    with pytest.raises(error) as caught:
        build(mechanism).calibrate(budget)
    assert words in str(caught.value)


def test_a_graph_that_holds_the_workload_is_taken():
    graph = RegionGraph.saturated(DOMAIN, WORKLOAD)
    result = Gaussian(WORKLOAD, fit=LeastSquares(consistency=graph)).calibrate(BUDGET)(DATA)
    assert result.model.graph is graph


def test_gaussian_noise_and_a_pure_budget():
    pure = Budget(epsilon=1, neighbours="replace-one")
    with pytest.raises(BudgetError) as caught:
        Gaussian(WORKLOAD).calibrate(pure)
    assert "cannot keep a pure epsilon" in str(caught.value)
    assert "give the budget a delta (or rho), or use the Laplace mechanism" in str(caught.value)


@pytest.mark.parametrize(
    "budget",
    [
        Budget(rho=1, neighbours="add-remove"),
        Budget(epsilon=1, delta=1e-6, neighbours="replace-one", accounting="gaussian"),
    ],
)
def test_laplace_noise_and_a_budget_without_epsilons(budget):
    with pytest.raises(BudgetError) as caught:
        Laplace(WORKLOAD).calibrate(budget)
    assert "spends a pure epsilon" in str(caught.value)
    assert "give epsilon, or use the Gaussian mechanism" in str(caught.value)


class Fractional:
    """An engine that counts fractions of people."""

    domain, records = DOMAIN, 50

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def marginals(self, cliques):
        exact = DATA.marginals(cliques)
        return CliqueVector(exact.layout, exact.values * self.factor)


CODES = DATA.to_array()
SOURCES = [
    ([[0, 1]], DataError, "with domain, records and marginals (a Dataset), got list"),
    (Dataset([[0]], OTHER), DataError, "the table must have the domain of the workload"),
    (
        Dataset(CODES, DOMAIN, weights=np.full(50, 0.5)),
        DataError,
        "every row must count once, got row weights other than 1",
    ),
    (
        Dataset(CODES, DOMAIN, weights=np.full(50, 130)),
        DataError,
        "one person of weight w moves a count by w",
    ),
    (
        Dataset(CODES, DOMAIN, weights=np.tile([0, 2], 25)),  # whole, and summing to the rows
        DataError,
        "every row must count once",
    ),
    (Fractional(0.3), DataError, "marginals must be whole numbers, got fractions"),
    (Fractional(2.0), DataError, "must sum to the 50 rows, got 100 for ('age', 'sex')"),
    (people(0), DataError, "at least one row, got none"),
]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("data, error, words", SOURCES)
def test_a_call_refuses_and_spends_nothing(name, data, error, words, tmp_path):
    case = CASES[name]
    ready = case.build(WORKLOAD).calibrate(case.budgets("replace-one")[0])
    ledger = Ledger.create(tmp_path / "l", table="people", total=ready.budget)
    with pytest.raises(error) as caught:
        ready(data, noise=Forbidden(), ledger=ledger)
    assert words in str(caught.value)
    assert ledger.read().entries == ()


def test_weights_of_one_are_no_weights():
    data = Dataset(CODES, DOMAIN, weights=np.ones(50))
    assert Gaussian(WORKLOAD).calibrate(BUDGET)(data).model.total == 50


@pytest.mark.parametrize("name", CASES)
def test_a_ledger_of_other_neighbours(name, tmp_path):
    case = CASES[name]
    ready = case.build(WORKLOAD).calibrate(case.budgets("replace-one")[0])
    total = Budget(epsilon=100, delta=1e-3, neighbours="add-remove")
    ledger = Ledger.create(tmp_path / "l", table="people", total=total)
    with pytest.raises(LedgerError, match="stated for add-remove neighbours"):
        ready(DATA, noise=Forbidden(), ledger=ledger)
    assert ledger.read().entries == ()


def test_a_ledger_of_another_table(tmp_path):
    """Refused when it is opened; and when its file is exchanged under a ledger that is open."""
    ready = Gaussian(WORKLOAD).calibrate(BUDGET)
    mine = Ledger.create(tmp_path / "people", table="people", total=BUDGET)
    other = Ledger.create(tmp_path / "houses", table="houses", total=BUDGET)
    with pytest.raises(LedgerError, match="protects table 'houses', not 'people'"):
        Ledger(other.path, table="people")
    shutil.copy(other.path, mine.path)
    with pytest.raises(LedgerError, match="use that table's own ledger, nothing was spent"):
        ready(DATA, noise=Forbidden(), ledger=mine)
    assert other.read().entries == ()
    assert Ledger(mine.path).read().entries == ()


def test_a_ledger_with_too_little_left(tmp_path):
    half = Gaussian(WORKLOAD).calibrate(Budget(epsilon=0.8, delta=1e-6, neighbours="replace-one"))
    ledger = Ledger.create(tmp_path / "l", table="people", total=BUDGET)
    half(DATA, ledger=ledger)
    with pytest.raises(InsufficientBudgetError, match="nothing was spent") as caught:
        half(DATA, noise=Forbidden(), ledger=ledger)
    assert 0 < caught.value.remaining < caught.value.requested
    assert len(ledger.read().entries) == 1


def test_a_ledger_that_does_not_count_this_noise(tmp_path):
    ready = Gaussian(WORKLOAD).calibrate(BUDGET)
    pure = Budget(epsilon=100, neighbours="replace-one")
    ledger = Ledger.create(tmp_path / "l", table="people", total=pure)
    with pytest.raises(BudgetError, match="takes only pure mechanisms, got gaussian"):
        ready(DATA, noise=Forbidden(), ledger=ledger)
    assert ledger.read().entries == ()


def test_a_ledger_must_be_one():
    with pytest.raises(LedgerError, match=r"must be a Ledger, got 'people\.ledger'"):
        Gaussian(WORKLOAD).calibrate(BUDGET)(DATA, ledger="people.ledger")


@pytest.mark.parametrize("records", [0, -1, float("nan"), float("inf")])
def test_total_variation_of_no_records(records):
    with pytest.raises(ConsilienceError, match="records must be positive and finite"):
        Laplace(WORKLOAD).calibrate(BUDGET).expected_total_variation(records)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: Laplace(WORKLOAD, fit=Shrunk()), "Shrunk takes gaussian noise, got laplace noise"),
        (
            lambda: Gaussian(CYCLE, fit=Shrunk(consistency="global")).calibrate(BUDGET),
            r"every region without parents measured, got .* unmeasured; use consistency='local'",
        ),
        (
            lambda: Gaussian(CYCLE, fit=Shrunk(consistency=CYCLE_TREE)).calibrate(BUDGET),
            r"every region without parents measured, got .* unmeasured; use consistency='local'",
        ),
        (
            lambda: LeastSquares(possible={("age", "sex"): POSSIBLE}, solver="prox"),
            "need the splitting solver; leave out solver= or possible=",
        ),
        (
            lambda: Gaussian(
                WORKLOAD, fit=LeastSquares(possible={("age", "sex"): POSSIBLE[1:]})
            ).calibrate(BUDGET),
            "possible",
        ),
    ],
)
def test_a_fit_that_cannot_work_is_refused_before_the_budget_is_spent(make, words):
    with pytest.raises(ConsilienceError, match=words):
        make()


def test_a_shrunk_fit_has_no_other_solver():
    """What version 0.1 had to refuse cannot be said any more."""
    with pytest.raises(TypeError, match="solver"):
        Shrunk(solver="prox")


def test_a_shrunk_fit_takes_a_junction_tree_whose_cliques_are_measured():
    ready = Gaussian(WORKLOAD, fit=Shrunk(consistency="global")).calibrate(BUDGET)
    assert ready(DATA).model.total == 50
