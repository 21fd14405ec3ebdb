"""The same bits whatever the number of threads or the hash seed."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from consilience.domain import Domain, random_marginals
from consilience.kernels.hugin import FORK_CELLS
from consilience.kernels.threads import threads
from consilience.regions import JunctionTree, RegionGraph
from consilience.regions.wiring import Wiring
from consilience.solvers.sweeper import WHOLE_CELLS, Beliefs, Sweeper
from consilience.tree.oracle import ExactOracle

THREADS = (1, 2, 3)
MIXED = Domain({f"x{i}": [2, 7, 10, 3, 16, 5][i % 6] for i in range(20)})


def digest(*arrays: np.ndarray) -> str:
    h = hashlib.sha256()
    for a in arrays:
        h.update(np.ascontiguousarray(a).tobytes())
    return h.hexdigest()


def sweeps(schedule: str) -> str:
    graph = RegionGraph.saturated(MIXED, random_marginals(MIXED, 3, 1100, seed=0))
    wiring = Wiring.of(graph)
    assert wiring.tables.length > WHOLE_CELLS  # or one thread would do it all
    rng = np.random.default_rng(1)
    state = Beliefs.uniform(wiring)
    sweeper = Sweeper(wiring, schedule)
    rate = rng.uniform(0.5, 1.5, len(graph.regions))
    for _ in range(5):
        sweeper.step_gradient(state, rng.normal(size=wiring.tables.length), rate)
        sweeper.sweep(state)
    state.settle()
    return digest(state.tau, state.shift, np.array([state.violation, state.dual]))


def exact_steps() -> str:
    cliques = [*random_marginals(MIXED, 2, 12, seed=2), ("x1", "x2", "x4", "x7", "x8", "x10")]
    oracle = ExactOracle(JunctionTree.of(MIXED, cliques), cliques)
    assert MIXED.size(oracle.tree.largest) >= FORK_CELLS  # or one thread would do it all
    assert len(oracle._plan.of) > len(oracle.tree.cliques)  # some clique is split between threads
    rng = np.random.default_rng(3)
    state = oracle.uniform()
    for _ in range(5):
        oracle.step(state, rng.normal(size=oracle.layout.cells), 0.5)
    return digest(oracle.marginals(state), state.tables, np.array([state.log_partition]))


RUNS = {
    "sequential sweeps": lambda: sweeps("sequential"),
    "parallel sweeps": lambda: sweeps("parallel"),
    "exact steps": exact_steps,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_the_number_of_threads_does_not_show(name: str) -> None:
    found = []
    for count in THREADS:
        with threads(count):
            found += [RUNS[name](), RUNS[name]()]
    assert len(set(found)) == 1


def test_the_hash_seed_does_not_show() -> None:
    """Graphs, schedules, junction trees and the solution itself, in processes that order sets differently."""
    program = """
import hashlib, numpy as np
from consilience.domain import CliqueVector, Domain, Layout, random_marginals
from consilience.solvers.convex_gbp import solve_free_energy
from consilience.tree.oracle import exact_marginals
from consilience.tree.elimination import exact_marginal
from consilience.regions import JunctionTree, RegionGraph
domain = Domain({f"attribute {i}": 2 + i % 3 for i in range(12)})
cliques = list(random_marginals(domain, 3, 14, seed=0))
h = hashlib.sha256()
for graph in (RegionGraph.saturated(domain, cliques), RegionGraph.factor_graph(domain, cliques),
              RegionGraph.junction_tree(domain, cliques[:8])):
    theta = CliqueVector(graph.layout, np.random.default_rng(1).normal(size=graph.layout.cells))
    for schedule in ("sequential", "parallel"):
        found = solve_free_energy(graph, theta, iterations=5, schedule=schedule)
        h.update(repr((graph.regions, graph.edges)).encode() + found.tau.values.tobytes())
tree = JunctionTree.of(domain, cliques)
h.update(repr((tree.cliques, tree.edges)).encode())
layout = Layout(domain, cliques)
theta = CliqueVector(layout, np.random.default_rng(2).normal(size=layout.cells))
mu, log_z = exact_marginals(domain, theta)
h.update(mu.values.tobytes() + repr(log_z).encode())
h.update(exact_marginal(theta, ["attribute 0", "attribute 11"]).tobytes())
print(h.hexdigest())
"""
    found = set()
    for seed in ("0", "1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found.add(done.stdout)
    assert len(found) == 1
