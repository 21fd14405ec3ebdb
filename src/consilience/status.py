"""Status: how an iterative method ended, and what to do about it. Non-convergence is a value, never an exception."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Ending(StrEnum):
    """The ways in which an iterative method ends."""

    CONVERGED = "converged"
    OUT_OF_ITERATIONS = "out of iterations"
    AS_ASKED = "iterations done"
    NOT_CERTIFIED = "done, not certified"
    STOPPED_EARLY = "stopped early"
    STALLED = "stalled"
    UNBOUNDED = "loss not bounded below"
    NOT_CONVEX = "loss not convex"


@dataclass(frozen=True)
class Status:
    """`converged` says whether the asked-for tolerance was met; `advice` is for a person when it was not."""

    ending: Ending
    converged: bool
    advice: str = ""

    @property
    def name(self) -> str:
        """The ending in words."""
        return self.ending.value

    def __str__(self) -> str:
        return self.name if not self.advice else f"{self.name}: {self.advice}"


CONVERGED = Status(Ending.CONVERGED, True)
STOPPED_EARLY = Status(
    Ending.STOPPED_EARLY,
    False,
    "on purpose: a closer fit would follow the noise, so no gap to the least squares optimum is stated",
)


def out_of_iterations(iterations: int, reached: float, wanted: float, what: str) -> Status:
    seen = f"{what} is {reached:.3g} after {iterations} iterations, {wanted:.3g} was asked for"
    advice = "raise iterations, or accept the certificate as it stands"
    return Status(Ending.OUT_OF_ITERATIONS, False, f"{seen}; {advice}")


def as_asked(iterations: int) -> Status:
    """A fixed number of iterations was asked for and done; nothing is claimed about convergence."""
    return Status(Ending.AS_ASKED, False, f"stopped after the {iterations} iterations asked for")


def not_certified(what: str) -> Status:
    """A method that minimises nothing has ended as it should: there is no optimum to be close to."""
    return Status(Ending.NOT_CERTIFIED, True, f"{what} minimises no loss, so no gap is stated")


def stalled(iterations: int, reached: float, wanted: float, what: str) -> Status:
    return Status(
        Ending.STALLED,
        False,
        f"{what} stays at {reached:.3g} after {iterations} iterations ({wanted:.3g} was asked for), no step improves it; "
        "the limit of double precision for this problem is reached, or the loss is not convex",
    )


def unbounded(value: float) -> Status:
    return Status(
        Ending.UNBOUNDED,
        False,
        f"the loss fell to {value:.3g}; a reconstruction needs a convex loss that is bounded below, check its sign",
    )


def not_convex(bound: float, value: float) -> Status:
    return Status(
        Ending.NOT_CONVEX,
        False,
        f"tangents of the loss bound it below by {bound:.6g}, yet it reached {value:.6g}; "
        "a reconstruction needs a convex loss and its gradient, check both",
    )
