"""Sensitivities against every neighbour of small tables: every way in which a unit's rows can come, go or change."""

from fractions import Fraction
from itertools import combinations, combinations_with_replacement, product

import numpy as np
import pytest

from consilience.errors import BudgetError
from consilience.privacy import (
    Neighbours,
    l1_score,
    marginals,
    products,
    residual_family,
    residuals,
    total,
    weighted_marginals,
)
from consilience.privacy.sensitivity import cell_score

SHAPE = (2, 3, 2)
ROWS = list(product(*(range(n) for n in SHAPE)))
RELATIONS = [
    Neighbours(kind, *unit)
    for kind in ("replace-one", "add-remove")
    for unit in ((), ("person_id", 1), ("person_id", 2))
]


def counts(table, cliques):
    """All marginals of a list of rows, stacked, by plain counting."""
    out = []
    for clique in cliques:
        cells = np.zeros([SHAPE[a] for a in clique], dtype=int)
        for row in table:
            cells[tuple(row[a] for a in clique)] += 1
        out.append(cells.ravel())
    return out


def holdings(relation, rows=ROWS):
    """Every set of rows that a unit can have: one to so many."""
    return [
        list(held)
        for k in range(1, relation.rows + 1)
        for held in combinations_with_replacement(rows, k)
    ]


def neighbours_of(table, relation):
    """Every neighbour that differs in one unit (tables are multisets): of TABLE the unit holds the first rows."""
    mine, others = table[: relation.rows], table[relation.rows :]
    if relation.value == "add-remove":
        yield others
        yield from ([*table, *held] for held in holdings(relation))
    else:
        yield from ([*held, *others] for held in holdings(relation))
        assert len(mine) == relation.rows


def changes(relation, columns):
    """Every change of A x, where a row adds a column of A: columns held after minus columns held before."""
    sums = np.array(
        [sum(columns[i] for i in held) for held in holdings(relation, range(len(columns)))]
    )
    if relation.value == "add-remove":
        return sums
    return (sums[:, None, :] - sums[None, :, :]).reshape(-1, sums.shape[1])


CLIQUES = {1: [(0, 1)], 2: [(0,), (1, 2)], 3: list(combinations(range(3), 2))}
TABLE = [ROWS[0], ROWS[0], ROWS[7], ROWS[5]]
"""The unit's rows first, all in one cell: the worst case is to take them away and put others into another cell."""


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("k", CLIQUES)
def test_marginals_move_exactly_this_far(relation, k):
    base = np.concatenate(counts(TABLE, CLIQUES[k]))
    moves = [
        np.concatenate(counts(other, CLIQUES[k])) - base for other in neighbours_of(TABLE, relation)
    ]
    stated = marginals(relation, k)
    assert max(np.abs(m).sum() for m in moves) == stated.l1
    assert max((m**2).sum() for m in moves) == stated.l2_squared
    assert max((m != 0).sum() for m in moves) <= stated.cells
    if relation.rows == 1:
        assert max((m != 0).sum() for m in moves) == stated.cells


@pytest.mark.parametrize("relation", RELATIONS)
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


@pytest.mark.parametrize("relation", RELATIONS)
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


MATRICES = {
    "prefixes": [np.tril(np.ones((3, 3), dtype=np.int64))],
    "signed": [np.array([[1, -1, 0], [2, 0, -2]])],
    "product": [np.array([[1, 1], [0, 2]]), np.array([[1, 0, 1], [0, 1, 1]])],
    "signed product": [np.array([[1, 1], [1, -1]]), np.array([[2, 0, 1], [0, 1, -1]])],
}


@pytest.mark.parametrize("relation", RELATIONS, ids=str)
@pytest.mark.parametrize("name", MATRICES)
def test_integer_queries_move_no_further(relation, name):
    whole = np.ones((1, 1), dtype=np.int64)
    for factor in MATRICES[name]:
        whole = np.kron(whole, factor)
    moves = changes(relation, whole.T)
    stated = products(relation, MATRICES[name])
    assert np.abs(moves).sum(axis=1).max() <= stated.l1
    assert (moves**2).sum(axis=1).max() <= stated.l2_squared
    assert (moves != 0).sum(axis=1).max() <= min(stated.cells, whole.shape[0])
    if relation.value == "add-remove":
        assert np.abs(moves).sum(axis=1).max() == stated.l1
        assert (moves**2).sum(axis=1).max() == stated.l2_squared


@pytest.mark.parametrize("relation", RELATIONS, ids=str)
@pytest.mark.parametrize("sizes", [(2,), (3,), (2, 2), (3, 2), (2, 2, 2)], ids=str)
def test_residuals_move_exactly_this_far(relation, sizes):
    whole = np.ones((1, 1), dtype=np.int64)
    for n in sizes:
        whole = np.kron(whole, n * np.eye(n, dtype=np.int64) - 1)
    moves = changes(relation, whole.T)
    stated = residuals(relation, sizes)
    assert (moves**2).sum(axis=1).max() == stated.l2_squared
    assert np.abs(moves).sum(axis=1).max() <= stated.l1


FAMILIES = {
    "2 x 2": ((2, 2), [(0,), (1,), (0, 1)]),
    "one residual": ((2, 3), [(0, 1)]),
    "2 x 3": ((2, 3), [(0,), (1,), (0, 1)]),
    "pairs": ((2, 2, 3), [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]),
    "all of 2 x 2 x 2": ((2, 2, 2), [t for k in (1, 2, 3) for t in combinations(range(3), k)]),
}


def column_stack(sizes, family, widths):
    """The matrix of A_t x / w_t on the joint table, one residual below the other; its columns as rows."""
    parts = []
    for t, w in zip(family, widths, strict=True):
        whole = np.ones((1, 1))
        for i, n in enumerate(sizes):
            whole = np.kron(whole, n * np.eye(n) - 1 if i in t else np.ones((1, n)))
        parts.append(whole / w)
    return np.concatenate(parts).T


@pytest.mark.parametrize("relation", RELATIONS, ids=str)
@pytest.mark.parametrize("name", FAMILIES)
def test_residuals_together_move_exactly_this_far(relation, name, monkeypatch):
    """Over every neighbour, for widths of all kinds; and never less than that where not all neighbours are looked at."""
    sizes, family = FAMILIES[name]
    rng = np.random.default_rng(7)
    for widths in (np.ones(len(family)), *10 ** rng.uniform(-1, 1, (6, len(family)))):
        moves = changes(relation, column_stack(sizes, family, widths))
        largest = (moves**2).sum(axis=1).max()
        variances = [Fraction(w) ** 2 for w in widths.tolist()]
        stated = residual_family(relation, sizes, family, variances)
        assert largest * (1 - 1e-13) <= stated <= largest * (1 + 1e-10)
        separate = sum(
            residuals(relation, [sizes[i] for i in t]).l2_squared / v
            for t, v in zip(family, variances, strict=True)
        )
        assert stated <= separate
        with monkeypatch.context() as patch:
            patch.setattr("consilience.privacy.sensitivity.MOST_JOINT", 0)
            assert residual_family(relation, sizes, family, variances) == separate


LEVELS = {1: [0, 0, 0, 0], 2: [0, 0, 1, 1], 4: [0, 1, 2, 3]}
"""Of four places: the level of so many, and where in it each place lies."""
PLACED = {
    "two levels": ((2,), [((), 2), ((0,), 2), ((), 4), ((0,), 4)]),
    "a residual above": ((2,), [((0,), 1), ((), 4), ((0,), 4)]),
    "pairs": ((2, 3), [((0,), 1), ((1,), 1), ((0,), 2), ((0, 1), 2), ((), 4), ((1,), 4)]),
    "residuals alone": ((3,), [((0,), 2), ((0,), 4)]),
}


@pytest.mark.parametrize("relation", RELATIONS, ids=str)
@pytest.mark.parametrize("name", PLACED)
def test_residuals_of_places_together_move_exactly_this_far(relation, name):
    sizes, members = PLACED[name]
    family, places = [t for t, _ in members], [p for _, p in members]
    rng = np.random.default_rng(8)
    for widths in (np.ones(len(family)), *10 ** rng.uniform(-1, 1, (6, len(family)))):
        parts = []
        for t, p, w in zip(family, places, widths, strict=True):
            whole = np.eye(p)[LEVELS[p]].T
            for i, n in enumerate(sizes):
                whole = np.kron(whole, n * np.eye(n) - 1 if i in t else np.ones((1, n)))
            parts.append(whole / w)
            alone = residuals(relation, [sizes[i] for i in t], placed=p > 1)
            moved = (changes(relation, whole.T) ** 2).sum(axis=1).max()
            assert moved == pytest.approx(float(alone.l2_squared))
        largest = (changes(relation, np.concatenate(parts).T) ** 2).sum(axis=1).max()
        variances = [Fraction(w) ** 2 for w in widths.tolist()]
        stated = residual_family(relation, sizes, family, variances, places)
        assert largest * (1 - 1e-13) <= stated <= largest * (1 + 1e-10)


@pytest.mark.parametrize("relation", RELATIONS, ids=str)
def test_the_number_of_rows_and_a_cell_move_exactly_this_far(relation):
    held = changes(relation, np.ones((2, 1), dtype=np.int64))
    assert np.abs(held).max() == total(relation).l1
    assert (held**2).max() == total(relation).l2_squared
    assert relation.total_public == (total(relation).l1 == 0)
    cells = changes(relation, np.eye(3, dtype=np.int64))
    assert np.abs(cells).max() == cell_score(relation)


def test_whose_privacy_is_said_in_words():
    assert Neighbours.REPLACE_ONE.per == "per row"
    assert Neighbours("add-remove", "person_id", 3).per == "per person, at most 3 rows"
    assert Neighbours("add-remove", "household", 1).per == "per household, at most 1 row"
    assert str(Neighbours("replace-one", "PERSONID", 2)).startswith(
        "replace-one neighbours per PERSON,"
    )


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: marginals(Neighbours.ADD_REMOVE, 0), "at least one marginal, got 0"),
        (lambda: weighted_marginals(Neighbours.ADD_REMOVE, []), "at least one marginal"),
        (lambda: weighted_marginals(Neighbours.ADD_REMOVE, [1, -2]), "a weight must be greater"),
        (lambda: Neighbours.of(None), "must be 'replace-one' or 'add-remove', got None"),
        (lambda: Neighbours.of("bounded"), "must be 'replace-one' or 'add-remove'"),
        (lambda: Neighbours("add-remove", "id", 0), "a whole number from 1 on, got 0"),
        (lambda: Neighbours("add-remove", "id", 2.5), "a whole number from 1 on, got 2.5"),
        (lambda: Neighbours("add-remove", None, 2), "for a table with a unit"),
        (lambda: Neighbours("add-remove", ""), "must be the name of a column"),
    ],
)
def test_bad_workloads(call, words):
    with pytest.raises(BudgetError) as caught:
        call()
    assert words in str(caught.value)
