"""Saved models load bit for bit; every other file is refused in one clear line."""

import json
import zipfile
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator

from consilience import fits
from consilience.domain import Domain
from consilience.errors import ModelFileError
from consilience.measurements import Kronecker, Measurement, Prefix, Ranges
from consilience.model import Model
from consilience.model.packing import VERSION
from consilience.regions import RegionGraph
from solvers.problems import RECORDS, D, cliques_of, noisy

SIX = np.arange(24.0).reshape(4, 6)


def fitted(**settings) -> Model:
    return by(fits.LeastSquares(**settings))


def by(fit: fits.Fit) -> Model:
    return fits.reconstruct(D, noisy(D, "ab bcd de", 1, (20.0, 5.0)), RECORDS, fit)


def with_queries() -> Model:
    """One of each query that can be stored, one of them on axes in another order, one used twice."""
    rng = np.random.default_rng(0)
    shared = Prefix(4)
    x = np.full(6, 100.0)
    made = [
        Measurement("c", shared.apply(np.full(4, 250.0)), stddev=3.0, query=shared),
        Measurement(
            "c", shared.apply(np.full(4, 260.0)), stddev=4.0, query=shared, noise="laplace"
        ),
        Measurement(("a", "b"), SIX @ x, stddev=20.0, query=SIX),
        Measurement(("b", "a"), SIX @ x, stddev=20.0, query=sparse.csr_array(SIX)),
        Measurement("e", [300.0, 400.0], stddev=2.0, query=Ranges(3, [(0, 1), (1, 3)])),
        Measurement(
            ("d", "c"),
            rng.normal(size=8),
            stddev=9.0,
            query=Kronecker([np.eye(2), Kronecker([shared])]),
        ),
        Measurement(("d", "e"), np.full((2, 3), 160.0), stddev=7.0),
        Measurement((), [RECORDS], stddev=1.5),
    ]
    return fits.reconstruct(D, made, fit=fits.LeastSquares(iterations=20))


MODELS = {
    "plain": fitted,
    "global": lambda: fitted(consistency="global"),
    "factor, prox": lambda: fitted(consistency="factor", solver="prox", iterations=3),
    "no iterations": lambda: fitted(iterations=0),
    "total estimated": lambda: fits.reconstruct(D, noisy(D, "ab cd", 2, noise="laplace")),
    "impossible cells": lambda: fitted(possible={("d", "e"): np.array([[1, 1, 0], [1, 1, 1]]) > 0}),
    "own graph": lambda: fitted(
        consistency=RegionGraph.saturated(D, cliques_of("abc bcd cde")).with_counting_numbers(0.3)
    ),
    "queries": with_queries,
    "shrunk": lambda: by(fits.Shrunk(seed=3)),
    "norm-cut": lambda: by(fits.NormCut()),
    "Laplace likelihood": lambda: fits.reconstruct(
        D, noisy(D, "ab bc", 2, noise="laplace"), fit=fits.LaplaceLikelihood(tolerance=1e-4)
    ),
    "possible cells": lambda: by(fits.PossibleCells()),
    "without a fit": lambda: replace(fitted(), fit=None),
    "without plan": lambda: replace(
        fitted(), diagnostics=replace(fitted().diagnostics, plan=None, bound=-np.inf)
    ),
}


def assert_same(one: Model, other: Model) -> None:
    assert one.domain == other.domain
    assert one.total == other.total
    assert one.graph.regions == other.graph.regions
    assert one.graph.kind == other.graph.kind
    np.testing.assert_array_equal(one.graph.edge_array, other.graph.edge_array)
    np.testing.assert_array_equal(one.graph.counting_numbers, other.graph.counting_numbers)
    assert one.tau.values.tobytes() == other.tau.values.tobytes()
    assert one.diagnostics == other.diagnostics
    assert repr(one) == repr(other)
    assert len(one.measurements) == len(other.measurements)
    for m, n in zip(one.measurements, other.measurements, strict=True):
        assert (m.clique, m.stddev, m.noise, type(m.query)) == (
            n.clique, n.stddev, n.noise, type(n.query),
        )  # fmt: skip
        assert m.values.tobytes() == n.values.tobytes()
        eye = np.eye(m.query.cells)
        assert m.query.apply(eye).tobytes() == n.query.apply(eye).tobytes()
    assert one.total_known == other.total_known
    assert type(one.fit) is type(other.fit)
    assert_same_fit(one, other)
    assert (one.tree is None) == (other.tree is None)
    if one.tree is not None and other.tree is not None:
        assert one.tree.whole == other.tree.whole
        np.testing.assert_array_equal(
            one.tree.marginal(("a", "e")), other.tree.marginal(("a", "e"))
        )


def assert_same_fit(one: Model, other: Model) -> None:
    if one.fit is None or other.fit is None:
        return
    for field in fields(one.fit):  # pyright: ignore[reportArgumentType]
        mine, theirs = getattr(one.fit, field.name), getattr(other.fit, field.name)
        if isinstance(mine, RegionGraph):
            assert theirs is other.graph
        elif field.name == "possible":
            assert list(mine) == list(theirs)
            for clique, mask in mine.items():
                np.testing.assert_array_equal(mask, theirs[clique])
        else:
            assert mine == theirs


@pytest.mark.parametrize("name", MODELS)
def test_a_model_loads_bit_for_bit(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    model.save(tmp_path / "model.npz")
    assert_same(model, fits.load(tmp_path / "model.npz"))
    # Loaded and saved again: the very same bytes.
    fits.load(str(tmp_path / "model.npz")).save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model.npz").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again", "model.npz"]


def test_a_loaded_model_answers_and_refits(tmp_path: Path) -> None:
    model = fitted()
    model.save(tmp_path / "m.npz")
    other = fits.load(tmp_path / "m.npz")
    np.testing.assert_array_equal(other.marginal(("d", "b")), model.marginal(("d", "b")))
    for method in ("closed-form", "bootstrap"):
        one, two = (m.stderr(("d", "b"), method=method, replicates=3) for m in (model, other))
        np.testing.assert_array_equal(one, two)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.text(min_size=1, max_size=6), min_size=2, max_size=4, unique=True),
    st.lists(st.integers(1, 4), min_size=4, max_size=4),
    st.integers(0, 2**32),
)
def test_any_names_and_sizes_survive(tmp_path_factory, names, sizes, seed) -> None:
    domain = Domain(dict(zip(names, sizes, strict=False)))
    rng = np.random.default_rng(seed)
    made = [
        Measurement(
            c, rng.normal(50, 1e-3, domain.shape_of(c)), stddev=float(rng.uniform(1e-9, 1e9))
        )
        for c in (names[:2], names[-1:])
    ]
    model = fits.reconstruct(
        domain, made, total=float(rng.uniform(1, 1e9)), fit=fits.LeastSquares(iterations=2)
    )
    path = tmp_path_factory.mktemp("files") / "m.npz"
    model.save(path)
    assert_same(model, fits.load(path))


def test_huge_and_infinite_numbers_of_a_plan_survive(tmp_path: Path) -> None:
    """A junction tree of 10^200 cells is a Python integer in the plan, and its time is infinite."""
    wide = Domain({f"x{i}": 1000 for i in range(70)})
    model = fitted()
    plan = model.diagnostics.plan
    assert plan is not None
    cells = wide.size()
    option = replace(plan.options[0], cells=cells, bytes=8 * cells, seconds=float("inf"))
    huge = replace(plan, bytes=8 * cells, seconds=float("inf"), options=(option,))
    changed = replace(model, diagnostics=replace(model.diagnostics, plan=huge))
    changed.save(tmp_path / "m.npz")
    assert fits.load(tmp_path / "m.npz").diagnostics.plan == huge


def test_a_query_that_is_code_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    code = aslinearoperator(SIX)
    model = fits.reconstruct(
        D,
        [Measurement(("a", "b"), SIX @ np.ones(6), stddev=1.0, query=code)],
        total=6.0,
        fit=fits.LeastSquares(iterations=2),
    )
    with pytest.raises(
        ModelFileError, match=r"queries that are numbers, got Operator.*as a matrix"
    ):
        model.save(tmp_path / "m.npz")
    assert list(tmp_path.iterdir()) == []


# -- refusals ----------------------------------------------------------------------------------------


def refused(path: Path, words: str) -> None:
    with pytest.raises(ModelFileError, match=words) as caught:
        fits.load(path)
    assert "\n" not in str(caught.value)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    refused(tmp_path / "none.npz", "must exist, got")
    refused(tmp_path, "must be a file, got the folder")
    (tmp_path / "text").write_text("tau, 1, 2, 3\n")
    refused(tmp_path / "text", "that Model.save wrote, got .*something else")
    (tmp_path / "empty").write_bytes(b"")
    refused(tmp_path / "empty", "something else")
    np.savez(tmp_path / "other.npz", tau=np.ones(3))
    refused(tmp_path / "other.npz", "something else")
    np.save(tmp_path / "one.npy", np.ones(3))
    refused(tmp_path / "one.npy", "something else")
    np.savez(tmp_path / "alike.npz", consilience=np.frombuffer(b'{"format": "x"}', np.uint8))
    refused(tmp_path / "alike.npz", "something else")
    np.savez(tmp_path / "scalar.npz", consilience=np.frombuffer(b"3", np.uint8))
    refused(tmp_path / "scalar.npz", "something else")


def rewrite(path: Path, **changes) -> None:
    """The same archive with other arrays; a callable gets the old one, None drops it."""
    with np.load(path) as archive:
        arrays = dict(archive)
    for name, change in changes.items():
        if change is None:
            del arrays[name]
        else:
            arrays[name] = change(arrays[name]) if callable(change) else change
    np.savez(path, **arrays)


def json_with(**changes):
    def change(entry: np.ndarray) -> np.ndarray:
        described = json.loads(entry.tobytes())
        return np.frombuffer(json.dumps(described | changes).encode(), np.uint8)

    return change


def test_a_newer_version_is_told_apart_from_damage(tmp_path: Path) -> None:
    path = tmp_path / "m.npz"
    fitted().save(path)
    rewrite(path, consilience=json_with(version=VERSION + 1, surprise=[1, 2]))
    refused(path, rf"version {VERSION} or older, got {VERSION + 1}; .*upgrade to read it")
    rewrite(path, consilience=json_with(version="one"))
    refused(path, "damaged .*no version")


FORGERIES = {
    "no tau": {"tau": None},
    "short tau": {"tau": lambda a: a[:-1]},
    "tau of float32": {"tau": lambda a: a.astype(np.float32)},
    "NaN in tau": {"tau": lambda a: np.where(np.arange(a.size) == 3, np.nan, a)},
    "edges out of range": {"edges": lambda a: a + 100},
    "edges upside down": {"edges": lambda a: a[:, ::-1]},
    "kappa negative": {"counting_numbers": lambda a: -a},
    "kappa too long": {"counting_numbers": lambda a: np.tile(a, 2)},
    "attributes unknown": {"region_names": lambda a: a + 50},
    "attributes negative": {"region_names": lambda a: a - 1},
    "regions out of order": {"region_names": lambda a: a[::-1]},
    "measured cliques missing": {"measured_ends": lambda a: a[:-1]},
    "values missing": {"values": lambda a: a[:-1]},
    "values left over": {"values": lambda a: np.append(a, 0.0)},
    "stddev zero": {"stddevs": lambda a: 0 * a},
    "noise unknown": {"noises": lambda a: a + 9},
    "query unknown": {"queries": lambda a: a * 0 + 5},
    "domain with a size of 0": {"consilience": json_with(domain=[["a", 0]])},
    "total negative": {"consilience": json_with(total=-3)},
    "total no number": {"consilience": json_with(total={"float": "nan"})},
    "diagnostics of another shape": {"consilience": json_with(diagnostics={"gap": 3})},
    "fit of another shape": {"consilience": json_with(fit=[1])},
    "settings of another fit": {
        "consilience": json_with(
            fit={"name": "Shrunk", "settings": {"solver": 1}, "own_graph": False}
        )
    },
    "plan of another shape": {"consilience": json_with(plan={"options": 3})},
    "JSON cut off": {"consilience": lambda a: a[:-9]},
}


@pytest.mark.parametrize("name", FORGERIES)
def test_arrays_that_do_not_fit_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.npz"
    fitted().save(path)
    rewrite(path, **FORGERIES[name])
    refused(path, "must be whole, it is damaged .*save it again")


def test_a_query_that_goes_round_in_circles_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.npz"
    with_queries().save(path)
    loop = [{"kind": "Kronecker", "factors": [0]}] * 20
    rewrite(path, consilience=json_with(queries=loop))
    refused(path, "damaged .*comes later")
    rewrite(path, consilience=json_with(queries=[{"kind": "os.system"}] * 20))
    refused(path, "damaged .*'os.system' is unknown")


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "m.npz"
    fitted().save(path)
    rewrite(path, tau=np.array([{"a": 1}], dtype=object))
    refused(path, "damaged")


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.npz"
    fitted().save(path)
    whole = path.read_bytes()
    for length in range(4, len(whole), 97):
        path.write_bytes(whole[:length])
        refused(path, "damaged")
    path.write_bytes(whole[:2])
    refused(path, "something else")


def test_a_flipped_byte_is_noticed_or_harmless(tmp_path: Path) -> None:
    """Checksums cover the contents; what they do not cover (dates, padding) changes nothing."""
    path = tmp_path / "m.npz"
    model = fitted()
    model.save(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    noticed = 0
    places = rng.choice(len(whole), 300, replace=False)
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(changed))
        try:
            assert_same(model, fits.load(path))
        except ModelFileError:
            noticed += 1
    assert noticed > 0.8 * len(places)


def test_every_content_byte_is_covered(tmp_path: Path) -> None:
    path = tmp_path / "m.npz"
    fitted().save(path)
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        tau = archive.read("tau.npy")
    at = whole.index(tau)
    for place in (at + len(tau) - 1, at + len(tau) - 8, at + 130):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        refused(path, "damaged .*CRC")


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "m.npz"
    fitted().save(path)
    before = path.read_bytes()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", full)
    with pytest.raises(ModelFileError, match=r"can be written, got .*No space left on device"):
        fitted().save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m.npz"]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"where files can be written, got .*No such file"):
        fitted().save(tmp_path / "no" / "m.npz")
