"""Theorem 3: Convex-GBP on the extended graph, counting numbers of new regions going to zero, gives Problem 4's answer."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.domain import Domain
from consilience.model.out_of_model import expanded, inferred, project, uniform_start
from consilience.regions import RegionGraph
from model.cases import known_of, random_joint

D = Domain({"a": 2, "b": 3, "c": 2, "d": 3})


@pytest.mark.parametrize(
    "words, clique",
    [("ab bc cd", "ac"), ("ab bc ac ad", "abc"), ("abc bcd", "ad"), ("abc cd", "abd")],
)
def test_the_limit_is_problem_4(words: str, clique: str) -> None:
    known = known_of(D, random_joint(D, 3), words)
    asked = tuple(clique)
    (limit,), violation = project(known, [asked], uniform_start(known))
    assert violation[0] <= 1e-10
    distance = [np.abs(expanded(known, asked, k) - limit).sum() for k in (1.0, 0.1, 0.01, 0.001)]
    assert distance == sorted(distance, reverse=True)
    assert distance[-1] <= 2e-3
    assert distance[-1] <= 0.02 * distance[0] + 1e-9


def test_on_a_factor_graph_the_product_is_exact() -> None:
    """The paper's remark: nothing but one-way marginals ties the new clique, so their product has maximum entropy."""
    known = known_of(D, random_joint(D, 5), "ab bc cd", RegionGraph.factor_graph)
    asked = [("a", "c"), ("a", "d"), ("b", "d")]
    product, violation = inferred(known, asked, "product", lambda: pytest.fail("not needed"))
    local, _ = inferred(known, asked, "local", lambda: pytest.fail("not needed"))
    for one, other in zip(product, local, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
    assert violation.max() <= 1e-12
