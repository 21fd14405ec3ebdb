"""Iterative proportional fitting on a junction tree of supports: a pass around the tree that fits every target on its way.

A pass enters a clique, multiplies in the message from its parent, fits the clique's targets one after another, then visits the
cliques below and multiplies in their messages. Wherever the pass is, the table there is the exact marginal of the current
distribution, so that every fit is a true projection. A clique's table lists only the cells that can occur; a map says which cell
of a separator or target each of them belongs to. A target of finite stiffness is a noisy table, which is approached and not met.
"""

from __future__ import annotations

from math import exp, log
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from consilience.kernels.options import LOOP

FLOOR = 1e-100
LEAST_SUM = 1e-90
"""What a cell and a sum of cells are kept above, so that they can come back."""
WIDEST = 25.0
"""Potentials are kept within plus and minus this: targets that contradict each other would drive them on until they overflow."""
SCRATCH = 4
"""Rows of Scratch.sums: one for sums, three for Newton's method."""
NEWTON = 30
"""Newton steps for the fit of one noisy table."""


class Pass(NamedTuple):
    """The steps of one pass around the tree, and where everything lies.

    Step i is at clique[i]. It multiplies in the factor of child incoming[i] through the map at maps[incoming_map[i]:], then sums
    the table to child outgoing[i] through the map at maps[outgoing_map[i]:]; -1 for none. fits[i]: that child is a target.

    Clique c has cells at[c] to at[c + 1], child k has cells below[k] to below[k + 1]; children from `measured` on are targets.
    """

    at: Any
    below: Any
    measured: Any
    maps: Any
    clique: Any
    incoming: Any
    incoming_map: Any
    outgoing: Any
    outgoing_map: Any
    fits: Any


class State(NamedTuple):
    """Tables of the cliques `x`, sums of the separators `below`, potentials of the targets `theta`, messages `factor`.

    `below` and `factor` are laid out by Pass.below, `theta` by its part from `measured` on.
    """

    x: Any
    below: Any
    theta: Any
    factor: Any


class Targets(NamedTuple):
    """The tables to fit, laid out as State.theta, and one stiffness per table, infinite for those that are met exactly."""

    values: Any
    stiffness: Any


class Scratch(NamedTuple):
    """`sums` has SCRATCH rows, each as long as the widest child. distance[i] is how far, in L1, step i of a pass found its
    target, or 0 where it had none.
    """

    sums: Any
    distance: Any


@njit(**LOOP)
def _multiply_and_sum(
    x: Any, factor: Any, incoming: Any, sums: Any, outgoing: Any, multiply: bool, add: bool
) -> None:
    """x *= factor along one map, then sums += x along another, both at once."""
    if multiply and add:
        for j in range(x.size):
            v = max(x[j] * factor[incoming[j]], FLOOR)
            x[j] = v
            sums[outgoing[j]] += v
    elif multiply:
        for j in range(x.size):
            x[j] = max(x[j] * factor[incoming[j]], FLOOR)
    elif add:
        for j in range(x.size):
            sums[outgoing[j]] += x[j]


@njit(**LOOP)
def _fit_exact(have: Any, want: Any, theta: Any, factor: Any, damping: float) -> float:
    """The factor want / have to the power `damping`; the L1 distance between the two comes back."""
    distance = 0.0
    for j in range(have.size):
        distance += abs(have[j] - want[j])
        if have[j] <= 0.0 or want[j] <= 0.0:  # no cell to carry it, or nothing to carry
            factor[j] = 1.0
            continue
        # A potential that has reached the limit stays there, and the factor with it: theta always explains the tables.
        change = log(max(want[j], LEAST_SUM) / max(have[j], LEAST_SUM))
        new = min(max(theta[j] + damping * change, -WIDEST), WIDEST)
        factor[j] = exp(new - theta[j])
        theta[j] = new
    return distance


@njit(**LOOP)
def _fit_noisy(
    have: Any, want: Any, theta: Any, factor: Any, stiffness: float, a: Any, f: Any, d: Any
) -> float:
    """One block of the dual of: minimise KL + stiffness / 2 ||q - want||^2. The L1 distance from `have` to q comes back.

    The optimum has theta = stiffness (want - q) and q = have exp(theta - old theta - zeta), so that log q + stiffness q =
    log have - old theta + stiffness want - zeta; zeta makes q sum to one. Newton on log q (kept in `factor`) and zeta together.
    a, f and d are scratch.
    """
    for j in range(have.size):
        if have[j] <= LEAST_SUM:
            continue
        a[j] = log(have[j]) - theta[j] + stiffness * want[j]
        # stiffness q is Wright's omega of z; Newton cannot overshoot from this start.
        z = a[j] + log(stiffness)
        factor[j] = log(z - log(z)) if z > 1.0 else z - log(1.0 + exp(z))
        factor[j] -= log(stiffness)
    zeta = 0.0
    for _ in range(NEWTON):
        total, pull, slope = 0.0, 0.0, 0.0
        for j in range(have.size):
            if have[j] <= LEAST_SUM:
                continue
            q = exp(factor[j])
            d[j] = 1.0 / (1.0 + stiffness * q)
            f[j] = factor[j] + stiffness * q - a[j] + zeta
            total += q
            pull += q * f[j] * d[j]
            slope += q * d[j]
        if slope <= 0.0:
            break
        change = min(max((total - 1.0 - pull) / slope, -1.0), 1.0)
        zeta += change
        for j in range(have.size):
            if have[j] > LEAST_SUM:
                factor[j] -= (f[j] + change) * d[j]
        if abs(total - 1.0) < 1e-10 and abs(change) < 1e-10:
            break
    distance = 0.0
    for j in range(have.size):
        if have[j] <= LEAST_SUM:
            factor[j] = 1.0
            continue
        q = exp(factor[j])
        distance += abs(q - have[j])
        factor[j] = q / have[j]
        theta[j] = stiffness * (want[j] - q)
    return distance


@njit(**LOOP)
def _message(have: Any, before: Any, factor: Any) -> None:
    """A separator takes its new sums; the message to its other side is new over old."""
    for j in range(have.size):
        # Never below the sum of the floored cells beneath it, or the next message back would be huge.
        v = max(have[j], LEAST_SUM)
        factor[j] = v / max(before[j], LEAST_SUM)
        before[j] = v


@njit(**LOOP)
def run(steps: Pass, state: State, targets: Targets, scratch: Scratch, damping: float) -> None:
    """One pass around the tree. `damping` multiplies each change of a potential of an exact target; 1 is plain fitting."""
    x, factor, sums, distance = state.x, state.factor, scratch.sums, scratch.distance
    start = steps.below[steps.measured]
    for i in range(steps.clique.size):
        c = steps.clique[i]
        lo, n = steps.at[c], steps.at[c + 1] - steps.at[c]
        h, t = steps.incoming[i], steps.outgoing[i]
        f_lo = steps.below[max(h, 0)]
        t_lo = steps.below[max(t, 0)]
        width = steps.below[t + 1] - t_lo if t >= 0 else 0
        h_map, t_map = steps.incoming_map[i], steps.outgoing_map[i]
        incoming = steps.maps[h_map : h_map + n] if h >= 0 else steps.maps[:0]
        outgoing = steps.maps[t_map : t_map + n] if t >= 0 else steps.maps[:0]
        sums[0, :width] = 0.0
        _multiply_and_sum(
            x[lo : lo + n], factor[f_lo:], incoming, sums[0], outgoing, h >= 0, t >= 0
        )
        distance[i] = 0.0
        if t < 0:
            continue
        have, after = sums[0, :width], factor[t_lo : t_lo + width]
        if steps.fits[i]:
            a = t_lo - start
            want, theta = targets.values[a : a + width], state.theta[a : a + width]
            stiffness = targets.stiffness[t - steps.measured]
            if stiffness == np.inf:
                distance[i] = _fit_exact(have, want, theta, after, damping)
            else:
                distance[i] = _fit_noisy(
                    have, want, theta, after, stiffness, sums[1], sums[2], sums[3]
                )
        else:
            _message(have, state.below[t_lo : t_lo + width], after)
