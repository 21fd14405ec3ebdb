"""The picture of the README and the docs' front page: noisy tables that contradict each other, then the same agreeing.

    python experiments/picture.py       writes docs/figures/agreement.svg

The people are generated and the noise is seeded, so that the picture can be made again; it protects nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np

import consilience as cs
from consilience.data import POPULATION_SCHEMA
from consilience.privacy import SeededNoise

TARGET = Path(__file__).parents[1] / "docs" / "figures" / "agreement.svg"
PEOPLE, SHARED, BESIDE = 1_500, "employment", ("sex", "urban")
BUDGET = cs.Budget(epsilon=0.4, delta=1e-6, neighbours="replace-one")
WIDTH, ROW, TOP, STEP = 940, 23, 110, 52
INK, QUIET, LINE, BAD, GOOD = "#1b2129", "#51606e", "#d5dbe1", "#a23b12", "#1f6b3a"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"

TOLD = "Two noisy tables whose totals differ, and the same tables reconstructed: equal totals, no negative counts"

Table = np.ndarray


def tables() -> tuple[list[Table], list[Table]]:
    """The two tables with noise, and reconstructed from it: rows are what they share."""
    data = cs.population(PEOPLE, np.random.default_rng(2021))
    workload = cs.Workload(data.domain, [(SHARED, other) for other in BESIDE])
    result = cs.mechanisms.Gaussian(workload).calibrate(BUDGET)(data, noise=SeededNoise(seed=7))
    noisy, fitted = [], []
    for m in result.measurements:
        shape = data.domain.shape_of(m.attributes)
        found, own = m.values.reshape(shape), result.model.marginal(m.attributes)
        turned = m.attributes[0] != SHARED
        noisy.append(found.T if turned else found)
        fitted.append(own.T if turned else own)
    return noisy, fitted


def text(
    x: float, y: float, words: str, fill: str = INK, anchor: str = "start", size: int = 13, weight: int = 400
) -> str:  # fmt: skip
    look = f'fill="{fill}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}"'
    return f'<text x="{x}" y="{y}" {look}>{escape(words)}</text>'


def block(x: float, title: str, pair: Sequence[Table], *, agree: bool) -> list[str]:
    """Two tables with their totals side by side; what cannot be is marked."""
    labels = POPULATION_SCHEMA.labels
    out = [text(x, 34, title, size=17, weight=650)]
    said = (
        "the totals agree, nothing is negative"
        if agree
        else "the same people counted twice, and not the same"
    )
    out.append(text(x, 56, said, fill=QUIET))
    rows = labels[SHARED]
    out += [text(x, TOP + ROW * (i + 1), label) for i, label in enumerate(rows)]
    totals = [np.round(t.sum(axis=1)) for t in pair]
    at = x + 92
    for own, other in zip(pair, BESIDE, strict=True):
        columns = labels[other][: own.shape[1]]
        step, wide = STEP, STEP * (len(columns) + 1)
        out.append(text(at + 6, TOP - 20, f"by {other}", fill=QUIET, weight=600))
        for j, name in enumerate([*columns, "total"]):
            out.append(text(at + step * (j + 1) - 4, TOP, name, fill=QUIET, anchor="end", size=12))
        out.append(
            f'<line x1="{at}" x2="{at + wide}" y1="{TOP + 6}" y2="{TOP + 6}" stroke="{LINE}"/>'
        )
        for i in range(len(rows)):
            y = TOP + ROW * (i + 1)
            differs = totals[0][i] != totals[1][i]
            fill = "#e3f1e7" if not differs else "#fbe4da"
            out.append(
                f'<rect x="{at + wide - 50}" y="{y - 16}" width="50" height="{ROW - 2}" rx="4" fill="{fill}"/>'
            )
            for j in range(len(columns)):
                value = round(float(own[i, j])) + 0
                bad = value < 0
                out.append(
                    text(
                        at + step * (j + 1) - 4,
                        y,
                        f"{value:,}".replace("-", "\u2212"),
                        fill=BAD if bad else INK,
                        anchor="end",
                        weight=700 if bad else 400,
                    )
                )
            total = round(float(own[i].sum())) + 0
            out.append(
                text(
                    at + wide - 6,
                    y,
                    f"{total:,}".replace("-", "\u2212"),
                    fill=BAD if differs else GOOD,
                    anchor="end",
                    weight=650,
                )
            )
        at += wide + 12
    return out


def main() -> None:
    noisy, fitted = tables()
    height = TOP + ROW * len(noisy[0]) + 30
    half, y = WIDTH / 2 + 24, TOP + ROW * len(noisy[0]) / 2 + 6
    arrow = (
        f'd="M{half - 40} {y}h26m-9 -8l9 8l-9 8" fill="none" stroke="{QUIET}" stroke-width="2.5"'
    )
    body = [
        f'<rect x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="10" fill="#ffffff" stroke="{LINE}"/>',
        *block(22, "Noisy tables", noisy, agree=False),
        *block(half, "Reconstructed", fitted, agree=True),
        f'<path {arrow} stroke-linecap="round" stroke-linejoin="round"/>',
    ]
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    opened = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{TOLD}" font-family="{escape(FONT)}">'
    TARGET.write_text("\n".join([opened, *body, "</svg>\n"]), encoding="utf-8")
    print(TARGET, TARGET.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
