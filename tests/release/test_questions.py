"""Questions in words, and their answers against sums over the whole table by brute force."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

import consilience as cs
from cli.conftest import BUDGET, SCHEMA, people, run
from consilience.data.columns import Categorical
from consilience.data.schema_file import parse_schema
from consilience.data.within import Values
from consilience.errors import ConsilienceError
from consilience.privacy import SeededNoise
from consilience.release import Published, read_release
from consilience.release.answers import answer
from consilience.release.conditions import quoted
from consilience.release.questions import read_question, read_questions

PEOPLE = parse_schema(SCHEMA)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """Released with its replicates."""
    folder = tmp_path_factory.mktemp("asked")
    (folder / "people.csv").write_text(people(2000), encoding="utf-8")
    (folder / "people.toml").write_text(SCHEMA, encoding="utf-8")
    words = ("--schema", folder / "people.toml", *BUDGET, "--workload", "2", "--seed", "3")
    done = run("release", folder / "people.csv", *words, "--out", folder / "out", "-q")
    assert done.exit_code == 0, done.output
    return read_release(folder / "out")


# -- words -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, kind, column, by, where",
    [
        ("", "count", "", (), {}),
        ("age,sex", "count", "", ("age", "sex"), {}),
        ("sex by grown", "count", "", ("sex", "grown"), {}),
        ("mean(income)", "mean", "income", (), {}),
        ("sum( income ) by sex, grown where age>=18", "sum", "income", ("sex", "grown"), {"age": (1, 2)}),
        ("median(age) where sex=F and income<50000", "median", "age", (), {"sex": (0,), "income": (0, 1)}),
        ('quantile("income", 0.9) by sex', "quantile", "income", ("sex",), {}),
        ("by sex where member=yes", "count", "", ("sex",), {"member": (1,)}),
        ("count() by sex", "count", "", ("sex",), {}),
    ],
)  # fmt: skip
def test_words_become_questions(text: str, kind: str, column: str, by, where) -> None:
    found = read_question(PEOPLE, text)
    assert (found.measure.kind, found.measure.column, found.by) == (kind, column, by)
    assert found.where == where
    added = read_question(PEOPLE, text, by="joined", where="joined<2021-01-01")
    assert added.by == (*by, "joined")
    assert added.where == {**where, "joined": (0, 1)}


@pytest.mark.parametrize(
    "text, words",
    [
        ("mean(nobody)", "the column must be declared in the schema, got 'nobody'"),
        ("nobody", "the column must be declared in the schema, got 'nobody'"),
        ("average(income)", "a question must be one of count, mean, sum, .*got 'average'"),
        ("quantile(income)", "quantile must have 2 arguments, got 1"),
        ("quantile(income, 90)", "the level of a quantile must be a number between 0 and 1, got '90'"),
        ("ratio(income, sex=F, sex=M)", r"ratio must compare count\(\), share"),
        ("share(age) by sex", "a share within 'age' must be asked by it, got by sex"),
        ("mean(income) by sex,sex", "attributes must be distinct"),
        ("sex where age>=20", "a bound of 'age' must lie between bins"),
        ("count() where sex=F and sex=M", "must hold for some label of 'sex'"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConsilienceError, match=words):
        read_question(PEOPLE, text)


ODD = ["a|b", 'say ""', "x, y=z and w", "(", "plain", "<b>"]


def test_every_label_and_name_can_be_quoted() -> None:
    """A quote inside quotes is doubled; then no name is too odd to be asked for."""
    names = ['the "column", so', "b|c=d", "share(x)"]
    odd = cs.Schema([Categorical(n, ODD) for n in names])
    for name, label, other in product(names, ODD, ODD):
        where = f"{quoted(name)}={quoted(label)}|{quoted(other)}"
        found = read_question(odd, f"share({where}) by {quoted(names[0])}", quoted(names[1]), where)
        codes = tuple(sorted({ODD.index(label), ODD.index(other)}))
        assert found.where == found.measure.condition == {name: codes}
        assert found.by == tuple(names[:2])


def test_a_file_has_a_question_a_line() -> None:
    found = read_questions(PEOPLE, "# of people\nmean(income) by sex  # money\n\nage,sex\n")
    assert [q.text for q in found] == ["mean(income) by sex", "age,sex"]
    with pytest.raises(ConsilienceError, match=r"line 2: .*got 'nobody'"):
        read_questions(PEOPLE, "age\nmean(nobody)")
    with pytest.raises(ConsilienceError, match="a file of questions must have one a line"):
        read_questions(PEOPLE, "\n# nothing\n")


# -- numbers ---------------------------------------------------------------------------------------


def joint(published: Published, clique: tuple[str, ...]) -> np.ndarray:
    return published.model.marginal(clique)


def test_means_and_shares_are_those_of_the_tables(published: Published) -> None:
    table = joint(published, ("sex", "income"))
    values = Values.of(PEOPLE["income"])
    found = published.answer("mean(income)", by="sex")
    means = (table * values.means(table)).sum(axis=1) / table.sum(axis=1)
    np.testing.assert_allclose(found.values, means)
    assert found.bounds is not None
    for end, bound in zip((values.first, values.last), found.bounds, strict=True):
        np.testing.assert_allclose(bound, (table * end).sum(axis=1) / table.sum(axis=1))
    assert found.labels == (("F",), ("M",))
    assert "the top bin of income is 50,000 to 200,000, and values above" in found.notes[0]
    np.testing.assert_allclose(
        published.answer("sum(income) by sex").values, means * table.sum(axis=1)
    )
    share = published.answer("share(member=yes) by sex")
    members = joint(published, ("sex", "member"))
    np.testing.assert_allclose(share.values, members[:, 1] / members.sum(axis=1))
    ratio = published.answer("ratio(share(member=yes), sex=F, sex=M)")
    np.testing.assert_allclose(ratio.values, share.values[0] / share.values[1])
    less = published.answer("difference(mean(income), sex=F, sex=M)")
    np.testing.assert_allclose(less.values, means[0] - means[1])
    both = published.answer("share(sex=F, member=yes)")
    np.testing.assert_allclose(both.values, members[0, 1] / members.sum())


@pytest.mark.parametrize("within, axes", [("", (0, 1)), ("sex", (1,)), ("member", (0,)), ("sex, member", ())])  # fmt: skip
def test_shares_within_columns(published: Published, within: str, axes: tuple[int, ...]) -> None:
    """Per cent of row, of column, of everything; each has the error of the question that asks for one share by itself."""
    members = joint(published, ("sex", "member"))
    found = published.answer(f"share({within}) by sex, member")
    np.testing.assert_allclose(
        found.values, (members / members.sum(axis=axes, keepdims=True)).reshape(-1)
    )
    assert found.stderr is not None
    if within == "sex":
        alone = published.answer("share(member=yes)", where="sex=M")
        at = found.labels.index(("M", "yes"))
        np.testing.assert_allclose(found.stderr[at], alone.stderr[0])
    less = published.answer("difference(share(sex), joined>=2021-01-01, joined<2021-01-01) by sex, member")  # fmt: skip
    assert abs(less.values.sum()) < 1e-9


def test_quantiles_lie_in_their_bins_and_rise(published: Published) -> None:
    table = joint(published, ("income",))
    last = 0.0
    for level in (0.1, 0.3, 0.5, 0.8, 0.99):
        found = published.answer(f"quantile(income, {level})")
        value = float(found.values[0])
        assert found.bounds is not None
        least, most = (float(b[0]) for b in found.bounds)
        assert last <= value
        assert least <= value <= most
        below = sum(
            n for n, end in zip(table, Values.of(PEOPLE["income"]).last, strict=True) if end <= least
        )  # fmt: skip
        assert below / table.sum() <= level
        last = value
    assert published.answer("median(income)").values == published.answer("quantile(income, 0.5)").values  # fmt: skip


def test_whole_tables_by_enumeration(published: Published) -> None:
    """Groups, conditions and hierarchies together, cell by cell."""
    found = published.answer("sex,grown", where="member=yes|no,joined>=2020-01-01")
    table = joint(published, ("sex", "age", "member", "joined"))
    labels = {c.name: c.labels for c in PEOPLE}
    groups = {v: g for g, listed in PEOPLE.groupings[0].groups.items() for v in listed}
    expected: dict[tuple[str, str], float] = {}
    for cell in product(*map(range, table.shape)):
        sex, age, member, joined = (
            labels[a][i] for a, i in zip(("sex", "age", "member", "joined"), cell, strict=True)
        )
        key = (sex, groups[age])
        expected.setdefault(key, 0.0)
        if member in ("yes", "no") and joined >= "2020":
            expected[key] += table[cell]
    assert dict(zip(found.labels, found.values, strict=True)) == pytest.approx(expected)


def test_a_number_has_one_error_wherever_it_is_asked_for(published: Published) -> None:
    entry = next(t for t in published.facts["tables"] if t["attributes"] == ["sex", "member"])
    stored = pyarrow.parquet.read_table(published.path / f"{entry['file']}.parquet").to_pydict()
    frame = published.model.table(("sex", "member"))
    asked = published.answer("sex,member")
    alone = published.answer("", where="sex=F,member=yes")
    everybody = published.answer("sex,member", where="joined>=2019-01-01")  # which everybody meets
    for name, column in (("count", "count"), ("stderr", "error"), ("low", "low"), ("high", "high")):
        np.testing.assert_array_equal(frame[column], stored[name])
        np.testing.assert_allclose(asked.columns[name], stored[name], rtol=1e-12)
        np.testing.assert_allclose(alone.columns[name], stored[name][1], rtol=1e-12)
    np.testing.assert_array_equal(everybody.stderr, asked.stderr)


def test_what_nobody_measured_has_an_error_and_says_what_it_rests_on(published: Published) -> None:
    found = published.answer("sex,age,member", where="income>=20000")
    assert found.verdict == "inferred"
    assert found.basis == "inferred from sex-age, sex-income, sex-member, age-income, age-member and income-member"  # fmt: skip
    assert found.stderr is not None
    assert (found.stderr > 0).mean() > 0.9
    assert (found.low <= found.values + 1e-9).all()
    assert (found.values <= found.high + 1e-9).all()


def test_errors_of_means_are_as_large_as_repeated_noise_makes_them(tmp_path: Path) -> None:
    """Twelve releases of one table: the spread of their means beside the standard errors that they state."""
    rng = np.random.default_rng(0)
    domain = PEOPLE.domain
    data = cs.Dataset(np.column_stack([rng.integers(0, n, 3000) for n in domain.shape]), domain)
    pairs = cs.Workload(domain, [("sex", "income"), ("income", "age")])
    values, said = [], []
    for seed in range(12):
        noise = cs.mechanisms.Gaussian(pairs).calibrate(cs.Budget(epsilon=1, delta=1e-6, neighbours="replace-one"))  # fmt: skip
        model = noise(data, noise=SeededNoise(seed=seed)).model
        found = answer(model, PEOPLE, read_question(PEOPLE, "mean(income)"))
        values.append(found.values[0])
        assert found.stderr is not None
        said.append(found.stderr[0])
    assert 0.5 < np.std(values) / np.mean(said) < 2.0


def test_formats(published: Published, tmp_path: Path) -> None:
    folder = published.path
    shown = run("answer", folder, "mean(income)", "--by", "sex", "--format", "markdown", "-q")
    lines = shown.stdout.splitlines()
    assert lines[0] == "| sex | mean | ± standard error | interval | bins leave open |"
    out = tmp_path / "a.parquet"
    assert run("answer", folder, "age", "--format", "parquet").exit_code == 2
    assert run("answer", folder, "age", "--format", "parquet", "--out", out, "-q").exit_code == 0
    names = pyarrow.parquet.read_table(out).column_names
    assert names == ["age", "count", "stderr", "low", "high"]
    questions = tmp_path / "questions.txt"
    questions.write_text("age\nmean(income) by sex where age>=18\n", encoding="utf-8")
    done = run("answer", folder, "--batch", questions, "--format", "csv", "-q")
    assert done.stdout.splitlines()[0].startswith("question,group,value,stderr,low,high")
    assert len(done.stdout.splitlines()) == 1 + 4 + 2
    refused = run("answer", folder, "age", "--batch", questions)
    assert (refused.exit_code, "leave one out" in refused.output) == (2, True)


def test_notebook_views_show_no_rows(published: Published) -> None:
    html = published._repr_html_()
    assert "Release" in html
    assert "sex" in html
    data = cs.Dataset(np.zeros((5, 1), int), cs.Domain({"a": 3}))
    assert "5 records" in data._repr_html_()
    assert "Rows are not shown" in data._repr_html_()
    assert "mean" in published.answer("mean(income)")._repr_html_()
