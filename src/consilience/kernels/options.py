"""Compiler settings shared by every kernel, and the compiler's word that it is at work."""

from __future__ import annotations

from typing import Any

from numba.core import event

from consilience.kernels.compiling import tell

# Sums may be re-ordered so that they vectorise; the order is fixed at compile time, so results stay the same bit for bit.
# Division by zero follows IEEE instead of raising, because a check per division keeps loops scalar.
# A kernel that another one calls becomes part of it: numba optimises a copy for every caller, and which copy a call found would
# depend on what was loaded first, so that a process that compiles and one that reads the cache would differ in a last bit.
LOOP: dict[str, Any] = {
    "cache": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
    "nogil": True,
    "forceinline": True,
}


class _Compiler(event.Listener):
    """Passes on when a kernel begins to be compiled and when it is done."""

    def on_start(self, event: Any) -> None:
        tell(_name(event), True)

    def on_end(self, event: Any) -> None:
        tell(_name(event), False)


def _name(happened: Any) -> str:
    function = happened.data["dispatcher"].py_func
    return f"{function.__module__}.{function.__qualname__}"


event.register("numba:compile", _Compiler())
