"""Under dpmm: the protocol of its FactoredInference everywhere, its own pipelines where it is installed (`make adapters`)."""

from __future__ import annotations

import pickle
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import consilience as cs
from consilience.adapters import dpmm as adapter
from consilience.errors import AdapterError

SIZES = {"a": 3, "b": 4, "c": 2, "d": 5}
CLIQUES = [("a", "b"), ("c", "b"), ("d", "a"), ("c",)]
ROWS = 3000


class Domain:
    """What the adapter asks of dpmm's."""

    def __init__(self, config: dict[str, int]) -> None:
        self.config, self.attrs = config, tuple(config)

    def project(self, attrs: tuple[str, ...]) -> Domain:
        return Domain({a: self.config[a] for a in attrs})


def columns() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    first = rng.integers(0, 6, ROWS)
    return {
        a: (first * (i + 1) + rng.integers(0, 3, ROWS)) % n
        for i, (a, n) in enumerate(SIZES.items())
    }


def exact(clique: tuple[str, ...]) -> np.ndarray:
    data = cs.Dataset(columns(), cs.Domain(SIZES))
    return data.marginal(sorted(clique)).transpose([sorted(clique).index(a) for a in clique])


def noisy(seed: int = 1, stddev: float = 6.0) -> dict[tuple[str, ...], np.ndarray]:
    rng = np.random.default_rng(seed)
    return {c: exact(c) + rng.normal(0, stddev, exact(c).shape) for c in CLIQUES}


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables and rows as plain values, where dpmm is not there."""
    made = SimpleNamespace(
        Factor=lambda domain, values: SimpleNamespace(domain=domain, values=values),
        Dataset=lambda frame, domain: SimpleNamespace(df=frame, domain=domain),
    )
    monkeypatch.setattr(adapter, "library", lambda: made)


@pytest.mark.parametrize("kind", ["none", "eye", "half", "flat"])
def test_measurements_are_the_same_as_ours(parts: None, kind: str) -> None:
    """Answers flat or as a table, through nothing, the identity, or the identity halved: one model."""
    tables = noisy()
    given = []
    for clique, table in tables.items():
        half = 0.5 if kind == "half" else 1.0
        matrix = None if kind == "none" else half * sparse.eye(table.size)
        answers = half * (table.reshape(-1) if kind == "flat" else table)
        given.append((matrix, answers, half * 6.0, clique))
    found = adapter.Inference(Domain(SIZES), iters=1000, prng=None).estimate(given)
    domain = cs.Domain(SIZES)
    ours = cs.reconstruct(domain, [cs.Measurement(c, t, stddev=6.0) for c, t in tables.items()])
    assert found.total == pytest.approx(ours.total, rel=1e-9)
    for clique in [*CLIQUES, ("b", "a"), ("d", "c")]:
        np.testing.assert_allclose(
            found.project(clique).values, ours.marginal(clique), atol=1e-6 * ROWS
        )
        assert found.project(list(clique)).domain.attrs == clique


def test_totals_zeros_warm_starts_and_rows(parts: None) -> None:
    given = [(None, t, 6.0, c) for c, t in noisy().items()]
    zeros = {("b", "a"): [(3, 0), (1, 2)], "c": [(1,)]}
    engine = adapter.Inference(
        Domain(SIZES),
        structural_zeros=zeros,
        warm_start=True,
        prng=np.random.RandomState(5),
    )
    model = engine.estimate(given, total=2500.0)
    assert model.total == 2500.0
    table = model.project(("a", "b")).values
    assert table[0, 3] == table[2, 1] == model.project("c").values[1] == 0.0
    assert (table > 0).sum() > 6
    again = engine.estimate(given, total=2500.0)
    np.testing.assert_allclose(again.project(("a", "b")).values, table, atol=1.0)
    rows = model.synthetic_data(rows=400).df
    assert len(rows) == 400
    assert not ((rows["b"] == 3) & (rows["a"] == 0)).any()
    with pytest.raises(AdapterError, match="condition_records must be None"):
        model.synthetic_data(condition_records=rows)


def test_nothing_that_tells_the_total_is_one() -> None:
    """As in dpmm, where a matrix leaves the sum open."""
    matrix = sparse.csr_array(np.array([[1.0, 0.0, 0.0]]))
    model = adapter.Inference(Domain(SIZES)).estimate([(matrix, np.array([0.5]), 0.1, ("a",))])
    assert model.total == 1.0


def test_a_model_is_kept_as_a_pickle(parts: None, tmp_path: Any) -> None:
    model = adapter.Inference(Domain(SIZES)).estimate([(None, t, 6.0, c) for c, t in noisy().items()])  # fmt: skip
    model.save(tmp_path / "estimator.pickle")
    again = pickle.loads((tmp_path / "estimator.pickle").read_bytes())
    np.testing.assert_allclose(again.ours.marginal(("a", "b")), model.ours.marginal(("a", "b")))
    assert again.cliques == model.cliques
    assert again.size == model.size


def test_other_metrics_are_refused_and_a_missing_tool_is_said(monkeypatch: Any) -> None:
    with pytest.raises(AdapterError, match="must be 'L2', got 'L1'"):
        adapter.Inference(Domain(SIZES), metric="L1")
    monkeypatch.setitem(sys.modules, "dpmm", None)
    for name in [m for m in sys.modules if m.startswith("dpmm.")]:
        monkeypatch.delitem(sys.modules, name)
    with (
        pytest.raises(AdapterError, match=r"needs dpmm\.models\.aim of dpmm 0\.1"),
        adapter.replacing(),
    ):
        pass


def test_names_are_put_back(monkeypatch: Any) -> None:
    for name in ("dpmm", "dpmm.models", "dpmm.models.base", "dpmm.models.base.mechanisms", *adapter.USERS):  # fmt: skip
        module = ModuleType(name)
        module.FactoredInference = dict  # pyright: ignore[reportAttributeAccessIssue]
        monkeypatch.setitem(sys.modules, name, module)
    fit = cs.LeastSquares("local")

    def stopped() -> None:
        with adapter.replacing(fit) as ours:
            assert all(sys.modules[u].FactoredInference is ours for u in adapter.USERS)  # pyright: ignore[reportAttributeAccessIssue]
            assert ours.fit is fit
            raise RuntimeError

    with pytest.raises(RuntimeError):
        stopped()
    assert all(sys.modules[u].FactoredInference is dict for u in adapter.USERS)  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["MSTPipeline", "AIMPipeline", "PrivBayesPipeline"])
def test_dpmms_own_pipelines(name: str, tmp_path: Any) -> None:
    pipelines = pytest.importorskip("dpmm.pipelines", reason="needs dpmm 0.1 (make adapters)")
    import pandas as pd

    frame = pd.DataFrame(columns())
    pipe = getattr(pipelines, name)(epsilon=2.0, delta=1e-9, disable_processing=True, n_jobs=1)
    with adapter.replacing():
        pipe.fit(frame, SIZES, random_state=3)
    model = pipe.gen.generator.model
    assert isinstance(model, adapter.Reconstructed)
    rows = pipe.generate(n_records=ROWS, random_state=1)
    again = pipe.generate(n_records=ROWS, random_state=1)
    assert (rows[list(SIZES)] == again[list(SIZES)]).all().all()
    for a, n in SIZES.items():
        shares = [np.bincount(t[a], minlength=n) / ROWS for t in (frame, rows)]
        assert 0.5 * np.abs(shares[0] - shares[1]).sum() < 0.05
    pipe.store(tmp_path)
    assert type(pipe).load(tmp_path).gen.generator.model.ours.total == pytest.approx(model.ours.total)  # fmt: skip
