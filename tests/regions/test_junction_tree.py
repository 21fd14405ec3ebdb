"""JunctionTree: covers its cliques, has the running intersection property, knows its size before it is built."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.domain import Domain
from consilience.errors import DomainError
from consilience.regions import JunctionTree, junction_tree

CASES = {
    "chain": ["ab", "bc", "cd", "de"],
    "loop": ["ab", "bc", "cd", "de", "ea"],
    "nested": ["abc", "ab", "c"],
    "disconnected": ["ab", "cd"],
    "star": ["ab", "ac", "ad", "ae"],
    "everything": ["abcde"],
    "nothing": [],
}
D = Domain({"a": 2, "b": 3, "c": 4, "d": 5, "e": 6})


def check(tree: JunctionTree, cliques) -> None:
    sets = [set(c) for c in tree.cliques]
    # Covers, with no clique inside another.
    for clique in cliques:
        assert any(set(clique) <= s for s in sets)
    assert set().union(*sets) == set(tree.domain.attributes)
    assert not any(
        a < b or (a == b and i != j) for i, a in enumerate(sets) for j, b in enumerate(sets)
    )
    # A tree.
    assert len(tree.edges) == len(sets) - 1
    near = {i: set() for i in range(len(sets))}
    for (i, j), separator in zip(tree.edges, tree.separators, strict=True):
        near[i].add(j)
        near[j].add(i)
        assert set(separator) == sets[i] & sets[j]
        assert separator == tree.domain.clique(separator)
    # Running intersection: the cliques that hold an attribute are connected among themselves.
    for attribute in tree.domain:
        holders = {i for i, s in enumerate(sets) if attribute in s}
        reached, queue = set(), [min(holders)]
        while queue:
            i = queue.pop()
            reached.add(i)
            queue += [j for j in near[i] & holders if j not in reached]
        assert reached == holders
    assert tree.cells == sum(tree.domain.size(c) for c in tree.cliques)
    assert tree.domain.size(tree.largest) == max(tree.domain.size(c) for c in tree.cliques)


@pytest.mark.parametrize("case", CASES)
def test_it_is_a_junction_tree(case: str) -> None:
    cliques = [tuple(c) for c in CASES[case]]
    check(JunctionTree.of(D, cliques), cliques)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 5), min_size=2, max_size=12),
    data=st.data(),
)
def test_any_cliques(sizes: list[int], data: st.DataObject) -> None:
    domain = Domain({f"x{i}": n for i, n in enumerate(sizes)})
    one = st.sets(st.sampled_from(domain.attributes), min_size=1, max_size=4)
    cliques = [tuple(c) for c in data.draw(st.lists(one, max_size=10))]
    check(JunctionTree.of(domain, cliques), cliques)


def test_a_tree_needs_no_fill_and_a_loop_one_chord() -> None:
    assert JunctionTree.of(D, [tuple(c) for c in CASES["chain"]]).cliques == (
        ("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"),
    )  # fmt: skip
    loop = JunctionTree.of(D, [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")])
    assert sorted(len(c) for c in loop.cliques) == [1, 3, 3]
    # The cheaper chord: b-d (3 * 5) would give 2*3*5 + 3*4*5 = 90, a-c gives 2*3*4 + 2*4*5 = 64.
    assert set(loop.cliques) == {("a", "b", "c"), ("a", "c", "d"), ("e",)}


def test_the_size_is_an_integer_of_any_length() -> None:
    names = [f"x{i}" for i in range(1100)]
    domain = Domain(dict.fromkeys(names, 2))
    tree = JunctionTree.of(domain, [names])
    assert tree.cells == 2**1100
    assert isinstance(tree.cells, int)
    assert tree.largest == tuple(names)


def test_the_cheaper_rule_alone_above_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(junction_tree, "MIN_FILL_ATTRIBUTES", 3)
    cliques = [tuple(c) for c in CASES["loop"]]
    check(JunctionTree.of(D, cliques), cliques)


def test_unknown_attributes_are_named() -> None:
    with pytest.raises(DomainError, match="got 'z'"):
        JunctionTree.of(D, [("a", "z")])


def test_how_it_prints() -> None:
    tree = JunctionTree.of(D, [("a", "b"), ("b", "c")])
    assert repr(tree).startswith("JunctionTree(4 cliques, 29 cells, largest ")


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(2, 5), min_size=2, max_size=8),
    st.lists(st.sets(st.integers(0, 7), min_size=1, max_size=3), max_size=8),
)
def test_a_rooting_lists_every_clique_after_its_parent(
    sizes: list[int], picks: list[set[int]]
) -> None:
    domain = Domain({f"x{i}": n for i, n in enumerate(sizes)})
    cliques = [[f"x{i % len(sizes)}" for i in pick] for pick in picks]
    tree = JunctionTree.of(domain, cliques)
    rooted = tree.rooted
    assert sorted(rooted.order) == list(range(len(tree.cliques)))
    assert tree.cliques[rooted.root] == tree.largest
    place = {c: k for k, c in enumerate(rooted.order)}
    depth = {rooted.root: 0}
    for c in rooted.below:
        p = rooted.up[c]
        assert place[p] < place[c]
        assert c in rooted.children[p]
        assert set(rooted.separator[c]) == set(tree.cliques[c]) & set(tree.cliques[p])
        depth[c] = depth[p] + 1
    levels = [set(rooted.order[a:b]) for a, b in zip(rooted.level, rooted.level[1:], strict=False)]
    assert levels == [{c for c in depth if depth[c] == l} for l in range(max(depth.values()) + 1)]
    for clique in cliques:
        home = tree.home(domain.clique(clique))
        holding = [domain.size(c) for c in tree.cliques if set(clique) <= set(c)]
        assert domain.size(tree.cliques[home]) == min(holding)
