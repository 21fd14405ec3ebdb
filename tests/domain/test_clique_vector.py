"""CliqueVector and Layout: one buffer, views into it, arithmetic against plain arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.domain import CliqueVector, Domain, Layout, closure
from consilience.errors import DomainError

D = Domain({"a": 2, "b": 3, "c": 4})
CLIQUES = [("a", "b"), ("b", "c"), ("a",), ()]


def random_vector(seed: int, cliques=CLIQUES) -> CliqueVector:
    layout = Layout(D, cliques)
    return CliqueVector(layout, np.random.default_rng(seed).normal(size=layout.cells))


# -- layout ---------------------------------------------------------------------------------------


def test_tables_follow_each_other_in_the_order_given() -> None:
    layout = Layout(D, [("b", "a"), ("c", "b"), "a", ()])
    assert layout.cliques == (("a", "b"), ("b", "c"), ("a",), ())
    assert layout.shapes == ((2, 3), (3, 4), (2,), ())
    assert layout.offsets.tolist() == [0, 6, 18, 20, 21]
    assert layout.cells == 21
    assert layout.index[("b", "c")] == 1


def test_a_clique_named_twice_has_one_table() -> None:
    assert Layout(D, [("a", "b"), ("b", "a")]).cliques == (("a", "b"),)


def test_no_cliques_no_cells() -> None:
    assert Layout(D, []).cells == 0


def test_same_as_compares_domain_and_order() -> None:
    assert Layout(D, [tuple("ab"), "c"]).same_as(Layout(D, [tuple("ba"), "c"]))
    assert not Layout(D, [tuple("ab"), "c"]).same_as(Layout(D, ["c", tuple("ab")]))
    assert not Layout(D, ["a"]).same_as(Layout(Domain({"a": 3}), ["a"]))


def test_a_table_that_fits_no_memory_is_refused() -> None:
    wide = Domain({f"x{i}": 2 for i in range(62)})
    with pytest.raises(DomainError, match="must fit in memory, got one of shape"):
        Layout(wide, [wide.attributes])


# -- views ----------------------------------------------------------------------------------------


def test_a_table_is_a_view_in_any_spelling() -> None:
    vector = CliqueVector.zeros(D, CLIQUES)
    vector[("b", "a")][1, 2] = 7.0
    assert vector[("a", "b")][1, 2] == 7.0
    assert vector.values[5] == 7.0
    assert np.shares_memory(vector["a"], vector.values)
    assert vector[()].shape == ()
    assert {c: t.shape for c, t in vector.items()} == dict(
        zip(vector.cliques, vector.layout.shapes, strict=True)
    )


def test_writing_a_table_in_the_order_of_its_key() -> None:
    table = np.arange(6.0).reshape(3, 2)  # b by a
    vector = CliqueVector.from_tables(D, {("b", "a"): table, "c": [1, 2, 3, 4]})
    np.testing.assert_array_equal(vector[("a", "b")], table.T)
    np.testing.assert_array_equal(vector["c"], [1, 2, 3, 4])


def test_a_flat_table_is_accepted_in_the_order_of_its_key() -> None:
    vector = CliqueVector.zeros(D, [tuple("ab")])
    vector[("b", "a")] = np.arange(6.0)
    np.testing.assert_array_equal(vector[tuple("ab")], np.arange(6.0).reshape(3, 2).T)


def test_a_vector_over_a_buffer_shares_it_and_a_copy_does_not() -> None:
    buffer = np.zeros(2)
    vector = CliqueVector(Layout(D, ["a"]), buffer)
    copied = vector.copy()
    buffer[0] = 1.0
    assert vector["a"][0] == 1.0
    assert copied["a"][0] == 0.0


def test_reading() -> None:
    vector = random_vector(0)
    assert len(vector) == 4
    assert list(vector) == CLIQUES
    assert ("b", "a") in vector
    assert ("a", "c") not in vector
    assert vector.domain is D
    assert repr(vector) == "CliqueVector(4 cliques, 21 cells)"


def test_uniform_tables_sum_to_one() -> None:
    for clique, table in CliqueVector.uniform(D, CLIQUES).items():
        np.testing.assert_allclose(table, 1 / D.size(clique))


# -- arithmetic -----------------------------------------------------------------------------------

x, y = random_vector(1), random_vector(2)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (x + y, x.values + y.values),
        (x + 2, x.values + 2),
        (2 + x, x.values + 2),
        (x - y, x.values - y.values),
        (x - 2, x.values - 2),
        (2 - x, 2 - x.values),
        (x * y, x.values * y.values),
        (3 * x, 3 * x.values),
        (x * np.float64(3), 3 * x.values),
        (x / 4, x.values / 4),
        (-x, -x.values),
        (x.exp(), np.exp(x.values)),
    ],
)
def test_arithmetic_is_cell_by_cell(result: CliqueVector, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(result.values, expected)
    assert result.layout is x.layout


def test_dot() -> None:
    assert x.dot(y) == pytest.approx(sum(float((x[c] * y[c]).sum()) for c in CLIQUES))


# -- project and expand ---------------------------------------------------------------------------


def test_project_sums_the_smallest_clique_that_holds_the_attributes() -> None:
    vector = random_vector(3)
    np.testing.assert_allclose(vector.project("c"), vector[("b", "c")].sum(axis=0))
    np.testing.assert_allclose(vector.project("b"), vector[("a", "b")].sum(axis=0))  # 6 < 12 cells
    np.testing.assert_array_equal(vector.project("a"), vector["a"])
    assert vector.covering(("b",)) == ("a", "b")
    np.testing.assert_allclose(
        CliqueVector.from_tables(D, {("a", "b"): np.ones((2, 3))}).project(()), 6.0
    )


def joint_marginals(joint: np.ndarray, cliques) -> CliqueVector:
    """The marginals of an explicit joint table, by NumPy sums."""
    tables = {c: joint.sum(axis=tuple(i for i, a in enumerate(D) if a not in c)) for c in cliques}
    return CliqueVector.from_tables(D, tables)


@given(st.integers(0, 2**32), st.lists(st.frozensets(st.sampled_from("abc")), max_size=5))
def test_expand_keeps_the_inner_product_with_every_distribution(seed: int, family) -> None:
    larger = [("a", "b", "c"), ("a", "b"), ("b", "c")]
    theta = random_vector(seed, family)
    joint = np.random.default_rng(seed).dirichlet(np.ones(24)).reshape(2, 3, 4)
    expanded = theta.expand(larger)
    assert expanded.cliques == tuple(larger)
    assert theta.dot(joint_marginals(joint, theta.cliques)) == pytest.approx(
        expanded.dot(joint_marginals(joint, larger))
    )


@given(st.integers(0, 2**32))
def test_project_agrees_with_the_joint(seed: int) -> None:
    joint = np.random.default_rng(seed).dirichlet(np.ones(24)).reshape(2, 3, 4)
    mu = joint_marginals(joint, [("a", "c"), ("a", "b"), ("b", "c")])
    for clique in closure(D, mu.cliques):
        np.testing.assert_allclose(mu.project(clique), joint_marginals(joint, [clique])[clique])


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: CliqueVector(Layout(D, ["a"]), np.zeros(3)), r"must have 2 values, got shape \(3"),
        (lambda: CliqueVector(Layout(D, ["a"]), np.zeros((1, 2))), r"got shape \(1, 2\)"),
        (lambda: x[("a", "c")], r"one of the vector's 4 cliques, got \('a', 'c'\)"),
        (lambda: x["z"], "must be in the domain, got 'z'"),
        (
            lambda: x.__setitem__(tuple("ab"), np.zeros((3, 2))),
            r"must have shape \(2, 3\), got \(3, 2\)",
        ),
        (lambda: x.__setitem__("a", np.zeros(3)), r"must have shape \(2,\), got \(3,\)"),
        (
            lambda: x.__setitem__(("a", "a"), np.zeros((2, 2))),
            r"must be distinct, got \('a', 'a'\); name each axis once",
        ),
        (lambda: x.__setitem__(5.5, 0.0), "an attribute name or a collection of names, got 5.5"),
        (lambda: x + CliqueVector.zeros(D, ["a"]), "over the same cliques in the same order"),
        (lambda: x.dot(CliqueVector.zeros(D, ["a"])), "over the same cliques in the same order"),
        (lambda: x.project(tuple("ac")), r"must contain \('a', 'c'\), none of 4 does"),
        (lambda: x.expand([("a", "b")]), r"must contain \('b', 'c'\), none of 1 does"),
        (lambda: Layout(D, [("a", "z")]), "must be in the domain, got 'z'"),
    ],
)
def test_misuse_is_refused(act, words: str) -> None:
    with pytest.raises(DomainError, match=words):
        act()
