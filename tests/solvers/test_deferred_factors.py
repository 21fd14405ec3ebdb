"""Factors that a sweep leaves for the next pass are never lost, whoever looks when."""

import numpy as np
import pytest

from consilience.domain import Domain
from consilience.regions import RegionGraph
from consilience.regions.wiring import Wiring
from consilience.solvers.sweeper import Beliefs, Sweeper

DOMAIN = Domain({"a": 2, "b": 3, "c": 4, "d": 5, "e": 3})
GRAPHS = {
    "triples": [("a", "b", "c"), ("b", "c", "d"), ("c", "d", "e"), ("a", "d", "e")],
    "a root above two levels": [("a", "b", "c"), ("a", "b", "d"), ("c", "e"), ("d", "e")],
    "no edges": [("a", "b"), ("c", "d")],
}


def problem(name: str) -> tuple[Wiring, np.ndarray, np.ndarray]:
    wiring = Wiring.of(RegionGraph.saturated(DOMAIN, GRAPHS[name]))
    rng = np.random.default_rng(3)
    gradient = rng.normal(size=wiring.tables.length)
    return wiring, gradient, np.full(len(wiring.tables.members), 0.3)


@pytest.mark.parametrize("schedule", ["parallel", "sequential"])
@pytest.mark.parametrize("name", GRAPHS)
def test_looking_between_steps_changes_nothing(name: str, schedule: str) -> None:
    wiring, gradient, rate = problem(name)
    seen, unseen = Beliefs.uniform(wiring), Beliefs.uniform(wiring)
    looking, not_looking = Sweeper(wiring, schedule), Sweeper(wiring, schedule)
    for _ in range(4):
        looking.step_gradient(seen, gradient, rate)
        assert np.isfinite(seen.tau).all()  # looks
        looking.sweep(seen)
        not_looking.step_gradient(unseen, gradient, rate)
        not_looking.sweep(unseen)
    for part in ("tau", "shift", "mass"):
        np.testing.assert_array_equal(getattr(seen, part), getattr(unseen, part))
    assert seen.violation == unseen.violation


def test_one_sweeper_serves_two_states_in_turn() -> None:
    wiring, gradient, rate = problem("triples")
    shared, own = Sweeper(wiring), [Sweeper(wiring), Sweeper(wiring)]
    together = [Beliefs.uniform(wiring), Beliefs.uniform(wiring)]
    apart = [Beliefs.uniform(wiring), Beliefs.uniform(wiring)]
    for _ in range(3):
        for k, sign in enumerate((1.0, -1.0)):
            shared.step_gradient(together[k], sign * gradient, rate)
            own[k].step_gradient(apart[k], sign * gradient, rate)
    for one, other in zip(together, apart, strict=True):
        np.testing.assert_array_equal(one.tau, other.tau)


def test_one_state_goes_from_sweeper_to_sweeper() -> None:
    wiring, gradient, rate = problem("triples")
    first, second, alone = Sweeper(wiring), Sweeper(wiring), Sweeper(wiring)
    passed, kept = Beliefs.uniform(wiring), Beliefs.uniform(wiring)
    for k in range(4):
        (first if k % 2 else second).step_gradient(passed, gradient, rate)
        alone.step_gradient(kept, gradient, rate)
    np.testing.assert_array_equal(passed.tau, kept.tau)
    np.testing.assert_array_equal(passed.copy().tau, kept.tau)
