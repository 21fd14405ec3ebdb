"""Losses that a user writes: a Python function of the tables, or one that JAX differentiates."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from consilience.domain import Buffer, Clique, Cliques, CliqueVector, Domain, Layout
from consilience.errors import ConsilienceError, LossError
from consilience.measurements.loss import BoundLoss, Loss, Route, check_domain, routes

Gradient = CliqueVector | Mapping[Any, Any]
LossFunction = Callable[[CliqueVector], tuple[float, Gradient]]


@dataclass(frozen=True, eq=False, repr=False)
class CustomLoss(Loss):
    """L(tau) = fn(marginals of tau on `cliques`), for a convex `fn` written by the user.

    `fn` gets a read-only CliqueVector of distributions over `cliques` and returns (value,
    gradient), the gradient a CliqueVector over the same cliques or a mapping from each of them to
    its table. `smoothness` may state S of `BoundLoss.smoothness` for vectors over these cliques.
    What is not finite or of the wrong shape is a LossError.
    """

    fn: LossFunction
    domain: Domain
    cliques: Cliques
    _layout: Layout
    _smoothness: float | None

    def __init__(
        self,
        fn: LossFunction,
        domain: Domain,
        cliques: Iterable[Iterable[str]],
        *,
        smoothness: float | None = None,
    ) -> None:
        if not isinstance(domain, Domain):
            raise LossError(
                f"a custom loss must be given (fn, domain, cliques), got {type(domain).__name__}"
            )
        if smoothness is not None and not (isfinite(smoothness) and smoothness > 0):
            raise LossError(
                f"smoothness must be positive and finite, got {smoothness}; leave it out if unknown"
            )
        layout = Layout(domain, cliques)
        if not layout.cliques:
            raise LossError("a custom loss must read at least one clique, got none")
        object.__setattr__(self, "fn", fn)
        object.__setattr__(self, "domain", domain)
        object.__setattr__(self, "cliques", layout.cliques)
        object.__setattr__(self, "_layout", layout)
        object.__setattr__(self, "_smoothness", smoothness)

    @property
    def smoothness(self) -> float | None:
        return self._smoothness

    def bind(self, layout: Layout) -> BoundLoss:
        check_domain(self, layout)
        found = routes(layout, self._layout.cliques)
        return _BoundCustomLoss(
            self.fn, self._layout, layout, tuple(found), self._routed_smoothness(found)
        )

    def _routed_smoothness(self, found: list[Route]) -> float | None:
        """Tables that share a home add up: the bound grows by the largest number that do."""
        if self._smoothness is None:
            return None
        return self._smoothness * max(Counter(route.home for route in found).values())

    def __repr__(self) -> str:
        return f"CustomLoss({len(self.cliques)} cliques)"


@dataclass(frozen=True, eq=False)
class _BoundCustomLoss(BoundLoss):
    fn: LossFunction
    inner: Layout
    layout: Layout
    found: tuple[Route, ...]
    smoothness: float | None

    def value_and_grad(self, values: Buffer) -> tuple[float, Buffer]:
        tables = np.concatenate([route.gather(values) for route in self.found])
        tables.flags.writeable = False
        given = self.fn(CliqueVector(self.inner, tables))
        if not (isinstance(given, tuple) and len(given) == 2):
            raise LossError(
                f"a custom loss must return a pair (value, gradient), got {type(given).__name__}"
            )
        value = _checked_value(given[0])
        slope = _checked_gradient(self.inner, given[1])
        gradient = np.zeros(self.layout.cells)
        for i, route in enumerate(self.found):
            route.scatter(gradient, slope[self.inner.offsets[i] : self.inner.offsets[i + 1]])
        return value, gradient


def _checked_value(given: Any) -> float:
    array = np.asarray(given)
    if array.size != 1 or array.dtype.kind not in "iuf":
        raise LossError(f"the value of a custom loss must be one real number, got {given!r}")
    value = float(array.reshape(()))
    if not isfinite(value):
        raise LossError(
            f"the value of a custom loss must be finite, got {value}; check divisions and "
            "logarithms at zero"
        )
    return value


def _checked_gradient(layout: Layout, given: Any) -> Buffer:
    gradient = given if isinstance(given, CliqueVector) else _from_mapping(layout, given)
    if not gradient.layout.same_as(layout):
        raise LossError(
            f"the gradient of a custom loss must be over its {len(layout.cliques)} cliques, got "
            f"{gradient.cliques}"
        )
    bad = np.flatnonzero(~np.isfinite(gradient.values))
    if bad.size:
        clique = layout.cliques[int(np.searchsorted(layout.offsets, bad[0], side="right")) - 1]
        raise LossError(
            f"the gradient of a custom loss must be finite, got {gradient.values[bad[0]]} in the "
            f"table of {clique}; check divisions and logarithms at zero"
        )
    return gradient.values


def _from_mapping(layout: Layout, given: Any) -> CliqueVector:
    if not isinstance(given, Mapping):
        raise LossError(
            "the gradient of a custom loss must be a CliqueVector or a mapping from clique to "
            "table, "
            f"got {type(given).__name__}"
        )
    gradient = CliqueVector(layout)
    try:
        for clique, table in given.items():
            gradient[clique] = table
        present = {layout.domain.clique(c) for c in given}
    except (ConsilienceError, TypeError) as error:
        raise LossError(f"the gradient of a custom loss must fit its cliques: {error}") from error
    absent = [c for c in layout.cliques if c not in present]
    if absent:
        raise LossError(
            f"the gradient of a custom loss must have a table for each clique, none for {absent[0]}"
        )
    return gradient


def jax_loss(
    fn: Callable[[dict[Clique, Any]], Any],
    domain: Domain,
    cliques: Iterable[Iterable[str]],
    *,
    smoothness: float | None = None,
) -> CustomLoss:
    """L(tau) = fn({clique: table}) for a convex function that JAX can differentiate, in float64.

    The keys are canonical cliques (domain order). Double precision holds for this function only:
    JAX's global setting is left as it is, so arrays that `fn` closes over keep the type they were
    made with.
    """
    try:
        jax = importlib.import_module("jax")
    except ImportError as error:
        raise LossError(
            "jax_loss needs JAX, which is not installed; run `pip install jax`, or use "
            "CustomLoss with your own gradient"
        ) from error
    layout = Layout(domain, cliques)
    compiled = jax.jit(jax.value_and_grad(fn))

    def shapes() -> dict[Clique, Any]:
        pairs = zip(layout.cliques, layout.shapes, strict=True)
        return {c: jax.ShapeDtypeStruct(shape, np.float64) for c, shape in pairs}

    with jax.enable_x64(True):
        result = jax.eval_shape(fn, shapes())
    if getattr(result, "shape", None) != ():
        raise LossError(f"a JAX loss must return one number, got {result}")

    def value_and_grad(tau: CliqueVector) -> tuple[float, Gradient]:
        with jax.enable_x64(True):
            value, gradient = compiled(dict(tau.items()))
        return float(value), {c: np.asarray(table) for c, table in gradient.items()}

    return CustomLoss(value_and_grad, domain, layout.cliques, smoothness=smoothness)
