"""Sensitivities against every neighbour of small tables."""

from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest

from consilience.errors import BudgetError
from consilience.privacy import (
    Neighbours,
    l1_score,
    marginals,
    total,
    weighted_marginals,
)

SHAPE = (2, 3, 2)
ROWS = list(product(*(range(n) for n in SHAPE)))


def counts(table, cliques):
    """All marginals of a list of rows, stacked, by plain counting."""
    out = []
    for clique in cliques:
        cells = np.zeros([SHAPE[a] for a in clique], dtype=int)
        for row in table:
            cells[tuple(row[a] for a in clique)] += 1
        out.append(cells.ravel())
    return out


def neighbours_of(table, relation):
    """Every neighbour that differs in the first row (tables are multisets, so that is general)."""
    if relation is Neighbours.ADD_REMOVE:
        yield table[1:]
        yield from ([*table, row] for row in ROWS)
    else:
        yield from ([row, *table[1:]] for row in ROWS)


CLIQUES = {1: [(0, 1)], 2: [(0,), (1, 2)], 3: list(combinations(range(3), 2))}
TABLE = [ROWS[0], ROWS[5], ROWS[7]]


@pytest.mark.parametrize("relation", list(Neighbours))
@pytest.mark.parametrize("k", CLIQUES)
def test_marginals_move_exactly_this_far(relation, k):
    base = np.concatenate(counts(TABLE, CLIQUES[k]))
    moves = [
        np.concatenate(counts(other, CLIQUES[k])) - base for other in neighbours_of(TABLE, relation)
    ]
    stated = marginals(relation, k)
    assert max(np.abs(m).sum() for m in moves) == stated.l1
    assert max((m**2).sum() for m in moves) == stated.l2_squared
    assert max((m != 0).sum() for m in moves) == stated.cells


@pytest.mark.parametrize("relation", list(Neighbours))
def test_weighted_marginals_move_exactly_this_far(relation):
    weights = [Fraction(1), Fraction(5, 2), Fraction(1, 3)]
    base = counts(TABLE, CLIQUES[3])
    l1, l2 = [], []
    for other in neighbours_of(TABLE, relation):
        moved = [b - a for a, b in zip(base, counts(other, CLIQUES[3]), strict=True)]
        l1.append(sum(w * int(np.abs(m).sum()) for w, m in zip(weights, moved, strict=True)))
        l2.append(sum(w * w * int((m**2).sum()) for w, m in zip(weights, moved, strict=True)))
    stated = weighted_marginals(relation, weights)
    assert (max(l1), max(l2)) == (stated.l1, stated.l2_squared)


@pytest.mark.parametrize("relation", list(Neighbours))
def test_the_score_moves_this_far_and_no_further(relation):
    rng = np.random.default_rng(0)
    models = [np.zeros(6), np.full(6, 10.0), *rng.uniform(0, 3, (50, 6))]
    base = counts(TABLE, [(0, 1)])[0]
    moves = [
        abs(np.abs(counts(other, [(0, 1)])[0] - m).sum() - np.abs(base - m).sum())
        for other in neighbours_of(TABLE, relation)
        for m in models
    ]
    # a model between the counts makes both cells move the same way, so the bound is reached
    exact_model = [
        abs(np.abs(counts(o, [(0, 1)])[0] - base).sum()) for o in neighbours_of(TABLE, relation)
    ]
    assert max(moves) <= l1_score(relation) + 1e-12
    assert max(exact_model) == l1_score(relation)


def test_the_table_of_the_paper():
    add, replace = Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE
    assert (marginals(add, 7).l1, marginals(add, 7).l2_squared) == (7, 7)
    assert (marginals(replace, 7).l1, marginals(replace, 7).l2_squared) == (14, 14)
    assert (l1_score(add), l1_score(replace)) == (1, 2)
    assert (total(add).l1, total(replace).l1) == (1, 0)
    assert weighted_marginals(replace, [1] * 7) == marginals(replace, 7)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: marginals(Neighbours.ADD_REMOVE, 0), "at least one marginal, got 0"),
        (lambda: weighted_marginals(Neighbours.ADD_REMOVE, []), "at least one marginal"),
        (lambda: weighted_marginals(Neighbours.ADD_REMOVE, [1, -2]), "a weight must be greater"),
        (lambda: Neighbours.of(None), "must be 'replace-one' or 'add-remove', got None"),
        (lambda: Neighbours.of("bounded"), "must be 'replace-one' or 'add-remove'"),
    ],
)
def test_bad_workloads(call, words):
    with pytest.raises(BudgetError) as caught:
        call()
    assert words in str(caught.value)
