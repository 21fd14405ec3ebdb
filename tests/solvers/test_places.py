"""Trees of places: least squares beside a dense solve, non-negative tables beside a generic one, controls, threads, refusals."""

from dataclasses import replace
from itertools import combinations

import clarabel
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.linalg import null_space
from scipy.optimize import nnls

from consilience.errors import ConsilienceError, MeasurementError
from consilience.kernels.threads import threads
from consilience.solvers.place_problem import PlaceProblem
from consilience.solvers.place_splitting import clear_marginals, fit_places
from consilience.solvers.places import Asked, PlaceQuery, PlaceRange, Places, Pull


def random_places(rng: np.random.Generator, levels: int, most: int = 3) -> Places:
    """Unequal groups in no order; a place may have one child."""
    roots = int(rng.integers(1, 3))
    parents, above = [], roots
    for _ in range(levels):
        counts = rng.integers(1, most + 1, size=above)
        parents.append(rng.permutation(np.repeat(np.arange(above), counts)))
        above = int(counts.sum())
    return Places(roots, parents)


def level_matrix(places: Places, level: int) -> np.ndarray:
    out = np.zeros((places.count(level), places.leaves))
    out[places.ancestors(level), np.arange(places.leaves)] = 1.0
    return out


def marginal_matrix(shape: tuple[int, ...], subset: tuple[int, ...]) -> np.ndarray:
    kept = [shape[i] for i in subset]
    out = np.zeros((int(np.prod(kept)), int(np.prod(shape))))
    for k, cell in enumerate(np.ndindex(*shape)):
        out[int(np.ravel_multi_index([cell[i] for i in subset], kept)) if kept else 0, k] = 1.0
    return out


def matrix_of(places: Places, shape: tuple[int, ...], part: PlaceQuery | PlaceRange) -> np.ndarray:
    table = marginal_matrix(shape, part.attributes)
    if isinstance(part, PlaceQuery) and part.residual:
        centre = np.ones((1, 1))
        for i in part.attributes:
            centre = np.kron(centre, np.eye(shape[i]) - 1.0 / shape[i])
        table = centre @ table
    return np.kron(level_matrix(places, part.level), table)


def all_subsets(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [s for k in range(len(shape) + 1) for s in combinations(range(len(shape)), k)]


def measured(
    places: Places, shape: tuple[int, ...], truth: np.ndarray, rng: np.random.Generator, share: float = 0.6
) -> list[PlaceQuery]:  # fmt: skip
    """Some marginals of every level, each with its own noise; every leaf's whole table."""
    whole = tuple(range(len(shape)))
    out = []
    for level in range(places.last + 1):
        for subset in all_subsets(shape):
            if rng.random() < share or (level, subset) == (places.last, whole):
                out.append(noisy(places, shape, truth, level, subset, rng))
    return out


def noisy(places: Places, shape, truth, level, subset, rng) -> PlaceQuery:  # type: ignore[no-untyped-def]
    stddev = rng.uniform(0.5, 4.0)
    exact = level_matrix(places, level) @ truth @ marginal_matrix(shape, subset).T
    return PlaceQuery(level, subset, exact + stddev * rng.normal(size=exact.shape), stddev)


def with_residuals(queries: list[PlaceQuery], rng: np.random.Generator) -> list[PlaceQuery]:
    """About half of them as residuals; not those of a leaf's whole table, which say everything about it."""
    whole = max((q.attributes for q in queries), key=len)
    return [
        replace(q, residual=True) if q.attributes and q.attributes != whole and rng.random() < 0.5 else q
        for q in queries
    ]  # fmt: skip


def rows_of(places: Places, shape: tuple[int, ...], queries: list[PlaceQuery]) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    rows, right = [np.zeros((0, places.leaves * int(np.prod(shape))))], []
    for q in queries:
        stddev = np.repeat(np.broadcast_to(q.stddev, q.values.shape[:1]), q.values.shape[1])
        seen = np.isfinite(stddev)
        rows.append((matrix_of(places, shape, q) / stddev[:, None])[seen])
        right.append((q.values.reshape(-1) / stddev)[seen])
    return np.vstack(rows), np.concatenate(right)


def judged(
    places: Places, shape: tuple[int, ...], queries: list[PlaceQuery], controls=(), possible=None, nonnegative=True
) -> tuple[np.ndarray, float]:  # fmt: skip
    """The same problem by Clarabel's interior point method."""
    rows, y = rows_of(places, shape, queries)
    scale = float(np.square(rows).sum(axis=0).max())
    n = rows.shape[1]
    equal = [matrix_of(places, shape, c) for c in controls if c.is_exact]
    right = [c.low.reshape(-1) for c in controls if c.is_exact]
    if possible is not None:
        barred = ~np.broadcast_to(possible, (places.leaves, n // places.leaves)).reshape(-1)
        equal.append(np.eye(n)[barred])
        right.append(np.zeros(int(barred.sum())))
    less = [-np.eye(n)] if nonnegative else []
    bound = [np.zeros(n)] if nonnegative else []
    for c in controls:
        if not c.is_exact:
            most = np.isfinite(c.high.reshape(-1))
            m = matrix_of(places, shape, c)
            less += [-m, m[most]]
            bound += [-c.low.reshape(-1), c.high.reshape(-1)[most]]
    a = np.vstack([*equal, *less, np.zeros((0, n))])
    count = sum(len(e) for e in equal)
    if count:  # rows that repeat each other are left to the judge as they are
        _, keep = np.unique(np.round(a[:count], 9), axis=0, return_index=True)
        keep = np.sort(keep)
        a = np.vstack([a[keep], a[count:]])
        right = [np.concatenate(right)[keep]]
        count = len(keep)
    options = clarabel.DefaultSettings()
    options.verbose = False
    options.max_threads = 1
    options.tol_gap_abs = options.tol_gap_rel = options.tol_feas = 1e-13
    solver = clarabel.DefaultSolver(
        sparse.csc_matrix(np.triu(rows.T @ rows / scale)), -rows.T @ y / scale, sparse.csc_matrix(a),
        np.concatenate([*right, *bound, np.zeros(0)]),
        [clarabel.ZeroConeT(count), clarabel.NonnegativeConeT(len(a) - count)], options,
    )  # fmt: skip
    x = np.array(solver.solve().x)
    return x.reshape(places.leaves, -1), 0.5 * float(np.square(rows @ x - y).sum())


def truth_of(places: Places, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    return rng.poisson(rng.gamma(0.4, 6.0, size=(places.leaves, int(np.prod(shape))))).astype(float)


def truth_at(places: Places, shape, truth, level, subset) -> np.ndarray:  # type: ignore[no-untyped-def]
    return level_matrix(places, level) @ truth @ marginal_matrix(shape, subset).T


SHAPES = [(), (3,), (2, 3), (2, 2, 3)]


@given(seed=st.integers(0, 2**32 - 1), levels=st.integers(0, 3), shape=st.sampled_from(SHAPES))
@settings(max_examples=25, deadline=None)
def test_least_squares_is_the_dense_solve(seed: int, levels: int, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(seed)
    places = random_places(rng, levels)
    queries = measured(places, shape, truth_of(places, shape, rng), rng)
    queries = with_residuals(queries, rng)
    found = fit_places(places, shape, queries, nonnegative=False)
    rows, y = rows_of(places, shape, queries)
    best = np.linalg.lstsq(rows, y, rcond=None)[0]
    np.testing.assert_allclose(found.tables.reshape(-1), best, atol=1e-8)
    assert found.objective == pytest.approx(0.5 * np.square(rows @ best - y).sum(), rel=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_standard_errors_are_those_of_a_dense_solve(seed: int) -> None:
    """Of every marginal of every level, with exact totals of the roots held or not."""
    rng = np.random.default_rng(seed)
    shape = (2, 3)
    places = random_places(rng, 2)
    truth = truth_of(places, shape, rng)
    queries = measured(places, shape, truth, rng)
    controls = [PlaceRange.exact(0, (), truth_at(places, shape, truth, 0, ()))] if seed % 2 else []
    problem = PlaceProblem(Asked.of(places, shape, queries, controls), solved=False)
    rows, _ = rows_of(places, shape, queries)
    free = np.eye(rows.shape[1])
    for c in controls:
        free = free @ null_space(matrix_of(places, shape, c) @ free)
    spread = free @ np.linalg.inv(free.T @ rows.T @ rows @ free) @ free.T
    for level in range(3):
        for subset in all_subsets(shape):
            m = matrix_of(places, shape, PlaceRange.exact(level, subset, np.zeros(0)))
            wanted = np.sqrt(np.maximum(np.diag(m @ spread @ m.T), 0.0)).reshape(
                places.count(level), -1
            )
            found = problem.cell_stderr(level, subset)
            np.testing.assert_allclose(
                np.repeat(found[:, None], wanted.shape[1], 1), wanted, atol=1e-6
            )


@given(seed=st.integers(0, 2**32 - 1), levels=st.integers(0, 3), shape=st.sampled_from(SHAPES))
@settings(max_examples=25, deadline=None)
def test_non_negative_tables_are_the_generic_solvers(seed: int, levels: int, shape: tuple[int, ...]) -> None:  # fmt: skip
    rng = np.random.default_rng(seed)
    places = random_places(rng, levels)
    queries = measured(places, shape, truth_of(places, shape, rng), rng)
    queries = with_residuals(queries, rng)
    found = fit_places(places, shape, queries, tolerance=1e-9)
    rows, y = rows_of(places, shape, queries)
    x, distance = nnls(rows, y)
    best = 0.5 * distance**2
    assert found.status.converged
    assert found.tables.min() >= 0.0
    assert found.bound <= best * (1 + 1e-9) + 1e-8
    assert found.objective == pytest.approx(best, rel=1e-7, abs=1e-7)
    np.testing.assert_allclose(found.tables.reshape(-1), x, atol=2e-3)
    again = 0.5 * np.square(rows @ found.tables.reshape(-1) - y).sum()
    assert found.objective == pytest.approx(again, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_pulled_cells_reach_the_judges_optimum(seed: int) -> None:
    """A pull is a measurement of every cell of the leaves with its own noise, and no other level sees it; in shards too."""
    rng = np.random.default_rng(seed)
    shape = (2, 3)
    places = random_places(rng, 2)
    queries = measured(places, shape, truth_of(places, shape, rng), rng)
    weight = rng.uniform(0.0, 2.0, (places.leaves, 6)) * (rng.random((places.leaves, 6)) < 0.7)
    pull = Pull(rng.uniform(0.0, 5.0, weight.shape), weight)
    rows, y = rows_of(places, shape, queries)
    root = np.sqrt(weight.reshape(-1))
    x, distance = nnls(np.vstack([rows, np.diag(root)]), np.r_[y, root * pull.to.reshape(-1)])
    for cells in (1 << 20, 12):
        found = fit_places(places, shape, queries, pull=pull, tolerance=1e-9, shard_cells=cells)
        assert found.objective == pytest.approx(0.5 * distance**2, rel=1e-7)
        assert found.bound <= 0.5 * distance**2 * (1 + 1e-9)
        np.testing.assert_allclose(found.tables.reshape(-1), x, atol=2e-3)


@pytest.mark.parametrize("seed", range(6))
def test_controls_and_impossible_cells(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (2, 3)
    places = random_places(rng, 2)
    possible = rng.random((places.leaves, 6)) < 0.8
    truth = truth_of(places, shape, rng) * possible
    queries = measured(places, shape, truth, rng)
    controls = [exact(places, shape, truth, level, s) for level, s in ((0, (1,)), (1, ()), (2, ()))]
    found = fit_places(places, shape, queries, controls, possible=possible, tolerance=1e-8)
    _, best = judged(places, shape, queries, controls, possible)
    assert (found.tables[~possible] == 0.0).all()
    assert found.tables.min() >= 0.0
    for c in controls:
        sums = level_matrix(places, c.level) @ found.tables @ marginal_matrix(shape, c.attributes).T
        np.testing.assert_allclose(sums, c.low, atol=1e-9)
    assert found.bound <= best + 1e-6
    assert found.objective == pytest.approx(best, rel=1e-5)


def exact(
    places: Places, shape: tuple[int, ...], truth: np.ndarray, level: int, subset: tuple[int, ...]
) -> PlaceRange:
    return PlaceRange.exact(
        level, subset, level_matrix(places, level) @ truth @ marginal_matrix(shape, subset).T
    )


@pytest.mark.parametrize("seed", range(8))
def test_ranges_are_kept_and_the_optimum_is_the_judges(seed: int) -> None:
    """At every level, the leaves' own among them, beside exact totals and impossible cells."""
    rng = np.random.default_rng(seed)
    shape = (2, 3)
    places = random_places(rng, 2)
    truth = truth_of(places, shape, rng)
    queries = measured(places, shape, truth, rng)
    possible = rng.random(6) < 0.8
    possible[0] = True
    truth = truth * possible
    controls = [PlaceRange.exact(0, (), truth_at(places, shape, truth, 0, ()))]
    for level, subset in [(1, (0,)), (2, ()), (0, (1,))][: 1 + seed % 3]:
        inside = truth_at(places, shape, truth, level, subset)
        controls.append(PlaceRange(level, subset, np.floor(inside * 0.9), np.ceil(inside * 1.05)))
    found = fit_places(places, shape, queries, controls, possible=possible, tolerance=1e-7)
    _, value = judged(places, shape, queries, controls, possible)
    assert found.status.converged
    assert found.violation < 1e-8
    assert found.bound <= value * (1 + 1e-6) + 1e-7
    assert found.objective == pytest.approx(value, rel=1e-5, abs=1e-5)
    for c in controls:
        sums = level_matrix(places, c.level) @ found.tables @ marginal_matrix(shape, c.attributes).T
        assert (sums >= c.low - 1e-7).all()
        assert (sums <= c.high + 1e-7).all()


@pytest.mark.parametrize("seed", range(6))
def test_queries_on_sums_of_cells_reach_the_judges_optimum(seed: int) -> None:
    """As a second hierarchy asks them: groups of unequal size of one attribute, at every level."""
    rng = np.random.default_rng(seed)
    shape = (4, 2)
    places = random_places(rng, 2)
    truth = truth_of(places, shape, rng)
    queries = measured(places, shape, truth, rng, share=0.3)
    rows, y = rows_of(places, shape, queries)
    for level in range(3):
        subset = ((0,), (0, 1))[seed % 2]
        units = np.array([0, 1, 1, 1])
        groups = units if subset == (0,) else (units[:, None] * 2 + np.arange(2)).reshape(-1)
        sums = np.zeros((groups.max() + 1, len(groups)))
        sums[groups, np.arange(len(groups))] = 1.0
        exact = truth_at(places, shape, truth, level, subset) @ sums.T
        values = exact + rng.normal(0, 2.0, exact.shape)
        queries.append(PlaceQuery(level, subset, values, 2.0, groups))
        whole = matrix_of(places, shape, PlaceRange.exact(level, subset, np.zeros(0)))
        rows = np.vstack([rows, np.kron(np.eye(places.count(level)), sums) @ whole / 2.0])
        y = np.concatenate([y, values.reshape(-1) / 2.0])
    found = fit_places(places, shape, queries, tolerance=1e-8)
    best = 0.5 * nnls(rows, y)[1] ** 2
    assert found.status.converged
    assert found.bound <= best * (1 + 1e-9) + 1e-8
    assert found.objective == pytest.approx(best, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_marginals_that_are_clear_of_zero_keep_their_least_squares_values(seed: int) -> None:
    """Some places of a level may be, and others not; the rest is the optimum given those, by the judge."""
    rng = np.random.default_rng(seed)
    shape = (2, 3)
    places = random_places(rng, 2)
    truth = truth_of(places, shape, rng) * rng.choice([0.0, 1.0, 9.0], size=(places.leaves, 1))
    queries = measured(places, shape, truth, rng)
    kept = clear_marginals(places, shape, queries, [], 2.0)
    assert len(kept) == 2
    plain = fit_places(places, shape, queries, nonnegative=False).tables
    found = fit_places(places, shape, queries, kept, tolerance=1e-8)
    equal, right = [], []
    for c in kept:
        own = level_matrix(places, c.level) @ plain @ marginal_matrix(shape, c.attributes).T
        got = level_matrix(places, c.level) @ found.tables @ marginal_matrix(shape, c.attributes).T
        # A sibling that least squares has below zero is made up for by the others.
        np.testing.assert_allclose(c.low[c.held], own[c.held], atol=1e-7 if c.attributes else 1.0)
        np.testing.assert_allclose(got[c.held], c.low[c.held], atol=1e-6)
        rows = np.repeat(c.held, own.shape[1])
        equal.append(matrix_of(places, shape, c)[rows])
        right.append(c.low.reshape(-1)[rows])
    rows, y = rows_of(places, shape, queries)
    a, b = np.vstack(equal), np.concatenate(right)
    heavy = 1e5  # a penalty in place of equations
    value = nnls(np.vstack([rows, heavy * a]), np.concatenate([y, heavy * b]), maxiter=10_000)[0]
    best = 0.5 * float(np.square(rows @ value - y).sum())
    assert found.status.converged
    assert found.bound <= best * (1 + 1e-5) + 1e-5
    assert found.objective == pytest.approx(best, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_places_that_were_not_measured(seed: int) -> None:
    """An infinite standard deviation leaves a place out, at the leaves as well."""
    rng = np.random.default_rng(seed)
    shape = (2, 3)
    places = random_places(rng, 2)
    truth = truth_of(places, shape, rng)
    queries = [noisy(places, shape, truth, level, (0, 1), rng) for level in range(3)]
    queries += [noisy(places, shape, truth, 2, (0,), rng)]
    spotty = [
        PlaceQuery(q.level, q.attributes, q.values, np.where(rng.random(len(q.values)) < 0.4, np.inf, q.stddev))
        if i in (1, 3) else q
        for i, q in enumerate(queries)
    ]  # fmt: skip
    found = fit_places(places, shape, spotty, nonnegative=False)
    rows, y = rows_of(places, shape, spotty)
    np.testing.assert_allclose(
        found.tables.reshape(-1), np.linalg.lstsq(rows, y, rcond=None)[0], atol=1e-8
    )


def test_what_the_leaves_do_not_measure_is_divided_evenly_and_the_bound_holds() -> None:
    rng = np.random.default_rng(5)
    shape = (2, 3)
    places = random_places(rng, 2)
    truth = truth_of(places, shape, rng)
    queries = [
        noisy(places, shape, truth, 0, (0, 1), rng),
        noisy(places, shape, truth, 1, (0, 1), rng),
        noisy(places, shape, truth, 2, (), rng),
    ]
    rows, y = rows_of(places, shape, queries)
    plain = fit_places(places, shape, queries, nonnegative=False)
    np.testing.assert_allclose(
        plain.tables.reshape(-1), np.linalg.lstsq(rows, y, rcond=None)[0], atol=1e-7
    )
    found = fit_places(places, shape, queries, tolerance=1e-6)
    best = 0.5 * nnls(rows, y)[1] ** 2
    assert found.status.converged
    assert found.bound <= best + 1e-7
    assert found.objective == pytest.approx(best, rel=1e-5)


def test_the_same_numbers_for_one_and_two_threads() -> None:
    rng = np.random.default_rng(0)
    shape = (4, 8)
    places = random_places(rng, 4, most=12)
    truth = truth_of(places, shape, rng)
    assert truth.size > 60_000
    queries = measured(places, shape, truth, rng)
    found = []
    for count in (1, 2):
        with threads(count):
            found.append(fit_places(places, shape, queries, iterations=12))
    np.testing.assert_array_equal(found[0].tables, found[1].tables)
    assert (found[0].objective, found[0].bound) == (found[1].objective, found[1].bound)


def test_a_warm_start_goes_on() -> None:
    rng = np.random.default_rng(1)
    places = random_places(rng, 3)
    queries = measured(places, (2, 3), truth_of(places, (2, 3), rng), rng)
    cold = fit_places(places, (2, 3), queries, tolerance=1e-8)
    warm = fit_places(places, (2, 3), queries, tolerance=1e-8, state=cold.state)
    assert warm.iterations <= 10
    assert warm.objective == pytest.approx(cold.objective, rel=1e-7)


TREE = Places(1, [[0, 0], [0, 0, 1]])
LEAVES = PlaceQuery(2, (0,), np.ones((3, 2)))
REFUSED = {
    "an unknown parent": (
        lambda: Places(1, [[0, 1]]),
        "parents of level 1 must be places 0 to 0 of the level above, got 0 to 1",
    ),
    "an empty place": (
        lambda: Places(2, [[0, 0]]),
        "got place 1 of level 0 without any; repeat it at each level below",
    ),
    "no root": (lambda: Places(0, []), "must have a root, got 0"),
    "a wrong level": (
        lambda: fit_places(TREE, (2,), [PlaceQuery(3, (), np.ones(1))]),
        "a level must be 0 to 2, got 3",
    ),
    "wrong attributes": (
        lambda: fit_places(TREE, (2,), [PlaceQuery(2, (1,), np.ones(1))]),
        "ascending positions 0 to 0, got",
    ),
    "wrong values": (
        lambda: fit_places(TREE, (2,), [PlaceQuery(2, (0,), np.ones(5))]),
        "must be 3 x 2 numbers, got shape",
    ),
    "no noise": (
        lambda: fit_places(TREE, (2,), [PlaceQuery(2, (0,), np.ones(6), 0.0)]),
        "must be positive",
    ),
    "nan": (
        lambda: fit_places(TREE, (2,), [PlaceQuery(2, (0,), np.full(6, np.nan))]),
        "must be finite",
    ),
    "nothing": (lambda: fit_places(TREE, (2,), []), "at least one measurement, got none"),
    "negative control": (
        lambda: fit_places(TREE, (2,), [LEAVES], [PlaceRange.exact(0, (), np.array([-1.0]))]),
        "not negative, got -1 to -1",
    ),
    "contradiction": (
        lambda: fit_places(
            TREE,
            (2,),
            [LEAVES],
            [
                PlaceRange.exact(0, (), np.array([5.0])),
                PlaceRange.exact(1, (), np.array([1.0, 2.0])),
            ],
        ),
        "exact controls must not contradict each other",
    ),
    "wrong mask": (
        lambda: fit_places(TREE, (2,), [LEAVES], possible=np.ones(5, bool)),
        "must be 2 or 3 x 2 truth values",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    work, words = REFUSED[case]
    with pytest.raises((ConsilienceError, MeasurementError)) as caught:
        work()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
