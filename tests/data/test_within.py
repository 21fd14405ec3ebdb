"""Numbers inside bins: the law against simulation, exact ends, and values that code back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.data.binned import Numeric
from consilience.data.columns import Boolean, Categorical
from consilience.data.within import Values
from consilience.errors import DataError


@pytest.mark.parametrize("edges", [(0, 20, 50, 100, 200, 2000), tuple(range(0, 1000, 50))])
def test_exponential_values_are_found_again(edges: tuple[int, ...]) -> None:
    """Log-linear is exactly right for them: the mean of every bin is that of the values in it."""
    x = np.random.default_rng(0).exponential(60.0, 400_000)
    column = Numeric("x", edges)
    x = x[x < edges[-1]]
    codes = column.encode(x)
    counts = np.bincount(codes, minlength=column.bins).astype(float)
    found, middles = Values.of(column).means(counts), column.decode(np.arange(column.bins))
    full = counts > 2000
    truth = np.bincount(codes, x, column.bins)[full] / counts[full]
    width = np.diff(edges)[full]
    assert np.abs(found[full] - truth).max() < 0.03 * width.max()
    mean = (found * counts).sum() / counts.sum()
    assert abs(mean - x.mean()) < 1.5
    assert abs(mean - x.mean()) < 0.2 * abs((middles[:column.bins] * counts).sum() / counts.sum() - x.mean())  # fmt: skip


def test_even_values_lie_in_the_middle_and_single_ones_where_they_are() -> None:
    even = Values.of(Numeric("x", (0.0, 1.0, 2.0, 3.0)))
    np.testing.assert_allclose(even.means(np.full(3, 50.0)), [0.5, 1.5, 2.5])
    whole = Values.of(Numeric("x", (0, 10, 20), whole=True))
    np.testing.assert_allclose(whole.means(np.full(2, 50.0)), [4.5, 15.0], atol=0.2)
    assert (whole.first.tolist(), whole.last.tolist()) == ([0, 10], [9, 20])
    each = Values.of(Numeric.each("x", 3, 7))
    np.testing.assert_array_equal(each.means(np.array([1.0, 50, 3, 0, 9])), [3, 4, 5, 6, 7])
    spelled = Values.of(Categorical("x", ("2", "1", "10")))
    assert (spelled.codes, spelled.first.tolist()) == ((1, 0, 2), [1, 2, 10])


@given(st.lists(st.integers(0, 10_000), min_size=3, max_size=3), st.booleans(), st.integers(0, 99))
def test_drawn_values_code_back_to_their_bins(counts: list[int], whole: bool, seed: int) -> None:
    column = Numeric("x", (0, 18, 65, 100), whole=whole)
    rng = np.random.default_rng(seed)
    bins = rng.integers(0, 3, 200)
    drawn = Values.of(column).drawn(np.array(counts, float), bins, rng)
    np.testing.assert_array_equal(column.encode(drawn), bins)
    assert not whole or (drawn == np.rint(drawn)).all()


def test_what_is_no_number_is_refused() -> None:
    for column in (Categorical("x", ("a", "1")), Boolean("x")):
        with pytest.raises(DataError, match="column 'x' must hold numbers for this question"):
            Values.of(column)
