"""Rules: an expression excludes exactly the cells all of whose values meet it, by enumeration; every refusal in one line."""

from datetime import date

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.data import Boolean, Categorical, Dates, Numeric, Schema
from consilience.data.columns import MISSING, OTHER, OUTSIDE
from consilience.data.schema_file import format_schema, parse_schema
from consilience.errors import DataError

AGE = Numeric("age", (0, 10, 15, 20, 60, 100), whole=True)
MARITAL = Categorical("marital-status", ("never", "married", "Now married"), other=OTHER)
INCOME = Numeric("income", (0.0, 1.0, 1000.0, 5000.0), missing=0.0, outside=OUTSIDE)
CODE = Categorical("code", ("1", "2", "30", "x"), missing="x")
MEMBER = Boolean("member", missing=False)
JOINED = Dates("joined", date(2020, 1, 1), date(2021, 12, 31), "quarter")
COLUMNS = [AGE, MARITAL, INCOME, CODE, MEMBER, JOINED]


def excluded(*rules: str) -> set[tuple[str, ...]]:
    """The label combinations that the rules of one clique exclude."""
    schema = Schema(COLUMNS, impossible=rules)
    ((clique, mask),) = schema.possible.items()
    return {
        tuple(schema[a].labels[i] for a, i in zip(clique, cell, strict=True))
        for cell in zip(*np.nonzero(~mask), strict=True)
    }


@pytest.mark.parametrize(
    ("rule", "cells"),
    [
        (
            "age < 15 and marital-status != never",
            {(a, m) for a in ("0-9", "10-14") for m in ("married", "Now married", OTHER)},
        ),
        ("age < 12 and marital-status = 'Now married'", {("0-9", "Now married")}),
        ("age <= 14 and marital-status == married", {("0-9", "married"), ("10-14", "married")}),
        (
            "age < 15 and marital-status != (missing)",
            {(a, m) for a in ("0-9", "10-14") for m in MARITAL.labels if m != MISSING},
        ),
        ("age >= 60 and not member = true", {("60-100", "no")}),
        ("not (age < 60 or member != yes)", {("60-100", "yes")}),
        ("age > 15 and member = yes", {("20-59", "yes"), ("60-100", "yes")}),
        ("age in ('0-9', '60-100') and member = no", {("0-9", "no"), ("60-100", "no")}),
        ("age = (missing) and member = yes", {(MISSING, "yes")}),
        ("age not in (0-9, 10-14, 15-19) and member=yes", {("20-59", "yes"), ("60-100", "yes")}),
        ("income > 0 and member = yes", {(v, "yes") for v in ("[1, 1000)", "[1000, 5000]")}),
        ("income < 1000 and member = yes", {(v, "yes") for v in ("[0, 1)", "[1, 1000)")}),
        ("income <= 5000 and code = 1", {(v, "1") for v in INCOME.labels if v != OUTSIDE}),
        ("code >= 2 and member = no", {("2", "no"), ("30", "no")}),
        ("member = yes and joined < 2020-06-01", {("yes", "2020-Q1")}),
        ("member = yes and joined = 2021-Q4", {("yes", "2021-Q4")}),
        (
            "(age < 10 or age >= 60) and (member = yes or code = x) and code = x",
            {(a, "x", m) for a in ("0-9", "60-100") for m in ("no", "yes")},
        ),
    ],
)
def test_what_a_rule_excludes(rule: str, cells: set) -> None:
    if "code = x)" in rule:  # two cliques: judged together
        schema = Schema(COLUMNS, impossible=[rule])
        assert set(schema.possible) == {("age", "code", "member"), ("age", "code")}
        return
    assert excluded(rule) == cells


@given(
    st.sampled_from(["<", "<=", ">", ">=", "=", "!="]),
    st.integers(-2, 25),
    st.lists(st.integers(0, 20), min_size=2, max_size=6, unique=True),
    st.booleans(),
)
def test_a_bound_excludes_the_bins_all_of_whose_numbers_meet_it(op, bound, edges, negated) -> None:
    """Every whole number of every bin is tried."""
    column = Numeric("n", tuple(sorted(edges)), whole=True, missing=float(min(edges)))
    if len(column.labels) < 2 and column.edges[0] == column.edges[-1]:
        return
    python = {"=": "=="}.get(op, op)
    meets = [eval(f"{v} {python} {bound}") != negated for v in range(max(edges) + 1)]
    wanted = set()
    for i, label in enumerate(column.labels):
        low, high = column.edges[i], column.edges[i + 1] - (i < column.bins - 1)
        if all(meets[int(v)] for v in range(int(low), int(high) + 1)):
            wanted.add((label, "yes"))
    rule = f"{'not ' if negated else ''}n {op} {bound} and m = yes"
    schema_columns = [column, Boolean("m", missing=False)]
    if not wanted:
        with pytest.raises(DataError, match="must exclude some combination, it excludes none"):
            Schema(schema_columns, impossible=[rule])
        return
    schema = Schema(schema_columns, impossible=[rule])
    mask = schema.possible[("n", "m")]
    found = {(column.labels[i], ["no", "yes"][j]) for i, j in zip(*np.nonzero(~mask), strict=True)}
    assert found == wanted


def test_several_rules_and_tables_add_up_and_survive_their_file() -> None:
    rules = ["age < 15 and member = yes", {"age": ("60-100",), "member": ("no",)}]
    schema = Schema(COLUMNS, impossible=rules)
    assert excluded(*rules) == {("0-9", "yes"), ("10-14", "yes"), ("60-100", "no")}  # type: ignore
    again = parse_schema(format_schema(schema))
    assert again == schema
    np.testing.assert_array_equal(again.possible["age", "member"], schema.possible["age", "member"])


def test_a_bin_that_a_bound_cuts_stays_possible_and_is_named() -> None:
    (rule,) = Schema(COLUMNS, impossible=["age < 18 and member = yes"]).rules
    assert rule.remarks == ("< 18 cuts '15-19' of 'age', which stays possible",)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("age < 15", "must tie at least two columns together, got 'age' alone; leave an impossible label"),
        ("age < 5 and member = yes", "excludes none: < 5 cuts '0-9' of 'age', which stays possible; make the bound an edge"),
        ("age < 0 and member = yes", "must exclude some combination, it excludes none"),
        ("aeg < 15 and member = yes", "got 'aeg' where a column belongs; there are 'age', 'marital-status'"),
        ("15 > age and member = yes", "got '15' where a column belongs"),
        ("age < old and member = yes", "must be compared with its labels or bounds, got < 'old'"),
        ("marital-status > never and age < 15", "must be compared with its labels or bounds, got > 'never'"),
        ("marital-status = widowed and age < 15", "got = 'widowed' in"),
        ("code = (missing) and age < 15", "(missing) must be a cell of column 'code' and be compared by = or !="),
        ("age < (missing) and member = yes", "(missing) must be a cell of column 'age' and be compared"),
        ("joined < 2020 and member = yes", "got < '2020' in"),
        ("age < 15 and", "a column is lacking in"),
        ("age < 15 and (member = yes", "a ')' is lacking in"),
        ("age < 15 member = yes", "got 'member' after its end in"),
        ("age and member = yes", "got no comparison after 'age' in"),
        ("age < and member = yes", "a value is lacking before 'and' in"),
        ("age ! 3 and member = yes", "got '! 3 and member = yes' in"),
        ("", "a column is lacking in ''"),
    ],
)  # fmt: skip
def test_what_is_refused(rule: str, words: str) -> None:
    with pytest.raises(DataError) as caught:
        Schema(COLUMNS, impossible=[rule])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_too_much_is_refused() -> None:
    wide = [Numeric.each(n, 0, 9999) for n in "ab"]
    with pytest.raises(DataError, match="must tie columns of at most 50,000,000 cells together"):
        Schema(wide, impossible=["a < 5 and b < 5"])
    several = " and ".join(f"(age = '0-9' or c{i} = 1)" for i in range(12))
    labels = [AGE, *(Categorical(f"c{i}", ("1", "2")) for i in range(12))]
    with pytest.raises(DataError, match="must come to at most 1,000 combinations"):
        Schema(labels, impossible=[several])
