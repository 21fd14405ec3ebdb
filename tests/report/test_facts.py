"""What a report says, checked without a browser: reliability, residuals, words, sizes, colours, pictures."""

from __future__ import annotations

import re
from dataclasses import replace
from math import exp
from pathlib import Path

import numpy as np
import pytest

import consilience as cs
from consilience.errors import ConsilienceError
from consilience.mechanisms import Gaussian
from consilience.privacy import Budget, Cost, Ledger, Neighbours, Rho, SeededNoise
from consilience.regions.region_graph import RegionGraph
from consilience.report import Picture, picture, write_report
from consilience.report.charts import DARK, LIGHT, Palette
from consilience.report.page import embedded, script_json
from consilience.report.promise import Promise, in_words
from consilience.report.subject import residuals_of
from consilience.report.tables import basis_of_pairs, least_reliable, published_tables
from report.cases import BUDGET, DOMAIN, people, result

SMALL = cs.Domain({"a": 3, "b": 2, "c": 2})


def noisy(
    seed: int, stated: float = 20.0, actual: float = 20.0, consistency: str = "local"
) -> tuple[cs.Dataset, cs.Model]:
    rng = np.random.default_rng(seed)
    data = people(20_000, SMALL)
    tables = [
        cs.Measurement(c, data.marginal(c) + rng.normal(scale=actual, size=SMALL.shape_of(c)), stddev=stated)
        for c in (("a", "b"), ("b", "c"))
    ]  # fmt: skip
    return data, cs.reconstruct(
        SMALL, tables, total=20_000, fit=cs.LeastSquares(consistency=consistency)
    )


@pytest.mark.slow
def test_expected_total_variation_is_what_repeated_noise_shows() -> None:
    far: dict[tuple[str, ...], list[float]] = {}
    said: dict[tuple[str, ...], float] = {}
    for seed in range(120):
        data, model = noisy(seed)
        for table in published_tables(model, replicates=2):
            exact = data.marginal(table.clique)
            far.setdefault(table.clique, []).append(
                0.5 * np.abs(table.counts - exact).sum() / 20_000
            )
            said[table.clique] = table.variation
    for clique, share in said.items():
        assert np.mean(far[clique]) == pytest.approx(share, rel=0.2), clique


def test_intervals_are_those_of_the_model() -> None:
    _, model = noisy(0)
    for table in published_tables(model, replicates=2):
        low, high = model.interval(table.clique, 0.9)
        np.testing.assert_allclose(table.low, low)
        np.testing.assert_allclose(table.high, high)


def test_the_least_reliable_tables_come_worst_first() -> None:
    tables = published_tables(result().model, replicates=2)
    worst = least_reliable(tables, 3)
    assert [t.variation for t in worst] == sorted((t.variation for t in tables), reverse=True)[:3]
    assert all("many" in t.clique for t in worst)


def test_understated_noise_is_flagged_and_honest_noise_is_not() -> None:
    assert residuals_of(noisy(1)[1]).flagged == []
    lied = residuals_of(noisy(1, stated=2.0)[1])
    assert "a × b" in {t.name for t in lied.flagged}
    assert lied.rms > 3


def test_residuals_after_least_squares_are_as_narrow_as_said() -> None:
    found = [residuals_of(noisy(seed)[1]) for seed in range(60)]
    free = 2 + 1 + 1 + 2 * 1 + 1 * 1  # a, b, c, ab, bc; the total is known
    assert found[0].fitted == pytest.approx(np.sqrt(1 - free / 10))
    seen = np.sqrt(np.mean([r.rms**2 for r in found]))
    assert seen == pytest.approx(found[0].fitted, rel=0.15)


def test_how_narrow_the_residuals_of_a_factor_graph_are_is_not_said() -> None:
    """Its tables agree on single attributes only, so they are freer than the formula counts."""
    local, factor = (residuals_of(noisy(1, consistency=c)[1]) for c in ("local", "factor"))
    assert local.fitted is not None
    assert factor.fitted is None


def test_histogram_and_law_are_densities() -> None:
    r = residuals_of(result().model)
    assert r.density.sum() * 0.25 == pytest.approx(1)
    assert r.law.sum() * 0.1 == pytest.approx(1, abs=1e-3)


def test_what_pairs_rest_on() -> None:
    domain = cs.Domain({"a": 2, "b": 2, "c": 2, "d": 2})
    flat = np.full((2, 2), 25.0)
    tables = [cs.Measurement(c, flat, stddev=1.0) for c in (("a", "b"), ("b", "c"))]
    model = cs.reconstruct(
        domain,
        [*tables, cs.Measurement("d", [50.0, 50.0], stddev=1.0)],
        fit=cs.LeastSquares(consistency="local"),
    )
    basis = basis_of_pairs(model)
    assert basis["a", "b"] == "measured"
    assert basis["a", "c"] == "inferred"
    assert basis["a", "d"] == "assumed"


# -- words -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("neighbours", "said"),
    [("replace-one", "exchanged for any other row"), ("add-remove", "left out, or one had been added")],
)  # fmt: skip
def test_the_statement_names_its_neighbours_and_numbers(neighbours: str, said: str) -> None:
    words = " ".join(in_words(Promise(Neighbours.of(neighbours), 2.0, 1e-6)))
    assert said in words
    assert f"{exp(2):.3g} times" in words
    assert "88 % sure" in words
    assert "one in 1,000,000" in words


def test_a_pure_promise_has_no_exception() -> None:
    assert "exception" not in " ".join(in_words(Promise(Neighbours.ADD_REMOVE, 1.0, 0.0)))


def test_a_seeded_release_says_that_it_is_not_private_first() -> None:
    assert in_words(Promise(Neighbours.ADD_REMOVE, 1.0, 0.0, private=False))[0].startswith(
        "NOT PRIVATE"
    )


def test_a_promise_is_read_off_cost_budget_and_ledger(tmp_path: Path) -> None:
    cost = Cost.adaptive(Neighbours.REPLACE_ONE, Rho(0.01))
    alone = Promise.of(cost, True)
    assert alone.share is None
    assert alone.delta == 1e-6
    ledger = Ledger.create(tmp_path / "x.ledger", table="x", total=BUDGET)
    ledger.reserve(cost, "one")
    ledger.reserve(cost, "two")
    known = Promise.of(cost, True, account=ledger.read())
    assert known.epsilon == pytest.approx(alone.epsilon)
    assert known.ledger is not None
    assert [line.what for line in known.ledger] == ["one", "two"]
    assert known.share == pytest.approx(0.01 / float(BUDGET.capacity.value))
    assert Promise.of(cost, True, BUDGET).epsilon == 1.0


def test_a_promise_in_rho_is_stated_as_epsilon_at_a_delta() -> None:
    facts = {
        "neighbours": "replace-one",
        "private": True,
        "budget": {"rho": 0.01},
        "cost": {"rho": 0.01, "exact": {"rho": "1/100"}, "share": 1.0},
    }
    stated = Promise.of_release(facts, None)
    cost = Cost.adaptive(Neighbours.REPLACE_ONE, Rho(0.01))
    assert stated == Promise.of(cost, True, Budget(rho=0.01, neighbours="replace-one"))


def test_a_page_without_a_promise_claims_none(tmp_path: Path) -> None:
    text = write_report(noisy(0)[1], tmp_path / "r.html", rows=0, replicates=2).read_text()
    assert "nothing more" in text
    assert "e to the power of epsilon" not in text


# -- the page as a file ------------------------------------------------------------------------------


def test_105_pairs_are_under_five_megabytes(tmp_path: Path) -> None:
    domain = cs.Domain({f"attribute-{i}": 20 + i for i in range(15)})
    model = result(domain).model
    assert len(model.cliques) == 105
    stays = replace(model, fit=cs.LeastSquares(iterations=1))
    path = write_report(stays, tmp_path / "r.html", rows=0, replicates=2)
    assert path.stat().st_size < 5e6


def test_nothing_is_fetched(tmp_path: Path) -> None:
    text = write_report(noisy(0)[1], tmp_path / "r.html", rows=0, replicates=2).read_text()
    before = text[: text.index("<script>")]
    assert re.findall(r'(?:src|href)="(?!#|data:)', before) == []
    assert "@import" not in before
    assert "url(" not in before


def test_tables_that_do_not_fit_are_left_out_and_named() -> None:
    tables = published_tables(noisy(0)[1], replicates=2)
    inside, out = embedded(tables, most=10)
    assert [t.name for t in inside] == ["a", "b", "c"]
    assert [t.name for t in out] == ["a × b", "b × c"]


def test_json_can_not_end_its_script() -> None:
    assert "<" not in script_json({"label": "</script><!--", "line": "\u2028"})


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_contrast_is_sufficient(palette: Palette) -> None:
    for back in (palette.page, palette.card, palette.box):
        for front in (palette.text, palette.quiet, palette.link, palette.warn, palette.good):
            assert contrast(front, back) >= 4.5, (front, back)
    assert contrast(palette.page, palette.warn) >= 4.5  # the alarm
    assert contrast(palette.bar, palette.card) >= 3
    assert contrast(palette.mark, palette.bar) >= 3


def contrast(one: str, other: str) -> float:
    """WCAG 2: (L1 + 0.05) / (L2 + 0.05) of relative luminances."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    a, b = sorted((luminance(one), luminance(other)))
    return (b + 0.05) / (a + 0.05)


# -- refusals ----------------------------------------------------------------------------------------


def test_refusals_say_what_to_do(tmp_path: Path) -> None:
    _, model = noisy(0)
    with pytest.raises(
        ConsilienceError, match="made of a Result, a Model or a release folder, got int"
    ):
        write_report(3, tmp_path / "r.html")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConsilienceError, match="must be written where files can be written"):
        write_report(model, tmp_path / "no" / "r.html", rows=0, replicates=2)
    with pytest.raises(ConsilienceError, match="name every code of 'a', 3 of them, got 1"):
        write_report(model, tmp_path / "r.html", labels={"a": ["x"]}, rows=0, replicates=2)
    with pytest.raises(ConsilienceError, match=r"saved as .svg, .png or .html, got 'x.pdf'"):
        picture(model).save(tmp_path / "x.pdf")
    with pytest.raises(ConsilienceError, match="there are pictures of a Plan"):
        picture(3)
    bare = replace(model.diagnostics, trace=())
    with pytest.raises(ConsilienceError, match="needs the trace of a fit"):
        picture(bare)
    assert list(tmp_path.iterdir()) == []


# -- pictures ----------------------------------------------------------------------------------------


def pictured() -> dict[str, Picture]:
    data, model = noisy(0)
    ready = Gaussian(cs.all_marginals(SMALL, 2)).calibrate(BUDGET)
    compared = cs.compare(
        SMALL, [cs.Measurement(m.clique, m.values, stddev=m.stddev) for m in model.measurements],
        truth=data.marginals(model.cliques), methods=("noisy", "local"),
    )  # fmt: skip
    return {
        "plan": picture(ready.plan),
        "cost": picture(ready, records=20_000),
        "counts": picture(ready),
        "fit": picture(model),
        "graph": picture(RegionGraph.saturated(SMALL, [("a", "b"), ("b", "c")])),
        "comparison": picture(compared),
    }


def test_pictures_are_drawn_and_saved(tmp_path: Path) -> None:
    shown = {
        "plan": "memory, bytes", "cost": "expected total variation of the noisy table, %",
        "counts": "expected L1 distance of the noisy table, counts",
        "fit": "relative gap, at most", "graph": "a, b", "comparison": "mean total variation to the truth",
    }  # fmt: skip
    for name, drawing in pictured().items():
        svg = drawing.save(tmp_path / f"{name}.svg").read_text()
        assert svg.startswith("<svg")
        assert shown[name] in svg
    fit = pictured()["fit"]
    assert fit.save(tmp_path / "fit.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in fit.save(tmp_path / "fit.html").read_text()


def test_notebooks_show_models_plans_diagnostics_and_comparisons() -> None:
    _, model = noisy(0)
    compared = cs.compare(
        SMALL, [cs.Measurement(m.clique, m.values, stddev=m.stddev) for m in model.measurements],
        methods=("local",),
    )  # fmt: skip
    assert model.diagnostics.plan is not None
    for shown, words in (
        (model, "measured cliques"),
        (model.diagnostics, "relative gap, at most"),
        (model.diagnostics.plan, "global (chosen)" if model.diagnostics.plan.consistency == "global" else "local (chosen)"),
        (compared, "validated RMSE"),
    ):  # fmt: skip
        html = shown._repr_html_()
        assert html.startswith("<table>")
        assert words in html
    assert (
        "<b>" not in cs.Domain({"<b>x</b>": 2}).attributes[0] or "&lt;b&gt;" in _odd()._repr_html_()
    )


def _odd() -> cs.Model:
    domain = cs.Domain({"<b>x</b>": 2})
    return cs.reconstruct(domain, [cs.Measurement("<b>x</b>", [5.0, 5.0], stddev=1.0)])


def test_the_trace_survives_a_file_and_stays_short(tmp_path: Path) -> None:
    model = result(DOMAIN).model
    trace = model.diagnostics.trace
    assert 1 < len(trace) <= 201
    assert [i.done for i in trace] == sorted({i.done for i in trace})
    assert trace[-1].done == model.diagnostics.iterations
    model.save(tmp_path / "m.npz")
    assert cs.load(tmp_path / "m.npz").diagnostics.trace == trace


def test_add_remove_reports_an_estimated_total(tmp_path: Path) -> None:
    budget = Budget(rho=0.5, neighbours="add-remove")
    ready = Gaussian(cs.all_marginals(SMALL, 2)).calibrate(budget)
    found = ready(people(3000, SMALL), noise=SeededNoise(seed=2))
    text = write_report(found, tmp_path / "r.html", budget=budget, rows=0, replicates=2).read_text()
    assert "the total given here is an estimate" in text
