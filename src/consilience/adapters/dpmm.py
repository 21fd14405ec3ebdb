"""dpmm 0.1, which carries an old Private-PGM of its own: within `replacing()` its MST, AIM and PrivBayes are estimated by ours.

    with consilience.adapters.dpmm.replacing():
        pipeline.fit(df, domain)

`Inference` has the protocol of dpmm's FactoredInference, `Reconstructed` what its pipelines ask of a GraphicalModel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from pickle import dump
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from consilience.adapters.functions import simplest
from consilience.domain import Domain
from consilience.errors import AdapterError, MeasurementError
from consilience.fits import Fit, LeastSquares, load, reconstruct
from consilience.measurements import Measurement, estimate_total
from consilience.model.model import Model

USERS = ("dpmm.models.aim", "dpmm.models.mst", "dpmm.models.base.mechanisms.mechanism")
"""The modules of dpmm 0.1 that name FactoredInference."""


def library(name: str = "dpmm.models.base.mbi") -> Any:
    """A module of the dpmm that is installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise AdapterError(
            f"this adapter needs {name} of dpmm 0.1, which could not be imported; pip install dpmm==0.1.9"
        ) from error


class Inference:
    """FactoredInference's protocol: made with a domain, it estimates lists of (matrix, answers, stddev, attributes).

    iters, engine, options and what else steers steps are accepted and not needed: ours ends by itself, with a certificate.
    """

    fit: Fit | None = None

    def __init__(
        self,
        domain: Any,
        backend: str = "numpy",
        structural_zeros: Mapping[Any, Sequence[Any]] | None = None,
        metric: str = "L2",
        log: bool = False,
        iters: int = 1000,
        warm_start: bool = False,
        elim_order: Any = None,
        prng: Any = None,
    ) -> None:
        if metric != "L2":
            raise AdapterError(f"the metric must be 'L2', got {metric!r}; ours has no other here")
        self.domain, self.prng, self.warm_start = domain, prng, warm_start
        self.ours = Domain({a: int(domain.config[a]) for a in domain.attrs})
        zeros = {self.ours.clique(c): (c, rows) for c, rows in (structural_zeros or {}).items()}
        self.possible = {c: self._mask(c, *given) for c, given in zeros.items()}
        self.model: Reconstructed | None = None

    def _mask(self, clique: tuple[str, ...], order: Any, rows: Sequence[Any]) -> Any:
        """What can occur, as a table: dpmm lists what cannot, in the order of attributes that it was given."""
        given = (order,) if isinstance(order, str) else tuple(order)
        mask = np.ones([self.ours[a] for a in given], np.bool_)
        mask[tuple(np.atleast_2d(np.asarray(rows).T))] = False
        return mask.transpose([given.index(a) for a in clique])

    def estimate(
        self,
        measurements: Sequence[tuple[Any, Any, float, Any]],
        total: float | None = None,
        engine: str = "MD",
        callback: Any = None,
        options: Any = None,
    ) -> Reconstructed:
        """The model of the measurements; also kept as `model`, where the next estimate begins if warm_start was asked for."""
        noisy = [self._measurement(*m) for m in measurements]
        if total is None:
            try:
                total = max(1.0, estimate_total(self.ours, noisy).value)
            except MeasurementError:
                total = 1.0  # as there, where nothing tells it
        fit = self.fit or LeastSquares()
        if self.possible:
            fit = LeastSquares(possible=self.possible)
        warm = self.model.ours if self.warm_start and self.model is not None else None
        found = reconstruct(self.ours, noisy, float(total), fit=fit, warm=warm)
        self.model = Reconstructed(found, self.domain, self.prng)
        return self.model

    def _measurement(
        self, matrix: Any, answers: Any, stddev: float, attributes: Any
    ) -> Measurement:
        clique = (attributes,) if isinstance(attributes, str) else tuple(attributes)
        values = np.asarray(answers, np.float64).reshape(-1)
        shape = tuple(self.ours[a] for a in clique)
        query, weight = None, 1.0
        if matrix is not None:
            query, weight = simplest(lambda t: matrix @ t.reshape(-1), shape, len(values))
        return Measurement(clique, values / weight, stddev=stddev / weight, query=query)


class Reconstructed:
    """What dpmm asks of a GraphicalModel, answered from `ours`."""

    def __init__(self, ours: Model, domain: Any, prng: Any = None) -> None:
        self.ours, self.domain, self.prng, self.total = ours, domain, prng, ours.total

    @property
    def cliques(self) -> list[tuple[str, ...]]:
        return list(self.ours.cliques.maximal())

    @property
    def size(self) -> int:
        return sum(self.ours.domain.size(c) for c in self.cliques)

    def set_random_state(self, prng: Any) -> None:
        self.prng = self.prng if prng is None else prng

    def __getstate__(self) -> dict[str, Any]:
        """dpmm keeps and hands over models as pickles; within one ours is the file that `save` writes."""
        with TemporaryDirectory() as folder:
            path = Path(folder) / "model.npz"
            self.ours.save(path)
            return vars(self) | {"ours": path.read_bytes()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "model.npz"
            path.write_bytes(state["ours"])
            vars(self).update(state | {"ours": load(path)})

    def save(self, path: Any) -> None:
        with Path(path).open("wb") as file:
            dump(self, file)

    def project(self, attrs: Any) -> Any:
        asked = (attrs,) if isinstance(attrs, str) else tuple(attrs)
        return library().Factor(self.domain.project(asked), self.ours.marginal(asked))

    def synthetic_data(
        self, rows: int | None = None, condition_records: Any = None, method: str = "round"
    ) -> Any:
        """Rows of ours, seeded from dpmm's generator; rounded or not, as ours are."""
        if condition_records is not None:
            raise AdapterError(
                "condition_records must be None with this adapter: ours draws no rows given others; fit without replacing()"
            )
        frame = import_module("pandas").DataFrame
        source = np.random.RandomState() if self.prng is None else self.prng
        drawn = self.ours.sample(int(rows or self.total), rng=int(source.randint(2**31 - 1)))
        columns = {a: drawn.column(a).astype(np.int64) for a in self.domain.attrs}
        return library().Dataset(frame(columns), self.domain)


@contextmanager
def replacing(fit: Fit | None = None) -> Iterator[type[Inference]]:
    """Within it, dpmm estimates by ours. fit: one of ours; None is `LeastSquares()`."""
    users = [library(name) for name in USERS]
    before = [user.FactoredInference for user in users]
    ours = type("Inference", (Inference,), {"fit": fit})
    for user in users:
        user.FactoredInference = ours
    try:
        yield ours
    finally:
        for user, kept in zip(users, before, strict=True):
            user.FactoredInference = kept
