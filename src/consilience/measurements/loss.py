"""Loss: a convex function L of pseudo-marginals tau, and its gradient."""

from __future__ import annotations

from abc import ABC, abstractmethod

from consilience.domain import Buffer, Clique, CliqueVector, Domain, Layout
from consilience.errors import DomainError


class BoundLoss(ABC):
    """A loss compiled for one layout: it reads and writes flat buffers, and looks up nothing."""

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """The family of cliques that the buffers are over."""

    @property
    @abstractmethod
    def smoothness(self) -> float | None:
        """S with L(a) - L(b) - <grad L(b), a - b> <= S/2 sum_r ||a_r - b_r||_1^2, or None."""

    @abstractmethod
    def value_and_grad(self, values: Buffer) -> tuple[float, Buffer]:
        """L(tau) and its gradient, a new buffer, for the flat values of tau."""


class Loss(ABC):
    """A convex function of pseudo-marginals (they sum to one) over any family covering `cliques`.

    The marginal on a clique that is not in the family comes from the first smallest clique that
    contains it.
    """

    @property
    @abstractmethod
    def domain(self) -> Domain:
        """The domain of the cliques."""

    @property
    @abstractmethod
    def cliques(self) -> tuple[Clique, ...]:
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
