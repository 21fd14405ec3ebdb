"""Places within places, drawn: every level's counts as nested rectangles, coloured by how far each can be relied on."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from consilience.domain import Domain
from consilience.domain.levels import Level
from consilience.model import Model
from consilience.report import charts

MOST_PLACES = 1500
"""Of a level that is drawn: more would be lines."""

Labels = Mapping[str, tuple[str, ...]]


def ladder(model: Model) -> list[str]:
    """The levels of one attribute that lie in each other and can be drawn, coarsest first; nothing where there are not two."""
    domain = model.domain
    best: list[str] = []
    for attribute in domain:
        chain = sorted(
            (v for v in domain.levels.values() if v.attribute == attribute), key=lambda v: v.size
        )
        names = [v.name for v in chain]
        nested = all(b.parents(a) is not None for a, b in pairwise(chain))
        if nested and chain and model.in_model(attribute):
            drawn = [n for n in (*names, attribute) if domain[n] <= MOST_PLACES]
            best = max(best, drawn, key=len)
    return best if len(best) > 1 else []


def rectangles(model: Model, names: list[str], labels: Labels) -> list[dict[str, Any]]:
    """A row for each place of each level, in the order of the tree."""
    domain = model.domain
    order = np.lexsort([_units(domain, name) for name in reversed(names)])
    rows: list[dict[str, Any]] = []
    for name, found in zip(names, model.uncertainties([(n,) for n in names]), strict=True):
        low, high = found.interval(0.9)
        seen = list(dict.fromkeys(_units(domain, name)[order].tolist()))
        ends = np.cumsum(np.maximum(found.answer[seen], 0.0))
        words = labels.get(name) or tuple(map(str, range(domain[name])))
        for place, end in zip(seen, ends.tolist(), strict=True):
            count = float(found.answer[place])
            reach = float(high[place] - low[place]) / 2
            rows.append({
                "level": name, "place": words[place], "from": end - max(count, 0.0), "to": end, "count": count,
                "reach": reach, "percent": 100 * reach / max(count, 1e-9) if count > 0 else 100.0,
            })  # fmt: skip
    return rows


def _units(domain: Domain, name: str) -> Any:
    level: Level | None = domain.levels.get(name)
    return np.arange(domain[name]) if level is None else level.units


def spec(model: Model, labels: Labels) -> charts.Spec | None:
    """The chart; None where no attribute has levels to draw."""
    names = ladder(model)
    return None if not names else charts.nested(rectangles(model, names, labels), names)
