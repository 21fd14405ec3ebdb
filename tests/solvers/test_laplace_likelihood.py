"""The exact likelihood of Laplace noise by soft thresholds, judged by a linear programme."""

import numpy as np
import pytest
from scipy.optimize import linprog

import consilience as cs
from consilience.errors import ConsilienceError, LossError

DOMAIN = cs.Domain({"a": 3, "b": 2, "c": 4})
CLIQUES = [("a", "b"), ("b", "c"), ("a", "c")]


def noisy(seed=0, stddev=12.0):
    rng = np.random.default_rng(seed)
    joint = rng.dirichlet(np.full(DOMAIN.size(), 0.5)).reshape(DOMAIN.shape) * 500
    out = []
    for clique in CLIQUES:
        table = joint.sum(axis=tuple(i for i, x in enumerate(DOMAIN) if x not in clique))
        noise = rng.laplace(scale=stddev / np.sqrt(2), size=table.shape)
        out.append(cs.Measurement(clique, table + noise, stddev=stddev, noise="laplace"))
    return out


def linear_programme(measurements, total):
    """min sum sqrt(2) |N x - y| / stddev over tables that sum to one and agree on one-way marginals."""
    at, size = {}, 0
    for m in measurements:
        at[m.attributes] = size
        size += m.values.size
    rows, right = [], []
    for m in measurements:
        row = np.zeros(size)
        row[at[m.attributes] : at[m.attributes] + m.values.size] = 1
        rows.append(row)
        right.append(1.0)
    for attribute in DOMAIN.attributes:
        holders = [m for m in measurements if attribute in m.attributes]
        for value in range(DOMAIN[attribute]):
            row = np.zeros(size)
            for sign, m in zip((1, -1), holders[:2], strict=True):
                shape = DOMAIN.shape_of(m.attributes)
                mask = np.zeros(shape)
                np.moveaxis(mask, m.attributes.index(attribute), 0)[value] = sign
                row[at[m.attributes] : at[m.attributes] + mask.size] += mask.reshape(-1)
            rows.append(row)
            right.append(0.0)
    y = np.concatenate([np.asarray(m.values).reshape(-1) for m in measurements])
    cost = np.concatenate(
        [
            np.zeros(size),
            np.concatenate([np.full(m.values.size, np.sqrt(2) / m.stddev) for m in measurements]),
        ]
    )
    eye = np.eye(size)
    above = np.block([[total * eye, -eye], [-total * eye, -eye]])
    found = linprog(
        cost, A_ub=above, b_ub=np.concatenate([y, -y]),
        A_eq=np.hstack([np.array(rows), np.zeros((len(rows), size))]), b_eq=right, bounds=(0, None),
    )  # fmt: skip
    assert found.success
    return found.fun


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_equals_a_linear_programme(seed):
    measurements = noisy(seed)
    best = linear_programme(measurements, 500.0)
    model = cs.reconstruct(
        DOMAIN,
        measurements,
        total=500,
        fit=cs.LaplaceLikelihood(consistency="local", tolerance=1e-6),
    )
    assert model.diagnostics.objective == pytest.approx(best, rel=1e-5)
    assert model.diagnostics.bound <= best * (1 + 1e-9)
    assert model.diagnostics.converged


def test_refusals():
    with pytest.raises(
        ConsilienceError, match=r"no likelihood= any more.*cs.LaplaceLikelihood\(\)"
    ):
        cs.reconstruct(DOMAIN, noisy(), total=500, likelihood="laplace")
    below = [*noisy(), cs.Measurement(("a",), np.full(3, 166.0), stddev=4.0, noise="laplace")]
    with pytest.raises(LossError, match="measured plainly and once"):
        cs.reconstruct(DOMAIN, below, total=500, fit=cs.LaplaceLikelihood(consistency="local"))
