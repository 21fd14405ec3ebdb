"""Every way to an exact answer gives the enumerated joint's: one table of cases, all engines.

The joint is p proportional to exp(sum of theta) on some cliques. Engines of inference are given theta; engines of estimation are
given the exact tables of those cliques, of which p is the distribution of maximum entropy.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from claims.judges import joint, marginal, marginals, random_vector
from consilience.domain import Clique, CliqueVector, Domain
from consilience.fits import LeastSquares, PossibleCells, reconstruct
from consilience.measurements import Measurement, SquaredLoss
from consilience.regions import JunctionTree, RegionGraph
from consilience.regions.pseudo_marginals import PseudoMarginals
from consilience.solvers.private_pgm import private_pgm
from consilience.tree.answers import TreeAnswers
from consilience.tree.elimination import exact_marginal
from consilience.tree.fit import fit_tree
from consilience.tree.growth import backbone_of
from consilience.tree.oracle import ExactOracle, exact_marginals
from consilience.tree.support import SupportTree

D = Domain({"a": 3, "b": 2, "c": 4, "d": 2, "e": 3, "f": 1})
CASES = {
    "tree": "ab bc cd ce",
    "cycle": "ab bc cd ad",
    "triangle and a tail": "ab bc ac cd de",
    "disconnected": "ab cd",
    "nested": "abc ab c bc",
    "triples": "abc bcd ade",
    "size one": "af fe bc",
    "one table": "abc",
}
ASKED: tuple[Clique, ...] = (
    ("a",), ("a", "b"), ("b", "c"), ("a", "d"), ("b", "e"), ("a", "c", "e"), ("b", "d", "f"), (),
)  # fmt: skip
RECORDS = 1000.0
Answer = Callable[[Clique], np.ndarray]


def of_oracle(theta: CliqueVector, known: CliqueVector) -> Answer:
    return lambda asked: exact_marginals(D, theta, [asked])[0][asked]


def of_oracle_by_elimination(theta: CliqueVector, known: CliqueVector) -> Answer:
    oracle = ExactOracle(JunctionTree.of(D, theta.cliques), theta.cliques)
    state = oracle.of_potentials(theta)
    return lambda asked: oracle.marginal(state, asked)


def of_one_step(theta: CliqueVector, known: CliqueVector) -> Answer:
    oracle = ExactOracle(JunctionTree.of(D, theta.cliques), theta.cliques)
    state = oracle.uniform()
    oracle.step(state, theta.expand(oracle.layout.cliques).values, -1.0)
    return lambda asked: oracle.marginal(state, asked)


def of_elimination(theta: CliqueVector, known: CliqueVector) -> Answer:
    return lambda asked: exact_marginal(theta, asked)


def of_fitted_tree(theta: CliqueVector, known: CliqueVector) -> Answer:
    tree = JunctionTree.of(D, known.cliques)
    support = SupportTree.confined(tree, [], tree.cells)
    assert support is not None
    return TreeAnswers(fit_tree(support, known, passes=5000, tolerance=1e-12)).marginal


def of_backbone(theta: CliqueVector, known: CliqueVector) -> Answer:
    graph = RegionGraph.saturated(D, known.cliques)
    p, _ = joint(theta)
    tables = PseudoMarginals.of(graph, marginals(D, p, graph.regions), known.cliques)
    return backbone_of(tables).marginal


def measured(known: CliqueVector, stddev: float) -> list[Measurement]:
    return [Measurement(c, RECORDS * table, stddev=stddev) for c, table in known.items()]


def of_private_pgm(theta: CliqueVector, known: CliqueVector) -> Answer:
    loss = SquaredLoss(D, measured(known, 1.0), RECORDS)
    found = private_pgm(loss, iterations=3000, accelerated=False)
    oracle = ExactOracle(JunctionTree.of(D, loss.cliques), loss.cliques)
    return lambda asked: oracle.marginal(found.state, asked)


def of_global_model(theta: CliqueVector, known: CliqueVector) -> Answer:
    fit = LeastSquares(consistency="global", tolerance=1e-9)
    model = reconstruct(D, measured(known, 1.0), total=RECORDS, fit=fit)
    return lambda asked: model.marginal(asked) / RECORDS


def of_possible_cells(theta: CliqueVector, known: CliqueVector) -> Answer:
    model = reconstruct(D, measured(known, 1e-3), total=RECORDS, fit=PossibleCells())
    return lambda asked: model.marginal(asked) / RECORDS


ENGINES: dict[str, tuple[Callable[[CliqueVector, CliqueVector], Answer], float]] = {
    "oracle": (of_oracle, 1e-12),
    "oracle, then elimination": (of_oracle_by_elimination, 1e-12),
    "one mirror step": (of_one_step, 1e-12),
    "elimination": (of_elimination, 1e-12),
    "proportional fitting": (of_fitted_tree, 1e-8),
    "backbone": (of_backbone, 1e-5),
    "Private-PGM": (of_private_pgm, 1e-5),
    "global model": (of_global_model, 1e-4),
    "possible cells": (of_possible_cells, 1e-4),
}
"""Each with the largest difference of a cell that it is allowed."""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", CASES)
def test_every_engine_gives_the_joints_marginals(case: str, engine: str) -> None:
    theta = random_vector(D, [tuple(w) for w in CASES[case].split()], np.random.default_rng(5))
    p, _ = joint(theta)
    make, within = ENGINES[engine]
    answer = make(theta, marginals(D, p, theta.cliques))
    for asked in ASKED:
        np.testing.assert_allclose(answer(asked), marginal(D, p, asked), atol=within, err_msg=asked)
