"""Routes: where in a flat buffer a clique's marginal is read and its gradient written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from consilience.domain import Buffer, Clique, Layout
from consilience.errors import DomainError


@dataclass(frozen=True)
class Route:
    """P: a clique's marginal is the table of clique `home`, summed over the axes `dropped`.

    The table is cells lo to hi of the buffer, of shape `shape`; `kept` is that shape with 1 on the
    dropped axes.
    """

    home: int
    lo: int
    hi: int
    shape: tuple[int, ...]
    dropped: tuple[int, ...]
    kept: tuple[int, ...]

    @property
    def exact(self) -> bool:
        """Whether the clique itself is in the layout."""
        return not self.dropped

    def gather(self, values: Buffer) -> Buffer:
        """P tau, flat (a view when the route is exact)."""
        table = values[self.lo : self.hi]
        return (
            table.reshape(self.shape).sum(axis=self.dropped).reshape(-1) if self.dropped else table
        )

    def scatter(self, gradient: Buffer, part: Buffer) -> None:
        """gradient += P^T part."""
        table = gradient[self.lo : self.hi].reshape(self.shape)
        table += part.reshape(self.kept)


def routes(layout: Layout, cliques: Iterable[Clique]) -> list[Route]:
    """For each clique the first smallest clique of the layout that contains it."""
    return [_route(layout, c, _home(layout, c)) for c in cliques]


def _home(layout: Layout, clique: Clique) -> int:
    found = layout.home(clique)
    if found is None:
        raise DomainError(
            f"some clique of the vector must contain {clique}, none of {len(layout.cliques)} "
            "does; add it"
        )
    return found


def _route(layout: Layout, clique: Clique, home: int) -> Route:
    shape = layout.shapes[home]
    dropped = tuple(i for i, a in enumerate(layout.cliques[home]) if a not in clique)
    kept = tuple(1 if i in dropped else n for i, n in enumerate(shape))
    lo, hi = int(layout.offsets[home]), int(layout.offsets[home + 1])
    return Route(home, lo, hi, shape, dropped, kept)
