"""The one loop: when it stops, what it reports, and what it lets through."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from consilience.loop import Check, Goal, Stop, expected, iterate
from consilience.progress import Iteration
from consilience.status import Ending, stalled


@dataclass
class Halving:
    """A gap that halves with every iteration; `undone` steps do nothing, `stuck` ends the method."""

    undone: tuple[int, ...] = ()
    stuck: int | None = None
    ready: bool = True
    checked: list[int] = field(default_factory=list)
    tries: int = 0

    def start(self) -> list[float]:
        return [1.0]

    def step(self, state: list[float], most: int) -> int:
        self.tries += 1
        if self.tries == self.stuck:
            raise Stop(stalled(self.tries, state[0], 0.0, Goal.GAP))
        if self.tries in self.undone:
            return 0
        state[0] /= 2
        return 1

    def check(self, state: list[float], done: int) -> Check:
        self.checked.append(done)
        return Check(objective=-float(done), gap=state[0], violation=0.1, ready=self.ready)


def test_it_stops_at_the_first_check_that_meets_the_tolerance() -> None:
    method = Halving()
    run = iterate(method, limit=100, tolerance=0.1, when=lambda done: done + 3)
    assert (run.iterations, run.status.ending, run.state) == (6, Ending.CONVERGED, [1 / 64])
    assert method.checked == [3, 6]
    assert run.last == Check(-6.0, 1 / 64, 0.1)


def test_out_of_iterations_says_how_far_it_came() -> None:
    run = iterate(Halving(), limit=4, tolerance=1e-3, when=lambda done: done + 3)
    assert (run.iterations, run.status.ending) == (4, Ending.OUT_OF_ITERATIONS)
    assert "the relative gap is 0.0625 after 4 iterations, 0.001 was asked for" in str(run.status)
    run = iterate(Halving(), limit=4, tolerance=1e-3, goal=Goal.VIOLATION)
    assert "the consistency violation is 0.1 after 4 iterations" in str(run.status)


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_without_a_tolerance_exactly_the_asked_number_is_done(limit: int) -> None:
    method = Halving()
    run = iterate(method, limit=limit, tolerance=None, when=lambda done: done + 100)
    assert (run.iterations, run.status.ending, method.tries) == (limit, Ending.AS_ASKED, limit)
    assert method.checked == [limit]


def test_steps_that_were_undone_do_not_count_and_a_method_may_end_itself() -> None:
    run = iterate(Halving(undone=(1, 3)), limit=3, tolerance=None)
    assert (run.iterations, run.state) == (3, [1 / 8])
    run = iterate(Halving(stuck=3), limit=10, tolerance=1e-9)
    assert (run.iterations, run.status.ending, run.state) == (2, Ending.STALLED, [1 / 4])
    run = iterate(Halving(ready=False), limit=10, tolerance=0.5)
    assert run.status.ending is Ending.OUT_OF_ITERATIONS


def test_progress_sees_every_check_and_its_exceptions_end_the_work() -> None:
    seen: list[Iteration] = []
    iterate(Halving(), limit=9, tolerance=1 / 16, stage="sweeps", progress=seen.append)  # type: ignore[arg-type]
    assert [(s.stage, s.done, s.objective, s.gap) for s in seen] == [
        ("sweeps", k, -float(k), 2.0**-k) for k in (1, 2, 3, 4)
    ]
    assert [s.total for s in seen] == [4, 4, 4, 4]
    seen.clear()
    iterate(Halving(), limit=2, tolerance=None, progress=seen.append)  # type: ignore[arg-type]
    assert [s.total for s in seen] == [2, 2]

    def interrupt(step: object) -> None:
        raise KeyboardInterrupt

    method = Halving()
    with pytest.raises(KeyboardInterrupt):
        iterate(method, limit=9, tolerance=None, progress=interrupt)
    assert method.tries == 1


@pytest.mark.parametrize(
    ("done", "gap", "total"),
    [(10, 1e-3, 20), (10, 1e-6, 10), (10, 1e-8, 10), (10, 0.5, 200), (10, 1.5, None)],
)
def test_iterations_are_foreseen_from_how_the_gap_fell(done, gap, total) -> None:
    assert expected(done, gap, 1e-6) == total


@pytest.mark.parametrize("gap", [float("inf"), float("nan"), 0.0])
def test_nothing_is_foreseen_from_nothing(gap: float) -> None:
    assert expected(10, gap, 1e-6) is None
    assert expected(10, 0.5, None) is None
