"""Families of cliques as integer arrays, against Python's tuples and sets; tables moved at once, against one by one."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.domain import Cliques, CliqueVector, Domain, Family, Holders
from consilience.domain.moves import cells_of, move
from consilience.domain.rows import grouped, row_keys, starts

SETS = st.lists(st.sets(st.integers(0, 8), max_size=4).map(lambda s: tuple(sorted(s))), max_size=12)
WIDE = st.lists(
    st.sets(st.integers(0, 400), min_size=7, max_size=14).map(lambda s: tuple(sorted(s))),
    max_size=6,
)
FAMILIES = st.one_of(SETS, WIDE)


@settings(max_examples=60, deadline=None)
@given(FAMILIES, FAMILIES)
def test_a_family_is_what_the_tuples_say(sets: list, others: list) -> None:
    family = Family.of(sets)
    assert list(family) == sets == [family[i] for i in range(len(sets))]
    assert family == sets
    assert family == tuple(sets)
    assert family == Family.of(sets)
    assert (family == others) == (sets == others)
    assert family.ranks.tolist() == [len(s) for s in sets]
    first = [i for i, s in enumerate(sets) if s not in sets[:i]]
    assert family.first_of_each().tolist() == first
    kept = [i for i in first if not any(set(sets[i]) < set(s) for s in sets)]
    assert family.maximal().tolist() == kept
    assert list(family.take(np.array(kept, np.int64))) == [sets[i] for i in kept]
    wanted = [*others, *sets[::2]]
    place = [sets.index(s) if s in sets else -1 for s in wanted]
    assert family.find(Family.of(wanted)).tolist() == place
    assert list(Family.joined([family, Family.of(others)])) == [*sets, *others]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.permutations(range(6)).map(lambda p: tuple(p[:4])), max_size=8))
def test_sorting_within_sets(sets: list) -> None:
    family = Family.of(sets)
    assert list(family.sorted()) == [tuple(sorted(s)) for s in sets]
    assert family.ascends == all(tuple(sorted(s)) == s for s in sets)
    assert family.descents().tolist() == [tuple(sorted(s)) != s for s in sets]
    assert list(family.argsort()) == [tuple(np.argsort(s).tolist()) for s in sets]


@settings(max_examples=40, deadline=None)
@given(SETS, st.sets(st.integers(0, 8), max_size=3))
def test_holders_are_the_supersets(sets: list, asked: set[int]) -> None:
    names = [tuple("abcdefghi"[i] for i in s) for s in sets]
    domain = Domain(dict.fromkeys("abcdefghi", 2))
    holding = {i for i, s in enumerate(sets) if asked <= set(s)}
    touching = {i for i, s in enumerate(sets) if asked & set(s)}
    by_name = ["abcdefghi"[i] for i in sorted(asked)]
    for holders, question in (
        (Holders(Family.of(sets)), sorted(asked)),
        (Holders(Cliques.of(domain, names)), by_name),
        (Holders(names), by_name),
    ):
        assert holders.of(question) == holding
        assert holders.touching(question) == touching
        sizes = [7 - len(s) for s in sets]
        least = min(holding, key=lambda i: (sizes[i], i), default=None)
        assert holders.smallest(question, sizes) == least


def test_cliques_read_like_a_tuple_of_names() -> None:
    domain = Domain({"a": 2, "b": 3, "c": 4})
    cliques = Cliques.of(domain, [("b", "a"), "c", (), ("a", "b")])
    assert cliques == (("a", "b"), ("c",), (), ("a", "b"))
    assert cliques[1] == ("c",)
    assert cliques[-1] == ("a", "b")
    assert cliques[1:3] == (("c",), ())
    assert ("c",) in cliques
    assert ("b",) not in cliques
    assert ("b", "a") not in cliques
    assert cliques.index(("c",)) == 1
    assert cliques.sizes.tolist() == [6, 4, 1, 6]
    assert cliques.cells == 17
    assert cliques.distinct() == (("a", "b"), ("c",), ())
    assert cliques.distinct(empty=False) == (("a", "b"), ("c",))
    assert hash(cliques) == hash(tuple(cliques))
    assert repr(cliques) == repr(tuple(cliques))
    with pytest.raises(IndexError):
        cliques[4]
    with pytest.raises(ValueError, match="not in tuple"):
        cliques.index(("b",))


def test_no_tuple_is_made_before_it_is_asked_for() -> None:
    domain = Domain({f"x{i:02d}": 2 for i in range(30)})
    rows = np.array(list(combinations(range(30), 3)))
    vector = CliqueVector.zeros(domain, Cliques(domain, Family.of_rows(rows)))
    assert vector[("x01", "x05", "x09")].shape == (2, 2, 2)
    assert vector.project(("x05",)).shape == (2,)
    assert "listed" not in vector.cliques.__dict__


@pytest.mark.parametrize("columns", [1, 3, 9, 40])
def test_keys_order_rows_as_rows_are(columns: int) -> None:
    rows = np.random.default_rng(columns).integers(0, 300, size=(60, columns))
    rows = np.concatenate([rows, rows[:5]])
    keys = row_keys(rows)
    by_rows = sorted(range(len(rows)), key=lambda i: (tuple(rows[i]), i))
    assert np.argsort(keys, kind="stable").tolist() == by_rows
    assert len(np.unique(keys)) == len({tuple(r) for r in rows.tolist()})
    assert [g.tolist() for g in grouped(np.array([3, 1, 3, 1]))] == [[1, 3], [0, 2]]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_tables_are_moved_and_turned_as_one_by_one(data: st.DataObject) -> None:
    sizes = np.array([2, 3, 4, 2, 5])
    sets = data.draw(st.lists(st.permutations(range(5)).map(lambda p: tuple(p[:3])), max_size=7))
    order = data.draw(st.permutations(range(len(sets))))
    family = Family.of(sets)
    shapes = family.renamed(sizes)
    counts = family.products(sizes)
    source = np.random.default_rng(0).random(int(counts.sum()))
    at = starts(counts)[:-1]
    to = np.zeros(len(sets), np.int64)
    to[list(order)] = starts(counts[list(order)])[:-1]
    for axes in (None, family.argsort()):
        found, expected = np.zeros(len(source)), np.zeros(len(source))
        move(source, at, found, to, shapes, axes)
        for i, s in enumerate(sets):
            table = source[at[i] : at[i] + counts[i]].reshape(shapes[i])
            table = table if axes is None else table.transpose(np.argsort(s))
            expected[to[i] : to[i] + counts[i]] = table.reshape(-1)
        np.testing.assert_array_equal(found, expected)
    assert cells_of(np.array([5, 0]), np.array([2, 3])).tolist() == [5, 6, 0, 1, 2]
