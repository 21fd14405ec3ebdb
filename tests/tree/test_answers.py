"""Questions to a junction tree: where branches meet, and any marginal, against the definitions."""

from __future__ import annotations

from itertools import combinations
from math import prod

import numpy as np
import pytest

from consilience.domain import CliqueVector, Domain
from consilience.kernels.messages import locate, numbered, sorted_by
from consilience.regions.junction_tree import JunctionTree
from consilience.tree import SupportTree, TreeAnswers, answers, fit_tree


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
    found = (
        answers.JointShape.of(column, width, groups).filled(values).met([m for m, _ in branches])
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


TREES = {
    "chain": ["ab", "bc", "cd", "de", "ef"],
    "star": ["ab", "ac", "ad", "ae", "af"],
    "branches": ["abc", "bcd", "ce", "cf"],
    "apart": ["ab", "cd", "e"],
}


@pytest.mark.parametrize("chunk", [1, 1 << 22], ids=["other roots", "usual roots"])
@pytest.mark.parametrize("cliques", TREES.values(), ids=TREES)
def test_every_marginal_is_that_of_the_product_of_the_tables(cliques, chunk, monkeypatch) -> None:
    monkeypatch.setattr(answers, "CHUNK", chunk)
    domain = Domain(dict(zip("abcdef", (2, 3, 4, 3, 2, 5), strict=True)))
    rng = np.random.default_rng(len(cliques))
    joint = rng.random(domain.shape) * (rng.random(domain.shape) < 0.3)
    joint /= joint.sum()

    def summed(table: np.ndarray, kept: tuple[str, ...]) -> np.ndarray:
        return table.sum(axis=tuple(i for i, a in enumerate(domain) if a not in kept))

    targets = CliqueVector.from_tables(domain, {tuple(c): summed(joint, tuple(c)) for c in cliques})
    tree = JunctionTree.of(domain, targets.cliques)
    support = SupportTree.of(tree, targets, tree.cells)
    assert support is not None
    fit = fit_tree(support, targets, tolerance=1e-12)
    whole = np.ones(domain.shape)
    for clique, table in fit.beliefs().items():
        whole = whole * table.reshape([domain[a] if a in clique else 1 for a in domain])
    for c in tree.rooted.below:
        separator = tree.rooted.separator[c]
        axes = tuple(i for i, a in enumerate(tree.cliques[c]) if a not in separator)
        table = fit.beliefs()[tree.cliques[c]].sum(axis=axes)
        shape = [domain[a] if a in separator else 1 for a in domain]
        whole = np.divide(whole, table.reshape(shape), out=np.zeros_like(whole), where=whole > 0)
    asked = TreeAnswers(fit)
    for kept in (k for n in range(1, 7) for k in combinations(domain.attributes, n)):
        found = asked.marginal(kept)
        np.testing.assert_allclose(found, summed(whole, kept), atol=1e-12)
        found[...] = 0.0
        assert asked.marginal(kept).sum() == pytest.approx(1.0), "an answer is the asker's own"


@pytest.mark.parametrize("many", [0, 1, 7, 1000])
def test_cells_are_located_and_numbered(many) -> None:
    rng = np.random.default_rng(many)
    codes = rng.integers(0, 5, (3, many)).astype(np.int16)
    keys = locate(codes, np.array([2, 0]), np.array([5, 1]))
    np.testing.assert_array_equal(keys, codes[2] * 5 + codes[0])
    keys *= 1 << 40
    numbers, count = numbered(keys)
    names = list(dict.fromkeys(keys.tolist()))
    assert count == len(names)
    assert [names[i] for i in numbers] == keys.tolist()
