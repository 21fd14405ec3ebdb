"""Planner: what a reconstruction would cost in bytes and seconds, decided before anything is allocated."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NoReturn

import numpy as np

from consilience.domain import Clique, Cliques, Domain, closure
from consilience.errors import CapacityError, ConsilienceError
from consilience.markup import html_table
from consilience.memory import parse_bytes, show_bytes
from consilience.regions.junction_tree import JunctionTree
from consilience.regions.region_graph import Kind, RegionGraph
from consilience.solvers.work import USUAL_LOAD, Load, Tables, foreseen, seconds

CONSISTENCIES = ("global", "local", "factor")
SOLVERS = ("splitting", "prox")

# Buffers of one float64 per cell alive at the peak of a solve. Names, offsets and edges of cliques matter where these are small
# and many: with all 1.3 million triples of 200 attributes of size 4 a reconstruction grew by 6.0 GB, 4.7 of them tables.
ROOT_BUFFERS = {"splitting": 5.0, "prox": 9.0}
TIME_LIMIT = 10.0
"""Seconds that "auto" may spend on global consistency, by the plan's own estimate: operations counted, no clock read."""
LOOKED_INTO = 20_000
"""Cliques whose subsets are counted."""
BASE_BYTES = 2_000_000
CLIQUE_BYTES = 1_200


@dataclass(frozen=True)
class Option:
    """One way to reconstruct: which consistency, how many cells, bytes at the peak, about how many seconds.

    fits: the memory budget. quick: whether it keeps to the time limit. work: visits of cells (solvers/work.py), of which the
    seconds are made.
    """

    consistency: str
    cells: int
    bytes: int
    seconds: float
    fits: bool
    quick: bool = True
    work: float = 0.0


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
    work: float = 0.0
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
    load: Load = USUAL_LOAD,
) -> Plan:
    """Price the junction tree, the saturated graph and the factor graph, and choose.

    "auto" takes global consistency where it fits the budget and is expected to keep to the time limit, else local. A
    consistency named by the caller is kept or refused with advice, never changed.
    """
    if not time_limit > 0:
        raise ConsilienceError(
            f"time_limit must be a positive number of seconds, got {time_limit!r}"
        )
    measured = Cliques.of(domain, cliques).distinct(empty=False)
    budget = parse_bytes(memory)
    chosen_solver = _choose_solver(solver)
    top = measured.maximal()
    tree = JunctionTree.of(domain, top)
    options = tuple(
        _price(measured, top, name, chosen_solver, budget, tree, time_limit, load)
        for name in CONSISTENCIES
    )
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
        pick.work,
        lambda: build_graph(domain, measured, pick.consistency, tree),
    )


def _reason(whole: Option, pick: Option) -> str:
    if pick is whole:
        return "the junction tree fits, so answers are globally consistent"
    need = f"take about {_time(whole.seconds)}" if whole.fits else f"need {show_bytes(whole.bytes)}"
    more = " (ask for global consistency to wait for it)" if whole.fits else ""
    return f"the junction tree would {need}, so answers are locally consistent{more}"


def plan_for_graph(
    graph: RegionGraph,
    cliques: Cliques,
    solver: str,
    memory: str | int | float,
    load: Load = USUAL_LOAD,
) -> Plan:
    """The plan when the caller brings the graph."""
    chosen = _choose_solver(solver)
    budget = parse_bytes(memory)
    roots = graph.root_cliques
    unmeasured = bool((cliques.find(roots) < 0).any())
    decomposable = graph.kind is Kind.JUNCTION_TREE and not unmeasured
    tables = Tables.of(roots, decomposable, unmeasured)
    need = _bytes(tables.cells, graph.cells, tables.count, chosen)
    work = foreseen(tables, load, chosen)
    time = seconds(work, tables.count, chosen)
    option = Option(graph.kind, tables.cells, need, time, need <= budget, work=work)
    if not option.fits:
        _refuse(option, budget, "raise memory=, or use a smaller graph")
    return Plan(
        graph.kind,
        chosen,
        need,
        budget,
        option.seconds,
        len(cliques),
        "the graph was given",
        (option,),
        work=work,
        make_graph=lambda: graph,
    )


def build_graph(
    domain: Domain, cliques: Iterable[Clique], consistency: str, tree: JunctionTree | None = None
) -> RegionGraph:
    """The region graph of a consistency; `tree` is the cliques' junction tree, if it was built already."""
    listed = Cliques.of(domain, cliques).distinct(empty=False)
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
    measured: Cliques,
    top: Cliques,
    name: str,
    solver: str,
    budget: int,
    tree: JunctionTree,
    time_limit: float,
    load: Load,
) -> Option:
    """Of one consistency. `top` are the measured cliques that no other one contains; a saturated graph has some of their subsets
    below them, which are counted for the first of many and matter little.
    """
    domain = measured.domain
    roots, every, unmeasured = top, top.cells, False
    if name == "global":
        mentioned = {domain.attributes[i] for i in np.unique(measured.sets.flat).tolist()}
        roots = Cliques.of(domain, [c for c in tree.cliques if mentioned.intersection(c)])
        every = roots.cells + sum(domain.size(s) for s in set(tree.separators) if s)
        unmeasured = bool((measured.find(roots) < 0).any()) or len(roots) < len(tree.cliques)
    elif name == "local":
        some = top.take(np.arange(min(len(top), LOOKED_INTO)))
        below = closure(domain, some)
        every += below.take(np.flatnonzero((top.find(below) < 0) & (below.sets.ranks > 0))).cells
    filled = (top.find(Cliques.of(domain, tree.cliques)) < 0).any()
    tables = Tables.of(roots, not filled, unmeasured)
    need = _bytes(tables.cells, every, len(tree.cliques if name == "global" else top), solver)
    work = foreseen(tables, load, solver)
    time = seconds(work, tables.count, solver)
    return Option(name, tables.cells, need, time, need <= budget, time <= time_limit, work)


def _bytes(root_cells: int, all_cells: int, roots: int, solver: str) -> int:
    if all_cells >= 2**60:
        return 8 * all_cells
    tables = 8 * (ROOT_BUFFERS[solver] * root_cells + 2 * all_cells)
    return int(BASE_BYTES + CLIQUE_BYTES * roots + tables)


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
