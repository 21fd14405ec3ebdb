"""The sections of a report that say how good it is: reliability, residuals, rows."""

from __future__ import annotations

from typing import Any

from consilience.report import charts, places
from consilience.report.sections import AddChart, facts, figure, paragraph, percent
from consilience.report.subject import EDGES, POINTS, Subject
from consilience.report.tables import ASSUMED, INFERRED, MEANING, MEASURED


def reliability(subject: Subject, add: AddChart, limit: int = 40) -> str:
    names = subject.model.domain.attributes
    known = {t.clique: t.variation for t in subject.tables if t.known}
    tally = {b: list(subject.basis.values()).count(b) for b in (MEASURED, INFERRED, ASSUMED)}
    words = "; ".join(f"{n:,} {b} ({MEANING[b]})" for b, n in tally.items() if n)
    parts = [
        paragraph(
            "Expected total variation says how far a table is from the truth because of the noise: the share of people who "
            "would have to be moved to another cell. It is computed from the standard errors, which come "
            "from the published numbers alone."
        ),
        paragraph(f"Pairs of attributes: {words}.") if words else "",
    ]
    if not known:
        parts[0] = paragraph(
            "Nothing says how far the tables are from the truth: choices of cells were released, and no noisy counts."
        )
    elif 1 < len(names) <= limit:
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
        text = (
            "Expected total variation of every pair, single attributes on the diagonal. Darker (in dark mode: lighter) is less "
            "reliable; ? is inferred, – is assumed."
        )
        parts.append(figure(name, text, "Matrix of expected total variation by pair of attributes"))
    drawn = places.spec(subject.model, subject.labels) if known else None
    if drawn is not None:
        text = (
            "Places within places: each level is a row, each place as wide as its count. Darker (in dark mode: lighter) is less "
            "reliable."
        )
        parts.append(
            figure(add(drawn), text, "Nested rectangles of counts by place, coloured by error")
        )
    return "".join(parts)


def residuals(subject: Subject, add: AddChart) -> str:
    r = subject.residuals
    if r is None:
        return paragraph(
            "There are none: the mechanism released choices of cells, and no noisy counts to compare the tables with."
        )
    bins = [
        {"low": float(a), "high": float(b), "density": round(float(d), 5)}
        for a, b, d in zip(EDGES, EDGES[1:], r.density, strict=False)
    ]
    law = [
        {"u": float(u), "density": round(float(d), 5)} for u, d in zip(POINTS, r.law, strict=True)
    ]
    name = add(charts.residuals(bins, law))
    after = (
        "" if r.fitted is None else f"; after least squares without non-negativity: {r.fitted:.3f}"
    )
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
                "If all is as declared, the distances between the model and the noisy tables look like the noise that "
                "was added, only narrower, because the fit follows a part of the noise. They should not be wider."
            ),
            facts(
                "Standardised residuals",
                [
                    ("root mean square", f"{r.rms:.3f} (noise alone: 1{after})"),
                    ("beyond two standard deviations", f"{percent(r.beyond)} (noise alone: {percent(r.expected_beyond)})"),
                ],
            ),
            figure(
                name,
                "(table of the model − noisy table) / standard deviation of the noise. Bars: observed. Line: the law that the "
                "noise was drawn from.",
                "Histogram of standardised residuals against the law of the noise",
            ),
            paragraph(verdict),
        ]
    )  # fmt: skip


def rows(subject: Subject, add: AddChart) -> str:
    found = subject.rows.rows
    if found is None:
        return paragraph(f"No synthetic rows are compared here: {subject.rows.refused}.")
    noise = {t.clique: t.variation for t in subject.tables if t.known}
    points = [
        {"table": " × ".join(c), "noise": 100 * noise.get(c, 0.0), "rows": 100 * v}
        for c, v in subject.rows.variation.items()
    ]
    mean = sum(p["rows"] for p in points) / len(points)
    worst = max(points, key=lambda p: p["rows"])
    how = (
        "each follows the model exactly"
        if found.exact
        else "drawn from the model's backbone and moved towards its tables"
    )
    name = add(charts.rows_against_tables(points)) if noise else ""
    return "".join(
        [
            paragraph(
                f"{len(found.data):,} synthetic rows were drawn for this page ({how}); their tables were compared with the "
                "published ones. Rows add an error of their own to that of the noise: where a table is published, use the table."
            ),
            facts(
                "Total variation of rows to tables",
                [
                    ("mean over the tables", f"{mean:.3g} %"),
                    ("worst", f"{worst['rows']:.3g} % at {worst['table']}"),
                    ("as many independent rows would have, on average", percent(found.independent)),
                ],
            ),
            figure(
                name,
                "One point per table: total variation of the rows to the table, against that of the table to the truth as the "
                "noise lets one expect.",
                "Total variation of rows to tables against that of the noise",
            ) if name else "",
        ]
    )  # fmt: skip
