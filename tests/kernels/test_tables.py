"""Sum down and multiply up against NumPy, for any rank, any sizes and any number of edges at once."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.kernels.tables import Edges, multiply_up, rescale, sum_down, total
from consilience.regions.wiring import EngineTables, edges_between

SHAPES = [
    (4,),
    (1,),
    (3, 4),
    (4, 1),
    (1, 1, 1),
    (2, 3, 5),
    (5, 1, 3),
    (2, 2, 3, 4),
    (2, 1, 3, 1, 2, 3),
]
ROWS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
"""Lengths with loops of their own, and lengths without."""


def subsets(rank: int) -> list[tuple[int, ...]]:
    flags = product([False, True], repeat=rank)
    return [tuple(i for i, k in enumerate(f) if k) for f in flags]


def wire(
    shape: tuple[int, ...], children: list[tuple[int, ...]]
) -> tuple[EngineTables, Edges, np.ndarray]:
    """One parent table, one edge per child; edges of kind 0 listed first, as the kernels want."""
    sizes = np.array(shape, np.int64)
    parents = EngineTables.of([tuple(range(len(shape)))], sizes)
    pairs = np.array([(0, i) for i in range(len(children))], np.int64).reshape(-1, 2)
    edges = edges_between(parents, EngineTables.of(children, sizes), pairs)
    return parents, edges, np.argsort(edges.kind, kind="stable").astype(np.int64)


def summed(table: np.ndarray, child: tuple[int, ...]) -> np.ndarray:
    return table.sum(axis=tuple(i for i in range(table.ndim) if i not in child)).reshape(-1)


def spread(table: np.ndarray, child: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    return table.reshape([n if i in child else 1 for i, n in enumerate(shape)])


def check(shape: tuple[int, ...], children: list[tuple[int, ...]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    tables, e, order = wire(shape, children)
    cells = int(np.prod(shape))
    # The table lies in the middle of a buffer whose rest must not be touched.
    x = rng.random(cells + 20)
    at = 7
    table = x[at : at + cells].reshape(shape).copy()
    before = x.copy()
    msg = np.full(e.length, np.nan)
    rows, inner = tables.shapes.rows[0], tables.shapes.inner[0]
    sum_down(x, at, rows, inner, msg, 0, len(order), order, e)
    for i, child in enumerate(children):
        found = msg[e.msg_at[i] : e.msg_at[i] + e.width[i]]
        np.testing.assert_allclose(found, summed(table, child), rtol=1e-13)
    np.testing.assert_array_equal(x, before)
    factors = rng.uniform(0.5, 2, e.length)
    multiply_up(x, at, rows, inner, factors, 0, len(order), order, e, x)
    for i, child in enumerate(children):
        table = table * spread(factors[e.msg_at[i] : e.msg_at[i] + e.width[i]], child, shape)
    np.testing.assert_allclose(x[at : at + cells], table.reshape(-1), rtol=1e-13)
    np.testing.assert_array_equal(x[:at], before[:at])
    np.testing.assert_array_equal(x[at + cells :], before[at + cells :])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_each_child_alone(shape: tuple[int, ...]) -> None:
    for child in subsets(len(shape)):
        check(shape, [child], seed=0)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_child_at_once(shape: tuple[int, ...]) -> None:
    check(shape, subsets(len(shape)), seed=1)


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.integers(1, 6), min_size=1, max_size=5).map(tuple),
    seed=st.integers(0, 2**32 - 1),
    data=st.data(),
)
def test_any_children(shape: tuple[int, ...], seed: int, data: st.DataObject) -> None:
    some = st.lists(st.sampled_from(subsets(len(shape))), min_size=1, max_size=6)
    check(shape, data.draw(some), seed)


def test_an_attribute_of_size_one_thousand() -> None:
    for shape in ((1000,), (3, 1000), (1000, 3), (2, 1000, 2)):
        check(shape, subsets(len(shape)), seed=2)


def test_no_edges_no_work() -> None:
    check((3, 2), [], seed=3)


def test_only_the_listed_edges_are_touched() -> None:
    tables, e, order = wire((3, 4), [(0,), (1,), (0, 1)])
    x, msg = np.ones(12), np.full(e.length, np.nan)
    sum_down(x, 0, tables.shapes.rows[0], tables.shapes.inner[0], msg, 1, 2, order, e)
    touched = order[1]
    lo, hi = e.msg_at[touched], e.msg_at[touched] + e.width[touched]
    assert np.isfinite(msg[lo:hi]).all()
    assert np.isnan(np.delete(msg, np.arange(lo, hi))).all()


def test_total_and_rescale() -> None:
    x = np.random.default_rng(4).random(1000)
    assert total(x, 10, 500) == pytest.approx(x[10:500].sum(), rel=1e-13)
    y = x.copy()
    rescale(y, 10, 500, 3.0)
    np.testing.assert_array_equal(y[10:500], x[10:500] * 3.0)
    np.testing.assert_array_equal(y[:10], x[:10])
    np.testing.assert_array_equal(y[500:], x[500:])


@pytest.mark.parametrize("length", ROWS)
def test_three_children_of_one_attribute_less(length: int) -> None:
    """The commonest shape has loops of fixed length; every length must give the same as the judge."""
    check((3, 4, length), [(0, 1), (0, 2), (1, 2)], seed=length)
