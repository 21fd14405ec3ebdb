"""The sections of a report as HTML: what was promised, how it was made, and how good it is. All text is escaped here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

from consilience.markup import html_table
from consilience.report import charts
from consilience.report.promise import NOT_PROMISED, Promise, in_words
from consilience.report.residuals import EDGES, POINTS
from consilience.report.subject import Subject
from consilience.report.tables import ASSUMED, INFERRED, MEANING, MEASURED, PublishedTable
from consilience.solvers.planner import show_bytes

AddChart = Callable[[charts.Spec], str]
"""Keeps a specification for the page and gives it a name."""


def percent(share: float) -> str:
    """0.0123 as 1.23 %, three digits."""
    return f"{100 * share:.3g} %"


def count(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.1f}"


def paragraph(text: str, kind: str = "") -> str:
    return f"<p{f' class={kind!r}' if kind else ''}>{escape(text)}</p>"


def facts(caption: str, rows: Iterable[Sequence[object]], head: Sequence[object] = ()) -> str:
    table = html_table(caption, rows, head).replace("<table>", '<table class="facts">')
    return f'<div class="plain">{table}</div>'


def figure(name: str, caption: str, label: str, *, narrow: bool = True) -> str:
    width = ' class="narrow"' if narrow else ""
    return (
        f"<figure{width}><figcaption>{escape(caption)}</figcaption>"
        f'<div class="chart" role="img" aria-label="{escape(label)}" data-spec="{name}"></div></figure>'
    )


# -- the first minute --------------------------------------------------------------------------------


def summary(subject: Subject, place: Callable[[PublishedTable], str]) -> str:
    """Three boxes: what was spent, the five least reliable tables, one answer with its interval."""
    example, worst = subject.example, subject.worst
    listed = "".join(
        f'<li><a href="#{place(t)}">{escape(t.name)}</a> <span class="number">{percent(t.variation)}</span></li>'
        for t in worst
    )
    title = f"{'The five l' if len(worst) == 5 else 'L'}east reliable tables"
    return (
        f'<div class="summary">{_spent(subject.promise)}'
        f'<section class="card" aria-labelledby="s2"><h2 id="s2">{title}</h2><ol>{listed}</ol>'
        '<p class="quiet">Expected total variation: the share of people who would have to be moved to another cell.</p></section>'
        f'<section class="card" aria-labelledby="s3"><h2 id="s3">One answer, with its interval</h2>'
        f'<p class="big number">{count(example.count)}</p>'
        f"<p>people with {escape(example.question)}</p>"
        f"<p>90 % interval: <strong class='number'>{count(example.low)} to {count(example.high)}</strong></p>"
        '<p class="quiet"><a href="#answers">Look up others</a></p></section></div>'
    )


def _spent(promise: Promise | None) -> str:
    if promise is None:
        inner = paragraph("Not known: this page was made from noisy tables alone.")
    else:
        share = "" if promise.share is None else f"<p>{percent(promise.share)} of the budget</p>"
        total = ""
        if promise.ledger is not None:
            used = sum(line.share for line in promise.ledger)
            many = f"{len(promise.ledger)} release{'s' if len(promise.ledger) != 1 else ''}"
            total = f"<p>The table's ledger: {percent(used)} spent by {many}</p>"
        delta = f"<p>delta {promise.delta:g}</p>" if promise.delta else "<p>delta 0 (pure)</p>"
        inner = (
            f'<p class="big number">epsilon {promise.epsilon:g}</p>{delta}'
            f"<p>for {escape(promise.neighbours)} neighbours</p>{share}{total}"
            '<p class="quiet"><a href="#privacy">What that means</a></p>'
        )
    return f'<section class="card" aria-labelledby="s1"><h2 id="s1">What was spent</h2>{inner}</section>'


# -- privacy -----------------------------------------------------------------------------------------


def privacy(subject: Subject, add: AddChart) -> str:
    promise = subject.promise
    if promise is None:
        return paragraph(
            "This page was made from noisy tables whose origin is not recorded here. Making tables consistent costs no "
            "privacy, so whatever was promised when they were made noisy still holds, and nothing more."
        )
    parts = [paragraph(text) for text in in_words(promise)]
    left = "".join(f"<li>{escape(text)}</li>" for text in NOT_PROMISED)
    parts.append(f"<h3>What is not promised</h3><ul>{left}</ul>")
    rows: list[tuple[str, str]] = [
        ("neighbours", promise.neighbours),
        ("epsilon", f"{promise.epsilon:g}"),
        ("delta", f"{promise.delta:g}"),
    ]
    if promise.rho is not None:
        rows.append(("zero-concentrated (rho) spent", f"{promise.rho:.4g}"))
    if subject.mechanism:
        rows.append(("mechanism", subject.mechanism))
    rows.append(
        ("noise", "operating system's entropy" if promise.private else "seeded: not private")
    )
    parts.append(facts("In numbers", rows))
    if promise.ledger is not None:
        parts.append(_ledger(promise, add))
    return "".join(parts)


def _ledger(promise: Promise, add: AddChart) -> str:
    lines = promise.ledger or ()
    rows = [(line.time[:19].replace("T", " "), line.what, percent(line.share)) for line in lines]
    table = facts(
        "All that the ledger of this table has seen",
        rows,
        ("time", "release", "share of the budget"),
    )
    left = max(0.0, 1 - sum(line.share for line in lines))
    shares = [
        {"what": f"{i}. {line.what}"[:60], "percent": 100 * line.share}
        for i, line in enumerate(lines, 1)
    ]
    shares.append({"what": "left", "percent": 100 * left})
    name = add(
        charts.ranking(shares, label="what", value="percent", title="share of the budget, %")
    )
    return table + figure(
        name, "How the budget was divided, in percent.", "Shares of the budget by release"
    )


# -- how it was made ---------------------------------------------------------------------------------


def making(subject: Subject, add: AddChart) -> str:
    d, model = subject.model.diagnostics, subject.model
    rows: list[tuple[str, str]] = [
        ("measured tables", f"{len(model.cliques):,}"),
        ("noisy numbers", f"{subject.residuals.count:,}"),
        ("noise, standard deviation", _noise(subject)),
        ("total", f"{model.total:,.6g}"),
        ("consistency", f"{model.graph.kind}: {len(model.graph.regions):,} regions"),
        ("solver", d.method),
        ("status", d.status + (f" ({d.advice})" if d.advice else "")),
        ("distance to the best fit, at most", f"{d.gap:.2g} of the objective"),
        ("disagreement between tables", f"{d.violation:.1g}"),
        ("work", f"{d.iterations:,} iterations, {d.seconds:.2f} s"),
    ]
    if d.prior is not None:
        rows.append(("prior", f"{d.prior}: answers are pulled towards it, on purpose"))
    parts = [
        paragraph(
            "The noisy tables contradict each other and hold negative counts. They were replaced by the closest tables that "
            "agree wherever they overlap and have no negative count. This step never saw the data and costs no privacy."
        ),
        facts("The fit", rows),
    ]
    if d.plan is not None:
        shown = [
            {"way": o.consistency, "bytes": min(float(o.bytes), 1e30), "text": show_bytes(o.bytes)}
            for o in d.plan.options
        ]
        name = add(
            charts.against_limit(
                shown, label="way", value="bytes", title="memory, bytes", limit=float(d.plan.budget)
            )
        )
        text = f"What each kind of consistency would have needed; the broken line is what was allowed. Chosen: {d.plan.consistency}, because {d.plan.reason}."
        parts.append(figure(name, text, "Memory needed by each kind of consistency"))
    looks = [
        {"iteration": i.number, "gap": max(i.gap, 1e-16)}
        for i in d.trace
        if 0 <= i.gap < float("inf")
    ]
    if len(looks) > 1:
        name = add(charts.convergence(looks))
        text = "How the fit came close to the best possible one: a proven bound on the relative distance, iteration by iteration."
        parts.append(figure(name, text, "Relative distance to the optimum against iterations"))
    else:
        parts.append(paragraph("The way to the fit was not recorded.", "quiet"))
    return "".join(parts)


def _noise(subject: Subject) -> str:
    widths = sorted({m.stddev for m in subject.model.measurements})
    kinds = " and ".join(sorted({m.noise for m in subject.model.measurements}))
    spread = (
        f"{widths[0]:.4g}" if widths[0] == widths[-1] else f"{widths[0]:.4g} to {widths[-1]:.4g}"
    )
    return f"{spread} people ({kinds})"


# -- how good it is ----------------------------------------------------------------------------------


def reliability(subject: Subject, add: AddChart, limit: int = 40) -> str:
    names = subject.model.domain.attributes
    known = {t.clique: t.variation for t in subject.tables}
    tally = {b: list(subject.basis.values()).count(b) for b in (MEASURED, INFERRED, ASSUMED)}
    words = "; ".join(f"{n:,} {b} ({MEANING[b]})" for b, n in tally.items() if n)
    parts = [
        paragraph(
            "Expected total variation says how far a table is from the truth because of the noise: the share of people who would have "
            "to be moved to another cell. It is computed from the standard errors, which come from the published numbers alone."
        ),
        paragraph(f"Pairs of attributes: {words}.") if words else "",
    ]
    if 1 < len(names) <= limit:
        sign = {MEASURED: "", INFERRED: "?", ASSUMED: "–"}
        cells: list[dict[str, Any]] = []
        for (a, b), basis in subject.basis.items():
            share = known.get((a, b))
            value = None if share is None else 100 * share
            mark = "·" if share is None and basis == MEASURED else sign[basis]
            cells += [
                {"x": x, "y": y, "percent": value, "basis": basis, "sign": mark}
                for x, y in ((a, b), (b, a))
            ]
        cells += [
            {"x": a, "y": a, "percent": 100 * known[(a,)], "basis": "one attribute", "sign": ""}
            for a in names
            if (a,) in known
        ]
        order = {a: i for i, a in enumerate(names)}
        cells.sort(key=lambda c: (order[c["y"]], order[c["x"]]))
        name = add(charts.pair_matrix(cells))
        text = "Expected total variation of every pair, single attributes on the diagonal. Darker (in dark mode: lighter) is less reliable; ? is inferred, – is assumed."
        parts.append(figure(name, text, "Matrix of expected total variation by pair of attributes"))
    return "".join(parts)


def residuals(subject: Subject, add: AddChart) -> str:
    r = subject.residuals
    bins = [
        {"low": float(a), "high": float(b), "density": round(float(d), 5)}
        for a, b, d in zip(EDGES, EDGES[1:], r.density, strict=False)
    ]
    law = [
        {"u": float(u), "density": round(float(d), 5)} for u, d in zip(POINTS, r.law, strict=True)
    ]
    name = add(charts.residuals(bins, law))
    flagged = r.flagged
    verdict = (
        f"{len(flagged)} table{'s are' if len(flagged) > 1 else ' is'} further from the fit than the noise explains: "
        + ", ".join(f"{t.name} (root mean square {t.rms:.2f})" for t in flagged[:8])
        + ". Either the stated noise is too small or something else than noise was added."
        if flagged
        else "No table is further from the fit than its noise explains."
    )
    return "".join(
        [
            paragraph(
                "If all is as declared, the distances between the model and the noisy tables look like the noise that was added, or "
                "somewhat smaller, because the fit follows the noise a little."
            ),
            facts(
                "Standardised residuals",
                [
                    ("root mean square", f"{r.rms:.3f} (noise alone: 1)"),
                    ("beyond two standard deviations", f"{percent(r.beyond)} (noise alone: {percent(r.expected_beyond)})"),
                ],
            ),
            figure(name, "Bars: observed. Line: the law that the noise was drawn from.", "Histogram of standardised residuals against the law of the noise"),
            paragraph(verdict),
        ]
    )  # fmt: skip


def rows(subject: Subject, add: AddChart) -> str:
    found = subject.rows.rows
    if found is None:
        return paragraph(f"No synthetic rows are compared here: {subject.rows.refused}.")
    noise = {t.clique: t.variation for t in subject.tables}
    points = [
        {"table": " × ".join(c), "noise": 100 * noise[c], "rows": 100 * v}
        for c, v in subject.rows.variation.items()
    ]
    mean = sum(p["rows"] for p in points) / len(points)
    worst = max(points, key=lambda p: p["rows"])
    how = (
        "each follows the model exactly"
        if found.exact
        else "drawn from the model's backbone and moved towards its tables"
    )
    name = add(charts.rows_against_tables(points))
    return "".join(
        [
            paragraph(
                f"{len(found.data):,} synthetic rows were drawn for this page ({how}); their tables were compared with the published ones. "
                "Rows add a little error of their own to that of the noise; where a table is published, use the table."
            ),
            facts(
                "Total variation of rows to tables",
                [
                    ("mean over the tables", f"{mean:.3g} %"),
                    ("worst", f"{worst['rows']:.3g} % at {worst['table']}"),
                    ("as many independent rows would have, on average", percent(found.independent)),
                ],
            ),
            figure(name, "One point per table.", "Total variation of rows to tables against that of the noise"),
        ]
    )  # fmt: skip
