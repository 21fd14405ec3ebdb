"""Who wants to know that a kernel is being compiled: the first run of each kind of job takes seconds for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Listener = Callable[[str, bool], None]
"""Told the kernel's name, and True when it begins, False when it is done; from the thread that compiles."""

_listeners: list[Listener] = []


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """While this lasts, the listener is told of every kernel that is compiled; those it calls are compiled on the way."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def tell(name: str, begins: bool) -> None:
    for listener in tuple(_listeners):
        listener(name, begins)
