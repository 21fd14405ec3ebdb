"""Counts against NumPy: any domain, rank, weights, code width, number of threads."""

import json
import os
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.domain import Domain, all_marginals, closure
from consilience.kernels import counting
from consilience.kernels.threads import threads
from consilience.records import Dataset

FOLDER = Path(os.environ.get("CONSILIENCE_DATA", Path(__file__).parents[3] / "shared" / "data"))


def judge(codes: np.ndarray, domain: Domain, clique, weights=None) -> np.ndarray:
    """One marginal by numpy.bincount on raveled codes, axes in the order of the clique."""
    shape = domain.shape_of(clique)
    if not clique:
        return np.asarray(len(codes) if weights is None else np.sum(weights))
    columns = [codes[:, domain.position(a)].astype(np.int64) for a in clique]
    cells = np.ravel_multi_index(columns, shape)
    return np.bincount(cells, weights, minlength=int(np.prod(shape))).reshape(shape)


def draw_codes(domain: Domain, rows: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    # Squaring skews the codes, so that neighbours often fall in the same cell.
    return np.stack([(n * rng.random(rows) ** 2).astype(np.int64) for n in domain.shape], axis=1)


@st.composite
def tables(draw) -> tuple[Domain, np.ndarray]:
    sizes = draw(st.lists(st.integers(1, 7), min_size=1, max_size=6))
    domain = Domain({f"x{i}": n for i, n in enumerate(sizes)})
    return domain, draw_codes(domain, draw(st.integers(0, 60)), draw(st.integers(0, 2**32)))


@settings(deadline=None)
@given(tables())
def test_every_marginal_of_every_rank(table) -> None:
    domain, codes = table
    cliques = closure(domain, [domain.attributes])  # the empty clique and the whole joint included
    counted = Dataset(codes, domain).marginals(cliques)
    assert counted.cliques == cliques
    for clique in cliques:
        np.testing.assert_array_equal(counted[clique], judge(codes, domain, clique))


@settings(deadline=None)
@given(tables(), st.integers(0, 2**32))
def test_weighted_marginals_are_sums_of_weights(table, seed: int) -> None:
    domain, codes = table
    weights = np.random.default_rng(seed).exponential(size=len(codes))
    counted = Dataset(codes, domain, weights).marginals(closure(domain, [domain.attributes]))
    for clique, counts in counted.items():
        np.testing.assert_allclose(counts, judge(codes, domain, clique, weights), atol=1e-12)


@settings(deadline=None)
@given(tables(), st.integers(0, 2**32))
def test_the_order_of_the_records_does_not_matter(table, seed: int) -> None:
    domain, codes = table
    shuffled = np.random.default_rng(seed).permutation(codes)
    cliques = all_marginals(domain, len(domain))
    np.testing.assert_array_equal(
        Dataset(codes, domain).marginals(cliques).values,
        Dataset(shuffled, domain).marginals(cliques).values,
    )


# Past one block, past one block with a rest, past one chunk: the seams of the kernel's loops.
@pytest.mark.parametrize(
    "rows",
    [counting.BLOCK - 1, counting.BLOCK, 3 * counting.BLOCK + 1, counting.CHUNK + 1],
)
@pytest.mark.parametrize("number_of_cliques", [1, 3, 4, 5, 10])
def test_seams_between_blocks_chunks_and_lanes(rows: int, number_of_cliques: int) -> None:
    domain = Domain({"a": 3, "b": 4, "c": 5, "d": 2, "e": 6})
    codes = draw_codes(domain, rows, 0)
    weights = np.arange(rows) % 8.0  # whole, so that sums are exact
    cliques = list(combinations(domain, 2))[:number_of_cliques]
    plain = Dataset(codes, domain).marginals(cliques)
    weighted = Dataset(codes, domain, weights).marginals(cliques)
    for clique in cliques:
        np.testing.assert_array_equal(plain[clique], judge(codes, domain, clique))
        np.testing.assert_array_equal(weighted[clique], judge(codes, domain, clique, weights))


@pytest.mark.parametrize(
    ("size", "dtype"),
    [
        (1, np.uint8),
        (255, np.uint8),
        (256, np.uint8),
        (257, np.uint16),
        (65_535, np.uint16),
        (65_536, np.uint16),
        (65_537, np.uint32),
        (100_000, np.uint32),
    ],
)
def test_code_widths_at_their_limits(size: int, dtype: type) -> None:
    domain = Domain({"small": 2, "edge": size, "word": 300, "wide": 70_000})
    codes = draw_codes(domain, 500, size)
    codes[:2, 1] = [size - 1, 0]  # the largest code
    data = Dataset(codes, domain)
    assert data.column("edge").dtype == dtype
    for clique in [("edge",), ("small", "edge"), ("edge", "word"), ("small", "wide")]:
        np.testing.assert_array_equal(data.marginal(clique), judge(codes, domain, clique))


@pytest.mark.parametrize("weighted", [False, True])
def test_the_number_of_threads_changes_no_bit(weighted: bool) -> None:
    domain = Domain({f"x{i}": i + 2 for i in range(8)})
    codes = draw_codes(domain, 20_000, 3)
    weights = np.random.default_rng(4).exponential(size=20_000) if weighted else None
    data = Dataset(codes, domain, weights)
    results = []
    for count in (1, 2, 3):
        with threads(count):
            results.append(data.marginals(all_marginals(domain, 3)).values)
    for values in results[1:]:
        np.testing.assert_array_equal(values, results[0])


def test_cell_numbers_of_eight_bytes_count_the_same() -> None:
    """The path for tables of more than 2^32 cells, tried on a small one."""
    domain = Domain({"a": 3, "b": 300, "c": 70_000})
    codes = draw_codes(domain, 3000, 5)
    data = Dataset(codes, domain)
    counts = np.zeros(900 + 210_000)
    counting._count(
        *(0, 1, 0, len(codes)),
        *data.codes.arrays,
        data.codes.columns,
        np.array(domain.shape),
        np.array([0, 1, 0, 2]),
        np.array([0, 2, 4]),
        np.array([0, 900, 210_900]),
        np.empty(0),
        counts,
        np.empty(0, np.uint64),
    )
    expected = [judge(codes, domain, c).ravel() for c in [("a", "b"), ("a", "c")]]
    np.testing.assert_array_equal(counts, np.concatenate(expected))


def test_no_records_and_no_cliques() -> None:
    domain = Domain({"a": 3, "b": 4})
    empty = Dataset(np.empty((0, 2), dtype=np.int64), domain)
    assert empty.marginals([("a", "b"), ()]).values.tolist() == [0.0] * 13
    assert empty.marginal(()) == 0
    assert Dataset(np.empty((0, 2), int), domain, weights=[]).marginal("a").tolist() == [0, 0, 0]
    assert Dataset([[1, 2]], domain).marginals([]).values.size == 0


@pytest.mark.data
@pytest.mark.skipif(
    not (FOLDER / "fire.csv.gz").exists(), reason=f"needs the paper's data: no fire in {FOLDER}"
)
def test_all_three_way_marginals_of_fire() -> None:
    domain = Domain(json.loads((FOLDER / "fire-domain.json").read_text()))
    codes = np.loadtxt(FOLDER / "fire.csv.gz", delimiter=",", skiprows=1, dtype=np.int64)
    counted = Dataset(codes, domain).marginals(all_marginals(domain, 3))
    assert len(counted) == 455
    for clique, counts in counted.items():
        np.testing.assert_array_equal(counts, judge(codes, domain, clique))
