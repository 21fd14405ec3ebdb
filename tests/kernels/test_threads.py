"""Work handed to threads: every item once, whatever the number of threads, and also from threads and forked processes."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from consilience.kernels.threads import SERIAL_CELLS, spread, threads

LARGE = 10 * SERIAL_CELLS


def add(first: int, last: int, out: np.ndarray) -> None:
    out[first:last] += np.arange(first, last)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("items", [0, 1, 2, 3, 7, 100])
@pytest.mark.parametrize("start", [0, 5])
def test_every_item_is_worked_on_once(count: int, items: int, start: int) -> None:
    out = np.zeros(200)
    with threads(count):
        spread(add, items, LARGE, out, start=start)
    wanted = np.zeros(200)
    wanted[start : start + items] = np.arange(start, start + items)
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize(("cells", "calls"), [(SERIAL_CELLS - 1, 1), (LARGE, 8)])
def test_small_work_is_one_call(cells: int, calls: int) -> None:
    seen: list[tuple[int, int]] = []
    with threads(2):
        spread(lambda first, last: seen.append((first, last)), 100, cells)
    assert len(seen) == calls


def test_what_goes_wrong_in_a_thread_is_raised() -> None:
    def fail(first: int, last: int) -> None:
        raise ValueError(f"item {first}")

    with threads(2), pytest.raises(ValueError, match="item"):
        spread(fail, 10, LARGE)


def test_threads_may_share_the_pool() -> None:
    def work(_: int) -> np.ndarray:
        out = np.zeros(50)
        for _ in range(20):
            spread(add, 50, LARGE, out)
        return out

    with threads(3), ThreadPoolExecutor(6) as pool:
        for out in pool.map(work, range(12)):
            np.testing.assert_array_equal(out, 20 * np.arange(50))


@pytest.mark.filterwarnings("ignore:This process")  # newer Pythons warn of forks among threads
def test_a_forked_process_has_threads_of_its_own() -> None:
    out = np.zeros(50)
    with threads(2):
        spread(add, 50, LARGE, out)
        child = os.fork()
        if child == 0:
            spread(add, 50, LARGE, out)
            os._exit(0 if np.array_equal(out, 2 * np.arange(50)) else 1)
        assert os.waitpid(child, 0)[1] == 0
