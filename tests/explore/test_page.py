"""The page in a real browser: by mouse, by keyboard, on a phone, in the dark, with labels that mean harm, and from disk."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlencode

import numpy as np
import pytest

import consilience as cs
from cli.conftest import run
from consilience.explore import export
from consilience.explore.server import Server
from consilience.release import Published
from explore.cases import HOSTILE, NAMES, release_of, served
from report.browser import Browser, browser, find_chromium

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(
    CHROMIUM is None,
    reason="needs Chromium: apt-get install chromium, or CONSILIENCE_CHROMIUM=/path/to/it",
)


@pytest.fixture(scope="module")
def program() -> Iterator[Browser]:
    assert CHROMIUM is not None
    with browser(CHROMIUM) as found:
        yield found


@pytest.fixture
def tab(program: Browser) -> Browser:
    program.call("Page.navigate", url="about:blank")
    program.size(1280, 900)
    program.scheme("light")
    program.errors.clear()
    program.requests.clear()
    return program


Given = dict[str, str | list[str]]


def view(**given: str | list[str]) -> str:
    return "#" + urlencode(given, doseq=True)


def visit(tab: Browser, address: str) -> None:
    tab.call("Page.navigate", url="about:blank")
    tab.open(address)
    settled(tab)


def settled(tab: Browser) -> None:
    tab.wait("typeof asking === 'number' && document.body.dataset.shown === String(asking)")


def choose(tab: Browser, control: str, value: str) -> None:
    pick(tab, control, value)
    settled(tab)


def pick(tab: Browser, control: str, value: str) -> None:
    tab.run(
        f"(c => {{ c.value = {json.dumps(value)}; c.dispatchEvent(new Event('change')); }})($({control!r}))"
    )


def table(tab: Browser) -> list[list[str]]:
    return tab.run(
        "[...document.querySelectorAll('#table tr')].map(r => [...r.children].map(c => c.innerText.trim()))"
    )


def first_number(text: str) -> float:
    return float(text.split("±")[0].replace(",", "").replace("%", ""))


# -- what a view shows -----------------------------------------------------------------------------


def test_the_first_view(tab: Browser, server: Server) -> None:
    visit(tab, server.address)
    head = tab.run("document.querySelector('header').innerText")
    assert "epsilon 1, delta 1e-6, replace-one" in head
    assert "100 % of the budget" in head
    assert "NOT PRIVATE" in head
    assert tab.run("$('title').innerText") == "People by age, sex"
    assert tab.run("$('flag').innerText") == "measured"
    assert tab.run("document.querySelectorAll('#chart svg').length") == 1
    assert tab.errors == []
    asked = {url.split("/")[2] for url in tab.requests if url.startswith("http")}
    assert asked == {f"127.0.0.1:{server.server_port}"}


@pytest.mark.parametrize(
    "given, charts, marks",
    [
        ({"by": ["sex"]}, 1, "rect.bar"),
        ({"by": ["age"]}, 1, "path.line"),
        ({"by": ["age"], "sort": "down"}, 1, "rect.bar"),
        ({"by": ["column 002", "column 003"]}, 1, "rect"),
        ({"by": ["column 002", "column 003"], "chart": "bars"}, 2, "rect.bar"),
        ({"by": ["column 002", "column 003", "sex"]}, 2, "rect"),
        ({"by": ["age", "sex", "column 002"], "chart": "heat"}, 4, "rect"),
        ({"by": ["sex"], "measure": "mean", "of": "income", "compare": "column 002"}, 1, "rect.bar"),
    ],
)  # fmt: skip
def test_charts_have_their_intervals(
    tab: Browser, server: Server, given: Given, charts: int, marks: str
) -> None:
    visit(tab, server.address + view(**given))
    assert tab.run("document.querySelectorAll('#chart svg').length") == charts
    assert tab.run(f"document.querySelectorAll('#chart svg {marks}').length") > 0
    intervals = "#chart .whisker, #chart .band, #chart path[stroke-width='3']"
    assert tab.run(f'document.querySelectorAll("{intervals}").length') > 0
    charts_told = "[...document.querySelectorAll('#chart svg[role=img]')].map(s => s.getAttribute('aria-label'))"
    assert all(len(label) > 10 for label in tab.run(charts_told))
    assert tab.errors == []


def test_tables_hold_the_numbers_of_the_model(
    tab: Browser, server: Server, published: Published
) -> None:
    visit(tab, server.address + view(by=["age", "sex"]))
    shown = np.array([[first_number(c) for c in row[1:]] for row in table(tab)[1:]])
    np.testing.assert_allclose(shown, published.model.marginal(("age", "sex")), atol=0.51)
    choose(tab, "percent", "row")
    shares = np.array([[first_number(c) for c in row[1:]] for row in table(tab)[1:]])
    np.testing.assert_allclose(shares.sum(axis=1), 100, atol=0.11)
    tab.run("$('swap').click()")
    settled(tab)
    assert tab.run("$('percent').value") == "column"
    swapped = np.array([[first_number(c) for c in row[1:]] for row in table(tab)[1:]])
    np.testing.assert_array_equal(swapped, shares.T)


def test_lists_sort_and_say_what_cannot_be_told_apart(tab: Browser, server: Server) -> None:
    visit(tab, server.address + view(by=["age"], sort="down"))
    rows = table(tab)
    numbers = [first_number(r[1]) for r in rows[1:]]
    assert numbers == sorted(numbers, reverse=True)
    assert rows[0][-1] == "from the row above"
    for above, row in pairwise(rows[1:]):
        errors = [first_number(r[2].removeprefix("± ")) for r in (above, row)]
        near = abs(first_number(above[1]) - first_number(row[1])) <= 1.6449 * np.hypot(*errors)
        assert row[-1] == ("≈ smaller than its error" if near else "told apart")
    tab.run("document.querySelectorAll('#table th button')[1].click()")
    turned = [first_number(r[1]) for r in table(tab)[1:]]
    assert turned == numbers[::-1]
    assert tab.run("document.activeElement.closest('th').getAttribute('aria-sort')") == "ascending"


def test_two_groups_are_compared_with_the_error_of_their_difference(
    tab: Browser, server: Server, published: Published
) -> None:
    visit(tab, server.address + view(by="column 002", compare="sex", one="female", two="male"))
    expected = published.answer("difference(count(), sex=female, sex=male)", by=("column 002",))
    head, *rows = table(tab)
    assert head[:5] == ["column 002", "female", "male", "difference", "told apart"]
    for row, value, low, high in zip(rows, expected.values, expected.low, expected.high, strict=True):  # fmt: skip
        assert first_number(row[3]) == pytest.approx(value, abs=0.51)
        assert row[4] == ("≈ smaller than its error" if low <= 0 <= high else "yes")
    assert tab.run("document.querySelectorAll('#chart .bar.within').length") == sum(
        row[4].startswith("≈") for row in rows
    )


def test_one_level_of_a_column_at_a_time(tab: Browser, server: Server) -> None:
    visit(tab, server.address + view(by=["grown up", "age", "sex"]))
    assert tab.run("$('title').innerText") == "People by grown up, sex"
    assert tab.run("$('problem').innerText") == ""
    assert "age" not in tab.run("[...$('by1').options].map(o => o.value)")


def test_filters_and_shares(tab: Browser, server: Server, published: Published) -> None:
    visit(tab, server.address + view(by="sex"))
    choose(tab, "measure", "share")
    choose(tab, "of", "column 002")
    tab.run("[...document.querySelectorAll('#is input')][1].click()")
    settled(tab)
    tab.run("[...document.querySelectorAll('#is input')][0].click()")
    settled(tab)
    pick(tab, "filter", "age")
    for i in (2, 3):
        tab.run(f"document.querySelectorAll('#filters input')[{i}].click()")
        settled(tab)
    expected = published.answer('share("column 002"=b) by sex where age=20-29|30-39')
    shown = [first_number(row[1]) for row in table(tab)[1:]]
    np.testing.assert_allclose(shown, 100 * expected.values, atol=0.06)
    tab.run("document.querySelector('#filters [aria-label^=Remove]').click()")
    settled(tab)
    assert "where" not in tab.run("$('command').innerText")


# -- taking it elsewhere ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"by": [NAMES[0], NAMES[2]]},
        {"by": ["sex"], "where": NAMES[0], "label": [HOSTILE[0], HOSTILE[4], HOSTILE[2]]},
        {"by": [NAMES[1]], "measure": "mean", "of": "income", "level": "0.95"},
        {"by": [], "measure": "share", "of": NAMES[0], "is": [HOSTILE[4], HOSTILE[3]]},
        {"by": ["sex"], "compare": NAMES[0], "one": HOSTILE[1], "two": HOSTILE[4]},
        {"by": ["age", NAMES[0]], "percent": "column"},
    ],
)
def test_the_command_the_python_and_the_file_give_the_same_numbers(
    tab: Browser, server: Server, given: Given
) -> None:
    visit(tab, server.address + view(**given))
    assert tab.run("$('problem').innerText") == ""
    told = tab.run("ask(askedOf(state)[0])")
    words = shlex.split(tab.run("$('command').textContent"))
    done = run(*words[1:], "--json", "-q")
    assert done.exit_code == 0, done.output
    assert [row["stderr"] for row in json.loads(done.stdout)["rows"]] == told["stderr"]
    found = eval(tab.run("$('python').textContent"), {"cs": cs})
    assert [row[found.name] for row in found.rows] == told["value"]
    text = tab.run("fetch($('csv').href).then(r => r.text())")
    read = list(csv.DictReader(io.StringIO(text)))
    assert [float(row["low"]) if row["low"] else None for row in read] == told["low"]


def test_every_view_has_an_address(tab: Browser, server: Server) -> None:
    visit(tab, server.address)
    choose(tab, "by0", NAMES[0])
    choose(tab, "measure", "median")
    choose(tab, "compare", "column 001")
    choose(tab, "level", "0.8")
    address, rows = tab.run("location.href"), table(tab)
    visit(tab, address)
    assert table(tab) == rows
    assert tab.run("$('by0').value") == NAMES[0]
    tab.run("history.back()")
    visit(tab, server.address + "#by=nobody&measure=nothing&level=7&where=x&label=y")
    assert tab.run("$('title').innerText") == "People"
    assert tab.errors == []


# -- everybody -------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [14, 50, 200])
@pytest.mark.parametrize("width", [1280, 390])
def test_many_columns_on_any_screen(
    tab: Browser, server: Server, tmp_path_factory: pytest.TempPathFactory, columns: int, width: int
) -> None:
    if columns == 14:
        _look(tab, server, columns, width)
        return
    with served(release_of(tmp_path_factory.mktemp("many"), columns, pairs=False)) as other:
        _look(tab, other, columns, width)


def _look(tab: Browser, server: Server, columns: int, width: int) -> None:
    tab.size(width, 844, mobile=width < 500)
    tab.scheme("dark" if width < 500 else "light")
    for given in ({"by": ["age"]}, {"by": [*NAMES[:2]]}, {"by": [*NAMES], "layout": "list"}):
        visit(tab, server.address + view(**given))
        assert tab.run("$('problem').innerText") == ""
        assert tab.run("document.documentElement.scrollWidth") <= width
        assert tab.run("document.querySelectorAll('#chart svg').length") > 0
    assert tab.run("$('question').open") is (width > 500)
    assert tab.run("$('filter').options.length") == columns + 2, "a hierarchy, and none"
    assert tab.run("window.broken") is None
    assert tab.run("document.querySelectorAll('main b, main img, #form b').length") == 0
    shown = tab.run("[...document.querySelectorAll('#table tbody th')].map(c => c.textContent)")
    assert set(shown) == {*HOSTILE, "(missing)"}
    assert tab.run("[...document.querySelectorAll('#table tbody th')].every(c => c.dir === 'auto')")
    assert tab.errors == []


def test_everything_can_be_done_with_the_keyboard(tab: Browser, server: Server) -> None:
    visit(tab, server.address)
    tab.press("Tab")
    assert tab.run("document.activeElement.className") == "skip"
    tab.press("Enter")
    assert tab.run("document.activeElement.id") == "view"
    assert tab.run("$('title').innerText") == "People by age, sex", "the link keeps the question"
    tab.run("document.querySelector('.skip').focus()")
    reached = []
    for _ in range(40):
        tab.press("Tab")
        reached.append(tab.run("(e => e.id || e.dataset.copy || e.className || e.tagName)(document.activeElement)"))  # fmt: skip
        if reached[-1] == "share":
            break
        assert tab.run("getComputedStyle(document.activeElement).outlineStyle") != "none"
    form = [
        "measure",
        "by0",
        "by1",
        "by2",
        "swap",
        "filter",
        "compare",
        "percent",
        "sort",
        "chart-kind",
        "layout",
        "level",
    ]
    wanted = [*form, "scroll", "command", "python", "csv", "share"]
    assert [r for r in reached if r in wanted] == wanted
    tab.run("$('by0').focus()")
    tab.press("ArrowDown")
    settled(tab)
    assert tab.run("$('by0').value") == NAMES[0]
    assert tab.run("document.activeElement.id") == "by0", "focus stays where the reader is"
    pick(tab, "filter", "age")
    assert tab.run("document.activeElement.type") == "checkbox"
    tab.press(" ")
    settled(tab)
    assert tab.run("$('title').innerText").endswith("; age 0-9")


def test_what_a_screen_reader_gets(tab: Browser, server: Server) -> None:
    visit(tab, server.address + view(by=["age", "sex"], where="sex", label="male"))
    named = """[...document.querySelectorAll('select, input, button, a, summary')].filter(c => c.offsetParent !== null)
      .every(c => (c.labels?.length && c.labels[0].innerText.trim()) || c.getAttribute('aria-label') || c.textContent.trim())"""
    assert tab.run(named)
    assert tab.run("[...document.querySelectorAll('table')].every(t => t.caption.textContent.length > 5)")  # fmt: skip
    assert tab.run("[...document.querySelectorAll('th')].every(h => ['row', 'col', 'colgroup'].includes(h.scope))")  # fmt: skip
    assert tab.run("$('status').getAttribute('role')") == "status"
    assert tab.run("document.querySelectorAll('h1').length") == 1
    assert tab.run("document.querySelectorAll('main').length") == 1
    assert tab.run("document.documentElement.lang") == "en"
    tree = tab.call("Accessibility.getFullAXTree")["nodes"]
    names = [n["name"]["value"] for n in tree if n.get("role", {}).get("value") == "image" and n.get("name")]  # fmt: skip
    assert any("People by age, sex" in name for name in names)


def test_colours_follow_the_reader(tab: Browser, server: Server) -> None:
    visit(tab, server.address + view(by=["column 002", "column 003"]))
    cell = "document.querySelector('#chart rect').getAttribute('fill')"
    page = "getComputedStyle(document.body).backgroundColor"
    light = tab.run(cell), tab.run(page)
    tab.scheme("dark")
    tab.wait(f"{cell} !== {light[0]!r}")
    assert tab.run(page) != light[1]


# -- from disk -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(published: Published, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("export") / "site"
    assert export(published, "release/", target) == []
    return target


def test_an_export_works_from_disk(tab: Browser, site: Path, published: Published) -> None:
    home = (site / "index.html").as_uri()
    visit(tab, home)
    assert tab.run("$('problem').innerText") == ""
    visit(tab, home + view(by=["sex", "age"]))
    shown = np.array([[first_number(c) for c in row[1:]] for row in table(tab)[1:]])
    np.testing.assert_allclose(shown, published.model.marginal(("age", "sex")).T, atol=0.51)
    visit(tab, home + view(by=["age", NAMES[0]], percent="column"))
    assert tab.run("$('problem').innerText") == ""
    visit(tab, home + view(by="age", where=NAMES[0], label=HOSTILE[0]))
    own = published.model.marginal(("age", NAMES[0]))[:, 0]
    shown = np.array([first_number(row[1]) for row in table(tab)[1:]])
    np.testing.assert_allclose(shown, own, atol=0.51)
    command = shlex.split(tab.run("$('command').textContent"))
    assert command[:3] == ["consilience", "answer", "release/"]
    again = run("answer", published.path, *command[3:], "--csv", "-q")
    told = unquote(tab.run("$('csv').href").partition(",")[2])
    ours, theirs = (list(csv.DictReader(io.StringIO(t))) for t in (told, again.stdout))
    for one, other in zip(ours, theirs, strict=True):
        assert {k: float(v) for k, v in one.items() if k != "age"} == {
            k: float(v) for k, v in other.items() if k != "age"
        }
    visit(tab, home + view(by="sex", measure="mean", of="income"))
    np.testing.assert_allclose(
        [first_number(r[1]) for r in table(tab)[1:]],
        published.answer("mean(income) by sex").values,
        rtol=1e-3,
    )
    visit(tab, home + view(by="sex", where="age", label=["0-9", "10-19"]))
    assert "none of them" in tab.run("$('problem').innerText")
    assert tab.errors == []
    assert {url.partition(":")[0] for url in tab.requests} <= {"file", "data", "about"}


def test_an_export_leaves_out_what_is_too_large(published: Published, tmp_path: Path) -> None:
    left = export(published, "release/", tmp_path / "small", most=2000)
    assert len(left) > 30
    held = len(list((tmp_path / "small" / "answers").iterdir()))
    many = len(published.model.domain)
    pairs = many * (many - 1) // 2 + (many - 1)  # the hierarchy goes with all but its own column
    assert held + len(left) == 1 + many + 1 + pairs
