"""Answers nobody measured: marginals of cliques that no measured clique contains.

"backbone": start from the backbone's exact marginal. "mixture": start from the marginal of the latent classes that the fit kept.
Either is followed by Problem 4's step to the closest table that agrees with the model on every overlap: it keeps local
consistency and long-range dependence. "local": the paper's Problem 4, maximum entropy. "auto" is "backbone"; of a model with
latent classes it is "local" where every pair of the attributes is in the model (decision 034).
"product": independent attributes, the paper's rule for factor graphs. "expanded": Convex-GBP on the graph with the clique
added and a counting number near zero (Theorem 3); for comparison, it is slow.

Problem 4 starts from any table: it finds the one that violates its overlaps with the model least, and among those the closest
in KL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, Clique, CliqueVector, Domain
from consilience.errors import ConsilienceError
from consilience.kernels import projection
from consilience.kernels.threads import spread
from consilience.memory import check_capacity
from consilience.model.impossible import NOTHING, Masks, emptied
from consilience.progress import Progress, Step, quiet
from consilience.regions.pseudo_marginals import PseudoMarginals
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.convex_gbp import convex_gbp
from consilience.solvers.mixture import Mixture
from consilience.tree.answers import Backbone

TOLERANCE = 1e-10
"""Overlaps that can be met are met to this, in L1."""
ROUGH, ROUGH_CYCLES = 1e-3, 30
CHUNK_CELLS = 1 << 23
"""Cells that are worked on at a time."""

Start = Callable[[Clique], Buffer]


def uniform_start(known: PseudoMarginals) -> Start:
    """The start that gives maximum entropy: the paper's Problem 4."""
    domain = known.domain
    return lambda clique: np.full(domain.shape_of(clique), 1.0 / domain.size(clique))


def project(
    known: PseudoMarginals,
    cliques: Sequence[Clique],
    start: Start,
    progress: Progress = quiet,
    *,
    rough: bool = False,
) -> tuple[list[Buffer], Buffer]:
    """One distribution per clique, projected from its start onto agreement with the model; and what violation is left.

    The violation of a clique is the largest L1 distance to one of its maximal overlaps. `rough` stops at an agreement of
    ROUGH, or after ROUGH_CYCLES cycles.
    """
    tables: list[Buffer] = []
    violations = np.zeros(len(cliques))
    lo = 0
    while lo < len(cliques):
        hi, cells = lo, 0
        while hi < len(cliques) and (
            hi == lo or cells + known.domain.size(cliques[hi]) <= CHUNK_CELLS
        ):
            cells += known.domain.size(cliques[hi])
            hi += 1
        tables += _batch(known, cliques[lo:hi], start, violations[lo:hi], rough)
        lo = hi
        progress(Step("inferring marginals", lo, len(cliques)))
    return tables, violations


def _batch(
    known: PseudoMarginals,
    cliques: Sequence[Clique],
    start: Start,
    violations: Buffer,
    rough: bool,
) -> list[Buffer]:
    domain = known.domain
    x = [np.ascontiguousarray(start(c), np.float64).reshape(-1) for c in cliques]
    at = np.concatenate([[0], np.cumsum([len(t) for t in x])]).astype(np.int64)
    ptr, map_at, pool, targets = [0], [], [np.zeros(0, np.int32)], [np.zeros(0)]
    places: dict[tuple[tuple[int, ...], tuple[bool, ...]], int] = {}
    used = 0
    for clique in cliques:
        for part in known.overlaps(clique):
            key = (domain.shape_of(clique), tuple([a in part for a in clique]))
            if key not in places:
                places[key] = used
                pool.append(_map(*key))
                used += len(pool[-1])
            map_at.append(places[key])
            targets.append(known.table(part).reshape(-1))
        ptr.append(len(map_at))
    problem = projection.Problem(
        at=at,
        ptr=np.array(ptr, np.int64),
        map_at=np.array(map_at, np.int64),
        maps=np.concatenate(pool),
        target_at=np.cumsum([len(t) for t in targets]).astype(np.int64),
        target=np.concatenate(targets),
    )
    flat = np.concatenate(x)
    begun = flat.copy()
    limits = (ROUGH, ROUGH_CYCLES) if rough else (TOLERANCE, projection.CYCLES)
    work = len(flat) * limits[1]
    spread(projection.fit, len(cliques), work, problem, flat, violations, *limits)
    if not rough and violations.max(initial=0.0) > TOLERANCE:
        spread(projection.descend, len(cliques), work, problem, flat, begun, violations, TOLERANCE)
    return [flat[at[i] : at[i + 1]].reshape(domain.shape_of(c)) for i, c in enumerate(cliques)]


def _map(shape: tuple[int, ...], kept: tuple[bool, ...]) -> NDArray[np.int32]:
    """Which cell of the table over the kept axes each cell belongs to."""
    small = [n if k else 1 for n, k in zip(shape, kept, strict=True)]
    cells = np.arange(int(np.prod(small)), dtype=np.int32).reshape(small)
    return np.ascontiguousarray(np.broadcast_to(cells, shape)).reshape(-1)


METHODS = ("auto", "mixture", "backbone", "local", "product", "expanded")
SMALL = 1e-3
"""Counting number of an added region in place of Theorem 3's limit zero."""
WORTH = 0.01
"""A question is widened for a clique that the backbone misses by this much in L1, or more."""
WIDE_CELLS = 1 << 16
WIDE_MESSAGE = 1 << 21
"""Cells of a widened question, and of the largest message that it needs."""
MOST_BYTES = 4 * 2**30
"""For one inferred table and what it is made from."""
LEAST = 1e-12
"""Cells at zero are given this much before their logarithm is taken."""


def check_method(method: str) -> None:
    if method not in METHODS:
        raise ConsilienceError(f"method must be one of {', '.join(METHODS)}, got {method!r}")


def check_size(domain: Domain, clique: Clique) -> None:
    """Refuse a table that would not fit in memory before anything is allocated."""
    check_capacity(
        f"a table over {len(clique)} attributes", 4 * 8 * domain.size(clique), MOST_BYTES
    )


def inferred(
    known: PseudoMarginals,
    cliques: Sequence[Clique],
    method: str,
    backbone: Callable[[], Backbone],
    progress: Progress = quiet,
    masks: Masks = NOTHING,
    *,
    mixture: Mixture | None = None,
    rough: bool = False,
) -> tuple[list[Buffer], Buffer]:
    """Distributions of cliques that are not in the model, and how far each is from agreeing with it (largest L1).

    masks: combinations that cannot occur, which no answer shows. mixture: where the fit kept one. `rough` is content with
    agreement as in `project`.
    """
    if method == "auto" and mixture is not None:
        return _by_pairs(known, cliques, backbone, progress, masks, rough)

    def cleared(clique: Clique, table: Buffer) -> Buffer:
        return emptied(known.domain, masks, clique, table)

    if method == "mixture" and mixture is None:
        raise ConsilienceError(
            "method 'mixture' needs a model with latent classes, this one has none; reconstruct with fit=LatentClasses(), or use "
            "method='auto'"
        )
    if method == "mixture" and mixture is not None:
        start = mixture.marginal
        found, left = project(known, cliques, lambda c: cleared(c, start(c)), progress, rough=rough)
    elif method in ("auto", "backbone"):
        found, left = _by_backbone(known, cliques, backbone(), progress, cleared, rough)
    elif method == "local":
        start = uniform_start(known)
        found, left = project(known, cliques, lambda c: cleared(c, start(c)), progress, rough=rough)
    else:
        found = []
        for k, clique in enumerate(cliques):
            found.append(
                _product(known, clique) if method == "product" else expanded(known, clique)
            )
            progress(Step("inferring marginals", k + 1, len(cliques)))
        left = np.array([violation(known, c, t) for c, t in zip(cliques, found, strict=True)])
    return [cleared(c, t) for c, t in zip(cliques, found, strict=True)], left


def _by_pairs(
    known: PseudoMarginals,
    cliques: Sequence[Clique],
    backbone: Callable[[], Backbone],
    progress: Progress,
    masks: Masks,
    rough: bool,
) -> tuple[list[Buffer], Buffer]:
    """Maximum entropy where every pair is in the model, which then tells all that is known; else from the backbone."""
    tables: dict[Clique, Buffer] = {}
    left: dict[Clique, float] = {}
    told = [known.holds_pairs(c) for c in cliques]
    for method, inside in (("local", True), ("backbone", False)):
        some = [c for c, t in zip(cliques, told, strict=True) if t is inside]
        if some:
            found, far = inferred(known, some, method, backbone, progress, masks, rough=rough)
            tables |= dict(zip(some, found, strict=True))
            left |= dict(zip(some, far.tolist(), strict=True))
    return [tables[c] for c in cliques], np.array([left[c] for c in cliques])


def _by_backbone(
    known: PseudoMarginals,
    cliques: Sequence[Clique],
    backbone: Backbone,
    progress: Progress,
    cleared: Callable[[Clique, Buffer], Buffer],
    rough: bool,
) -> tuple[list[Buffer], Buffer]:
    """The backbone's marginals, projected onto agreement with the model.

    Where the backbone misses a clique that touches the question, the marginal of both together is projected first, so that what
    the backbone lacks can come in.
    """
    wider = {c: _widened(known.domain, c, backbone) for c in cliques}
    wide = [c for c in cliques if wider[c] != c]

    def start(clique: Clique) -> Buffer:
        return cleared(clique, backbone.marginal(clique))

    together, _ = project(known, [wider[c] for c in wide], start, rough=True)
    starts = {
        c: table.sum(axis=tuple(i for i, a in enumerate(wider[c]) if a not in c))
        for c, table in zip(wide, together, strict=True)
    }

    def started(clique: Clique) -> Buffer:
        return starts[clique] if clique in starts else start(clique)

    return project(known, cliques, started, progress, rough=rough)


def _widened(domain: Domain, clique: Clique, backbone: Backbone) -> Clique:
    """The clique with the one that touches it and that the backbone misses most, if it adds one attribute and stays cheap."""
    for missed, distance in backbone.missed:
        if distance < WORTH:
            break
        wide = domain.clique({*clique, *missed})
        near = len(wide) == len(clique) + 1 and not set(clique).isdisjoint(missed)
        if (
            near
            and domain.size(wide) <= WIDE_CELLS
            and backbone.answers.price(wide) <= WIDE_MESSAGE
        ):
            return wide
    return clique


def violation(known: PseudoMarginals, clique: Clique, table: Buffer) -> float:
    """The largest L1 distance between a table and the model on one of their maximal overlaps."""
    worst = 0.0
    for part in known.overlaps(clique):
        axes = tuple(i for i, a in enumerate(clique) if a not in part)
        worst = max(worst, float(np.abs(table.sum(axis=axes) - known.table(part)).sum()))
    return worst


def _product(known: PseudoMarginals, clique: Clique) -> Buffer:
    """The product of the one-way marginals."""
    table = np.ones(())
    for a in clique:
        table = np.multiply.outer(table, known.table((a,)))
    return table


def expanded(known: PseudoMarginals, clique: Clique, counting_number: float = SMALL) -> Buffer:
    """Theorem 3: Convex-GBP on the graph that the new clique and its overlaps extend, their counting numbers near zero.

    The model's own potentials are those of its tables: with theta_r = kappa_r log tau_r the tables are what Convex-GBP
    returns on the old graph, because they are locally consistent.
    """
    graph = known.graph
    overlaps = [p for p in known.overlaps(clique) if p not in set(graph.regions)]
    regions = [*graph.regions, clique, *overlaps]
    edges = [*graph.edges, *((clique, p) for p in known.overlaps(clique))]
    edges += [(known.region_of(p) or p, p) for p in overlaps]
    new = {clique: counting_number, **dict.fromkeys(overlaps, counting_number)}
    kappa = dict(zip(graph.regions, graph.counting_numbers.tolist(), strict=True)) | new
    wider = RegionGraph(graph.domain, regions, edges, kappa)
    theta = CliqueVector.zeros(graph.domain, regions)
    for region, table in known.tau.items():
        theta[region][...] = kappa[region] * np.log(np.maximum(table, LEAST))
    return convex_gbp(wider, theta, tolerance=1e-8)[clique]
