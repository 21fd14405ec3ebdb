"""Budgets: what may be promised, what they hold, what they admit."""

from fractions import Fraction

import pytest

from consilience.errors import BudgetError
from consilience.privacy.accounting import gaussian_delta, gaussian_mu_squared, zcdp_rho
from consilience.privacy.budget import Budget
from consilience.privacy.calibration import gaussian_sigma, laplace_scale, selection_epsilon
from consilience.privacy.composition import delta_at, epsilon_at
from consilience.privacy.cost import Cost
from consilience.privacy.sensitivity import Neighbours, marginals
from consilience.privacy.units import Epsilon, MuSquared, Rho, Scale, Sigma

ADD = Neighbours.ADD_REMOVE


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"epsilon": 0}, "epsilon must be greater than zero, got 0"),
        ({"epsilon": -1.0}, "epsilon must be greater than zero, got -1.0"),
        ({"epsilon": float("nan")}, "epsilon must be finite, got nan"),
        ({"epsilon": float("inf")}, "epsilon must be finite, got inf"),
        ({"epsilon": "one"}, "epsilon must be a number, got 'one'"),
        ({"epsilon": 1e7}, "epsilon must be at most a million"),
        ({"epsilon": Rho(1)}, "epsilon must be a plain number, got Rho(1)"),
        ({"epsilon": 1, "delta": 1}, "delta must be greater than zero and less than one, got 1"),
        ({"epsilon": 1, "delta": 0}, "less than one, got 0; for no delta leave it out"),
        ({"epsilon": 1, "delta": -1e-6}, "delta must be greater than zero"),
        ({"epsilon": 1, "delta": float("nan")}, "delta must be finite, got nan"),
        ({"epsilon": 1, "delta": "tiny"}, "delta must be a number, got 'tiny'"),
        ({"rho": 0}, "rho must be greater than zero, got 0"),
        ({"rho": float("inf")}, "rho must be finite, got inf"),
        ({}, "either epsilon or rho, got epsilon=None and rho=None; give exactly one"),
        ({"delta": 1e-6}, "either epsilon or rho"),
        ({"epsilon": 1, "rho": 1}, "either epsilon or rho, got epsilon=1 and rho=1"),
        ({"epsilon": 1, "accounting": "zcdp"}, "must be 'pure', got 'zcdp'"),
        ({"epsilon": 1, "delta": 0.1, "accounting": "pld"}, "'zcdp' or 'gaussian', got 'pld'"),
        ({"rho": 1, "accounting": "gaussian"}, "must be 'zcdp', got 'gaussian'"),
        ({"epsilon": 1, "neighbours": None}, "'replace-one' or 'add-remove', got None"),
        ({"epsilon": 1, "neighbours": "any"}, "'replace-one' or 'add-remove', got 'any'"),
    ],
)
def test_bad_budgets(fields, words):
    with pytest.raises(BudgetError) as caught:
        Budget(**{"neighbours": "replace-one", **fields})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_neighbours_have_no_default():
    with pytest.raises(BudgetError, match="say which tables must be indistinguishable"):
        Budget(epsilon=1.0)


def test_what_a_budget_holds():
    pure = Budget(epsilon=0.1, neighbours="add-remove")
    assert pure.capacity == Epsilon(Fraction(1, 10))
    assert pure.accounting == "pure"
    zcdp = Budget(rho=0.5, delta=1e-6, neighbours=ADD)
    assert zcdp.capacity == Rho(Fraction(1, 2))
    both = Budget(epsilon=1.0, delta=1e-6, neighbours="add-remove")
    assert both.capacity == zcdp_rho(Epsilon(1), 1e-6)
    gaussian = Budget(epsilon=1.0, delta=1e-6, neighbours="add-remove", accounting="gaussian")
    assert isinstance(gaussian.capacity, MuSquared)
    assert (gaussian.epsilon, gaussian.delta, gaussian.neighbours) == (
        both.epsilon,
        both.delta,
        both.neighbours,
    )
    assert both == Budget(epsilon=1, delta=1e-6, neighbours="add-remove") != gaussian
    assert repr(both) == (
        "Budget(epsilon=1, delta=1e-06, neighbours='add-remove', accounting='zcdp')"
    )


BUDGETS = [
    Budget(epsilon=e, delta=d, neighbours="replace-one", accounting=a)
    for e in (1e-3, 0.5, 1.0, 10.0)
    for d in (1e-12, 1e-6, 1e-2)
    for a in ("zcdp", "gaussian")
]


@pytest.mark.parametrize("budget", BUDGETS, ids=repr)
@pytest.mark.parametrize("weights", [[1], [1, 2, 3], [0.1] * 10, [1 / 3, 1 / 7, 1e-3]])
def test_a_budget_that_is_split_is_spent_to_the_end_and_not_past_it(budget, weights):
    """P9 of peers.md: shares, calibrated one by one, must fit together again."""
    sensitivity = marginals(budget.neighbours, 5)
    shares = budget.split(weights)
    assert sum((s.value for s in shares), Fraction(0)) == budget.capacity.value
    sigmas = [gaussian_sigma(sensitivity, s) for s in shares]
    cost = Cost.sum(budget.neighbours, (Cost.gaussian(sensitivity, s) for s in sigmas))
    assert budget.admits(cost)
    assert budget.spent(cost).value >= budget.capacity.value * (1 - Fraction(1, 10**9))
    assert epsilon_at(cost, budget.delta) <= budget.epsilon.value
    assert delta_at(cost, budget.epsilon) <= budget.delta
    sliver = Cost.gaussian(sensitivity, Sigma(sigmas[0].value * 1e4))
    assert not budget.admits(cost + sliver)


def test_ten_tenths_are_one_and_no_more():
    budget = Budget(epsilon=1.0, neighbours="add-remove")
    tenth = Cost.laplace(marginals(ADD), laplace_scale(marginals(ADD), Epsilon(0.1)))
    assert budget.admits(tenth * 10)
    assert not budget.admits(tenth * 11)
    assert (tenth * 10).epsilon == Epsilon(1)


def test_pure_releases_fit_an_approximate_budget_by_their_epsilons():
    budget = Budget(epsilon=1.0, delta=1e-6, neighbours="add-remove")
    laplace = Cost.laplace(marginals(ADD), Scale(1))
    assert laplace.rho.value > budget.capacity.value  # zCDP alone would refuse it
    assert budget.admits(laplace)
    assert not budget.admits(laplace + Cost.gaussian(marginals(ADD), Sigma(1000)))


def test_what_gaussian_accounting_does_not_take():
    budget = Budget(epsilon=1.0, delta=1e-6, neighbours="add-remove", accounting="gaussian")
    wide = Cost.gaussian(marginals(ADD), Sigma(1000))
    assert budget.admits(wide)
    assert not budget.admits(wide + Cost.selection(ADD, Epsilon(1e-6)))
    assert not budget.admits(Cost.gaussian(marginals(ADD), Sigma(1.4)))  # sigma^2 < 2
    many_cells = Cost.gaussian(marginals(ADD, 10**11), Sigma(1e12))
    assert not budget.admits(many_cells)  # the slack of lemma 1 is used up
    assert Budget(epsilon=1.0, delta=1e-6, neighbours="add-remove").admits(many_cells)


def test_costs_of_other_neighbours():
    budget = Budget(epsilon=1.0, neighbours="replace-one")
    with pytest.raises(BudgetError, match="stated for replace-one neighbours per row, the release"):
        budget.admits(Cost.selection(ADD, Epsilon(0.1)))
    with pytest.raises(BudgetError, match="costs must have the same neighbours"):
        Cost.selection(ADD, Epsilon(1)) + Cost.selection(Neighbours.REPLACE_ONE, Epsilon(1))


def test_one_round_too_many_is_refused():
    """P1 of peers.md: the round that passes the budget is not played."""
    budget = Budget(epsilon=1.0, delta=1e-9, neighbours="replace-one")
    one_round = Cost.selection(budget.neighbours, selection_epsilon(budget.split([1] * 37)[0]))
    assert budget.admits(one_round * 37)
    assert not budget.admits(one_round * 38)


def test_costs_that_make_no_sense():
    with pytest.raises(BudgetError, match="multiplied by a whole number"):
        Cost.selection(ADD, Epsilon(1)) * 1.5
    with pytest.raises(BudgetError, match="costs nothing; publish it as it is"):
        Cost.selection(ADD, Epsilon(0))


@pytest.mark.parametrize("epsilon, delta", [(0.1, 1e-9), (1, 1e-6), (5, 1e-3)])
def test_gaussian_accounting_keeps_back_what_lemma_1_may_add(epsilon, delta):
    """A millionth of epsilon and of delta: the whole capacity, spent, still proves the rest."""
    budget = Budget(epsilon=epsilon, delta=delta, neighbours="add-remove", accounting="gaussian")
    assert isinstance(budget.capacity, MuSquared)
    kept = 1 - 2**-20
    assert gaussian_delta(budget.capacity, Epsilon(epsilon * kept)) <= delta * kept * (1 + 1e-9)
    assert budget.capacity < gaussian_mu_squared(Epsilon(epsilon), delta)
