"""An estimator and a mechanism of somebody's own, one file each, in every place where ours are used."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import consilience as cs
from cli.conftest import SCHEMA
from cli.conftest import place as place
from consilience.data.schema_file import parse_schema
from consilience.errors import ConsilienceError, ReleaseError
from consilience.fits import Planned
from consilience.mechanisms import MWEM, Gaussian
from consilience.privacy import Ledger, SeededNoise
from consilience.release import read_release, resume
from contributing.toy_estimator import Flattened
from contributing.toy_mechanism import Largest

DOMAIN = cs.Domain({"a": 3, "b": 4, "c": 2})
DATA = cs.Dataset(np.random.default_rng(1).integers(0, [3, 4, 2], (2000, 3)) // [1, 2, 1], DOMAIN)
WORKLOAD = cs.Workload(DOMAIN, [("a", "b"), ("b", "c"), ("c",)])
BUDGET = cs.Budget(epsilon=1, delta=Fraction(1, 10**6), neighbours="replace-one")
TOY = Flattened(share=0.25)


def measured(stddev: float = 5.0) -> list[cs.Measurement]:
    rng = np.random.default_rng(2)
    pairs = [("a", "b"), ("b", "c")]
    return [
        cs.Measurement(p, (t := DATA.marginal(p)) + rng.normal(0, stddev, t.shape), stddev=stddev)
        for p in pairs
    ]


# -- the estimator -----------------------------------------------------------------------------------


def test_an_estimator_reconstructs() -> None:
    steps = []
    plain = cs.reconstruct(DOMAIN, measured(), 2000, cs.LeastSquares(consistency="local"))
    model = cs.reconstruct(DOMAIN, measured(), 2000, TOY, steps.append)
    expected = 0.75 * plain.marginal(("a", "b")) + 0.25 * 2000 / 12
    np.testing.assert_allclose(model.marginal(("a", "b")), expected, rtol=1e-6)
    assert isinstance(steps[0], Planned)
    assert len(steps) > 1
    assert repr(model.fit) == "Flattened(share=0.25)"
    assert model.diagnostics.status == "done, not certified"
    assert model.diagnostics.gap == np.inf
    assert model.diagnostics.violation < 1e-9
    assert cs.plan(DOMAIN, measured(), fit=TOY).consistency == "local"
    assert len(model.sample(100, rng=0)) == 100


def test_an_estimator_declares_what_it_refuses() -> None:
    odd = cs.Measurement(("a", "b"), np.ones(1), stddev=1.0, query=np.ones((1, 12)))
    with pytest.raises(
        ConsilienceError, match=r"Flattened takes measurements of whole tables.* it is a toy"
    ):
        cs.reconstruct(DOMAIN, [odd], 2000, TOY)
    with pytest.raises(ConsilienceError, match=r"got <class .*Flattened'>; call it"):
        cs.reconstruct(DOMAIN, measured(), 2000, Flattened)  # type: ignore[arg-type]


@pytest.mark.parametrize("mechanism", [Gaussian(WORKLOAD, fit=TOY), MWEM(WORKLOAD, 2, fit=TOY)])
def test_mechanisms_take_an_estimator(mechanism: Gaussian | MWEM) -> None:
    result = mechanism.calibrate(BUDGET)(DATA, noise=SeededNoise(seed=3))
    assert isinstance(result.model.fit, Flattened)
    assert result.model.diagnostics.method == "flattened least squares"


def test_the_bootstrap_refits_an_estimator() -> None:
    model = cs.reconstruct(DOMAIN, measured(), 2000, TOY)
    found = model.uncertainty(("a", "b"), replicates=200)
    assert found.method == "bootstrap"
    refits = []
    rng = np.random.default_rng(9)
    for _ in range(200):
        again = [
            cs.Measurement(m.attributes, model.marginal(m.attributes) + rng.normal(0, 5, m.values.shape), stddev=5.0)
            for m in measured()
        ]  # fmt: skip
        refits.append(cs.reconstruct(DOMAIN, again, 2000, TOY).marginal(("a", "b")))
    off = np.sqrt(np.mean(np.square(np.array(refits) - model.marginal(("a", "b"))), axis=0))
    np.testing.assert_allclose(found.stderr, off, rtol=0.25)


def test_a_saved_model_keeps_its_answers_and_refuses_to_be_fitted_again(tmp_path: Path) -> None:
    model = cs.reconstruct(DOMAIN, measured(), 2000, TOY)
    model.save(tmp_path / "toy.npz")
    again = cs.load(tmp_path / "toy.npz")
    assert again.fit is None
    for attributes in (("a", "b"), ("a", "c")):
        np.testing.assert_array_equal(again.marginal(attributes), model.marginal(attributes))
    with pytest.raises(ConsilienceError, match="needs the estimator of the model"):
        again.stderr(("a", "b"), method="bootstrap")


def test_a_loaded_model_does_not_take_its_unknown_estimator_for_least_squares(
    tmp_path: Path,
) -> None:
    model = cs.reconstruct(DOMAIN, measured(), 2000, TOY)
    assert model.uncertainty(("a", "b")).method == "bootstrap"
    model.save(tmp_path / "toy.npz")
    with pytest.raises(ConsilienceError, match="estimator"):
        cs.load(tmp_path / "toy.npz").uncertainty(("a", "b"))


def test_an_estimator_is_compared_with_others() -> None:
    truth = DATA.marginals([("a", "b"), ("b", "c")])
    methods = {"toy": TOY, "ours": cs.LeastSquares(consistency="local")}
    found = cs.compare(DOMAIN, measured(), total=2000, truth=truth, methods=methods)
    toy, ours = found.rows
    assert not toy.refused
    assert ours.total_variation < toy.total_variation  # these tables are far from flat


# -- the mechanism -----------------------------------------------------------------------------------

DECLARED = parse_schema(SCHEMA)
OWN = Largest(cs.Workload(DECLARED.domain, [("sex", "age"), ("age", "member"), ("sex",)]))


def test_a_mechanism_is_calibrated_within_its_budget_and_refuses_what_it_cannot_keep() -> None:
    ready = Largest(WORKLOAD, most=2).calibrate(BUDGET)
    assert BUDGET.admits(ready.cost)
    assert ready.cliques == (("a", "b"), ("b", "c"))
    with pytest.raises(ConsilienceError, match="Largest needs a delta or rho"):
        Largest(WORKLOAD).calibrate(cs.Budget(epsilon=1, neighbours="replace-one"))
    with pytest.raises(ConsilienceError, match="must have the domain of the workload"):
        ready(cs.Dataset(np.zeros((1, 1), int), cs.Domain({"a": 3})))


def test_a_mechanism_pays_before_it_draws(tmp_path: Path) -> None:
    ready = Largest(WORKLOAD).calibrate(BUDGET)
    ledger = Ledger.create(tmp_path / "toy.ledger", table="toy", total=BUDGET)
    result = ready(DATA, ledger=ledger)
    assert result.private
    account = ledger.read()
    assert [e.description for e in account.entries] == [str(ready)]
    with pytest.raises(ConsilienceError):
        ready(DATA, ledger=ledger)


def test_seeded_noise_repeats_itself_and_is_marked() -> None:
    ready = Largest(WORKLOAD, fit=TOY).calibrate(BUDGET)
    one, two = (ready(DATA, noise=SeededNoise(seed=4)) for _ in range(2))
    np.testing.assert_array_equal(one.model.tau.values, two.model.tau.values)
    assert one.mark.startswith("NOT PRIVATE")


def test_a_huge_budget_gives_the_truth() -> None:
    big = cs.Budget(rho=10**6, neighbours="replace-one")
    result = Largest(WORKLOAD).calibrate(big)(DATA, noise=SeededNoise(seed=4))
    np.testing.assert_allclose(
        result.model.marginal(("a", "b")), DATA.marginal(("a", "b")), atol=0.1
    )


@pytest.mark.usefixtures("place")
def test_a_release_is_made_and_an_interrupted_one_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    table = cs.read_table("people.csv", schema="people.toml")
    made = cs.release(
        table, "people.toml", OWN, BUDGET, out="out", ledger="people.ledger", errors="none"
    )
    assert made.facts["mechanism"]["name"] == "Largest"
    assert made.facts["private"]
    assert read_release("out").model.total == table.records

    def stopped(*words, **more):
        raise KeyboardInterrupt

    def seeded(out: str):
        noise = SeededNoise(seed=6)
        return cs.release(table, "people.toml", OWN, BUDGET, out=out, noise=noise, errors="none")

    with monkeypatch.context() as patch:
        patch.setattr("consilience.release.run.write_release", stopped)
        with pytest.raises(KeyboardInterrupt):
            seeded("later")
    with pytest.raises(ReleaseError, match=r"Largest: 2 tables.* give it again, from Python"):
        resume("later.partial")
    finished = resume("later.partial", mechanism=OWN)
    whole = seeded("whole")
    np.testing.assert_array_equal(finished.model.tau.values, whole.model.tau.values)
