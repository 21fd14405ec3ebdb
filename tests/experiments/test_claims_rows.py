"""The paper's claims at full size, on the rows committed in experiments/results; a claim whose rows are not there is skipped."""

import itertools

import common
import intervals
import noise_free_mwem
import pytest
import reference
import tables
import verdict


def rows_of(name: str) -> list[dict[str, str]]:
    found = common.read_rows(common.RESULTS / name)
    if not found:
        pytest.skip(f"no rows in experiments/results/{name}; make experiments makes them")
    return found


def table(name: str, by: list[str], value: str) -> dict[tuple[str, ...], tuple[float, float, int]]:
    return common.means(rows_of(name), by, value)


def test_figure_2a_order_at_every_k_of_five_seeds() -> None:
    found = table("figure2_accuracy.csv", ["method", "k"], "in_model")
    compared = 0
    for k in {k for _, k in found}:
        mean = {m: v[0] for (m, kk), v in found.items() if kk == k and v[2] == 5}
        order = [m for m in ("exact", "saturated", "factor", "noisy") if m in mean]
        values = [mean[m] for m in order]
        # One triple alone: three times the same problem.
        assert all(a <= b * 1.01 for a, b in itertools.pairwise(values)), (k, mean)
        compared += len(order) > 2
    assert compared >= 10


def test_figure_2a_and_2b_meet_the_authors_means() -> None:
    """The same draws and the same seeds: at most 3 % above the authors' mean; below is welcome."""
    rows = rows_of("figure2_accuracy.csv")
    worse, compared = [], 0
    for what, methods in reference.FIGURE_2AB.items():
        for method, points in methods.items():
            for k, theirs in points.items():
                left_out = str(reference.MISSING_SEED.get((method, k)))
                same = [r for r in rows if r["seed"] != left_out]
                mean, _, seeds = common.means(same, ["method", "k"], what).get(
                    (method, str(k)), (0, 0, 0)
                )
                # What the loss does not determine cannot be compared: docs/reproduction.md, over-saturated.
                if seeds < 4 or (method, what) == ("over-saturated", "out_of_model"):
                    continue
                compared += 1
                if mean > 1.03 * theirs + 0.00005:  # they are typed with four decimals
                    worse.append((what, method, k, mean, theirs))
    assert not worse
    assert compared >= 40


def test_figure_2c_cells_grow_linearly_and_an_iteration_stays_cheap_per_cell() -> None:
    rows = [r for r in rows_of("figure2_speed.csv") if r["engine"] == "saturated"]
    large = [r for r in rows if int(r["k"]) >= 1000]
    assert len(large) >= 4
    for r in large:
        assert int(r["cells"]) < 1.2e3 * int(r["k"])
    refused = [
        r for r in rows_of("figure2_speed.csv") if r["engine"] == "exact" and not r["seconds"]
    ]
    assert refused, "exact must have been refused somewhere"


def test_two_roads_reach_one_optimum_and_splitting_is_certified_far_sooner() -> None:
    rows = rows_of("convergence.csv")
    last = {m: [r for r in rows if r["method"] == m][-1] for m in ("splitting", "prox", "prox-accelerated")}  # fmt: skip
    best = float(last["splitting"]["objective"])
    assert float(last["splitting"]["gap"]) < 1e-10
    for method in ("prox", "prox-accelerated"):
        row = last[method]
        assert best * (1 - 1e-7) < float(row["objective"]) < best * (1 + 1e-3)
        assert float(row["bound"]) < best * (1 + 1e-7)
        assert float(row["gap"]) > 1e-3
    quick = next(r for r in rows if r["method"] == "splitting" and float(r["gap"]) < 1e-6)
    assert 100 * float(quick["cpu_seconds"]) < float(last["prox"]["cpu_seconds"])


def test_figure_3a_improvement_of_about_three_at_455() -> None:
    expected = table("hdmm_fire.csv", ["method", "k"], "expected")["squared", "455"][0]
    found = table("hdmm_fire.csv", ["method", "k"], "observed")
    assert expected / found["squared", "455"][0] > 2.9
    # Not worse than the authors' region graph beyond their own scatter at any k; clearly better from 64 on.
    for (method, k), (mean, _, _) in found.items():
        if method == "squared":
            theirs = reference.HDMM["region graph"][int(k)]
            assert mean < (0.98 if int(k) >= 64 else 1.04) * theirs


def test_figure_3b_local_runs_to_completion_and_meets_the_authors() -> None:
    found = table("mwem_fire.csv", ["variant", "round"], "l1")
    last = found["local", "105"]
    assert last[2] == 5
    assert last[0] <= reference.MWEM["region graph", 0.1][105]
    assert last[0] < reference.MWEM["exact", 0.1][35]
    for k, theirs in reference.MWEM["region graph", 0.1].items():
        if ("local", str(k)) in found:
            assert found["local", str(k)][0] < 1.02 * theirs


def test_figure_3b_default_keeps_up_with_exact_and_goes_on() -> None:
    found = table("mwem_fire.csv", ["variant", "round"], "l1")
    for k in (10, 20, 30):
        assert found["default", str(k)][0] < 1.05 * reference.MWEM["exact", 0.1][k]
    assert found["default", "105"][0] < 0.0150 < reference.MWEM["region graph", 0.1][105]
    assert found["default", "105"][2] == 5


def test_figure_3b_default_is_the_exact_model_and_goes_on() -> None:
    found = table("mwem_fire.csv", ["variant", "round"], "l1")
    bars = {10: 0.178, 20: 0.0404, 30: 0.025, 105: 0.0150}
    for k, bar in bars.items():
        mean, _, seeds = found["default", str(k)]
        assert seeds == 5
        assert mean <= bar, k
    for k, theirs in reference.MWEM["exact", 0.1].items():
        if ("default", str(k)) in found:
            assert found["default", str(k)][0] < 1.02 * theirs
    by_round = sorted((int(k), v[0]) for (name, k), v in found.items() if name == "default")
    means = [mean for _, mean in by_round]
    assert means == sorted(means, reverse=True)


def test_figure_3c_reconstruction_is_below_fem() -> None:
    rows = rows_of("fem_adult.csv")
    for r in rows:
        assert float(r["model_tv"]) < float(r["fem_tv"])
    published = [r for r in rows if r["variant"] == "published"]
    mean = {
        (column, float(epsilon)): value[0]
        for column in ("model_tv", "fem_max", "model_max")
        for (epsilon,), value in common.means(published, ["epsilon"], column).items()
    }
    for epsilon, theirs in reference.FEM["region graph", "total_variation"].items():
        assert mean["model_tv", epsilon] < 1.02 * theirs
        assert mean["model_max", epsilon] < mean["fem_max", epsilon]


def test_noise_free_mwem_follows_exact_while_exact_ran() -> None:
    """Near the authors' exact, and far below their region graph where chains are long."""
    rows = rows_of("noise_free_mwem.csv")
    for name, engines in reference.NOISE_FREE.items():
        ours = {int(r["round"]): float(r["mean_l1"]) for r in rows if r["data"] == name}
        for k, theirs in engines["exact"].items():
            if k in ours:
                assert ours[k] < 1.1 * theirs, (name, k)
                if k >= 20 and name in ("fire", "msnbc"):
                    assert ours[k] < 0.3 * engines["region graph"][k]


@pytest.mark.parametrize("name", noise_free_mwem.NAMES)
def test_noise_free_mwem_at_every_round(name: str) -> None:
    """Never 2 % above the authors' exact trace; beyond it at most half of their region graph's where the law allows it."""
    if not (noise_free_mwem.FOLDER / "reference-results").is_dir():
        pytest.skip("the authors' traces are not here; set CONSILIENCE_DATA")
    rows = [r for r in rows_of("noise_free_mwem.csv") if r["data"] == name]
    ours = [float(r["mean_l1"]) for r in rows]
    exact, local = (noise_free_mwem.trace(name, kind) for kind in ("exact", "approx"))
    assert len(ours) == len(local)
    assert ours[-1] < 1e-6
    assert all(o <= 1.02 * e for o, e in zip(ours, exact, strict=False))
    if name in ("fire", "msnbc"):
        later = range(len(exact), len(local))
        assert all(ours[k] <= 0.5 * local[k] + 1e-9 for k in later)


def test_noise_free_mwem_on_adult_and_loans_is_between_the_floor_and_the_region_graph() -> None:
    for r in rows_of("noise_free_floor.csv"):
        assert float(r["floor"]) < 1.05 * float(r["ours"])
        assert float(r["ours"]) < 1.1 * float(r["authors_region_graph"])


def test_the_table_local_beats_priview_between_0_0316_and_31_6() -> None:
    found = table("adult_table.csv", ["column", "epsilon"], "total_variation")
    for (column, epsilon), (mean, _, _) in found.items():
        if column == "local" and 0.03 < float(epsilon) < 32:
            assert mean < found["priview", epsilon][0]
        if column == "prior":
            rivals = [
                v[0]
                for (c, e), v in found.items()
                if e == epsilon and not c.startswith(("prior", "global"))
            ]
            near = min(reference.TABLE["global"], key=lambda e: abs(e - float(epsilon)))
            assert mean < 1.01 * min(rivals)
            assert mean < reference.TABLE["global"][near][0]


def test_aim_is_not_above_others_where_they_ended() -> None:
    """Over the seeds that both ran."""
    rows = rows_of("aim.csv")
    ended = {
        (r["data"], r["epsilon"], r["seed"], r["variant"]): float(r["total_variation"])
        for r in rows
        if r["total_variation"]
    }
    pairs = [
        (ended[d, e, s, "ours"], theirs)
        for (d, e, s, variant), theirs in ended.items()
        if variant in ("dpmm", "opendp")
    ]
    assert pairs
    assert sum(ours for ours, _ in pairs) <= sum(theirs for _, theirs in pairs)
    assert all(r["note"] for r in rows if not r["total_variation"]), (
        "a run that did not end says so"
    )


def test_the_prior_hurts_nowhere_on_five_data_sets() -> None:
    found = {
        column: table("prior_and_path.csv", ["data", "way", "epsilon"], column)
        for column in ("plain", "prior")
    }
    assert len(found["plain"]) == 50
    assert all(v[2] == 5 for v in found["plain"].values()), "five seeds each"
    ratios = {k: found["prior"][k][0] / v[0] for k, v in found["plain"].items()}
    assert max(ratios.values()) <= 1.02, ratios
    assert sum(r <= 0.9 for r in ratios.values()) >= 25, "worth having in half of the cells"


def test_no_cell_is_worse_than_the_authors_without_a_reason() -> None:
    found = verdict.cells()
    if not found:
        pytest.skip("no rows in experiments/results; make experiments makes them")
    worse = {c.group for c in found if c.verdict == "worse"}
    assert worse <= set(verdict.REASONS)
    page = (common.ROOT / "docs" / "reproduction.md").read_text()
    assert all(verdict.REASONS[group] in page for group in worse)


@pytest.mark.parametrize(
    ("ours", "expected"), [(1.0, "equal"), (1.09, "equal"), (1.11, "worse"), (0.89, "better")]
)
def test_verdicts(ours: float, expected: str) -> None:
    assert verdict.Cell("group", "place", 1.0, ours, 0.1).verdict == expected


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """docs/uncertainty.md, by data set and epsilon: the goal of 0.88 to 0.94, and a hundredth for chance."""
    every = [r for r in rows_of("intervals.csv") if r["basis"] == "measured"]
    rows = [r for r in every if r["fit"] != "latent-classes"]
    found = intervals.pooled(rows, ("data", "epsilon"))
    assert len(found) == 9
    for key, share in found.items():
        for kind in ("cells", "large", "zeros"):
            enough = share["numbers"][kind] >= 1000
            assert not enough or 0.87 <= share[kind] <= 0.95, (key, kind, share[kind])
        assert 0.8 <= share["variation"] <= 1.3, key
    classes = intervals.pooled(
        [r for r in every if r["fit"] == "latent-classes"], ("mechanism", "epsilon")
    )
    assert len(classes) == 6
    for key, share in classes.items():
        assert 0.88 <= share["cells"] <= 0.94, key
        assert 0.88 <= share["large"] <= 0.94, key
        assert share["zeros"] >= 0.93, "true zeros are held more often: docs/uncertainty.md says so"
        assert 0.8 <= share["variation"] <= 1.3, key
    single = [r for r in rows_of("intervals.csv") if r["basis"] == "single"]
    found = intervals.pooled(single, ("mechanism", "epsilon"))
    assert len(found) == 6
    for key, share in found.items():
        assert 0.88 <= share["cells"] <= 0.94, key
        assert 0.88 <= share["large"] <= 0.94, key
        assert 0.8 <= share["variation"] <= (1.4 if "gaussian" in key else 1.3), key


def test_simulated_errors_hold_as_much_as_refits_but_with_latent_classes() -> None:
    """docs/uncertainty.md, "The whole mechanism again": measured tables, by mechanism."""
    rows = [r for r in rows_of("intervals-simulated.csv") if r["basis"] == "measured"]
    found = intervals.pooled(rows, ("mechanism", "errors"))
    for mechanism in ("mwem", "aim"):
        one, two = (found[mechanism, kind]["cells"] for kind in ("refits", "simulated"))
        assert 0.87 <= one <= 0.94
        assert abs(one - two) < 0.02, mechanism
    assert found["pilot", "refits"]["cells"] > 0.9
    assert found["pilot", "simulated"]["cells"] < 0.87, "too small: the docs say so"


def test_nists_score_of_what_auto_chooses_is_above_mst_and_aim() -> None:
    """At every epsilon that was run, by more than three standard errors of ours."""
    done = [r for r in rows_of("kmarginal.csv") if r["status"] == "done"]
    done = tables.of_table(done, "massachusetts", "all")
    found = common.means(done, ["design", "epsilon"], "score")
    compared = 0
    for (design, epsilon), (score, _, _) in found.items():
        if design in ("aim", "mst", "aim-own"):
            own, error, seeds = found["auto", epsilon]
            assert seeds == 5
            assert own - 3 * error > score, (design, epsilon)
            compared += 1
    assert compared >= 3


def test_rows_of_auto_are_closer_than_those_of_others_mechanisms() -> None:
    """docs/comparison.md: all pairs and all triples, every data set, whatever the other was asked for."""
    done = [r for r in tables.over_seeds(rows_of("others.csv")) if r["status"] == "done"]
    own = {(r["data"], r["ways"]): r for r in done if r["run"] == "ours-auto"}
    compared = 0
    for row in done:
        if not row["run"].startswith("ours"):
            for ways, judged in (("2", "pairs"), ("3", "triples")):
                ours = own[row["data"], ways]
                assert float(ours[judged]) < 0.9 * float(row[judged]), (row["data"], row["run"])
                assert float(ours["cpu_seconds"]) < 0.5 * float(row["cpu_seconds"])
                compared += 1
    assert {r["data"] for r in done} == {"titanic", "adult", "acs"}
    assert compared >= 30


def test_told_what_cannot_occur_the_score_is_higher_and_above_a_40_percent_sample_at_5() -> None:
    rows = tables.of_table(rows_of("kmarginal.csv"), "massachusetts", "all")
    found = common.means(rows, ["design", "epsilon"], "score")
    for epsilon in ("1", "5", "10"):
        assert found["auto-known", epsilon][0] > found["auto", epsilon][0] + 3
    assert found["auto-known", "5"][0] > found["sample", "40"][0] + 3
    assert found["auto-known", "1"][0] < found["sample", "40"][0], "docs/comparison.md says so"


def test_on_the_national_excerpt_the_score_is_that_of_a_40_percent_sample() -> None:
    """The ten columns of SDNist's reports: SmartNoise's AIM 976, MST 958, a 40 % sample 987. The judge agrees on samples."""
    rows = tables.of_table(rows_of("kmarginal.csv"), "national", "demographic")
    found = common.means(rows, ["design", "epsilon"], "score")
    published = {"1": 902, "5": 946, "10": 969, "20": 977, "40": 987, "60": 992, "80": 994}
    for part, score in published.items():
        assert abs(found["sample", part][0] - score) < (12 if float(part) < 20 else 4), part
    for design, below in (("auto", 0.6), ("auto-known", 0.1)):
        own, error, seeds = found[design, "1"]
        assert seeds == 5
        assert own - 3 * error > published["40"]
        assert own > found["sample", "40"][0] - below, "docs/comparison.md says by how much"
        assert found[design, "5"][0] > found["sample", "60"][0]


def test_a_classifier_learns_more_from_our_rows_than_from_those_of_mst_and_aim() -> None:
    done = [r for r in rows_of("ml_use.csv") if r["status"] == "done"]
    found = common.means(done, ["data", "epsilon", "design"], "auc")
    compared = 0
    for (data, epsilon, design), (area, _, _) in found.items():
        if design in ("aim", "mst"):
            assert found[data, epsilon, "auto"][0] > area, (data, design)
            compared += 1
    assert compared >= 2


def test_places_within_places_are_closer_than_least_squares_and_hold_the_truth() -> None:
    """docs/hierarchies.md: blocks by more than a third, every level with `clear`; what is missed no further than it says."""
    sums: dict[tuple[str, str, str], list[float]] = {}
    for row in rows_of("places.csv"):
        cells = float(row["cells"])
        found = sums.setdefault((row["known"], row["fit"], row["level"]), [0.0] * 4)
        new = (
            cells,
            float(row["held"]),
            cells * float(row["error"]),
            cells * float(row["least_squares"]),
        )
        found[:] = [a + b for a, b in zip(found, new, strict=True)]
    assert {fit for _, fit, _ in sums} >= {"plain", "clear", "clear, whole", "pulled"}
    for (known, fit, level), (cells, held, ours, plain) in sums.items():
        pulled = fit.startswith("pulled")  # 20 releases
        most = (0.98 if level == "block" else 0.945) if pulled else 0.94
        assert 0.88 <= held / cells <= most, (known, fit, level)
        limit = {"block": 0.33, "county": 1.07 if fit == "plain" else 1.01}.get(level, 0.8)
        assert ours <= limit * plain, (known, fit, level)
    block = {fit: sums["total", fit, "block"] for fit in ("clear", "pulled")}
    assert block["pulled"][2] / block["pulled"][0] < 0.9 * block["clear"][2] / block["clear"][0]


def test_census_files_are_closest_at_every_level_and_half_of_least_squares_at_the_block() -> None:
    """Totals, origin by race and cells, over the files of each place; a hundredth for totals that least squares gives as well,
    and a tenth against top-down at the two levels of a state that have few numbers (docs/census.md names both)."""
    found = table("census.csv", ["place", "query", "level", "method"], "error")
    compared = 0
    for place, query, level, method in found:
        if method != "ours":
            continue
        least, down = (
            found[place, query, level, m][0] for m in ("two-pass least squares", "top-down")
        )
        ours = found[place, query, level, method][0]
        few = place == "15" and level in ("state", "county")
        assert ours <= 1.01 * least + 1e-6, (place, query, level)
        assert ours <= (1.1 if few else 1.01) * down + 1e-6, (place, query, level)
        assert level != "block" or ours <= 0.5 * least
        compared += 1
    assert compared >= 15
