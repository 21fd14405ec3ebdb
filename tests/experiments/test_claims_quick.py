"""Parts of the paper's claims that take no run: same draws, growth by counting, the same programme.

Claims on runs: test_quick_mode.py on small sizes, test_claims_rows.py at full size on committed rows.
"""

import itertools

import common
import figure2_accuracy
import figure2_speed
import noise_free_mwem
import numpy as np
import pytest
import reference
import rivals

import consilience as cs
from consilience.regions import JunctionTree

needs_data = pytest.mark.skipif(
    not common.data_folder().is_dir(),
    reason=f"needs the paper's data in {common.data_folder()}; set CONSILIENCE_DATA",
)

# -- Figure 2a, 2b ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "k"), [("noisy", 1), ("noisy", 55), ("saturated", 20), ("factor", 20), ("factor", 1)]
)
def test_the_draws_are_the_authors(method: str, k: int) -> None:
    """Same trees, cliques and noise as theirs, so the means of five seeds agree to two digits and more."""
    found = np.mean([figure2_accuracy.run(seed, k, method)["in_model"] for seed in common.SEEDS])
    assert found == pytest.approx(reference.FIGURE_2AB["in_model"][method][k], rel=0.03)


# -- Figure 2c: growth by what an iteration touches, not by a clock ----------------------------------------


@pytest.mark.parametrize("kind", ["random", "greedy"])
def test_the_saturated_graph_grows_linearly(kind: str) -> None:
    ks = [100, 400, 1600]
    cells = [figure2_speed.sizes(kind, k, "saturated")[1] for k in ks]
    per_triple = [c / k for c, k in zip(cells, ks, strict=True)]
    assert max(per_triple) < 1.15 * min(per_triple)
    assert (
        per_triple[0] < 1.2 * 10**3
    )  # a triple has 1,000 cells; what it shares with others adds little


def test_the_junction_tree_explodes_where_the_graph_does_not() -> None:
    few, more = (figure2_speed.sizes("random", k, "exact")[1] for k in (30, 60))
    assert more > 1000 * few
    assert figure2_speed.sizes("random", 60, "saturated")[1] < 3 * figure2_speed.sizes(
        "random", 30, "saturated"
    )[1]  # fmt: skip


def test_exact_beyond_its_budget_is_a_row_without_a_time() -> None:
    row = figure2_speed.measure("exact", "random", 100)
    assert row["cells"] > figure2_speed.MOST_CELLS
    assert "seconds" not in row


# -- Figure 3 ------------------------------------------------------------------------------------------


@needs_data
def test_mwem_on_fire_goes_on_where_exact_stops() -> None:
    """All 105 pairs: the exact model would be one table over 15 attributes, the region graph is small."""
    domain = common.load("fire").domain
    pairs = list(itertools.combinations(domain.attributes, 2))
    assert JunctionTree.of(domain, pairs).cells > 10**13
    given = [cs.Measurement(c, np.ones(domain.shape_of(c)), stddev=1.0) for c in pairs]
    chosen = cs.plan(domain, given)
    assert chosen.consistency == "local"
    assert cs.RegionGraph.saturated(domain, pairs).cells < 10**5


@needs_data
def test_mwem_without_noise_keeps_global_information() -> None:
    rows = noise_free_mwem.run("titanic", rounds=10, report=lambda _: None)
    theirs = reference.NOISE_FREE["titanic"]
    assert rows[0]["mean_l1"] == pytest.approx(theirs["exact"][0], abs=1e-4)
    assert rows[10]["mean_l1"] < 1.02 * theirs["exact"][10] < 0.8 * theirs["region graph"][10]


# -- beyond the paper ---------------------------------------------------------------------------------


def test_grem_lnn_is_the_same_programme() -> None:
    """Its dual ascent, run long enough, ends where the certified solver ends; least squares alone does not."""
    rng = np.random.default_rng(3)
    domain = cs.Domain({"a": 3, "b": 4, "c": 2, "d": 3})
    codes = np.minimum(rng.exponential(0.8, (400, 4)).astype(int), np.array(domain.shape) - 1)
    cliques = [("a", "b"), ("b", "c", "d"), ("a", "d")]
    truth = {c: x.astype(float) for c, x in cs.Dataset(codes, domain).marginals(cliques).items()}
    given = {c: x + rng.normal(0, 15, x.shape) for c, x in truth.items()}
    basis = rivals.Residuals(domain, cliques)
    theirs, rounds = rivals.dual_ascent(basis, given, 400.0)
    model = cs.reconstruct(
        domain, [cs.Measurement(c, y, stddev=15.0) for c, y in given.items()], total=400, fit=cs.LeastSquares(consistency="local")
    )  # fmt: skip
    straight = basis.tables(rivals.least_squares(basis, given, 400.0))
    assert rounds > 3
    assert min(x.min() for x in straight.values()) < -1
    for c in cliques:
        assert theirs[c] == pytest.approx(model.marginal(c), abs=1.0)
        assert straight[c].sum() == pytest.approx(400)
