"""Maximum entropy given marginals of one table, by iterative proportional fitting."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from consilience.domain import Buffer, Clique

ROUNDS = 60
LEAST = 1e-12
"""Marginals that come from noisy fits agree only nearly: a zero of one must not empty what another fills."""


def maximum_entropy_table(
    clique: Clique, shape: tuple[int, ...], known: Mapping[Clique, Buffer], rounds: int = ROUNDS
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
