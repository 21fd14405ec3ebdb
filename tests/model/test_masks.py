"""Combinations that cannot occur: whatever was measured, answers agree with each other, and none shows one."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience import Domain, LeastSquares, Measurement, reconstruct
from consilience.errors import DomainError, RegionGraphError
from consilience.regions.region_graph import RegionGraph

D = Domain([("a", 3), ("b", 2), ("c", 4), ("d", 2)])
SETS = [s for k in range(1, 5) for s in combinations("abcd", k)]


@st.composite
def problems(draw):
    """Noisy tables of a population that respects the masks, the masks, and a consistency."""
    measured = draw(st.lists(st.sampled_from(SETS[:10]), min_size=1, max_size=5, unique=True))
    masked = draw(st.lists(st.sampled_from(SETS[4:14]), min_size=1, max_size=2, unique=True))
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    joint = rng.dirichlet(np.full(D.size(D.attributes), 0.3)).reshape(D.shape)
    masks = {}
    for clique in masked:
        mask = rng.random(D.shape_of(clique)) > 0.3
        mask.flat[rng.integers(mask.size)] = True
        wide = mask.reshape([D[a] if a in clique else 1 for a in D])
        if not (joint * wide).any() or (joint * wide).sum() < 1e-6:
            continue
        joint, masks[clique] = joint * wide, mask
    joint = 1000 * joint / joint.sum()
    made = []
    for clique in measured:
        table = joint.sum(axis=tuple(i for i, a in enumerate(D) if a not in clique))
        made.append(Measurement(clique, table + rng.normal(0, 30, table.shape), stddev=30.0))
    return made, masks, draw(st.sampled_from(["auto", "local", "global"]))


@settings(max_examples=40, deadline=None)
@given(problems())
def test_every_answer_agrees_with_those_in_the_model_and_shows_nothing_impossible(problem) -> None:
    """An answer that the model decides is what every answer that contains it implies; the masked tables are decided."""
    made, masks, consistency = problem
    model = reconstruct(D, made, 1000.0, fit=LeastSquares(consistency=consistency, possible=masks))
    answers = dict(zip(SETS, model.marginals(SETS), strict=True))
    assert all(model.in_model(clique) for clique in masks)
    for wide, table in answers.items():
        assert table.min() >= 0
        for clique, mask in masks.items():
            if set(clique) <= set(wide):
                axes = tuple(i for i, a in enumerate(wide) if a not in clique)
                assert table.sum(axis=axes)[~mask].sum() == 0
        if consistency == "local" and not model.in_model(wide):
            continue  # tables that agree in pairs need not admit a joint one
        # Where the only joint table has zeros in places, proportional fitting comes near it slowly.
        near = 2e-3 if model.in_model(wide) else 0.2
        for small in SETS:
            if set(small) < set(wide) and model.in_model(small):
                axes = tuple(i for i, a in enumerate(wide) if a not in small)
                np.testing.assert_allclose(table.sum(axis=axes), answers[small], atol=near)


def test_the_case_of_the_trial() -> None:
    """x was measured, xp was measured, and nobody measured them together."""
    domain = Domain([("x", 2), ("xp", 2)])
    made = [Measurement((a,), [30.0, 48.0], stddev=1.0) for a in domain]
    mask = np.array([[True, False], [True, True]])
    model = reconstruct(domain, made, 78.0, fit=LeastSquares(possible={("xp", "x"): mask}))
    both = model.marginal(("x", "xp"))
    np.testing.assert_allclose(both.sum(axis=0), model.marginal("xp"), atol=1e-6)
    np.testing.assert_allclose(both.sum(axis=1), model.marginal("x"), atol=1e-6)
    assert both[1, 0] == 0


@pytest.mark.parametrize("consistency", ["local", "global"])
def test_a_table_that_only_a_mask_asks_for_has_the_most_entropy(consistency: str) -> None:
    """Judged by proportional fitting of the mask to the measured margins."""
    rng = np.random.default_rng(3)
    domain = Domain([("x", 8), ("y", 6), ("z", 3)])
    px, py = rng.dirichlet(np.ones(8)), rng.dirichlet(np.ones(6))
    made = [
        Measurement(("x", "z"), 1000 * np.outer(px, np.ones(3) / 3), stddev=1.0),
        Measurement(("y",), 1000 * py, stddev=1.0),
    ]
    mask = np.ones((8, 6), bool)
    mask[:2, 3:] = False
    judge = mask * 1.0
    for _ in range(3000):
        judge *= (px / judge.sum(axis=1))[:, None]
        judge *= py / judge.sum(axis=0)
    fit = LeastSquares(possible={("x", "y"): mask}, consistency=consistency)
    model = reconstruct(domain, made, 1000.0, fit=fit)
    np.testing.assert_allclose(model.marginal(("x", "y")), 1000 * judge, atol=1e-3)
    assert model.marginal(("x", "y"))[:2, 3:].sum() == 0


def test_what_is_refused() -> None:
    made = [Measurement((a,), np.full(D[a], 9.0), stddev=1.0) for a in D]
    graph = RegionGraph.saturated(D, [(a,) for a in D])
    mask = {("a", "b"): np.array([[True, False], [True, True], [True, True]])}
    with pytest.raises(RegionGraphError, match=r"must contain \('a', 'b'\), none does; add it"):
        reconstruct(D, made, fit=LeastSquares(consistency=graph, possible=mask))
    nothing = {("a", "b"): np.zeros((3, 2), bool)}
    with pytest.raises(DomainError, match="must leave some cell"):
        reconstruct(D, made, fit=LeastSquares(possible=nothing))
