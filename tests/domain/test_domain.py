"""Domain: sizes, cliques, new domains, and the words of every refusal."""

import copy
import pickle
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.domain import Domain
from consilience.errors import ConsilienceError, DomainError

D = Domain({"age": 10, "sex": 2, "income": 5})


def test_reads_like_an_ordered_mapping() -> None:
    assert D.attributes == ("age", "sex", "income")
    assert D.shape == (10, 2, 5)
    assert list(D) == ["age", "sex", "income"]
    assert len(D) == 3
    assert D["sex"] == 2
    assert "sex" in D
    assert "height" not in D
    assert D.position("income") == 2
    assert D.shape_of(("income", "age")) == (5, 10)
    assert D.axes(("sex", "income")) == (1, 2)


def test_pairs_and_mapping_are_the_same_domain() -> None:
    same = Domain([("age", 10), ("sex", 2), ("income", 5)])
    assert same == D
    assert hash(D) == hash(same)


def test_order_and_sizes_are_part_of_equality() -> None:
    assert Domain({"sex": 2, "age": 10, "income": 5}) != D
    assert Domain({"age": 10, "sex": 3, "income": 5}) != D
    assert D != "age"


def test_numpy_sizes_become_python_integers() -> None:
    domain = Domain({"a": np.int64(7), "b": np.uint8(3)})
    assert [type(n) for n in domain.shape] == [int, int]
    assert domain.size() == 21


def test_size_does_not_overflow() -> None:
    wide = Domain({f"a{i}": 2 for i in range(1100)})
    assert wide.size() == 2**1100
    assert "about 10^331 cells" in repr(wide)


@pytest.mark.parametrize(
    ("attributes", "cells"), [(None, 100), ((), 1), (("sex",), 2), (("income", "age", "age"), 50)]
)
def test_size_of_a_marginal(attributes: tuple[str, ...] | None, cells: int) -> None:
    assert D.size(attributes) == cells


def test_repr_is_readable_and_short() -> None:
    assert repr(D) == "Domain(age: 10, sex: 2, income: 5; 3 attributes, 100 cells)"
    long = repr(Domain({f"a{i}": 3 for i in range(40)}))
    assert "..." in long
    assert "a39: 3" in long
    assert len(long) < 200


@pytest.mark.parametrize("order", list(permutations(("age", "sex", "income"))))
def test_a_set_in_any_order_is_one_clique(order: tuple[str, ...]) -> None:
    assert D.clique(order) == ("age", "sex", "income")
    assert D.clique((*order, *order)) == ("age", "sex", "income")


def test_cliques_of_one_name_and_of_none() -> None:
    assert D.clique("sex") == ("sex",)
    assert D.clique(()) == ()
    assert D.clique({"income", "age"}) == ("age", "income")


names = [f"x{i}" for i in range(6)]


@given(st.permutations(names), st.lists(st.sampled_from(names)))
def test_canonical_cliques_are_sorted_distinct_and_stable(
    order: list[str], some: list[str]
) -> None:
    domain = Domain(dict.fromkeys(order, 2))
    clique = domain.clique(some)
    assert set(clique) == set(some)
    assert list(clique) == [a for a in order if a in some]
    assert domain.clique(clique) == clique


def test_sizes_can_not_be_changed() -> None:
    with pytest.raises(TypeError):
        D.sizes["age"] = 11  # type: ignore[index]


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda d: pickle.loads(pickle.dumps(d))]
)
def test_copies_are_equal(again) -> None:
    assert again(D) == D
    assert again(D).clique(("income", "age")) == ("age", "income")


def test_project_keeps_the_order_of_the_domain() -> None:
    assert D.project(("income", "age")) == Domain({"age": 10, "income": 5})
    assert D.project("sex") == Domain({"sex": 2})


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"a": 0}, r"size of attribute 'a' must be at least 1, got 0"),
        ({"a": -3}, r"size of attribute 'a' must be at least 1, got -3"),
        ({"a": 2.5}, r"size of attribute 'a' must be a whole number, got 2.5"),
        ({"a": "2"}, r"size of attribute 'a' must be a whole number, got '2'"),
        ({"a": True}, r"size of attribute 'a' must be a whole number, got True"),
        ({"a": None}, r"must be a whole number, got None"),
        ([("a", 2), ("a", 3)], r"names must be distinct, got 'a' twice"),
        ({"": 2}, r"must be a non-empty string, got ''"),
        ({3.5: 2}, r"must be a non-empty string, got 3.5"),
        ({}, r"must have at least one attribute, got none"),
        (5, r"must be given as a mapping of attribute to size, got 5"),
        (["ab"], r"must list \(attribute, size\) pairs, got 'ab'"),
    ],
)
def test_bad_domains_are_refused(sizes: object, words: str) -> None:
    with pytest.raises(DomainError, match=words):
        Domain(sizes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "ask",
    [
        lambda: D["height"],
        lambda: D.position("height"),
        lambda: D.clique(("age", "height")),
        lambda: D.clique("height"),
        lambda: D.project(["height"]),
        lambda: D.size(["height"]),
        lambda: D.shape_of(("height",)),
        lambda: D.axes(("height",)),
    ],
)
def test_unknown_attributes_are_named(ask) -> None:
    words = "must be in the domain, got 'height'; the domain has 'age', 'sex', 'income'"
    with pytest.raises(DomainError, match=words):
        ask()


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: D.clique(5.5), "an attribute name or a collection of names, got 5.5"),
        (lambda: D.project(None), "an attribute name or a collection of names, got None"),
        (lambda: D.clique([["age"]]), r"must be in the domain, got \['age'\]"),
        (lambda: D[0], "must be in the domain, got 0"),
    ],
)
def test_what_names_no_attributes_is_refused(ask, words: str) -> None:
    with pytest.raises(DomainError, match=words):
        ask()


def test_every_refusal_is_a_value_error() -> None:
    assert issubclass(DomainError, ConsilienceError)
    assert issubclass(ConsilienceError, ValueError)
