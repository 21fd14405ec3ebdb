"""How a budget is divided over the tables of a workload.

Weights are shares of the budget's unit: rho (or mu^2) for Gaussian noise, epsilon for Laplace noise.
None gives every table the same. "optimal" minimises the expected L1 distance of the noisy tables,
sum_c v_c n_c E|z_c| with v_c the workload's weight and n_c the cells of table c. As E|z_c| is in
proportion to share_c^(-p), the Lagrangian gives share_c in proportion to (v_c n_c)^(1 / (1 + p)):
p = 1/2 for Gaussian noise, p = 1 for Laplace noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from consilience.domain import Clique, Workload
from consilience.errors import BudgetError, CapacityError, DomainError
from consilience.memory import parse_bytes, show_bytes
from consilience.privacy.sensitivity import checked_weights

Weights = str | Mapping[Clique, float] | None

_BYTES_PER_CELL = 40
"""Counts as floats and as integers, a chunk being drawn, noisy counts as integers and as floats."""


def check_workload(workload: Workload, memory: str | int | float) -> None:
    """Tables that can be counted in the memory allowed, each of at least one attribute."""
    if not isinstance(workload, Workload):
        raise DomainError(
            "the workload of a mechanism must be a Workload, such as all_marginals(domain, 2), "
            f"got {type(workload).__name__}"
        )
    if () in workload:
        raise DomainError(
            "every clique of a mechanism's workload must have an attribute, got the empty one; "
            "the total is public (replace-one) or estimated from the tables (add-remove)"
        )
    need, budget = _BYTES_PER_CELL * workload.cells, parse_bytes(memory)
    if need > budget:
        raise CapacityError(
            f"the tables of the workload must fit the memory budget of {show_bytes(budget)}, "
            f"{workload.cells:,} cells need about {show_bytes(need)}; "
            "choose smaller cliques or raise memory=",
            need,
            budget,
        )


def checked_shares(workload: Workload, weights: Weights) -> Weights:
    """The weights as a mechanism keeps them: one positive number per clique, if they are given."""
    if weights is None or weights == "optimal":
        return weights
    if not isinstance(weights, Mapping):
        raise BudgetError(
            "weights must be None, 'optimal' or a mapping of clique to share of the budget, "
            f"got {weights!r}"
        )
    canonical = {workload.domain.clique(c): w for c, w in weights.items()}
    missing = [c for c in workload if c not in canonical]
    extra = [c for c in canonical if c not in workload]
    if missing or extra or len(canonical) != len(weights):
        wrong = (
            f"none for {missing[0]}"
            if missing
            else f"one for {extra[0]}"
            if extra
            else "one clique spelled twice"
        )
        raise BudgetError(f"weights must name each clique of the workload once, got {wrong}")
    checked_weights(canonical.values())
    return MappingProxyType({c: canonical[c] for c in workload})


def shares(workload: Workload, weights: Weights, power: float) -> tuple[float, ...]:
    """One share per clique, up to a common factor; `power` is p above."""
    if weights is None:
        return (1.0,) * len(workload)
    if isinstance(weights, str):
        size = workload.domain.size
        return tuple((workload[c] * size(c)) ** (1 / (1 + power)) for c in workload)
    return tuple(weights[c] for c in workload)
