"""Measurements as columns: the same as a list of Measurement, bit for bit; the words of every refusal; no loop over cliques."""

import sys
from collections.abc import Callable, Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import consilience as cs
from consilience.errors import DomainError, MeasurementError
from consilience.measurements import Prefix

DOMAIN = cs.Domain({"a": 3, "b": 2, "c": 4, "d": 2, "e": 3})
EQUAL = cs.Domain({f"x{i}": 3 for i in range(6)})


def noisy(domain: cs.Domain, cliques: Iterable[tuple[str, ...]], seed: int = 0) -> list[Any]:
    """[(clique, table)] with negative cells among them."""
    rng = np.random.default_rng(seed)
    return [(c, rng.normal(40.0, 60.0, size=domain.shape_of(c))) for c in cliques]


def padded(domain: cs.Domain, cliques: Iterable[tuple[str, ...]]) -> np.ndarray:
    rows = [[domain.position(a) for a in c] for c in cliques]
    most = max(map(len, rows))
    return np.array([r + [-1] * (most - len(r)) for r in rows])


CASES: dict[str, tuple[cs.Domain, list[tuple[str, ...]], Any]] = {
    "pairs": (DOMAIN, list(combinations("abcde", 2)), 10.0),
    "triples of one size": (EQUAL, list(combinations(EQUAL, 3)), 10.0),
    "one by one noise": (DOMAIN, list(combinations("abcd", 2)), [3.0, 4.0, 5.0, 6.0, 7.0, 8.0]),
    "several orders": (DOMAIN, [("a", "b", "c"), ("c", "d"), ("e",), ("a", "e"), ("b",)], 5.0),
    "measured below": (DOMAIN, [("a", "b", "c"), ("a", "b"), ("b", "c"), ("c",)], 5.0),
    "in another order": (DOMAIN, [("c", "a"), ("e", "b", "d"), ("d", "c")], 5.0),
    "twice": (DOMAIN, [("a", "b"), ("b", "c"), ("b", "a"), ("a", "b")], [4.0, 5.0, 6.0, 7.0]),
    "the total": (DOMAIN, [("a", "b"), (), ("b", "c")], 5.0),
}


@pytest.mark.parametrize("consistency", ["local", "global", "factor"])
@pytest.mark.parametrize("case", CASES)
def test_columns_are_the_list_bit_for_bit(case: str, consistency: str) -> None:
    domain, cliques, stddev = CASES[case]
    tables = noisy(domain, cliques)
    each = np.broadcast_to(stddev, len(cliques))
    listed = [cs.Measurement(c, t, stddev=s) for (c, t), s in zip(tables, each, strict=True)]
    flat = np.concatenate([t.reshape(-1) for _, t in tables])
    fit = cs.LeastSquares(consistency=consistency)
    one = cs.reconstruct(domain, listed, fit=fit)
    for given in (padded(domain, cliques), cliques):
        columns = cs.Measurements(domain, given, flat, stddev=stddev)
        other = cs.reconstruct(domain, columns, fit=fit)
        assert one.total == other.total
        assert one.cliques == other.cliques
        assert one.tau.values.tobytes() == other.tau.values.tobytes()
        assert one.diagnostics.objective == other.diagnostics.objective
        assert str(cs.plan(domain, listed)) == str(cs.plan(domain, columns))
        assert cs.estimate_total(domain, listed) == cs.estimate_total(domain, columns)


FITS = [cs.Shrunk(), cs.NormCut(), cs.PossibleCells(), cs.LeastSquares(solver="prox")]


@pytest.mark.parametrize("fit", FITS, ids=str)
def test_every_estimator_takes_columns(fit: cs.Fit) -> None:
    tables = noisy(DOMAIN, combinations("abcd", 2))
    listed = [cs.Measurement(c, t, stddev=8.0) for c, t in tables]
    vector = cs.CliqueVector.from_tables(DOMAIN, dict(tables))
    columns = cs.Measurements(DOMAIN, vector.cliques, vector, stddev=8.0)
    one, other = (cs.reconstruct(DOMAIN, m, total=500, fit=fit) for m in (listed, columns))
    assert one.tau.values.tobytes() == other.tau.values.tobytes()


def test_laplace_noise_and_comparisons() -> None:
    tables = noisy(DOMAIN, combinations("abc", 2))
    listed = [cs.Measurement(c, t, stddev=8.0, noise="laplace") for c, t in tables]
    flat = [t.reshape(-1) for _, t in tables]
    columns = cs.Measurements(
        DOMAIN, [c for c, _ in tables], np.concatenate(flat), stddev=8.0, noise="laplace"
    )
    fit = cs.LaplaceLikelihood()
    one, other = (cs.reconstruct(DOMAIN, m, total=500, fit=fit) for m in (listed, columns))
    assert one.tau.values.tobytes() == other.tau.values.tobytes()
    rows = [
        cs.compare(DOMAIN, m, total=500, methods=["noisy", "local", "priview"])
        for m in (listed, columns)
    ]
    assert [r.objective for r in rows[0].rows] == [r.objective for r in rows[1].rows]


def test_it_reads_like_a_list_of_measurements() -> None:
    tables = noisy(DOMAIN, [("c", "a"), ("b",)])
    columns = cs.Measurements(
        DOMAIN, padded(DOMAIN, [("c", "a"), ("b",)]), np.concatenate([t.reshape(-1) for _, t in tables]),
        stddev=[2.0, 3.0], noise=["gaussian", "laplace"],
    )  # fmt: skip
    assert len(columns) == 2
    assert [m.clique for m in columns] == [("a", "c"), ("b",)]
    assert [m.stddev for m in columns] == [2.0, 3.0]
    assert [m.noise for m in columns] == ["gaussian", "laplace"]
    np.testing.assert_array_equal(columns[0].values, tables[0][1].T.reshape(-1))
    np.testing.assert_array_equal(columns[-1].values, tables[1][1])
    assert not columns[0].values.flags.writeable
    with pytest.raises(IndexError):
        columns[2]
    again = cs.reconstruct(DOMAIN, list(columns), total=300)
    assert again.tau.values.tobytes() == cs.reconstruct(DOMAIN, columns, total=300).tau.values.tobytes()  # fmt: skip


def test_what_is_read_only_is_kept_and_the_rest_copied() -> None:
    rows, values = np.array([[0, 1]]), np.arange(6.0)
    kept = cs.Measurements(DOMAIN, rows, values, stddev=1.0)
    values[0] = 99.0
    assert kept.values[0] == 0.0
    values.flags.writeable = False
    assert np.shares_memory(cs.Measurements(DOMAIN, rows, values, stddev=1.0).values, values)


def test_a_model_of_columns_goes_through_a_file(tmp_path: Path) -> None:
    rows = np.array(list(combinations(range(6), 3)))
    values = np.random.default_rng(1).normal(20, 10, size=(len(rows), 27))
    columns = cs.Measurements(EQUAL, rows, values, stddev=np.linspace(5, 9, len(rows)))
    model = cs.reconstruct(EQUAL, columns, total=540)
    model.save(tmp_path / "model.npz")
    back = cs.load(tmp_path / "model.npz")
    assert back.tau.values.tobytes() == model.tau.values.tobytes()
    assert back.measurements.cliques == columns.cliques
    for name in ("values", "at", "stddevs", "noises"):
        np.testing.assert_array_equal(getattr(back.measurements, name), getattr(columns, name))
    prefix = cs.Measurement("x0", [10.0, 20.0, 30.0], stddev=2.0, query=Prefix(3))
    asked = cs.reconstruct(EQUAL, [prefix, cs.Measurement("x1", np.ones(3), stddev=1.0)], total=30)
    asked.save(tmp_path / "asked.npz")
    assert list(cs.load(tmp_path / "asked.npz").measurements.queries) == [0]


def columns(rows: Any, values: Any = None, **more: Any) -> cs.Measurements:
    given = np.ones(6) if values is None else values
    return cs.Measurements(DOMAIN, rows, given, **({"stddev": 1.0} | more))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: columns(np.array([[0, 0]])), r"must be distinct, got \[0, 0\] in row 0"),
        (lambda: columns([("a", "a")]), r"must be distinct, got \('a', 'a'\)"),
        (lambda: columns(np.array([[0, 5]])), "numbers from 0 to 4 .* got 5 in row 0"),
        (lambda: columns(np.array([[0, -2]])), "numbers from 0 to 4 .* got -2 in row 0"),
        (lambda: columns(np.array([[-1, 0]])), r"-1 at its end, got \[-1, 0\] in row 0"),
        (lambda: columns(np.array([0, 1])), r"a row for each, got type int64 and shape \(2,\)"),
        (lambda: columns(np.array([[0.0, 1.0]])), "integer array .* got type float64"),
        (lambda: columns(np.array([[0, 1]]), np.ones(7)), "must be 6 numbers, .* got 7"),
        (lambda: columns(np.array([[0, 1]]), ["x"] * 6), "must be real numbers"),
        (lambda: columns(np.array([[0], [1]]), [1, 2, 3, np.nan, 5]), r"got nan for \('b',\), measurement 1"),
        (lambda: columns(np.array([[0, 1]]), stddev=0), r"positive and finite, got 0.0 for \('a', 'b'\), measurement 0"),
        (lambda: columns(np.array([[0, 1]]), stddev=[1, 2]), "one for each of the 1 cliques"),
        (lambda: columns(np.array([[0, 1]]), noise="cauchy"), "'gaussian' or 'laplace', got 'cauchy'"),
        (lambda: columns(np.array([[0, 1]]), noise=["laplace"] * 2), "one for each of the 1 cliques, got 2"),
        (lambda: columns(np.array([[0, 1]]), cs.CliqueVector.zeros(DOMAIN, ["a"])), "over the same 1 cliques"),
        (lambda: cs.reconstruct(EQUAL, columns(np.array([[0, 1]]))), "must be over the domain"),
        (lambda: cs.reconstruct(DOMAIN, columns(np.zeros((0, 2), int), [])), "at least one measurement"),
    ],
)  # fmt: skip
def test_refusals_in_one_line(make: Callable[[], Any], words: str) -> None:
    with pytest.raises((MeasurementError, DomainError), match=words) as raised:
        make()
    assert "\n" not in str(raised.value)


def calls_of(work: Callable[[], Any]) -> int:
    """Python functions entered and C functions called, counted."""
    count = 0

    def tick(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(tick)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_no_step_goes_through_the_cliques_one_by_one(tmp_path: Path) -> None:
    """Seven times the triples take hardly more calls: from columns to a saved model and its answers."""

    def whole(attributes: int) -> Callable[[], None]:
        domain = cs.Domain({f"x{i:02d}": 2 for i in range(attributes)})
        rows = np.array(list(combinations(range(attributes), 3)))
        values = np.random.default_rng(0).normal(100.0, 20.0, size=(len(rows), 8))
        fit = cs.LeastSquares(consistency="local", iterations=5)

        def work() -> None:
            measured = cs.Measurements(domain, rows, values, stddev=20.0)
            cs.plan(domain, measured, fit=fit)
            model = cs.reconstruct(domain, measured, fit=fit)
            model.marginal(("x02", "x00", "x01"))
            model.save(tmp_path / "model.npz")
            cs.load(tmp_path / "model.npz").marginal(("x00", "x03"))

        return work

    whole(19)()  # kernels and imports
    few, many = calls_of(whole(19)), calls_of(whole(37))  # 969 and 7,770 triples
    assert many < 1.5 * few
    assert many < 8000 + few
