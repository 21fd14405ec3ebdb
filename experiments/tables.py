"""Tables of docs/reproduction.md and docs/comparison.md from rows. Everything between `<!-- rows: NAME -->` and
`<!-- end -->` is written anew.

python experiments/tables.py
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import verdict
from common import RESULTS, ROOT, means, read_rows
from reference import (
    FEM,
    FIGURE_2AB,
    FIGURE_2C,
    HDMM,
    MISSING_SEED,
    MWEM,
    NOISE_FREE,
    TABLE,
    UNPUBLISHED,
)

PAGES = tuple(ROOT / "docs" / name for name in ("reproduction.md", "comparison.md"))
NOT_RUN = "–"
Rows = list[dict[str, str]]
Mean = tuple[float, float, int]


def markdown(head: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    names = list(head)
    return "\n".join(
        ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
        + ["| " + " | ".join(line) + " |" for line in lines]
    )


def number(value: float | None, digits: int = 4) -> str:
    return (
        NOT_RUN
        if value is None
        else f"{value:.{digits}f}".replace("0.", ".", 1 if value < 1 else 0)
    )


def figures(value: float | None) -> str:
    """Four significant figures, for quantities of any size."""
    return NOT_RUN if value is None else f"{value:.4g}"


def mean_of(found: Mapping[tuple[str, ...], Mean], *key: str) -> float | None:
    return found[key][0] if key in found else None


def seeds_of(found: Mapping[tuple[str, ...], Mean], *key: str) -> int:
    return found[key][2] if key in found else 0


def both(ours: float | None, theirs: float | None) -> str:
    """Ours, then theirs in brackets."""
    return number(ours) + (f" ({number(theirs)})" if theirs is not None else "")


def figure_2ab(what: str) -> Callable[[Rows], str]:
    def made(rows: Rows) -> str:
        asked = FIGURE_2AB[what]
        outside = what == "out_of_model"
        methods = [*asked, "over-saturated-prox", "backbone"] if outside else list(asked)
        lines = []
        for k in next(iter(asked.values())):
            line = [str(k)]
            for method in methods:
                left_out = str(MISSING_SEED.get((method, k)))
                found = means([r for r in rows if r["seed"] != left_out], ["k", "method"], what)
                theirs = asked.get(method.removesuffix("-prox"), {}).get(k)
                shown = both(mean_of(found, str(k), method), theirs)
                few = seeds_of(found, str(k), method)
                line.append(
                    shown
                    + (f" [{few}]" if 0 < few < (4 if (method, k) in MISSING_SEED else 5) else "")
                )
            lines.append(line)
        return markdown(
            ["k", *(m + (" (ours)" if m == "backbone" else "") for m in methods)], lines
        )

    return made


def figure_2c(rows: Rows) -> str:
    lines = []
    for r in rows:
        theirs = FIGURE_2C.get((r["engine"], r["selection"]), {}).get(int(r["k"]))
        took = f"{float(r['cpu_seconds'] or r['seconds']):.2g}" if r["seconds"] else "refused"
        cells = f"{int(r['cells']):,}" if int(r["cells"]) < 1e9 else f"{int(r['cells']):.1e}"
        beside = NOT_RUN if theirs is None else f"{theirs:g}"
        lines.append([r["engine"], r["selection"], f"{int(r['k']):,}", cells, took, beside])
    clocks = ["ours, CPU s per iteration", "authors, s per iteration"]
    return markdown(["engine", "triples", "k", "cells", *clocks], lines)


def figure_3a(rows: Rows) -> str:
    expected, seen = (means(rows, ["k", "method"], v) for v in ("expected", "observed"))
    lines = []
    for k, theirs in HDMM["region graph"].items():
        ours = mean_of(seen, str(k), "squared")
        alone = mean_of(expected, str(k), "squared")
        lines.append([
            str(k), f"{figures(alone)} ({figures(HDMM['expected'][k])})", figures(HDMM["exact"].get(k)),
            figures(mean_of(seen, str(k), "exact")) + few(seeds_of(seen, str(k), "exact")), figures(theirs),
            figures(ours), f"{alone / ours:.2f}" if alone and ours else NOT_RUN,
            figures(mean_of(seen, str(k), "even")), str(seeds_of(seen, str(k), "squared")),
        ])  # fmt: skip
    head = ["k", "HDMM alone, expected (authors')", "authors' + exact", "ours, exact", "authors' + region graph", "ours, local",
            "improvement", "ours, slack 0.1", "seeds"]  # fmt: skip
    return markdown(head, lines)


def figure_3b(rows: Rows) -> str:
    found = means(rows, ["variant", "round"], "l1")
    variants = list(dict.fromkeys(r["variant"] for r in rows))
    lines = [
        [str(k), number(MWEM["exact", 0.1].get(k)), number(theirs)]
        + [number(mean_of(found, v, str(k))) + few(seeds_of(found, v, str(k))) for v in variants]
        for k, theirs in MWEM["region graph", 0.1].items()
    ]
    return markdown(
        ["round", "authors' exact", "authors' region graph", *(f"ours, {v}" for v in variants)],
        lines,
    )


def other_epsilons(rows: Rows) -> str:
    found = means(rows, ["epsilon", "round"], "l1")
    epsilons = sorted({e for e, _ in found}, key=float)
    lines = [
        [str(k)]
        + [
            cell
            for e in epsilons
            for cell in (
                number(MWEM["exact", float(e)].get(k)),
                number(MWEM["region graph", float(e)][k]),
                number(mean_of(found, e, str(k))) + few(seeds_of(found, e, str(k))),
            )
        ]
        for k in MWEM["region graph", 0.1]
    ]
    heads = ("authors' exact", "authors' region graph", "ours, local")
    return markdown(["round", *(f"{e}: {h}" for e in epsilons for h in heads)], lines)


def few(seeds: int) -> str:
    """Said where it is not five."""
    return f" [{seeds}]" if seeds not in (0, 5) else ""


def figure_3c(rows: Rows) -> str:
    lines = []
    for variant in dict.fromkeys(r["variant"] for r in rows):
        mine = [r for r in rows if r["variant"] == variant]
        for epsilon in FEM["fem", "total_variation"]:
            cells, seeds = [], 0
            for short, long in (("tv", "total_variation"), ("max", "largest")):
                for ours, theirs in ((f"fem_{short}", "fem"), (f"model_{short}", "region graph")):
                    found = {float(k[0]): v for k, v in means(mine, ["epsilon"], ours).items()}
                    cells.append(both(found.get(epsilon, (None,))[0], FEM[theirs, long][epsilon]))
                    seeds = found.get(epsilon, (0, 0, 0))[2]
            if seeds:
                lines.append([variant, f"{epsilon:g}", *cells, str(seeds)])
    found = [
        f"{by}, {what}" for what in ("TV", "largest") for by in ("FEM", "FEM + reconstruction")
    ]
    return markdown(["rounds", "epsilon", *found, "seeds"], lines)


def noise_free(rows: Rows) -> str:
    lines = []
    for name, engines in NOISE_FREE.items():
        ours = {int(r["round"]): float(r["mean_l1"]) for r in rows if r["data"] == name}
        for k, exact in engines["exact"].items():
            if k:
                local = engines["region graph"][k]
                lines.append([name, str(k), number(exact), number(local), number(ours.get(k))])
        if ours and max(ours) > max(engines["exact"]):
            lines.append([name, f"{max(ours)} (all)", NOT_RUN, NOT_RUN, number(ours[max(ours)])])
    return markdown(
        ["data", "measured pairs", "authors' exact", "authors' region graph", "ours, backbone"],
        lines,
    )


COLUMNS = (
    "global-300",
    "global",
    "local",
    "priview",
    "relaxed_projection-paper",
    "relaxed_projection",
    "prior",
)


def adult(rows: Rows) -> str:
    found = {(c, float(e)): v for (c, e), v in means(rows, ["column", "epsilon"], "total_variation").items()}  # fmt: skip
    paired = {
        "global-300": "global",
        "local": "local-10000",
        "priview": "priview",
        "relaxed_projection-paper": "relaxed_projection-paper",
    }
    lines = []
    for epsilon in TABLE["global"]:
        near = next((e for _, e in found if abs(e / epsilon - 1) < 0.01), None)
        line = [f"{epsilon:.3g}"]
        mine = {c: found.get((c, near)) for c in COLUMNS} if near else {}
        best = min((v[0] for v in mine.values() if v), default=None)
        for column in COLUMNS:
            cell = mine.get(column)
            theirs = TABLE[paired[column]][epsilon][0] if column in paired else None
            text = both(cell[0] if cell else None, theirs) + few(cell[2] if cell else 0)
            line.append(f"**{text}**" if cell and cell[0] == best else text)
        local = mine.get("local")
        lines.append([*line, str(local[2] if local else 0)])
    head = ["epsilon", "exact, 300 steps (authors' exact)", "exact, 1,000 steps (ours)",
            "local (authors' region graph)", "PriView (authors')", "Relaxed Projection (authors')",
            "Relaxed Projection, tuned (ours)", "prior (ours)", "trials"]  # fmt: skip
    return markdown(head, lines)


def rivals(rows: Rows) -> str:
    found = means(rows, ["data", "epsilon", "method"], "total_variation")
    methods = ["least squares", "grem-lnn", "local", "planner", "planner local"]
    prior = read_rows(RESULTS / "prior_and_path.csv")
    pulled = means([r for r in prior if r["seed"] == "1"], ["data", "way", "epsilon"], "prior")
    lines = []
    asked = {(r["data"], r["epsilon"]) for r in rows}
    for data, epsilon in sorted(asked, key=lambda pair: (pair[0], float(pair[1]))):
        base, _, way = data.partition("-")
        theirs = UNPUBLISHED.get((base, int(way)), {})
        mine = next(
            (
                v[0]
                for (d, w, e), v in pulled.items()
                if (d, w) == (base, way) and float(e) == float(epsilon)
            ),
            None,
        )
        lines.append(
            [f"{base}, {way}-way", epsilon]
            + [number(mean_of(found, data, epsilon, m)) for m in methods]
            + [number(mine)]
            + [number(theirs.get(m, {}).get(float(epsilon))) for m in ("region graph", "priview")]
        )
    head = ["data", "epsilon", "least squares", "GReM-LNN", "local (ours)", "ResidualPlanner", "ResidualPlanner + local (ours)",
            "prior (ours)", "authors' region graph", "authors' PriView"]  # fmt: skip
    return markdown(head, lines)


def aim(rows: Rows) -> str:
    """Total variation and seconds; what did not end says after how long it was stopped."""
    found = means(rows, ["data", "epsilon", "variant"], "total_variation")
    spent = means(rows, ["data", "epsilon", "variant"], "seconds")
    variants = list(dict.fromkeys(r["variant"] for r in rows))

    def cell(data: str, epsilon: str, variant: str) -> str:
        key = data, epsilon, variant
        if key in found:
            return f"{number(found[key][0])}, {spent[key][0]:,.0f} s [{found[key][2]}]"
        return f"not ended in {spent[key][0]:,.0f} s" if key in spent else "–"

    asked = sorted({(d, float(e), e) for d, e, _ in spent})
    lines = [[d, f"{x:g}"] + [cell(d, e, v) for v in variants] for d, x, e in asked]
    return markdown(["data", "epsilon", *variants], lines)


def prior(rows: Rows) -> str:
    plain, pulled = (means(rows, ["data", "way", "epsilon"], v) for v in ("plain", "prior"))
    lines = [
        [f"{d}, {w}-way", f"{float(e):g}", number(plain[d, w, e][0]), number(v[0]), f"{v[0] / plain[d, w, e][0]:.2f}", str(v[2])]
        for (d, w, e), v in pulled.items()
        if float(e) in (0.1, 1.0, 10.0)
    ]  # fmt: skip
    return markdown(["data", "epsilon", "local", "prior", "ratio", "seeds"], lines)


def spread(found: Mean, digits: int) -> str:
    """The mean, its standard error where there is one, and how many seeds."""
    value, error, seeds = found
    wide = f" ± {error:.{digits}f}" if seeds > 1 else ""
    return f"{value:.{digits}f}{wide} [{seeds}]"


def unended(rows: Rows, **key: str) -> str:
    """What is said of a cell without a figure: out of time, failed, or not run."""
    for row in rows:
        if all(row[k] == v for k, v in key.items()) and row["status"] != "done":
            late = f"not ended in {float(row['cpu_seconds'] or 0):,.0f} CPU-seconds"
            return late if row["status"] == "no end" else row["status"]
    return NOT_RUN


def of_table(rows: Rows, excerpt: str, columns: str) -> Rows:
    return [r for r in rows if (r["excerpt"], r["columns"]) == (excerpt, columns)]


def k_marginal(excerpt: str, columns: str) -> Callable[[Rows], str]:
    """Scores by design, and the part of the real rows that scores the same."""

    def made(rows: Rows) -> str:
        rows = of_table(rows, excerpt, columns)
        done = [r for r in rows if r["status"] == "done"]
        found = means(done, ["design", "epsilon"], "score")
        spent = means(rows, ["design", "epsilon"], "cpu_seconds")
        parts = sorted((float(e), v[0]) for (d, e), v in found.items() if d == "sample")
        released = [r for r in rows if not r["design"].endswith("sample")]
        designs = list(dict.fromkeys(r["design"] for r in released))
        epsilons = sorted({r["epsilon"] for r in released}, key=float)

        def cell(design: str, epsilon: str) -> list[str]:
            key = design, epsilon
            if key not in found:
                return [unended(rows, design=design, epsilon=epsilon), NOT_RUN, NOT_RUN]
            like = np.interp(found[key][0], [s for _, s in parts], [p for p, _ in parts])
            return [spread(found[key], 1), f"{like:.0f} %", f"{spent[key][0]:,.0f}"]

        lines = [[d, f"{float(e):g}", *cell(d, e)] for d in designs for e in epsilons]
        return markdown(
            ["design", "epsilon", "score [seeds]", "as good as a sample of", "CPU-seconds"], lines
        )

    return made


def samples(rows: Rows) -> str:
    """By excerpt and columns: the scores of parts of the real rows."""
    rows = [r for r in rows if r["design"].endswith("sample")]
    found = means(rows, ["excerpt", "columns", "epsilon"], "score")
    parts = sorted({e for _, _, e in found}, key=float)
    names = [f"{float(p):g} %" if float(p) < 100 else "100 %, with replacement" for p in parts]
    lines = [
        [
            f"{excerpt}, {columns}",
            *(
                spread(found[excerpt, columns, p], 0) if (excerpt, columns, p) in found else NOT_RUN
                for p in parts
            ),
        ]
        for excerpt, columns in dict.fromkeys((e, c) for e, c, _ in found)
    ]
    return markdown(["part of the rows", *names], lines)


def under_mbi(rows: Rows) -> str:
    by = ["data", "ways", "epsilon", "estimator"]
    rows = [r for r in rows if r["seed"] == "100"]
    done = [r for r in rows if r["status"] == "done"]
    found, fit = means(done, by, "total_variation"), means(done, by, "fit_seconds")
    names = list(dict.fromkeys(r["estimator"] for r in rows))
    cases = list(dict.fromkeys((r["data"], r["ways"], r["epsilon"]) for r in rows))

    def cell(key: tuple[str, ...]) -> str:
        if key in found:
            return f"{number(found[key][0])}, {fit[key][0]:,.2g} s"
        return unended(rows, **dict(zip(by, key, strict=True)))

    lines = [[d, w, f"{float(e):g}", *(cell((d, w, e, n)) for n in names)] for d, w, e in cases]
    return markdown(["data", "columns", "epsilon", *names], lines)


def last_fit(rows: Rows) -> str:
    """AIM's last fit beside each other estimator, over the seeds that both have."""
    found: dict[tuple[str, ...], dict[str, dict[str, float]]] = {}
    for r in rows:
        if r["status"] == "done":
            case = found.setdefault((r["data"], r["ways"], f"{float(r['epsilon']):g}"), {})
            case.setdefault(r["estimator"], {})[r["seed"]] = float(r["total_variation"])
    lines = []
    for case, by in found.items():
        own, shown = by.get("aim", {}), []
        if not own:
            continue
        for name in ("least-squares", "mbi"):
            seeds = sorted(own.keys() & by.get(name, {}).keys())
            ratio = sum(own[s] for s in seeds) / sum(by[name][s] for s in seeds) if seeds else None
            shown.append(NOT_RUN if ratio is None else f"{ratio:.3f} [{len(seeds)}]")
        lines.append([*case, number(sum(own.values()) / len(own)), *shown])
    heads = ["data", "columns", "epsilon", "AIM's last fit", "over least squares [seeds]"]
    return markdown([*heads, "over mbi [seeds]"], lines)


def learning(rows: Rows) -> str:
    by = ["data", "epsilon", "design"]
    done = [r for r in rows if r["status"] == "done"]
    area, right = means(done, by, "auc"), means(done, by, "accuracy")
    spent = means(rows, by, "cpu_seconds")
    lines = []
    for key in spent:
        shown = (
            [spread(area[key], 3), f"{right[key][0]:.3f}"]
            if key in area
            else [unended(rows, **dict(zip(by, key, strict=True))), NOT_RUN]
        )
        lines.append([key[0], f"{float(key[1]):g}", key[2], *shown, f"{spent[key][0]:,.0f}"])
    return markdown(
        ["data", "epsilon", "rows of", "area under ROC [seeds]", "accuracy", "CPU-seconds"], lines
    )


def over_seeds(rows: Rows) -> Rows:
    """One row for each run that was made with several seeds: the means of its numbers, and how many there were."""
    groups: dict[tuple[str, ...], Rows] = {}
    for r in rows:
        groups.setdefault((r["data"], r["run"], r["ways"], r["status"]), []).append(r)
    columns = ("pairs", "triples", "pairs_model", "triples_model", "cpu_seconds", "peak_mb")

    def mean(group: Rows, column: str) -> str:
        found = [float(r[column]) for r in group if r[column]]
        return str(sum(found) / len(found)) if found else ""

    return [
        {**g[0], **{c: mean(g, c) for c in columns}, "seeds": str(len(g))} for g in groups.values()
    ]


def others(rows: Rows) -> str:
    """Every run, closest first within what was asked for; ours by rows, then by the model's tables."""
    rows = over_seeds(rows)
    asked = {"0": NOT_RUN, "2": "pairs", "3": "triples"}

    def shown(row: dict[str, str], column: str) -> str:
        if row["status"] != "done":
            return unended([row])
        by_model = row[f"{column}_model"]
        beside = f" ({number(float(by_model))})" if by_model else ""
        return number(float(row[column])) + beside

    def order(row: dict[str, str]) -> tuple[object, ...]:
        datas = list(dict.fromkeys(r["data"] for r in rows))
        judged = "triples" if row["ways"] == "3" else "pairs"
        return datas.index(row["data"]), row["ways"], float(row[judged] or 9)

    lines = []
    for row in sorted(rows, key=order):
        tool, _, mechanism = row["run"].partition("-")
        name = f"**ours, {mechanism}**" if tool == "ours" else f"{tool}, {mechanism}"
        name += f" [{row['seeds']}]" if row["seeds"] != "1" else ""
        figures_of = [shown(row, c) for c in ("pairs", "triples")]
        cost = [f"{float(row[c]):,.0f}" for c in ("cpu_seconds", "peak_mb")]
        lines.append([row["data"], asked[row["ways"]], name, *figures_of, *cost])
    head = ["data", "asked for", "mechanism", "all pairs", "all triples", "CPU-seconds", "peak MB"]
    return markdown(head, lines)


def cell_by_cell(_: Rows) -> str:
    return markdown(
        ["", "cells", "better", "equal", "worse", "worse where, and why"], verdict.lines()
    )


MADE: dict[str, tuple[str, Callable[[Rows], str]]] = {
    "2a": ("figure2_accuracy.csv", figure_2ab("in_model")),
    "2b": ("figure2_accuracy.csv", figure_2ab("out_of_model")),
    "2c": ("figure2_speed.csv", figure_2c),
    "3a": ("hdmm_fire.csv", figure_3a),
    "3b": ("mwem_fire.csv", figure_3b),
    "3b-epsilons": ("mwem_epsilons.csv", other_epsilons),
    "3c": ("fem_adult.csv", figure_3c),
    "noise-free": ("noise_free_mwem.csv", noise_free),
    "table": ("adult_table.csv", adult),
    "rivals": ("rivals.csv", rivals),
    "prior": ("prior_and_path.csv", prior),
    "aim": ("aim.csv", aim),
    "k-marginal": ("kmarginal.csv", k_marginal("massachusetts", "all")),
    "k-marginal-national": ("kmarginal.csv", k_marginal("national", "demographic")),
    "k-marginal-national-all": ("kmarginal.csv", k_marginal("national", "all")),
    "samples": ("kmarginal.csv", samples),
    "under-mbi": ("under_mbi.csv", under_mbi),
    "last-fit": ("under_mbi.csv", last_fit),
    "learning": ("ml_use.csv", learning),
    "others": ("others.csv", others),
    "verdict": ("adult_table.csv", cell_by_cell),
}


def filled(page: str) -> str:
    """The page with every table made anew; a table without rows says so."""

    def table(match: re.Match[str]) -> str:
        source, make = MADE[match[1]]
        rows = read_rows(RESULTS / source)
        body = make(rows) if rows else f"No rows in `experiments/results/{source}` yet."
        return f"<!-- rows: {match[1]} -->\n{body}\n<!-- end -->"

    return re.sub(r"<!-- rows: ([\w-]+) -->\n.*?<!-- end -->", table, page, flags=re.S)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page.read_text()))
