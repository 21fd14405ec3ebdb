"""PriView against judges of its own: the sequential textbook pass, dense least squares, brute-force norm-cut and norm-sub."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import consilience as cs
from consilience.baselines import Answers, norm_cut, norm_sub, priview
from consilience.baselines.priview import Views
from consilience.errors import ConsilienceError, DomainError, MeasurementError

DOMAIN = cs.Domain({"a": 2, "b": 5, "c": 3, "d": 4})
FAMILIES = [
    (("a", "b"), ("b", "c"), ("c", "d")),
    (("a", "b", "c"), ("b", "c", "d"), ("a", "d"), ("c", "d")),
    (("a", "b", "c"), ("b", "c"), ("b",)),
    (("a", "b"), ("c", "d")),
    (("b", "c", "d"),),
]


def measured(cliques, seed=0, total=100.0, stddev=3.0):
    rng = np.random.default_rng(seed)
    joint = rng.dirichlet(np.full(int(np.prod(DOMAIN.shape)), 0.3)).reshape(DOMAIN.shape) * total
    out = []
    for i, c in enumerate(cliques):
        axes = tuple(k for k, a in enumerate(DOMAIN.attributes) if a not in c)
        width = stddev * (1 + i % 3)
        exact = joint.sum(axis=axes)
        out.append(
            cs.Measurement(c, exact + width * rng.standard_normal(exact.shape), stddev=width)
        )
    return out


def down(table, clique, target):
    return table.sum(axis=tuple(i for i, a in enumerate(clique) if a not in target))


def textbook_pass(tables, widths, total):
    """The weighted mean on the empty set, then on each intersection, subsets first; one set at a time."""
    sets = {()}
    for size in range(2, len(tables) + 1):
        for group in combinations(tables, size):
            sets.add(tuple(a for a in group[0] if all(a in c for c in group)))
    for target in sorted(sets, key=len):
        holders = [c for c in tables if set(target) <= set(c)]
        ratio = {c: DOMAIN.size(c) / DOMAIN.size(target) for c in holders}
        weight = {c: 1 / (widths[c] ** 2 * ratio[c]) for c in holders}
        mean = sum(weight[c] * down(tables[c], c, target) for c in holders) / sum(weight.values())
        if not target:
            mean = np.array(total)
        for c in holders:
            gap = (mean - down(tables[c], c, target)) / ratio[c]
            tables[c] = tables[c] + gap.reshape([DOMAIN[a] if a in target else 1 for a in c])
    return tables


@pytest.mark.parametrize("cliques", FAMILIES, ids=str)
def test_one_pass_is_the_textbook_pass(cliques) -> None:
    given = measured(cliques)
    judge = textbook_pass(
        {m.attributes: m.values.copy() for m in given},
        {m.attributes: m.stddev for m in given},
        100.0,
    )
    vector = cs.CliqueVector.from_tables(DOMAIN, {m.attributes: m.values for m in given})
    views = Views(DOMAIN, vector.cliques, np.array([m.stddev**-2 for m in given]))
    values = views.enter(vector)
    views.agree(values, 100.0)
    found = views.leave(values)
    for clique, table in judge.items():
        np.testing.assert_allclose(found[clique], table, atol=1e-10)


@pytest.mark.parametrize("cliques", FAMILIES, ids=str)
def test_one_pass_is_the_least_squares_projection(cliques) -> None:
    """Dense: minimise sum ||x - y||^2 / sigma^2 subject to the same sums on every intersection and the total."""
    given = measured(cliques, seed=3)
    vector = cs.CliqueVector.from_tables(DOMAIN, {m.attributes: m.values for m in given})
    offsets, order = vector.layout.offsets, vector.cliques
    rows, wanted = [], []
    for i, c in enumerate(order):
        row = np.zeros(vector.values.size)
        row[offsets[i] : offsets[i + 1]] = 1
        rows.append(row)
        wanted.append(100.0)
        for j, other in enumerate(order[:i]):
            shared = tuple(a for a in c if a in other)
            for cell in np.ndindex(*DOMAIN.shape_of(shared)):
                row = np.zeros(vector.values.size)
                for sign, k in ((1, i), (-1, j)):
                    at = dict(zip(shared, cell, strict=True))
                    mask = np.zeros(vector.layout.shapes[k])
                    mask[tuple(at.get(a, slice(None)) for a in order[k])] = sign
                    row[offsets[k] : offsets[k + 1]] += mask.reshape(-1)
                rows.append(row)
                wanted.append(0.0)
    a, b = np.array(rows), np.array(wanted)
    variance = np.concatenate([np.full(DOMAIN.size(m.attributes), m.stddev**2) for m in given])
    y = vector.values
    multiplier = np.linalg.lstsq((a * variance) @ a.T, b - a @ y, rcond=None)[0]
    views = Views(DOMAIN, order, np.array([m.stddev**-2 for m in given]))
    values = views.enter(vector)
    views.agree(values, 100.0)
    found = views.leave(values)
    flat = np.concatenate([found[c].reshape(-1) for c in order])
    np.testing.assert_allclose(flat, y + variance * (a.T @ multiplier), atol=1e-8)


TABLES = arrays(
    float, st.tuples(st.integers(1, 4), st.integers(1, 6)), elements=st.floats(-50, 50, width=32)
)


def brute_norm_cut(table):
    out = np.maximum(table, 0).reshape(-1)
    owed = -np.minimum(table, 0).sum()
    while owed > 0 and out.max() > 0:
        i = np.argmin(np.where(out > 0, out, np.inf))
        taken = min(owed, out[i])
        out[i] -= taken
        owed -= taken
    return out.reshape(table.shape)


@settings(max_examples=80, deadline=None)
@given(TABLES)
def test_norm_cut_is_the_brute_force_one(table) -> None:
    np.testing.assert_allclose(norm_cut(table), brute_norm_cut(table), atol=1e-9)


@settings(max_examples=80, deadline=None)
@given(TABLES)
def test_norm_sub_is_the_euclidean_projection(table) -> None:
    """Optimality: x >= 0, the sum kept, and y - x constant where x > 0, not above that where x = 0."""
    x = norm_sub(table)
    assert x.min() >= 0
    if table.sum() <= 0:
        assert not x.any()
        return
    np.testing.assert_allclose(x.sum(), table.sum(), atol=1e-7)
    shift = (table - x)[x > 0]
    if len(shift):
        assert np.ptp(shift) < 1e-7
        assert (table - x)[x == 0].max(initial=-np.inf) <= shift.max() + 1e-7


@pytest.mark.parametrize("how", ["norm-cut", "norm-sub"])
@pytest.mark.parametrize("cliques", FAMILIES, ids=str)
def test_answers_are_non_negative_and_sum_to_the_total(cliques, how) -> None:
    found = priview(DOMAIN, measured(cliques, stddev=5.0), total=100, nonnegativity=how)
    assert isinstance(found, Answers)
    for c in cliques:
        table = found.marginal(c)
        assert table.min() >= 0
        np.testing.assert_allclose(table.sum(), 100, rtol=1e-6)
    np.testing.assert_array_equal(found.marginal(cliques[0][::-1]), found.marginal(cliques[0]).T)
    assert found.violation < 0.2


def test_without_noise_nothing_changes_and_no_round_is_needed() -> None:
    given = measured(FAMILIES[1], stddev=1e-6)
    exact = measured(FAMILIES[1], stddev=1e-12)
    found = priview(
        DOMAIN, [cs.Measurement(m.attributes, np.maximum(m.values, 0), stddev=1.0) for m in exact]
    )
    assert found.rounds <= 1
    for m in given:
        np.testing.assert_allclose(found.marginal(m.attributes), m.values, atol=1e-4)
    assert found.violation < 1e-6


def test_several_measurements_of_one_table_are_weighted() -> None:
    pair = [
        cs.Measurement("a", [10.0, 30.0], stddev=1),
        cs.Measurement("a", [22.0, 18.0], stddev=2),
    ]
    found = priview(DOMAIN, pair, total=40)
    np.testing.assert_allclose(found.marginal("a"), [12.4, 27.6])


def test_progress_and_rounds() -> None:
    seen: list[Any] = []
    found = priview(DOMAIN, measured(FAMILIES[1], stddev=9.0), rounds=3, progress=seen.append)
    assert found.rounds == 3
    assert [step.done for step in seen] == [1, 2, 3]
    assert seen[-1].violation < seen[0].violation


def test_what_it_can_not_do_it_says() -> None:
    given = measured(FAMILIES[0])
    with pytest.raises(MeasurementError, match="whole tables, got a query on"):
        priview(DOMAIN, [*given, cs.Measurement("b", [3.0], stddev=1, query=np.ones((1, 5)))])
    with pytest.raises(
        ConsilienceError, match="nonnegativity must be 'norm-cut' or 'norm-sub', got 'clip'"
    ):
        priview(DOMAIN, given, nonnegativity="clip")  # type: ignore[arg-type]
    with pytest.raises(ConsilienceError, match="rounds must be at least 1, got 0"):
        priview(DOMAIN, given, rounds=0)
    found = priview(DOMAIN, given)
    assert found.in_model(("a", "b"))
    assert not found.in_model(("a", "d"))
    with pytest.raises(DomainError, match="answers measured tables only"):
        found.marginal(("a", "d"))
    with pytest.raises(ConsilienceError, match="must be finite"):
        norm_cut(np.array([np.nan, 1.0]))
