"""The report page in a real browser: from disk, no network, nothing in the console, every chart drawn, usable by anybody."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from consilience.mechanisms.mechanism import Result
from consilience.report import write_report
from report.browser import Browser, browser, find_chromium
from report.cases import BUDGET, DOMAIN, LABELS, result

CHROMIUM = find_chromium()
needs_browser = pytest.mark.skipif(
    CHROMIUM is None,
    reason="needs Chromium: apt-get install chromium, or CONSILIENCE_CHROMIUM=/path/to/it",
)
PAIRS = 6
CHARTS = (
    5 + len(DOMAIN) + 2 * PAIRS
)  # matrix, plan, convergence, residuals, rows; then a table each, pairs two


@pytest.fixture(scope="module")
def release() -> Result:
    return result()


@pytest.fixture(scope="module")
def page(release: Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    return write_report(
        release, path, labels=LABELS, budget=BUDGET, rows=2000, replicates=4, title="A <release> & more"
    )  # fmt: skip


@pytest.fixture(scope="module")
def program() -> Iterator[Browser]:
    assert CHROMIUM is not None
    with browser(CHROMIUM) as found:
        yield found


@pytest.fixture
def tab(program: Browser, page: Path) -> Browser:
    """The page on a desktop, in light colours, freshly opened, with nothing said yet."""
    program.call("Page.navigate", url="about:blank")
    program.size(1280, 900)
    program.scheme("light")
    program.errors.clear()
    program.requests.clear()
    program.open(page.as_uri())
    return program


def draw_everything(tab: Browser) -> int:
    tab.run("void (location.hash = '#everything')")
    tab.wait("document.querySelectorAll('.chart').length > 6")
    tab.wait("[...document.querySelectorAll('.chart')].every(c => c.dataset.drawn)")
    return tab.run("document.querySelectorAll('.chart').length")


@needs_browser
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_chart_is_drawn_without_a_word_in_the_console(
    tab: Browser, page: Path, width: int, scheme: str
) -> None:
    tab.size(width, 844, mobile=width < 500)
    tab.scheme(scheme)
    tab.open(page.as_uri())
    assert draw_everything(tab) == CHARTS
    empty = "[...document.querySelectorAll('.chart')].filter(c => !c.querySelector('svg path, svg rect, canvas')).length"
    assert tab.run(empty) == 0
    assert tab.errors == []
    assert {url.partition(":")[0] for url in tab.requests} == {"file"}
    assert tab.run("document.documentElement.scrollWidth") <= width


@needs_browser
def test_charts_wait_until_they_are_seen(tab: Browser) -> None:
    assert tab.run("document.querySelectorAll('details .chart').length") == 0
    tab.wait("document.querySelectorAll('.chart[data-drawn]').length > 0 || scrollY === 0")
    assert tab.run("document.querySelectorAll('.chart[data-drawn]').length") < 5


@needs_browser
def test_labels_are_text_and_never_markup(tab: Browser) -> None:
    draw_everything(tab)
    assert tab.run("window.broken") is None
    assert tab.run("document.title") == "A <release> & more"
    assert tab.run("document.querySelectorAll('main b').length") == 0


@needs_browser
def test_the_first_minute(tab: Browser, release: Result) -> None:
    said = tab.run("document.querySelector('.summary').innerText")
    assert "epsilon 1" in said
    assert "replace-one" in said
    assert tab.run("document.querySelectorAll('.summary ol a').length") == 5
    assert "90 % interval" in said
    assert "NOT PRIVATE" in tab.run("document.querySelector('.alarm').innerText")
    tab.run("document.querySelector('.summary ol a').click()")
    tab.wait("document.querySelector('details[open]')")
    first = tab.run("document.querySelector('.summary ol a').innerText")
    assert tab.run("document.querySelector('details[open] .name').innerText") == first


@needs_browser
def test_tables_hold_the_numbers_of_the_model(tab: Browser, release: Result) -> None:
    draw_everything(tab)
    shown = tab.run("""(() => {
      const found = [...document.querySelectorAll('details')].find(d => d.dataset.name === 'age × sex');
      return [...found.querySelectorAll('tbody tr')].map(r => [...r.querySelectorAll('td')].map(d => d.firstChild.data));
    })()""")
    counts = np.array([[float(v.replace(",", "")) for v in row] for row in shown])
    np.testing.assert_allclose(counts, release.model.marginal(("age", "sex")), atol=0.56)
    heads = "[...document.querySelectorAll('table.data th')].every(h => h.scope === 'row' || h.scope === 'col')"
    assert tab.run(heads)
    assert tab.run("[...document.querySelectorAll('table')].every(t => t.caption)")


@needs_browser
def test_an_answer_can_be_looked_up(tab: Browser, release: Result) -> None:
    tab.run("""(() => {
      const which = document.getElementById('which');
      which.value = [...which.options].find(o => o.text === 'age × income').value;
      which.dispatchEvent(new Event('change'));
      const [age, income] = document.querySelectorAll('#where select');
      age.selectedIndex = 2; income.selectedIndex = 1;
      income.dispatchEvent(new Event('change'));
    })()""")
    said = tab.run("document.querySelector('#answer .big').innerText")
    count = release.model.marginal(("age", "income"))[2, 1]
    assert float(said.replace(",", "")) == pytest.approx(count, abs=0.56)


@needs_browser
def test_everything_can_be_reached_with_the_keyboard(tab: Browser) -> None:
    tab.press("Tab")
    assert tab.run("document.activeElement.className") == "skip"
    assert tab.run("getComputedStyle(document.activeElement).outlineStyle") != "none"
    tab.run("document.getElementById('order').focus()")
    tab.press("Tab")
    assert tab.run("document.activeElement.tagName") == "SUMMARY"
    tab.press("Enter")
    tab.wait("document.querySelector('details[open] .chart[data-drawn]')")
    tab.press("Tab")
    assert tab.run("document.activeElement.getAttribute('role')") == "region"
    assert tab.run("document.activeElement.getAttribute('aria-label')") == "Table of age"


@needs_browser
def test_tables_can_be_found_and_ordered(tab: Browser) -> None:
    tab.run(
        """(() => { const f = document.getElementById('filter'); f.value = 'sex inc'; f.dispatchEvent(new Event('input')); })()"""
    )
    visible = "[...document.querySelectorAll('details[data-name]')].filter(d => !d.hidden).map(d => d.dataset.name)"
    assert tab.run(visible) == ["sex × income"]
    assert tab.run("document.getElementById('found').innerText") == "1 of 10 tables"
    tab.run(
        """(() => { const f = document.getElementById('order'); f.selectedIndex = 1; f.dispatchEvent(new Event('change')); })()"""
    )
    shares = tab.run(
        "[...document.querySelectorAll('details[data-name]')].map(d => +d.dataset.variation)"
    )
    assert shares == sorted(shares, reverse=True)


@needs_browser
def test_colours_follow_the_reader(tab: Browser) -> None:
    light = tab.run("getComputedStyle(document.body).backgroundColor")
    tab.run("document.querySelector('#residuals').scrollIntoView()")
    tab.wait("document.querySelector('[data-spec=\"chart-4\"][data-drawn]')")
    colour = (
        "document.querySelector('[data-spec=\"chart-4\"] .mark-rect path').getAttribute('fill')"
    )
    bar = tab.run(colour)
    tab.scheme("dark")
    assert tab.run("getComputedStyle(document.body).backgroundColor") != light
    tab.wait(f"{colour} !== {bar!r}")
    assert tab.errors == []
