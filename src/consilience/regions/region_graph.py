"""RegionGraph: which cliques must agree on what (the paper's G = (V, E) and counting numbers kappa)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Clique, CliqueVector, Domain, Holders, Layout
from consilience.errors import RegionGraphError
from consilience.regions.junction_tree import JunctionTree
from consilience.regions.lattice import containments, intersection_closure, minimal_edges

EdgeArray = NDArray[np.int64]
Kappa = NDArray[np.float64]
AT_ONCE = 1 << 22
"""Cells of the larger tables that one comparison may copy."""


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
    regions: tuple[Clique, ...]
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
        given = [domain.clique(r) for r in regions]
        canonical = tuple(dict.fromkeys(given))
        index = {r: i for i, r in enumerate(canonical)}
        if () in index:
            raise RegionGraphError("a region must hold at least one attribute, got the empty one")
        if isinstance(edges, np.ndarray) and len(canonical) == len(given):
            pairs = np.asarray(edges, np.int64).reshape(-1, 2)
        else:
            pairs = _edge_pairs(domain, index, edges)
        object.__setattr__(self, "domain", domain)
        object.__setattr__(self, "regions", canonical)
        object.__setattr__(self, "edge_array", _checked_edges(domain, canonical, pairs))
        object.__setattr__(
            self,
            "counting_numbers",
            _checked_kappa(domain, canonical, self.edge_array, counting_numbers),
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
        rows = _positions(domain, [*cliques, *extra])
        lattice = containments(intersection_closure(rows))
        names = domain.attributes
        regions = [tuple([names[i] for i in r]) for r in lattice.members]
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
        rows = sorted(set(_positions(domain, cliques)), key=lambda r: (-len(r), r))
        singles = sorted({(a,) for r in rows for a in r} - set(rows))
        members = [*rows, *singles]
        place = {r: i for i, r in enumerate(members)}
        edges = [(place[r], place[(a,)]) for r in rows if len(r) > 1 for a in r]
        names = domain.attributes
        regions = [tuple(names[i] for i in r) for r in members]
        return cls(
            domain,
            regions,
            np.array(edges, np.int64).reshape(-1, 2),
            counting_numbers,
            kind=Kind.FACTOR_GRAPH,
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
    def cells(self) -> int:
        return sum(self.domain.size(r) for r in self.regions)

    def supports(self, cliques: Iterable[Iterable[str]]) -> bool:
        """Whether every clique lies inside some region."""
        return self.first_unsupported(cliques) is None

    def first_unsupported(self, cliques: Iterable[Iterable[str]]) -> Clique | None:
        for given in cliques:
            clique = self.domain.clique(given)
            if clique and clique not in self._index and not self.holders.of(clique):
                return clique
        return None

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
        return max(
            _negative_mass(tau), _mass_gap(tau), _edge_gap(tau, self.regions, self.edge_array)
        )

    def sum_from_parents(self, tau: CliqueVector) -> None:
        """Make every region that has parents its first parent's marginal, in place, the largest regions first."""
        parent_of: dict[int, int] = {}
        for p, c in self.edge_array.tolist():
            parent_of.setdefault(c, p)
        for c in sorted(parent_of, key=lambda c: -len(self.regions[c])):
            above, below = self.regions[parent_of[c]], set(self.regions[c])
            axes = tuple(i for i, a in enumerate(above) if a not in below)
            tau[self.regions[c]][...] = tau[above].sum(axis=axes)

    def __repr__(self) -> str:
        return (
            f"RegionGraph({self.kind}: {len(self.regions)} regions, {len(self.roots)} without parents, "
            f"{len(self.edge_array)} edges, {self.cells:,} cells)"
        )

    @cached_property
    def _index(self) -> Mapping[Clique, int]:
        return {r: i for i, r in enumerate(self.regions)}

    @cached_property
    def holders(self) -> Holders:
        """Which regions hold given attributes."""
        return Holders(self.regions)


# -- checks ------------------------------------------------------------------------------------------


def _checked_kind(kind: Kind | str) -> Kind:
    try:
        return Kind(kind)
    except ValueError:
        raise RegionGraphError(
            f"the kind of a region graph must be one of {', '.join(Kind)}, got {kind!r}"
        ) from None


def _positions(domain: Domain, cliques: Iterable[Iterable[str]]) -> list[tuple[int, ...]]:
    rows = [tuple(domain.axes(domain.clique(c))) for c in cliques]
    rows = [r for r in rows if r]
    if not rows:
        raise RegionGraphError(
            "a region graph must be built from at least one non-empty clique, got none"
        )
    return rows


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


def _checked_edges(domain: Domain, regions: tuple[Clique, ...], pairs: EdgeArray) -> EdgeArray:
    """Edges run from strict superset to subset; that alone rules out cycles."""
    if len(pairs) and (pairs.min() < 0 or pairs.max() >= len(regions)):
        raise RegionGraphError(
            f"edges must name regions by position 0 to {len(regions) - 1}, got {pairs.min()} to {pairs.max()}"
        )
    sets = [frozenset(r) for r in regions]
    for p, c in pairs.tolist():
        if not sets[c] < sets[p]:
            raise RegionGraphError(
                f"an edge must go from a region to a strict subset of it, got {regions[p]} -> {regions[c]}"
            )
    pairs = np.unique(pairs[:, ::-1], axis=0)[:, ::-1].copy()  # by child, then parent, each once
    pairs.setflags(write=False)
    return pairs


def _checked_kappa(
    domain: Domain,
    regions: tuple[Clique, ...],
    edges: EdgeArray,
    given: Mapping[Clique, float] | Kappa | float,
) -> Kappa:
    if isinstance(given, Mapping):
        known = {domain.clique(c): float(k) for c, k in given.items()}
        unknown = [c for c in known if c not in set(regions)]
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


def _edge_gap(tau: CliqueVector, regions: Sequence[Clique], edges: EdgeArray) -> float:
    """The largest L1 distance between a parent summed to its child and the child, over the edges."""
    worst = 0.0
    at = tau.layout.offsets
    for shape, axes, kept, pairs in _edges_by_shape(tau, regions, edges):
        parents = at[pairs[:, 0], None] + np.arange(int(np.prod(shape)))
        children = at[pairs[:, 1], None] + np.arange(int(np.prod(kept)))
        summed = tau.values[parents].reshape(-1, *shape).sum(axis=axes).reshape(len(pairs), -1)
        worst = max(worst, float(np.abs(summed - tau.values[children]).sum(axis=1).max()))
    return worst


def _edges_by_shape(
    tau: CliqueVector, regions: Sequence[Clique], edges: EdgeArray
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], EdgeArray]]:
    """(shape of the parent, axes to sum over, shape of the child, the edges of this kind), at most AT_ONCE cells each."""
    size = tau.layout.domain
    groups: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
    shapes = [tuple([size[a] for a in r]) for r in regions]
    for e, (p, c) in enumerate(edges.tolist()):
        inside = set(regions[c])
        axes = tuple([i + 1 for i, a in enumerate(regions[p]) if a not in inside])
        groups.setdefault((shapes[p], axes), []).append(e)
    for (shape, axes), members in groups.items():
        kept = tuple(n for i, n in enumerate(shape) if i + 1 not in axes)
        step = max(1, AT_ONCE // max(1, int(np.prod(shape))))
        for start in range(0, len(members), step):
            yield shape, axes, kept, edges[members[start : start + step]]
