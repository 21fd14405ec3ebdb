"""Workloads, closures and maximal cliques, against definitions by brute force."""

import pickle
from itertools import combinations
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.domain import Domain, Workload, all_marginals, closure, maximal, random_marginals
from consilience.errors import DomainError

D = Domain({"a": 2, "b": 3, "c": 4, "d": 5})
families = st.lists(st.frozensets(st.sampled_from("abcd")), max_size=8)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_all_marginals_are_all_subsets_of_that_order(k: int) -> None:
    workload = all_marginals(D, k)
    assert workload.cliques == tuple(combinations("abcd", k))
    assert set(workload.values()) == {1.0}
    assert workload.cells == sum(D.size(c) for c in combinations("abcd", k))


def test_repr_says_how_many_and_how_large() -> None:
    assert repr(all_marginals(D, 2)) == "Workload(6 2-way marginals, 71 cells)"
    assert "1-way/2-way" in repr(Workload(D, ["a", tuple("bc")]))


def test_a_list_names_each_clique_once_in_any_spelling() -> None:
    workload = Workload(D, [("b", "a"), ("c",), ("a", "b")])
    assert dict(workload) == {("a", "b"): 1.0, ("c",): 1.0}
    assert workload[("b", "a")] == 1.0
    assert len(workload) == 2


def test_a_mapping_that_spells_a_clique_twice_adds_its_weights() -> None:
    workload = Workload(D, {("b", "a"): 2, ("c",): 1, ("a", "b"): 0.5})
    assert dict(workload) == {("a", "b"): 2.5, ("c",): 1.0}


def test_equal_workloads_have_equal_hashes() -> None:
    one, other = Workload(D, {"a": 1.0, "b": 2.0}), Workload(D, {"b": 2.0, "a": 1.0})
    assert one == other
    assert hash(one) == hash(other)
    assert {one, other} == {one}
    assert one != Workload(D, {"a": 1.0, "b": 3.0})


def test_a_workload_can_not_be_changed_but_copied() -> None:
    workload = Workload(D, ["a"])
    with pytest.raises(TypeError):
        workload.weights[("b",)] = 1.0  # type: ignore[index]
    assert pickle.loads(pickle.dumps(workload)) == workload


def test_weights_are_kept() -> None:
    assert dict(Workload(D, {("b", "a"): 0.5, ("c",): 3})) == {("a", "b"): 0.5, ("c",): 3.0}


@given(st.integers(1, 4), st.integers(0, 2**32), st.data())
def test_random_marginals_are_distinct_of_one_order_and_repeatable(k, seed, data) -> None:
    count = data.draw(st.integers(1, comb(4, k)))
    workload = random_marginals(D, k, count, seed)
    assert len(workload) == count
    assert set(workload) <= set(all_marginals(D, k))
    assert random_marginals(D, k, count, seed).cliques == workload.cliques


def test_seeds_differ() -> None:
    wide = Domain({f"x{i}": 2 for i in range(30)})
    first, second = (random_marginals(wide, 3, 50, seed).cliques for seed in (1, 2))
    assert first != second


def test_random_marginals_of_a_family_too_large_to_list() -> None:
    wide = Domain({f"x{i}": 2 for i in range(400)})  # 10,586,800 triples
    workload = random_marginals(wide, 3, 500, 0)
    assert len(workload) == 500
    assert all(c == wide.clique(c) and len(c) == 3 for c in workload)
    assert random_marginals(wide, 3, 500, 0).cliques == workload.cliques


@given(families)
def test_maximal_cliques_are_those_in_no_other(family) -> None:
    sets = {frozenset(c) for c in family}
    expected = {c for c in sets if not any(c < other for other in sets)}
    kept = maximal(D, family)
    assert {frozenset(c) for c in kept} == expected
    assert len(kept) == len(expected)
    order = [frozenset(c) for c in family]
    assert list(kept) == sorted(kept, key=lambda c: order.index(frozenset(c)))


@given(families)
def test_closure_holds_every_subset_in_order(family) -> None:
    expected = {s for c in family for k in range(len(c) + 1) for s in combinations(sorted(c), k)}
    closed = closure(D, family)
    assert set(closed) == expected
    assert list(closed) == sorted(expected, key=lambda c: (len(c), c))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Workload(D, []), "must hold at least one clique, got none"),
        (lambda: Workload(D, {}), "must hold at least one clique, got none"),
        (lambda: Workload(D, [("a", "z")]), "must be in the domain, got 'z'"),
        (lambda: Workload(D, {("a",): 0.0}), r"a positive, finite number, got 0.0 for \('a',\)"),
        (lambda: Workload(D, {("a",): -1}), "a positive, finite number, got -1"),
        (lambda: Workload(D, {("a",): float("nan")}), "a positive, finite number, got nan"),
        (lambda: Workload(D, {("a",): float("inf")}), "a positive, finite number, got inf"),
        (lambda: all_marginals(D, 0), r"from 1 to the number of attributes \(4\), got 0"),
        (lambda: all_marginals(D, 5), r"from 1 to the number of attributes \(4\), got 5"),
        (lambda: random_marginals(D, 5, 1, 0), r"the number of attributes \(4\), got 5"),
        (lambda: random_marginals(D, 2, 7, 0), "from 1 to 6 for 2-way marginals, got 7"),
        (lambda: random_marginals(D, 2, 0, 0), "from 1 to 6 for 2-way marginals, got 0"),
        (lambda: Workload(D, {("a",): "much"}), "a positive, finite number, got 'much' for"),
        (lambda: Workload(D, {("a",): True}), "a positive, finite number, got True for"),
        (lambda: Workload(D, [5.5]), "a clique must be an attribute name or a collection"),  # type: ignore[list-item]
        (lambda: all_marginals(D, 1.5), "k must be a whole number from 1 to .* got 1.5"),
        (lambda: all_marginals(D, "2"), "k must be a whole number from 1 to .* got '2'"),
        (lambda: random_marginals(D, 2, 2.5, 0), "count must be a whole number .* got 2.5"),
        (lambda: random_marginals(D, 2, 2, -1), "seed must be a whole number .* got -1"),
        (lambda: random_marginals(D, 2, 2, None), "seed must be a whole number .* got None"),
        (lambda: maximal(D, ["z"]), "must be in the domain, got 'z'"),
        (lambda: closure(D, [("z",)]), "must be in the domain, got 'z'"),
    ],
)
def test_bad_workloads_are_refused(make, words: str) -> None:
    with pytest.raises(DomainError, match=words):
        make()


def test_a_workload_asked_for_another_clique_names_it() -> None:
    with pytest.raises(KeyError, match="'a', 'c'"):
        Workload(D, [tuple("ab")])[("c", "a")]
