"""The loops of a mixture of products: marginals of many cliques from the components' tables, and the way back.

Row v of attribute a in `p` (at its `first` + v) is the probability of value v in every component. A clique's attributes are
entries ptr[r] to ptr[r + 1] of `first` and `size`; its table is `rows` (all attributes but the last) of size[last] cells each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from consilience.kernels.options import LOOP


@njit(**LOOP)
def _row_product(p: Any, heads: Any, digit: Any, skip: int, out: Any) -> None:
    """out = the product over the leading attributes, but for the one to skip, of their row of p."""
    out[:] = 1.0
    for d in range(heads):
        if d != skip:
            row = p[digit[d]]
            for k in range(out.size):
                out[k] *= row[k]


@njit(**LOOP)
def _head(p: Any, i: int, first: Any, size: Any, digit: Any, out: Any) -> None:
    """out = the product over all leading attributes of what each contributes to table row i; `digit` says which rows of p."""
    _digits(i, first.size, first, size, digit)
    _row_product(p, first.size, digit, -1, out)


@njit(**LOOP)
def _digits(i: int, heads: Any, first: Any, size: Any, out: Any) -> None:
    """The row of p that each leading attribute contributes to table row i."""
    rest = i
    for d in range(heads - 1, -1, -1):
        out[d] = first[d] + rest % size[d]
        rest //= size[d]


@njit(**LOOP)
def mixture_marginals(
    low: int, high: int, p: Any, share: Any, values: Any, chunk: Any, at: Any, rows: Any, ptr: Any, first: Any, size: Any
) -> None:  # fmt: skip
    """values = sum over components of their share times the attributes' probabilities, for each cell of each clique."""
    for c in range(low, high):
        head = np.empty(p.shape[1])
        for r in range(chunk[c], chunk[c + 1]):
            lo, hi = ptr[r], ptr[r + 1] - 1
            digit = np.empty(max(hi - lo, 1), np.int64)
            for i in range(rows[r]):
                _head(p, i, first[lo:hi], size[lo:hi], digit, head)
                for k in range(head.size):
                    head[k] *= share[k]
                start = at[r] + i * size[hi]
                for v in range(size[hi]):
                    tail = p[first[hi] + v]
                    cell = 0.0
                    for k in range(head.size):
                        cell += head[k] * tail[k]
                    values[start + v] = cell


@njit(**LOOP)
def mixture_pullback(
    low: int, high: int, p: Any, slope: Any, grads: Any, chunk: Any, at: Any, rows: Any, ptr: Any, first: Any, size: Any
) -> None:  # fmt: skip
    """grads[c] = chunk c's part of the derivative by p of <slope, marginals>. Parts are summed by the caller, in order."""
    share = 1.0 / p.shape[1]
    for c in range(low, high):
        head, back, rest = np.empty(p.shape[1]), np.empty(p.shape[1]), np.empty(p.shape[1])
        grad = grads[c]
        grad[:] = 0.0
        for r in range(chunk[c], chunk[c + 1]):
            lo, hi = ptr[r], ptr[r + 1] - 1
            digit = np.empty(max(hi - lo, 1), np.int64)
            for i in range(rows[r]):
                _head(p, i, first[lo:hi], size[lo:hi], digit, head)
                back[:] = 0.0
                start = at[r] + i * size[hi]
                for v in range(size[hi]):
                    g = slope[start + v] * share
                    if g != 0.0:
                        tail, into = p[first[hi] + v], grad[first[hi] + v]
                        for k in range(head.size):
                            into[k] += g * head[k]
                            back[k] += g * tail[k]
                for d in range(hi - lo):
                    _row_product(p, hi - lo, digit, d, rest)
                    into = grad[digit[d]]
                    for k in range(head.size):
                        into[k] += back[k] * rest[k]


@njit(**LOOP)
def softmax_rows(phi: Any, p: Any, first: Any, size: Any) -> None:
    """p = softmax of phi over the values of each attribute, component by component."""
    for a in range(first.size):
        lo, hi = first[a], first[a] + size[a]
        for k in range(phi.shape[1]):
            top = phi[lo, k]
            for v in range(lo + 1, hi):
                top = max(top, phi[v, k])
            mass = 0.0
            for v in range(lo, hi):
                p[v, k] = np.exp(phi[v, k] - top)
                mass += p[v, k]
            for v in range(lo, hi):
                p[v, k] /= mass


@njit(**LOOP)
def softmax_pullback(p: Any, grad: Any, first: Any, size: Any) -> None:
    """grad by p becomes grad by phi, in place: p (g - <p, g>) over the values of each attribute."""
    for a in range(first.size):
        lo, hi = first[a], first[a] + size[a]
        for k in range(p.shape[1]):
            mean = 0.0
            for v in range(lo, hi):
                mean += p[v, k] * grad[v, k]
            for v in range(lo, hi):
                grad[v, k] = p[v, k] * (grad[v, k] - mean)


@njit(**LOOP)
def adam_step(
    phi: Any, grad: Any, mean: Any, square: Any, step: int, rate: float, b1: float, b2: float, tiny: float,
) -> None:  # fmt: skip
    """One step of Adam (Kingma and Ba 2015) with bias correction; step counts from 1."""
    fix1, fix2 = 1.0 - b1**step, 1.0 - b2**step
    for v in range(phi.shape[0]):
        for k in range(phi.shape[1]):
            g = grad[v, k]
            m = b1 * mean[v, k] + (1.0 - b1) * g
            s = b2 * square[v, k] + (1.0 - b2) * g * g
            mean[v, k], square[v, k] = m, s
            phi[v, k] -= rate * (m / fix1) / (np.sqrt(s / fix2) + tiny)
