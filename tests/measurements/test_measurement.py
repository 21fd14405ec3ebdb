"""Measurements: any order of attributes means the same, and bad input says what is wrong."""

from itertools import permutations

import numpy as np
import pytest

from consilience import errors
from consilience.domain import Domain
from consilience.measurements import Dense, Identity, Kronecker, Measurement, Prefix, Ranges

DOMAIN = Domain({"a": 2, "b": 3, "c": 4})
TABLE = np.random.default_rng(5).normal(size=(2, 3, 4)) * 100
ABC = "abc"


@pytest.mark.parametrize("order", list(permutations(ABC)))
@pytest.mark.parametrize("flat", [False, True])
def test_any_order_of_attributes_is_the_canonical_one(order: tuple[str, ...], flat: bool) -> None:
    given = TABLE.transpose([ABC.index(a) for a in order])
    bound = Measurement(order, given.ravel() if flat else given, stddev=2).bind(DOMAIN)
    assert bound.clique == ("a", "b", "c")
    assert bound.is_identity
    np.testing.assert_array_equal(bound.values, TABLE.ravel())


@pytest.mark.parametrize("order", list(permutations(ABC)))
def test_a_query_reads_its_columns_in_the_given_order(order: tuple[str, ...]) -> None:
    sizes = DOMAIN.shape_of(order)
    matrix = np.random.default_rng(6).normal(size=(5, 24))
    given = TABLE.transpose([ABC.index(a) for a in order])
    for query in (Dense(matrix), Kronecker([Prefix(n) for n in sizes])):
        answers = query.apply(given.ravel())
        bound = Measurement(order, answers, stddev=1, query=query).bind(DOMAIN)
        np.testing.assert_allclose(bound.query.apply(TABLE.ravel()), answers, atol=1e-9)


def test_an_identity_query_is_the_table_itself() -> None:
    given = TABLE.transpose(2, 0, 1)
    bound = Measurement(("c", "a", "b"), given, stddev=1, query=Identity(24)).bind(DOMAIN)
    assert bound.is_identity
    np.testing.assert_array_equal(bound.values, TABLE.ravel())


def test_one_attribute_and_none() -> None:
    assert Measurement("b", [1, 2, 3], stddev=1).bind(DOMAIN).clique == ("b",)
    total = Measurement((), [30], stddev=1).bind(DOMAIN)
    assert total.clique == ()
    assert total.values.tolist() == [30.0]
    assert Measurement((), 30, stddev=1).bind(DOMAIN).values.tolist() == [30.0]


def test_values_are_an_own_read_only_copy() -> None:
    values = np.array([1.0, 2.0, 3.0])
    m = Measurement("b", values, stddev=1)
    values[0] = 9.0
    assert m.values[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        m.values[0] = 2.0


def test_laplace_scale_is_stddev_over_root_two() -> None:
    m = Measurement("b", [1, 2, 3], stddev=3 * np.sqrt(2), noise="laplace")
    assert m.scale == pytest.approx(3)
    assert m.bind(DOMAIN).scale == pytest.approx(3)
    noise = np.random.default_rng(0).laplace(scale=m.scale, size=200_000)
    assert noise.std() == pytest.approx(m.stddev, rel=0.02)


def test_repr_is_for_a_person() -> None:
    m = Measurement("b", [1, 2], stddev=1.5, query=Ranges(3, [(0, 2), (0, 3)]))
    assert repr(m) == (
        "Measurement(('b',), 2 values, stddev=1.5, noise='gaussian', "
        "query=Ranges(2 ranges over 3 cells))"
    )


def test_stddev_can_not_be_left_out() -> None:
    with pytest.raises(TypeError, match="required keyword-only argument: 'stddev'"):
        Measurement("b", [1, 2, 3])  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        Measurement("b", [1, 2, 3], 1.0)  # type: ignore[misc]


BAD = {
    "nan": ({"values": [1, np.nan, 2]}, r"values of \('b',\) must be finite, got nan at \(1,\)"),
    "infinite": ({"values": [1, 2, -np.inf]}, r"must be finite, got -inf at \(2,\)"),
    "text": ({"values": ["1", "2", "3"]}, "must be real numbers, got type <U1"),
    "complex": ({"values": [1j, 2, 3]}, "must be real numbers, got type complex128"),
    "stddev zero": (
        {"stddev": 0},
        "stddev must be positive and finite, got 0.0; give the standard",
    ),
    "stddev negative": ({"stddev": -1.0}, "stddev must be positive and finite, got -1.0"),
    "stddev nan": ({"stddev": np.nan}, "stddev must be positive and finite, got nan"),
    "stddev infinite": ({"stddev": np.inf}, "stddev must be positive and finite, got inf"),
    "stddev none": ({"stddev": None}, "stddev must be a positive number, got None"),
    "stddev text": ({"stddev": "1"}, "stddev must be a positive number, got '1'"),
    "noise": ({"noise": "cauchy"}, "noise must be 'gaussian' or 'laplace', got 'cauchy'"),
    "twice": ({"attributes": ("b", "b")}, r"attributes of a measurement must be distinct"),
    "rows": ({"query": np.ones((2, 3))}, r"must have shape \(2,\), one per row, got \(3,\)"),
    "query type": ({"query": "prefix"}, "a query must be a Query"),
}


@pytest.mark.parametrize("change, words", BAD.values(), ids=BAD.keys())
def test_bad_measurements(change: dict, words: str) -> None:
    given = {
        "attributes": "b",
        "values": [1, 2, 3],
        "stddev": 1.0,
        "noise": "gaussian",
        "query": None,
    }
    given.update(change)
    with pytest.raises(errors.MeasurementError, match=words):
        Measurement(given.pop("attributes"), given.pop("values"), **given)


SHAPES = {
    "transposed": (
        ("a", "b"),
        np.ones((3, 2)),
        r"\('a', 'b'\) must have shape \(2, 3\) or be flat",
    ),
    "too few": (("b",), np.ones(2), r"flat with 3 entries, got \(2,\)"),
    "wrong rank": (("a", "b"), np.ones((1, 6)), r"got \(1, 6\)"),
}


@pytest.mark.parametrize("attributes, values, words", SHAPES.values(), ids=SHAPES.keys())
def test_wrong_shape(attributes: tuple[str, ...], values: np.ndarray, words: str) -> None:
    with pytest.raises(errors.MeasurementError, match=words):
        Measurement(attributes, values, stddev=1).bind(DOMAIN)


def test_clique_not_in_the_domain() -> None:
    words = r"clique of a measurement must be in the domain, got \('a', 'z'\) with unknown .* 'z'"
    with pytest.raises(errors.DomainError, match=words):
        Measurement(("a", "z"), np.ones((2, 2)), stddev=1).bind(DOMAIN)


def test_query_with_the_wrong_number_of_columns() -> None:
    with pytest.raises(
        errors.MeasurementError, match=r"one column per cell .*\(3\), got 4 columns"
    ):
        Measurement("b", np.ones(4), stddev=1, query=Prefix(4)).bind(DOMAIN)


def test_kronecker_factors_in_the_wrong_order() -> None:
    query = Kronecker([Identity(3), Prefix(2)])
    m = Measurement(("a", "b"), np.ones(6), stddev=1, query=query)
    with pytest.raises(errors.MeasurementError, match=r"match the sizes \(2, 3\).*got \(3, 2\)"):
        m.bind(DOMAIN)
    assert Measurement(("b", "a"), np.ones(6), stddev=1, query=query).bind(DOMAIN).query.rows == 6
    grouped = Kronecker([np.ones((1, 6)), Prefix(4)])
    assert Measurement(tuple(ABC), np.ones(4), stddev=1, query=grouped).bind(DOMAIN).query.rows == 4
