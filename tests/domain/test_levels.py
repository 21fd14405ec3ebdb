"""Levels: their names stand wherever attributes' do, and every answer at a level is the finer one summed."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import consilience as cs
from consilience.errors import ConsilienceError, DomainError, MeasurementError
from consilience.privacy import SeededNoise

LEVELS = {"tract": ("block", [0, 0, 1, 1, 2, 2]), "county": ("tract", [0, 0, 1])}
DOMAIN = cs.Domain({"age": 3, "block": 6, "sex": 2}, levels=LEVELS)


def exact(domain: cs.Domain, joint: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """The table of these names by brute force, axes in the order named."""
    out = np.zeros([domain[a] for a in names])
    for cell in np.ndindex(joint.shape):
        at = []
        for a in names:
            code = cell[domain.position(a)]
            at.append(domain.levels[a].units[code] if a in domain.levels else code)
        out[tuple(at)] += joint[cell]
    return out


def measured(joint, names, stddev=1.0, rng=None, domain=DOMAIN):
    table = exact(domain, joint, names)
    noise = 0.0 if rng is None else rng.normal(0, stddev, table.shape)
    return cs.Measurement(names, table + noise, stddev=stddev)


@pytest.fixture(scope="module")
def joint() -> np.ndarray:
    return np.random.default_rng(3).poisson(30, DOMAIN.shape).astype(float)


@pytest.fixture(scope="module")
def model(joint) -> cs.Model:
    rng = np.random.default_rng(0)
    asked = [("county", "age"), ("sex", "tract"), ("block", "sex"), ("block", "age")]
    return cs.reconstruct(DOMAIN, [measured(joint, c, 2.0, rng) for c in asked])


def test_names_of_levels_stand_for_their_attributes_and_the_finer_one_wins():
    assert DOMAIN.clique(("sex", "county")) == ("block", "sex")
    assert DOMAIN.named(("sex", "county")) == ("county", "sex")
    assert DOMAIN.named(("county", "tract", "sex")) == ("tract", "sex")
    assert DOMAIN.named(("county", "block")) == ("block",)
    assert DOMAIN["county"] == 2
    assert DOMAIN.size(("county", "age")) == 6
    assert "tract" in DOMAIN
    assert DOMAIN.levels["county"].units.tolist() == [0, 0, 0, 0, 1, 1]
    assert "block: 6 in tract 3, county 2" in repr(DOMAIN)


def test_levels_that_do_not_lie_in_each_other_meet_in_the_attribute():
    crossed = cs.Domain({"a": 4}, levels={"x": ("a", [0, 0, 1, 1]), "y": ("a", [0, 1, 0, 1])})
    assert crossed.named(("x", "y")) == ("a",)


def test_a_domain_keeps_its_levels_when_it_is_copied_and_projected():
    assert pickle.loads(pickle.dumps(DOMAIN)) == DOMAIN
    assert DOMAIN.project(("block",)).levels.keys() == {"tract", "county"}
    assert not DOMAIN.project(("sex",)).levels
    assert cs.Domain(DOMAIN.sizes) != DOMAIN
    other = cs.Domain(
        DOMAIN.sizes, {"tract": ("block", [0, 1, 1, 1, 2, 2]), "county": ("tract", [0, 0, 1])}
    )
    assert other != DOMAIN


@pytest.mark.parametrize(
    ("levels", "words"),
    [
        ({"sex": ("block", [0] * 6)}, "got 'sex', which is an attribute"),
        ({"t": ("road", [0] * 6)}, "must lie over an attribute or a level named before it, got 'road'"),
        ({"t": ("block", [0] * 5)}, "for each of the 6 values of 'block'"),
        ({"t": ("block", [0, 0, 0, 2, 2, 2])}, "unit 1 of 3 holds none"),
        ({"t": ("block", [-1, 0, 0, 0, 0, 0])}, "numbered from 0 on, got -1"),
        ({"t": ("block", [0.5] * 6)}, "in whole numbers"),
        ({"t": "block"}, "must be (attribute or finer level, units)"),
        ([("t", "block")], "levels must be given as"),
    ],
)  # fmt: skip
def test_bad_levels_get_one_line(levels, words):
    with pytest.raises(DomainError, match=re.escape(words)):
        cs.Domain({"block": 6, "sex": 2}, levels=levels)


def test_two_levels_of_one_attribute_are_refused_where_axes_are_meant(model):
    with pytest.raises(DomainError, match="two levels of one"):
        model.marginal(("county", "tract"))
    with pytest.raises(MeasurementError, match="two levels of one"):
        cs.reconstruct(DOMAIN, [cs.Measurement(("county", "tract"), np.ones((2, 3)), stddev=1)])


@given(st.permutations(["age", "tract", "sex"]), st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_a_measurement_at_a_level_asks_the_finer_table_for_sums(names, seed):
    rng = np.random.default_rng(seed)
    counts = rng.normal(size=DOMAIN.shape)
    m = cs.Measurement(names, exact(DOMAIN, counts, tuple(names)), stddev=1.0).bind(DOMAIN)
    assert m.clique == DOMAIN.attributes
    np.testing.assert_allclose(m.query.apply(counts.reshape(-1)), m.values, atol=1e-12)
    y = rng.normal(size=m.query.rows)
    assert m.query.adjoint(y) @ counts.reshape(-1) == pytest.approx(
        y @ m.query.apply(counts.reshape(-1))
    )
    np.testing.assert_allclose(m.query.matrix.toarray() @ counts.reshape(-1), m.values, atol=1e-12)
    assert m.query.column_norm == pytest.approx(
        np.linalg.norm(m.query.matrix.toarray(), axis=0).max()
    )
    assert m.query.norm >= np.linalg.norm(m.query.matrix.toarray(), 2) - 1e-9


def test_least_squares_at_levels_is_that_of_a_dense_solve(joint):
    """No cell is near zero here, so that the non-negative optimum is the plain one."""
    rng = np.random.default_rng(1)
    cliques = [("county", "age", "sex"), ("tract", "age"), ("block", "age", "sex")]
    given = [measured(joint, c, s, rng) for c, s in zip(cliques, (1.0, 2.0, 3.0), strict=True)]
    total = joint.sum()
    model = cs.reconstruct(DOMAIN, given, total, cs.LeastSquares(tolerance=1e-10))
    rows, right = [], []
    for m in given:
        bound = m.bind(DOMAIN)
        lifted = np.zeros((bound.query.rows, joint.size))
        for k, unit in enumerate(np.eye(joint.size)):
            table = unit.reshape(DOMAIN.shape)
            away = tuple(i for i, a in enumerate(DOMAIN) if a not in bound.clique)
            lifted[:, k] = bound.query.apply(table.sum(axis=away).reshape(-1))
        rows.append(lifted / m.stddev)
        right.append(bound.values / m.stddev)
    a, b = np.vstack(rows), np.concatenate(right)
    gram = np.block(
        [[a.T @ a, np.ones((joint.size, 1))], [np.ones((1, joint.size)), np.zeros((1, 1))]]
    )
    x = np.linalg.solve(gram, np.append(a.T @ b, total))[:-1]
    assert x.min() > 0
    np.testing.assert_allclose(model.marginal(DOMAIN.attributes).reshape(-1), x, atol=2e-3)


def test_every_answer_at_a_level_is_the_finer_one_summed(model):
    for names in [("county", "sex"), ("sex", "county"), ("tract",), ("age", "tract", "sex")]:
        fine = model.marginal(DOMAIN.clique(names))
        coarse = DOMAIN.coarsened(fine, DOMAIN.named(names))
        order = [DOMAIN.named(names).index(a) for a in names]
        np.testing.assert_allclose(model.marginal(names), coarse.transpose(order))
    assert model.in_model(("county", "age"))
    assert not model.in_model(("county", "age", "sex"))


def test_conditions_and_errors_at_levels(model):
    table = model.marginal(("county", "sex"))
    assert model.count({"county": 1, "sex": 0}) == pytest.approx(table[1, 0])
    assert model.count({"county": 0, "tract": 1}) == pytest.approx(model.marginal("tract")[1])
    found = model.uncertainty(("sex", "county"))
    assert found.answer.shape == found.stderr.shape == (2, 2)
    low, high = found.interval()
    assert (low < table.T).all()
    assert (high > table.T).all()
    frame = model.table(("county", "sex"))
    assert list(frame.columns)[:2] == ["county", "sex"]


def test_a_model_with_levels_goes_through_a_file(model, tmp_path):
    model.save(tmp_path / "model.npz")
    again = cs.load(tmp_path / "model.npz")
    assert again.domain == DOMAIN
    np.testing.assert_array_equal(
        again.marginal(("county", "age")), model.marginal(("county", "age"))
    )
    np.testing.assert_array_equal(again.stderr("county"), model.stderr("county"))


@pytest.mark.parametrize("kind", ["Gaussian", "Laplace", "HDMM", "ResidualPlanner"])
def test_mechanisms_measure_tables_at_levels(kind):
    rng = np.random.default_rng(0)
    rows = np.stack([rng.integers(0, n, 5000) for n in DOMAIN.shape], axis=1)
    data = cs.Dataset(rows, DOMAIN)
    workload = cs.Workload(DOMAIN, [("county", "sex"), ("tract",), ("block", "age")])
    budget = cs.Budget(
        epsilon=50, delta=None if kind == "Laplace" else 1e-6, neighbours="add-remove"
    )
    ready = getattr(cs.mechanisms, kind)(workload).calibrate(budget)
    result = ready(data, noise=SeededNoise(seed=1))
    joint = data.marginal(DOMAIN.attributes)
    for names in workload:
        want = exact(DOMAIN, joint, names)
        assert np.abs(result.model.marginal(names) - want).max() < 10


def test_mechanisms_that_know_no_levels_say_so():
    workload = cs.Workload(DOMAIN, [("county", "sex")])
    for kind in ("AIM", "MWEM"):
        with pytest.raises(ConsilienceError, match="HDMM and ResidualPlanner, got 'county'"):
            getattr(cs.mechanisms, kind)(workload)
