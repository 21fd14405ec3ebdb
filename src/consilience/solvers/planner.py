"""Planner: what a reconstruction would cost in bytes and seconds, decided before anything is allocated."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NoReturn

from consilience.domain import Clique, Domain, closure, maximal
from consilience.errors import CapacityError, ConsilienceError
from consilience.markup import html_table
from consilience.memory import parse_bytes, show_bytes
from consilience.regions.junction_tree import JunctionTree
from consilience.regions.region_graph import RegionGraph

CONSISTENCIES = ("global", "local", "factor")
SOLVERS = ("splitting", "prox")

# Buffers of one float64 per cell alive at the peak of a solve, and passes over cells per second on two cores. Names, offsets
# and edges of cliques matter where these are small and many: with all 1.3 million triples of 200 attributes of size 4 a
# reconstruction grew by 7.8 GB, 4.7 of them tables.
ROOT_BUFFERS = {"splitting": 5.0, "prox": 9.0}
CELL_PASSES_PER_SECOND = 1.5e8
TYPICAL_ITERATIONS = {"splitting": 300, "prox": 1500}
GLOBAL_TIMES_AS_MANY = 30
"""Junction-tree tables that nothing measures directly: three times the work in an iteration, and as a rule ten times as many.

How many is a matter of the data: from fewer than these to many times more (Titanic's 28 pairs, 1.6 million cells: thousands).
"""
TIME_LIMIT = 60.0
"""Seconds that "auto" may spend on global consistency, by the plan's own estimate: operations counted, no clock read."""
BASE_BYTES = 2_000_000
CLIQUE_BYTES = 2_300


@dataclass(frozen=True)
class Option:
    """One way to reconstruct: which consistency, how many cells, bytes at the peak, rough seconds.

    fits: the memory budget. quick: whether it keeps to the time limit.
    """

    consistency: str
    cells: int
    bytes: int
    seconds: float
    fits: bool
    quick: bool = True


@dataclass(frozen=True)
class Plan:
    """The choice and what it was chosen from. `print(plan)` is for people."""

    consistency: str
    solver: str
    bytes: int
    budget: int
    seconds: float
    cliques: int
    reason: str
    options: tuple[Option, ...]
    time_limit: float = TIME_LIMIT
    make_graph: Callable[[], RegionGraph] | None = field(default=None, repr=False, compare=False)
    """Builds the region graph of the choice; None in a plan that was read from a file."""

    @cached_property
    def graph(self) -> RegionGraph:
        """The region graph of the choice, built when it is first asked for."""
        if self.make_graph is None:
            raise ConsilienceError("a plan that was read from a file has no graph; plan again")
        return self.make_graph()

    def __str__(self) -> str:
        lines = [
            f"reconstruct {self.cliques} measured cliques with {self.consistency} consistency, solver {self.solver}"
        ]
        for o in self.options:
            mark = "->" if o.consistency == self.consistency else "  "
            fit = _fit(o)
            lines.append(
                f"{mark} {o.consistency:<7} {_count(o.cells):>9} cells  {show_bytes(o.bytes):>9}  "
                f"about {_time(o.seconds):>7}  {fit}"
            )
        limits = f"memory budget {show_bytes(self.budget)}, time limit {_time(self.time_limit)}"
        lines.append(f"   {limits}: {self.reason}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [
            (
                f"{o.consistency}{' (chosen)' if o.consistency == self.consistency else ''}",
                _count(o.cells),
                show_bytes(o.bytes),
                f"about {_time(o.seconds)}",
                _fit(o),
            )
            for o in self.options
        ]
        limits = f"{show_bytes(self.budget)}, {_time(self.time_limit)}"
        head = ("consistency", "cells", "memory", "time", f"fits {limits}")
        title = f"Plan: {self.cliques} measured cliques, solver {self.solver}"
        return html_table(title, rows, head, note=self.reason)


def make_plan(
    domain: Domain,
    cliques: Iterable[Clique],
    *,
    consistency: str,
    solver: str,
    memory: str | int | float,
    time_limit: float = TIME_LIMIT,
) -> Plan:
    """Price the junction tree, the saturated graph and the factor graph, and choose.

    "auto" takes global consistency where it fits the budget and is expected to keep to the time limit, else local. A
    consistency named by the caller is kept or refused with advice, never changed.
    """
    if not time_limit > 0:
        raise ConsilienceError(
            f"time_limit must be a positive number of seconds, got {time_limit!r}"
        )
    measured = tuple(dict.fromkeys(c for c in cliques if c))
    budget = parse_bytes(memory)
    chosen_solver = _choose_solver(solver)
    tree = JunctionTree.of(domain, maximal(domain, measured))
    priced = (_price(domain, measured, name, chosen_solver, budget, tree) for name in CONSISTENCIES)
    options = tuple(replace(o, quick=o.seconds <= time_limit) for o in priced)
    by_name = {o.consistency: o for o in options}
    if consistency == "auto":
        whole = by_name["global"]
        order = [whole, by_name["local"]] if whole.quick else [by_name["local"]]
        pick = next((o for o in order if o.fits), None)
        if pick is None:
            _refuse(
                by_name["local"],
                budget,
                "even local consistency does not fit; measure fewer or smaller cliques",
            )
        reason = _reason(whole, pick)
    elif consistency in by_name:
        pick = by_name[consistency]
        if not pick.fits:
            _refuse(pick, budget, "raise memory=, or take consistency='local'")
        reason = f"{consistency} consistency was asked for"
    else:
        raise ConsilienceError(
            f"consistency must be 'auto', 'global', 'local', 'factor' or a RegionGraph, got {consistency!r}"
        )
    return Plan(
        pick.consistency,
        chosen_solver,
        pick.bytes,
        budget,
        pick.seconds,
        len(measured),
        reason,
        options,
        time_limit,
        lambda: build_graph(domain, measured, pick.consistency, tree),
    )


def _reason(whole: Option, pick: Option) -> str:
    if pick is whole:
        return "the junction tree fits, so answers are globally consistent"
    need = f"take about {_time(whole.seconds)}" if whole.fits else f"need {show_bytes(whole.bytes)}"
    more = " (ask for global consistency to wait for it)" if whole.fits else ""
    return f"the junction tree would {need}, so answers are locally consistent{more}"


def plan_for_graph(
    graph: RegionGraph, cliques: int, solver: str, memory: str | int | float
) -> Plan:
    """The plan when the caller brings the graph."""
    chosen = _choose_solver(solver)
    budget = parse_bytes(memory)
    cells = sum(graph.domain.size(graph.regions[i]) for i in graph.roots)
    need = _bytes(cells, graph.cells, len(graph.roots), chosen)
    option = Option(graph.kind, cells, need, _seconds(cells, chosen), need <= budget)
    if not option.fits:
        _refuse(option, budget, "raise memory=, or use a smaller graph")
    return Plan(
        graph.kind,
        chosen,
        need,
        budget,
        option.seconds,
        cliques,
        "the graph was given",
        (option,),
        make_graph=lambda: graph,
    )


def build_graph(
    domain: Domain, cliques: Iterable[Clique], consistency: str, tree: JunctionTree | None = None
) -> RegionGraph:
    """The region graph of a consistency; `tree` is the cliques' junction tree, if it was built already."""
    listed = [c for c in cliques if c]
    if consistency == "global":
        return RegionGraph.junction_tree(domain, listed, tree=tree)
    if consistency == "local":
        return RegionGraph.saturated(domain, listed)
    return RegionGraph.factor_graph(domain, listed)


def _choose_solver(solver: str) -> str:
    if solver == "auto":
        return "splitting"
    if solver not in SOLVERS:
        raise ConsilienceError(f"solver must be 'auto', 'splitting' or 'prox', got {solver!r}")
    return solver


def _price(
    domain: Domain,
    cliques: tuple[Clique, ...],
    name: str,
    solver: str,
    budget: int,
    tree: JunctionTree,
) -> Option:
    tree_top = top = maximal(domain, cliques)
    if name == "global":
        tree_top = tree.cliques
        mentioned = {a for c in cliques for a in c}
        cells = sum(domain.size(c) for c in tree.cliques if mentioned.intersection(c))
        every = cells + sum(domain.size(s) for s in set(tree.separators) if s)
    else:
        cells = sum(domain.size(c) for c in top)
        small = top if len(top) <= 20_000 else top[:20_000]
        below = {s for s in closure(domain, small) if s} - set(top) if name == "local" else set()
        every = cells + sum(domain.size(s) for s in below)
    need = _bytes(cells, every, len(tree_top), solver)
    times = GLOBAL_TIMES_AS_MANY if name == "global" and set(tree_top) - set(cliques) else 1
    return Option(name, cells, need, times * _seconds(cells, solver), need <= budget)


def _bytes(root_cells: int, all_cells: int, roots: int, solver: str) -> int:
    if all_cells >= 2**60:
        return 8 * all_cells
    tables = 8 * (ROOT_BUFFERS[solver] * root_cells + 2 * all_cells)
    return int(BASE_BYTES + CLIQUE_BYTES * roots + tables)


def _seconds(cells: int, solver: str) -> float:
    passes = cells * TYPICAL_ITERATIONS[solver]
    return passes / CELL_PASSES_PER_SECOND if cells < 10**15 else float("inf")


def _refuse(option: Option, budget: int, advice: str) -> NoReturn:
    raise CapacityError(
        f"{option.consistency} consistency must fit the memory budget of {show_bytes(budget)}, it needs about "
        f"{show_bytes(option.bytes)} ({_count(option.cells)} cells); {advice}",
        option.bytes,
        budget,
    )


def _fit(o: Option) -> str:
    return "does not fit" if not o.fits else "fits" if o.quick else "fits, slow"


def _count(n: int) -> str:
    return f"{n:,}" if n < 10**9 else (f"{n:.2g}" if n < 10**300 else f"10^{len(str(n)) - 1}")


def _time(seconds: float) -> str:
    if seconds == float("inf") or seconds > 1e9:
        return "forever"
    return (
        f"{seconds:.1f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.0f} h"
    )
