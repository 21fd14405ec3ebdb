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
    """min sum sqrt(2) |N P x - y| / stddev over the pairs' tables x, which sum to one and agree on one-way marginals."""
    at, size = {}, 0
    for pair in CLIQUES:
        at[pair] = size
        size += DOMAIN.size(pair)

    def sums(clique):
        """The table of a clique as a matrix on x, read off the first pair that holds it."""
        home = next(p for p in CLIQUES if set(clique) <= set(p))
        cells = np.arange(DOMAIN.size(home)).reshape(DOMAIN.shape_of(home))
        order = [*clique, *(a for a in home if a not in clique)]
        rows = cells.transpose([home.index(a) for a in order]).reshape(DOMAIN.size(clique), -1)
        found = np.zeros((len(rows), size))
        for r, group in enumerate(rows):
            found[r, at[home] + group] = 1.0
        return found

    one = np.zeros((len(CLIQUES), size))
    agree = []
    for i, pair in enumerate(CLIQUES):
        one[i, at[pair] : at[pair] + DOMAIN.size(pair)] = 1.0
    for attribute in DOMAIN.attributes:
        first, second = (p for p in CLIQUES if attribute in p)
        for value in range(DOMAIN[attribute]):
            row = np.zeros(size)
            for sign, pair in ((1, first), (-1, second)):
                mask = np.zeros(DOMAIN.shape_of(pair))
                np.moveaxis(mask, pair.index(attribute), 0)[value] = sign
                row[at[pair] : at[pair] + mask.size] += mask.reshape(-1)
            agree.append(row)
    known = [m for m in measurements if m.attributes]
    away = np.concatenate([total * sums(m.attributes) for m in known])
    y = np.concatenate([np.asarray(m.values).reshape(-1) for m in known])
    price = np.concatenate([np.full(m.values.size, np.sqrt(2) / m.stddev) for m in known])
    eye, equal = np.eye(len(y)), np.concatenate([one, agree])
    found = linprog(
        np.concatenate([np.zeros(size), price]),
        A_ub=np.block([[away, -eye], [-away, -eye]]), b_ub=np.concatenate([y, -y]),
        A_eq=np.hstack([equal, np.zeros((len(equal), len(y)))]), b_eq=[1.0] * len(one) + [0.0] * len(agree),
        bounds=(0, None),
    )  # fmt: skip
    assert found.success
    rest = (m for m in measurements if not m.attributes)
    return found.fun + sum(np.sqrt(2) * abs(total - m.values[0]) / m.stddev for m in rest)


def more(*cliques):
    """Further tables: inside a pair, or of one again."""
    rng = np.random.default_rng(9)
    return [
        cs.Measurement(
            tuple(c), 500 * rng.dirichlet(np.ones(DOMAIN.size(tuple(c)))), stddev=s, noise="laplace"
        )
        for c, s in cliques
    ]


CASES = {
    "pairs": [],
    "nested": more(("a", 4.0), ("c", 30.0)),
    "a pair again": more(("ab", 9.0), ("ba", 20.0)),
    "all of it, and the total": more(("a", 4.0), ("a", 7.0), ("cb", 9.0), ("", 25.0)),
}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", CASES)
def test_equals_a_linear_programme(name, seed):
    measurements = [*noisy(seed), *CASES[name]]
    best = linear_programme(measurements, 500.0)
    fit = cs.LaplaceLikelihood(consistency="local", tolerance=1e-6)
    model = cs.reconstruct(DOMAIN, measurements, total=500, fit=fit)
    assert model.diagnostics.objective == pytest.approx(best, rel=1e-5)
    assert model.diagnostics.bound <= best * (1 + 1e-9)
    assert model.diagnostics.converged


def test_one_attribute_measured_three_times_is_the_median():
    """Judged by hand: equal scales, so that each cell is the median wherever medians sum to the total."""
    seen = [[30.0, 50.0, 20.0], [28.0, 55.0, 19.0], [35.0, 50.0, 25.0]]
    made = [cs.Measurement("a", v, stddev=3.0, noise="laplace") for v in seen]
    for consistency in ("local", "global"):
        fit = cs.LaplaceLikelihood(consistency=consistency, tolerance=1e-8)
        model = cs.reconstruct(cs.Domain({"a": 3}), made, total=100, fit=fit)
        np.testing.assert_allclose(model.marginal("a"), [30.0, 50.0, 20.0], atol=1e-3)


def test_only_tables_inside_a_graph_of_ones_own_are_measured():
    """No region without parents is measured itself."""
    graph = cs.RegionGraph.saturated(DOMAIN, [("a", "b"), ("b", "c")])
    made = list(more(("a", 4.0), ("b", 5.0), ("c", 6.0)))
    model = cs.reconstruct(DOMAIN, made, total=500, fit=cs.LaplaceLikelihood(consistency=graph))
    for m in made:
        np.testing.assert_allclose(model.marginal(m.attributes), m.values, atol=1e-2)


def test_refusals():
    with pytest.raises(
        ConsilienceError, match=r"no likelihood= any more.*cs.LaplaceLikelihood\(\)"
    ):
        cs.reconstruct(DOMAIN, noisy(), total=500, likelihood="laplace")
    asked = cs.Measurement(("a",), [166.0], stddev=4.0, noise="laplace", query=[[1.0, 1.0, 0.0]])
    with pytest.raises(ConsilienceError, match="takes measurements of whole tables"):
        cs.reconstruct(DOMAIN, [*noisy(), asked], total=500, fit=cs.LaplaceLikelihood())
    with pytest.raises(LossError, match="takes whole tables"):
        cs.splitting(
            cs.SquaredLoss(DOMAIN, [asked], 500), cs.RegionGraph.saturated(DOMAIN, [("a",)]), absolute=True
        )  # fmt: skip
