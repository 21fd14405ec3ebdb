"""Loss: a convex function L of pseudo-marginals tau, its gradient, and where in a buffer it reads each clique."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

from consilience.domain import Buffer, Clique, Cliques, CliqueVector, Domain, Layout
from consilience.errors import DomainError


class BoundLoss(ABC):
    """A loss compiled for one layout: it reads and writes flat buffers, and looks up nothing."""

    layout: Layout
    """The family of cliques that the buffers are over."""
    smoothness: float | None
    """S with L(a) - L(b) - <grad L(b), a - b> <= S/2 sum_r ||a_r - b_r||_1^2, or None."""

    @abstractmethod
    def value_and_grad(self, values: Buffer) -> tuple[float, Buffer]:
        """L(tau) and its gradient, a new buffer, for the flat values of tau."""


class Loss(ABC):
    """A convex function of pseudo-marginals (they sum to one) over any family covering `cliques`.

    The marginal on a clique that is not in the family comes from the first smallest clique that
    contains it.
    """

    domain: Domain
    """The domain of the cliques."""
    cliques: Cliques
    """The cliques whose marginals the loss reads."""

    @property
    @abstractmethod
    def smoothness(self) -> float | None:
        """`BoundLoss.smoothness` for a family in which each of `cliques` is present."""

    @abstractmethod
    def bind(self, layout: Layout) -> BoundLoss:
        """The loss compiled for a layout; do this once, before iterating."""

    def value_and_grad(self, tau: CliqueVector) -> tuple[float, CliqueVector]:
        """L(tau) and its gradient over tau's cliques. Binds each time: to iterate, use `bind`."""
        value, gradient = self.bind(tau.layout).value_and_grad(tau.values)
        return value, CliqueVector(tau.layout, gradient)


def check_domain(loss: Loss, layout: Layout) -> None:
    if loss.domain != layout.domain:
        raise DomainError(
            f"a loss must be bound to its own domain {loss.domain!r}, got one over "
            f"{layout.domain!r}"
        )


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
