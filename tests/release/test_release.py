"""cs.release: the folder that the command makes, from Python; and what an interrupted one can be finished from."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import consilience as cs
from cli.conftest import BUDGET, SCHEMA, people, run
from consilience.data.schema_file import parse_schema
from consilience.data.tables import open_source
from consilience.errors import ConsilienceError, DataError, ReleaseError
from consilience.mechanisms import (
    AIM,
    FEM,
    HDMM,
    MWEM,
    Auto,
    Calibrated,
    Call,
    DualQuery,
    Gaussian,
    Laplace,
    Mechanism,
    Pilot,
    Release,
    ResidualPlanner,
)
from consilience.privacy import Budget, Cost, Ledger, Rho, SeededNoise, Sigma, gaussian_sigma
from consilience.privacy import marginals as changes
from consilience.progress import Step
from consilience.release import read_release, resume
from consilience.release import registry as known

TABLES = [("sex", "age"), ("age", "member"), ("member", "joined")]
PROMISE = Budget(epsilon=2, delta=Fraction(1, 10**6), neighbours="replace-one")
DECLARED = parse_schema(SCHEMA)
WORKLOAD = cs.Workload(DECLARED.domain, TABLES)


def data() -> cs.Dataset:
    return cs.read_table("people.csv", schema="people.toml")


def release(out: str, mechanism: Mechanism | None = None, **more: Any):
    chosen = mechanism or Gaussian(WORKLOAD)
    settings = {"errors": "none", "noise": SeededNoise(seed=5), **more}
    return cs.release(data(), "people.toml", chosen, PROMISE, out=out, **settings)


def content(folder: Path) -> dict[str, Any]:
    """Every file of a release but the model, without the moment at which it was made."""
    found: dict[str, Any] = {}
    for file in sorted(f for f in folder.rglob("*") if f.is_file()):
        name = file.relative_to(folder).as_posix()
        if file.suffix == ".json":
            found[name] = json.loads(file.read_text())
        elif name != "model.npz":
            found[name] = file.read_bytes()
    del found["release.json"]["created"]
    sums = found["manifest.json"]["files"]
    found["manifest.json"] = {k: v for k, v in sums.items() if k in found and "json" not in k}
    return found


@pytest.mark.parametrize(
    ("mechanism", "words"),
    [
        (Gaussian(WORKLOAD, fit=cs.LeastSquares(consistency="local")), ("--consistency", "local")),
        (MWEM(WORKLOAD, rounds=2), ("--mechanism", "mwem", "-o", "rounds=2")),
        (FEM(WORKLOAD, rounds=4), ("--mechanism", "fem", "-o", "rounds=4")),
    ],
    ids=["gaussian", "mwem", "fem"],
)
def test_python_makes_the_folder_that_the_command_makes(
    place: Path,
    mechanism: Mechanism,
    words: tuple[str, ...],
) -> None:
    few = ";".join(",".join(c) for c in TABLES)
    asked = ("--schema", "people.toml", *BUDGET, "--seed", "5", "--workload", few, *words)
    done = run("release", "people.csv", *asked, "--errors", "none", "--out", "shell", "-q")
    assert done.exit_code == 0, done.output
    published = release("python", mechanism)
    assert content(place / "python") == content(place / "shell")
    one, two = read_release("python").model, read_release(place / "shell").model
    for clique in TABLES:
        np.testing.assert_array_equal(one.marginal(clique), two.marginal(clique))
    assert published.facts == read_release("python").facts
    assert not published.private
    assert {p.name for p in place.iterdir()} == {"people.csv", "people.toml", "python", "shell"}


def test_a_private_release_is_paid_for_and_says_what_it_does(place: Path) -> None:
    seen: list[Step] = []
    said: list[str] = []
    quiet = {"noise": None, "progress": seen.append, "say": said.append, "errors": "closed-form"}
    published = release("out", ledger="people.ledger", **quiet)
    assert published.private
    assert "ledger.json" in {p.name for p in (place / "out").iterdir()}
    account = Ledger("people.ledger").read()
    assert (account.table, len(account.entries)) == ("people", 1)
    stages = list(dict.fromkeys(step.stage for step in seen))
    assert stages == [
        "calibrating", "looking for values that the schema does not declare", "counting", "drawing noise",
        "reconstructing", "standard errors", "backbone", "writing the folder",
    ]  # fmt: skip
    assert said[0].startswith("Gaussian: 3 tables")
    assert said[1].startswith("new ledger people.ledger for table 'people'")
    with pytest.raises(ConsilienceError, match=r"nothing was spent|is left"):
        release("again", ledger=Ledger("people.ledger"), noise=None)
    assert not (place / "again").exists()
    assert not (place / "again.partial").exists()


@pytest.mark.parametrize("order", ["package first", "function first"])
def test_the_package_and_the_function_have_one_name(order: str) -> None:
    """cs.release is callable whether or not somebody has imported the package of that name before."""
    lines = ["import consilience as cs", "from consilience.release import read_release"]
    call = "assert callable(cs.release) and cs.release.read_release"
    code = [*lines, call] if order == "package first" else [lines[0], call, lines[1], call]
    subprocess.run([sys.executable, "-c", "\n".join(code)], check=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"table": [1, 2]}, "a release is made of a table that can be counted"),
        ({"table": cs.population(5, np.random.default_rng(0))}, "must be coded by the schema"),
        ({"mechanism": "gaussian"}, "must have a mechanism, such as mechanisms.Gaussian"),
        ({"budget": 1.0}, "calibrated to a Budget"),
        ({"ledger": 5}, "ledger must be a Ledger or the path of one, got 5"),
        ({"errors": "some"}, "errors must be one of auto, closed-form, bootstrap, simulated, none"),
        ({"tables": [("sex", "height")]}, "height"),
        ({"out": "people.csv"}, "must be a new folder"),
    ],
)
def test_what_cannot_be_released_is_refused_before_anything_is_spent(
    place: Path,
    change: dict[str, Any],
    words: str,
) -> None:
    usual = {
        "table": data(), "schema": DECLARED, "mechanism": Gaussian(WORKLOAD), "budget": PROMISE, "out": "out",
    }  # fmt: skip
    with pytest.raises(ConsilienceError, match=words):
        cs.release(**{**usual, **change})
    assert {p.name for p in place.iterdir()} == {"people.csv", "people.toml"}


def test_a_release_is_read_by_any_kind_of_path(place: Path) -> None:
    release("out")
    for path in ("out", place / "out", str(place / "out")):
        assert read_release(path).model.domain == DECLARED.domain
    with pytest.raises(ReleaseError, match="'nothing' is not there"):
        read_release("nothing")


@pytest.mark.parametrize("schema", [2, None, ["people.toml"]])
def test_what_is_no_schema_is_said_in_one_line(place: Path, schema: object) -> None:
    with pytest.raises(
        DataError, match="schema must be a Schema or the path of its TOML file, got"
    ):
        cs.release(1, schema, Gaussian(WORKLOAD), PROMISE, out="out")  # type: ignore[arg-type]
    assert not (place / "out").exists()


# -- a mechanism as a record -----------------------------------------------------------------------

MADE: list[Mechanism] = [
    Gaussian(cs.Workload(DECLARED.domain, {c: i + 1.0 for i, c in enumerate(TABLES)})),
    Gaussian(
        WORKLOAD,
        weights={c: i + 1.0 for i, c in enumerate(TABLES)},
        fit=cs.LeastSquares(tolerance=1e-5),
    ),
    Laplace(WORKLOAD, weights="optimal", fit=cs.LeastSquares(consistency="local", memory="1 GB")),
    HDMM(
        WORKLOAD,
        slack=0.0,
        restarts=2,
        seed=3,
        noise="gaussian",
        fit=cs.LeastSquares(time_limit=5.0),
    ),
    ResidualPlanner(WORKLOAD, fit=cs.Shrunk()),
    MWEM(WORKLOAD, rounds=2, select_share=Fraction(1, 3), noise="gaussian"),
    MWEM(WORKLOAD, per_round=Rho(Fraction(1, 50)), allowance="cells"),
    AIM(WORKLOAD, rounds_per_attribute=np.int64(3)),  # pyright: ignore[reportArgumentType]
    Pilot(WORKLOAD, fit=cs.LatentClasses(seed=2)),
    Auto(WORKLOAD),
    FEM(WORKLOAD, rounds=4, split=0.01, fit=cs.SelectionLikelihood(iterations=5, blend=0.25)),
    DualQuery(WORKLOAD, rounds=5, samples=2, seed=9),
]


@pytest.mark.parametrize("mechanism", MADE, ids=lambda m: type(m).__name__)
def test_a_mechanism_is_made_again_from_its_record(mechanism: Mechanism) -> None:
    record = json.loads(json.dumps(known.to_record(mechanism)))
    again = known.from_record(record, DECLARED.domain)
    assert type(again) is type(mechanism)
    for field in fields(mechanism):  # pyright: ignore[reportArgumentType]
        one, two = getattr(mechanism, field.name), getattr(again, field.name)
        if isinstance(one, cs.Fit):
            assert type(one) is type(two)
            one, two = vars(one), vars(two)
        assert one == two, field.name
    assert str(again.calibrate(PROMISE)) == str(mechanism.calibrate(PROMISE))


def test_a_name_of_every_mechanism_has_a_record() -> None:
    assert {known.name_of(m) for m in MADE} == set(known.MECHANISMS)


@dataclass(frozen=True, eq=False)
class OneTable(Mechanism):
    """A mechanism of somebody's own: one table, once."""

    workload: cs.Workload

    def calibrate(self, budget: Budget) -> ReadyTable:
        one = changes(budget.neighbours)
        sigma = gaussian_sigma(one, budget.capacity)
        return ReadyTable(self, budget, Cost.gaussian(one, sigma), sigma)


@dataclass(frozen=True, eq=False)
class ReadyTable(Calibrated[OneTable]):
    mechanism: OneTable
    budget: Budget
    cost: Cost
    sigma: Sigma

    def __str__(self) -> str:
        return f"OneTable, sigma {self.sigma.value:.6g}"

    def draw(self, call: Call) -> Release:
        (clique,) = self.mechanism.workload
        exact = call.counts([clique])[clique].astype(int)
        noisy = call.noise.discrete_gaussian(exact, self.sigma).values
        return call.release([cs.Measurement(clique, noisy, stddev=self.sigma.value)])


def test_a_mechanism_of_ones_own_is_released_and_resumed(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = OneTable(cs.Workload(DECLARED.domain, [("sex", "age")]))
    published = release("out", own, errors="auto")
    assert published.facts["mechanism"] == {
        "name": "OneTable", "options": {}, "calibrated": str(own.calibrate(PROMISE)),
    }  # fmt: skip
    assert [t["attributes"] for t in published.facts["tables"]] == [["sex", "age"]]

    def full(*words, **more):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("consilience.release.folder._manifest", full)
        with pytest.raises(ReleaseError, match="no space left") as caught:
            release("later", own)
    assert caught.value.__notes__ == [
        "what was paid for is kept, finish it with: consilience resume later.partial"
    ]
    with pytest.raises(ReleaseError, match=r"OneTable, sigma .* give it again, from Python"):
        resume("later.partial")
    assert run("resume", "later.partial").exit_code == 2
    with pytest.raises(ReleaseError, match="must be the one that was paid for"):
        resume("later.partial", mechanism=Gaussian(WORKLOAD))
    assert (place / "later.partial").exists()
    finished = resume("later.partial", mechanism=own)
    np.testing.assert_array_equal(
        finished.model.measurements[0].values, published.model.measurements[0].values
    )
    assert not (place / "later.partial").exists()


def test_values_that_the_schema_does_not_declare_are_told_to_the_custodian_only(
    place: Path,
) -> None:
    (place / "people.csv").write_text(people(50) + '"Last",X,430,,yes,2020-01-05\n')
    said: list[str] = []
    source = open_source("people.csv", DECLARED)
    settings: dict[str, Any] = {"noise": SeededNoise(seed=1), "errors": "none"}
    with pytest.raises(ConsilienceError, match="with strict, every cell"):
        cs.release(
            source, DECLARED, Gaussian(WORKLOAD), PROMISE, out="out", strict=True, **settings
        )
    cs.release(
        source, DECLARED, Gaussian(WORKLOAD), PROMISE, out="out", say=said.append, **settings
    )
    assert said[1:] == [
        "values that the schema does not declare (shown to you only, not in the release):",
        "  sex: 1 not declared of 51",
        "  age: 1 out of bounds of 51",
        "  income: 13 missing, for which it has no cell, of 51",
    ]
    assert all(b"not declared" not in f.read_bytes() for f in (place / "out").rglob("*.*"))
