"""Schedules: in which order, and how strongly, the regions of a graph are brought to agreement.

A stage updates some child regions at once. Updating child t touches t and its parents. Where the updates of a stage touch
a region m times in all, weighting each by 1/m keeps the dual of Problem 3 from rising: the dual is a sum of one
convex term per region, so the averaged update is at most the average of the full ones (Jensen).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from consilience.errors import RegionGraphError
from consilience.kernels.agreement import Children, Order
from consilience.kernels.tables import Work
from consilience.regions.wiring import Ints, Wiring, chunks, group


@dataclass(frozen=True)
class Stage:
    """Children that are updated at once, and their parents with the edges between them."""

    children: Children
    parents: Work


def joined(stages: tuple[Stage, ...]) -> tuple[Order, Children, Work]:
    """All stages in one set of arrays, so that a whole sweep is one call of a kernel."""
    children, parents = [s.children for s in stages], [s.parents for s in stages]
    weight = np.concatenate([np.zeros(0), *(c.weight for c in children)])
    order = Order(_starts([c.region for c in children]), _starts([p.chunk[1:] for p in parents]))
    first = _starts([p.region for p in parents])
    chunk = _flat([p.chunk[:-1] + at for p, at in zip(parents, first, strict=False)], first[-1:])
    return (
        order,
        Children(_flat([c.region for c in children]), *_lists(children), weight),
        Work(chunk, _flat([p.region for p in parents]), *_lists(parents)),
    )


def _lists(parts: Sequence[Children] | Sequence[Work]) -> tuple[Ints, Ints]:
    """(ptr, edge) of lists that follow one another."""
    edges = [p.edge for p in parts]
    ptr = [p.ptr[:-1] + at for p, at in zip(parts, _starts(edges), strict=False)]
    return _flat(ptr, _starts(edges)[-1:]), _flat(edges)


def _starts(parts: Sequence[Ints]) -> Ints:
    """Where each of some arrays begins when they follow one another, and where the last one ends."""
    return np.cumsum([0, *(len(p) for p in parts)]).astype(np.int64)


def _flat(parts: Sequence[Ints], end: Ints | None = None) -> Ints:
    last = [] if end is None else [end]
    return np.concatenate([np.zeros(0, np.int64), *parts, *last]).astype(np.int64)


def parallel_schedule(wiring: Wiring) -> tuple[Stage, ...]:
    """One stage per level of the graph, damped so that the dual cannot rise."""
    depth = _depths(wiring)
    child = wiring.edges.child
    return tuple(
        _stage(wiring, np.flatnonzero(depth == d), damped=True)
        for d in range(1, int(depth.max(initial=0)) + 1)
        if len(child)
    )


def sequential_schedule(wiring: Wiring) -> tuple[Stage, ...]:
    """Stages of children that share no parent (greedy colouring level by level), each updated in full."""
    depth = _depths(wiring)
    stages = []
    for d in range(1, int(depth.max(initial=0)) + 1):
        members = np.flatnonzero(depth == d)
        colour = _colour(wiring, members)
        stages += [
            _stage(wiring, members[colour == k], damped=False) for k in range(int(colour.max()) + 1)
        ]
    return tuple(stages)


SCHEDULES = {"parallel": parallel_schedule, "sequential": sequential_schedule}


def schedule(wiring: Wiring, name: str) -> tuple[Stage, ...]:
    if name not in SCHEDULES:
        raise RegionGraphError(f"schedule must be one of {', '.join(SCHEDULES)}, got {name!r}")
    return SCHEDULES[name](wiring)


def _depths(wiring: Wiring) -> Ints:
    """Longest way down from a region without parents."""
    parent, child = wiring.edges.parent, wiring.edges.child
    depth = np.zeros(len(wiring.tables.members), np.int64)
    if not len(child):
        return depth
    for _ in range(len(depth)):
        deeper = depth.copy()
        np.maximum.at(deeper, child, depth[parent] + 1)
        if np.array_equal(deeper, depth):
            break
        depth = deeper
    return depth


def _stage(wiring: Wiring, children: Ints, *, damped: bool) -> Stage:
    edges = wiring.edges
    wanted = np.zeros(len(wiring.tables.members), bool)
    wanted[children] = True
    chosen = np.flatnonzero(wanted[edges.child])
    local = np.full(len(wanted), -1, np.int64)
    local[children] = np.arange(len(children))
    child_ptr, order = group(local[edges.child[chosen]], len(children))
    child_edge = chosen[order]
    parents = np.unique(edges.parent[chosen])
    slot = np.full(len(wanted), -1, np.int64)
    slot[parents] = np.arange(len(parents))
    by_kind = chosen[np.argsort(edges.kind[chosen], kind="stable")]  # the kernels want kind 0 first
    parent_ptr, order = group(slot[edges.parent[by_kind]], len(parents))
    parent_edge = by_kind[order]
    weight = np.ones(len(children))
    if damped and len(chosen):
        # Children of a stage are never parents in it (they lie at one depth), so a parent is touched once per edge.
        touched = np.diff(parent_ptr)[slot[edges.parent[chosen]]]
        crowd = np.ones(len(children), np.int64)
        np.maximum.at(crowd, local[edges.child[chosen]], touched)
        weight = 1.0 / crowd
    return Stage(
        Children(children.astype(np.int64), child_ptr, child_edge, weight),
        Work(
            chunks(wiring.tables.cells[parents]), parents.astype(np.int64), parent_ptr, parent_edge
        ),
    )


def _colour(wiring: Wiring, members: Ints) -> Ints:
    """Greedy colours such that two members with a common parent differ."""
    edges = wiring.edges
    by_child, child_items = group(edges.child, len(wiring.tables.members))
    taken: dict[int, set[int]] = {}
    colour = np.zeros(len(members), np.int64)
    for i, t in enumerate(members.tolist()):
        parents = edges.parent[child_items[by_child[t] : by_child[t + 1]]].tolist()
        used = set().union(*(taken.get(p, set()) for p in parents))
        k = 0
        while k in used:
            k += 1
        colour[i] = k
        for p in parents:
            taken.setdefault(p, set()).add(k)
    return colour
