"""Model: the fitted thing. Any marginal, queries on it, how far it can be trusted, rows, and a file that keeps it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.domain import Buffer, Clique, Cliques, CliqueVector, Domain
from consilience.domain.domain import names_of
from consilience.errors import ConsilienceError, DomainError
from consilience.measurements import Measurements, Query, as_query
from consilience.measurements.controls import Control
from consilience.memory import show_bytes
from consilience.model.closed_form import closed_form_holds
from consilience.model.diagnostics import Diagnostics, model_card
from consilience.model.files import write
from consilience.model.filters import Where, selection
from consilience.model.fit import Fit
from consilience.model.frames import table_frame
from consilience.model.impossible import NOTHING, Masks, trusted
from consilience.model.keeping import lasting
from consilience.model.out_of_model import check_method, check_size, inferred
from consilience.model.replicates import Replicates, affordable, replicates_of
from consilience.model.sampling import Rng, SampledRows, sample_rows
from consilience.model.trust import Basis, Near, Trust, basis_of, strongest_tree, trust_in
from consilience.model.uncertainty import (
    Question,
    Uncertainty,
    at_attributes,
    read_at,
    replicated,
    uncertainties,
)
from consilience.model.whole import Rounding, whole
from consilience.progress import Progress, quiet
from consilience.regions.pseudo_marginals import PseudoMarginals
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.mixture import Mixture
from consilience.tree.answers import Backbone
from consilience.tree.growth import backbone_of
from consilience.tree.kept import KeptBackbone
from consilience.tree.point import TreePoint, potentials

if TYPE_CHECKING:
    from consilience.records import Dataset


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """Consistent, non-negative pseudo-marginals of a table and what is known about them.

    `tau` holds one distribution per region of `graph`; answers are counts that sum to `total`.
    """

    domain: Domain
    total: float
    graph: RegionGraph
    tau: CliqueVector
    measurements: Measurements
    diagnostics: Diagnostics
    fit: Fit | None = None
    """The estimator that made it, which the bootstrap calls again."""
    total_known: bool = True
    """Whether the total was given, and not estimated."""
    tree: Backbone | None = None
    """The distribution over the whole domain that the tables were read off, where the fit kept one."""
    mixture: Mixture | None = None
    """The latent classes that the tables were pulled towards, where the fit has such."""
    state: Any = None
    """What a warm start goes on from; not saved."""
    replicates: Replicates | None = None
    """What errors are made of, where they were kept; `spread` makes them otherwise."""
    kept: KeptBackbone | None = None
    """The backbone as a file keeps it."""
    labels: Mapping[str, Sequence[str]] | None = None
    """What each code is called, where a schema says so; in no file of the model."""
    rounding: Rounding | None = None
    """How the tables became whole numbers; None where they are not."""

    def __post_init__(self) -> None:
        if not isinstance(self.measurements, Measurements):
            columns = Measurements.of(self.domain, self.measurements, empty=True)
            object.__setattr__(self, "measurements", columns)

    def marginal(self, attributes: str | Iterable[str], method: str = "auto") -> Buffer:
        """Expected counts over these attributes, axes in the order asked for; `trust(attributes)` says what they rest on.

        What is in the model is read off its tables. The rest is inferred: "auto" and "backbone" with global information,
        "local" by the paper's Problem 4, "product" as if independent, "expanded" by Theorem 3 (model/out_of_model.py).
        """
        return self.marginals([attributes], method)[0]

    def marginals(
        self,
        many: Iterable[str | Iterable[str]],
        method: str = "auto",
        *,
        progress: Progress | None = None,
    ) -> list[Buffer]:
        """`marginal` of many attribute sets; those that must be inferred are worked on together.

        progress sees steps of the backbone first, where it must be made, then of what is inferred.
        """
        check_method(method)
        if not isinstance(many, Iterable):
            raise DomainError(f"many attribute sets must be a list of them, got {many!r}")
        orders = [self._asked(attributes) for attributes in many]
        cliques = [self.domain.clique(order) for order in orders]
        tables = {c: self.known.table(c) for c in dict.fromkeys(cliques) if self.known.holds(c)}
        out = [c for c in dict.fromkeys(cliques) if c not in tables]
        for clique in out:
            check_size(self.domain, clique)
        rows = None if self.rounding is None else self.rounding.rows
        if rows is not None and method == "auto":
            tables |= {c: rows.marginal(c) / self.total for c in out}
        elif out:
            found, _ = inferred(
                self.known,
                out,
                method,
                lambda: self.prepare(progress),
                progress or quiet,
                self.masks,
                mixture=self.mixture,
            )
            tables |= dict(zip(out, found, strict=True))
        found = [
            self.total * read_at(self.domain, tables[c], order)
            for c, order in zip(cliques, orders, strict=True)
        ]
        return [
            np.rint(t) if self.is_whole(c) and method == "auto" else t
            for t, c in zip(found, cliques, strict=True)
        ]

    def is_whole(self, attributes: str | Iterable[str]) -> bool:
        """Whether the counts over these attributes are whole numbers: those of `whole()`, but for what its tables do not hold."""
        kept = self.rounding
        return kept is not None and (kept.rows is not None or self.in_model(attributes))

    def answer(self, attributes: str | Iterable[str], query: Query | Buffer) -> Buffer:
        """A linear query on the marginal of these attributes, its columns following the order asked for."""
        table = self.marginal(attributes)
        return as_query(query, table.size).apply(np.ascontiguousarray(table).reshape(-1))

    def count(self, where: Where, method: str = "auto") -> float:
        """Expected number of records that meet every condition: {"age": range(3, 5), "sex": 1}, in codes."""
        return self.counts([where], method)[0]

    def counts(
        self, many: Iterable[Where], method: str = "auto", *, progress: Progress | None = None
    ) -> list[float]:
        """`count` of many conditions."""
        chosen = [selection(self.domain, where) for where in many]
        tables = self.marginals([clique for clique, _ in chosen], method, progress=progress)
        return [
            float(t[np.ix_(*codes)].sum()) for t, (_, codes) in zip(tables, chosen, strict=True)
        ]

    def in_model(self, attributes: str | Iterable[str]) -> bool:
        """Whether the answer was fitted and not inferred: some measured clique (or region of the graph) holds the attributes."""
        return self.known.holds(self.domain.clique(self._asked(attributes)))

    def region_of(self, attributes: str | Iterable[str]) -> Clique:
        """The smallest region that contains these attributes, the first one among equals: where their answer is read."""
        clique = self.domain.clique(attributes)
        found = self.known.region_of(clique)
        if found is None:
            raise DomainError(
                f"some measured region must contain {clique}, none does; measure it, or a clique that holds it"
            )
        return found

    @property
    def backbone(self) -> Backbone:
        """The exact model of the most informative cliques, for what was not measured together: the model's own tree, or one that
        is built when it is first needed.
        """
        return self.prepare()

    def prepare(self, progress: Progress | None = None) -> Backbone:
        """`backbone`, made now if it is not there yet: seconds for large models, less where a file kept it."""
        if self.tree is not None:
            return self.tree
        if "_backbone" not in self.__dict__:
            found = None if self.kept is None else self.kept.restored(self.known)
            self.__dict__["_backbone"] = found or backbone_of(
                self.known, progress=progress or quiet
            )
        return self.__dict__["_backbone"]

    @cached_property
    def potentials(self) -> CliqueVector:
        """theta on the cliques of a junction tree: exp of their sum is the probability of a record, of the model where it is one
        distribution (global consistency, or a tree), else of its backbone. Minus infinity where a record cannot occur.
        """
        if self.tree is None and (point := TreePoint.of(self.graph)) is not None:
            return potentials(point.tree, point.rooted, self.tau)
        found = self.prepare()
        return potentials(found.tree, found.tree.rooted, found.beliefs)

    def lasting(self, count: int | None = None, progress: Progress | None = None) -> Model:
        """The model with what later questions need: its backbone and its replicates, so that a file of it keeps them.

        count: of replicates; as many as fit their budget unless given, none at all for 0.
        """
        return lasting(self, count, progress or quiet)

    def basis(self, attributes: str | Iterable[str]) -> Basis:
        """What `marginal(attributes)` rests on, in words: `trust` says more, and takes longer."""
        clique = self.domain.clique(self._asked(attributes))
        return basis_of(self.known, clique, self.cliques, lambda: self._strongest)

    @cached_property
    def _strongest(self) -> Near:
        return strongest_tree(self.known)

    def trust(
        self,
        attributes: str | Iterable[str],
        method: str = "auto",
        *,
        replicates: int = 0,
        rng: np.random.Generator | int = 0,
        progress: Progress | None = None,
    ) -> Trust:
        """What `marginal(attributes)` rests on. With replicates, standard errors by bootstrap as well."""
        check_method(method)
        order = self._asked(attributes)
        check_size(self.domain, self.domain.clique(order))
        rests = self.basis(order)
        found = trust_in(self.known, order, rests, method, lambda: self.prepare(progress))
        if replicates == 0:
            return found
        spread = self.uncertainty(
            order, method="bootstrap", replicates=replicates, rng=rng, progress=progress
        )
        return replace(found, stderr=spread.stderr, replicates=replicates)

    # -- how sure ------------------------------------------------------------------------------------

    def spread(self, progress: Progress | None = None) -> Replicates:
        """The replicates that errors are found from: those that were kept, or made now, once. As many as fit their budget."""
        if self.replicates is None and "_spread" not in self.__dict__:
            made = replicates_of(
                self, affordable(self), np.random.default_rng(0), progress or quiet
            )
            self.__dict__["_spread"] = made.rounded()
        return self.__dict__["_spread"] if self.replicates is None else self.replicates

    @cached_property
    def plain(self) -> bool:
        """Whether errors of the model's own tables are those of least squares, in closed form."""
        return closed_form_holds(self)

    def uncertainty(
        self,
        attributes: str | Iterable[str],
        query: Query | Buffer | None = None,
        *,
        method: str = "auto",
        replicates: int | None = None,
        rng: np.random.Generator | int | None = None,
        progress: Progress | None = None,
    ) -> Uncertainty:
        """The errors, in counts, of `marginal(attributes)` or, with a query, of `answer(attributes, query)`.

        method "closed-form": those of least squares under local consistency, right where no cell is near zero.
        "bootstrap": refits to the model's own answers with fresh noise. "auto": the closed form where it holds. Refits are
        the model's own (`spread`) unless a number of them, or `rng` (a generator or a seed), asks for others; progress sees them.
        """
        asked = [self._question(attributes, query)]
        return uncertainties(self, asked, method, replicates, rng, progress or quiet)[0]

    def uncertainties(
        self,
        marginals: Iterable[str | Iterable[str]],
        *,
        method: str = "auto",
        replicates: int | None = None,
        rng: np.random.Generator | int | None = None,
        progress: Progress | None = None,
    ) -> list[Uncertainty]:
        """`uncertainty` of many marginals from the same refits."""
        asked = [self._question(a, None) for a in marginals]
        return uncertainties(self, asked, method, replicates, rng, progress or quiet)

    def replicated(
        self,
        attributes: str | Iterable[str],
        query: Query | Buffer | None = None,
        *,
        progress: Progress | None = None,
    ) -> tuple[Buffer, Buffer]:
        """`marginal` or `answer`, and the same by every replicate: what errors of functions of counts are found from."""
        return replicated(self, *self._question(attributes, query), progress or quiet)

    def table(
        self,
        attributes: str | Iterable[str],
        level: float = 0.9,
        *,
        labels: Mapping[str, Sequence[str]] | None = None,
        progress: Progress | None = None,
    ) -> Any:
        """Counts with their errors, a row per cell: a frame of pandas, Polars or Arrow, the first that is installed.

        Columns are the attributes (labels of the domain, of the release that the model was read from, or as given; else codes),
        count, error, low and high.
        """
        order = self._asked(attributes)
        found = self.uncertainty(order, progress=progress)
        known = {**self.domain.labels, **(self.labels or {}), **(labels or {})}
        return table_frame(order, found.answer, found.stderr, found.interval(level), known)

    def stderr(
        self,
        attributes: str | Iterable[str],
        query: Query | Buffer | None = None,
        *,
        method: str = "auto",
        replicates: int | None = None,
        rng: np.random.Generator | int | None = None,
        progress: Progress | None = None,
    ) -> Buffer:
        """The standard error, in counts, of each number of `marginal(attributes)` or `answer(attributes, query)`."""
        found = self.uncertainty(
            attributes, query, method=method, replicates=replicates, rng=rng, progress=progress
        )
        return found.stderr

    def interval(
        self,
        attributes: str | Iterable[str],
        level: float = 0.9,
        query: Query | Buffer | None = None,
        *,
        method: str = "auto",
        replicates: int | None = None,
        rng: np.random.Generator | int | None = None,
        progress: Progress | None = None,
    ) -> tuple[Buffer, Buffer]:
        """(low, high) for each number of `marginal(attributes)` or `answer(attributes, query)`.

        docs/uncertainty.md says how they are made, how often such intervals hold the truth, and where they fall short.
        """
        if not 0 < level < 1:
            raise ConsilienceError(
                f"level must be between 0 and 1, got {level}"
            )  # before any refit
        found = self.uncertainty(
            attributes, query, method=method, replicates=replicates, rng=rng, progress=progress
        )
        return found.interval(level)

    # -- rows ----------------------------------------------------------------------------------------

    def sample(
        self,
        n: int,
        rng: Rng = None,
        *,
        sweeps: int | None = None,
        progress: Progress | None = None,
    ) -> Dataset:
        """n synthetic rows, columns as declared; the same for the same seed or generator, fresh with rng=None.

        A model that is one distribution (global consistency, or a tree) is sampled exactly: every row follows it.
        Other rows come from the backbone and are moved, `sweeps` times over, towards the model's tables: unless given 8 to 32
        times, by how many rows and tables there are. A number given is honoured for either kind. progress sees steps of the
        backbone first, where it must be made.
        """
        return sample_rows(self, n, rng, sweeps=sweeps, progress=progress or quiet).data

    def sample_with_report(
        self,
        n: int,
        rng: Rng = None,
        *,
        sweeps: int | None = None,
        progress: Progress | None = None,
    ) -> SampledRows:
        """`sample`, with the distance between the rows' tables and the model's."""
        return sample_rows(self, n, rng, sweeps=sweeps, progress=progress or quiet)

    # -- whole numbers -------------------------------------------------------------------------------

    def whole(self, progress: Progress | None = None) -> Model:
        """The model in whole numbers: tables of counts that agree with each other, keep every control and are near these.

        Where one table holds all that was measured (places within places, small domains) every cell, and every sum that
        readers look at, is one of the two whole numbers next to it, the nearest in L1. Elsewhere the tables are those of as many
        rows as there are records. `rounding` says which, and how far they are from these; errors stay those of the fit.
        """
        return self if self.rounding is not None else whole(self, progress or quiet)

    # -- files ---------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to one file (npz with JSON inside, no pickle), all of it or nothing."""
        write(path, self)

    @cached_property
    def cliques(self) -> Cliques:
        """The measured cliques."""
        return self.measurements.cliques.distinct(empty=False)

    def __repr__(self) -> str:
        d = self.diagnostics
        return (
            f"Model({len(self.domain)} attributes, total {self.total:,.6g}, {len(self.cliques)} measured cliques, "
            f"{self.graph.kind} consistency, {show_bytes(self.tau.values.nbytes)}; {d.status}, {d.short_gap})"
        )

    def _repr_html_(self) -> str:
        return model_card(self)

    # -- helpers ---------------------------------------------------------------------------------

    def _asked(self, attributes: str | Iterable[str]) -> Clique:
        order = names_of(attributes)
        if len(self.domain.named(order)) < len(order):
            raise DomainError(f"attributes must be distinct, got {order}; not two levels of one")
        return order

    def _question(self, attributes: str | Iterable[str], query: Query | Buffer | None) -> Question:
        order = self._asked(attributes)
        asked = None if query is None else as_query(query, self.domain.size(order))
        return at_attributes(self.domain, order, asked)

    @property
    def masks(self) -> Masks:
        """{clique: False where a combination cannot occur}."""
        return NOTHING if self.fit is None else self.fit.possible

    @property
    def controls(self) -> tuple[Control, ...]:
        """What is public without noise, and holds in every table and row."""
        return () if self.fit is None else tuple(self.fit.controls)

    @cached_property
    def known(self) -> PseudoMarginals:
        """The tables as questions see them."""
        stated = () if self.fit is None else self.fit.stated
        return trusted(self.graph, self.tau, self.cliques, stated)
