"""`make experiments QUICK=1`, run once, and the paper's claims on the rows it writes: small sizes, but each script as it is."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import catalogue
import common
import pytest
import reference

pytestmark = pytest.mark.slow

RUNNER = Path(__file__).parents[2] / "experiments" / "run.py"
HAVE_DATA = common.data_folder().is_dir()


class Quick:
    """The folder that the runner filled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def rows(self, figure: str) -> list[dict[str, str]]:
        experiment = catalogue.BY_NAME[figure]
        if experiment.data and not HAVE_DATA:
            pytest.skip(f"needs the paper's data in {common.data_folder()}; set CONSILIENCE_DATA")
        found = common.read_rows(self.folder / experiment.rows)
        assert found, f"{figure} must have left rows"
        return found

    def means(self, figure: str, by: list[str], value: str) -> dict[tuple[str, ...], float]:
        return {k: v[0] for k, v in common.means(self.rows(figure), by, value).items()}


@pytest.fixture(scope="module")
def quick(tmp_path_factory) -> Quick:
    folder = tmp_path_factory.mktemp("quick")
    words = [sys.executable, str(RUNNER), "--quick", "--folder", str(folder)]
    done = subprocess.run(words, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return Quick(folder)


@pytest.mark.parametrize("figure", [e.name for e in catalogue.EXPERIMENTS if e.quick is not None])
def test_every_quick_form_leaves_rows_and_a_manifest(quick, figure) -> None:
    assert quick.rows(figure)
    manifest = (quick.folder / catalogue.BY_NAME[figure].rows).with_suffix(".manifest.json")
    assert json.loads(manifest.read_text())["last_run"]["exit_code"] == 0


@pytest.mark.parametrize(
    ("what", "order"),
    [
        ("in_model", ["exact", "saturated", "factor", "noisy"]),
        ("out_of_model", ["exact", "saturated", "factor"]),
        ("out_of_model", ["backbone", "saturated"]),
    ],
)
@pytest.mark.parametrize("seed", common.SEEDS[:2])
def test_2ab_richer_graphs_are_closer_to_the_truth(quick, what, order, seed) -> None:
    found = quick.means("2ab", ["method", "seed"], what)
    values = [found[method, str(seed)] for method in order]
    assert values == sorted(values)
    assert values[-1] > 1.05 * values[0]


def test_2b_the_backbone_is_nearly_as_good_as_exact_outside_the_model(quick) -> None:
    found = quick.means("2ab", ["method"], "out_of_model")
    ours, exact, local = (found[m,] for m in ("backbone", "exact", "saturated"))
    assert ours < exact + 0.25 * (local - exact)


def test_2c_work_grows_linearly_and_exact_is_refused(quick) -> None:
    rows = {(r["engine"], r["selection"], int(r["k"])): r for r in quick.rows("2c")}
    for kind in ("random", "greedy"):
        few, many = (int(rows["saturated", kind, k]["cells"]) / k for k in (109, 1048))
        assert max(few, many) < 1.15 * min(few, many)
    assert rows["exact", "random", 20]["seconds"]
    assert not rows["exact", "random", 62]["seconds"], "its junction tree has 10^12 cells"
    assert rows["saturated", "random", 1048]["seconds"]


def test_3a_reconstruction_improves_hdmm(quick) -> None:
    rows = [r for r in quick.rows("3a") if r["method"] == "squared"]
    gains = {int(r["k"]): float(r["expected"]) / float(r["observed"]) for r in rows}
    assert all(g > 1.2 for g in gains.values())
    assert gains[16] > 1.6


def test_3b_local_mwem_follows_the_authors_region_graph(quick) -> None:
    found = quick.means("3b-epsilons", ["epsilon", "round"], "l1")
    for epsilon, k in itertools.product((0.05, 0.2), (5, 10, 15, 20)):
        theirs = reference.MWEM["region graph", epsilon][k]
        assert found[f"{epsilon:g}", str(k)] == pytest.approx(theirs, rel=0.05)


def test_3c_reconstruction_is_below_fem(quick) -> None:
    (row,) = quick.rows("3c")
    assert float(row["model_tv"]) < 0.95 * float(row["fem_tv"])
    assert float(row["model_tv"]) < reference.FEM["region graph", "total_variation"][0.1]


def test_the_table_local_beats_priview_and_the_prior_beats_all(quick) -> None:
    found = quick.means("table", ["column", "epsilon"], "total_variation")
    for epsilon in {e for _, e in found}:
        column = {c: v for (c, e), v in found.items() if e == epsilon}
        assert column["local"] < column["priview"] < column["noisy"]
        assert column["prior"] == min(column.values())


def test_rivals_grem_lnn_ends_where_local_consistency_ends(quick) -> None:
    found = quick.means("rivals", ["method"], "total_variation")
    assert found["grem-lnn",] == pytest.approx(found["local",], rel=0.01)
    assert found["local",] < 0.1 * found["least squares",]


def test_the_prior_is_closer_than_local_consistency_alone(quick) -> None:
    (row,) = quick.rows("prior")
    assert float(row["prior"]) < 0.8 * float(row["plain"])
