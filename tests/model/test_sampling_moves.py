"""Moves of single codes: the cost falls, ends where no single move helps; impossible cells are left and never entered."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.domain import CliqueVector, Domain
from consilience.kernels.threads import threads
from consilience.model.sampling import BLOCK, RowMoves, _blocks, impossible_rows, widths
from consilience.records import Dataset
from solvers.problems import cliques_of, marginal_of

DOMAIN = Domain({"a": 3, "b": 4, "c": 2, "d": 3, "one": 1})
CLIQUES = [*cliques_of("abc cd bd ad a"), ("a", "one")]


def targets(seed: int) -> CliqueVector:
    joint = np.random.default_rng(seed).dirichlet(np.full(DOMAIN.size(), 0.4)).reshape(DOMAIN.shape)
    tables = {DOMAIN.clique(c): marginal_of(DOMAIN, joint, c) for c in CLIQUES}
    return CliqueVector.from_tables(DOMAIN, tables)


def uniform_rows(n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(0, size, n) for size in DOMAIN.shape], axis=1).astype(np.int32)


def cost(codes: np.ndarray, tau: CliqueVector) -> float:
    """The sum of max(|count - target| - 1, 0), from the definition."""
    counts = Dataset(codes, DOMAIN).marginals(tau.cliques).values
    return float(np.maximum(np.abs(counts - len(codes) * tau.values) - 1, 0).sum())


@pytest.mark.parametrize(("n", "seed"), [(1, 0), (17, 1), (300, 2), (20_000, 3)])
def test_every_sweep_lowers_the_cost(n: int, seed: int) -> None:
    tau, codes = targets(seed), uniform_rows(n, seed)
    moves = RowMoves(tau, None)
    before = cost(codes, tau)
    for _ in range(4):
        made = moves.sweep(codes, 1.0)
        after = cost(codes, tau)
        assert after <= before + 1e-3 * n
        assert (after < before) == (made > 0)
        before = after


@pytest.mark.parametrize("seed", range(3))
def test_the_end_is_a_place_that_no_single_move_improves(seed: int) -> None:
    tau, codes = targets(seed), uniform_rows(40, seed)
    moves = RowMoves(tau, None)
    while moves.sweep(codes, 1.0):
        pass
    reached = cost(codes, tau)
    for row in range(len(codes)):
        for a, size in enumerate(DOMAIN.shape):
            for v in range(size):
                other = codes.copy()
                other[row, a] = v
                assert cost(other, tau) >= reached - 2e-3


def test_rows_reach_tables_that_rows_can_have() -> None:
    tau = targets(4)
    codes = uniform_rows(50_000, 4)
    moves = RowMoves(tau, None)
    for k, width in enumerate(widths(len(codes), 10)):
        moves.sweep(codes, width, part=k)
    counts = Dataset(codes, DOMAIN).marginals(tau.cliques).values
    assert np.abs(counts - 50_000 * tau.values).max() < 3


def test_a_rounding_of_the_targets_is_left_alone() -> None:
    """One row may be anywhere that is possible: common cells do not attract it."""
    tau = targets(5)
    for seed in range(20):
        codes = uniform_rows(1, seed)
        before = codes.copy()
        assert RowMoves(tau, None).sweep(codes, 1.0) == 0
        np.testing.assert_array_equal(codes, before)


def test_impossible_cells_are_left_and_never_entered() -> None:
    allowed = CliqueVector(targets(0).layout, np.ones(targets(0).values.size))
    allowed["b", "d"][1:3, :2] = 0
    allowed["a",][2] = 0
    tau = targets(0)
    tau.values[allowed.values == 0] = 0
    moves = RowMoves(tau, allowed)
    codes = uniform_rows(3000, 0)
    judge = (codes[:, 0] == 2) | (np.isin(codes[:, 1], [1, 2]) & (codes[:, 3] < 2))
    np.testing.assert_array_equal(impossible_rows(allowed, codes), judge)
    assert judge.sum() > 1000
    moves.sweep(codes, 30.0)
    assert not impossible_rows(allowed, codes).any()
    for width in (10.0, 1.0):
        moves.sweep(codes, width)
        assert not impossible_rows(allowed, codes).any()


def test_the_number_of_threads_changes_nothing() -> None:
    found = []
    for count in (1, 2, 3):
        with threads(count):
            codes = uniform_rows(30_000, 1)
            made = [RowMoves(targets(1), None).sweep(codes, w) for w in (100.0, 1.0)]
            found.append((made, codes))
    for made, codes in found[1:]:
        assert made == found[0][0]
        np.testing.assert_array_equal(codes, found[0][1])


@pytest.mark.parametrize("n", [0, 1, BLOCK, BLOCK + 1, 40 * BLOCK, 500 * BLOCK + 3])
def test_blocks_cover_all_rows_at_first_and_later_in_turn(n: int) -> None:
    for part in range(2):
        assert sum(high - low for low, high in _blocks(n, part)) == n
    turns = max(1, n >> 18)
    seen = sorted(b for part in range(2, 2 + turns) for b in _blocks(n, part))
    assert [low for low, _ in seen] == list(range(0, n, BLOCK))
    assert sum(high - low for low, high in seen) == n


def test_widths_go_from_a_share_of_the_rows_to_one() -> None:
    assert widths(100_000, 4) == pytest.approx([1000, 100, 10, 1])
    assert widths(10, 3) == [1, 1, 1]
    assert widths(10, 0) == []
    assert widths(100_000, 1) == pytest.approx([1000])
