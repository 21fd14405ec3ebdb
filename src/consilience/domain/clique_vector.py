"""CliqueVector: the paper's mu, tau and theta. One flat float64 buffer for a family of cliques."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.cliques import Cliques, Family, Holders
from consilience.domain.domain import Clique, Domain, names_of
from consilience.domain.rows import starts
from consilience.errors import DomainError

Buffer = NDArray[np.float64]
Scalar = int | float | np.floating


def dot(a: Buffer, b: Buffer) -> float:
    """<a, b>, with the same bits whatever the number of threads.

    Not by BLAS: its sum depends on how many threads share it, and those wait for the next call by spinning, which
    takes a core from our own kernels (measured: an iteration at 10,000 triples 2.3 times slower on two cores).
    """
    return float(np.einsum("i,i->", a, b))


@dataclass(frozen=True, eq=False, repr=False)
class Layout:
    """Where each clique's table lies in the flat buffer: clique i owns cells offsets[i] to offsets[i + 1].

    Tables are in C order over the clique's attributes in domain order. Shared by all vectors of the same family.
    """

    domain: Domain
    cliques: Cliques
    offsets: NDArray[np.int64]

    def __init__(self, domain: Domain, cliques: Iterable[Iterable[str]]) -> None:
        canonical = Cliques.of(domain, cliques).distinct()
        object.__setattr__(self, "domain", domain)
        object.__setattr__(self, "cliques", canonical)
        object.__setattr__(self, "offsets", starts(canonical.sizes))

    @property
    def cells(self) -> int:
        return int(self.offsets[-1])

    @cached_property
    def shapes(self) -> Family:
        """The shape of each table, a sequence of tuples."""
        return self.cliques.sets.renamed(np.array(self.domain.shape))

    @property
    def index(self) -> Mapping[Clique, int]:
        """The number of each clique."""
        return self.cliques.places

    def home(self, clique: Clique) -> int | None:
        """The number of the first smallest clique that holds the given one; None if none does."""
        found = self.index.get(clique)
        return self.holders.smallest(clique, self.cliques.sizes) if found is None else found

    @property
    def holders(self) -> Holders:
        return self.cliques.holders

    def same_as(self, other: Layout) -> bool:
        return self is other or (self.domain == other.domain and self.cliques == other.cliques)


class OverCliques:
    """Something that has a number per cell of the tables of `layout`."""

    layout: Layout

    @property
    def domain(self) -> Domain:
        return self.layout.domain

    @property
    def cliques(self) -> Cliques:
        return self.layout.cliques


@dataclass(frozen=True, eq=False, repr=False)
class CliqueVector(OverCliques):
    """One table per clique in one contiguous buffer. `v[clique]` is a view, so writing to it writes to the vector."""

    layout: Layout
    values: Buffer

    def __init__(self, layout: Layout, values: Buffer | None = None) -> None:
        buffer = (
            np.zeros(layout.cells) if values is None else np.ascontiguousarray(values, np.float64)
        )
        if buffer.shape != (layout.cells,):
            raise DomainError(
                f"a clique vector over these cliques must have {layout.cells} values, got shape {buffer.shape}"
            )
        object.__setattr__(self, "layout", layout)
        object.__setattr__(self, "values", buffer)

    # -- building --------------------------------------------------------------------------------

    @classmethod
    def zeros(cls, domain: Domain, cliques: Iterable[Iterable[str]]) -> CliqueVector:
        return cls(Layout(domain, cliques))

    @classmethod
    def uniform(cls, domain: Domain, cliques: Iterable[Iterable[str]]) -> CliqueVector:
        """Every table is the uniform distribution."""
        layout = Layout(domain, cliques)
        cells = np.diff(layout.offsets)
        return cls(layout, np.repeat(1.0 / cells, cells))

    @classmethod
    def from_tables(cls, domain: Domain, tables: Mapping[Any, Any]) -> CliqueVector:
        """From a mapping of attributes to tables; a table's axes follow its key's order and are put in domain order."""
        vector = cls.zeros(domain, tables)
        for given, table in tables.items():
            vector[given] = table
        return vector

    # -- reading ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.layout.cliques)

    def __iter__(self) -> Iterator[Clique]:
        return iter(self.layout.cliques)

    def __contains__(self, attributes: Iterable[str]) -> bool:
        return self.domain.clique(attributes) in self.layout.index

    def __getitem__(self, attributes: Iterable[str]) -> Buffer:
        """The table of a clique as a view, its axes in domain order."""
        return self.table(self._index(attributes))

    def table(self, i: int) -> Buffer:
        """The table of clique number i, a view."""
        lo, hi = self.layout.offsets[i], self.layout.offsets[i + 1]
        return self.values[lo:hi].reshape(self.layout.shapes[i])

    def __setitem__(self, attributes: Iterable[str], table: Any) -> None:
        """Write a table whose axes follow the order in which the attributes are given."""
        order = names_of(attributes)
        target = self[order]
        if len(order) != target.ndim:
            raise DomainError(
                f"the attributes of a table must be distinct, got {order}; name each axis once"
            )
        given = np.asarray(table, dtype=np.float64)
        expected = self.domain.shape_of(order)
        if given.shape != expected and given.shape != (target.size,):
            raise DomainError(f"the table of {order} must have shape {expected}, got {given.shape}")
        clique = self.domain.clique(order)
        target[...] = given.reshape(expected).transpose([order.index(a) for a in clique])

    def items(self) -> Iterator[tuple[Clique, Buffer]]:
        return ((c, self.table(i)) for i, c in enumerate(self.cliques))

    def __repr__(self) -> str:
        return f"CliqueVector({len(self)} cliques, {self.values.size:,} cells)"

    # -- arithmetic ------------------------------------------------------------------------------

    def copy(self) -> CliqueVector:
        return CliqueVector(self.layout, self.values.copy())

    def __add__(self, other: CliqueVector | Scalar) -> CliqueVector:
        return CliqueVector(self.layout, self.values + self._operand(other))

    __radd__ = __add__

    def __sub__(self, other: CliqueVector | Scalar) -> CliqueVector:
        return CliqueVector(self.layout, self.values - self._operand(other))

    def __rsub__(self, other: CliqueVector | Scalar) -> CliqueVector:
        return CliqueVector(self.layout, self._operand(other) - self.values)

    def __mul__(self, other: CliqueVector | Scalar) -> CliqueVector:
        return CliqueVector(self.layout, self.values * self._operand(other))

    __rmul__ = __mul__

    def __truediv__(self, other: Scalar) -> CliqueVector:
        return CliqueVector(self.layout, self.values / other)

    def __neg__(self) -> CliqueVector:
        return CliqueVector(self.layout, -self.values)

    def dot(self, other: CliqueVector) -> float:
        return dot(self.values, self._operand(other))

    def exp(self) -> CliqueVector:
        return CliqueVector(self.layout, np.exp(self.values))

    # -- other cliques ---------------------------------------------------------------------------

    def project(self, attributes: Iterable[str]) -> Buffer:
        """The marginal of the first smallest clique that contains the attributes, axes in domain order."""
        target = self.domain.clique(attributes)
        clique = self.covering(target)
        dropped = tuple(i for i, a in enumerate(clique) if a not in target)
        return self[clique].sum(axis=dropped) if dropped else self[clique]

    def covering(self, attributes: Iterable[str]) -> Clique:
        """The first smallest clique that contains the attributes."""
        target = self.domain.clique(attributes)
        found = self.layout.home(target)
        if found is None:
            raise DomainError(
                f"some clique of the vector must contain {target}, none of {len(self)} does"
            )
        return self.cliques[found]

    def expand(self, cliques: Iterable[Iterable[str]]) -> CliqueVector:
        """The same potentials on larger cliques: each table is added to the first smallest new clique holding it.

        <self, M p> = <expanded, M' p> for every distribution p, so the distribution with these log-potentials stays.
        """
        out = CliqueVector.zeros(self.domain, cliques)
        for clique, table in self.items():
            home = out.covering(clique)
            shape = [self.domain[a] if a in clique else 1 for a in home]
            out[home][...] += table.reshape(shape)
        return out

    # -- helpers ---------------------------------------------------------------------------------

    def _index(self, attributes: Iterable[str]) -> int:
        found = self.layout.index.get(attributes) if isinstance(attributes, tuple) else None
        if found is None:
            clique = self.domain.clique(attributes)
            found = self.layout.index.get(clique)
            if found is None:
                raise DomainError(
                    f"the clique must be one of the vector's {len(self)} cliques, got {clique}"
                )
        return found

    def _operand(self, other: CliqueVector | Scalar) -> Any:
        if isinstance(other, CliqueVector):
            if not self.layout.same_as(other.layout):
                raise DomainError(
                    "arithmetic needs two vectors over the same cliques in the same order"
                )
            return other.values
        return other
