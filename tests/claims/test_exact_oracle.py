"""The exact oracle gives the marginals and the log partition function of the enumerated joint."""

import tracemalloc

import numpy as np
import pytest

from claims.judges import joint, marginal, marginals, random_vector
from consilience.domain import CliqueVector, Domain, Layout
from consilience.errors import (
    CapacityError,
    DomainError,
    LossError,
    PotentialError,
    RegionGraphError,
)
from consilience.kernels.hugin import FORK_CELLS
from consilience.regions import JunctionTree
from consilience.tree import oracle as module
from consilience.tree.elimination import exact_marginal
from consilience.tree.oracle import ExactOracle, exact_marginals

D = Domain({"a": 3, "b": 2, "c": 4, "d": 2, "e": 3, "f": 1})

CASES = {
    "tree": ["ab", "bc", "cd", "ce"],
    "cyclic": ["ab", "bc", "cd", "ad"],
    "disconnected": ["ab", "cd"],
    "nested": ["abc", "ab", "c", "bc"],
    "full": ["abcdef"],
    "singleton": ["c"],
    "duplicates in other order": ["ab", "ba", "cba", "bca"],
    "attribute in no clique": ["bd", "de"],
    "all triples of five": ["abc", "abd", "abe", "acd", "ace", "ade", "bcd", "bce", "bde", "cde"],
    "size one": ["f", "af", "fe"],
    "with the empty clique": ["ab", ""],
}
THETAS = {"mild": 1.0, "strong": 30.0, "extreme": 2000.0}


def cliques_of(case: str) -> list[tuple[str, ...]]:
    return [tuple(c) for c in CASES[case]]


def oracle_of(cliques, domain: Domain = D) -> ExactOracle:
    return ExactOracle(JunctionTree.of(domain, cliques), cliques)


@pytest.mark.parametrize("scale", THETAS.values(), ids=THETAS)
@pytest.mark.parametrize("case", CASES)
def test_marginals_and_log_partition_of_the_joint(case: str, scale: float) -> None:
    theta = random_vector(D, cliques_of(case), np.random.default_rng(1), scale)
    p, log_z = joint(theta)
    mu, found = exact_marginals(D, theta)
    assert mu.cliques == theta.cliques
    assert found == pytest.approx(log_z, rel=1e-13)
    np.testing.assert_allclose(mu.values, marginals(D, p, theta.cliques).values, atol=1e-12)
    for extra in (("a", "e"), ("b", "d", "e"), ("f",), (), ("e", "c", "a")):
        np.testing.assert_allclose(exact_marginal(theta, extra), marginal(D, p, extra), atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_impossible_cells(case: str) -> None:
    rng = np.random.default_rng(2)
    theta = random_vector(D, cliques_of(case), rng)
    for clique, table in theta.items():
        if table.size > 1:
            table.flat[1:][rng.random(table.size - 1) < 0.3] = -np.inf
        assert np.isfinite(theta[clique].flat[0])
    p, log_z = joint(theta)
    mu, found = exact_marginals(D, theta)
    assert found == pytest.approx(log_z, rel=1e-13)
    expected = marginals(D, p, theta.cliques)
    np.testing.assert_allclose(mu.values, expected.values, atol=1e-12)
    # Exactly zero where the joint says impossible, also where another clique's zero forbids it.
    assert np.array_equal(mu.values > 0, expected.values > 0)
    np.testing.assert_allclose(
        exact_marginal(theta, ("a", "d")), marginal(D, p, ("a", "d")), atol=1e-12
    )


@pytest.mark.parametrize("case", CASES)
def test_steps_add_up(case: str) -> None:
    """After every step the state is the distribution of the accumulated potentials; steps wide and narrow."""
    rng = np.random.default_rng(3)
    oracle = oracle_of(cliques_of(case))
    state = oracle.uniform()
    theta = CliqueVector(oracle.layout)
    for scale in (0.0, 0.1, 3.0, 1.0, 10.0, 1.0, 60.0, 0.1):
        gradient = rng.normal(size=oracle.layout.cells)
        oracle.step(state, gradient, scale)
        theta = theta - scale * CliqueVector(oracle.layout, gradient)
        p, log_z = joint(theta)
        expected = marginals(D, p, oracle.layout.cliques)
        np.testing.assert_allclose(oracle.marginals(state), expected.values, atol=1e-12)
        assert state.log_partition == pytest.approx(log_z, rel=1e-12)
        for extra in (("a", "e"), ("b", "d", "f"), ("c",), ()):
            np.testing.assert_allclose(
                oracle.marginal(state, extra), marginal(D, p, extra), atol=1e-12
            )


@pytest.mark.parametrize(("loud", "logs"), [(1000.0, False), (100_000.0, True)])
def test_a_step_too_wide_for_products_is_taken_in_parts_or_in_logarithms(
    loud: float, logs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two cliques that fight over one attribute with exponents of a thousand and more."""
    calls, finish = [], ExactOracle._finish_in_logs
    monkeypatch.setattr(
        ExactOracle, "_finish_in_logs", lambda *given: (calls.append(1), finish(*given))
    )
    domain = Domain({"a": 2, "b": 3, "c": 2})
    oracle = oracle_of([("a", "b"), ("b", "c")], domain)
    state = oracle.uniform()
    pull = CliqueVector(oracle.layout)
    pull["a", "b"][:, 1] = loud
    pull["b", "c"][:, :] = 2.0 * np.arange(6).reshape(3, 2)
    push = CliqueVector(oracle.layout)
    push["b", "c"][1, :] = -loud
    theta = pull + push
    oracle.step(state, -theta.values, 1.0)
    p, log_z = joint(theta)
    expected = marginals(domain, p, oracle.layout.cliques)
    np.testing.assert_allclose(oracle.marginals(state), expected.values, atol=1e-12)
    assert state.log_partition == pytest.approx(log_z)
    assert bool(calls) == logs


def test_many_long_steps_on_a_star_do_not_underflow() -> None:
    """Each clique's step is narrow, but a hundred neighbours shout at once, half of them against the other half."""
    domain = Domain({"hub": 3} | {f"x{i}": 2 for i in range(100)})
    cliques = [("hub", f"x{i}") for i in range(100)]
    oracle = oracle_of(cliques, domain)
    state = oracle.uniform()
    rng = np.random.default_rng(4)
    theta = CliqueVector(oracle.layout)
    for loud in (20.0, -20.0, 1.0, 20.0):
        gradient = rng.normal(size=oracle.layout.cells)
        for i, clique in enumerate(oracle.layout.cliques):
            CliqueVector(oracle.layout, gradient)[clique][i // 2 % 3] += loud * (-1) ** i
        oracle.step(state, gradient, 1.0)
        theta = theta - CliqueVector(oracle.layout, gradient)
    # Judge: given the hub the leaves are independent, so the hub's potential is a sum over leaves.
    hub = sum(np.logaddexp(t[:, 0], t[:, 1]) for _, t in theta.items())
    assert state.log_partition == pytest.approx(np.logaddexp.reduce(hub), rel=1e-12)
    p_hub = np.exp(hub - np.logaddexp.reduce(hub))
    mu = CliqueVector(oracle.layout, oracle.marginals(state))
    for clique, table in theta.items():
        given_hub = np.exp(table - np.logaddexp(table[:, :1], table[:, 1:]))
        np.testing.assert_allclose(mu[clique], p_hub[:, None] * given_hub, atol=1e-12)


def test_a_cell_that_all_but_vanished_comes_back() -> None:
    oracle = oracle_of([("a", "b"), ("b", "c")])
    state = oracle.uniform()
    down = CliqueVector(oracle.layout)
    down["a", "b"][0, 0] = 150.0
    for _ in range(10):
        oracle.step(state, down.values, 1.0)
    mu = CliqueVector(oracle.layout, oracle.marginals(state))
    assert 0 < mu["a", "b"][0, 0] < 1e-90
    for _ in range(3):
        oracle.step(state, -down.values, 1.0)
    mu = CliqueVector(oracle.layout, oracle.marginals(state))
    assert mu["a", "b"][0, 0] > 0.9


@pytest.mark.parametrize("home", [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")])
def test_a_value_that_all_but_vanished_does_not_spoil_the_others(
    home: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole separator cell goes under the floor and stays there for many steps, then returns.

    None of it is wide enough to leave the fast path.
    """
    monkeypatch.delattr(ExactOracle, "_finish_in_logs")
    domain = Domain({"a": 3, "b": 3, "c": 4, "d": 3, "e": 2})
    oracle = oracle_of([("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")], domain)
    rng = np.random.default_rng(11)
    state, theta = oracle.uniform(), CliqueVector(oracle.layout)
    for k in range(30):
        gradient = CliqueVector(oracle.layout, rng.normal(size=oracle.layout.cells))
        if k < 12:
            gradient[home][:, 1] += 180.0
            if home == ("a", "b"):  # both neighbours of the separator push at once
                gradient["b", "c"][1] += 180.0
        oracle.step(state, gradient.values, 1.0)
        theta = theta - gradient
        p, log_z = joint(theta)
        expected = marginals(domain, p, oracle.layout.cliques)
        np.testing.assert_allclose(oracle.marginals(state), expected.values, atol=1e-12)
        assert state.log_partition == pytest.approx(log_z, rel=1e-12)
    back = CliqueVector(oracle.layout)
    back[home][:, 1] = -100.0
    for _ in range(6):
        oracle.step(state, back.values, 1.0)
    assert CliqueVector(oracle.layout, oracle.marginals(state))[home][:, 1].sum() > 0.9


def test_steps_from_potentials_with_impossible_cells() -> None:
    rng = np.random.default_rng(5)
    cliques = [tuple(c) for c in ("ab", "bc", "cd", "ad", "e")]
    theta = random_vector(D, cliques, rng)
    theta["a", "b"][0, 1] = theta["c", "d"][2, 0] = theta["c", "d"][2, 1] = -np.inf
    oracle = oracle_of(cliques)
    state = oracle.of_potentials(theta)
    for scale in (0.5, 1.0, 100.0, 1.0):
        gradient = rng.normal(size=oracle.layout.cells)
        oracle.step(state, gradient, scale)
        theta = theta - scale * CliqueVector(oracle.layout, gradient)
        p, log_z = joint(theta)
        found = CliqueVector(oracle.layout, oracle.marginals(state))
        np.testing.assert_allclose(found.values, marginals(D, p, cliques).values, atol=1e-12)
        assert state.log_partition == pytest.approx(log_z, rel=1e-12)
        assert found["a", "b"][0, 1] == 0.0
        assert not found["b", "c"][:, 2].any()
        assert not oracle.marginal(state, ("a", "c"))[:, 2].any()


def test_large_cliques_are_cut_into_items_and_still_right() -> None:
    """A clique of 280,000 cells, cut into work items whose borders fall inside runs of every edge."""
    domain = Domain({"a": 10, "b": 20, "c": 20, "d": 70, "e": 3, "g": 2})
    cliques = [tuple(c) for c in ("abcd", "ab", "bd", "d", "de", "eg", "acd", "")]
    oracle = oracle_of(cliques, domain)
    assert len(oracle._plan.of) > len(oracle.tree.cliques)
    assert domain.size(oracle.tree.largest) >= FORK_CELLS
    rng = np.random.default_rng(6)
    state, theta = oracle.uniform(), CliqueVector(oracle.layout)
    for _ in range(3):
        gradient = rng.normal(size=oracle.layout.cells)
        oracle.step(state, gradient, 0.7)
        theta = theta - 0.7 * CliqueVector(oracle.layout, gradient)
    p, log_z = joint(theta)
    expected = marginals(domain, p, cliques)
    np.testing.assert_allclose(oracle.marginals(state), expected.values, rtol=1e-11)
    assert state.log_partition == pytest.approx(log_z, rel=1e-13)


def test_a_long_chain_against_matrix_products() -> None:
    """300 attributes: the log partition function is a product of 299 matrices."""
    rng = np.random.default_rng(7)
    domain = Domain({f"x{i}": 4 for i in range(300)})
    theta = random_vector(domain, [(f"x{i}", f"x{i + 1}") for i in range(299)], rng)
    log_z, row = 0.0, np.ones(4)
    for _, table in theta.items():
        row = row @ np.exp(table)
        log_z += np.log(row.sum())
        row /= row.sum()
    mu, found = exact_marginals(domain, theta)
    assert found == pytest.approx(log_z, rel=1e-13)
    np.testing.assert_allclose(mu.project("x299"), row, atol=1e-13)
    ends = exact_marginal(theta, ("x0", "x299"))
    np.testing.assert_allclose(ends.sum(axis=0), row, atol=1e-13)


def test_a_copy_is_a_snapshot_and_adopt_returns_to_it() -> None:
    oracle = oracle_of(cliques_of("cyclic"))
    rng = np.random.default_rng(8)
    state = oracle.uniform()
    oracle.step(state, rng.normal(size=oracle.layout.cells), 1.0)
    kept, before = state.copy(), oracle.marginals(state)
    oracle.step(state, rng.normal(size=oracle.layout.cells), 1.0)
    assert not np.array_equal(oracle.marginals(state), before)
    np.testing.assert_array_equal(oracle.marginals(kept), before)
    state.adopt(kept)
    np.testing.assert_array_equal(oracle.marginals(state), before)
    assert state.log_partition == kept.log_partition


def test_marginals_of_other_cliques_than_the_potentials() -> None:
    theta = random_vector(D, cliques_of("cyclic"), np.random.default_rng(9))
    p, _ = joint(theta)
    wanted = [("e", "a"), ("d", "b")]
    mu, _ = exact_marginals(D, theta, wanted)
    np.testing.assert_allclose(mu.values, marginals(D, p, wanted).values, atol=1e-13)


# -- refusals -----------------------------------------------------------------------------------------


def grid(width: int) -> tuple[Domain, list[tuple[str, str]]]:
    """A complete graph: its junction tree is one clique."""
    names = [f"x{i}" for i in range(width)]
    return Domain(dict.fromkeys(names, 2)), [(a, b) for a in names for b in names if a < b]


def test_a_tree_beyond_the_budget_is_refused_before_it_is_built() -> None:
    domain, cliques = grid(100)
    theta = CliqueVector.zeros(domain, cliques)
    match = r"must fit the memory budget: JunctionTree\(1 cliques.* needs 10\^\d+ B, the budget is 4.3 GB"
    with pytest.raises(CapacityError, match=match) as caught:
        exact_marginals(domain, theta)
    assert caught.value.needed_bytes >= 8 * 2**100
    with pytest.raises(CapacityError, match=r"needs .* B, the budget is 1.0 MB; raise memory="):
        ExactOracle(JunctionTree.of(domain, cliques), cliques, memory=10**6)
    with pytest.raises(CapacityError, match="eliminating variables needs") as caught:
        exact_marginal(theta, ("x0",), memory=10**6)
    assert caught.value.budget_bytes == 10**6


def test_the_budget_is_a_border() -> None:
    domain, cliques = grid(10)
    tree = JunctionTree.of(domain, cliques)
    needed = module.bytes_needed(tree, cliques)
    ExactOracle(tree, cliques, memory=needed)
    with pytest.raises(CapacityError):
        ExactOracle(tree, cliques, memory=needed - 1)


@pytest.mark.parametrize("rank", [2, 16], ids=["one pair", "sixteen attributes"])
def test_the_estimate_of_memory_is_an_upper_one(rank: int) -> None:
    """NumPy's own bookkeeping of what building, starting and stepping took at most."""
    domain, pairs = grid(rank)
    tree = JunctionTree.of(domain, pairs)
    theta = random_vector(domain, pairs, np.random.default_rng(10))
    ExactOracle(tree, pairs).step(ExactOracle(tree, pairs).uniform(), theta.values, 1.0)
    tracemalloc.start()
    oracle = ExactOracle(tree, pairs)
    state = oracle.of_potentials(theta)
    oracle.step(state, theta.values, 1.0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    overhead = 400_000  # names, tuples and dicts
    assert peak < module.bytes_needed(tree, pairs) + overhead
    if rank == 16:
        assert peak > 0.2 * module.bytes_needed(tree, pairs)


def test_bad_potentials_and_gradients_are_named() -> None:
    theta = CliqueVector.zeros(D, [("a", "b")])
    for bad in (np.nan, np.inf):
        theta.values[0] = bad
        for call in (lambda: exact_marginals(D, theta), lambda: exact_marginal(theta, "a")):
            with pytest.raises(PotentialError, match="must be finite or minus infinity"):
                call()
    forbidden = CliqueVector.zeros(D, [("a", "b"), ("b", "c")])
    forbidden["a", "b"][:, 0] = forbidden["b", "c"][1] = -np.inf
    with pytest.raises(PotentialError, match="at least one cell possible, got none"):
        exact_marginals(D, forbidden)
    with pytest.raises(PotentialError, match=r"at least one cell possible, got none for \('c',\)"):
        exact_marginal(forbidden, "c")
    oracle = oracle_of([("a", "b")])
    state = oracle.uniform()
    for bad in (np.nan, np.inf, -np.inf):
        gradient = np.zeros(oracle.layout.cells)
        gradient[3] = bad
        with pytest.raises(LossError, match="a gradient must be finite"):
            oracle.step(state, gradient, 1.0)
    np.testing.assert_array_equal(oracle.marginals(state), np.full(6, 1 / 6))


def test_cliques_outside_the_tree_are_named() -> None:
    tree = JunctionTree.of(D, [("a", "b"), ("c", "d")])
    with pytest.raises(
        RegionGraphError, match=r"inside a clique of the junction tree, got \('a', 'c'\)"
    ):
        ExactOracle(tree, [("a", "c")])
    with pytest.raises(DomainError, match="must be over the given domain"):
        exact_marginals(Domain({"a": 3}), CliqueVector.zeros(D, [("a",)]))


def test_gradient_lies_in_domain_order_whatever_the_engine_uses() -> None:
    """Sizes that descend make the engine turn every table around."""
    domain = Domain({"a": 5, "b": 3, "c": 2})
    cliques = [("a", "b"), ("b", "c")]
    oracle = oracle_of(cliques, domain)
    state = oracle.uniform()
    gradient = CliqueVector(Layout(domain, cliques))
    gradient["a", "b"][4, 0] = -50.0
    oracle.step(state, gradient.values, 1.0)
    assert CliqueVector(oracle.layout, oracle.marginals(state))["a", "b"][4, 0] > 0.99
