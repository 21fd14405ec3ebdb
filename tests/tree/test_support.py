"""Support: the cells that can occur, against every cell enumerated."""

from __future__ import annotations

import numpy as np

from consilience.tree.support import possible_cells


def test_possible_cells_are_those_that_no_mask_forbids() -> None:
    rng = np.random.default_rng(0)
    sizes = (3, 4, 2, 5)
    masks = [
        ((0, 1), rng.random((3, 4)) < 0.5),
        ((1, 2, 3), rng.random((4, 2, 5)) < 0.6),
        ((3,), rng.random(5) < 0.8),
    ]
    alive = np.ones(sizes, bool)
    for members, mask in masks:
        alive &= mask.reshape([n if a in members else 1 for a, n in enumerate(sizes)])
    found = possible_cells((0, 1, 2, 3), sizes, masks, 1000)
    np.testing.assert_array_equal(found, np.argwhere(alive))
    assert possible_cells((0, 1, 2, 3), sizes, masks, int(alive.sum()) - 1) is None
