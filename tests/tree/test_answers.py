"""Where branches of a junction tree meet: sums of products, against the definition."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from consilience.kernels.messages import sorted_by
from consilience.tree import answers


@pytest.mark.parametrize("chunk", [1, 300, 1 << 22])
@pytest.mark.parametrize("rows", [(3,), (4, 2), (2, 4), (3, 1, 2), (2, 3, 2, 2)])
def test_branches_that_meet_are_summed_over_the_cells(rows, chunk, monkeypatch) -> None:
    monkeypatch.setattr(answers, "CHUNK", chunk)
    rng = np.random.default_rng(len(rows))
    cells, width = 40, 6
    values = rng.random(cells)
    column = rng.integers(0, width - 1, cells)  # the last column has no cell
    branches = [(rng.random((5, r)), rng.integers(0, 5, cells)) for r in rows]
    expected = np.zeros((width, prod(rows)))
    for cell in range(cells):
        product = np.ones(1)
        for message, at in branches:
            product = np.multiply.outer(product, message[at[cell]]).reshape(-1)
        expected[column[cell]] += values[cell] * product
    groups = [sorted_by(at, 5) for _, at in branches]
    found = answers.Joint.of(values, column, width, groups).met([m for m, _ in branches])
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)
