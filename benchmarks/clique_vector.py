"""CliqueVector beside plain NumPy: 10,000 triples of 100 attributes of size 10, ten million cells."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from problems import hundred, triples
from rows import Row, interleaved, seconds, timed

from consilience import CliqueVector
from consilience.domain import Layout


def rows(full: bool = False) -> Iterator[Row]:
    domain = hundred()
    cliques = triples(domain, "random", 10_000)
    taken, layout = timed(lambda: Layout(domain, cliques))
    yield Row(
        "clique vector: layout of 10,000 triples", seconds(taken), "", taken, "bar: under 1 s"
    )
    rng = np.random.default_rng(0)
    x, y = (CliqueVector(layout, rng.random(layout.cells)) for _ in range(2))
    a, b = x.values, y.values
    ours, plain = interleaved(30, lambda: x + y, lambda: a + b)
    yield Row(
        "clique vector: sum, 10 million cells",
        seconds(ours),
        f"NumPy {seconds(plain)}",
        ours / plain,
        "ours / NumPy, bar: 1.5",
    )
