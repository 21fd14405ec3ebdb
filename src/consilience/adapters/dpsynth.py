"""dpsynth's noisy marginals: a list of frames, one per table, the last column `count`, every other one an attribute's values.

A combination that is absent was not measured. The frames say nothing about the noise, so the standard deviation must be given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from consilience.adapters.frames import measured_cells
from consilience.domain import Domain
from consilience.errors import AdapterError
from consilience.measurements import Measurement
from consilience.measurements.measurement import Noise
from consilience.model.frames import frame
from consilience.model.model import Model


def measurements(
    frames: Iterable[Any],
    *,
    stddev: float | Sequence[float],
    domain: Domain | None = None,
    noise: Noise = "gaussian",
) -> tuple[Domain, list[Measurement]]:
    """The domain and the measurements of dpsynth's frames.

    domain: with labels for every attribute, which are what its values are as text; without one it is made of the values that
    the frames list, in the order of first sight. stddev: of the counts, one number or one per frame.
    """
    listed = list(frames)
    widths = np.broadcast_to(np.asarray(stddev, np.float64), len(listed))
    columns = [_columns(f) for f in listed]
    known = _seen(columns) if domain is None else domain
    code = {a: {word: i for i, word in enumerate(words)} for a, words in known.labels.items()}
    made = []
    for told, width in zip(columns, widths, strict=True):
        *names, _ = told
        unlabelled = [a for a in names if a not in code]
        if unlabelled:
            raise AdapterError(f"the domain must have labels for {unlabelled[0]!r}, it has none")
        codes = np.zeros((len(told["count"]), len(names)), np.int64)
        for i, a in enumerate(names):
            for r, value in enumerate(told[a]):
                if str(value) not in code[a]:
                    raise AdapterError(
                        f"every value of {a!r} must be a label of the domain, got {value!r}"
                    )
                codes[r, i] = code[a][str(value)]
        counts = np.asarray(told["count"], np.float64)
        made.append(measured_cells(known, names, codes, counts, float(width), noise))
    return known, made


def frames(model: Model, cliques: Iterable[str | Iterable[str]]) -> list[Any]:
    """Tables of a model as dpsynth's frames, values as labels where the domain has them."""
    made = []
    for clique in (model.domain.clique(c) for c in cliques):
        table = model.marginal(clique)
        columns: dict[str, Any] = {}
        for a, codes in zip(clique, np.indices(table.shape), strict=True):
            words, flat = model.domain.labels.get(a), codes.reshape(-1)
            columns[a] = flat if words is None else np.array(words, dtype=object)[flat]
        made.append(frame(columns | {"count": table.reshape(-1)}))
    return made


def _columns(given: Any) -> dict[str, list[Any]]:
    names = [str(c) for c in given.columns]
    if not names or names[-1] != "count":
        last = repr(names[-1]) if names else "none"
        raise AdapterError(f"the last column of a frame must be named 'count', got {last}")
    return {name: list(np.asarray(given[name])) for name in names}


def _seen(columns: Sequence[dict[str, list[Any]]]) -> Domain:
    words: dict[str, dict[str, None]] = {}
    for told in columns:
        for name, values in told.items():
            if name != "count":
                words.setdefault(name, {}).update(dict.fromkeys(map(str, values)))
    return Domain(
        {a: len(w) for a, w in words.items()}, labels={a: tuple(w) for a, w in words.items()}
    )
