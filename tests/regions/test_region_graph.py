"""RegionGraph: the paper's example, builders, minimal edges, refusals, the local polytope."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claims.judges import constraints, joint, marginals, random_vector
from consilience.domain import CliqueVector, Domain
from consilience.errors import DomainError, RegionGraphError
from consilience.regions import Kind, RegionGraph
from consilience.solvers.convex_gbp import convex_gbp

D = Domain({"A": 2, "B": 3, "C": 2, "D": 3, "E": 2})
FIGURE_1 = [tuple(c) for c in ("ABC", "AD", "BCD", "DE")]


def names(cliques) -> set[str]:
    return {"".join(c) for c in cliques}


def edge_names(graph: RegionGraph) -> set[str]:
    return {f"{''.join(p)}>{''.join(c)}" for p, c in graph.edges}


# -- builders -----------------------------------------------------------------------------------------


def test_the_papers_figure_1() -> None:
    saturated = RegionGraph.saturated(D, FIGURE_1)
    assert names(saturated.regions) == {"ABC", "AD", "BCD", "DE", "BC", "A", "D"}
    assert edge_names(saturated) == {
        "ABC>BC", "BCD>BC", "ABC>A", "AD>A", "AD>D", "BCD>D", "DE>D",
    }  # fmt: skip
    factor = RegionGraph.factor_graph(D, FIGURE_1)
    assert names(factor.regions) == {"ABC", "AD", "BCD", "DE", "A", "B", "C", "D", "E"}
    assert edge_names(factor) == {
        "ABC>A", "ABC>B", "ABC>C", "AD>A", "AD>D", "BCD>B", "BCD>C", "BCD>D", "DE>D", "DE>E",
    }  # fmt: skip
    tree = RegionGraph.junction_tree(D, FIGURE_1)
    assert names(tree.regions) == {"ABCD", "DE", "D"}
    assert edge_names(tree) == {"ABCD>D", "DE>D"}
    assert names(saturated.regions[i] for i in saturated.roots) == {"ABC", "AD", "BCD", "DE"}
    assert saturated.cells == 12 + 6 + 18 + 6 + 6 + 2 + 3
    assert repr(saturated) == (
        "RegionGraph(saturated: 7 regions, 4 without parents, 7 edges, 53 cells)"
    )


def test_extra_cliques_over_saturate() -> None:
    graph = RegionGraph.saturated(D, [("A", "B"), ("B", "C")], extra=[("A", "C")])
    assert names(graph.regions) == {"AB", "BC", "AC", "A", "B", "C"}


def test_cliques_in_any_order_and_twice_are_one() -> None:
    one = RegionGraph.saturated(D, [("B", "A"), ("C", "B"), ("A", "B")])
    other = RegionGraph.saturated(D, [("A", "B"), ("B", "C")])
    assert one.regions == other.regions
    assert one.edges == other.edges


def test_a_factor_graph_keeps_a_measured_singleton_once() -> None:
    graph = RegionGraph.factor_graph(D, [("A",), ("A", "B")])
    assert names(graph.regions) == {"A", "B", "AB"}
    assert edge_names(graph) == {"AB>A", "AB>B"}


def test_separators_that_are_empty_tie_nothing() -> None:
    graph = RegionGraph.junction_tree(D, [("A", "B"), ("C", "D")])
    assert names(graph.regions) == {"AB", "CD", "E"}
    assert not graph.edges


def test_three_hundred_attributes_and_a_six_way_clique() -> None:
    domain = Domain({f"x{i}": 1 + i % 4 for i in range(300)})
    cliques = [tuple(f"x{(7 * i + j) % 300}" for j in range(6)) for i in range(300)]
    graph = RegionGraph.saturated(domain, cliques)
    assert graph.supports(cliques)
    assert len(graph.roots) == 300
    uniform = CliqueVector.uniform(domain, graph.regions)
    assert graph.local_polytope_violation(uniform) < 1e-12


# -- minimal edges ------------------------------------------------------------------------------------


def random_cliques() -> st.SearchStrategy[list[tuple[str, ...]]]:
    one = st.sets(st.sampled_from("ABCDE"), min_size=1, max_size=4)
    return st.lists(one.map(lambda s: tuple(sorted(s))), min_size=2, max_size=7)


@settings(max_examples=60, deadline=None)
@given(cliques=random_cliques())
def test_minimal_edges_keep_the_polytope(cliques) -> None:
    """The constraints of the full Hasse diagram follow from those of the kept edges, and fewer would not do."""
    domain = Domain(dict.fromkeys("ABCDE", 2))
    full = RegionGraph.saturated(domain, cliques, minimal=False)
    small = RegionGraph.saturated(domain, cliques)
    assert small.regions == full.regions
    assert set(small.edges) <= set(full.edges)
    wide = np.column_stack(constraints(full))
    rank = np.linalg.matrix_rank(wide)
    assert np.linalg.matrix_rank(np.column_stack(constraints(small))) == rank
    assert np.linalg.matrix_rank(np.vstack([wide, np.column_stack(constraints(small))])) == rank


def test_minimal_edges_drop_some_and_give_the_same_solution() -> None:
    cliques = [tuple(c) for c in ("ABC", "ABD", "ACD", "BCD", "ABE", "CDE")]
    full = RegionGraph.saturated(D, cliques, minimal=False)
    small = RegionGraph.saturated(D, cliques)
    assert len(small.edges) < len(full.edges)
    theta = random_vector(D, full.regions, np.random.default_rng(0), 2.0)
    np.testing.assert_allclose(
        convex_gbp(full, theta, tolerance=1e-13).values,
        convex_gbp(small, theta, tolerance=1e-13).values,
        atol=1e-10,
    )


# -- refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_counting_numbers_must_be_positive(bad: float) -> None:
    words = r"counting numbers must be positive and finite \(zero only for .*\), got .* for \('A', 'B'\)"
    with pytest.raises(RegionGraphError, match=words):
        RegionGraph.saturated(D, [("A", "B"), ("B", "C")], counting_numbers={("A", "B"): bad})


def test_zero_is_for_regions_with_parents_and_no_children() -> None:
    cliques = [("A", "B", "C"), ("B", "C", "D"), ("B", "E")]
    graph = RegionGraph.saturated(D, cliques, counting_numbers={("B",): 0.0})
    assert graph.counting_numbers[graph.regions.index(("B",))] == 0
    with pytest.raises(RegionGraphError, match=r"got 0.0 for \('B', 'C'\)"):
        graph.with_counting_numbers({("B", "C"): 0.0})
    with pytest.raises(RegionGraphError, match="positive and finite"):
        graph.with_counting_numbers(0.0)


def test_counting_numbers_by_name_in_any_order() -> None:
    graph = RegionGraph.saturated(D, [("A", "B"), ("B", "C")], counting_numbers={("B", "A"): 3.0})
    assert dict(zip(graph.regions, graph.counting_numbers.tolist(), strict=True)) == {
        ("A", "B"): 3.0,
        ("B", "C"): 1.0,
        ("B",): 1.0,
    }
    with pytest.raises(RegionGraphError, match=r"must be given for regions, got \('A', 'C'\)"):
        graph.with_counting_numbers({("A", "C"): 1.0})


EDGES = {
    "not a subset": ([("A", "B"), ("B", "C")], [(("A", "B"), ("B", "C"))], r"strict subset of it"),
    "upwards": ([("A", "B"), ("A",)], [(("A",), ("A", "B"))], r"got \('A',\) -> \('A', 'B'\)"),
    "to itself": ([("A", "B")], [(("A", "B"), ("B", "A"))], r"strict subset of it"),
    "unknown end": ([("A", "B")], [(("A", "B"), ("A",))], r"must be regions, got \('A',\); add it"),
    "unknown position": (
        [("A", "B"), ("A",)],
        np.array([[0, 2]]),
        "by position 0 to 1, got 0 to 2",
    ),
    "negative position": ([("A", "B"), ("A",)], np.array([[0, -1]]), "by position 0 to 1"),
    "empty region": ([("A", "B"), ()], [], "at least one attribute, got the empty one"),
}


@pytest.mark.parametrize("case", EDGES)
def test_bad_graphs_are_named(case: str) -> None:
    regions, edges, words = EDGES[case]
    with pytest.raises(RegionGraphError, match=words):
        RegionGraph(D, regions, edges)


def test_unknown_attributes_and_nothing_at_all() -> None:
    with pytest.raises(DomainError, match="got 'Z'"):
        RegionGraph.saturated(D, [("A", "Z")])
    for build in (RegionGraph.saturated, RegionGraph.factor_graph):
        for nothing in ([], [()]):
            with pytest.raises(RegionGraphError, match="at least one non-empty clique, got none"):
                build(D, nothing)


def test_an_edge_given_twice_is_one() -> None:
    regions = [("A", "B"), ("B", "C"), ("B",)]
    listed = RegionGraph(D, regions, [(("A", "B"), ("B",)), (("B", "A"), ("B",))])
    assert len(listed.edges) == 1
    by_position = RegionGraph(D, regions, np.array([[0, 2], [0, 2]]))
    assert len(by_position.edges) == 1


def test_a_graph_is_immutable() -> None:
    graph = RegionGraph.saturated(D, FIGURE_1)
    with pytest.raises(ValueError, match="read-only"):
        graph.counting_numbers[0] = 2.0
    with pytest.raises(ValueError, match="read-only"):
        graph.edge_array[0, 0] = 1
    with pytest.raises(AttributeError):
        graph.kind = "other"  # pyright: ignore


# -- reading ------------------------------------------------------------------------------------------


def test_supports() -> None:
    graph = RegionGraph.saturated(D, FIGURE_1)
    assert graph.supports([("C", "A"), ("D",), ("E", "D"), ()])
    assert not graph.supports([("A",), ("A", "E")])
    assert graph.first_unsupported([("A",), ("E", "A"), ("C", "E")]) == ("A", "E")
    tree = RegionGraph.junction_tree(D, FIGURE_1)
    assert tree.supports([("A", "C", "D")])
    with pytest.raises(DomainError):
        graph.supports([("A", "Z")])


def test_the_violation_is_the_largest_of_three_things() -> None:
    graph = RegionGraph.saturated(D, FIGURE_1)
    p, _ = joint(random_vector(D, FIGURE_1, np.random.default_rng(1)))
    tau = marginals(D, p, graph.regions)
    assert graph.local_polytope_violation(tau) < 1e-14
    moved = tau.copy()
    moved["D",] = np.roll(tau["D",], 1)
    gap = np.abs(np.roll(tau["D",], 1) - tau["D",]).sum()
    assert graph.local_polytope_violation(moved) == pytest.approx(gap)
    loose = RegionGraph(D, [("A",), ("B",)], [])
    heavy = CliqueVector.from_tables(D, {("A",): [0.5, 0.75], ("B",): [1, 0, 0]})
    assert loose.local_polytope_violation(heavy) == pytest.approx(0.25)
    negative = CliqueVector.from_tables(D, {("A",): [0.5, 0.5], ("B",): [1.4, -0.3, -0.1]})
    assert loose.local_polytope_violation(negative) == pytest.approx(0.4)


def test_a_nan_is_not_a_point_of_the_polytope() -> None:
    graph = RegionGraph.saturated(D, FIGURE_1)
    tau = CliqueVector.uniform(D, graph.regions)
    tau.values[3] = np.nan
    assert not graph.local_polytope_violation(tau) <= 1e300


def test_tau_must_have_the_graphs_regions() -> None:
    graph = RegionGraph.saturated(D, FIGURE_1)
    words = r"one table per region of the graph \(7\), got 4 other cliques"
    with pytest.raises(RegionGraphError, match=words):
        graph.local_polytope_violation(CliqueVector.uniform(D, FIGURE_1))


@pytest.mark.parametrize(
    ("build", "kind"),
    [
        (RegionGraph.saturated, Kind.SATURATED),
        (RegionGraph.factor_graph, Kind.FACTOR_GRAPH),
        (RegionGraph.junction_tree, Kind.JUNCTION_TREE),
    ],
)
def test_a_graph_knows_how_it_was_built(build, kind: Kind) -> None:
    graph = build(Domain({"a": 2, "b": 3}), [("a", "b")])
    assert graph.kind is kind
    assert graph.with_counting_numbers(2.0).kind is kind
    again = RegionGraph(graph.domain, graph.regions, graph.edges, kind=str(kind))
    assert again.kind is kind


def test_files_of_the_first_version_called_a_factor_graph_factor() -> None:
    assert RegionGraph(Domain({"a": 2}), [("a",)], [], kind="factor").kind is Kind.FACTOR_GRAPH
    with pytest.raises(RegionGraphError, match="must be one of saturated, factor graph"):
        RegionGraph(Domain({"a": 2}), [("a",)], [], kind="tree")
