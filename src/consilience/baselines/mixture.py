"""Mixture of products: p(x) = 1/K sum_k prod_i softmax(phi_ki)(x_i), its marginals, and their derivatives by phi."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np

from consilience.domain import Buffer, CliqueVector, Layout
from consilience.kernels import products as kernels
from consilience.kernels.options import threads_for
from consilience.regions.wiring import Ints

PARTS = 8
"""Cliques are dealt to this many work items, each with a gradient of its own; their order of summing is fixed."""


@dataclass(frozen=True, eq=False)
class ProductWiring:
    """Cliques as index arrays into the stacked rows of all attributes (`kernels/products.py`)."""

    layout: Layout
    attribute_first: Ints
    attribute_size: Ints
    at: Ints
    rows: Ints
    ptr: Ints
    first: Ints
    size: Ints
    chunk: Ints

    @classmethod
    def of(cls, layout: Layout) -> ProductWiring:
        domain = layout.domain
        size = np.array(domain.shape, np.int64)
        first = np.concatenate([[0], np.cumsum(size)[:-1]]).astype(np.int64)
        members = np.fromiter(
            chain.from_iterable([domain.position(a) for a in c] for c in layout.cliques), np.int64
        )
        length = np.array([len(c) for c in layout.cliques], np.int64)
        ptr = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
        cells = np.diff(layout.offsets)
        rows = cells // size[members[ptr[1:] - 1]]
        return cls(
            layout, first, size, layout.offsets[:-1], rows, ptr, first[members], size[members], _deal(cells)
        )  # fmt: skip

    @property
    def length(self) -> int:
        """Rows of phi: the sizes of all attributes together."""
        return int(self.attribute_size.sum())

    def probabilities(self, phi: Buffer) -> Buffer:
        """softmax of each attribute's rows, in each component."""
        p = np.empty_like(phi)
        kernels.softmax_rows(phi, p, self.attribute_first, self.attribute_size)
        return p

    def marginals(self, p: Buffer) -> CliqueVector:
        """The mixture's marginals on the layout's cliques; each sums to one."""
        out = CliqueVector(self.layout)
        with threads_for(self.layout.cells * 16):
            kernels.mixture_marginals(
                p, out.values, self.chunk, self.at, self.rows, self.ptr, self.first, self.size
            )
        return out

    def gradient(self, p: Buffer, slope: Buffer) -> Buffer:
        """The derivative by phi of <slope, marginals>."""
        parts = np.empty((len(self.chunk) - 1, *p.shape))
        with threads_for(self.layout.cells * 16):
            kernels.mixture_pullback(
                p, slope, parts, self.chunk, self.at, self.rows, self.ptr, self.first, self.size
            )
        grad = parts.sum(axis=0)
        kernels.softmax_pullback(p, grad, self.attribute_first, self.attribute_size)
        return grad


def _deal(cells: Ints) -> Ints:
    """Boundaries of at most PARTS runs of cliques with about equally many cells."""
    ends = np.cumsum(cells)
    label = (ends - cells) * PARTS // max(int(ends[-1]), 1)
    starts = np.flatnonzero(np.diff(label, prepend=-1))
    return np.concatenate([starts, [len(cells)]]).astype(np.int64)
