"""Releases with simulated errors: one number wherever it is shown, finished after a crash, refused where it would be wrong."""

from __future__ import annotations

import csv
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import consilience as cs
from cli.conftest import BUDGET, SCHEMA, run
from consilience.data.schema_file import parse_schema
from consilience.errors import ConsilienceError
from consilience.mechanisms import FEM, MWEM, Gaussian
from consilience.mechanisms.simulation import RUNS
from consilience.privacy import Budget, Ledger, SeededNoise
from consilience.progress import Step
from consilience.release import read_release, resume
from consilience.release.standard_errors import CLASSES, chosen_method

DECLARED = parse_schema(SCHEMA)
WORKLOAD = cs.Workload(DECLARED.domain, [("sex", "age"), ("age", "member"), ("member", "joined")])
PROMISE = Budget(epsilon=2, delta=Fraction(1, 10**6), neighbours="replace-one")
LOCAL = cs.LeastSquares(consistency="local")


def data() -> cs.Dataset:
    return cs.read_table("people.csv", schema="people.toml")


def release(out: str, mechanism, **more):
    settings = {"errors": "simulated", "noise": SeededNoise(seed=5), **more}
    return cs.release(data(), "people.toml", mechanism, PROMISE, out=out, **settings)


def test_a_number_has_one_error_wherever_it_is_shown(place: Path) -> None:
    seen: list[Step] = []
    release("out", Gaussian(WORKLOAD, fit=LOCAL), progress=seen.append)
    assert [s.done for s in seen if s.stage == "simulated runs"] == list(range(1, RUNS + 1))
    facts = json.loads((place / "out" / "release.json").read_text())
    assert (facts["standard_errors"], facts["replicates"]) == ("simulated", RUNS)
    again = read_release("out")
    assert again.model.replicates is not None
    assert again.model.replicates.simulated
    for table in facts["tables"]:
        names = table["attributes"]
        with (place / "out" / f"{table['file']}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        found = again.answer(by=names)
        kept = again.errors([tuple(names)])[tuple(names)]
        assert kept is not None
        for column, values in (("stderr", found.stderr), ("low", found.low), ("high", found.high)):
            np.testing.assert_allclose([float(r[column]) for r in rows], values, rtol=1e-5, atol=1e-4)  # fmt: skip
        np.testing.assert_allclose(kept.stderr.reshape(-1), found.stderr, rtol=1e-12)
    share = again.answer("share(sex=F)", by="age")
    assert share.stderr is not None
    assert (share.stderr > 0).all()


def test_the_command_makes_the_same_and_a_report_reads_it(place: Path) -> None:
    few = ";".join(",".join(c) for c in WORKLOAD)
    words = ("--schema", "people.toml", *BUDGET, "--seed", "5", "--workload", few, "--consistency", "local")  # fmt: skip
    done = run("release", "people.csv", *words, "--errors", "simulated", "--out", "shell", "-q")
    assert done.exit_code == 0, done.output
    release("python", Gaussian(WORKLOAD, fit=LOCAL))
    one, two = read_release("python"), read_release("shell")
    for clique in WORKLOAD:
        np.testing.assert_array_equal(one.model.stderr(clique), two.model.stderr(clique))
    assert run("report", "shell", "-q").exit_code == 0


def test_a_crash_while_simulating_is_finished_without_the_table(place: Path) -> None:
    """Paid once; the simulations begin anew, and are what they would have been."""

    class Stopped(Exception):
        pass

    def stop(step: Step) -> None:
        if step.stage == "simulated runs" and step.done == 2:
            raise Stopped

    ready = MWEM(WORKLOAD, rounds=2, fit=LOCAL)
    with pytest.raises(Stopped):
        release("out", ready, noise=None, ledger="people.ledger", progress=stop)
    before = (place / "people.ledger").read_bytes()
    finished = resume("out.partial")
    assert finished.facts["standard_errors"] == "simulated"
    assert (place / "people.ledger").read_bytes() == before
    assert len(Ledger(place / "people.ledger").read().entries) == 1


def test_a_run_that_was_cut_short_is_not_simulated_by_whole_ones(place: Path) -> None:
    class Stopped(Exception):
        pass

    def stop(step: Step) -> None:
        if step.stage == "rounds" and step.done == 1:
            raise Stopped

    with pytest.raises(Stopped):
        release("out", MWEM(WORKLOAD, rounds=2, fit=LOCAL), progress=stop)
    with pytest.raises(ConsilienceError, match="of a run that went to its end, this one was"):
        resume("out.partial")
    finished = resume("out.partial", errors="bootstrap")
    assert len(finished.model.measurements) == 1


def test_what_simulations_leave_out_of_classes_is_said() -> None:
    domain = cs.Domain({"a": 2, "b": 3})
    tables = [cs.Measurement(("a", "b"), np.full(6, 50.0), stddev=5.0)]
    for fit, said in ((cs.LatentClasses(classes=2), CLASSES), (LOCAL, "")):
        model = cs.reconstruct(domain, tables, 300, fit)
        assert chosen_method(model, "simulated") == ("simulated", RUNS, said)
        assert chosen_method(model, "bootstrap")[2] == ""


def test_what_has_nothing_to_simulate_is_refused_before_anything_is_spent(place: Path) -> None:
    with pytest.raises(ConsilienceError, match="noise of a known width, fem publishes choices"):
        release("out", FEM(WORKLOAD, rounds=2), noise=None, ledger="people.ledger")
    assert {p.name for p in place.iterdir()} == {"people.csv", "people.toml"}
