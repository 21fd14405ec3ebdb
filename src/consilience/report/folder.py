"""A release folder as a report needs it: the published standard errors and what the files say about the promise."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet

from consilience.domain import Buffer, Clique
from consilience.errors import ReleaseError
from consilience.release import Published
from consilience.report.promise import Promise


def promise_of(published: Published) -> Promise:
    """What release.json and ledger.json state."""
    file = published.path / "ledger.json"
    ledger = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
    try:
        return Promise.of_release(published.facts, ledger)
    except KeyError as missing:
        raise ReleaseError(
            f"the release {str(published.path)!r} must state its {missing}, it does not; make it anew"
        ) from missing


def standard_errors(published: Published) -> dict[Clique, Buffer | None]:
    """{clique: standard errors as published, None where there are none} of every table in the folder."""
    domain = published.model.domain
    found: dict[Clique, Buffer | None] = {}
    for entry in published.facts.get("tables", ()):
        clique = domain.clique(entry["attributes"])
        table = pyarrow.parquet.read_table(published.path / f"{entry['file']}.parquet")
        if "stderr" not in table.column_names:
            found[clique] = None
            continue
        values = np.asarray(table.column("stderr").to_numpy(), dtype=np.float64)
        shape = domain.shape_of(tuple(entry["attributes"]))
        order = [entry["attributes"].index(a) for a in clique]
        found[clique] = values.reshape(shape).transpose(order)
    return found


def default_path(folder: Path) -> Path:
    """Where the report of a release is, unless said otherwise."""
    return folder / "report.html"
