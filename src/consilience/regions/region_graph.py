"""RegionGraph: which cliques must agree on what (the paper's G = (V, E) and counting numbers kappa)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Clique, Cliques, CliqueVector, Domain, Family, Holders, Layout
from consilience.domain.moves import AT_ONCE, span_of
from consilience.domain.rows import grouped
from consilience.errors import RegionGraphError
from consilience.regions.junction_tree import JunctionTree
from consilience.regions.lattice import (
    alike,
    containments,
    intersection_closure,
    kept_axes,
    minimal_edges,
    ordered,
)

EdgeArray = NDArray[np.int64]
Kappa = NDArray[np.float64]


class Kind(StrEnum):
    """How a region graph was built, and with it what its local polytope is known to be."""

    SATURATED = "saturated"
    FACTOR_GRAPH = "factor graph"
    JUNCTION_TREE = "junction tree"
    CUSTOM = "custom"

    @classmethod
    def _missing_(cls, value: object) -> Kind | None:
        """Model files of version 0.1 called a factor graph "factor"."""
        return cls.FACTOR_GRAPH if value == "factor" else None


@dataclass(frozen=True, eq=False, repr=False)
class RegionGraph:
    """An immutable region graph: regions, edges from parent to child, one positive counting number per region.

    `edge_array` has one row (parent, child) of positions in `regions` per edge. The local polytope L(G) is the set of
    non-negative tables that each sum to one and agree along every edge.
    """

    domain: Domain
    regions: Cliques
    edge_array: EdgeArray
    counting_numbers: Kappa
    kind: Kind

    def __init__(
        self,
        domain: Domain,
        regions: Iterable[Iterable[str]],
        edges: Iterable[tuple[Iterable[str], Iterable[str]]] | EdgeArray,
        counting_numbers: Mapping[Clique, float] | Kappa | float = 1.0,
        kind: Kind | str = Kind.CUSTOM,
    ) -> None:
        given = Cliques.of(domain, regions)
        canonical = given.distinct()
        if not canonical.sets.ranks.all():
            raise RegionGraphError("a region must hold at least one attribute, got the empty one")
        if isinstance(edges, np.ndarray) and len(canonical) == len(given):
            pairs = np.asarray(edges, np.int64).reshape(-1, 2)
        else:
            pairs = _edge_pairs(domain, canonical.places, edges)
        object.__setattr__(self, "domain", domain)
        object.__setattr__(self, "regions", canonical)
        object.__setattr__(self, "edge_array", _checked_edges(canonical, pairs))
        object.__setattr__(
            self,
            "counting_numbers",
            _checked_kappa(canonical, self.edge_array, counting_numbers),
        )
        object.__setattr__(self, "kind", _checked_kind(kind))

    # -- builders --------------------------------------------------------------------------------

    @classmethod
    def saturated(
        cls,
        domain: Domain,
        cliques: Iterable[Iterable[str]],
        *,
        extra: Iterable[Iterable[str]] = (),
        minimal: bool = True,
        counting_numbers: Mapping[Clique, float] | float = 1.0,
    ) -> RegionGraph:
        """The cliques and all their intersections, with Hasse edges (the paper's default graph).

        `extra` cliques over-saturate: they join the graph though nothing measures them. `minimal` drops edges that the
        others imply (same local polytope, fewer edges).
        """
        sets = _positions(domain, cliques, extra)
        lattice = containments(intersection_closure(sets))
        regions = Cliques(domain, lattice.members)
        edges = np.stack([lattice.above[lattice.direct], lattice.below[lattice.direct]], axis=1)
        if minimal:
            edges = minimal_edges(edges, lattice.below, lattice.above)
        return cls(domain, regions, edges, counting_numbers, kind=Kind.SATURATED)

    @classmethod
    def factor_graph(
        cls,
        domain: Domain,
        cliques: Iterable[Iterable[str]],
        *,
        counting_numbers: Mapping[Clique, float] | float = 1.0,
    ) -> RegionGraph:
        """The cliques and the single attributes: tables agree on one-way marginals only."""
        given = _positions(domain, cliques)
        rows = ordered(given.take(given.first_of_each()))
        used = Family.of_rows(np.unique(rows.flat)[:, None])
        members = Family.joined([rows, used.take(np.flatnonzero(rows.find(used) < 0))])
        place = np.zeros(len(domain), np.int64)
        place[used.flat] = members.find(used)
        owner = np.repeat(np.arange(len(rows)), rows.ranks)
        wide = rows.ranks[owner] > 1
        edges = np.stack([owner[wide], place[rows.flat[wide]]], axis=1)
        return cls(
            domain, Cliques(domain, members), edges, counting_numbers, kind=Kind.FACTOR_GRAPH
        )

    @classmethod
    def junction_tree(
        cls,
        domain: Domain,
        cliques: Iterable[Iterable[str]],
        *,
        counting_numbers: Mapping[Clique, float] | float = 1.0,
        tree: JunctionTree | None = None,
    ) -> RegionGraph:
        """The cliques and separators of a junction tree: local consistency there is global consistency.

        tree: the junction tree of these cliques, where it was built already.
        """
        tree = JunctionTree.of(domain, cliques) if tree is None else tree
        regions = list(dict.fromkeys([*tree.cliques, *(s for s in tree.separators if s)]))
        edges = dict.fromkeys(
            (tree.cliques[end], sep)
            for (a, b), sep in zip(tree.edges, tree.separators, strict=True)
            for end in (a, b)
            if sep
        )
        return cls(domain, regions, edges, counting_numbers, kind=Kind.JUNCTION_TREE)

    # -- reading ---------------------------------------------------------------------------------

    @property
    def edges(self) -> tuple[tuple[Clique, Clique], ...]:
        """(parent, child) pairs of cliques."""
        return tuple((self.regions[p], self.regions[c]) for p, c in self.edge_array)

    @cached_property
    def layout(self) -> Layout:
        return Layout(self.domain, self.regions)

    @cached_property
    def roots(self) -> NDArray[np.int64]:
        """Positions of the regions without parents; their tables determine all others."""
        child = np.zeros(len(self.regions), bool)
        child[self.edge_array[:, 1]] = True
        return np.flatnonzero(~child)

    @property
    def root_cliques(self) -> Cliques:
        return self.regions.take(self.roots)

    @property
    def cells(self) -> int:
        return self.regions.cells

    def supports(self, cliques: Iterable[Iterable[str]]) -> bool:
        """Whether every clique lies inside some region."""
        return self.first_unsupported(cliques) is None

    def first_unsupported(self, cliques: Iterable[Iterable[str]]) -> Clique | None:
        return Cliques.of(self.domain, cliques).first_outside(self.regions)

    def with_counting_numbers(
        self, counting_numbers: Mapping[Clique, float] | float
    ) -> RegionGraph:
        return RegionGraph(self.domain, self.regions, self.edge_array, counting_numbers, self.kind)

    def local_polytope_violation(self, tau: CliqueVector) -> float:
        """How far tau is from L(G): the largest of negative mass, |sum - 1| and the L1 gap along an edge."""
        if tau.cliques != self.regions:
            raise RegionGraphError(
                f"tau must have one table per region of the graph ({len(self.regions)}), got {len(tau)} other cliques"
            )
        if not np.isfinite(tau.values).all():
            return np.inf
        return max(_negative_mass(tau), _mass_gap(tau), _edge_gap(tau, self.edge_array))

    def sum_from_parents(self, tau: CliqueVector) -> None:
        """Make every region that has parents its first parent's marginal, in place, the largest regions first."""
        children, first = np.unique(self.edge_array[:, 1], return_index=True)
        ranks = self.regions.sets.ranks[children]
        for level in reversed(grouped(ranks)):
            edges = self.edge_array[first[level]]
            for _, cells, summed in _summed_down(tau, edges):
                tau.values[cells] = summed.reshape(-1) if isinstance(cells, slice) else summed

    def __repr__(self) -> str:
        return (
            f"RegionGraph({self.kind}: {len(self.regions)} regions, {len(self.roots)} without parents, "
            f"{len(self.edge_array)} edges, {self.cells:,} cells)"
        )

    @property
    def holders(self) -> Holders:
        """Which regions hold given attributes."""
        return self.regions.holders


# -- checks ------------------------------------------------------------------------------------------


def _checked_kind(kind: Kind | str) -> Kind:
    try:
        return Kind(kind)
    except ValueError:
        raise RegionGraphError(
            f"the kind of a region graph must be one of {', '.join(Kind)}, got {kind!r}"
        ) from None


def _positions(domain: Domain, *families: Iterable[Iterable[str]]) -> Family:
    """All non-empty cliques of some families."""
    sets = Family.joined(Cliques.of(domain, f).sets for f in families)
    found = sets.take(np.flatnonzero(sets.ranks > 0))
    if not len(found):
        raise RegionGraphError(
            "a region graph must be built from at least one non-empty clique, got none"
        )
    return found


def _edge_pairs(
    domain: Domain,
    index: Mapping[Clique, int],
    edges: Iterable[tuple[Iterable[str], Iterable[str]]],
) -> EdgeArray:
    pairs = []
    for parent, child in edges:
        ends = domain.clique(parent), domain.clique(child)
        for end in ends:
            if end not in index:
                raise RegionGraphError(
                    f"both ends of an edge must be regions, got {end}; add it to the regions"
                )
        pairs.append((index[ends[0]], index[ends[1]]))
    return np.array(list(dict.fromkeys(pairs)), np.int64).reshape(-1, 2)


def _checked_edges(regions: Cliques, pairs: EdgeArray) -> EdgeArray:
    """Edges run from strict superset to subset; that alone rules out cycles."""
    if len(pairs) and (pairs.min() < 0 or pairs.max() >= len(regions)):
        raise RegionGraphError(
            f"edges must name regions by position 0 to {len(regions) - 1}, got {pairs.min()} to {pairs.max()}"
        )
    for e, kept in kept_axes(regions.sets, regions.sets, pairs):
        few = regions.sets.ranks[pairs[e[0], 1]]
        wrong = (kept.sum(axis=1) < few) | (kept.shape[1] <= few)
        if wrong.any():
            p, c = pairs[e[int(np.argmax(wrong))]]
            raise RegionGraphError(
                f"an edge must go from a region to a strict subset of it, got {regions[p]} -> {regions[c]}"
            )
    keys = pairs[:, 1] * len(regions) + pairs[:, 0]  # by child, then parent, each once
    if not (np.diff(keys) > 0).all():
        pairs = pairs[np.unique(keys, return_index=True)[1]]
    pairs = pairs.copy()
    pairs.setflags(write=False)
    return pairs


def _checked_kappa(
    regions: Cliques, edges: EdgeArray, given: Mapping[Clique, float] | Kappa | float
) -> Kappa:
    if isinstance(given, Mapping):
        known = {regions.domain.clique(c): float(k) for c, k in given.items()}
        unknown = [c for c in known if c not in regions.places]
        if unknown:
            raise RegionGraphError(f"counting numbers must be given for regions, got {unknown[0]}")
        kappa = np.array([known.get(r, 1.0) for r in regions])
    else:
        kappa = np.broadcast_to(np.asarray(given, np.float64), (len(regions),)).copy()
    has_parent = np.zeros(len(regions), bool)
    has_parent[edges[:, 1]] = True
    has_child = np.zeros(len(regions), bool)
    has_child[edges[:, 0]] = True
    # Paper: kappa > 0 everywhere. Here: zero is allowed for a region with parents and no children, whose table is then
    # a mean of what its parents say; strict convexity comes from the parents.
    may_be_zero = has_parent & ~has_child
    bad = ~np.isfinite(kappa) | (kappa < 0) | ((kappa == 0) & ~may_be_zero)
    if bad.any():
        i = int(np.flatnonzero(bad)[0])
        raise RegionGraphError(
            f"counting numbers must be positive and finite (zero only for a region that has parents and no children), "
            f"got {kappa[i]} for {regions[i]}"
        )
    kappa.setflags(write=False)
    return kappa


# -- how far tables are from agreeing: edges of equal shape are compared together, whatever their number ---


def _negative_mass(tau: CliqueVector) -> float:
    """The largest sum of negative cells of one table."""
    return float(
        -np.add.reduceat(np.minimum(tau.values, 0), tau.layout.offsets[:-1]).min(initial=0.0)
    )


def _mass_gap(tau: CliqueVector) -> float:
    """The largest |sum - 1| of one table."""
    return float(np.abs(np.add.reduceat(tau.values, tau.layout.offsets[:-1]) - 1).max(initial=0.0))


def _edge_gap(tau: CliqueVector, edges: EdgeArray) -> float:
    """The largest L1 distance between a parent summed to its child and the child, over the edges."""
    worst = 0.0
    for part, cells, summed in _summed_down(tau, edges):
        apart = np.abs(summed - tau.values[cells].reshape(len(part), -1))
        worst = max(worst, float(apart.sum(axis=1).max()))
    return worst


def _summed_down(
    tau: CliqueVector, edges: EdgeArray
) -> Iterator[tuple[NDArray[np.int64], Any, NDArray[np.float64]]]:
    """(edges, the cells of their children, the parents summed to these, a row each), edges of one shape at a time."""
    sets, at = tau.cliques.sets, tau.layout.offsets
    for which, shape, stay in alike(sets, sets, edges, np.array(tau.domain.shape)):
        axes = tuple(i + 1 for i, kept in enumerate(stay) if not kept)
        many, few = prod(shape), prod(n for n, kept in zip(shape, stay, strict=True) if kept)
        step = max(1, AT_ONCE // many)
        for first in range(0, len(which), step):
            part = which[first : first + step]
            parents = tau.values[span_of(at[edges[part, 0]], many)].reshape(-1, *shape)
            summed = parents.sum(axis=axes).reshape(len(part), few)
            yield part, span_of(at[edges[part, 1]], few), summed
