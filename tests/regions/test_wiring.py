"""Wiring in bulk is wiring one by one: maps against NumPy's reshape and sum, any rank, sizes 1 and 1,000."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.domain import CliqueVector, Domain, Layout, random_marginals
from consilience.errors import RegionGraphError
from consilience.regions import RegionGraph
from consilience.regions.wiring import CHUNK_CELLS, Wiring, chunks, group, row_map, schedule

SHAPES = st.lists(st.sampled_from([1, 2, 3, 5]), min_size=1, max_size=6).map(tuple)


@settings(max_examples=100, deadline=None)
@given(shape=SHAPES, data=st.data())
def test_a_row_map_says_where_each_row_lands(shape: tuple[int, ...], data: st.DataObject) -> None:
    kept = tuple(data.draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape))))
    table = np.random.default_rng(0).random(shape)
    expected = table.sum(axis=tuple(i for i, k in enumerate(kept) if not k)).reshape(-1)
    rows = table.reshape(-1, shape[-1])
    found = np.zeros_like(expected)
    for row, to in zip(rows, row_map(shape, kept).tolist(), strict=True):
        if kept[-1]:
            found[to * shape[-1] : (to + 1) * shape[-1]] += row
        else:
            found[to] += row.sum()
    np.testing.assert_allclose(found, expected)


DOMAINS = {
    "equal sizes": Domain({f"x{i}": 3 for i in range(6)}),
    "ascending": Domain({f"x{i}": 1 + i for i in range(6)}),
    "descending": Domain({f"x{i}": 7 - i for i in range(6)}),
    "sizes 1 and 1,000": Domain({"x0": 1, "x1": 1000, "x2": 2, "x3": 1, "x4": 3, "x5": 2}),
}


@pytest.mark.parametrize("name", DOMAINS)
def test_every_edge_sums_its_parent_to_its_child(name: str) -> None:
    domain = DOMAINS[name]
    cliques = [*random_marginals(domain, 3, 8, seed=0), domain.attributes[2:]]
    if name == "equal sizes":
        cliques.append(domain.attributes)  # a six-way clique
    graph = RegionGraph.saturated(domain, cliques, minimal=False)
    wiring = Wiring.of(graph)
    vector = CliqueVector(graph.layout, np.random.default_rng(1).random(graph.layout.cells))
    buffer = wiring.enter(vector)
    t, e = wiring.tables, wiring.edges
    assert e.length == sum(domain.size(c) for _, c in graph.edges)
    for i, (parent, child) in enumerate(graph.edges):
        p, c = e.parent[i], e.child[i]
        assert (graph.regions[p], graph.regions[c]) == (parent, child)
        rows = buffer[t.at[p] : t.at[p] + t.cells[p]].reshape(t.shapes.rows[p], t.shapes.inner[p])
        to = e.maps[e.map_at[i] : e.map_at[i] + t.shapes.rows[p]]
        summed = np.zeros(e.width[i])
        if e.kind[i] == 1:
            np.add.at(summed.reshape(-1, t.shapes.inner[p]), to, rows)
        else:
            np.add.at(summed, to, rows.sum(axis=1))
        out = CliqueVector.zeros(domain, graph.regions)
        whole = np.zeros(t.length)
        whole[t.at[c] : t.at[c] + t.cells[c]] = summed
        out = wiring.leave(whole)
        axes = tuple(k for k, a in enumerate(parent) if a not in child)
        np.testing.assert_allclose(out[child], vector[parent].sum(axis=axes))


@pytest.mark.parametrize("name", DOMAINS)
def test_leaving_undoes_entering(name: str) -> None:
    domain = DOMAINS[name]
    graph = RegionGraph.saturated(domain, random_marginals(domain, 4, 10, seed=2))
    wiring = Wiring.of(graph)
    vector = CliqueVector(graph.layout, np.random.default_rng(3).random(graph.layout.cells))
    back = wiring.leave(wiring.enter(vector))
    np.testing.assert_array_equal(back.values, vector.values)
    entered = wiring.enter(vector)
    entered[:] = -1
    assert vector.values.min() >= 0  # a new buffer, not a view


@pytest.mark.parametrize("name", DOMAINS)
def test_inside_the_engine_the_largest_attribute_is_last(name: str) -> None:
    domain = DOMAINS[name]
    graph = RegionGraph.saturated(domain, random_marginals(domain, 3, 10, seed=4))
    wiring = Wiring.of(graph)
    for region, members, inner in zip(
        graph.regions, wiring.tables.members, wiring.tables.shapes.inner, strict=True
    ):
        sizes = [domain.shape[m] for m in members]
        assert {domain.attributes[m] for m in members} == set(region)
        assert sizes == sorted(sizes)
        assert inner == max(sizes)


def test_equal_shapes_share_one_map() -> None:
    domain = Domain({f"x{i}": 4 for i in range(300)})
    cliques = [tuple(f"x{i + j}" for j in range(3)) for i in range(298)]
    graph = RegionGraph.saturated(domain, cliques)
    edges = Wiring.of(graph).edges
    # A triple meets the pair of its first two, and of its last two; a pair meets its singletons likewise.
    assert len(edges.maps) <= 2 * 16 + 2 * 4
    assert len(edges.parent) == len(graph.edges) > 500


def test_groups_and_chunks() -> None:
    ptr, items = group(np.array([2, 0, 2, 3]), 5)
    assert ptr.tolist() == [0, 1, 1, 3, 4, 4]
    assert items.tolist() == [1, 0, 2, 3]
    assert chunks(np.zeros(0, np.int64)).tolist() == [0]
    cells = np.array([CHUNK_CELLS // 2] * 4 + [10 * CHUNK_CELLS] + [1] * 5)
    edges = chunks(cells)
    assert edges[0] == 0
    assert edges[-1] == len(cells)
    assert (np.diff(edges) > 0).all()
    for lo, hi in itertools.pairwise(edges):
        assert hi - lo == 1 or cells[lo : hi - 1].sum() <= CHUNK_CELLS


# -- schedules ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["parallel", "sequential"])
def test_every_child_is_updated_once_with_all_its_edges(name: str) -> None:
    domain = DOMAINS["equal sizes"]
    graph = RegionGraph.saturated(domain, random_marginals(domain, 3, 12, seed=5))
    wiring = Wiring.of(graph)
    seen: list[int] = []
    for stage in schedule(wiring, name):
        children, parents = stage.children, stage.parents
        for i, t in enumerate(children.region.tolist()):
            edges = children.edge[children.ptr[i] : children.ptr[i + 1]]
            assert sorted(edges) == np.flatnonzero(wiring.edges.child == t).tolist()
            seen.append(t)
        for i, p in enumerate(parents.region.tolist()):
            edges = parents.edge[parents.ptr[i] : parents.ptr[i + 1]]
            assert (wiring.edges.parent[edges] == p).all()
            assert (np.diff(wiring.edges.kind[edges]) >= 0).all()
        assert not set(children.region.tolist()) & set(parents.region.tolist())
        touched: dict[int, float] = {}
        for i in range(len(children.region)):
            for e in children.edge[children.ptr[i] : children.ptr[i + 1]]:
                p = int(wiring.edges.parent[e])
                touched[p] = touched.get(p, 0.0) + children.weight[i]
        # The weights of the updates that touch one region sum to at most one: no overshoot, the dual cannot rise.
        assert max(touched.values()) <= 1 + 1e-12
    assert sorted(seen) == sorted(set(wiring.edges.child.tolist()))


def test_parents_are_in_order_before_their_children() -> None:
    domain = DOMAINS["equal sizes"]
    graph = RegionGraph.saturated(domain, random_marginals(domain, 4, 8, seed=6))
    wiring = Wiring.of(graph)
    for name in ("parallel", "sequential"):
        stage_of = {
            int(t): k for k, s in enumerate(schedule(wiring, name)) for t in s.children.region
        }
        for p, c in graph.edge_array.tolist():
            assert stage_of.get(p, -1) < stage_of[c]


def test_a_graph_without_edges_has_no_stages() -> None:
    domain = DOMAINS["equal sizes"]
    wiring = Wiring.of(RegionGraph(domain, [("x0",), ("x1", "x2")], []))
    assert schedule(wiring, "parallel") == ()
    assert schedule(wiring, "sequential") == ()
    with pytest.raises(RegionGraphError, match="schedule must be one of"):
        schedule(wiring, "none")


def test_layouts_agree() -> None:
    domain = DOMAINS["descending"]
    graph = RegionGraph.saturated(domain, random_marginals(domain, 2, 5, seed=7))
    wiring = Wiring.of(graph)
    assert wiring.layout.same_as(Layout(domain, graph.regions))
    assert wiring.tables.length == graph.cells
