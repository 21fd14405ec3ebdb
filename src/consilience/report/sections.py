"""The sections of a report as HTML: the first minute, what was promised, how it was made. All text is escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape

from consilience.markup import html_table
from consilience.memory import show_bytes
from consilience.report import charts
from consilience.report.promise import Promise, in_words, not_promised, short
from consilience.report.subject import Subject
from consilience.report.tables import PublishedTable

AddChart = Callable[[charts.Spec], str]
"""Keeps a specification for the page and gives it a name."""


def percent(share: float) -> str:
    """0.0123 as 1.23 %, three digits."""
    return f"{100 * share:.3g}\N{NO-BREAK SPACE}%"


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
    if not worst:
        return f'<div class="summary">{_spent(subject.promise)}{_without_errors(subject)}</div>'
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


def _without_errors(subject: Subject) -> str:
    """Where cells were chosen and no counts measured, there is an answer and no interval."""
    example = subject.example
    return (
        '<section class="card" aria-labelledby="s2"><h2 id="s2">How reliable the tables are</h2>'
        "<p>Not known. This mechanism releases choices of cells and no noisy counts, so nothing says how far an answer is from "
        "the truth. Where standard errors are wanted, tables have to be measured, as by AIM or HDMM.</p></section>"
        f'<section class="card" aria-labelledby="s3"><h2 id="s3">One answer</h2>'
        f'<p class="big number">{count(example.count)}</p><p>people with {escape(example.question)}</p>'
        '<p class="quiet"><a href="#answers">Look up others</a></p></section>'
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
        delta = f"<p>delta {short(promise.delta)}</p>" if promise.delta else "<p>delta 0 (pure)</p>"
        inner = (
            f'<p class="big number">epsilon {short(promise.epsilon)}</p>{delta}'
            f"<p>for {escape(str(promise.neighbours))}</p>{share}{total}"
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
    controls = () if subject.model.fit is None else subject.model.fit.controls
    given = [" by ".join(c.attributes) for c in controls]
    unkept = not_promised(promise.neighbours)
    if given:
        words = f"Protection of what was given as public and is kept as given: {', '.join(given)}."
        unkept = (words, *unkept)
    left = "".join(f"<li>{escape(text)}</li>" for text in unkept)
    parts.append(f"<h3>What is not promised</h3><ul>{left}</ul>")
    rows: list[tuple[str, str]] = [
        ("neighbours", promise.neighbours.value),
        ("whose privacy", promise.neighbours.per),
        ("epsilon", short(promise.epsilon)),
        ("delta", short(promise.delta)),
    ]
    if promise.rho is not None:
        rows.append(("zero-concentrated (rho) spent", f"{promise.rho:.4g}"))
    if subject.mechanism:
        rows.append(("mechanism", subject.mechanism))
    rows.append(("noise", "operating system's entropy" if promise.private else promise.mark))
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
    left = 1 - sum(line.share for line in lines)
    if len(lines) < 2 and left < 1e-6:
        return table
    shares = [
        {"what": f"{i}. {line.what}"[:60], "percent": 100 * line.share}
        for i, line in enumerate(lines, 1)
    ]
    if left >= 1e-6:
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
        *_noise(subject),
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
    how = (
        "The choices of cells that were released are explained best by some tables; these agree wherever they overlap and have "
        "no negative count. This step never saw the data and costs no privacy."
    )
    if subject.residuals is not None:
        how = (
            "The noisy tables contradict each other and hold negative counts. They were replaced by the closest tables that "
            "agree wherever they overlap and have no negative count. This step never saw the data and costs no privacy."
        )
    parts = [paragraph(how), facts("The fit", rows)]
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
        text = (
            "What each kind of consistency would have needed; the broken line is what was allowed. "
            f"Chosen: {d.plan.consistency}, because {d.plan.reason}."
        )
        parts.append(figure(name, text, "Memory needed by each kind of consistency"))
    looks = [
        {"iteration": i.done, "gap": max(i.gap, 1e-16)}
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


def _noise(subject: Subject) -> list[tuple[str, str]]:
    if subject.residuals is None:
        return []
    widths = sorted({m.stddev for m in subject.model.measurements})
    kinds = " and ".join(sorted({m.noise for m in subject.model.measurements}))
    spread = (
        f"{widths[0]:.4g}" if widths[0] == widths[-1] else f"{widths[0]:.4g} to {widths[-1]:.4g}"
    )
    return [
        ("noisy numbers", f"{subject.residuals.count:,}"),
        ("noise, standard deviation", f"{spread} people ({kinds})"),
    ]
