"""Parity with mbi 2.0.0 on shared problems: its exact estimates and ours agree, and where both stop ours is no worse.

mbi is a rival for benchmarks and no dependency (`pip install -e '.[bench]'`); without it these tests are skipped.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from claims.judges import joint, marginals, random_vector
from consilience.fits import LeastSquares, reconstruct
from consilience.tree.oracle import exact_marginals
from solvers.problems import RECORDS, D, cliques_of, noisy

CASES = {
    "tree": "ab bc cd ce",
    "cycle": "ab bc cd ad",
    "triples": "abc bcd ade",
    "disconnected": "ab cd",
    "nested": "abc ab de",
}


@pytest.fixture(scope="module")
def mbi() -> Any:
    found = pytest.importorskip("mbi", reason="needs mbi")
    import jax

    jax.config.update("jax_enable_x64", True)
    return found


def theirs(mbi: Any) -> Any:
    return mbi.Domain(D.attributes, D.shape)


@pytest.mark.parametrize("case", CASES)
def test_marginals_of_the_same_potentials(mbi: Any, case: str) -> None:
    theta = random_vector(D, cliques_of(CASES[case]), np.random.default_rng(3), 2.0)
    factors = {c: mbi.Factor(theirs(mbi).project(c), t) for c, t in theta.items()}
    potentials = mbi.CliqueVector(theirs(mbi), list(factors), factors)
    ours, _ = exact_marginals(D, theta)
    found = mbi.marginal_oracles.message_passing_stable(potentials)
    judge = marginals(D, joint(theta)[0], theta.cliques)
    for c in theta.cliques:
        np.testing.assert_allclose(found[c].datavector(), ours[c].reshape(-1), atol=1e-8)
        np.testing.assert_allclose(judge[c], ours[c], atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_estimates_of_the_same_measurements(mbi: Any, case: str) -> None:
    """mbi is stopped after many steps: its objective is not below ours by more than our certified gap, and near it."""
    made = noisy(D, CASES[case], 4)
    fit = LeastSquares(consistency="global", tolerance=1e-7)
    model = reconstruct(D, made, total=RECORDS, fit=fit)
    given = [
        mbi.LinearMeasurement(m.values.reshape(-1), m.attributes, stddev=m.stddev) for m in made
    ]
    found = mbi.estimation.MirrorDescent().estimate(
        theirs(mbi), given, known_total=RECORDS, iters=5000
    )
    tables = {m.attributes: found.project(m.attributes).datavector() / RECORDS for m in made}
    reached = sum(
        0.5 * np.square(RECORDS * tables[m.attributes] - m.values.reshape(-1)).sum() / m.stddev**2
        for m in made
    )
    least = model.diagnostics.objective
    assert least <= reached * (1 + 1e-6)
    assert reached <= least * (1 + 2e-2)
    for m in made:
        np.testing.assert_allclose(
            tables[m.attributes], model.marginal(m.attributes).reshape(-1) / RECORDS, atol=5e-3
        )
