"""Prior and path: better than maximum likelihood, by pulling tables towards what their lower-order marginals say.

    minimise  L(tau) + strength * sum_r KL(tau_r || pi_r)   over L(G)

The maximum-likelihood fit follows the noise. pi_r is the maximum-entropy table with the fitted marginals of one attribute
less, themselves fitted the same way, down to the uniform distribution. For pairs it is the product of the fit's own one-way
marginals, so that what is penalised is the mutual information.
The strength is chosen by thinning: with y = mu + sigma z, z standard normal, and g fresh, y1 = y + c sigma g and
y2 = y - sigma g / c are independent, so ||tau(y1) - y2||^2 is an honest validation for every strength. Only y is used, so it
costs no privacy. The estimate is biased towards the prior. The fits form a path from strong pulls to weak ones, each by
splitting with an entropic term from where the last one ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from time import perf_counter

import numpy as np

from consilience.domain import Buffer, Clique, CliqueVector, Domain
from consilience.errors import ConsilienceError
from consilience.measurements import BoundMeasurement, Measurement, SquaredLoss
from consilience.progress import Progress
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.prior_path import PriorPath
from consilience.solvers.solution import Solution
from consilience.solvers.split_iteration import SplitIteration
from consilience.solvers.split_problem import SplitProblem
from consilience.solvers.splitting import solve

THINNING = 1.0
"""c above; at 1 the two halves are alike: less makes a noisier judge, more a noisier fit."""
DRAWS = 2
STRENGTHS = np.array([8.0, 4.0, 2.0, 1.0, 0.5, 0.2, 0.07, 0.02])
"""Strengths tried, in units of N / sigma_r of each table (there the pull on a cell is about one standard deviation)."""
CLEARLY = 6.0
"""Rise of the validation, minus twice a log-likelihood, that is more than chance."""
SURE = 2.0
"""Standard deviations of chance by which a pull must beat maximum likelihood."""
PLAIN_ITERATIONS = 100
MAXENT_ROUNDS = 60
LEAST = 1e-12
"""Marginals that come from noisy fits agree only nearly: a zero of one must not empty what another fills."""


@dataclass(frozen=True)
class PriorFit:
    """The chosen strength and the validation that chose it; strength 0 is maximum likelihood."""

    solution: Solution
    strength: float
    strengths: Buffer
    validation: Buffer


def fit_with_prior(
    domain: Domain,
    measurements: Sequence[BoundMeasurement],
    graph: RegionGraph,
    total: float,
    *,
    rng: np.random.Generator,
    tolerance: float = 1e-4,
    progress: Progress | None = None,
) -> PriorFit:
    """Fit with the prior of lower order, its strength chosen by thinning."""
    began = perf_counter()
    if any(m.noise != "gaussian" for m in measurements):
        raise ConsilienceError(
            "prior='independence' chooses its strength by splitting Gaussian noise in two, got other noise; "
            "use prior=None for Laplace measurements"
        )
    given = [_unbound(m) for m in measurements]
    strength, validation, tried = _best_strength(domain, given, graph, total, rng, DRAWS, SURE)
    loss = SquaredLoss(domain, given, total)
    problem = SplitProblem(graph, loss)
    if strength == 0.0:
        solution = solve(problem, None, tolerance, progress=progress, began=began)
    else:
        path = PriorPath.of_lower_order(
            problem, prior_tables(domain, graph, loss.measurements, total, rng)
        )
        solution = path.solution(strength, began, tolerance, progress)
    solution = replace(solution, work=solution.work + tried)
    return PriorFit(solution, strength, np.append(STRENGTHS, 0.0), validation)


def _best_strength(
    domain: Domain,
    given: Sequence[Measurement],
    graph: RegionGraph,
    total: float,
    rng: np.random.Generator,
    draws: int,
    sure: float,
) -> tuple[float, Buffer, float]:
    curves, chances, work = [], [], 0.0
    for _ in range(draws):
        thin, judge = _thinned(domain, given, total, rng)
        tables = prior_tables(domain, graph, thin.measurements, total, rng)
        curve, chance, visited = _validate(graph, thin, tables, judge)
        work += visited
        curves.append(curve)
        chances.append(chance)
    validation = np.mean(curves, axis=0)
    # A pull has to earn its bias: where there is more noise than people, which fit is judged best is chance.
    gain, chance = validation[-1] - validation.min(), np.mean(chances) / np.sqrt(draws)
    if gain <= sure * chance:
        return 0.0, validation, work
    return _choose(np.append(STRENGTHS, 0.0), validation), validation, work


# -- the prior ---------------------------------------------------------------------------------------


def prior_tables(
    domain: Domain,
    graph: RegionGraph,
    measurements: Iterable[BoundMeasurement],
    total: float,
    rng: np.random.Generator,
) -> dict[Clique, Buffer]:
    """pi_r for every region without parents: maximum entropy given the fitted marginals of one attribute less."""
    roots = [graph.regions[i] for i in graph.roots]
    lower = lower_measurements(domain, roots, measurements)
    if not lower:
        return {r: np.full(domain.shape_of(r), 1.0 / domain.size(r)) for r in roots}
    cliques = tuple(dict.fromkeys(m.bind(domain).clique for m in lower))
    below = RegionGraph.saturated(domain, cliques)
    tau = _quick_fit(domain, lower, below, total, rng)
    out = {}
    for r in roots:
        if len(r) == 1:
            out[r] = np.full(domain.shape_of(r), 1.0 / domain.size(r))
        else:
            subsets = [s for s in combinations(r, len(r) - 1) if below.supports([s])]
            out[r] = maximum_entropy_table(
                r, domain.shape_of(r), {s: tau.project(s) for s in subsets}
            )
    return out


def maximum_entropy_table(
    clique: Clique,
    shape: tuple[int, ...],
    known: Mapping[Clique, Buffer],
    rounds: int = MAXENT_ROUNDS,
) -> Buffer:
    """The table over `clique` with the given (consistent) marginals and the largest entropy.

    One-way marginals alone give their product at once; overlapping ones are met in turn until they stop moving.
    """
    table = np.full(shape, 1.0 / np.prod(shape))
    for _ in range(rounds):
        worst = 0.0
        for subset, given in known.items():
            wanted = np.maximum(given, LEAST)
            axes = tuple(i for i, a in enumerate(clique) if a not in subset)
            have = table.sum(axis=axes)
            worst = max(worst, float(np.abs(have - wanted).sum()))
            table *= (wanted / have).reshape(
                [n if a in subset else 1 for a, n in zip(clique, shape, strict=True)]
            )
        if worst < 1e-6:
            break
    return table / table.sum()


def _quick_fit(
    domain: Domain,
    given: Sequence[Measurement],
    graph: RegionGraph,
    total: float,
    rng: np.random.Generator,
) -> CliqueVector:
    """A fit of lower order for use as a prior: one thinning, no certificate; tables of the regions without parents."""
    strength, *_ = _best_strength(domain, given, graph, total, rng, draws=1, sure=0.0)
    loss = SquaredLoss(domain, given, total)
    problem = SplitProblem(graph, loss)
    if strength == 0.0:
        plain = SplitIteration(problem)
        for _ in range(PLAIN_ITERATIONS):
            plain.step()
        return problem.vector(plain.prox())
    path = PriorPath.of_lower_order(
        problem, prior_tables(domain, graph, loss.measurements, total, rng)
    )
    path.go(strength)
    return problem.vector(path.z())


def lower_measurements(
    domain: Domain, roots: Sequence[Clique], measurements: Iterable[BoundMeasurement]
) -> list[Measurement]:
    """What the measurements say about the marginals of one attribute less than the roots have."""
    top = set(roots)
    out = []
    for m in measurements:
        if not m.clique or not m.is_identity:
            continue
        if m.clique not in top:
            out.append(
                Measurement(m.clique, m.values.reshape(domain.shape_of(m.clique)), stddev=m.stddev)
            )
            continue
        if len(m.clique) == 1:
            continue
        table = m.values.reshape(domain.shape_of(m.clique))
        for i, a in enumerate(m.clique):
            kept = tuple(b for b in m.clique if b != a)
            out.append(Measurement(kept, table.sum(axis=i), stddev=m.stddev * domain[a] ** 0.5))
    return out


# -- thinning ----------------------------------------------------------------------------------------


def _unbound(m: BoundMeasurement) -> Measurement:
    return Measurement(m.clique, m.values, stddev=m.stddev, noise=m.noise, query=m.query)


def _thinned(
    domain: Domain, given: Sequence[Measurement], total: float, rng: np.random.Generator
) -> tuple[SquaredLoss, SquaredLoss]:
    """The loss of y1 and the loss of y2, independent of each other given the true tables."""
    first, second = [], []
    for m in given:
        g = rng.standard_normal(m.values.shape)
        wide = m.stddev * float(np.hypot(1.0, THINNING))
        first.append(
            Measurement(
                m.attributes, m.values + THINNING * m.stddev * g, stddev=wide, query=m.query
            )
        )
        second.append(
            Measurement(
                m.attributes, m.values - m.stddev / THINNING * g, stddev=m.stddev, query=m.query
            )
        )
    return SquaredLoss(domain, first, total), SquaredLoss(domain, second, total)


def _validate(
    graph: RegionGraph, thin: SquaredLoss, tables: dict[Clique, Buffer], judge: SquaredLoss
) -> tuple[Buffer, float, float]:
    """Validation of every strength and, last, of maximum likelihood; the deviation of its gain by chance; visits of cells.

    Stops early once it clearly rises, and then maximum likelihood is out of the question.
    """
    problem = SplitProblem(graph, thin)
    path = PriorPath.of_lower_order(problem, tables)
    bound = judge.bind(problem.layout)
    values = np.full(len(STRENGTHS) + 1, np.inf)
    best, tau, slope = 0, np.zeros(0), np.zeros(0)
    for i, strength in enumerate(STRENGTHS):
        path.go(strength)
        found = problem.vector(path.z()).values
        values[i], gradient = bound.value_and_grad(found)
        if values[i] <= values[best]:
            best, tau, slope = i, found, gradient
        # At the strong end all fits can be alike: a rise that is chance must not end the search.
        elif i - best >= 2 and values[i] - values[best] > CLEARLY:
            return values, 0.0, path.iteration.visited
    plain = SplitIteration(problem)
    plain.v[...] = path.z()  # where noise is large a cold start would take thousands of iterations
    for _ in range(PLAIN_ITERATIONS):
        plain.step()
    found = problem.vector(np.maximum(plain.consistent(), 0.0)).values
    values[-1], gradient = bound.value_and_grad(found)
    # The judge's noise has sqrt(2) of its stated standard deviation, so two fits at distance d differ by sqrt(2) d of chance.
    chance = float(np.sqrt(2.0 * max(0.0, (gradient - slope) @ (found - tau))))
    return values, chance, path.iteration.visited + plain.visited


def _choose(strengths: Buffer, validation: Buffer) -> float:
    """The best strength, refined by a parabola through its neighbours on a logarithmic scale."""
    best = int(np.argmin(validation))
    if strengths[best] == 0.0 or best == 0 or strengths[best + 1] == 0.0:
        return float(strengths[best])
    left, mid, right = (float(v) for v in validation[best - 1 : best + 2])
    if not np.isfinite(left + right):
        return float(strengths[best])
    a, b, c = np.log(strengths[best - 1 : best + 2])
    top = (b - a) ** 2 * (mid - right) - (b - c) ** 2 * (mid - left)
    under = (b - a) * (mid - right) - (b - c) * (mid - left)
    at = b - 0.5 * top / under if abs(under) > 0 else b
    return float(np.exp(np.clip(at, c, a)))
