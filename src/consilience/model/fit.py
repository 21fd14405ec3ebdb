"""Fit: an estimator as a value. It is called on measurements and returns a model, which keeps the fit that made it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from consilience.domain import Clique, Domain
from consilience.errors import ConsilienceError, MeasurementError
from consilience.measurements import (
    Control,
    Measurement,
    Measurements,
    SquaredLoss,
    bound_controls,
    public_total,
)
from consilience.measurements.measurement import Noise
from consilience.model.impossible import NOTHING, Masks
from consilience.progress import Progress, quiet
from consilience.solvers.contradictions import check_controls
from consilience.solvers.planner import Plan
from consilience.solvers.work import USUAL_LOAD, Load

if TYPE_CHECKING:
    from consilience.model.model import Model


class Fit(ABC):
    """How measurements become a model: a frozen value that holds settings and no data.

    The attributes below say what an estimator takes and what its models can be asked; a subclass overrides them, as
    dataclass fields where users may choose. `check` is the one place where they turn into refusals.
    """

    noises: ClassVar[tuple[Noise, ...]] = ("gaussian", "laplace")
    """The laws of noise that it takes."""
    queries: ClassVar[bool] = True
    """Whether it takes measurements through queries, and not only whole tables."""
    closed_form: ClassVar[bool] = False
    """Whether standard errors of weighted least squares describe its answers where no cell is near zero."""
    why: ClassVar[str] = ""
    """The reason of the restrictions above, for people."""
    aside: ClassVar[tuple[str, ...]] = ("workers",)
    """Settings that change nothing about the model, so that nobody keeps or shows them."""
    memory: str | int | float = "2 GB"
    """What a fit may allocate."""
    possible: Masks = NOTHING
    """{clique: table}, False where a combination cannot occur."""
    controls: Sequence[Control] = ()
    """Marginals that are public and exact, and ranges that marginals lie in."""

    @abstractmethod
    def plan(self, domain: Domain, cliques: Iterable[Clique], load: Load = USUAL_LOAD) -> Plan:
        """What a fit to measurements of these cliques needs; refuses what would fail later. load: what else its length
        depends on, as far as it is known.
        """

    def __call__(
        self,
        domain: Domain,
        measurements: Iterable[Measurement] | Measurements,
        total: float | None = None,
        *,
        warm: Model | None = None,
        progress: Progress | None = None,
    ) -> Model:
        """The model of the measurements. Binds and checks them, then calls `fitted`.

        total: the number of records if it is public; None estimates it. warm: an earlier model of the same domain by the same
        kind of fit, whose graph and state are kept as far as they still serve.
        """
        total = public_total(self.controls, total)
        loss = SquaredLoss(domain, measurements, total)
        if self.controls:
            loss = self._controlled(loss, measurements, total)
        for noise, query in loss.measurements.kinds:
            self.check(noise, query=query)
        return self.fitted(loss, total is not None, warm, progress or quiet)

    def _controlled(self, loss: SquaredLoss, measurements: Any, total: float | None) -> SquaredLoss:
        """The loss with a total that controls admit; refuses controls that nothing keeps."""
        bound = bound_controls(loss.domain, self.controls)
        if total is None:
            least = max(float(c.low.sum()) for c in bound)
            most = min(float(c.high.sum()) for c in bound)
            loss = SquaredLoss(loss.domain, measurements, min(max(loss.total, least), most))
        check_controls(loss.domain, bound, loss.total, self.possible)
        return loss

    def fitted(
        self, loss: SquaredLoss, total_known: bool, warm: Model | None, progress: Progress
    ) -> Model:
        """The model of the measurements in a loss: what a subclass gives."""
        raise NotImplementedError(f"{type(self).__name__} must define fitted")

    def in_rounds(self) -> Fit:
        """The estimator as adaptive mechanisms call it, round after round."""
        return self

    def at_the_end(self) -> Fit:
        """The estimator as they call it when all is measured."""
        return self.in_rounds()

    def coarser(self, tolerance: float) -> Fit:
        """The same estimator with no finer tolerance than this, for fits that only rank candidates or estimate errors."""
        return self

    def of_fewer(self) -> Fit:
        """The same estimator where some of the tables that it was planned for are left out."""
        return self

    @property
    def stated(self) -> tuple[Clique, ...]:
        """What masks and controls speak of: cliques that are in the model whether they were measured or not."""
        return (*self.possible, *(c.attributes for c in self.controls))

    @property
    def unmeasured(self) -> str:
        """How adaptive mechanisms answer cliques that no region holds: "backbone", or "local" by the paper's Problem 4."""
        return "backbone"

    @property
    def additive(self) -> bool:
        """Whether its price adds up table by table, so that a table that fits alone can be added while there is room."""
        return False

    def check(self, noise: Noise, *, query: bool = False) -> None:
        """Refuse a kind of measurement that this estimator does not take."""
        name = type(self).__name__
        if noise not in self.noises:
            raise ConsilienceError(
                f"{name} takes {' or '.join(self.noises)} noise, got {noise} noise: {self.why}; use another fit, such as "
                "LeastSquares"
            )
        if query and not self.queries:
            raise MeasurementError(
                f"{name} takes measurements of whole tables, got one through a query: {self.why}; use another fit, such as "
                "LeastSquares"
            )

    def __repr__(self) -> str:
        given = ", ".join(f"{k}={v!r}" for k, v in self.changed().items())
        return f"{type(self).__name__}({given})"

    def changed(self) -> dict[str, Any]:
        """The settings that differ from their defaults."""
        usual = {f.name: _default(f) for f in fields(self)} if is_dataclass(self) else {}
        chosen = {k: getattr(self, k) for k in usual}
        masks = {"possible": tuple(self.possible)} if self.possible else {}
        for name in ("possible", *self.aside):
            chosen.pop(name, None)
        if self.controls:
            masks["controls"] = chosen.pop("controls")
        return {k: v for k, v in chosen.items() if v is not usual[k] and v != usual[k]} | masks


def _default(field: Field[Any]) -> Any:
    return field.default if field.default is not MISSING else None
