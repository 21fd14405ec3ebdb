"""Evidence in residuals says what the measurements say: the same loss up to a constant, and the same optimum."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.domain import CliqueVector, Domain
from consilience.measurements import Centring, Measurement, Prefix, SquaredLoss, estimate_total
from consilience.measurements.evidence import Evidence
from consilience.measurements.structured import centred
from consilience.regions import RegionGraph
from consilience.solvers.split_problem import SplitProblem
from consilience.solvers.splitting import solve

DOMAIN = Domain({"a": 3, "b": 4, "c": 2, "d": 5})
TABLES = [
    (("a", "b"), 3.0),
    (("b", "c", "d"), 5.0),
    (("a",), 2.0),
    (("c", "d"), 1.0),
    (("a", "b"), 4.0),
]
RESIDUALS = [(("a", "c"), 0.5), (("b", "d"), 0.3), (("c",), 0.7)]


def joint(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 50, DOMAIN.shape).astype(float)


def down(table: np.ndarray, clique: tuple[str, ...]) -> np.ndarray:
    return table.sum(axis=tuple(i for i, a in enumerate(DOMAIN.attributes) if a not in clique))


def measured(x: np.ndarray, rng: np.random.Generator) -> list[Measurement]:
    found = []
    for clique, s in TABLES:
        noisy = down(x, clique) + s * rng.normal(size=DOMAIN.shape_of(clique))
        found.append(Measurement(clique, noisy, stddev=s))
    for clique, s in RESIDUALS:
        shape = DOMAIN.shape_of(clique)
        noisy = centred(down(x, clique), len(clique)) + s * rng.normal(size=shape)
        found.append(Measurement(clique, noisy.reshape(-1), stddev=s, query=Centring(shape)))
    return found


def on(graph: RegionGraph, distribution: np.ndarray) -> CliqueVector:
    out = CliqueVector(graph.layout)
    for r in graph.regions:
        out[r][...] = down(distribution, r)
    return out


@pytest.mark.parametrize("seed", range(3))
def test_the_loss_is_the_same_up_to_a_constant(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = joint(rng)
    loss = SquaredLoss(DOMAIN, measured(x, rng), x.sum())
    evidence, graph = Evidence.of(loss), RegionGraph.saturated(DOMAIN, loss.cliques)
    points = [on(graph, rng.dirichlet(np.ones(x.size)).reshape(x.shape)) for _ in range(4)]
    apart = [loss.value_and_grad(p)[0] - evidence.value_and_grad(p)[0] for p in points]
    assert np.ptp(apart) <= 1e-8 * loss.value_and_grad(points[0])[0]
    assert (evidence.weights < 0).any(), "some table has to be subtracted"


def test_the_optimum_is_the_same_as_with_queries_carried_by_copies() -> None:
    rng = np.random.default_rng(0)
    x = joint(rng) * (rng.random(DOMAIN.shape) < 0.3)
    loss = SquaredLoss(DOMAIN, measured(x, rng), max(x.sum(), 1.0))
    evidence, graph = Evidence.of(loss), RegionGraph.saturated(DOMAIN, loss.cliques)
    one, other = (solve(SplitProblem(graph, f), None, 1e-9) for f in (loss, evidence))
    np.testing.assert_allclose(one.tau.values, other.tau.values, atol=1e-5)
    assert other.status.converged


def test_least_squares_tables_agree_and_are_the_generic_solution() -> None:
    rng = np.random.default_rng(1)
    x = joint(rng)
    given = measured(x, rng)
    evidence = Evidence.of(SquaredLoss(DOMAIN, given, x.sum()))
    rows, values = [], []
    cells = np.eye(x.size).reshape(*DOMAIN.shape, -1)
    for m in given:
        matrix = np.stack(
            [down(cells[..., k], m.attributes).reshape(-1) for k in range(x.size)], axis=1
        )
        if m.query is not None:
            matrix = m.query.apply(matrix)
        rows.append(matrix / m.stddev)
        values.append(m.values.reshape(-1) / m.stddev)
    rows.append(1e6 * np.ones((1, x.size)))
    values.append([1e6 * x.sum()])
    found = np.linalg.lstsq(np.concatenate(rows), np.concatenate(values), rcond=None)[0]
    for clique in evidence.tables:
        wanted = down(found.reshape(DOMAIN.shape), clique)
        np.testing.assert_allclose(evidence.tables[clique], wanted, rtol=1e-5, atol=1e-5)


def test_queries_that_are_no_residuals_stay_in_the_loss_and_inform_the_tables() -> None:
    rng = np.random.default_rng(2)
    x = joint(rng)
    prefix = Measurement("d", np.cumsum(down(x, ("d",))), stddev=1.0, query=Prefix(5))
    loss = SquaredLoss(DOMAIN, [*measured(x, rng), prefix], x.sum())
    evidence = Evidence.of(loss)
    place = evidence.tables.layout.index[("d",)] + 1
    assert [m.clique for m in evidence.rest] == [("d",)]
    assert evidence.precision[place] > evidence.exact[place]


def test_raised_evidence_has_the_same_weights_but_no_negative_ones() -> None:
    """And plain tables, whose weights are none of them negative, stay as they are."""
    rng = np.random.default_rng(1)
    x = joint(rng)
    evidence = Evidence.of(SquaredLoss(DOMAIN, measured(x, rng), x.sum()))
    assert (evidence.weights < 0).any()
    raised = evidence.raised()
    np.testing.assert_allclose(
        raised.weights, np.maximum(evidence.weights, 0.0), rtol=1e-9, atol=1e-15
    )
    assert (raised.exact[1:] >= evidence.exact[1:] * (1 - 1e-9)).all()
    np.testing.assert_array_equal(raised.tables.values, evidence.tables.values)
    np.testing.assert_allclose(raised.raised().exact[1:], raised.exact[1:], rtol=1e-9)


def test_lower_orders_keep_their_evidence() -> None:
    rng = np.random.default_rng(3)
    x = joint(rng)
    evidence = Evidence.of(SquaredLoss(DOMAIN, measured(x, rng), x.sum()))
    pairs = evidence.up_to(2)
    assert max(len(c) for c in pairs.cliques) == 2
    for i, clique in enumerate(pairs.tables.cliques):
        np.testing.assert_array_equal(pairs.tables[clique], evidence.tables[clique])
        assert (
            pairs.precision[1 + i] == evidence.precision[1 + evidence.tables.layout.index[clique]]
        )


def test_residuals_say_nothing_about_the_total() -> None:
    ones = Measurement("a", [5.0, 6.0, 7.0], stddev=2.0)
    residual = [
        Measurement("a", [1.0, 0.0, -1.0], stddev=s, query=Centring((3,))) for s in (1.0, 2.0)
    ]
    assert estimate_total(DOMAIN, [ones, *residual]) == estimate_total(DOMAIN, [ones])
