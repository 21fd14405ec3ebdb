"""Exact marginals and ranges: kept to the last digit in every table and answer, the optimum beside a generic solver's, and what
cannot hold together named."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import consilience as cs
from consilience.measurements import SquaredLoss, bound_controls
from solvers.problems import marginal_of, noisy, solve_generically, true_counts

D = cs.Domain({"a": 2, "b": 3, "c": 4, "d": 2, "e": 3}, levels={"cc": ("c", [0, 1, 1, 0])})


def counted(words: str, seed: int = 0) -> np.ndarray:
    """A marginal of the true table in whole numbers."""
    return marginal_of(D, np.round(true_counts(D, seed)), tuple(words))


CONTROLS = {
    "one way": lambda t: [cs.Exact("a", t("a"))],
    "two one-ways": lambda t: [cs.Exact("a", t("a")), cs.Exact("c", t("c"))],
    "a pair that nobody measured": lambda t: [cs.Exact(("b", "e"), t("be"))],
    "a measured pair, turned": lambda t: [cs.Exact(("b", "a"), t("ab").T)],
    "at a level": lambda t: [cs.Exact(("cc", "d"), D.coarsened(t("cd"), ("cc", "d")))],
    "ranges": lambda t: [cs.Bounds("c", t("c") - 1, t("c") + 1)],
    "a ceiling on a pair": lambda t: [cs.Exact("a", t("a")), cs.Bounds(("b", "c"), 0, t("bc").max() * 0.9)],
    "a floor at a level": lambda t: [cs.Bounds("cc", D.coarsened(t("c"), ("cc",)) * 0.99), cs.Exact("d", t("d"))],
}  # fmt: skip


def of(case: str, seed: int):  # type: ignore[no-untyped-def]
    return CONTROLS[case](lambda words: counted(words, seed))


@pytest.mark.parametrize("consistency", ["local", "global", "factor"])
@pytest.mark.parametrize("case", CONTROLS)
def test_the_optimum_is_the_generic_solvers(case, consistency):
    seed = len(case)
    controls = of(case, seed)
    known = float(np.round(true_counts(D, seed)).sum())
    given_ = noisy(D, "ab bc cd de ae", seed)
    fit = cs.LeastSquares(consistency=consistency, controls=controls, tolerance=1e-7)
    model = cs.reconstruct(D, given_, known, fit)
    loss = SquaredLoss(D, given_, known)
    best = solve_generically(model.graph, loss, controls=bound_controls(D, controls))
    d = model.diagnostics
    assert d.converged
    assert d.violation < 1e-10
    assert d.bound <= best.objective * (1 + 1e-6)
    assert d.objective == pytest.approx(best.objective, rel=1e-5)
    keeps(model, controls)


def keeps(model: cs.Model, controls) -> None:  # type: ignore[no-untyped-def]
    """Each control in its own table, in one that contains it, and in one that nobody measured."""
    others = [a for a in D if a not in D.clique({n for c in controls for n in c.attributes})]
    for c in controls:
        for more in ((), tuple(others[:1]), tuple(others[:2])):
            found = model.marginal((*c.attributes, *more))
            sums = found.sum(axis=tuple(range(len(c.attributes), found.ndim)))
            assert (sums >= c.low - 1e-8).all()
            assert (sums <= c.high + 1e-8).all()


@pytest.mark.parametrize("case", CONTROLS)
def test_controls_stay_in_refits_and_files(case, tmp_path):
    controls = of(case, 3)
    known = float(np.round(true_counts(D, 3)).sum())
    model = cs.reconstruct(D, noisy(D, "ab bc cd", 3), known, cs.LeastSquares(controls=controls))
    again = model.fit(D, model.measurements, known, warm=model)
    keeps(again, controls)
    path = tmp_path / "model.npz"
    model.save(path)
    kept = cs.load(path)
    assert [type(c) for c in kept.fit.controls] == [type(c) for c in controls]
    keeps(kept, controls)
    for c in controls:
        if isinstance(c, cs.Exact):
            assert model.stderr(c.attributes).max() < 1e-6


@pytest.mark.parametrize("fit", [cs.Shrunk, cs.LatentClasses])
@pytest.mark.parametrize("case", [c for c in CONTROLS if c != "at a level"])
def test_pulled_fits_keep_them_too(case, fit):
    seed = 5
    controls = of(case, seed)
    known = float(np.round(true_counts(D, seed)).sum())
    model = cs.reconstruct(D, noisy(D, "ab bc cd de be", seed), known, fit(controls=controls))
    assert model.diagnostics.violation < 1e-10
    keeps(model, controls)


@given(st.integers(0, 10_000))
@settings(max_examples=15, deadline=None)
def test_totals_of_exact_controls_are_the_total(seed):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 50, 3) + (np.arange(3) == 0)
    given_ = noisy(D, "ab bc", seed % 7)
    model = cs.reconstruct(D, given_, fit=cs.LeastSquares(controls=[cs.Exact("b", values)]))
    assert model.total == values.sum()
    assert model.total_known
    np.testing.assert_allclose(model.marginal("b"), values, atol=1e-8)
    assert (model.marginal(("a", "b"))[:, values == 0] == 0).all()


def test_intervals_lie_in_public_ranges():
    control = cs.Bounds(("b", "a"), 0, counted("ab", 2).T + 5)
    model = cs.reconstruct(D, noisy(D, "ab bc", 2), fit=cs.LeastSquares(controls=[control]))
    low, high = model.interval(("a", "b"))
    assert (high <= counted("ab", 2) + 5 + 1e-9).all()
    assert (low >= 0).all()
    assert (model.interval("a")[1] > model.marginal("a")).all()


def test_an_estimated_total_stays_within_what_ranges_admit():
    given_ = noisy(D, "ab bc", 1)
    model = cs.reconstruct(D, given_, fit=cs.LeastSquares(controls=[cs.Bounds("a", 0, [300, 400])]))
    assert model.total == pytest.approx(700)
    assert (model.marginal("a") <= np.array([300, 400]) + 1e-9).all()


CONTRADICTIONS = {
    "a sum that is not its parts": (
        [cs.Exact("a", [600, 400]), cs.Exact(("a", "b"), [[100, 200, 200], [100, 200, 200]])],
        (
            "a=0 is 600; a=0, b=0 is 100; a=0, b=1 is 200; a=0, b=2 is 200",
            "a=1 is 400; a=1, b=0 is 100; a=1, b=1 is 200; a=1, b=2 is 200",
        ),
    ),
    "a level and its attribute": (
        [cs.Exact("cc", [500, 500]), cs.Exact("c", [100, 300, 300, 300])],
        ("cc=0 is 500; c=0 is 100; c=3 is 300", "cc=1 is 500; c=1 is 300; c=2 is 300"),
    ),
    "ceilings below the total": (
        [cs.Bounds("a", 0, [300, 400])],
        ("a=0 is at most 300; a=1 is at most 400; all is 1000",),
    ),
    "through a table between": (
        [cs.Exact(("a", "b"), [[500, 0, 0], [0, 300, 200]]), cs.Bounds(("b", "c"), 0, 100)],
        (
            "a=0, b=0 is 500; b=0, c=0 is at most 100; b=0, c=1 is at most 100; b=0, c=2 is at most 100; b=0, c=3 is at most 100",
        ),
    ),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_a_contradiction_is_named_by_a_smallest_set_of_rows(case):
    controls, words = CONTRADICTIONS[case]
    with pytest.raises(cs.ConsilienceError) as caught:
        cs.reconstruct(D, noisy(D, "ab bc", 0), 1000.0, cs.LeastSquares(controls=controls))
    assert (
        str(caught.value).removeprefix("controls must not contradict each other, these do: ")
        in words
    )


REFUSED = {
    "negative": (lambda: cs.Exact("a", [-1, 2]), "none negative, got -1 to -1"),
    "crossed": (lambda: cs.Bounds("a", [3, 1], [2, 2]), "got 3 to 2 for ('a',) at (0,)"),
    "words": (lambda: cs.Exact("a", ["x", "y"]), "must be real numbers"),
    "not a number": (lambda: cs.Exact("a", [np.nan, 1]), "none negative, got nan"),
    "infinite": (lambda: cs.Exact("a", [np.inf, 1]), "must be finite"),
    "a shape": (lambda: cs.Exact(("a", "b"), np.ones((3, 2))).bind(D), "must have shape (2, 3)"),
    "twice": (lambda: cs.Exact(("c", "cc"), np.ones((4, 2))).bind(D), "must be distinct"),
    "two totals": (
        lambda: cs.LeastSquares(controls=[cs.Exact("a", [1, 2]), cs.Exact("b", [1, 1, 2])])(D, noisy(D, "ab", 0)),
        "must add up to one total",
    ),
    "something else": (
        lambda: cs.reconstruct(D, noisy(D, "ab", 0), fit=cs.LeastSquares(controls=[3])),
        "must be Exact(...) or Bounds(...), got int",
    ),
    "prox": (lambda: cs.LeastSquares(solver="prox", controls=[cs.Exact("a", [1, 2])]), "need the splitting solver"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case):
    work, words = REFUSED[case]
    with pytest.raises(cs.ConsilienceError) as caught:
        work()
    assert words in str(caught.value)
