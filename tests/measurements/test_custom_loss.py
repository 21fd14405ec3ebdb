"""Losses that users write: gradients reach the right cells, and nonsense is refused."""

import importlib

import numpy as np
import pytest

from consilience.domain import CliqueVector, Domain, Layout
from consilience.errors import DomainError, LossError
from consilience.measurements import CustomLoss, Measurement, SquaredLoss, jax_loss

DOMAIN = Domain({"a": 2, "b": 3, "c": 4})
CLIQUES = [("b", "a"), ("c",)]
RNG = np.random.default_rng(31)
TARGET = CliqueVector.from_tables(
    DOMAIN, {("a", "b"): RNG.dirichlet(np.ones(6)).reshape(2, 3), ("c",): RNG.dirichlet(np.ones(4))}
)
LAYOUTS = {
    "own": Layout(DOMAIN, CLIQUES),
    "other order": Layout(DOMAIN, [("c",), ("a", "b")]),
    "larger": Layout(DOMAIN, [("a", "b", "c")]),
    "mixed": Layout(DOMAIN, [("a", "c"), ("a", "b"), ("b", "c")]),
}


def entropy_like(tau: CliqueVector) -> tuple[float, CliqueVector]:
    """sum tau log(tau / target), convex, not quadratic."""
    ratio = np.log(tau.values / TARGET.values)
    return float(tau.values @ ratio), CliqueVector(tau.layout, ratio + 1.0)


def with_mapping(tau: CliqueVector) -> tuple[float, dict]:
    """The same, its gradient a mapping whose tables follow another order of the attributes."""
    value, gradient = entropy_like(tau)
    return value, {("b", "a"): gradient["a", "b"].T, "c": gradient["c"]}


def random_tau(layout: Layout) -> CliqueVector:
    rng = np.random.default_rng(2)
    tau = CliqueVector(layout)
    for _, table in tau.items():
        table[...] = rng.dirichlet(np.full(table.size, 5.0)).reshape(table.shape)
    return tau


def check_gradient(loss, tau: CliqueVector, reference) -> None:
    value, gradient = loss.value_and_grad(tau)
    assert value == pytest.approx(reference(tau), rel=1e-12)
    for i in range(tau.values.size):
        step = CliqueVector(tau.layout)
        step.values[i] = 1e-6
        slope = (reference(tau + step) - reference(tau - step)) / 2e-6
        assert gradient.values[i] == pytest.approx(slope, rel=1e-6, abs=1e-7)


def divergence(tau: CliqueVector) -> float:
    return sum(
        float(np.sum(tau.project(c) * np.log(tau.project(c) / target)))
        for c, target in TARGET.items()
    )


@pytest.mark.parametrize("fn", [entropy_like, with_mapping])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_value_and_gradient(fn, layout: Layout) -> None:
    loss = CustomLoss(fn, DOMAIN, CLIQUES)
    assert loss.cliques == (("a", "b"), ("c",))
    check_gradient(loss, random_tau(layout), divergence)


def test_a_custom_squared_loss_is_the_squared_loss() -> None:
    def fn(tau: CliqueVector) -> tuple[float, CliqueVector]:
        residual = 50 * (tau - TARGET)
        return 0.5 * residual.dot(residual), 50 * residual

    measured = [Measurement(c, 50 * table, stddev=1.0) for c, table in TARGET.items()]
    squared = SquaredLoss(DOMAIN, measured, 50.0)
    custom = CustomLoss(fn, DOMAIN, squared.cliques, smoothness=squared.smoothness)
    for layout in LAYOUTS.values():
        tau = random_tau(layout)
        (value, gradient), (other, same) = custom.value_and_grad(tau), squared.value_and_grad(tau)
        assert value == pytest.approx(other, rel=1e-12)
        np.testing.assert_allclose(gradient.values, same.values, atol=1e-9)
        assert custom.bind(layout).smoothness == pytest.approx(squared.bind(layout).smoothness)


def test_smoothness_is_optional() -> None:
    loss = CustomLoss(entropy_like, DOMAIN, CLIQUES)
    assert loss.smoothness is None
    assert loss.bind(LAYOUTS["larger"]).smoothness is None


def test_the_function_can_not_write_to_tau() -> None:
    def fn(tau: CliqueVector) -> tuple[float, CliqueVector]:
        tau.values[0] = 0.0
        return 0.0, tau

    with pytest.raises(ValueError, match="read-only"):
        CustomLoss(fn, DOMAIN, CLIQUES).value_and_grad(random_tau(LAYOUTS["own"]))


def spoiled(tau: CliqueVector, bad: float) -> CliqueVector:
    gradient = CliqueVector(tau.layout)
    gradient["c"][2] = bad
    return gradient


BAD = {
    "value nan": (lambda t: (np.nan, t), "value of a custom loss must be finite, got nan"),
    "value infinite": (lambda t: (np.inf, t), "value of a custom loss must be finite, got inf"),
    "value an array": (lambda t: (np.ones(2), t), "value of a custom loss must be one real number"),
    "value text": (lambda t: ("1", t), "value of a custom loss must be one real number"),
    "gradient nan": (
        lambda t: (1.0, spoiled(t, np.nan)),
        r"gradient of a custom loss must be finite, got nan in the table of \('c',\)",
    ),
    "gradient infinite": (
        lambda t: (1.0, spoiled(t, -np.inf)),
        r"got -inf in the table of \('c',\)",
    ),
    "gradient shape": (
        lambda t: (1.0, {("a", "b"): np.ones((3, 2)), "c": np.ones(4)}),
        r"gradient of a custom loss must fit its cliques: .* must have shape \(2, 3\)",
    ),
    "gradient without a clique": (
        lambda t: (1.0, {"c": np.ones(4)}),
        r"must have a table for each clique, none for \('a', 'b'\)",
    ),
    "gradient of another clique": (lambda t: (1.0, {"a": np.ones(2)}), "must fit its cliques"),
    "gradient of another family": (
        lambda t: (1.0, CliqueVector.zeros(DOMAIN, [("c",)])),
        "must be over its 2 cliques",
    ),
    "gradient an array": (lambda t: (1.0, t.values), "CliqueVector or a mapping.*got ndarray"),
    "no gradient": (lambda t: 1.0, r"must return a pair \(value, gradient\), got float"),
}


@pytest.mark.parametrize("fn, words", BAD.values(), ids=BAD.keys())
def test_what_no_solver_can_use(fn, words: str) -> None:
    loss = CustomLoss(fn, DOMAIN, CLIQUES)
    with pytest.raises(LossError, match=words):
        loss.value_and_grad(random_tau(LAYOUTS["own"]))


def test_bad_arguments() -> None:
    with pytest.raises(LossError, match=r"must be given \(fn, domain, cliques\), got list"):
        CustomLoss(entropy_like, CLIQUES, DOMAIN)  # type: ignore[arg-type]
    with pytest.raises(LossError, match="smoothness must be positive and finite, got -1"):
        CustomLoss(entropy_like, DOMAIN, CLIQUES, smoothness=-1)
    with pytest.raises(LossError, match="must read at least one clique, got none"):
        CustomLoss(entropy_like, DOMAIN, [])
    with pytest.raises(DomainError, match="every attribute must be in the domain, got 'z'"):
        CustomLoss(entropy_like, DOMAIN, [("z",)])


def test_without_jax_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def missing(name: str, package: str | None = None):
        if name == "jax":
            raise ImportError("No module named 'jax'")
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(LossError, match="needs JAX, which is not installed; run `pip install jax`"):
        jax_loss(lambda tables: 0.0, DOMAIN, CLIQUES)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_jax_gradient(layout: Layout) -> None:
    jax = pytest.importorskip("jax")
    targets = dict(TARGET.items())

    def fn(tables):
        return sum((tables[c] * jax.numpy.log(tables[c] / targets[c])).sum() for c in targets)

    check_gradient(jax_loss(fn, DOMAIN, CLIQUES), random_tau(layout), divergence)


def test_jax_leaves_the_global_precision_alone() -> None:
    jax = pytest.importorskip("jax")
    before = jax.config.jax_enable_x64
    seen = []

    def fn(tables):
        seen.append(tables["c",].dtype)
        return (tables["c",] ** 2).sum()

    loss = jax_loss(fn, DOMAIN, [("c",)])
    tau = random_tau(Layout(DOMAIN, [("c",)]))
    value = loss.value_and_grad(tau)[0]
    assert value == pytest.approx(float(tau.values @ tau.values), rel=1e-15)
    assert {str(d) for d in seen} == {"float64"}
    assert jax.config.jax_enable_x64 == before
    assert jax.numpy.ones(1).dtype == (np.float64 if before else np.float32)


def test_jax_function_that_returns_a_table() -> None:
    pytest.importorskip("jax")
    with pytest.raises(LossError, match="a JAX loss must return one number"):
        jax_loss(lambda tables: tables["c",], DOMAIN, [("c",)])


def test_smoothness_grows_by_the_largest_number_that_share_a_home() -> None:
    loss = CustomLoss(entropy_like, DOMAIN, ["a", "b", "c"], smoothness=2.0)
    assert loss.bind(Layout(DOMAIN, ["a", "b", "c"])).smoothness == 2.0
    assert loss.bind(Layout(DOMAIN, [("a", "b"), ("c",)])).smoothness == 4.0
    assert loss.bind(Layout(DOMAIN, [("a", "b", "c")])).smoothness == 6.0
