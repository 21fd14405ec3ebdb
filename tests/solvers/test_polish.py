"""The end of a Prox-PGM solve: bounded by counted sweeps, exactly consistent where there is a closed form, honest where not."""

import numpy as np
import pytest

from consilience.domain import Domain, random_marginals
from consilience.measurements import Measurement, SquaredLoss
from consilience.regions import RegionGraph
from consilience.solvers import feasible
from consilience.solvers.prox import prox_pgm
from consilience.solvers.sweeper import Sweeper

DOMAIN = Domain({f"x{i}": 2 + i % 4 for i in range(12)})
TRIPLES = list(random_marginals(DOMAIN, 3, 60, seed=0))


def loss() -> SquaredLoss:
    rng = np.random.default_rng(1)
    tables = [rng.normal(10.0, 8.0, DOMAIN.shape_of(c)) for c in TRIPLES]
    return SquaredLoss(
        DOMAIN, [Measurement(c, t, stddev=8.0) for c, t in zip(TRIPLES, tables, strict=True)], 500
    )


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sweeps of every call, apart from those that belong to a step."""
    done: list[int] = []
    sweeps = Sweeper.sweeps

    def counting(self: Sweeper, *args: object) -> int:
        done.append(sweeps(self, *args))  # pyright: ignore[reportArgumentType]
        return done[-1]

    monkeypatch.setattr(Sweeper, "sweeps", counting)
    monkeypatch.setattr(feasible, "FREE_CELLS", 0)
    return done


@pytest.mark.parametrize("iterations", [1, 3])
def test_a_short_solve_has_a_short_end(iterations: int, counted: list[int]) -> None:
    graph = RegionGraph.saturated(DOMAIN, TRIPLES)
    found = prox_pgm(loss(), graph, iterations=iterations)
    assert sum(counted) <= iterations + feasible.FEW_SWEEPS
    assert found.violation <= 1e-12
    assert found.violation == pytest.approx(graph.local_polytope_violation(found.tau), abs=1e-15)
    assert found.tau.values.min() >= 0.0
    assert found.bound <= found.objective


def test_without_a_closed_form_what_is_left_is_reported(
    counted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consilience.regions.ties.WIDEST", 2)
    graph = RegionGraph.saturated(DOMAIN, TRIPLES)
    found = prox_pgm(loss(), graph, iterations=1)
    assert found.violation == pytest.approx(graph.local_polytope_violation(found.tau), rel=1e-9)
    assert found.violation > 1e-12


def test_tables_that_agree_already_are_left_as_they_are(counted: list[int]) -> None:
    graph = RegionGraph.saturated(DOMAIN, TRIPLES)
    tau = prox_pgm(loss(), graph, iterations=1).tau
    counted.clear()
    again, violation = feasible.polish_tables(graph, tau)
    assert counted == []
    assert violation <= feasible.POLISHED
    np.testing.assert_allclose(again.values, tau.values, rtol=1e-12, atol=1e-15)
