"""The report page: one HTML file with everything inside, data once, charts drawn when they come into view.

`write_report` makes it from a release, a result or a model.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from html import escape
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np

from consilience.domain import Buffer
from consilience.errors import ConsilienceError
from consilience.mechanisms.mechanism import Result
from consilience.model import Model
from consilience.model.sampling import SampledRows
from consilience.privacy import Account, Budget
from consilience.progress import Progress, quiet
from consilience.release import Published, read_release
from consilience.report import charts, quality, sections
from consilience.report.charts import DARK, FONT, LIGHT, bundle, chart_config, css_variables
from consilience.report.promise import Promise, promise_of, standard_errors
from consilience.report.subject import Subject, subject_of
from consilience.report.tables import LEVEL, MEANING, Labels, PublishedTable

MOST_CELLS = 300_000
"""Of all tables in one page: about 3 MB. The largest tables are left out beyond it, and listed."""


def embedded(
    tables: Sequence[PublishedTable], most: int = MOST_CELLS
) -> tuple[list[PublishedTable], list[PublishedTable]]:
    """(those that go into the page in their order, those left out), the smallest first while they fit."""
    room, chosen = most, set()
    for i in sorted(range(len(tables)), key=lambda i: tables[i].counts.size):
        if tables[i].counts.size > room:
            break
        room -= tables[i].counts.size
        chosen.add(i)
    inside = [t for i, t in enumerate(tables) if i in chosen]
    return inside, [t for i, t in enumerate(tables) if i not in chosen]


def table_json(table: PublishedTable) -> str:
    """{"a": attributes, "c": counts, "l" and "h": the ends of their intervals, null if these are not known}."""
    numbers = {"c": table.counts, "l": table.low, "h": table.high}
    shown = {
        name: _one_decimal(v) if name == "c" or table.known else None for name, v in numbers.items()
    }
    return script_json({"a": table.clique, **shown})


def script_json(value: Any) -> str:
    """JSON that can stand inside a script element, whatever the labels hold."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _one_decimal(values: Buffer) -> list[float | int]:
    return [_plain(v) for v in np.round(values.reshape(-1), 1).tolist()]


def _plain(value: float) -> float | int:
    return int(value) if value == int(value) else value


ASSETS = files("consilience.report")
WIDE = ("answers", "tables")
"""Sections that take the whole width of a wide screen; of the others two stand side by side."""


class _Specs:
    """The fixed charts of a page, by name."""

    def __init__(self) -> None:
        self.kept: dict[str, charts.Spec] = {}

    def __call__(self, spec: charts.Spec) -> str:
        name = f"chart-{len(self.kept) + 1}"
        self.kept[name] = spec
        return name


def page(subject: Subject) -> str:
    """The whole page."""
    inside, _ = embedded(subject.tables)
    places = {t.clique: f"t{i}" for i, t in enumerate(inside)}

    def place(table: PublishedTable) -> str:
        name = places.get(table.clique)
        return "tables" if name is None else f"table-{name}"

    add = _Specs()
    parts = [
        ("privacy", "What is promised", sections.privacy(subject, add)),
        ("reliability", "How far it can be relied on", quality.reliability(subject, add)),
        ("answers", "Look up an answer", _answers(subject, inside, places)),
        ("tables", "The tables", _tables(subject)),
        ("making", "How it was made", sections.making(subject, add)),
        ("residuals", "Residuals against noise", quality.residuals(subject, add)),
        ("rows", "Synthetic rows against the tables", quality.rows(subject, add)),
    ]
    body = "".join(
        f'<section{" class=wide" * (key in WIDE)} aria-labelledby="{key}"><h2 id="{key}">{title}</h2>{inner}</section>'
        for key, title, inner in parts
    )
    links = "".join(f'<li><a href="#{key}">{title}</a></li>' for key, title, _ in parts)
    alarm = ""
    if subject.promise is not None and not subject.promise.private:
        alarm = f'<p class="alarm" role="alert">{escape(subject.promise.mark)}. Do not publish.</p>'
    total = f"{subject.model.total:,.0f} people, {len(subject.model.domain)} attributes, {len(subject.tables):,} tables"
    return "".join(
        [
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(subject.title)}</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<link rel="icon" href="data:,">',
            f"<style>{styles()}</style></head><body>",
            '<a class="skip" href="#main">Skip to the content</a>',
            f'<header><h1>{escape(subject.title)}</h1><p class="quiet">{total}</p>{alarm}</header>',
            '<main id="main">',
            sections.summary(subject, place),
            f'<nav aria-label="Contents"><ul>{links}</ul></nav>',
            "<noscript><p>The charts and the tables below need JavaScript; the text does not.</p></noscript>",
            body,
            f"</main><footer><p>Made by consilience {escape(subject.version)}. This page holds only published numbers and what "
            "follows from them; it fetches nothing.</p></footer>",
            '<div id="tip" role="status" hidden></div>',
            _data(subject, add, inside, places),
            f"<script>{_safe(bundle())}</script><script>{_asset('page.js')}</script></body></html>\n",
        ]
    )


def styles() -> str:
    dark = f"@media (prefers-color-scheme: dark) {{ :root {{ {css_variables(DARK)} }} }}"
    return f":root {{ --font: {FONT}; {css_variables(LIGHT)} }}\n{dark}\n{_asset('page.css')}"


def _asset(name: str) -> str:
    return ASSETS.joinpath(name).read_text(encoding="utf-8")


def _safe(script: str) -> str:
    return script.replace("</script", "<\\/script")


# -- tables and answers ------------------------------------------------------------------------------


def _tables(subject: Subject) -> str:
    """The list is filled by page.js from `table_list`: only what can be seen of it is made."""
    chips = "".join(
        f'<button type="button" aria-pressed="false">{escape(a)}</button>'
        for a in subject.model.domain
    )
    unclear = (
        f"Intervals are meant to hold the true count {100 * LEVEL:.0f} % of the time, each by itself; the noise is all that "
        "they count."
        if subject.worst
        else "There are no intervals."
    )
    return (
        f"<p>Choose a table for its chart and its numbers. {unclear}</p>"
        f'<div id="chips" role="group" aria-label="Tables with these attributes">{chips}</div>'
        '<div class="controls"><label>Find tables by attribute<input id="filter" type="search" autocomplete="off"></label>'
        '<label>Order<select id="order"><option>by column</option><option>least reliable first</option></select></label>'
        '<span id="found" role="status" class="quiet"></span></div>'
        '<div class="browse"><div id="listed" role="listbox" tabindex="0" aria-label="Tables"><div></div></div>'
        '<article id="detail" aria-live="polite"></article></div>'
    )


def table_list(subject: Subject, places: dict[tuple[str, ...], str]) -> list[dict[str, Any]]:
    """What the list says of each table; one that is too large for the page has no place `id` in it."""
    misfits = subject.misfits
    return [
        {
            "id": places.get(t.clique),
            "a": t.clique,
            "v": float(f"{t.variation:.3g}") if t.known else None,
            "b": t.basis,
            "m": int(t.name in misfits),
            "n": t.counts.size,
            "u": float(f"{t.unclear:.3g}"),
            "h": t.how,
        }
        for t in subject.tables
    ]


def _answers(
    subject: Subject, inside: Sequence[PublishedTable], places: dict[tuple[str, ...], str]
) -> str:
    """Starts at the example of the summary."""
    shown = subject.example.table.clique
    options = "".join(
        f'<option value="{places[t.clique]}"{" selected" if t.clique == shown else ""}>{escape(t.name)}</option>'
        for t in inside
    )
    start = " ".join(str(i) for i in subject.example.codes)
    return (
        "<p>Choose a table and a value of each of its attributes.</p>"
        f'<div class="controls"><label>Table<select id="which">{options}</select></label>'
        f'<span id="where" class="controls" data-start="{start}"></span></div>'
        '<output id="answer" aria-live="polite"></output>'
    )


# -- data --------------------------------------------------------------------------------------------


def _data(
    subject: Subject,
    specs: _Specs,
    inside: Sequence[PublishedTable],
    places: dict[tuple[str, ...], str],
) -> str:
    templates = {
        "bars": charts.bars(),
        "columns": charts.bars(long=True),
        "counts": charts.heatmap(value="count"),
        "reach": charts.heatmap(value="reach"),
        "long": charts.LONG,
    }
    blocks = {
        "themes": script_json({"light": chart_config(LIGHT), "dark": chart_config(DARK)}),
        "templates": script_json(templates),
        "labels": script_json(subject.labels),
        "meanings": script_json(MEANING),
        "list": script_json(table_list(subject, places)),
        **{name: script_json(spec) for name, spec in specs.kept.items()},
        **{places[t.clique]: table_json(t) for t in inside},
    }
    for text in blocks.values():
        json.loads(text)  # a page with a block that cannot be read must not leave
    return "".join(
        f'<script type="application/json" id="{name}">{text}</script>'
        for name, text in blocks.items()
    )


def write_report(
    what: Result | Model | Published | str | Path,
    path: str | Path,
    *,
    title: str = "A private release, and how far to trust it",
    labels: Labels | None = None,
    budget: Budget | None = None,
    account: Account | None = None,
    mechanism: str = "",
    rows: SampledRows | int | None = None,
    replicates: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Write one self-contained HTML page about a release folder, a result or a model, and say where.

    labels: {attribute: a label per code}. budget: what a result was calibrated to; account: what its ledger holds
    (`Ledger.read()`). A release folder knows all three. rows: synthetic rows to compare with the tables, how many to draw
    (0: none), or None for as many as the total, 50,000 at most. replicates: refits behind standard errors; those
    that the model kept, or as many as are usual, unless given. progress sees refits and rows.
    """
    charts.drawing()  # before anything is refitted
    promise, errors = None, None
    if isinstance(what, str | Path):
        what = read_release(Path(what))
    if isinstance(what, Published):
        model, labels = what.model, what.labels
        promise, errors = promise_of(what), standard_errors(what)
        mechanism = what.facts.get("mechanism", {}).get("calibrated", mechanism)
    elif isinstance(what, Result):
        model = what.model
        promise = Promise.of(what.cost, what.private, budget, account)
    elif isinstance(what, Model):
        model = what
    else:
        raise ConsilienceError(
            f"a report is made of a Result, a Model or a release folder, got {type(what).__name__}"
        )
    subject = subject_of(
        model,
        title=title,
        labels=labels,
        promise=promise,
        mechanism=mechanism,
        errors=errors,
        rows=rows,
        replicates=replicates,
        version=version("consilience"),
        progress=progress or quiet,
    )
    return write_text(page(subject), path)


def write_text(content: str | bytes, path: str | Path) -> Path:
    """All of it or nothing: written beside its place, then moved there."""
    target = Path(path)
    beside = target.with_name(f".{target.name}.{token_hex(8)}")
    try:
        try:
            beside.write_bytes(content.encode() if isinstance(content, str) else content)
            os.replace(beside, target)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise ConsilienceError(
            f"a report or picture must be written where files can be written, got {str(target)!r}: {error.strerror or error}"
        ) from error
    return target
