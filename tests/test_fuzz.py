"""Whatever is given to public functions and commands: an answer without NaN, or a ConsilienceError; nothing else."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import consilience as cs
from cli.conftest import people, run
from consilience.data.schema_file import parse_schema
from consilience.errors import ConsilienceError
from consilience.mechanisms import AIM, HDMM, MWEM, Gaussian, Laplace, ResidualPlanner
from consilience.privacy import Epsilon, Rho, Scale, SeededNoise, Sigma

DOMAIN = cs.Domain({"a": 2, "b": 3, "c": 1})
NUMBERS = st.one_of(
    st.sampled_from(
        [
            0,
            1,
            -1,
            2.5,
            1e300,
            -1e300,
            5e-324,
            1e-300,
            float("nan"),
            float("inf"),
            True,
            None,
            "1",
            2**70,
        ]
    ),
    st.floats(),
    st.integers(),
)
NAMES = st.sampled_from(["a", "b", "c", "z", "", "a,b", 3, None, ("a",), "\x00", "ä"])
CLIQUES = st.one_of(NAMES, st.lists(NAMES, max_size=4), st.tuples(NAMES, NAMES), st.just(object()))
VALUES = st.one_of(
    NUMBERS,
    st.lists(NUMBERS, max_size=7),
    st.sampled_from(
        [
            np.ones(2),
            np.ones((2, 3)),
            np.full(3, 1e200),
            np.array([np.nan, 1.0]),
            np.array(["x", "y"]),
        ]
    ),
)
_KEPT: list[Any] = []


def model() -> Any:
    if not _KEPT:
        _KEPT.append(
            cs.reconstruct(DOMAIN, [cs.Measurement(("a", "b"), np.full((2, 3), 9.0), stddev=1)])
        )
    return _KEPT[0]


def numbers_in(found: Any) -> np.ndarray:
    """Every number of an answer."""
    if isinstance(found, np.ndarray):
        return found.reshape(-1) if found.dtype.kind in "fiu" else np.zeros(0)
    if isinstance(found, list | tuple):
        return np.concatenate([np.zeros(0), *(numbers_in(f) for f in found)])
    return np.array([found]) if isinstance(found, float | int) else np.zeros(0)


def tried(call: Callable[[], Any]) -> None:
    """No exception but ours, and no NaN."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = call()
        except ConsilienceError as error:
            found = None if str(error) and "\n" not in str(error) else np.nan  # one line
    assert not np.isnan(numbers_in(found).astype(float)).any()


FUZZ = settings(
    max_examples=250, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


@FUZZ
@given(CLIQUES, VALUES, NUMBERS, NUMBERS)
def test_measurements_and_their_fit(clique: Any, values: Any, stddev: Any, total: Any) -> None:
    def call() -> Any:
        made = cs.Measurement(clique, values, stddev=stddev)
        return cs.reconstruct(DOMAIN, [made], total).marginal(("b", "a"))

    tried(call)


@FUZZ
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "ab", "b", "bc", "abc"]),
            st.floats(-1e6, 1e6),
            st.floats(1e-9, 1e9),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_any_numbers_of_any_tables(made: list[tuple[str, float, float]]) -> None:
    def call() -> Any:
        tables = [
            cs.Measurement(tuple(w), np.full(DOMAIN.shape_of(tuple(w)), v), stddev=s)
            for w, v, s in made
        ]
        found = cs.reconstruct(DOMAIN, tables)
        return [found.marginal(("a", "b")), found.marginal("c"), found.total]

    tried(call)


@FUZZ
@given(CLIQUES, st.sampled_from(["auto", "local", "x", 3, None]))
def test_questions(asked: Any, method: Any) -> None:
    tried(lambda: model().marginal(asked, method))
    tried(lambda: model().marginals(asked, method))
    tried(lambda: model().in_model(asked))
    tried(lambda: model().trust(asked))


@FUZZ
@given(
    st.dictionaries(
        NAMES.filter(lambda n: n is not None),
        st.one_of(NUMBERS, st.lists(NUMBERS, max_size=3)),
        max_size=3,
    )
)
def test_conditions(where: dict[Any, Any]) -> None:
    tried(lambda: model().count(where))


@FUZZ
@given(
    CLIQUES,
    st.one_of(
        st.none(),
        st.lists(CLIQUES, max_size=3),
        NUMBERS,
        st.dictionaries(st.sampled_from(["a", ("a", "b")]), NUMBERS),
    ),
)
def test_domains_and_workloads(names: Any, cliques: Any) -> None:
    tried(lambda: DOMAIN.clique(names))
    tried(lambda: cs.Workload(DOMAIN, cliques))
    tried(lambda: cs.Domain({names: 2} if isinstance(names, str) else names))


@FUZZ
@given(
    NUMBERS,
    NUMBERS,
    NUMBERS,
    st.sampled_from(["replace-one", "add-remove", None, 3]),
    st.sampled_from([None, "pure", "zcdp", "gaussian", "x"]),
    st.sampled_from([None, "id", "", 3]),
    NUMBERS,
)
def test_budgets(
    epsilon: Any, delta: Any, rho: Any, neighbours: Any, accounting: Any, unit: Any, rows: Any
) -> None:
    def call() -> Any:
        budget = cs.Budget(
            epsilon=epsilon,
            delta=delta,
            rho=rho,
            neighbours=neighbours,
            accounting=accounting,
            unit=unit,
            rows_per_unit=rows,
        )
        assert cs.Budget.from_record(budget.to_record()) == budget
        return float(budget.capacity.value)

    tried(call)
    for kind in (Sigma, Scale, Epsilon, Rho):
        tried(lambda kind=kind: float(kind(epsilon).value))


MECHANISMS = [Gaussian, Laplace, ResidualPlanner, HDMM, lambda w: MWEM(w, rounds=1), AIM]


@settings(FUZZ, max_examples=60)
@given(
    st.sampled_from(MECHANISMS),
    st.lists(st.sampled_from([("a",), ("a", "b"), ("c",), ("b", "c")]), min_size=1, max_size=3),
    st.sampled_from([1e-30, 1e-3, 1.0, 1e3]),
    st.sampled_from([None, 1e-6]),
    st.sampled_from(["replace-one", "add-remove"]),
    st.integers(0, 3),
)
def test_mechanisms(
    make: Any, cliques: Any, epsilon: float, delta: Any, neighbours: str, rows: int
) -> None:
    def call() -> Any:
        budget = cs.Budget(epsilon=epsilon, delta=delta, neighbours=neighbours)
        ready = make(cs.Workload(DOMAIN, cliques)).calibrate(budget)
        data = cs.Dataset(np.zeros((rows, 3), int), DOMAIN)
        return ready(data, noise=SeededNoise(seed=1)).model.marginal(("a", "b"))

    tried(call)


@FUZZ
@given(VALUES, NUMBERS, NUMBERS)
def test_noise(counts: Any, width: Any, epsilon: Any) -> None:
    noise = SeededNoise(seed=1)
    tried(lambda: noise.discrete_gaussian(counts, Sigma(width)).values)
    tried(lambda: noise.discrete_laplace(counts, Scale(width)).values)
    tried(lambda: noise.select(counts, 1, Epsilon(epsilon)))  # type: ignore[arg-type]


@FUZZ
@given(
    st.recursive(
        st.one_of(NUMBERS, st.text(max_size=5)),
        lambda x: (
            st.lists(x, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["type", "labels", "min", "max", "bins", "edges", "missing", "outside"]
                ),
                x,
                max_size=4,
            )
        ),
        max_leaves=6,
    ),
    st.sampled_from(
        ["columns", "unit", "draft", "name", "ignore", "impossible", "hierarchies", "x"]
    ),
)
def test_schemas(value: Any, key: str) -> None:
    import json

    text = (
        json.dumps(value, default=str)
        .replace("NaN", "nan")
        .replace("Infinity", "inf")
        .replace(": ", " = ")
        .replace("null", '""')
    )
    tried(lambda: len(parse_schema(f'{key} = {text}\n[columns.sex]\ntype = "boolean"\n')))


WORDS = [
    ["release", "people.csv"], ["plan", "people.csv"], ["schema", "people.csv"], ["schema", "nothing.csv"],
    ["answer", "."], ["sample", "."], ["report", "people.csv"], ["budget", "people.csv"], ["resume", "."],
    ["reconstruct", "people.csv"], ["compare", "people.csv"],
]  # fmt: skip
MORE = shlex.split(
    "--schema people.toml people.csv --epsilon 1 nan -1 1e999 --delta 1e-6 --workload 2 sex,age 9 x --out out . --neighbours "
    "replace-one --rows --stddev 20 0 --seed --mechanism mwem -o rounds=0 rounds=x --json"
)


@pytest.mark.slow
@settings(FUZZ, max_examples=150)
@given(st.sampled_from(WORDS), st.lists(st.sampled_from(MORE), max_size=9))
def test_commands(
    tmp_path_factory: pytest.TempPathFactory, words: list[str], more: list[str]
) -> None:
    """Exit code 0 or 2 and no traceback, whatever the words."""
    here = tmp_path_factory.mktemp("fuzz")
    (here / "people.csv").write_text(people(40), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        done = run(*words, *more, "--quiet")
    assert done.exit_code in (0, 2), done.output
    assert "Traceback" not in done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)


def test_the_list_of_raw_exceptions_that_were_found(tmp_path: Path) -> None:
    """Each line was once an exception that was not ours."""
    for call in (
        lambda: Sigma(1e-300),
        lambda: cs.Budget(epsilon=5e-324, delta=1e-6, neighbours="replace-one"),
        lambda: SeededNoise(seed=1).select(np.array([2**64 - 1], np.uint64), 1, Epsilon(1)),  # type: ignore[arg-type]
        lambda: cs.Workload(DOMAIN, 3),  # type: ignore[arg-type]
        lambda: cs.Measurement(3.5, [1, 2], stddev=1),  # type: ignore[arg-type]
        lambda: model().marginal(3),
        lambda: cs.reconstruct(DOMAIN, [cs.Measurement("a", [1e300, 6], stddev=1)]),
        lambda: HDMM(cs.Workload(DOMAIN, [("c",)])).calibrate(
            cs.Budget(rho=1, neighbours="replace-one")
        ),
    ):
        with pytest.raises(ConsilienceError):
            call()
