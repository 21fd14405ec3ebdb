"""Who does the shards' work: this process, worker processes over files, or Spark. The answers are the same bit for bit.

Worker processes keep nothing: a shard is files that are mapped, and a job writes what it changes as new files under the number of
the job, beside the old ones. So a job that was killed is done again from where it began, and nothing is lost.
"""

from __future__ import annotations

import mmap
import os
import pickle
import tempfile
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from consilience.errors import ConsilienceError
from consilience.kernels.threads import threads
from consilience.solvers.place_parts import JOBS, Compiled, Shard
from consilience.solvers.place_shards import Cut

MOST_STARTS = 20
"""Times that worker processes which died are started again before it is given up: their work itself may be what kills them."""
EVERY = 10
"""Spark jobs after which the way that the shards were made is cut off, so that it does not grow without end."""
ALIGN = 64


class Shards(ABC):
    """Shards somewhere. `run` sends each its message and gives their answers in the order of the shards."""

    @abstractmethod
    def compile(self, cut: Cut, tiny: float) -> Iterator[Compiled]: ...

    @abstractmethod
    def run(self, job: str, messages: Iterable[Any]) -> Iterator[Any]: ...


class Here(Shards):
    """In this process, in memory, by its threads."""

    def compile(self, cut: Cut, tiny: float) -> Iterator[Compiled]:
        self.shards: list[Shard] = []
        for s in range(len(cut)):
            shard, answer = Shard.compiled(cut.shard(s), tiny)
            self.shards.append(shard)
            yield answer

    def run(self, job: str, messages: Iterable[Any]) -> Iterator[Any]:
        for shard, message in zip(self.shards, messages, strict=True):
            yield JOBS[job].answer(shard, message)


# -- worker processes ---------------------------------------------------------------------------------------


class Workers(Shards):
    """Processes over files in a folder. `moved` counts bytes of messages and answers, `written` those of state."""

    def __init__(self, workers: int, folder: Path) -> None:
        self.workers, self.folder = workers, folder
        self.versions: list[dict[str, int]] = []
        self.number = 0
        self.starts = 0
        self.written = self.moved = 0
        self._pool = self._start()

    def _start(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self.workers, mp_context=get_context("spawn"))

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    @property
    def processes(self) -> list[int]:
        """Of the workers that run now."""
        return list(getattr(self._pool, "_processes", None) or {})

    def compile(self, cut: Cut, tiny: float) -> Iterator[Compiled]:
        self.versions = [{} for _ in range(len(cut))]
        yield from self._all("compile", (lambda s=s: (cut.shard(s), tiny) for s in range(len(cut))))

    def run(self, job: str, messages: Iterable[Any]) -> Iterator[Any]:
        yield from self._all(job, (lambda m=m: m for m in messages))

    def _all(self, job: str, messages: Iterable[Callable[[], Any]]) -> Iterator[Any]:
        """Answers in order, no more messages under way than workers and one. Those of a pool that broke are sent again."""
        self.number += 1
        waiting: deque[tuple[int, Callable[[], Any], Future[Any]]] = deque()
        todo = enumerate(messages)
        for s, message in todo:
            waiting.append((s, message, self._send(s, job, message)))
            if len(waiting) > self.workers:
                yield self._answer(waiting, job)
        while waiting:
            yield self._answer(waiting, job)

    def _send(self, s: int, job: str, message: Callable[[], Any]) -> Future[Any]:
        sent = pickle.dumps(message(), 5)
        self.moved += len(sent)
        args = (str(self.folder / str(s)), dict(self.versions[s]), job, sent, self.number)
        try:
            return self._pool.submit(_work, *args)
        except BrokenProcessPool:
            self._restart()
            return self._pool.submit(_work, *args)

    def _answer(self, waiting: deque[Any], job: str) -> Any:
        while True:
            s, _, future = waiting[0]
            try:
                got, changed, written = future.result()
                break
            except (BrokenProcessPool, CancelledError):
                if not future.cancelled():  # else the pool was started anew when a message was sent
                    self._restart()
                for i, (t, message, old) in enumerate(waiting):
                    if old.cancelled() or not old.done() or old.exception() is not None:
                        waiting[i] = t, message, self._send(t, job, message)
        waiting.popleft()
        self.moved += len(got)
        self.written += written
        for name in changed:
            before = self.versions[s].get(name)
            self.versions[s][name] = self.number
            if before is not None:
                _file(str(self.folder / str(s)), name, before).unlink()
        return pickle.loads(got)

    def _restart(self) -> None:
        self.starts += 1
        if self.starts > MOST_STARTS:
            raise ConsilienceError(
                f"worker processes died {self.starts} times, probably for lack of memory; ask for fewer workers"
            )
        self._pool.shutdown(cancel_futures=True)
        for left in self.folder.glob("*.unfinished*"):  # of the process that died
            left.unlink()
        self._pool = self._start()


def _work(
    base: str, versions: dict[str, int], job: str, sent: bytes, number: int
) -> tuple[bytes, list[str], int]:
    """One job of one shard, in a worker: the answer, the slots that it wrote, and their bytes."""
    message = pickle.loads(sent)
    slots = {name: loaded(_file(base, name, v)) for name, v in versions.items()}
    answer, changed = answered(slots, job, message)
    written = sum(dumped(_file(base, name, number), value) for name, value in changed.items())
    return pickle.dumps(answer, 5), list(changed), written


def answered(slots: dict[str, Any], job: str, message: Any) -> tuple[Any, dict[str, Any]]:
    """A shard's answer, and the slots that it changed."""
    with threads(1):
        if job == "compile":
            shard, answer = Shard.compiled(*message)
            return answer, shard.slots()
        shard = Shard.of(slots)
        answer = JOBS[job].answer(shard, message)
        return answer, {n: v for n, v in shard.slots().items() if n in JOBS[job].changes}


def _file(base: str, name: str, version: int) -> Path:
    return Path(f"{base}.{name}.{version}")


def dumped(path: Path, value: Any) -> int:
    """The value as a file: arrays behind the rest, each where it can be mapped. The file is whole or not there."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, 5, buffer_callback=buffers.append)
    raw = [b.raw() for b in buffers]
    index = pickle.dumps((len(head), [len(r) for r in raw]))
    unfinished = path.with_name(f"{path.name}.unfinished{os.getpid()}")
    with unfinished.open("wb") as file:
        file.write(len(index).to_bytes(8, "little") + index + head)
        for r in raw:
            file.write(bytes(-file.tell() % ALIGN))
            file.write(r)
        size = file.tell()
    unfinished.replace(path)
    return size


def loaded(path: Path) -> Any:
    """What `dumped` wrote; arrays are the mapped file, and what is changed in them stays in this process."""
    with path.open("rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    at = 8 + int.from_bytes(view[:8], "little")
    length, sizes = pickle.loads(view[8:at])
    head, at, buffers = view[at : at + length], at + length, []
    for size in sizes:
        at += -at % ALIGN
        buffers.append(view[at : at + size])
        at += size
    return pickle.loads(head, buffers=buffers)


# -- Spark --------------------------------------------------------------------------------------------------


class Spark(Shards):
    """Partitions of an RDD, one for each shard, as bytes; every job makes the next RDD. Spark keeps and repeats what is lost."""

    def __init__(self, session: Any) -> None:
        self.context = session.sparkContext
        self.jobs = 0
        self.state: Any = None

    def compile(self, cut: Cut, tiny: float) -> Iterator[Compiled]:
        given = [pickle.dumps((cut.shard(s), tiny), 5) for s in range(len(cut))]
        self.state = self.context.parallelize([(b, {}) for b in given], len(given))
        yield from self._next("compile", None)

    def run(self, job: str, messages: Iterable[Any]) -> Iterator[Any]:
        yield from self._next(job, [pickle.dumps(m, 5) for m in messages])

    def _next(self, job: str, messages: list[bytes] | None) -> list[Any]:
        """One Spark job: the messages are sent, the next RDD is made and kept, the answers come back."""
        sent = None if messages is None else self.context.broadcast(messages)

        def work(s: int, kept: Iterator[Any]) -> Iterator[Any]:
            for given, slots in kept:  # one
                yield _spark_work(slots, job, given if sent is None else sent.value[s])

        done = self.state.mapPartitionsWithIndex(work, preservesPartitioning=True).persist()
        self.jobs += 1
        if self.jobs % EVERY == 1:  # the first too: what was sent is then not sent again
            done.checkpoint() if self.context.getCheckpointDir() else done.localCheckpoint()
        answers = [pickle.loads(a) for a in done.map(lambda kept: kept[0]).collect()]
        self.state.unpersist()
        self.state = done
        return answers


def _spark_work(slots: dict[str, bytes], job: str, sent: bytes) -> tuple[bytes, dict[str, bytes]]:
    there = {name: pickle.loads(value) for name, value in slots.items()}
    answer, changed = answered(there, job, pickle.loads(sent))
    kept = {name: pickle.dumps(value, 5) for name, value in changed.items()}
    return pickle.dumps(answer, 5), {**slots, **kept}


def spark_session() -> Any:
    """The Spark session that there is, or a new one as Spark's own settings say."""
    try:
        from pyspark.sql import SparkSession  # pyright: ignore[reportMissingImports] (an extra)
    except ImportError:
        raise ConsilienceError(
            "Spark is an extra that is not installed; run: pip install 'consilience[spark]' (and have Java 17)"
        ) from None
    try:
        return SparkSession.builder.getOrCreate()  # pyright: ignore[reportAttributeAccessIssue]
    except Exception as error:  # whatever the gateway to Java raises
        raise ConsilienceError(f"Spark did not start: {str(error).splitlines()[0]}") from error


@contextmanager
def shards_of(workers: Any, folder: Path | None = None) -> Iterator[Shards]:
    """None: in memory here. A number: so many processes, over files in the folder or a temporary one. A Spark session: there."""
    if workers is None:
        yield Here()
    elif isinstance(workers, int) and not isinstance(workers, bool):
        if workers < 1:
            raise ConsilienceError(f"there must be at least one worker, got {workers}")
        with tempfile.TemporaryDirectory(prefix="shards-", dir=folder) as inside:
            pool = Workers(workers, Path(inside))
            try:
                yield pool
            finally:
                pool.close()
    elif hasattr(workers, "sparkContext"):
        yield Spark(workers)
    else:
        raise ConsilienceError(
            f"workers must be a number of processes or a Spark session, got {type(workers).__name__}"
        )
