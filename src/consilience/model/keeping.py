"""What a model keeps for the questions that come later, as arrays: replicates, packed; its backbone's potentials; whole rows."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Clique, Cliques, CliqueVector, Domain, Family, Layout
from consilience.errors import ConsilienceError
from consilience.model.assumed import Assumed
from consilience.model.replicates import Replicates, affordable, replicates_of
from consilience.model.whole import Rounding
from consilience.progress import Progress
from consilience.records import Dataset
from consilience.regions.pseudo_marginals import PseudoMarginals
from consilience.solvers.mixture import Mixture
from consilience.tree.kept import KeptBackbone

if TYPE_CHECKING:
    from consilience.model.model import Model

Arrays = dict[str, NDArray[Any]]
LEVEL = 6
"""Of zlib: a third of a second for the largest replicates that are kept."""


def lasting(model: Model, count: int | None, progress: Progress) -> Model:
    """`Model.lasting`."""
    kept = model.kept
    told = model.mixture is not None and model.known.holds_pairs(model.domain.attributes)
    if model.tree is None and kept is None and not told:
        kept = KeptBackbone.of(model.prepare(progress))
    simulated = model.replicates is not None and model.replicates.simulated  # which were asked for
    if count == 0 or not model.measurements or model.fit is None or (simulated and count is None):
        return replace(model, kept=kept)
    most = affordable(model) if count is None else count
    made = replicates_of(model, most, np.random.default_rng(0), progress)
    return replace(model, kept=kept, replicates=made.rounded())


def pack_kept(model: Model) -> tuple[Arrays, dict[str, Any]]:
    """Arrays, and what the JSON says about them."""
    arrays: Arrays = {}
    said: dict[str, Any] = {}
    if model.replicates is not None:
        found = model.replicates.rounded()
        arrays["replicates"] = _packed(found.deviations)
        arrays["replicate_scales"] = found.scales
        arrays["replicate_totals"] = found.totals
        said["replicates"] = len(found)
        open_ = found.assumed
        said["assumed"] = [open_.rate, open_.part, open_.order]
        if found.simulated:
            said["simulated"] = True
    if model.mixture is not None:
        arrays["class_weights"] = model.mixture.weights
        arrays["class_probabilities"] = model.mixture.probabilities
    kept = model.kept
    if kept is not None:
        arrays |= pack_cliques("backbone", model.domain, kept.theta.cliques)
        arrays |= pack_cliques("missed", model.domain, [c for c, _ in kept.missed])
        arrays["backbone_potentials"] = kept.theta.values
        arrays["missed_distances"] = np.array([d for _, d in kept.missed], np.float64)
        said["backbone"] = {
            "whole": kept.whole,
            "cells": kept.cells,
            "misfit": kept.misfit,
            "iterations": kept.iterations,
        }
    if model.rounding is not None:
        made = model.rounding
        said["whole"] = {
            "method": made.method,
            "tables": [[list(c), d, m] for c, (d, m) in made.tables.items()],
            "bound": made.bound,
            "nearest": made.nearest,
        }
        if made.rows is not None:
            arrays["whole_rows"] = made.rows.to_array()
    return arrays, said


def unpack_kept(
    arrays: Mapping[str, NDArray[Any]], said: Mapping[str, Any], known: PseudoMarginals
) -> dict[str, Any]:
    """The fields of the model; files of earlier versions have none of them."""
    found: dict[str, Any] = {"mixture": _mixture(known.domain, arrays)}
    if said.get("replicates"):
        layout = Layout(known.domain, known.cliques)
        count, scales = int(said["replicates"]), floats(arrays["replicate_scales"])
        totals = floats(arrays["replicate_totals"])
        if len(totals) != count or len(scales) != len(layout.cliques):
            raise ConsilienceError("replicates are not all there")
        moved = _unpacked(arrays["replicates"], count, layout.cells)
        numbers = [moved, scales, totals]
        if not all(np.isfinite(n).all() for n in numbers):
            raise ConsilienceError("numbers are not finite")
        rate, part, order = said.get("assumed", (0.0, 0.0, 0))
        if not (np.isfinite([rate, part]).all() and min(rate, part, order) >= 0):
            raise ConsilienceError("numbers are not finite")
        about = Assumed(float(rate), float(part), int(order))
        simulated = bool(said.get("simulated", False))
        found["replicates"] = Replicates(layout, moved, scales, totals, about, simulated)
    if said.get("backbone"):
        about = said["backbone"]
        cliques = unpack_cliques("backbone", known.domain, arrays)
        theta = CliqueVector(Layout(known.domain, cliques), floats(arrays["backbone_potentials"]))
        missed = unpack_cliques("missed", known.domain, arrays)
        distances = floats(arrays["missed_distances"]).tolist()
        found["kept"] = KeptBackbone(
            theta,
            bool(about["whole"]),
            int(about["cells"]),
            float(about["misfit"]),
            int(about["iterations"]),
            tuple(zip(missed, distances, strict=True)),
        )
    if said.get("whole"):
        about = said["whole"]
        rows = ints(arrays["whole_rows"]) if "whole_rows" in arrays else None
        found["rounding"] = Rounding(
            str(about["method"]),
            {tuple(c): (float(d), float(m)) for c, d, m in about["tables"]},
            float(about["bound"]),
            bool(about["nearest"]),
            None if rows is None else Dataset(rows, known.domain),
        )
    return found


def _mixture(domain: Domain, arrays: Mapping[str, NDArray[Any]]) -> Mixture | None:
    if "class_weights" not in arrays:
        return None
    weights, shares = (floats(arrays[f"class_{k}"]) for k in ("weights", "probabilities"))
    if shares.shape != (sum(domain.shape), len(weights)) or not len(weights):
        raise ConsilienceError("latent classes do not fit the domain")
    sound = np.isfinite(weights).all() and np.isfinite(shares).all()
    if not sound or weights.min() < 0 or shares.min() < 0 or abs(weights.sum() - 1) > 1e-6:
        raise ConsilienceError("latent classes are no distribution")
    return Mixture(domain, weights, shares)


def _packed(deviations: NDArray[np.floating[Any]]) -> NDArray[np.uint8]:
    """Low bytes after high bytes, which are alike, and then zlib."""
    halves = np.ascontiguousarray(deviations, np.dtype("<f2")).view(np.uint8).reshape(-1, 2)
    return np.frombuffer(zlib.compress(np.ascontiguousarray(halves.T).tobytes(), LEVEL), np.uint8)


def _unpacked(packed: NDArray[np.uint8], count: int, cells: int) -> NDArray[np.float16]:
    """Never more than the numbers that belong here, whatever the file says."""
    size = 2 * count * cells
    reader = zlib.decompressobj()
    data = reader.decompress(packed.tobytes(), size + 1)
    if len(data) != size or reader.unconsumed_tail:
        raise ConsilienceError("replicates are not as many as they say")
    halves = np.frombuffer(data, np.uint8).reshape(2, -1).T
    return np.ascontiguousarray(halves).view(np.dtype("<f2")).reshape(count, cells)


# -- cliques and numbers, as every part of a file has them ------------------------------------------


def pack_cliques(name: str, domain: Domain, cliques: Iterable[Clique]) -> Arrays:
    sets = Cliques.of(domain, cliques).sets
    return {f"{name}_names": sets.flat, f"{name}_ends": sets.ptr[1:]}


def unpack_cliques(name: str, domain: Domain, arrays: Mapping[str, NDArray[Any]]) -> Cliques:
    flat, ends = ints(arrays[f"{name}_names"]), ints(arrays[f"{name}_ends"])
    if ((flat < 0) | (flat >= len(domain))).any():
        raise ConsilienceError("an attribute is not in the domain")
    ptr = np.concatenate([np.zeros(1, np.int64), ends])
    if (np.diff(ptr) < 0).any() or ptr[-1] != len(flat):
        raise ConsilienceError("cliques are out of order")
    sets = Family(flat, ptr)
    if not sets.ascends:
        raise ConsilienceError("cliques are out of order")
    return Cliques(domain, sets)


def floats(array: NDArray[Any]) -> NDArray[np.float64]:
    if array.dtype != np.float64:
        raise ConsilienceError(f"numbers of type {array.dtype} where float64 belongs")
    return array


def ints(array: NDArray[Any]) -> NDArray[np.int64]:
    if array.dtype.kind not in "iu":
        raise ConsilienceError(f"numbers of type {array.dtype} where integers belong")
    return array.astype(np.int64)
