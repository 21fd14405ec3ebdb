"""Measurements through queries: the three ways to solve their linear system agree with each other and with a dense judge."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import nnls

import consilience as cs
from consilience.measurements import SquaredLoss
from consilience.solvers import query_copy
from consilience.solvers.query_copy import make_copies

PLACES, KINDS, TOTAL = 40, 3, 1000.0
DOMAIN = cs.Domain({"place": PLACES, "kind": KINDS})


def queries() -> list[sparse.csr_array]:
    """Kinds for all places, for each of four regions, and people by place."""
    levels = []
    for groups in (1, 4):
        group = np.arange(PLACES) * groups // PLACES
        ones = (np.ones(PLACES), (group, np.arange(PLACES)))
        sums = sparse.csr_array(ones, shape=(groups, PLACES))
        levels.append(sparse.csr_array(sparse.kron(sums, sparse.eye_array(KINDS))))
    by_place = sparse.kron(sparse.eye_array(PLACES), np.ones((1, KINDS)))
    return [*levels, sparse.csr_array(by_place)]


def measurements(dense: bool = False) -> list[cs.Measurement]:
    rng = np.random.default_rng(0)
    truth = rng.multinomial(int(TOTAL), rng.dirichlet(np.full(PLACES * KINDS, 0.3))).astype(float)
    given = []
    for stddev, query in zip((1.0, 3.0, 8.0), queries(), strict=True):
        answers = query @ truth + rng.normal(0, stddev, query.shape[0])
        asked = query.toarray() if dense else query
        given.append(cs.Measurement(("place", "kind"), answers, stddev=stddev, query=asked))
    return given


def test_one_copy_for_a_clique_whatever_is_asked_of_it() -> None:
    loss = SquaredLoss(DOMAIN, measurements(), TOTAL)
    assert len(make_copies(loss.separable().rest, TOTAL)) == 1


def test_sparse_dense_and_iterative_solves_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    v = rng.normal(size=PLACES * KINDS)

    def prox(dense: bool) -> tuple[str, np.ndarray]:
        loss = SquaredLoss(DOMAIN, measurements(dense), TOTAL)
        (copy,) = make_copies(loss.separable().rest, TOTAL)
        return copy._make_solve.__name__, copy.prox(v, 0.3 * copy.weight)

    by_sparse, by_dense = prox(dense=False), prox(dense=True)
    monkeypatch.setattr(query_copy, "DENSE_CELLS", 1)
    by_cg = prox(dense=True)
    assert (by_sparse[0], by_dense[0], by_cg[0]) == ("_sparse", "_dense", "_iterative")
    np.testing.assert_allclose(by_sparse[1], by_dense[1], atol=1e-12)
    np.testing.assert_allclose(by_cg[1], by_dense[1], atol=1e-8)


@pytest.mark.parametrize("dense", [False, True])
def test_the_optimum_is_that_of_non_negative_least_squares(dense: bool) -> None:
    given = measurements(dense)
    model = cs.reconstruct(DOMAIN, given, TOTAL, fit=cs.LeastSquares(tolerance=1e-9))
    rows = [q.toarray() / m.stddev for q, m in zip(queries(), given, strict=True)]
    answers = [np.asarray(m.values) / m.stddev for m in given]
    # The total is known: one row so heavy that it holds exactly.
    matrix = np.vstack([*rows, np.full((1, PLACES * KINDS), 1e5)])
    judge = nnls(matrix, np.concatenate([*answers, [1e5 * TOTAL]]))[0]

    def loss(x: np.ndarray) -> float:
        parts = zip(rows, answers, strict=True)
        return 0.5 * sum(float(np.square(r @ x - y).sum()) for r, y in parts)

    ours = loss(model.marginal(("place", "kind")).ravel())
    assert ours == pytest.approx(loss(judge), rel=1e-7)
    assert model.diagnostics.iterations <= 2000
