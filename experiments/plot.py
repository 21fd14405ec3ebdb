"""Figures from rows: ours in colour, the authors' numbers in grey. Reads experiments/results, writes docs/figures.

python experiments/plot.py [NAME ...]      needs the extra `experiments` (matplotlib); a figure without rows is left out
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import matplotlib
import numpy as np
from common import FIGURES, RESULTS, means, read_rows
from reference import FEM, FIGURE_2AB, FIGURE_2C, HDMM, MWEM, NOISE_FREE, TABLE, UNPUBLISHED

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

THEIRS: dict[str, Any] = {
    "color": "0.55",
    "marker": "o",
    "markersize": 3.5,
    "linewidth": 1.0,
    "linestyle": "--",
}
OURS: dict[str, Any] = {"marker": ".", "markersize": 4, "linewidth": 1.4}
Rows = list[dict[str, str]]


def curve(axis: Axes, points: Mapping[Any, float], label: str, **style: Any) -> None:
    xs = sorted(points)
    axis.plot(xs, [points[x] for x in xs], label=label, **{**OURS, **style})


def theirs(
    axis: Axes,
    points: Mapping[int, float] | Mapping[float, float],
    label: str,
    linestyle: str = "--",
) -> None:
    curve(axis, points, f"authors: {label}", **{**THEIRS, "linestyle": linestyle})


def by(rows: Rows, x: str, value: str, **where: str) -> dict[float, float]:
    """x -> mean of value, over the rows that match."""
    chosen = [r for r in rows if all(r[k] == v for k, v in where.items())]
    return {float(key[0]): mean for key, (mean, _, _) in means(chosen, [x], value).items()}


def finish(axis: Axes, title: str, xlabel: str, ylabel: str, **scales: Any) -> None:
    axis.set(title=title, xlabel=xlabel, ylabel=ylabel, **scales)
    axis.grid(alpha=0.25)
    axis.legend(fontsize=7, frameon=False)


def panels(count: int, width: float = 4.2) -> tuple[Figure, list[Axes]]:
    figure, axes = plt.subplots(1, count, figsize=(width * count, 3.4), layout="constrained")
    return figure, list(np.atleast_1d(axes))


LOG_LOG = {"xscale": "log", "yscale": "log"}
LINES = {
    "exact": "-",
    "saturated": "--",
    "over-saturated": "-.",
    "factor": ":",
    "noisy": (0, (1, 3)),
}
COLOURS: dict[str, Any] = {
    "exact": "tab:green", "saturated": "tab:orange", "over-saturated": "tab:brown", "factor": "tab:red",
    "noisy": "tab:gray", "backbone": "tab:blue",
}  # fmt: skip


def figure_2ab(rows: Rows) -> Figure:
    figure, axes = panels(2, 5.0)
    for axis, what, title in zip(axes, ("in_model", "out_of_model"), ("a", "b"), strict=True):
        for method, colour in COLOURS.items():
            found = by(rows, "k", what, method=method)
            if found and not (what == "in_model" and method in ("backbone", "over-saturated")):
                curve(axis, found, method + (" (ours)" if method == "backbone" else ""), color=colour)  # fmt: skip
        for method, points in FIGURE_2AB[what].items():
            axis.plot(
                list(points), list(points.values()), "o", mfc="none", mec=COLOURS[method], ms=5
            )
        axis.plot([], [], "o", mfc="none", mec="0.3", label="circles: the authors' means")
        finish(
            axis,
            f"2{title}: {what.replace('_', ' ')}",
            "measured 3-way marginals k",
            "total variation",
            yscale="log",
        )
    return figure


def figure_2c(rows: Rows) -> Figure:
    figure, (axis,) = panels(1, 6.0)
    for engine, colour in (("saturated", "tab:blue"), ("exact", "tab:green"), ("mbi", "tab:red")):
        for selection, line in (("random", "-"), ("greedy", "--")):
            clock = "seconds" if engine == "mbi" else "cpu_seconds"
            found = by(rows, "k", clock, engine=engine, selection=selection)
            if found:
                curve(axis, found, f"{engine}, {selection}", color=colour, linestyle=line)
    for (engine, selection), points in FIGURE_2C.items():
        theirs(axis, points, f"{engine}, {selection}", {"saturated": "-", "exact": ":"}[engine])
    finish(axis, "2c: one iteration, one thread", "measured triples k", "seconds", **LOG_LOG)
    return figure


def figure_3a(rows: Rows) -> Figure:
    figure, (axis,) = panels(1, 5.5)
    curve(axis, by(rows, "k", "expected", method="squared"), "HDMM alone (ours)", color="tab:gray")
    curve(
        axis, by(rows, "k", "observed", method="squared"), "HDMM + local (ours)", color="tab:orange"
    )
    curve(axis, by(rows, "k", "observed", method="even"), "with slack 0.1 (ours)", color="tab:blue")
    for label, points in HDMM.items():
        theirs(axis, points, label, {"expected": ":", "exact": "-.", "region graph": "--"}[label])
    finish(axis, "3a: HDMM on fire, epsilon 1", "3-way marginals k", "RMSE (counts)", **LOG_LOG)
    return figure


def figure_3b(rows: Rows) -> Figure:
    figure, (axis,) = panels(1, 6.0)
    for variant in dict.fromkeys(r["variant"] for r in rows):
        curve(axis, by(rows, "round", "l1", variant=variant), f"{variant} (ours)")
    for (engine, epsilon), points in MWEM.items():
        if epsilon == 0.1:
            theirs(
                axis, points, f"{engine}, {epsilon:g} per round", {"exact": "-."}.get(engine, "--")
            )
    finish(axis, "3b: MWEM on fire", "round", "mean L1 over all pairs", yscale="log")
    return figure


def figure_3c(rows: Rows) -> Figure:
    figure, axes = panels(2)
    for axis, (short, long) in zip(
        axes, (("max", "largest"), ("tv", "total_variation")), strict=True
    ):
        for variant in dict.fromkeys(r["variant"] for r in rows):
            curve(
                axis,
                by(rows, "epsilon", f"fem_{short}", variant=variant),
                f"FEM, {variant}",
                linestyle=":",
            )
            curve(
                axis,
                by(rows, "epsilon", f"model_{short}", variant=variant),
                f"FEM + ours, {variant}",
            )
        theirs(axis, FEM["fem", long], "FEM", ":")
        theirs(axis, FEM["region graph", long], "FEM + region graph")
        name = {"max": "largest difference of a share", "tv": "total variation"}[short]
        finish(axis, "3c: FEM on adult", "epsilon", name, xscale="log")
    return figure


def figure_noise_free(rows: Rows) -> Figure:
    names = [n for n in NOISE_FREE if any(r["data"] == n for r in rows)]
    figure, axes = panels(len(names), 3.4)
    for axis, name in zip(axes, names, strict=True):
        curve(
            axis,
            by(rows, "round", "mean_l1", data=name),
            "backbone (ours)",
            color="tab:blue",
            marker="",
        )
        for engine, points in NOISE_FREE[name].items():
            theirs(axis, points, engine, {"exact": "-."}.get(engine, "--"))
        finish(axis, name, "measured pairs", "mean L1 over all pairs", yscale="log", ylim=(1e-3, 2))
    return figure


def figure_table(rows: Rows) -> Figure:
    """Everything over the authors' exact column: below 1 is better than exact was."""
    figure, (axis,) = panels(1, 6.5)
    base = {e: mean for e, (mean, _) in TABLE["global"].items()}

    def against(points: Mapping[float, float]) -> dict[float, float]:
        near = {e: min(base, key=lambda b: abs(np.log(b / e))) for e in points}
        return {e: points[e] / base[near[e]] for e in points}

    for column in ("prior", "global-300", "local", "priview", "relaxed_projection"):
        found = by(rows, "epsilon", "total_variation", column=column)
        if found:
            curve(axis, against(found), f"{column} (ours)")
    for column, line in (("local-10000", "--"), ("priview", ":"), ("relaxed_projection-paper", "-.")):  # fmt: skip
        theirs(axis, against({e: m for e, (m, _) in TABLE[column].items()}), column, line)
    axis.axhline(1.0, color="0.3", linewidth=0.8)
    ratio = "total variation / authors' exact"
    finish(axis, "table: adult, 32 pairs", "epsilon", ratio, xscale="log", ylim=(0.3, 3))
    return figure


def figure_rivals(rows: Rows) -> Figure:
    names = list(dict.fromkeys(r["data"] for r in rows))
    figure, axes = panels(len(names), 4.0)
    for axis, name in zip(axes, names, strict=True):
        for method in dict.fromkeys(r["method"] for r in rows):
            if method != "noisy":
                curve(
                    axis, by(rows, "epsilon", "total_variation", data=name, method=method), method
                )
        base, _, way = name.partition("-")
        prior = [
            r
            for r in read_rows(RESULTS / "prior_and_path.csv")
            if r["data"] == base and r["way"] == way
        ]
        used = [r for r in prior if float(r["epsilon"]) in (0.1, 1.0, 10.0) and r["seed"] == "1"]
        if used:
            curve(axis, by(used, "epsilon", "prior"), "prior (ours)", color="tab:blue", linewidth=2)
        for engine, points in UNPUBLISHED.get((base, int(way)), {}).items():
            theirs(axis, points, engine, {"priview": ":"}.get(engine, "--"))
        finish(axis, f"{base}, {way}-way", "epsilon", "total variation", xscale="log", yscale="log")
    return figure


def figure_convergence(rows: Rows) -> Figure:
    figure, (first, second) = panels(2)
    for method in ("splitting", "prox-accelerated", "prox"):
        label = {"splitting": "splitting", "prox": "Prox-PGM"}.get(method, "Prox-PGM, accelerated")
        curve(first, by(rows, "iterations", "gap", method=method), label)
        curve(second, by(rows, "cpu_seconds", "gap", method=method), label)
    what = "(objective - bound) / objective"
    finish(first, "certified gap", "iterations", what, xscale="log", yscale="log")
    finish(second, "the same, by time", "CPU seconds, one thread", what, xscale="log", yscale="log")
    return figure


def figure_choosing(rows: Rows) -> Figure:
    """Each design over `Auto`, over the seeds that both have: right of the line is further from the truth than the default."""
    found: dict[tuple[str, ...], dict[str, dict[str, float]]] = {}
    for r in rows:
        if r["status"] == "done":
            cell = found.setdefault((r["data"], r["ways"], r["epsilon"]), {})
            cell.setdefault(r["design"], {})[r["seed"]] = float(r["total_variation"])
    figure, axes = plt.subplots(1, 2, figsize=(9.0, 4.2), layout="constrained", sharex=True)
    for axis, ways in zip(axes, ("2", "3"), strict=True):
        cells = sorted(c for c in found if c[1] == ways)
        for design, (marker, colour) in RIVALS.items():
            points = []
            for place, cell in enumerate(cells):
                own, other = found[cell].get("auto", {}), found[cell].get(design, {})
                both = own.keys() & other.keys()
                if both:
                    points.append((sum(other[s] for s in both) / sum(own[s] for s in both), place))
            if points:
                axis.plot(*zip(*points, strict=True), marker, mfc="none", mec=colour, ms=5, label=design)  # fmt: skip
        axis.axvline(1.0, color="tab:blue", linewidth=1.4, label="auto")
        axis.set_yticks(range(len(cells)), [f"{name}, {epsilon}" for name, _, epsilon in cells])
        axis.invert_yaxis()
        title = "pairs" if ways == "2" else "triples"
        finish(axis, title, "mean total variation, over auto's", "", xscale="log")
        axis.set_xticks([0.8, 1, 1.5, 2, 4, 8], ["0.8", "1", "1.5", "2", "4", "8"])
        axis.minorticks_off()
    return figure


RIVALS = {
    "gaussian": ("o", "tab:gray"), "gaussian-shrunk": ("s", "tab:orange"), "residual-planner": ("^", "tab:gray"),
    "residual-planner-shrunk": ("v", "tab:brown"), "mwem": ("D", "tab:purple"), "aim": ("x", "tab:green"),
    "aim-last": ("+", "tab:red"),
}  # fmt: skip
DRAWN: dict[str, tuple[str, Callable[[Rows], Figure]]] = {
    "figure2_accuracy": ("figure2_accuracy.csv", figure_2ab),
    "figure2_speed": ("figure2_speed.csv", figure_2c),
    "hdmm_fire": ("hdmm_fire.csv", figure_3a),
    "mwem_fire": ("mwem_fire.csv", figure_3b),
    "fem_adult": ("fem_adult.csv", figure_3c),
    "noise_free_mwem": ("noise_free_mwem.csv", figure_noise_free),
    "adult_table": ("adult_table.csv", figure_table),
    "rivals": ("rivals.csv", figure_rivals),
    "convergence": ("convergence.csv", figure_convergence),
    "choosing": ("choosing.csv", figure_choosing),
}


def main(names: list[str]) -> None:
    FIGURES.mkdir(exist_ok=True)
    # The same rows give the same bytes: no date, no random ids, text as text.
    plt.rcParams.update(
        {
            "svg.hashsalt": "consilience",
            "svg.fonttype": "none",
            "font.size": 9,
            "axes.titlesize": 10,
        }
    )
    for name in names or DRAWN:
        source, draw = DRAWN[name]
        rows = read_rows(RESULTS / source)
        if not rows:
            print(f"{name}: no rows in {source}, left out")
            continue
        figure = draw(rows)
        path = FIGURES / f"{name}.svg"
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)
        print(f"{path.name}: {len(rows)} rows, {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
