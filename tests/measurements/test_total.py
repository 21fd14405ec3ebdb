"""The estimate of the total against explicit generalised least squares, and against simulation."""

import numpy as np
import pytest

from consilience.domain import Domain
from consilience.errors import MeasurementError
from consilience.measurements import Kronecker, Measurement, Prefix, Ranges, estimate_total

DOMAIN = Domain({"a": 2, "b": 3, "c": 2})
RNG = np.random.default_rng(8)
P = RNG.dirichlet(np.ones(12)).reshape(2, 3, 2) * 500
TABLES = {"a": P.sum((1, 2)), "b": P.sum((0, 2)), "ab": P.sum(2), "bc": P.sum(0), "abc": P}


def marginal_matrix(attributes: str) -> np.ndarray:
    """The 0/1 matrix that takes the flat full table to a marginal."""
    dropped = tuple(i for i, a in enumerate("abc", start=1) if a not in attributes)
    full = np.eye(12).reshape(12, 2, 3, 2)
    return full.sum(axis=dropped).reshape(12, -1).T if dropped else np.eye(12)


def least_squares_total(measurements: list[Measurement]) -> tuple[float, float]:
    """1^T x and its standard deviation for the weighted least squares x of the full table."""
    rows, values = [], []
    for m in measurements:
        bound = m.bind(DOMAIN)
        reach = marginal_matrix("".join(bound.clique)) if bound.clique else np.ones((1, 12))
        rows.append(bound.query.apply(reach) / m.stddev)
        values.append(bound.values / m.stddev)
    matrix, y = np.concatenate(rows), np.concatenate(values)
    weights = np.linalg.pinv(matrix.T, rcond=1e-12) @ np.ones(12)
    np.testing.assert_allclose(matrix.T @ weights, 1.0, atol=1e-9)
    return float(weights @ y), float(np.linalg.norm(weights))


def noisy(attributes: str, stddev: float, query=None, noise="gaussian") -> Measurement:
    exact = TABLES[attributes].ravel()
    exact = exact if query is None else query.apply(exact)
    values = exact + stddev * RNG.normal(size=exact.size)
    return Measurement(tuple(attributes), values, stddev=stddev, query=query, noise=noise)


THIRDS = Ranges(3, [(0, 2), (1, 3), (2, 3)])
CASES = {
    "one table": [noisy("ab", 3.0)],
    "nested and overlapping": [
        noisy("a", 3.0),
        noisy("ab", 1.0),
        noisy("bc", 2.0),
        noisy("abc", 5.0),
    ],
    "repeated": [noisy("b", 3.0), noisy("b", 1.0), noisy("a", 2.0)],
    "the total itself": [noisy("b", 3.0), Measurement((), 512.0, stddev=2.0)],
    "prefix": [noisy("b", 2.0, Prefix(3))],
    "ranges": [noisy("b", 2.0, THIRDS)],
    "several queries of one clique": [
        noisy("b", 2.0, Prefix(3)),
        noisy("b", 1.0),
        noisy("b", 4.0, THIRDS),
    ],
    "only together": [
        noisy("b", 2.0, Ranges(3, [(0, 2)])),
        noisy("b", 1.0, Ranges(3, [(2, 3), (1, 2)])),
    ],
    "product": [noisy("ab", 2.0, Kronecker([Prefix(2), THIRDS]))],
    "laplace": [noisy("a", 2.0, noise="laplace"), noisy("ab", 1.0)],
}


@pytest.mark.parametrize("measurements", CASES.values(), ids=CASES.keys())
def test_equals_explicit_least_squares(measurements: list[Measurement]) -> None:
    value, stddev = least_squares_total(measurements)
    total = estimate_total(DOMAIN, measurements)
    assert total.value == pytest.approx(value, rel=1e-9)
    assert total.stddev == pytest.approx(stddev, rel=1e-9)


def test_one_table_has_variance_n_sigma_squared() -> None:
    total = estimate_total(DOMAIN, [Measurement("b", [10, 20, 30], stddev=2.0)])
    assert (total.value, total.cliques) == (60.0, 1)
    assert total.stddev == pytest.approx(2 * np.sqrt(3))


def test_unbiased_with_the_stddev_it_states() -> None:
    """Queries on overlapping cliques, where the estimate is not the best one but must be honest."""
    rng = np.random.default_rng(21)
    plan = [("a", 3.0, None), ("b", 4.0, Prefix(3)), ("bc", 2.0, None), ("b", 2.0, THIRDS)]
    estimates, stated = [], 0.0
    for _ in range(2000):
        measurements = []
        for attributes, stddev, query in plan:
            exact = TABLES[attributes].ravel()
            exact = exact if query is None else query.apply(exact)
            values = exact + stddev * rng.normal(size=exact.size)
            measurements.append(Measurement(tuple(attributes), values, stddev=stddev, query=query))
        total = estimate_total(DOMAIN, measurements)
        estimates.append(total.value)
        stated = total.stddev
    z = (np.mean(estimates) - 500) / (stated / np.sqrt(2000))
    assert abs(z) < 4
    assert np.std(estimates) == pytest.approx(stated, rel=0.08)


def test_what_does_not_determine_the_total_is_passed_over() -> None:
    silent = noisy("b", 1.0, Ranges(3, [(0, 2), (1, 2)]))
    told = noisy("a", 2.0)
    assert estimate_total(DOMAIN, [silent, told]) == estimate_total(DOMAIN, [told])


def test_never_below_one() -> None:
    total = estimate_total(DOMAIN, [Measurement("b", [-10, -20, 3], stddev=2.0)])
    assert total.value == 1.0
    assert total.stddev == pytest.approx(2 * np.sqrt(3))


def test_no_default_when_nothing_determines_it() -> None:
    words = (
        r"some measurement must determine the total, none of those on 1 cliques does; give total="
    )
    with pytest.raises(MeasurementError, match=words):
        estimate_total(DOMAIN, [noisy("b", 1.0, Ranges(3, [(0, 2), (1, 2)]))])
    with pytest.raises(MeasurementError, match=words):
        estimate_total(
            DOMAIN, [noisy("b", 1.0, Ranges(3, [(0, 2)])), noisy("b", 1.0, Ranges(3, [(0, 1)]))]
        )


def test_no_measurements() -> None:
    with pytest.raises(MeasurementError, match="at least one measurement must be given, got none"):
        estimate_total(DOMAIN, [])
    with pytest.raises(MeasurementError, match="got a single one; wrap it in a list"):
        estimate_total(DOMAIN, noisy("a", 1.0))  # type: ignore[arg-type]
    with pytest.raises(MeasurementError, match="must be a list of Measurement, got int"):
        estimate_total(DOMAIN, [3])  # type: ignore[list-item]


def test_too_large_to_solve_together_uses_what_each_tells_alone() -> None:
    """Two sets of prefix sums of 5,000 cells: ill-conditioned, yet each holds the total."""
    n = 5_000
    first = Measurement("x", np.full(n, 60.0), stddev=1.0, query=Prefix(n))
    second = Measurement("x", np.full(n, 80.0), stddev=3.0, query=Prefix(n))
    total = estimate_total(Domain({"x": n}), [first, second])
    assert total.value == pytest.approx((60 + 80 / 9) / (1 + 1 / 9))
    assert total.stddev == pytest.approx(1 / np.sqrt(1 + 1 / 9))
