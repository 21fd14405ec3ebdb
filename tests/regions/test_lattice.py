"""Closure under intersection, containments and Hasse edges, against brute force over sets."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.regions import lattice
from consilience.regions.lattice import containments, intersection_closure

Family = list[tuple[int, ...]]


def cliques(attributes: int, rank: int, most: int = 9) -> st.SearchStrategy[Family]:
    one = st.sets(st.integers(0, attributes - 1), min_size=1, max_size=rank)
    return st.lists(one.map(lambda s: tuple(sorted(s))), min_size=1, max_size=most)


SHAPES = {
    "few attributes": cliques(5, 4),
    "many attributes": cliques(300, 5),
    "wide positions and ranks": cliques(40, 12, most=5),
    "wider than enumeration goes": st.lists(
        st.sets(st.integers(0, 24), min_size=11, max_size=18).map(lambda s: tuple(sorted(s))),
        min_size=1,
        max_size=5,
    ),
}


def closed_by_force(family: Family) -> set[tuple[int, ...]]:
    sets = [frozenset(c) for c in family]
    return {
        tuple(sorted(frozenset.intersection(*some)))
        for k in range(1, len(sets) + 1)
        for some in combinations(sets, k)
        if frozenset.intersection(*some)
    }


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_closure_is_every_intersection(shape: str, data: st.DataObject) -> None:
    family = data.draw(SHAPES[shape])
    found = intersection_closure(family)
    assert set(found) == closed_by_force(family)
    assert found == sorted(found, key=lambda r: (-len(r), r))
    assert intersection_closure(found) == found


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_containments_and_hasse_edges(shape: str, data: st.DataObject) -> None:
    regions = intersection_closure(data.draw(SHAPES[shape]))
    found = containments(regions)
    sets = [frozenset(r) for r in found.members]
    below = {(i, j) for i in range(len(sets)) for j in range(len(sets)) if sets[i] < sets[j]}
    hasse = {(i, j) for i, j in below if not any(sets[i] < k < sets[j] for k in sets)}
    pairs = list(zip(found.below.tolist(), found.above.tolist(), strict=True))
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == below
    assert {p for p, direct in zip(pairs, found.direct, strict=True) if direct} == hasse


@settings(max_examples=40, deadline=None)
@given(family=cliques(8, 6))
def test_both_roads_agree(family: Family) -> None:
    """What is enumerated up to rank 12 could as well go the way of the wide cliques."""
    regions = intersection_closure(family)
    fast = containments(regions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lattice, "ENUMERATED_RANK", 0)
        assert intersection_closure(family) == regions
        slow = containments(regions)
    order = np.lexsort((slow.above, slow.below))
    np.testing.assert_array_equal(fast.below, slow.below[order])
    np.testing.assert_array_equal(fast.above, slow.above[order])
    np.testing.assert_array_equal(fast.direct, slow.direct[order])


def test_order_and_repetition_of_the_cliques_do_not_matter() -> None:
    family = [(0, 1, 2), (1, 2, 3), (2, 3, 4), (0, 4)]
    assert intersection_closure(family) == intersection_closure([*reversed(family), *family])


def test_nothing_and_the_empty_clique() -> None:
    assert intersection_closure([]) == []
    assert intersection_closure([()]) == []
    assert intersection_closure([(3,)]) == [(3,)]
    assert len(containments([(3,)]).below) == 0
