"""Fits on a tree. Noisy tables: a step is what a textbook optimiser finds, and the steps end where risk is least."""

from __future__ import annotations

import numpy as np
import pytest

from claims.judges import marginal
from consilience.domain import CliqueVector, Domain
from consilience.regions.junction_tree import JunctionTree
from consilience.tree import fit as tree_fit
from consilience.tree.answers import TreeAnswers
from consilience.tree.fit import NoisyTables, ProximalPath, fit_noisy, fit_tree
from consilience.tree.support import SupportTree
from model.cases import known_of, random_joint

D = Domain({"a": 3, "b": 2, "c": 3, "d": 2})
CHAIN, CYCLE = "ab bc cd", "ab bc cd ad"


def noisy_tables(p: np.ndarray, words: str, sigma: float, seed: int, domain: Domain = D):
    rng = np.random.default_rng(seed)
    tables = {}
    for word in words.split():
        exact = marginal(domain, p, tuple(word))
        tables[tuple(word)] = exact + sigma * rng.standard_normal(exact.shape)
    values = CliqueVector.from_tables(domain, tables)
    return NoisyTables(values, np.full(len(tables), sigma**-2))


def full(noisy: NoisyTables, domain: Domain = D) -> SupportTree:
    tree = JunctionTree.of(domain, noisy.values.cliques)
    found = SupportTree.confined(tree, [], tree.cells)
    assert found is not None
    return found


@pytest.mark.parametrize("words", [CHAIN, CYCLE, "ab abc cd", "abcd", "a b cd"])
def test_steps_are_proximal_steps_of_the_whole_joint(words: str, monkeypatch) -> None:
    """1/2 sum w ||p_r - y_r||^2 + strength KL(p || before) is convex: a constant slope over all cells is its minimum."""
    monkeypatch.setattr(tree_fit, "PASSES", 300)
    noisy = noisy_tables(random_joint(D, 3), words, 0.02, 4)
    path = ProximalPath(full(noisy), noisy)
    before = np.full(D.shape, 1 / D.size())
    for _ in range(3):
        path.step()
        p = TreeAnswers(path.fit()).marginal(D.attributes)
        slope = noisy.strength * np.log(p / before)
        for w, (c, y) in zip(noisy.weights, noisy.values.items(), strict=True):
            slope += w * (marginal(D, p, c) - y).reshape([D[a] if a in c else 1 for a in D])
        np.testing.assert_allclose(
            slope / noisy.strength, (p * slope).sum() / noisy.strength, atol=1e-5
        )
        assert np.abs(p - before).sum() > 1e-3
        before = p


def test_steps_approach_the_data_and_reading_the_path_leaves_it_alone() -> None:
    noisy = noisy_tables(random_joint(D, 5), CHAIN, 0.01, 6)
    support, missed = full(noisy), []
    for steps in (1, 2, 4, 8, 16):
        tables = fit_noisy(support, noisy, steps).targets()
        missed.append(float(((tables.values - noisy.values.values) ** 2).sum()))
    assert missed == sorted(missed, reverse=True)
    path = ProximalPath(support, noisy)
    for _ in range(8):
        path.step()
        path.fit()
    straight = fit_noisy(support, noisy, 8)
    for a, b in zip(path.fit().tables, straight.tables, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_impossible_cells_stay_empty_and_tables_agree() -> None:
    p = random_joint(D, 7, zeros=0.8)
    noisy = noisy_tables(p, CYCLE, 0.01, 8)
    masks = [(D.axes(c), marginal(D, p, c) > 0) for c in noisy.values.cliques]
    tree = JunctionTree.of(D, noisy.values.cliques)
    support = SupportTree.confined(tree, masks, tree.cells)
    assert support is not None
    assert support.size < tree.cells
    tables = fit_noisy(support, noisy).targets()
    for c, mask in zip(noisy.values.cliques, masks, strict=True):
        assert np.all(tables[c][~mask[1]] == 0)
    np.testing.assert_allclose(
        tables["a", "b"].sum(axis=1), tables["a", "d"].sum(axis=1), atol=1e-12
    )
    assert SupportTree.confined(tree, [(m, mask & False) for m, mask in masks], 99) is None


@pytest.mark.slow
def test_the_risk_is_estimated_without_bias_and_stopping_pays() -> None:
    """Over many draws: Stein's estimate against the true squared distance, and the chosen steps against far too many."""
    p = random_joint(D, 9)
    estimated, true, chosen, late = [], [], 0.0, 0.0
    for seed in range(20):
        noisy = noisy_tables(p, CYCLE, 0.1, seed)
        truth = np.concatenate([marginal(D, p, c).reshape(-1) for c in noisy.values.cliques])
        support = full(noisy)
        perturbed, drawn = noisy.perturbed(np.random.default_rng(1000 + seed))
        here = fit_noisy(support, noisy, 2).targets().values
        beside = fit_noisy(support, perturbed, 2).targets().values
        estimated.append(tree_fit._risk(noisy, here, beside, drawn))
        true.append(float(((here - truth) ** 2).sum()) / 0.1**2)
        chosen += float(((fit_noisy(support, noisy).targets().values - truth) ** 2).sum())
        late += float(((fit_noisy(support, noisy, 40).targets().values - truth) ** 2).sum())
    spread = float(np.std(np.subtract(estimated, true)) / np.sqrt(20))
    assert abs(np.mean(estimated) - np.mean(true)) < 4 * spread
    assert spread < 0.3 * np.mean(true)
    assert chosen < 0.95 * late


def test_progress_and_the_same_twice() -> None:
    noisy = noisy_tables(random_joint(D, 1), CHAIN, 0.02, 2)
    seen: list[tuple[int, int]] = []
    first = fit_noisy(full(noisy), noisy, progress=lambda s: seen.append((s.done, s.total)))
    second = fit_noisy(full(noisy), noisy)
    assert [done for done, _ in seen] == list(range(1, len(seen) + 1))
    assert 1 <= first.iterations <= seen[-1][0]
    assert all(np.array_equal(a, b) for a, b in zip(first.tables, second.tables, strict=True))


# -- exact tables -----------------------------------------------------------------------------------


def test_a_warm_start_is_already_there() -> None:
    known = known_of(D, random_joint(D, 2), "ab bc cd ad ac")
    targets = CliqueVector.from_tables(D, {c: known.table(c) for c in known.cliques})
    support = SupportTree.of(JunctionTree.of(D, known.cliques), targets, 1000)
    assert support is not None
    cold = fit_tree(support, targets, passes=1000, tolerance=1e-9)
    assert cold.iterations > 5
    assert cold.misfit <= 1e-9
    warm = fit_tree(support, targets, theta=cold.theta, passes=1000, tolerance=1e-8)
    assert warm.iterations == 1
