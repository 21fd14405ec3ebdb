"""The planner: what fits, what is chosen, what is refused and with which words, before anything is allocated."""

import tracemalloc
from itertools import combinations

import numpy as np
import pytest

from consilience.domain import Domain
from consilience.errors import CapacityError, ConsilienceError, MeasurementError, RegionGraphError
from consilience.fits import LeastSquares, Planned, plan, reconstruct
from consilience.measurements import Measurement, Prefix
from consilience.memory import parse_bytes, show_bytes
from consilience.progress import Iteration
from consilience.regions import RegionGraph
from consilience.solvers.planner import build_graph, make_plan
from solvers.problems import RECORDS, D, cliques_of, noisy

WIDE = Domain({f"x{i:02d}": 10 for i in range(60)})
PAIRS = list(combinations(WIDE.attributes, 2))
CHAIN = list(zip(WIDE.attributes[:-1], WIDE.attributes[1:], strict=True))


def planned(domain: Domain, cliques, **changes):
    given = {"consistency": "auto", "solver": "auto", "memory": "2 GB"}
    return make_plan(domain, cliques, **(given | changes))


# -- bytes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given, expected",
    [
        (1000, 1000),
        (2.5e9, 2_500_000_000),
        ("2 GB", 2_000_000_000),
        ("500MB", 500_000_000),
        (" 1.5 kb ", 1500),
        ("1 GiB", 2**30),
        ("64 KiB", 2**16),
        ("3TB", 3 * 10**12),
        ("17", 17),
    ],
)
def test_bytes_are_read(given, expected: int) -> None:
    assert parse_bytes(given) == expected


@pytest.mark.parametrize("given", ["", "much", "2 XB", "-1 GB", "1.2.3 MB", "GB", None, True])
def test_what_is_no_size_is_refused(given) -> None:
    with pytest.raises(ConsilienceError, match="memory must be"):
        parse_bytes(given)


@pytest.mark.parametrize("given", [0, -5, float("inf"), float("nan"), "0 GB"])
def test_a_size_must_be_positive_and_finite(given) -> None:
    with pytest.raises(ConsilienceError, match="memory must be positive and finite, got"):
        parse_bytes(given)


def test_bytes_are_shown_for_people() -> None:
    assert [show_bytes(n) for n in (12, 3400, 5_600_000, 7.8e9)] == [
        "12 B",
        "3.4 kB",
        "5.6 MB",
        "7.8 GB",
    ]
    assert show_bytes(10**60) == "10^60 B"


# -- choice -------------------------------------------------------------------------------------------


def test_global_where_it_fits_else_local() -> None:
    tree = planned(WIDE, CHAIN)
    assert tree.consistency == "global"
    assert "globally consistent" in tree.reason
    loops = planned(WIDE, PAIRS)
    assert loops.consistency == "local"
    assert "junction tree would need 10^" in loops.reason
    by_name = {o.consistency: o for o in loops.options}
    assert not by_name["global"].fits
    assert by_name["local"].fits
    assert by_name["global"].seconds == float("inf")


def test_sizes_beyond_machine_integers_are_exact_python_integers() -> None:
    """All pairs of 60 attributes: the only junction tree is the whole domain, 10^60 cells."""
    option = next(o for o in planned(WIDE, PAIRS).options if o.consistency == "global")
    assert option.cells == 10**60
    assert isinstance(option.bytes, int)
    assert option.bytes >= 8 * 10**60
    assert "does not fit" in str(planned(WIDE, PAIRS))
    assert "forever" in str(planned(WIDE, PAIRS))


def test_the_budget_decides() -> None:
    loop = cliques_of("ab bc cd de ae")
    domain = Domain(dict.fromkeys("abcde", 60))
    roomy, tight = (planned(domain, loop, memory=m).consistency for m in ("2 GB", "10 MB"))
    assert (roomy, tight) == ("global", "local")


def test_the_time_limit_decides_beside_the_budget() -> None:
    """Titanic's 28 pairs: the junction tree is one small table of memory and a long wait."""
    titanic = Domain(dict(zip("abcdefgh", (2, 3, 2, 11, 9, 10, 12, 11), strict=True)))
    pairs = list(combinations(titanic.attributes, 2))
    usual = planned(titanic, pairs)
    assert usual.consistency == "local"
    assert next(o for o in usual.options if o.consistency == "global").fits
    assert "fits, slow" in str(usual)
    assert "time limit 10.0 s: the junction tree would take about" in str(usual)
    assert "ask for global consistency to wait for it" in usual.reason
    assert planned(titanic, pairs, time_limit=1e6).consistency == "global"
    assert planned(titanic, pairs, time_limit=float("inf")).consistency == "global"
    assert planned(titanic, pairs, consistency="global").consistency == "global", "asked for"
    assert planned(WIDE, CHAIN, time_limit=1.0).consistency == "global", "a tree is quick"
    assert planned(titanic, pairs) == usual, "no clock is read"
    for wrong in (0, -1, float("nan")):
        with pytest.raises(ConsilienceError, match="time_limit must be a positive number"):
            planned(titanic, pairs, time_limit=wrong)


def test_what_does_not_fit_is_refused_with_advice() -> None:
    with pytest.raises(
        CapacityError, match=r"local consistency must fit .* 2.0 MB.*measure fewer"
    ) as caught:
        planned(WIDE, PAIRS, memory="2 MB")
    assert caught.value.needed_bytes > caught.value.budget_bytes == 2_000_000
    with pytest.raises(CapacityError, match=r"global consistency must fit.*consistency='local'"):
        planned(WIDE, PAIRS, consistency="global")


def test_a_consistency_asked_for_is_kept() -> None:
    for name in ("global", "local", "factor"):
        found = planned(WIDE, CHAIN, consistency=name)
        assert found.consistency == name
        assert found.reason == f"{name} consistency was asked for"


def test_solvers() -> None:
    assert planned(WIDE, CHAIN).solver == "splitting"
    assert planned(WIDE, CHAIN, solver="prox").solver == "prox"
    with pytest.raises(
        ConsilienceError, match="solver must be 'auto', 'splitting' or 'prox', got 'x'"
    ):
        planned(WIDE, CHAIN, solver="x")
    with pytest.raises(ConsilienceError, match=r"consistency must be 'auto', .* got 'total'"):
        planned(WIDE, CHAIN, consistency="total")


def test_the_plan_is_for_people() -> None:
    shown = str(planned(WIDE, CHAIN))
    assert "reconstruct 59 measured cliques with global consistency, solver splitting" in shown
    assert sum(line.startswith("->") for line in shown.splitlines()) == 1
    assert "memory budget 2.0 GB" in shown
    for name in ("global", "local", "factor"):
        assert name in shown


def test_graphs_are_built_as_planned() -> None:
    cliques = cliques_of("abc bcd ad e")
    kinds = {"global": "junction tree", "local": "saturated", "factor": "factor graph"}
    for name, kind in kinds.items():
        graph = build_graph(D, cliques, name)
        assert graph.kind == kind
        cells = {o.consistency: o.cells for o in planned(D, cliques).options}[name]
        assert cells == sum(D.size(graph.regions[i]) for i in graph.roots)


def test_planning_allocates_nothing_like_what_it_prices() -> None:
    tracemalloc.start()
    planned(WIDE, PAIRS)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000


# -- through the front door ---------------------------------------------------------------------------


def test_plan_is_what_reconstruct_does() -> None:
    made = noisy(D, "ab bc cd", 1)
    seen = []
    model = reconstruct(D, made, RECORDS, LeastSquares(memory="1 GB"), seen.append)
    expected = plan(D, made, LeastSquares(memory="1 GB"), RECORDS)
    assert isinstance(seen[0], Planned)
    assert [s.plan for s in seen if isinstance(s, Planned)] == [expected]
    assert model.diagnostics.plan == expected
    assert model.graph.kind == "junction tree"
    local = reconstruct(
        D, noisy(D, "ab bc ac", 1), total=RECORDS, fit=LeastSquares(consistency="local")
    )
    assert local.graph.kind == "saturated"


def test_a_refusal_comes_before_any_work() -> None:
    made = [Measurement(c, np.full((10, 10), 1.0), stddev=1.0) for c in PAIRS[:40]]
    seen = []
    with pytest.raises(CapacityError, match=r"must fit the memory budget of 1.0 kB"):
        reconstruct(WIDE, made, fit=LeastSquares(memory="1 kB"), progress=seen.append)
    assert seen == []


def test_a_graph_of_ones_own() -> None:
    made = noisy(D, "ab bc cd", 2)
    graph = RegionGraph.saturated(D, cliques_of("abc bcd"))
    found = plan(D, made, fit=LeastSquares(consistency=graph))
    assert found.reason == "the graph was given"
    model = reconstruct(D, made, total=RECORDS, fit=LeastSquares(consistency=graph))
    assert model.graph is graph
    assert model.marginal(("a", "c")).shape == (2, 4)
    with pytest.raises(CapacityError, match="use a smaller graph"):
        plan(D, made, fit=LeastSquares(consistency=graph, memory=100))
    narrow = RegionGraph.saturated(D, cliques_of("ab bc"))
    with pytest.raises(
        RegionGraphError, match=r"some region of the graph must contain \('c', 'd'\), none does"
    ):
        reconstruct(D, made, total=RECORDS, fit=LeastSquares(consistency=narrow))
    other = Domain({**D.sizes, "b": 7})
    with pytest.raises(RegionGraphError, match="over the same domain as the measurements"):
        reconstruct(
            D,
            made,
            fit=LeastSquares(consistency=RegionGraph.saturated(other, cliques_of("ab bc cd"))),
        )


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"tolerance": 0.0}, "tolerance must be positive and finite, got 0"),
        ({"tolerance": -1e-3}, "tolerance must be positive and finite"),
        ({"tolerance": float("nan")}, "tolerance must be positive and finite, got nan"),
        ({"iterations": -1}, "iterations must be at least 0, got -1"),
        ({"consistency": "mostly"}, "consistency must be 'auto', .* got 'mostly'"),
        ({"solver": "magic"}, "solver must be 'auto', .* got 'magic'"),
        ({"memory": "lots"}, "memory must be a number of bytes or text .* got 'lots'"),
        (
            {"possible": {("a", "b"): np.ones((2, 3), bool)}, "solver": "prox"},
            "cannot occur need the splitting solver",
        ),
    ],
)
def test_bad_arguments_are_named(changes: dict, words: str) -> None:
    with pytest.raises(ConsilienceError, match=words):
        reconstruct(D, noisy(D, "ab bc", 3), fit=LeastSquares(**changes))


@pytest.mark.parametrize(
    "given, words",
    [
        ({"total": -3.0}, "total must be positive and finite, got -3"),
        (
            {"fit": LeastSquares},
            r"fit must be an estimator such as LeastSquares\(\), got .*call it",
        ),
        ({"fit": "local"}, "fit must be an estimator"),
        ({"consistency": "local"}, r"write fit=cs.LeastSquares\(consistency=...\)"),
        ({"possible": {}}, r"write fit=cs.LeastSquares\(possible=...\)"),
        ({"on_plan": print}, "on_plan= any more: write cs.plan"),
        ({"speed": 3}, "reconstruct takes total, fit, progress and warm, got speed="),
    ],
)
def test_what_reconstruct_does_not_take_is_named(given: dict, words: str) -> None:
    with pytest.raises(ConsilienceError, match=words):
        reconstruct(D, noisy(D, "ab bc", 3), **given)


@pytest.mark.parametrize("made", [noisy(D, "ab", 3)[0], [1], 3])
def test_what_is_no_list_of_measurements_is_named(made) -> None:
    for ask in (reconstruct, plan):
        with pytest.raises(
            MeasurementError, match="measurements must be a list of Measurement, got"
        ):
            ask(D, made)


def test_nothing_measured() -> None:
    """There is a model of the total alone, and nothing to plan."""
    total_only = [Measurement((), [100.0], stddev=1.0)]
    for made in ([], total_only):
        with pytest.raises(MeasurementError, match=r"at least one measurement .*got none"):
            plan(D, made)
    with pytest.raises(MeasurementError, match=r"at least one measurement .*got none"):
        reconstruct(D, [])


def test_iterations_are_honoured_exactly() -> None:
    made = noisy(D, "ab bc ac", 4)
    for solver in ("splitting", "prox"):
        for count in (0, 1, 7, 23):
            model = reconstruct(
                D, made, total=RECORDS, fit=LeastSquares(solver=solver, iterations=count)
            )
            assert model.diagnostics.iterations == count
            assert model.diagnostics.violation < 1e-9


def test_queries_go_to_the_splitting_solver() -> None:
    made = noisy(D, "ab bc c", 5, queries={"c": Prefix(4)})
    model = reconstruct(D, made, total=RECORDS)
    assert model.diagnostics.method == "splitting"
    assert model.diagnostics.converged


def test_progress_sees_a_falling_gap() -> None:
    seen = []
    made = noisy(D, "abc bcd cde ae", 6)
    model = reconstruct(
        D,
        made,
        total=RECORDS,
        fit=LeastSquares(consistency="local", tolerance=1e-8),
        progress=seen.append,
    )
    seen = [step for step in seen if isinstance(step, Iteration)]
    assert seen[-1].gap <= 1e-8 <= seen[0].gap
    assert seen[-1].done == model.diagnostics.iterations


def test_a_warm_start_does_not_decide_the_consistency() -> None:
    """A model of the same cliques lends its graph only to a fit that asks for the same one."""
    made = noisy(D, "ab bc cd ad", 7)
    whole = reconstruct(D, made, RECORDS, LeastSquares(consistency="global"))
    local = LeastSquares(consistency="local")
    warm, cold = (local(D, made, RECORDS, warm=start) for start in (whole, None))
    assert warm.graph.kind == cold.graph.kind == "saturated"
    np.testing.assert_allclose(warm.marginal(("a", "b")), cold.marginal(("a", "b")), atol=0.5)
    again = local(D, made, RECORDS, warm=cold)
    assert again.graph is cold.graph
    assert again.diagnostics.iterations <= cold.diagnostics.iterations
