"""Controls in a schema: as tables, through a file and back, in a release, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import consilience as cs
from consilience.data.public import PublicTable
from consilience.data.schema_file import format_schema, parse_schema
from consilience.errors import ConsilienceError
from consilience.privacy import SeededNoise

TEXT = """
[columns.county]
type = "categorical"
labels = ["Maui", "Oahu", "Kauai"]
missing = "Oahu"

[columns.sex]
type = "categorical"
labels = ["f", "m"]
missing = "f"

[hierarchies.island]
of = "county"
[hierarchies.island.groups]
big = ["Oahu"]
small = ["Maui", "Kauai"]
"""
EXACT = """
[[controls]]
columns = ["sex", "island"]
exact = [["f", "big", 30], ["m", "big", 20], ["m", "small", 5], ["f", "small", 0]]
"""
RANGE = """
[[controls]]
columns = ["county"]
low = [["Maui", 2]]
high = [["Kauai", 3.5], ["Oahu", 60]]
"""


def test_tables_of_controls_and_a_file_that_keeps_them():
    schema = parse_schema(TEXT + EXACT + RANGE)
    exact, bounds = schema.controls
    np.testing.assert_array_equal(exact.values, [[30, 0], [20, 5]])
    np.testing.assert_array_equal(bounds.low, [2, 0, 0])
    np.testing.assert_array_equal(bounds.high, [np.inf, 60, 3.5])
    assert parse_schema(format_schema(schema)) == schema


def test_a_release_keeps_them(tmp_path):
    schema = parse_schema(TEXT + EXACT + RANGE)
    rows = {"county": ["Oahu"] * 50 + ["Maui"] * 3 + ["Kauai"] * 2, "sex": ["f"] * 30 + ["m"] * 25}
    workload = cs.Workload(schema.domain, [("county", "sex")])
    budget = cs.Budget(rho=0.5, neighbours="add-remove")
    made = cs.release(
        schema.encode(rows), schema, cs.mechanisms.Gaussian(workload), budget, out=tmp_path / "out", noise=SeededNoise(seed=1)
    )  # fmt: skip
    for model in (made.model, cs.read_release(tmp_path / "out").model):
        np.testing.assert_allclose(model.marginal(("sex", "island")), [[30, 0], [20, 5]], atol=1e-9)
        county = model.marginal("county")
        assert county[0] >= 2 - 1e-9
        assert county[2] <= 3.5 + 1e-9
        assert model.total == 55
    said = (tmp_path / "out" / "README.txt").read_text()
    assert "not protected: sex by island, county." in said
    assert made.facts["total"] == {"value": 55.0, "public": True}


REFUSED = {
    "a cell left out": (EXACT.replace(', ["f", "small", 0]', ""), "('f', 'small') is missing"),
    "a cell twice": (EXACT.replace('"small", 0', '"big", 0'), "twice"),
    "an unknown label": (EXACT.replace('"m", "big"', '"x", "big"'), "labels of column 'sex', got 'x'"),
    "an unknown column": (RANGE.replace('"county"', '"town"'), "got 'town'"),
    "no number": (RANGE.replace("3.5", '"many"'), "a label of each and a count"),
    "neither": ('[[controls]]\ncolumns = ["sex"]\n', "either exact, or low and high"),
    "both": (RANGE + 'exact = [["Maui", 1], ["Oahu", 1], ["Kauai", 1]]\n', "either exact"),
    "another key": (RANGE + "about = 3\n", "about"),
    "rows that are none": ('[[controls]]\ncolumns = ["sex"]\nexact = [1, 2]\n', "a list of rows"),
    "negative": (RANGE.replace("3.5", "-1"), "none negative"),
    "two totals": (EXACT + '[[controls]]\ncolumns = ["sex"]\nexact = [["f", 1], ["m", 1]]\n', "one total"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case):
    text, words = REFUSED[case]
    with pytest.raises(ConsilienceError) as caught:
        parse_schema(TEXT + text)
    assert words in str(caught.value)


def test_a_contradiction_is_refused_before_anything_is_spent(tmp_path):
    schema = parse_schema(TEXT + EXACT + RANGE.replace("60", "40"))
    workload = cs.Workload(schema.domain, [("county", "sex")])
    with pytest.raises(ConsilienceError, match="county=1 is at most 40"):
        cs.release(
            schema.encode({"county": ["Oahu"], "sex": ["f"]}), schema, cs.mechanisms.Gaussian(workload),
            cs.Budget(rho=0.5, neighbours="add-remove"), out=tmp_path / "out", noise=SeededNoise(seed=1),
        )  # fmt: skip
    assert not (tmp_path / "out").exists()


def test_a_public_table_is_a_value():
    assert PublicTable(("a",), (("x", 1),)) == PublicTable(("a",), (("x", 1),))
