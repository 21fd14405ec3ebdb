"""Noise: the right law at the right scale (and not at 0.9 or 1.1 of it), on integers, on all cores."""

import threading
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chi2

import consilience.privacy.noise as noise_module
from consilience.errors import BudgetError, NoiseError
from consilience.privacy import Epsilon, Rho, Scale, SecureNoise, SeededNoise, Sigma

SOURCES = {"secure": SecureNoise(), "seeded": SeededNoise(seed=7)}
RUNS = 20_000
FALSE_ALARM = 1e-6  # a right sampler fails one such test in a million


def law(width, factor: float = 1.0):
    """Support and probabilities of the discrete law, scaled by `factor`."""
    w = width.value * factor
    z = np.arange(-int(60 * w) - 3, int(60 * w) + 4)
    exponent = z**2 / (2 * w * w) if isinstance(width, Sigma) else np.abs(z) / w
    p = np.exp(-exponent)
    return z, p / p.sum()


def p_value(samples, z, p) -> float:
    """Chi-squared test in cells of about equal expectation."""
    cells = min(40, (p * samples.size > 20).sum())
    edges = np.unique(z[np.searchsorted(np.cumsum(p), np.linspace(0, 1, cells + 1)[1:-1])])
    expected = np.diff(np.concatenate([[0], np.cumsum(p)[np.searchsorted(z, edges)], [1]]))
    observed = np.bincount(np.searchsorted(edges, samples), minlength=edges.size + 1)
    keep = expected * samples.size > 5
    expected = np.append(expected[keep], expected[~keep].sum()) * samples.size
    observed = np.append(observed[keep], observed[~keep].sum())
    statistic = ((observed - expected) ** 2 / np.maximum(expected, 1e-9))[expected > 1e-9].sum()
    return float(chi2.sf(statistic, keep.sum() - 1))


def draw(source, counts, width):
    name = "discrete_gaussian" if isinstance(width, Sigma) else "discrete_laplace"
    return getattr(SOURCES[source], name)(counts, width)


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    "width", [Sigma(0.8), Sigma(4.2), Sigma(60), Scale(0.8), Scale(25)], ids=repr
)
def test_the_right_scale_is_accepted_and_its_neighbours_are_not(source, width):
    counts = np.arange(RUNS) * 1000
    samples = draw(source, counts, width).values - counts
    assert p_value(samples, *law(width)) > FALSE_ALARM
    for factor in (0.9, 1.1):
        assert p_value(samples, *law(width, factor)) < 1e-9
        wrong = draw(source, counts, type(width)(width.value * factor)).values - counts
        assert p_value(wrong, *law(width)) < 1e-9


@pytest.mark.parametrize("source", SOURCES)
def test_cells_are_independent(source):
    samples = draw(source, np.zeros((RUNS // 2, 2), dtype=int), Sigma(5)).values
    correlation = np.corrcoef(samples.T)[0, 1]
    assert abs(correlation) < 5 / np.sqrt(RUNS // 2)


def softmax(scores, epsilon):
    p = np.exp(epsilon * np.asarray(scores, dtype=float) / 2)
    return p / p.sum()


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("kind", [int, float])
def test_selection_follows_its_law(source, kind):
    scores, epsilon, runs = np.array([0, 3, 1, -2], dtype=kind), 1.2, 4000
    choose = SOURCES[source].select
    chosen = [choose(scores, Fraction(1), Epsilon(epsilon)) for _ in range(runs)]
    observed = np.bincount(chosen, minlength=4)

    def p(eps):
        expected = softmax(scores, eps) * runs
        return chi2.sf(((observed - expected) ** 2 / expected).sum(), 3)

    assert p(epsilon) > FALSE_ALARM
    assert p(epsilon / 0.7) < 1e-6  # sensitivity or noise too small would be seen
    assert p(epsilon * 0.7) < 1e-6


@pytest.mark.parametrize("source", SOURCES)
def test_sensitivity_scales_selection(source):
    scores, runs = np.array([0.0, 300.0]), 2000
    choose = SOURCES[source].select
    wins = sum(choose(scores, Fraction(100), Epsilon(1)) for _ in range(runs))
    expected = softmax([0, 3], 1.0)[1]
    assert abs(wins / runs - expected) < 6 * np.sqrt(0.25 / runs)


def test_scores_beyond_the_grid_are_clipped_not_wrapped():
    assert SecureNoise().select(np.array([-1e300, 1e300]), Fraction(1), Epsilon(1)) == 1
    assert SecureNoise().select(np.array([0, 2**62]), Fraction(1), Epsilon(1)) == 1


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("shape", [(0,), (1,), (3, 4), (2, 3, 5)])
@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint32])
def test_shape_is_kept_and_values_are_integers(source, shape, dtype):
    counts = np.full(shape, 5, dtype=dtype)
    noisy = draw(source, counts, Sigma(3))
    assert noisy.values.shape == shape
    assert noisy.values.dtype == np.int64
    assert (counts == 5).all()


def test_marks():
    secure = SecureNoise().discrete_laplace([1, 2], Scale(1))
    seeded = SeededNoise(seed=1).discrete_laplace([1, 2], Scale(1))
    assert (secure.private, secure.mark) == (True, "private")
    assert (seeded.private, seeded.mark) == (False, "not private")
    assert SecureNoise().private
    assert not SeededNoise(seed=1).private


def test_a_seed_must_be_asked_for_and_repeats():
    with pytest.raises(TypeError):
        SeededNoise()
    with pytest.raises(TypeError):
        SecureNoise(seed=1)
    zeros = np.zeros(100, dtype=int)
    first, again, other = (
        SeededNoise(seed=s).discrete_gaussian(zeros, Sigma(9)).values for s in (1, 1, 2)
    )
    assert (first == again).all()
    assert (first != other).any()
    secure = [SecureNoise().discrete_gaussian(zeros, Sigma(9)).values for _ in range(2)]
    assert (secure[0] != secure[1]).any()


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    "call, error, words",
    [
        (
            lambda s: s.discrete_gaussian([1.5], Sigma(1)),
            NoiseError,
            "integer counts (up to int64), got float64",
        ),
        (lambda s: s.discrete_gaussian(["a"], Sigma(1)), NoiseError, "integer counts"),
        (
            lambda s: s.discrete_gaussian(np.array([1], dtype=np.uint64), Sigma(1)),
            NoiseError,
            "got uint64",
        ),
        (lambda s: s.discrete_gaussian([1], Scale(1)), BudgetError, "must be given as Sigma"),
        (lambda s: s.discrete_gaussian([1], 1.0), BudgetError, "must be given as Sigma"),
        (lambda s: s.discrete_laplace([1], Sigma(1)), BudgetError, "must be given as Scale"),
        (lambda s: s.discrete_laplace([1], Rho(1)), BudgetError, "must be given as Scale"),
        (lambda s: s.discrete_gaussian([1], Sigma(1e16)), NoiseError, "sigma must be at most 2^50"),
        (lambda s: s.select([], Fraction(1), Epsilon(1)), NoiseError, "at least one number"),
        (
            lambda s: s.select([[1.0]], Fraction(1), Epsilon(1)),
            NoiseError,
            "scores must be a vector",
        ),
        (
            lambda s: s.select([np.nan, 1], Fraction(1), Epsilon(1)),
            NoiseError,
            "scores must be finite",
        ),
        (lambda s: s.select([1.0], Fraction(0), Epsilon(1)), BudgetError, "needs no noise"),
        (lambda s: s.select([1.0], Fraction(1), Epsilon(0)), BudgetError, "greater than zero"),
    ],
)
def test_bad_requests(source, call, error, words):
    with pytest.raises(error) as caught:
        call(SOURCES[source])
    assert words in str(caught.value)


def test_progress_begins_with_an_estimate_and_ends_at_the_whole():
    reports = []
    SecureNoise(workers=2).discrete_laplace(
        np.zeros(50_000, dtype=int), Scale(3), progress=reports.append
    )
    assert (reports[0].done, reports[0].total) == (0, 50_000)
    assert reports[0].seconds_left > 0
    done = [r.done for r in reports]
    assert done == sorted(done)
    assert (reports[-1].done, reports[-1].seconds_left) == (50_000, 0)


def test_chunks_are_drawn_side_by_side(monkeypatch):
    """Each of two workers waits inside the sampler for the other: alone, neither would return."""
    meeting = threading.Barrier(2, timeout=60)
    inner = noise_module._invoke

    def invoke(measurement, values):
        meeting.wait()
        return inner(measurement, values)

    monkeypatch.setattr(noise_module, "_invoke", invoke)
    monkeypatch.setattr(noise_module, "_CHUNK", 100)
    counts = np.arange(1000) * 10**6
    values = SecureNoise(workers=2).discrete_gaussian(counts, Sigma(2)).values
    assert np.abs(values - counts).max() < 100  # every chunk landed in its own place


def test_opendp_lets_go_of_the_lock():
    """Else threads would take turns: this thread counts while another one is inside OpenDP."""
    started, ticks = threading.Event(), 0

    def work():
        started.set()
        noise_module._invoke(noise_module._gaussian(20.0), np.zeros(20_000, dtype=np.int64))

    worker = threading.Thread(target=work)
    worker.start()
    started.wait()
    while worker.is_alive():
        ticks += 1
    worker.join()
    assert ticks > 10_000


def test_workers():
    with pytest.raises(NoiseError, match="workers must be at least one, got 0"):
        SecureNoise(workers=0)


def test_a_sampler_that_says_otherwise_is_not_used(monkeypatch):
    class Loose:
        def map(self, change):
            return 99.0

    monkeypatch.setattr(noise_module, "make_gaussian", lambda *a, **k: Loose())
    with pytest.raises(NoiseError, match=r"OpenDP states a privacy loss of 99, the charge is 0\.5"):
        SecureNoise().discrete_gaussian([1, 2], Sigma(1))
