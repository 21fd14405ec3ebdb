"""Mending: with many tables the end is feasible, certified, near the optimum, and needs fewer iterations than mixing alone."""

from itertools import combinations

import numpy as np
import pytest

import consilience as cs
from consilience.solvers import splitting as module
from consilience.solvers.work import MANY


def measured(sizes: list[int], extra: int, stddev: float, seed: int = 0) -> tuple[cs.Domain, cs.Measurements]:  # fmt: skip
    """All triples of some attributes, and `extra` of the pairs below them, of a mixture of products with noise."""
    rng = np.random.default_rng(seed)
    domain = cs.Domain({f"x{i:02d}": n for i, n in enumerate(sizes)})
    ends = [rng.dirichlet(np.full(n, 0.5), size=3) for n in sizes]
    pairs = list(combinations(domain.attributes, 2))
    cliques = [*combinations(domain.attributes, 3), *pairs[:extra]]
    tables = {}
    for clique in cliques:
        table = np.full((3, 1), 1e5 / 3)
        for a in clique:
            table = (table[:, :, None] * ends[domain.position(a)][:, None]).reshape(3, -1)
        tables[clique] = table.sum(axis=0) + rng.normal(scale=stddev, size=table.shape[1])
    vector = cs.CliqueVector.from_tables(domain, tables)
    return domain, cs.Measurements(domain, vector.cliques, vector, stddev=stddev)


CASES = {
    "little noise": ([3] * 20, 0, 100.0),
    "much noise": ([3] * 20, 0, 3000.0),
    "pairs below": ([3] * 20, 30, 1000.0),
    "several sizes": ([2, 3, 4, 2] * 5, 0, 1000.0),
}


@pytest.mark.parametrize("case", CASES)
def test_the_end_is_feasible_and_near_the_optimum(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain, given = measured(*CASES[case])
    assert len(given) >= MANY
    fit = cs.LeastSquares(consistency="local", tolerance=1e-3)
    model = cs.reconstruct(domain, given, total=1e5, fit=fit)
    found = model.diagnostics
    assert found.converged
    assert found.gap <= 1e-3
    assert model.tau.values.min() >= 0.0
    assert model.graph.local_polytope_violation(model.tau) < 1e-12
    loss = cs.SquaredLoss(domain, given, 1e5)
    value, _ = loss.value_and_grad(model.tau)
    assert value == pytest.approx(found.objective, rel=1e-9)
    monkeypatch.setattr(module, "MANY", len(given) + 1)  # mixing alone
    finer = cs.LeastSquares(consistency="local", tolerance=1e-5)
    best = cs.reconstruct(domain, given, total=1e5, fit=finer).diagnostics
    assert found.bound <= best.objective * (1 + 1e-12)
    assert found.objective <= best.objective * (1 + 1e-3)
    mixed = cs.reconstruct(domain, given, total=1e5, fit=fit).diagnostics
    assert found.iterations <= mixed.iterations


def test_work_grows_with_the_cells_and_no_faster() -> None:
    """Visits counted, 1,140 triples and 7,770."""

    def per_cell(attributes: int) -> float:
        domain, given = measured([3] * attributes, 0, 1000.0)
        fit = cs.LeastSquares(consistency="local", tolerance=1e-3)
        found = cs.reconstruct(domain, given, total=1e5, fit=fit)
        return found.diagnostics.work / found.graph.cells

    assert per_cell(37) < 1.6 * per_cell(20)
