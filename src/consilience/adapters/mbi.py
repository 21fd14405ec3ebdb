"""mbi (private-pgm) 1.1 and 2.0: an estimator that takes mbi's measurements and gives a MarkovRandomField that answers from ours.

    model = consilience.adapters.mbi.Estimator().estimate(domain, measurements)

It has the methods of mbi's estimator classes, and called as a function it is one of mbi 1.1's. `replacing()` puts it in the place
of mbi's own, for code that names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache, cached_property
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.adapters.functions import simplest
from consilience.domain import Clique, CliqueVector, Domain
from consilience.domain.domain import name_of
from consilience.errors import AdapterError, MeasurementError
from consilience.fits import Fit, LaplaceLikelihood, LeastSquares, reconstruct
from consilience.measurements import Measurement, estimate_total
from consilience.measurements.measurement import Noise
from consilience.model.model import Model

LEAST_STDDEV = 1e-6
"""In place of no noise at all, which mbi takes."""
LEAST_LOG = -1e4
"""In place of the logarithm of zero: mbi subtracts potentials from each other."""
CLASSES = (
    "MirrorDescent",
    "DualAveraging",
    "InteriorGradient",
    "LBFGS",
    "UniversalAcceleratedMethod",
)
FUNCTIONS = (
    "mirror_descent",
    "dual_averaging",
    "interior_gradient",
    "lbfgs",
    "universal_accelerated_method",
)
"""The estimators of mbi 2.0 and of mbi 1.1 in `mbi.estimation`."""


def library() -> Any:
    """The mbi that is installed."""
    try:
        return import_module("mbi")
    except ImportError as error:
        raise AdapterError(
            "this adapter needs mbi, which could not be imported; pip install 'consilience[adapters]'"
        ) from error


@dataclass(frozen=True, eq=False)
class Estimator:
    """An estimator as mbi calls it.

    fit: ours; None is `LeastSquares()`, and `LaplaceLikelihood()` for an l1 loss.
    """

    fit: Fit | None = None

    def estimate(
        self,
        domain: Any,
        loss_fn: Any,
        known_total: float | None = None,
        constraints: Sequence[Any] = (),
        iters: int | None = None,
        callback_fn: Callable[[Any], Any] | None = None,
        warm_start: Any = None,
        tol: float | None = None,
        patience: int | None = None,
        potentials: Any = None,
    ) -> Any:
        """mbi's model of the measurements. loss_fn: a list of LinearMeasurement, or the l2 or l1 loss of one.

        iters, tol and patience are accepted and not needed: ours ends by itself, with a certificate. warm_start and potentials
        count where a model of this adapter is behind them. callback_fn sees the marginals once, at the end.
        """
        measured, noise, listed = unpacked(loss_fn)
        known = Names.of(domain)
        ours = [measurement(m, known, noise) for m in measured]
        masks = masks_of(constraints, known)
        total = known_total if known_total is not None else _total(known, measured, ours, listed)
        fit = _chosen(self.fit, masks, noise)
        warm = _ours(warm_start if warm_start is not None else potentials)
        if warm is not None and warm.domain != known.domain:
            warm = None
        found = reconstruct(known.domain, ours, float(total), fit=fit, warm=warm)
        model = model_class()(found, known, tuple(constraints))
        if callback_fn is not None:
            callback_fn(model.marginals)
        return model

    def precompile(
        self,
        domain: Any,
        measurements: Any = None,
        *,
        extra_cliques: Any = None,
        constraints: Sequence[Any] = (),
    ) -> Future[None]:
        """There is nothing to compile for a domain: done at once."""
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def __call__(
        self,
        domain: Any,
        loss_fn: Any,
        *,
        known_total: float | None = None,
        potentials: Any = None,
        marginal_oracle: Any = None,
        iters: int | None = None,
        stateful: bool | None = None,
        stepsize: float | None = None,
        callback_fn: Callable[[Any], Any] | None = None,
        mesh: Any = None,
        lipschitz: float | None = None,
    ) -> Any:
        """`estimate` with the arguments of mbi 1.1's functions; what steers their steps is accepted and not needed."""
        return self.estimate(
            domain, loss_fn, known_total, callback_fn=callback_fn, potentials=potentials
        )


@contextmanager
def replacing(fit: Fit | None = None) -> Iterator[Estimator]:
    """Within it, mbi's own estimators are this one: for mechanisms that name `mbi.estimation.MirrorDescent` or `mirror_descent`.

    Of code that imported the name itself (`from mbi.estimation import MirrorDescent`) import it within as well.
    """
    estimation = library().estimation
    ours = Estimator(fit)
    given: dict[str, Any] = {name: lambda *_, **__: ours for name in CLASSES}
    given |= dict.fromkeys(FUNCTIONS, ours)
    before = {name: getattr(estimation, name) for name in given if name in vars(estimation)}
    for name in before:
        setattr(estimation, name, given[name])
    try:
        yield ours
    finally:
        for name, kept in before.items():
            setattr(estimation, name, kept)


# -- what mbi gives --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Names:
    """A domain of mbi and ours: the same attributes in the same order, numbers for names read as their digits."""

    theirs: Any
    domain: Domain
    back: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, theirs: Any) -> Names:
        labels = getattr(theirs, "labels_config", None) or {}
        found = {
            a: w for a, w in labels.items() if w is not None and len(set(map(str, w))) == theirs[a]
        }
        ours = Domain([(a, theirs[a]) for a in theirs.attributes], labels=found)
        return cls(theirs, ours, {name_of(a): a for a in theirs.attributes})

    def theirs_of(self, clique: Iterable[str]) -> tuple[Any, ...]:
        return tuple(self.back[a] for a in clique)


def unpacked(loss: Any) -> tuple[list[Any], Noise, bool]:
    """The measurements of a loss, the noise whose likelihood it is, and whether it is a plain list."""
    if isinstance(loss, list | tuple):
        return list(loss), "gaussian", True
    of = import_module("mbi.marginal_loss")
    kinds: dict[str, Noise] = {"_l2_loss": "gaussian", "_l1_loss": "laplace"}
    for name, noise in kinds.items():
        if getattr(of, name, None) is not None and getattr(loss, "loss_fn", None) is getattr(
            of, name
        ):
            return list(loss.data), noise, False
    if getattr(loss, "cliques", None) is not None and not len(loss.cliques):
        return [], "gaussian", False
    raise AdapterError(
        "the loss must be a list of LinearMeasurement, or mbi 2.0's l2 or l1 loss of one without normalisation, got "
        f"{type(loss).__name__}; give the list"
    )


def measurement(given: Any, known: Names, noise: Noise = "gaussian") -> Measurement:
    """A LinearMeasurement as ours."""
    clique = tuple(name_of(a) for a in given.clique)
    values = np.asarray(given.noisy_measurement, np.float64).reshape(-1)
    stddev = max(float(given.stddev), LEAST_STDDEV)
    theirs = library()
    over = known.theirs.project(given.clique)

    def asked(table: NDArray[np.float64]) -> Any:
        return given.query(theirs.Factor(over, table))

    query, weight = simplest(asked, tuple(over.shape), len(values))
    if weight != 1.0:
        values, stddev = values / weight, stddev / weight
    return Measurement(clique, values, stddev=stddev, noise=noise, query=query)


def masks_of(constraints: Iterable[Any], known: Names) -> dict[Clique, NDArray[np.bool_]]:
    """Constraints of mbi 2.0 as tables of what can occur."""
    masks: dict[Clique, NDArray[np.bool_]] = {}
    for c in constraints:
        order = tuple(name_of(a) for a in c.domain.attributes)
        mask = np.full(tuple(c.domain.shape), c.invalid is not None)
        if c.mapping is not None:
            mask[np.arange(len(c.mapping)), np.asarray(c.mapping)] = True
        else:
            rows = np.asarray(c.invalid if c.valid is None else c.valid)
            mask[tuple(rows.T)] = c.valid is not None
        clique = known.domain.clique(order)
        mask = mask.transpose([order.index(a) for a in clique])
        masks[clique] = masks.get(clique, True) & mask
    return masks


def _chosen(asked: Fit | None, masks: dict[Clique, Any], noise: Noise) -> Fit:
    """The fit with what is constrained as its impossible cells."""
    if asked is None:
        asked = LaplaceLikelihood() if noise == "laplace" else LeastSquares()
    if not masks:
        return asked
    if not is_dataclass(asked) or "possible" not in [f.name for f in fields(asked)]:
        raise AdapterError(
            f"constraints need a fit that keeps combinations impossible, got {type(asked).__name__}; use LeastSquares()"
        )
    return replace(asked, possible={**asked.possible, **masks})  # pyright: ignore[reportArgumentType]


def _total(known: Names, measured: list[Any], ours: list[Measurement], listed: bool) -> float:
    """mbi's rules: measurements that opt in tell the total; 1 where none does, and where a loss and no total is given."""
    telling = [
        m
        for given, m in zip(measured, ours, strict=True)
        if getattr(given.query, "use_for_total_estimation", True)
    ]
    if not listed or not telling:
        return 1.0
    try:
        return estimate_total(known.domain, telling).value
    except MeasurementError:
        return 1.0


def _ours(given: Any) -> Model | None:
    """The model of ours behind a warm start, if there is one."""
    return getattr(given, "ours", None)


# -- what mbi gets ---------------------------------------------------------------------------------


def vector(theta: CliqueVector, known: Names, ours: Model | None = None) -> Any:
    """A clique vector of ours as mbi's; `ours` is the model behind potentials."""
    theirs = library()
    cliques = [known.theirs_of(c) for c in theta.cliques]
    tables = {
        names: theirs.Factor(known.theirs.project(names), np.array(theta[c]))
        for names, c in zip(cliques, theta.cliques, strict=True)
    }
    found = theirs.CliqueVector(known.theirs, cliques, tables)
    if ours is not None:
        _remember(found, ours)
    return found


def _remember(potentials: Any, ours: Model) -> None:
    """Note on potentials whose they are, so that they can be a warm start. JAX takes no subclass of mbi's vectors."""
    plain = potentials.expand

    def expand(cliques: Sequence[Any]) -> Any:
        """Over the given cliques where these hold ours; else as they are, and then we alone can go on from them."""
        held = all(any(set(c) <= set(wide) for wide in cliques) for c in potentials.cliques)
        found = plain(list(cliques)) if held else potentials
        found.ours = ours
        return found

    potentials.ours, potentials.expand = ours, expand


@cache
def model_class() -> Any:
    """A MarkovRandomField, for those who check, that answers from our model."""
    theirs = library()

    class Reconstructed(theirs.MarkovRandomField):
        """`ours` is the model: its marginals, errors, intervals, rows and diagnostics."""

        def __init__(self, ours: Model, names: Names, constraints: tuple[Any, ...] = ()) -> None:
            put = object.__setattr__
            put(self, "ours", ours)
            put(self, "names", names)
            put(self, "constraints", constraints)
            put(self, "total", ours.total)

        @property
        def domain(self) -> Any:
            return self.names.theirs

        @cached_property
        def potentials(self) -> Any:
            theta = self.ours.potentials
            floor = np.maximum(theta.values, LEAST_LOG)
            return vector(CliqueVector(theta.layout, floor), self.names, self.ours)

        @property
        def cliques(self) -> list[tuple[Any, ...]]:
            return [self.names.theirs_of(c) for c in self.ours.cliques.maximal()]

        @cached_property
        def marginals(self) -> Any:
            cliques = list(self.ours.cliques.maximal())
            tables = dict(zip(cliques, self.ours.marginals(cliques), strict=True))
            return vector(CliqueVector.from_tables(self.ours.domain, tables), self.names)

        def project(self, attrs: Any) -> Any:
            asked = (attrs,) if isinstance(attrs, str | int) else tuple(attrs)
            over = self.names.theirs.project(asked)
            return theirs.Factor(over, self.ours.marginal([name_of(a) for a in asked]))

        def supports(self, attrs: Any) -> bool:
            asked = (attrs,) if isinstance(attrs, str | int) else tuple(attrs)
            return all(a in self.names.theirs.attributes for a in asked)

        def synthetic_data(self, rows: int | None = None, method: str = "round") -> Any:
            """Rows of ours, seeded from NumPy's global generator, which mbi draws from; rounded or not, as ours are."""
            count = max(1, int(rows or self.total))
            drawn = self.ours.sample(count, rng=int(np.random.randint(2**31 - 1)))  # noqa: NPY002
            columns = {b: drawn.column(a).astype(np.int64) for a, b in self.names.back.items()}
            return theirs.Dataset(columns, self.names.theirs)

        def __repr__(self) -> str:
            return f"Reconstructed({self.ours!r})"

    return Reconstructed
