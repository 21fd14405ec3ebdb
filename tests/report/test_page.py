"""The report page in a real browser: from disk, no network, nothing in the console, every chart drawn, usable by anybody."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import consilience as cs
from consilience.domain import Domain
from consilience.measurements import Measurement
from consilience.mechanisms.mechanism import Result
from consilience.model import Uncertainty
from consilience.progress import quiet
from consilience.report import write_report
from consilience.report.page import page as html_page
from consilience.report.subject import subject_of
from report.browser import Browser, browser, find_chromium
from report.cases import BUDGET, DOMAIN, LABELS, result

CHROMIUM = find_chromium()
needs_browser = pytest.mark.skipif(
    CHROMIUM is None,
    reason="needs Chromium: apt-get install chromium, or CONSILIENCE_CHROMIUM=/path/to/it",
)
PAIRS = 6
FIXED = 5
"""Charts of the page: matrix, plan, convergence, residuals, rows. A table has one more, a pair of attributes two."""


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
    tab.wait("[...document.querySelectorAll('.chart')].every(c => c.dataset.drawn)")
    return tab.run("document.querySelectorAll('.chart').length")


def choose(tab: Browser, name: str) -> None:
    """Open a table as a reader does: find it in the list, and click."""
    type_into(tab, "filter", "")
    tab.run("document.querySelectorAll('#chips [aria-pressed=true]').forEach(c => c.click())")
    tab.run(f"""(() => {{
      const shelf = document.getElementById('listed');
      const at = () => [...document.querySelectorAll('.option')].find(o => o.title === {name!r});
      for (shelf.scrollTop = 0; !at() && shelf.scrollTop + shelf.clientHeight < shelf.scrollHeight;) {{
        shelf.scrollTop += 100;
        shelf.dispatchEvent(new Event('scroll'));
      }}
      at().click();
    }})()""")
    tab.wait("[...document.querySelectorAll('#detail .chart')].every(c => c.dataset.drawn)")


def type_into(tab: Browser, where: str, text: str) -> None:
    tab.run(
        f"(() => {{ const f = document.getElementById({where!r}); f.value = {text!r}; f.dispatchEvent(new Event('input')); }})()"
    )


def names_listed(tab: Browser) -> list[str]:
    return tab.run("[...document.querySelectorAll('.option')].map(o => o.title)")


COLOURS = """(async () => {
  const image = new Image();
  image.src = 'data:image/png;base64,%s';
  await image.decode();
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [image.width, image.height];
  const pen = canvas.getContext('2d');
  pen.drawImage(image, 0, 0);
  const seen = {}, pixels = pen.getImageData(0, 0, image.width, image.height).data;
  for (let i = 0; i < pixels.length; i += 4) {
    const colour = pixels.slice(i, i + 3).join(' ');
    seen[colour] = (seen[colour] ?? 0) + 1;
  }
  return Object.values(seen).sort((a, b) => b - a);
})()"""


def pixels(tab: Browser, selector: str) -> list[int]:
    """How many pixels of a part of the page have each colour, the most frequent first: what a reader sees, whatever drew it."""
    tab.run(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center'}})")
    box = tab.run(
        f"(({{x, y, width, height}}) => ({{x: x + scrollX, y: y + scrollY, width, height}}))"
        f"(document.querySelector({selector!r}).getBoundingClientRect())"
    )
    taken = tab.call("Page.captureScreenshot", format="png", clip={**box, "scale": 1})
    return tab.run(COLOURS % taken["data"])


@needs_browser
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_chart_is_drawn_without_a_word_in_the_console(
    tab: Browser, page: Path, width: int, scheme: str
) -> None:
    tab.size(width, 844, mobile=width < 500)
    tab.scheme(scheme)
    tab.open(page.as_uri())
    assert draw_everything(tab) == FIXED + 2
    drawn = 0
    for name in ("age", "income", "age × sex", "sex × income"):
        choose(tab, name)
        for figure in range(tab.run("document.querySelectorAll('#detail .chart').length")):
            tab.run(
                f"[...document.querySelectorAll('#detail .chart')].forEach((c, i) => c.id = i === {figure} ? 'looked' : '')"
            )
            seen = pixels(tab, "#looked")
            assert len(seen) > 20, "axes, words and marks in their colours"
            assert sum(seen[1:]) > 0.05 * sum(seen), "and not only at the edge"
            drawn += 1
    assert drawn == 2 * 1 + 2 * 2
    assert tab.errors == []
    asked = {url.partition(":")[0] for url in tab.requests}
    assert asked == {"file", "data"}, (
        "nothing is fetched; the data are the pixels that were looked at"
    )
    assert tab.run("document.documentElement.scrollWidth") <= width


@needs_browser
def test_a_chart_that_is_not_drawn_would_be_seen(tab: Browser) -> None:
    """The check of pixels itself: an emptied chart does not pass."""
    choose(tab, "age × sex")
    tab.run("document.querySelector('#detail .chart').replaceChildren()")
    assert len(pixels(tab, "#detail .chart")) < 5


@needs_browser
def test_charts_wait_until_they_are_seen(tab: Browser) -> None:
    tab.wait("[...document.querySelectorAll('#detail .chart')].every(c => c.dataset.drawn)")
    assert tab.run("document.querySelectorAll('.chart[data-drawn]').length") < FIXED + 2


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
    first = tab.run("document.querySelector('.summary ol a').innerText")
    tab.wait(f"document.querySelector('#detail h3').firstChild.data === {first!r}")
    assert tab.run("document.querySelector('[aria-selected=true]').title") == first


@needs_browser
def test_tables_hold_the_numbers_of_the_model(tab: Browser, release: Result) -> None:
    choose(tab, "age × sex")
    shown = tab.run("""[...document.querySelectorAll('#detail tbody tr')].map(
      r => [...r.querySelectorAll('td')].map(d => d.firstChild.data))""")
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
    assert tab.run("document.activeElement.id") == "listed"
    tab.press("Home")
    tab.wait("document.querySelector('#detail .chart[data-drawn]')")
    assert tab.run("document.querySelector('#detail h3').firstChild.data") == "age"
    tab.press("ArrowDown")
    second = tab.run("document.querySelector('#detail h3').firstChild.data")
    active = "document.getElementById(document.getElementById('listed').getAttribute('aria-activedescendant')).title"
    assert second != "age"
    assert tab.run(active) == second
    tab.press("Home")
    tab.press("Tab")
    assert tab.run("document.activeElement.getAttribute('role')") == "region"
    assert tab.run("document.activeElement.getAttribute('aria-label')") == "Table of age"


@needs_browser
def test_tables_can_be_found_grouped_and_ordered(tab: Browser) -> None:
    group = "[...document.querySelectorAll('.group')].map(g => g.childNodes[1].data)"
    assert tab.run(group) == list(DOMAIN), "in groups by column"
    type_into(tab, "filter", "sex inc")
    assert names_listed(tab) == ["sex × income"]
    assert tab.run("document.getElementById('found').innerText") == "1 of 10 tables"
    type_into(tab, "filter", "")
    tab.run(
        "[...document.querySelectorAll('#chips button')].find(c => c.innerText === 'sex').click()"
    )
    assert tab.run("document.getElementById('found').innerText") == "4 of 10 tables"
    assert all("sex" in name.split(" × ") for name in names_listed(tab))
    tab.run("document.querySelector('#chips [aria-pressed=true]').click()")
    before = len(names_listed(tab))
    tab.run("document.querySelector('.group').click()")
    assert len(names_listed(tab)) == before - 4, "age and its pairs are folded away"
    tab.run(
        """(() => { const f = document.getElementById('order'); f.selectedIndex = 1; f.dispatchEvent(new Event('change')); })()"""
    )
    shares = [
        float(s.split()[0])
        for s in tab.run("[...document.querySelectorAll('.option .number')].map(o => o.innerText)")
    ]
    assert len(shares) == 10
    assert shares == sorted(shares, reverse=True)


@needs_browser
@pytest.mark.parametrize("width", [1500, 390])
def test_a_thousand_tables_make_no_longer_page(
    program: Browser, release: Result, tmp_path: Path, width: int
) -> None:
    """The list is as long as what can be seen of it, wide tables say that they are, and the screen is used."""
    many = Domain({f"column {i:02}": 2 if i else 40 for i in range(19)})
    cliques = [*combinations(many, 3)]
    assert len(cliques) == 969
    measured = [Measurement(c, np.full(many.size(c), 5.0), stddev=1.0) for c in cliques]
    subject = subject_of(
        cs.reconstruct(many, measured, total=40.0),
        title="Many",
        labels=None,
        promise=None,
        mechanism="",
        errors={c: _some(many.shape_of(c)) for c in [*cliques, *((a,) for a in many)]},
        rows=0,
        replicates=2,
        version="0",
        progress=quiet,
    )
    path = tmp_path / "many.html"
    path.write_text(html_page(subject), encoding="utf-8")
    program.size(width, 900, mobile=width < 500)
    program.errors.clear()
    program.open(path.as_uri())
    assert program.run("document.querySelectorAll('.option').length") < 40
    assert program.run("document.documentElement.scrollHeight") < (6000 if width > 1000 else 9500)
    assert program.run("document.documentElement.scrollWidth") <= width
    used = program.run("document.querySelector('.browse').getBoundingClientRect().width")
    assert used > 0.85 * width
    choose(program, "column 16 × column 17 × column 18")
    assert program.run("document.querySelector('#detail h3').firstChild.data").endswith("column 18")
    choose(program, "column 00")
    assert "40 rows: scroll down" in program.run("document.querySelector('.cue').innerText")
    assert program.run("document.querySelector('.frame').classList.contains('below')")
    program.run("document.querySelector('.scroll').scrollTo(0, 1e6)")
    program.wait("!document.querySelector('.frame').classList.contains('below')")
    assert program.errors == []


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


def _some(shape: tuple[int, ...]) -> Uncertainty:
    ones = np.ones(shape)
    return Uncertainty(5 * ones, ones, 0 * ones, ones, "bootstrap", 2)
