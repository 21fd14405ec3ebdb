"""Functions of tables as the simplest query, and what an adapter says where its tool is missing."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from consilience.adapters import mbi, opendp
from consilience.adapters.functions import simplest
from consilience.errors import AdapterError, MeasurementError

W = np.array([0.5, 2.0, 1.0, 0.0, 3.0, 1.0])
CASES = {
    "table": (lambda t: t.reshape(-1), np.eye(6), True),
    "times two": (lambda t: 2.0 * t, 2.0 * np.eye(6), True),
    "weights": (lambda t: t.reshape(-1) * W, np.diag(W), False),
    "first": (lambda t: t.reshape(-1)[:4], np.eye(6)[:4], False),
    "last": (lambda t: t.reshape(-1)[2:], np.eye(6)[2:], False),
    "turned": (lambda t: t.reshape(-1)[::-1], np.eye(6)[::-1], False),
    "sums": (lambda t: t.sum(axis=1), np.kron(np.eye(3), np.ones((1, 2))), False),
    "more than cells": (lambda t: np.append(t, t.sum()), np.vstack([np.eye(6), np.ones(6)]), False),
    "single": (lambda t: t.astype(np.float32).reshape(-1), np.eye(6), True),
}


@pytest.mark.parametrize("name", CASES)
def test_the_simplest_query(name: str) -> None:
    function, matrix, whole = CASES[name]
    query, weight = simplest(function, (3, 2), len(matrix))
    assert (query is None) == whole
    x = np.random.default_rng(0).normal(size=6)
    found = x if query is None else query.apply(x)
    np.testing.assert_allclose(weight * found, matrix @ x, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("function", [lambda t: t / t.sum(), lambda t: t**2, lambda t: t + 1])
def test_what_is_not_linear(function) -> None:
    with (
        np.errstate(invalid="ignore"),
        pytest.raises(MeasurementError, match="a query must be linear"),
    ):
        simplest(function, (3, 2), 6)


def test_without_the_tool(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "mbi", None)
    with pytest.raises(AdapterError, match=r"needs mbi.*pip install 'consilience\[adapters\]'"):
        mbi.library()
    with pytest.raises(AdapterError, match="must be estimated by estimator= of this adapter"):
        opendp.std(object(), "a")
