"""A kernel that is called by another one becomes part of it, so that no call can find one of several compiled copies."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import numpy as np
from numba import njit
from numba.core.dispatcher import Dispatcher

import consilience.kernels
from consilience.kernels import cells
from consilience.kernels.options import LOOP
from consilience.kernels.tables import Shapes

COPY = re.compile(r"^define linkonce_odr[^@]*@\"?(\w*consilience7kernels\w*)", re.MULTILINE)


def prox(kernel: Callable[..., Any]) -> Any:
    """What a chain of three kernels says."""
    n = 500
    rng = np.random.default_rng(0)
    v, prior, z = rng.normal(size=n), rng.random(n), np.empty(n)
    one = np.array([n], np.int64)
    shapes = Shapes(np.zeros(1, np.int64), one, np.ones(1, np.int64))
    kernel(0, 1, v, prior, np.array([cells.ENTROPIC], np.int8), np.array([0.3]), z, shapes)
    return z


def compiled(**options: Any) -> tuple[Any, Any]:
    """The chain with every kernel in it compiled here, without a cache: what it says and its code."""

    def anew(function: Any, **others: Any) -> Any:
        made = type(function.py_func)(
            function.py_func.__code__, function.py_func.__globals__ | others
        )
        made.__module__, made.__qualname__ = function.py_func.__module__, function.__name__
        return njit(**LOOP | {"cache": False} | options)(made)

    inner = anew(cells.wright_omega)
    middle = anew(cells._entropic, wright_omega=inner)
    outer = anew(cells.prox_entropic, _entropic=middle)
    found = prox(outer)
    return found, outer.inspect_llvm(outer.signatures[0])


def test_a_chain_of_kernels_is_one_function() -> None:
    found, code = compiled()
    assert COPY.findall(code) == []
    assert np.array_equal(found, prox(cells.prox_entropic))


def test_without_it_a_caller_carries_copies() -> None:
    """What the option is for; if numba ever stops doing this the option can go."""
    _, code = compiled(forceinline=False)
    assert len(COPY.findall(code)) == 2


def test_every_kernel_becomes_part_of_its_callers() -> None:
    modules = [
        import_module(f"consilience.kernels.{m.name}")
        for m in iter_modules(consilience.kernels.__path__)
        if m.name != "__main__"
    ]
    kernels = {k for m in modules for k in vars(m).values() if isinstance(k, Dispatcher)}
    assert len(kernels) > 100
    assert {k.__name__ for k in kernels if not k.targetoptions.get("forceinline")} == set()
