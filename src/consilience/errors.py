"""Every exception a caller may want to catch.

A message says what must hold, what was given and what to do, in one line. Misuse raises one of these where the
value is built; a numerical method that does not converge raises nothing and says so in its `Status`.
"""


class ConsilienceError(ValueError):
    """Something given by the caller cannot be used; the message is one line for a person."""


class DomainError(ConsilienceError):
    """An attribute, a size, a clique or a workload does not fit the domain."""


class DataError(ConsilienceError):
    """Records or tables do not fit the declared domain."""


class MeasurementError(ConsilienceError):
    """A measurement has the wrong shape, a bad value or a bad noise scale."""


class LossError(ConsilienceError):
    """A loss returned something that no solver can use (NaN, wrong shape, not bounded below)."""


class RegionGraphError(ConsilienceError):
    """A region graph breaks a rule: edges from superset to subset, no cycles, positive counting numbers."""


class CapacityError(ConsilienceError):
    """Work refused before it is allocated, because it would not fit the memory budget."""

    def __init__(self, message: str, needed_bytes: int, budget_bytes: int) -> None:
        super().__init__(message)
        self.needed_bytes = needed_bytes
        self.budget_bytes = budget_bytes


class ModelFileError(ConsilienceError):
    """A saved model is damaged, foreign or of a version that this release cannot read."""


class BudgetError(ConsilienceError):
    """A privacy budget, or a share of one, is not usable."""


class InsufficientBudgetError(BudgetError):
    """A release would pass what is left of the budget; nothing was spent."""

    def __init__(self, message: str, remaining: float, requested: float) -> None:
        super().__init__(message)
        self.remaining = remaining
        self.requested = requested


class LedgerError(ConsilienceError):
    """A ledger is damaged, or belongs to another table."""


class NoiseError(ConsilienceError):
    """Noise cannot be drawn for what was given, or the sampler failed; nothing was released."""


class AuditError(ConsilienceError):
    """An audit was asked for something that it cannot measure."""


class PotentialError(ConsilienceError):
    """Potentials that define no distribution: NaN, plus infinity, or no cell left possible."""


class ReleaseError(ConsilienceError):
    """A release folder cannot be written, or is not what it should be."""


class AdapterError(ConsilienceError):
    """Another tool is missing, or gave something that has no counterpart here."""


class UncountedWarning(UserWarning):
    """A private release without a ledger: nothing keeps count of what is spent."""
