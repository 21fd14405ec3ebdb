"""Rows of a tree: unbiased against the enumerated joint, each distributed as the model, nearer than independent ones."""

from __future__ import annotations

from functools import reduce
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from consilience.domain import CliqueVector, Domain
from consilience.errors import ConsilienceError
from consilience.kernels.rows import draw_cells
from consilience.model.sampling import independent_deviation
from consilience.records import Dataset
from consilience.regions.junction_tree import JunctionTree
from consilience.tree.rows import tree_rows
from solvers.problems import RECORDS, D, cliques_of, marginal_of, true_counts

TREE = JunctionTree.of(D, cliques_of("abc bcd de"))
JOINT = true_counts(D, 5) / RECORDS
BELIEFS = CliqueVector.from_tables(D, {c: marginal_of(D, JOINT, c) for c in TREE.cliques})


def tree_joint() -> np.ndarray:
    """The product of clique tables over separator tables, enumerated."""

    def spread(clique: tuple[str, ...]) -> np.ndarray:
        shape = [D[a] if a in clique else 1 for a in D]
        return marginal_of(D, JOINT, clique).reshape(shape)

    with np.errstate(invalid="ignore"):
        return reduce(np.multiply, map(spread, TREE.cliques)) / reduce(
            np.multiply, map(spread, TREE.separators)
        )


P = tree_joint()


def test_the_judge_is_a_distribution() -> None:
    assert P.sum() == pytest.approx(1)
    assert len(TREE.cliques) == 3


# -- drawing -----------------------------------------------------------------------------------------


@settings(deadline=None)  # the first case compiles
@given(
    st.lists(st.floats(0, 10).map(lambda x: max(0.0, x - 1)), min_size=1, max_size=12),
    st.integers(0, 40),
    st.floats(0, 1, exclude_max=True),
)
def test_counts_are_roundings_of_their_expectations(
    mass: list[float], n: int, offset: float
) -> None:
    table = np.array(mass)
    if table.sum() == 0:
        table[0] = 1.0
    drawn = np.full(n, -1)
    draw_cells(table, offset, drawn)
    counts = np.bincount(drawn, minlength=table.size)
    expected = n * table / table.sum()
    assert (np.abs(counts - expected) < 1 + 1e-9).all()
    assert counts[table == 0].sum() == 0
    assert (np.diff(drawn) >= 0).all()


def test_a_draw_is_unbiased_over_its_offset() -> None:
    mass = np.array([0.5, 0.0, 0.3, 1.2, 0.01])
    offsets = (np.arange(20_000) + 0.5) / 20_000
    drawn = np.empty((len(offsets), 3), np.int64)
    for offset, row in zip(offsets, drawn, strict=True):
        draw_cells(mass, float(offset), row)
    counts = np.bincount(drawn.reshape(-1), minlength=5) / len(offsets)
    np.testing.assert_allclose(counts, 3 * mass / mass.sum(), atol=2e-4)


@pytest.mark.parametrize("n", [1, 7, 200])
def test_expected_counts_are_those_of_the_model_whatever_the_attributes(n: int) -> None:
    draws = 1500
    rows = np.stack(
        [tree_rows(TREE, BELIEFS, n, np.random.default_rng([n, seed])) for seed in range(draws)]
    )
    data = Dataset(rows.reshape(-1, len(D)), D)
    for clique in combinations(D, 2):
        p = marginal_of(D, P, clique)
        found = data.marginal(clique) / (draws * n)
        # Systematic counts vary at most as much as binomial ones on the tree; 5 standard errors of the latter.
        assert (np.abs(found - p) <= 5 * np.sqrt(p * (1 - p) / (draws * n)) + 1e-12).all(), clique


@pytest.mark.parametrize("position", [0, 4])
def test_every_row_by_itself_follows_the_model(position: int) -> None:
    draws = 4000
    rows = [
        tree_rows(TREE, BELIEFS, 5, np.random.default_rng(seed))[position] for seed in range(draws)
    ]
    found = Dataset(np.stack(rows), D).marginal(tuple(D)).reshape(-1)
    p = P.reshape(-1)
    big = p * draws >= 5
    counts = np.append(found[big], found[~big].sum())
    expected = draws * np.append(p[big], p[~big].sum())
    statistic = float((np.square(counts - expected) / expected).sum())
    assert chi2.sf(statistic, len(counts) - 1) > 1e-3
    # The same statistic tells a distribution apart that is off by a tenth of a cell in ten.
    tilted = expected * np.linspace(0.7, 1.3, len(expected))
    statistic = float((np.square(counts - tilted) / tilted).sum())
    assert chi2.sf(statistic, len(counts) - 1) < 1e-3


def test_rows_do_not_depend_on_their_place() -> None:
    rows = tree_rows(TREE, BELIEFS, 60_000, np.random.default_rng(0))
    half = Dataset(rows[:30_000], D).marginals(TREE.cliques).values / 30_000
    assert np.abs(half - BELIEFS.values).max() < 0.01


def test_tree_rows_are_much_nearer_than_independent_ones() -> None:
    n = 20_000
    rows = tree_rows(TREE, BELIEFS, n, np.random.default_rng(1))
    counts = Dataset(rows, D).marginals(TREE.cliques).values
    deviation = np.abs(counts - n * BELIEFS.values).sum()
    assert deviation < 0.25 * independent_deviation(n, BELIEFS.values).sum()


def test_cells_that_later_tables_cannot_continue_are_never_entered() -> None:
    domain = Domain({"a": 2, "b": 2, "c": 2})
    tree = JunctionTree.of(domain, cliques_of("ab bc"))
    tables = {tuple("ab"): [[0.5, 1e-3], [0.499, 0.0]], tuple("bc"): [[0.4, 0.6], [0.0, 0.0]]}
    rows = tree_rows(tree, CliqueVector.from_tables(domain, tables), 5000, np.random.default_rng(0))
    assert (rows[:, 1] == 0).all()
    tables["b", "c"] = [[0.0, 0.0], [0.0, 0.0]]
    with pytest.raises(ConsilienceError, match="must leave some row possible"):
        tree_rows(tree, CliqueVector.from_tables(domain, tables), 5, np.random.default_rng(0))
