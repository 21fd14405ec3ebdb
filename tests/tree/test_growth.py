"""Growth: a backbone is maximum entropy on chosen cliques, a choice that fits and connects; a list of noisy tables grows."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import consilience as cs
from claims.judges import joint, marginal, random_vector
from consilience.domain import CliqueVector, Domain
from consilience.model.out_of_model import inferred, project
from consilience.progress import Step
from consilience.regions import RegionGraph
from consilience.regions.pseudo_marginals import PseudoMarginals
from consilience.tree import growth
from consilience.tree.answers import Backbone
from consilience.tree.fit import NoisyTables
from consilience.tree.growth import (
    GrowingModel,
    backbone_of,
    mutual_information,
    proximal_steps,
    spanning_tree,
)
from model.cases import known_of, maximum_entropy, random_joint, unrealisable

D = Domain({"a": 4, "b": 3, "c": 5, "d": 2, "e": 3})
WORDS = [
    "ab bc cd de",
    "ab bc cd ad",
    "abc bcd de ae",
    "ab ac ad ae",
    "abcd",
    "a b cd",
    "ab de",
    "ab bcde abcde",
]


@pytest.mark.parametrize("zeros", [0.0, 0.6])
@pytest.mark.parametrize("words", WORDS)
def test_everything_chosen_is_the_maximum_entropy_model(words: str, zeros: float) -> None:
    known = known_of(D, random_joint(D, 1, zeros), words)
    found = backbone_of(known)
    judge = maximum_entropy(D, known)
    assert found.whole
    assert found.cliques == known.cliques
    for k in (0, 1, 2, 3, 5):
        for asked in combinations(D.attributes, k):
            expected = marginal(D, judge, asked)
            np.testing.assert_allclose(
                found.marginal(asked), expected, atol=2e-3 if zeros else 3e-6
            )
            np.testing.assert_allclose(found.marginal(asked).sum(), 1.0)
    np.testing.assert_allclose(found.marginal(("b", "a")), found.marginal(("a", "b")))


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sets(st.sampled_from(list(combinations("abcde", 2))), min_size=1, max_size=6),
)
def test_beliefs_are_one_distribution(seed: int, cliques: set[tuple[str, str]]) -> None:
    """Full tables agree on separators, and their product over the separators is the joint behind every answer."""
    known = known_of(D, random_joint(D, seed, 0.3), " ".join("".join(c) for c in sorted(cliques)))
    found = backbone_of(known)
    tree, p = found.tree, np.ones(D.shape)
    for c in tree.cliques:
        p = p * found.beliefs[c].reshape([D[a] if a in c else 1 for a in D])
    for (i, j), s in zip(tree.edges, tree.separators, strict=True):
        one, other = (found.beliefs.project(tree.cliques[k]) for k in (i, j))
        down = [
            t.sum(axis=tuple(x for x, a in enumerate(tree.cliques[k]) if a not in s))
            for t, k in ((one, i), (other, j))
        ]
        np.testing.assert_allclose(*down, atol=1e-12)
        below = down[0].reshape([D[a] if a in s else 1 for a in D])
        p = np.divide(p, below, out=np.zeros_like(p), where=below > 0)
    for asked in combinations(D.attributes, 2):
        np.testing.assert_allclose(found.marginal(asked), marginal(D, p, asked), atol=1e-10)
    np.testing.assert_allclose(found.marginal(("a", "c", "e")), marginal(D, p, "ace"), atol=1e-10)


# -- the choice ------------------------------------------------------------------------------------------


def grid(side: int, size: int, seed: int) -> PseudoMarginals:
    """Pairs of a grid, tables of a random joint that each agrees with its neighbours on single attributes."""
    rng = np.random.default_rng(seed)
    names = [f"x{i}{j}" for i in range(side) for j in range(side)]
    domain = Domain(dict.fromkeys(names, size))
    cliques = [
        (f"x{i}{j}", f"x{i + di}{j + dj}")
        for i in range(side)
        for j in range(side)
        for di, dj in ((0, 1), (1, 0))
        if i + di < side and j + dj < side
    ]
    graph = RegionGraph.saturated(domain, cliques)
    tables = {}
    for r in graph.regions:
        lean = rng.uniform(0.2, 0.9) / size
        tied = lean * np.eye(size) + (1 - lean * size) / size**2
        tables[r] = tied if len(r) == 2 else np.full(size, 1 / size)
    return PseudoMarginals.of(graph, CliqueVector.from_tables(domain, tables), cliques)


def test_it_grows_with_the_budget_and_keeps_within_it() -> None:
    known = grid(5, 4, 0)
    chosen: list[Backbone] = [backbone_of(known, 32 * cells) for cells in (600, 3000, 30_000)]
    sizes = [b.fit.support.size for b in chosen]
    counts = [len(b.cliques) for b in chosen]
    assert all(size <= cells for size, cells in zip(sizes, (600, 3000, 30_000), strict=True))
    assert counts == sorted(counts)
    assert 24 <= counts[0] < counts[-1]
    assert not chosen[0].whole
    for b in chosen:  # it connects what the model connects
        pairs = [(p, 1.0) for c in b.cliques for p in combinations(c, 2)]
        assert len(spanning_tree(known.domain, pairs)) == len(known.domain) - 1
        for c in b.cliques:
            assert np.abs(b.marginal(c) - known.table(c)).sum() <= b.misfit + 1e-9


def test_the_first_choice_is_the_heaviest_tree() -> None:
    known = grid(4, 3, 1)
    least = backbone_of(known, 32 * 200)
    weight = {c: mutual_information(known.table(c)) for c in known.cliques}
    best = spanning_tree(known.domain, weight.items())
    assert set(best) <= set(least.cliques)
    left = [weight[c] for c in known.cliques if c not in set(best)]
    assert len(best) == 15
    assert min(weight[c] for c in best) <= max(left)


def test_the_same_bits_every_time_and_progress() -> None:
    known = grid(4, 3, 2)
    seen: list[tuple[int, int]] = []
    one = backbone_of(known, 32 * 900, lambda s: seen.append((s.done, s.total)))
    other = backbone_of(known, 32 * 900)
    assert one.cliques == other.cliques
    np.testing.assert_array_equal(one.beliefs.values, other.beliefs.values)
    assert seen[0] == (0, seen[0][1])
    assert seen == sorted(seen)
    assert len({most for _, most in seen}) == 1
    assert len(set(seen)) > 8
    assert seen[-1][0] == seen[-1][1]


def test_a_model_is_prepared_once_with_progress() -> None:
    domain = Domain(dict.fromkeys("abc", 3))
    rng = np.random.default_rng(0)
    model = cs.reconstruct(
        domain,
        [cs.Measurement(tuple(w), rng.integers(10, 90, (3, 3)), stddev=3.0) for w in ("ab", "bc")],
        fit=cs.LeastSquares(consistency="local"),
    )
    seen: list[Step] = []
    made = model.prepare(seen.append)
    assert seen[-1].done == seen[-1].total > 1
    seen.clear()
    assert model.prepare(seen.append) is made is model.backbone
    assert not seen
    asked = model.marginals([("a", "c")], progress=seen.append)
    assert [(s.done, s.total) for s in seen] == [(1, 1)]
    np.testing.assert_array_equal(asked[0], model.marginal(("a", "c")))


def test_a_start_is_kept() -> None:
    known = grid(4, 3, 3)
    before = backbone_of(known, 32 * 700)
    after = backbone_of(known, 32 * 2000, start=before)
    assert set(before.cliques) <= set(after.cliques)


def test_what_did_not_fit_is_brought_in_by_widening_the_question() -> None:
    """Nearer to the exact model than the backbone alone, on average and wherever a missed clique touches the question."""
    domain = Domain(dict.fromkeys("abcdefgh", 3))
    words = " ".join(a + b for i, a in enumerate("abcdefgh") for b in "abcdefgh"[i + 1 : i + 4])
    tied = random_vector(domain, [tuple(w) for w in words.split()], np.random.default_rng(3))
    known = known_of(domain, joint(tied)[0], words)
    thin = backbone_of(known, 32 * 150)
    judge = maximum_entropy(domain, known, rounds=200)
    assert thin.missed[0][1] > 0.05
    assert {c for c, _ in thin.missed} | set(thin.cliques) == set(known.cliques)
    out = [c for c in combinations(domain.attributes, 2) if not known.holds(c)]
    truth = [marginal(domain, judge, c) for c in out]
    wide, violation = inferred(known, out, "backbone", lambda: thin)
    plain, _ = project(known, out, thin.marginal)
    missed = [
        sum(np.abs(t - j).sum() for t, j in zip(x, truth, strict=True)) for x in (wide, plain)
    ]
    assert violation.max() <= 1e-9
    assert missed[0] < 0.9 * missed[1]


def test_tables_that_no_joint_has_are_met_half_way() -> None:
    """Fitting would go round in circles; the compromise misses each of three contradicting tables alike."""
    found = backbone_of(unrealisable(0.95))
    known = unrealisable(0.95)
    missed = [np.abs(found.marginal(c) - known.table(c)).sum() for c in known.cliques]
    assert max(missed) - min(missed) <= 0.05
    assert 0.1 < max(missed) < 1.0
    contradiction = backbone_of(unrealisable(1.0))  # its zeros rule out every record
    assert np.isfinite(contradiction.beliefs.values).all()
    assert contradiction.fit.support.size == contradiction.tree.cells


def test_a_model_keeps_its_backbone() -> None:
    made = [cs.Measurement(("a", "b"), np.ones((4, 3)), stddev=1.0)]
    model = cs.reconstruct(D, made, total=12.0)
    found = model.backbone
    assert (
        repr(found) == "Backbone(every clique, 22 of 22 cells possible, misfit 1e-16)"
        or found.misfit < 1e-12
    )
    np.testing.assert_allclose(found.marginal(("c", "e")), 1 / 15)
    assert model.backbone is model.backbone


# -- a growing list of tables ----------------------------------------------------------------------

LINE = Domain({f"x{i}": 5 for i in range(5)})
ROWS, NOISE = 20_000, 60.0


def line_of(seed: int) -> dict[tuple[str, ...], np.ndarray]:
    """Every pair of the rows of a Markov chain, the pairs next to each other first."""
    rng = np.random.default_rng(seed)
    codes = np.zeros((ROWS, 5), int)
    codes[:, 0] = rng.integers(0, 5, ROWS)
    for i in range(1, 5):
        codes[:, i] = (codes[:, i - 1] + rng.choice(5, ROWS, p=[0.8, 0.2, 0, 0, 0])) % 5
    found = {}
    for far in range(1, 5):
        for i in range(5 - far):
            j, table = i + far, np.zeros((5, 5))
            np.add.at(table, (codes[:, i], codes[:, j]), 1 / ROWS)
            found[f"x{i}", f"x{j}"] = table
    return found


def measured(exact: dict[tuple[str, ...], np.ndarray], seed: int) -> NoisyTables:
    rng = np.random.default_rng(seed)
    sigma = NOISE / ROWS
    tables = {c: t + sigma * rng.standard_normal(t.shape) for c, t in exact.items()}
    values = CliqueVector.from_tables(LINE, tables)
    return NoisyTables(values, np.full(len(tables), sigma**-2))


def test_one_by_one_or_all_at_once_a_model_of_all_pairs_of_a_chain(monkeypatch) -> None:
    monkeypatch.setattr(growth, "SMALL", 200)
    exact = line_of(0)
    noisy, order = measured(exact, 1), list(exact)
    steps = GrowingModel(LINE)
    for k in range(1, len(order) + 1):
        before, inside = steps, steps.inside
        steps = before.take(order[:k], noisy.only(order[:k]))
        assert before.inside == inside == tuple(order[: k - 1])  # the model before stays as it was
    assert steps.inside == tuple(order)
    assert steps.backbone is not None
    assert steps.backbone.whole
    assert steps.backbone.fit.support.size < steps.backbone.tree.cells
    seen: list[tuple[int, int]] = []
    at_once = GrowingModel(LINE).take(order, noisy, lambda s: seen.append((s.done, s.total)))
    assert at_once.backbone is not None
    assert seen == sorted(seen)
    assert seen[-1] == (len(order), len(order))
    for model in (steps, at_once):
        found = model.tables(order, noisy)
        ours = np.mean([np.abs(found[c] - exact[c]).sum() for c in order])
        data = np.mean([np.abs(noisy.values[c] - exact[c]).sum() for c in order])
        assert ours < 0.8 * data


def test_what_does_not_fit_is_read_beside_the_model(monkeypatch) -> None:
    monkeypatch.setattr(growth, "SMALL", 200)
    exact = line_of(2)
    noisy, order = measured(exact, 3), list(exact)
    tight = GrowingModel(LINE, cells=150).take(order, noisy)
    assert tight.outside
    assert {*tight.inside, *tight.outside} == set(order)
    assert tight.backbone is not None
    assert tight.backbone.fit.support.size <= 150
    found = tight.tables(order, noisy)
    ours, expected, data = (
        sum(float(((t[c] - exact[c]) ** 2).sum()) for c in tight.outside)
        for t in (found, {c: tight.backbone.marginal(c) for c in order}, noisy.values)
    )
    assert ours < 0.7 * data
    assert ours < 2 * expected
    nothing = GrowingModel(LINE, cells=10).take(order, noisy)
    assert nothing.backbone is None
    assert nothing.outside == tuple(order)


def test_a_single_table_moves_by_proximal_steps() -> None:
    rng = np.random.default_rng(4)
    start, wanted = rng.dirichlet(np.ones(12)), rng.dirichlet(np.ones(12)) + rng.normal(0, 0.05, 12)
    before = 0.999 * start + 0.001 / 12
    moved = proximal_steps(start, wanted, 30.0, 1)
    slope = 30.0 * (moved - wanted) + np.log(moved / before)
    np.testing.assert_allclose(slope, slope.mean(), atol=1e-6)
    assert moved.sum() == pytest.approx(1)
    far = proximal_steps(start, wanted, 30.0, 20)
    assert np.abs(far - np.maximum(wanted, 0)).sum() < np.abs(moved - np.maximum(wanted, 0)).sum()
