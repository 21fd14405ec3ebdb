"""Cell by cell against the authors: how many cells are better, equal or worse, and which are worse.

Equal: within two standard errors of the difference of means. The authors' standard error is known for the table; elsewhere it is
taken to be ours (the same number of seeds). What their rounding leaves open is added. Figure 2 is on the same draws, where 2 %
and the fourth decimal count as equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from common import RESULTS, means, read_rows
from reference import FEM, FIGURE_2AB, HDMM, MISSING_SEED, MWEM, NOISE_FREE, TABLE

ROUNDING = 0.00005
"""Half of the last decimal that they give."""
MWEM_ROUNDING = 0.0005
"""Their files of MWEM's rounds have three decimals, seed by seed."""


REASONS = {
    "2b, over-saturated": "the loss does not determine it; with the paper's solver it is met (next lines)",
    "table, global-300": "300 steps are too few there; 1,000 are enough (the line of global)",
    "table, global": "more steps than theirs, so the loss is lower and the noise is followed further; met on the way: "
    "at 3.16 and 10 after 300 steps, at 31.6 after 414 (.0036)",
}
"""Why groups have cells that are worse; a test refuses a worse cell without a reason."""


@dataclass(frozen=True)
class Cell:
    """One number of theirs and ours, and the width within which they count as equal."""

    group: str
    place: str
    theirs: float
    ours: float
    width: float

    @property
    def verdict(self) -> str:
        away = self.ours - self.theirs
        return "equal" if abs(away) <= self.width else "better" if away < 0 else "worse"


def figure_2() -> Iterator[Cell]:
    rows = read_rows(RESULTS / "figure2_accuracy.csv")
    for what, methods in FIGURE_2AB.items():
        solved = {m: methods.get(m.removesuffix("-prox"), {}) for m in (*methods, "over-saturated-prox")}  # fmt: skip
        for method, points in solved.items():
            for k, theirs in points.items():
                left_out = str(MISSING_SEED.get((method, k)))
                found = means([r for r in rows if r["seed"] != left_out], ["method", "k"], what)
                mean, _, seeds = found.get((method, str(k)), (0.0, 0.0, 0))
                if seeds == (4 if (method, k) in MISSING_SEED else 5):
                    group = f"2{'a' if what == 'in_model' else 'b'}, {method}"
                    yield Cell(group, f"k {k}", theirs, mean, 0.02 * theirs + ROUNDING)


def hdmm() -> Iterator[Cell]:
    found = means(read_rows(RESULTS / "hdmm_fire.csv"), ["method", "k"], "observed")
    for group, method, engine in (("3a, local", "squared", "region graph"), ("3a, exact", "exact", "exact")):  # fmt: skip
        for k, theirs in HDMM[engine].items():
            mean, error, seeds = found.get((method, str(k)), (0.0, 0.0, 0))
            if seeds > 1:
                yield Cell(group, f"k {k}", theirs, mean, 2 * 2**0.5 * error)


def mwem() -> Iterator[Cell]:
    found = means(read_rows(RESULTS / "mwem_fire.csv"), ["variant", "round"], "l1")
    for variant, engine in (("local", "region graph"), ("default", "exact")):
        for k, theirs in MWEM[engine, 0.1].items():
            if found.get((variant, str(k)), (0, 0, 0))[2] > 1:
                mean, error, _ = found[variant, str(k)]
                yield Cell(
                    f"3b, {variant} against {engine}",
                    f"round {k}",
                    theirs,
                    mean,
                    2 * 2**0.5 * error + MWEM_ROUNDING,
                )


def mwem_epsilons() -> Iterator[Cell]:
    found = means(read_rows(RESULTS / "mwem_epsilons.csv"), ["epsilon", "round"], "l1")
    for (epsilon, k), (mean, error, seeds) in found.items():
        theirs = MWEM["region graph", float(epsilon)].get(int(k))
        if theirs is not None and seeds > 1:
            group = f"3b, local at {float(epsilon):g} against region graph"
            yield Cell(group, f"round {k}", theirs, mean, 2 * 2**0.5 * error + MWEM_ROUNDING)


def fem() -> Iterator[Cell]:
    rows = [r for r in read_rows(RESULTS / "fem_adult.csv") if r["variant"] == "published"]
    for short, long in (("tv", "total_variation"), ("max", "largest")):
        found = {float(k[0]): v for k, v in means(rows, ["epsilon"], f"model_{short}").items()}
        for epsilon, theirs in FEM["region graph", long].items():
            if found.get(epsilon, (0, 0, 0))[2] > 1:
                mean, error, _ = found[epsilon]
                yield Cell(
                    f"3c, {long.replace('_', ' ')}",
                    f"epsilon {epsilon:g}",
                    theirs,
                    mean,
                    2 * 2**0.5 * error,
                )


def noise_free() -> Iterator[Cell]:
    rows = read_rows(RESULTS / "noise_free_mwem.csv")
    for name, engines in NOISE_FREE.items():
        ours = {int(r["round"]): float(r["mean_l1"]) for r in rows if r["data"] == name}
        for k, theirs in engines["exact"].items():
            if k and k in ours:
                yield Cell(
                    "noise-free, backbone against exact",
                    f"{name} round {k}",
                    theirs,
                    ours[k],
                    0.02 * theirs,
                )


def table() -> Iterator[Cell]:
    rows = read_rows(RESULTS / "adult_table.csv")
    found = means(rows, ["column", "epsilon"], "total_variation")
    against = {
        "noisy": "noisy", "local": "local-10000", "local-10000": "local-10000", "priview": "priview",
        "relaxed_projection-paper": "relaxed_projection-paper", "global": "global", "global-300": "global",
        "prior": "global",
    }  # fmt: skip
    for (column, epsilon), (mean, error, trials) in found.items():
        if column in against and trials > 1:
            near = min(TABLE["global"], key=lambda e: abs(e / float(epsilon) - 1))
            theirs, spread = TABLE[against[column]][near]
            width = 2 * (error**2 + spread**2 / 5 + ROUNDING**2) ** 0.5
            beside = "" if column.startswith(against[column][:5]) else f" against {against[column]}"
            yield Cell(f"table, {column}{beside}", f"epsilon {near:.3g}", theirs, mean, width)


def cells() -> list[Cell]:
    return [
        c for part in (figure_2, hdmm, mwem, mwem_epsilons, fem, noise_free, table) for c in part()
    ]


def lines() -> list[list[str]]:
    """One line per group: cells, better, equal, worse, and where and why it is worse."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells():
        groups.setdefault(cell.group, []).append(cell)
    out = []
    for group, members in groups.items():
        counts = [str(sum(c.verdict == v for c in members)) for v in ("better", "equal", "worse")]
        worse = [
            f"{c.place} ({c.ours:.4g}, theirs {c.theirs:.4g})"
            for c in members
            if c.verdict == "worse"
        ]
        said = "; ".join(worse) + f": {REASONS.get(group, 'not explained yet')}" if worse else ""
        out.append([group, str(len(members)), *counts, said])
    return out
