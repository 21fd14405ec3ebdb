"""On the committed rows `Auto` is the closest, but for the cells that docs/choosing.md lists; and stated ranges hold."""

import csv
import pathlib

import numpy as np

RESULTS = pathlib.Path(__file__).parents[2] / "experiments" / "results"
MISSED = {("msnbc", "2", "10")}
"""Where another is closer by more than 2 %; docs/choosing.md says so."""


def cells():
    found = {}
    with (RESULTS / "choosing.csv").open() as lines:
        for r in csv.DictReader(lines):
            if r["status"] == "done":
                cell = found.setdefault((r["data"], r["ways"], r["epsilon"]), {})
                cell.setdefault(r["design"], {})[r["seed"]] = float(r["total_variation"])
    return found


def ratio(own, other):
    seeds = own.keys() & other.keys()
    return np.mean([own[s] for s in seeds]) / np.mean([other[s] for s in seeds])


def test_auto_is_within_two_percent_of_the_closest_but_where_the_docs_say():
    found = cells()
    assert len(found) == 30
    worst = {
        k: max(ratio(d["auto"], v) for n, v in d.items() if n != "auto") for k, d in found.items()
    }
    assert {k for k, r in worst.items() if r > 1.02} == MISSED
    assert max(worst.values()) < 1.05


def test_auto_is_well_below_aim_where_aim_ends():
    ratios = [ratio(d["auto"], d["aim"]) for d in cells().values() if "aim" in d]
    assert len(ratios) >= 15
    assert np.exp(np.mean(np.log(ratios))) < 0.80
