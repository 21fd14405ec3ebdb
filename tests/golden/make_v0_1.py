"""How tests/golden/v0_1 was made, by consilience 0.1.0. Kept to be read: run again, it would not be made by 0.1 any more.

From the project's root, into a folder that is not there: python tests/golden/make_v0_1.py
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[1]))

import consilience as cs
from consilience.cli import main
from golden import problems

HERE = Path(__file__).parent / "v0_1"
SCHEMA = """
[columns.sex]
type = "categorical"
labels = ["F", "M"]

[columns.age]
type = "integer"
edges = [0, 18, 65, 100]
missing = 30

[columns.member]
type = "boolean"

[columns.region]
type = "categorical"
labels = ["north", "south", "west"]

[hierarchies.grown]
of = "age"
groups = { child = ["0-17"], adult = ["18-64", "65-100"] }
"""
BUDGET = ("--epsilon", "2", "--delta", "1e-6", "--neighbours", "replace-one")
SEEDED = ("--seed", "5")
QUESTIONS = (
    ("sex,age",),
    ("region", "--where", "age>=18,sex=F"),
    ("grown,member",),
    ("", "--where", "member=yes"),
    ("sex,age,region", "--errors", "none"),
    ("sex,region", "--errors", "all", "--replicates", "4"),
)


def run(*words: object) -> Any:
    done = CliRunner().invoke(main, [str(w) for w in words])
    if done.exit_code:
        raise SystemExit(done.output)
    return done


def people(rows: int = 200) -> str:
    rng, lines = np.random.default_rng(11), ["sex,age,member,region"]
    for _ in range(rows):
        sex = rng.choice(["F", "M"])
        age = int(rng.integers(0, 60) + (35 if sex == "F" else 0) * rng.random())
        member = "yes" if rng.random() < 0.2 + age / 200 else "no"
        region = rng.choice(["north", "south", "west"], p=[0.5, 0.3, 0.2])
        lines.append(f"{sex},{age},{member},{region}")
    return "\n".join(lines) + "\n"


def answers(folder: Path) -> list[dict[str, Any]]:
    found = [json.loads(run("answer", folder, *q, "--json").stdout) for q in QUESTIONS]
    return [{"asked": q, "trust": f["trust"], "rows": f["rows"]} for q, f in zip(QUESTIONS, found, strict=True)]  # fmt: skip


def interrupted(name: str, *words: str) -> None:
    """A release that was paid for and whose disk was full when the folder was written."""
    full = OSError(28, os.strerror(28))
    out = f"{name}-out"
    with mock.patch("consilience.release.folder._manifest", side_effect=full):
        CliRunner().invoke(main, ["release", *TABLE, "--out", out, *BUDGET, *words])
    shutil.copytree(f"{out}.partial", HERE / f"{name}.partial")
    run("resume", f"{out}.partial", "-q")
    shutil.move(out, f"{name}-done")


TABLE = ("people.csv", "--schema", "people.toml", "-q")


def make() -> None:
    HERE.mkdir()
    expected: dict[str, Any] = {"release": {}, "interrupted": {}, "models": {}}
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        Path("people.csv").write_text(people())
        Path("people.toml").write_text(SCHEMA)
        few = ("--workload", "sex,age;age,member;member,region")
        run("release", *TABLE, "--out", "release", *BUDGET, "--ledger", "one", *few)
        shutil.copytree("release", HERE / "release")
        expected["release"] = answers(HERE / "release")
        interrupted("gaussian", "--consistency", "local", "--ledger", "two", *few)
        interrupted(
            "mwem", "--mechanism", "mwem", "-o", "rounds=2", "--errors", "none", *SEEDED, *few
        )
        interrupted(
            "fem", "--mechanism", "fem", "-o", "rounds=6", "--errors", "none", *SEEDED, *few
        )
        for name in ("gaussian", "mwem", "fem"):
            found = answers_of_resumed(Path(f"{name}-done"))
            expected["interrupted"][name] = found
        os.chdir(HERE)
    for name, model in models().items():
        model.save(HERE / f"{name}.npz")
        expected["models"][name] = answers_of_model(cs.load(HERE / f"{name}.npz"))
    text = json.dumps(expected, indent=1)
    (HERE / "expected.json").write_text(text + "\n", encoding="utf-8")


def answers_of_resumed(folder: Path) -> list[dict[str, Any]]:
    found = []
    for question in ("sex,age", "sex,region"):
        said = run("answer", folder, question, "--errors", "none", "--json").stdout
        f = json.loads(said)
        found.append({"asked": f["attributes"], "trust": f["trust"], "rows": f["rows"]})
    return found


def answers_of_model(model: cs.Model) -> dict[str, Any]:
    """Tables, the certificate, standard errors and rows."""
    found = problems.told(model, [*model.cliques, *problems.UNMEASURED[:3]])
    clique = model.cliques[0]
    spread = model.uncertainty(clique, method="bootstrap", replicates=3, rng=2)
    found |= problems.spread_of(spread) | {"rows": model.sample(20, rng=3).to_array()}
    return {key: problems.plain(value) for key, value in found.items()}


def models() -> dict[str, cs.Model]:
    four, cycle, noisy = problems.FOUR, problems.CYCLE, problems.noisy
    mask = np.array([[True, False], [True, True], [True, True]])
    listed = [*noisy(four, cycle, 20.0), problems.asked(("c",), problems.Prefix(4))]
    ready = problems.calibrated(
        "MWEM", cs.all_marginals(four, 2), budget=problems.budget(), rounds=3
    )
    return {
        "local": cs.reconstruct(four, listed, consistency="local", possible={("a", "b"): mask}),
        "global": cs.reconstruct(four, noisy(four, cycle, 20.0), total=600, consistency="global"),
        "prior": cs.reconstruct(four, noisy(four, cycle, 20.0), prior="independence"),
        "mwem": problems.released(ready, problems.people(four, 1500)).model,
    }


if __name__ == "__main__":
    make()
