"""Releases of many sizes for the page's tests, and the page served as a reader gets it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from threading import Thread

import consilience as cs
from consilience.data.binned import Numeric
from consilience.data.columns import Categorical
from consilience.data.schema import Grouping
from consilience.explore.server import Server
from consilience.explore.view import View
from consilience.privacy import SeededNoise
from consilience.release import Published
from report.cases import BUDGET, people

SCRIPT = "</script><script>window.broken = 1</script>"
HOSTILE = (
    SCRIPT,
    "<img src=x onerror='window.broken=2'>",
    "long " * 40 + "end",
    "שלום עולם",
    'a|b, "c"=d and (e',
)
NAMES = (
    '<b>bold</b> "name", so',
    "السكان",
    "a very long name of a column that goes on and on until nobody reads it any more",
)


def schema_of(columns: int) -> cs.Schema:
    """Numbers, labels, and among them the worst of labels and names."""
    first = (
        Numeric("age", (0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 100.0), True),
        Categorical("sex", ("female", "male"), missing="male"),
        Categorical(NAMES[0], HOSTILE),
        Categorical(NAMES[1], ("نعم", "لا")),
        Categorical(NAMES[2], ("x", "y", "z")),
        Numeric("income", (0.0, 1e4, 2e4, 4e4, 1e5), False),
    )  # fmt: skip
    rest = (
        Categorical(f"column {i:03}", tuple("abcd"[: 2 + i % 3]), missing="a")
        for i in range(columns - len(first))
    )
    grown = {"young": first[0].labels[:3], "grown": first[0].labels[3:]}
    return cs.Schema(
        (*first, *rest), groupings=(Grouping("grown up", "age", grown),), name="People <of> 2026"
    )


def release_of(place: Path, columns: int, *, pairs: bool, rows: int = 3000) -> Published:
    """Seeded, so it says that it is not private. pairs: all of them; else each column with the next one."""
    schema = schema_of(columns)
    names = list(schema.domain)
    workload = cs.all_marginals(schema.domain, 2)
    if not pairs:
        workload = cs.Workload(schema.domain, list(pairwise(names)))
    return cs.release(
        people(rows, schema.domain),
        schema,
        cs.mechanisms.Gaussian(workload),
        BUDGET,
        out=place / f"release {columns}",
        noise=SeededNoise(seed=1),
    )


@contextmanager
def served(published: Published) -> Iterator[Server]:
    with Server(View(published, str(published.path))) as server:
        worker = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        worker.start()
        try:
            yield server
        finally:
            server.shutdown()
            worker.join()
