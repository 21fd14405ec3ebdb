"""NIST's k-marginal score against a slow judge from its definition, the coding of the excerpt, and what rows say of their end."""

from collections import Counter
from itertools import combinations

import common
import kmarginal
import numpy as np
import pytest

needs_data = pytest.mark.skipif(
    not (common.data_folder() / "acs-data-dictionary.json").exists(),
    reason="needs the ACS excerpt beside the paper's data; set CONSILIENCE_DATA",
)
DICTIONARY = {
    "PUMA": {"values": {"x": "", "y": ""}},
    "SEX": {"values": {"1": "", "2": ""}},
    "AGE": {"values": {"min": 0, "max": 99}},
    "PAY": {"values": {"N": "", "min": 0, "max": 1000}},
}


def people(rng, n: int, most: int = 100) -> dict[str, np.ndarray]:
    pay = [("N" if v < 50 else str(v)) for v in rng.integers(0, 1001, n)]
    return {
        "PUMA": np.array(rng.choice(["x", "y"], n, p=[0.7, 0.3]), object),
        "SEX": np.array(rng.choice(["1", "2"], n), object),
        "AGE": np.array([str(v) for v in rng.integers(0, most, n)], object),
        "PAY": np.array(pay, object),
    }


def judged(target: dict, other: dict) -> float:
    """Share by share: pd.cut's right-closed bins, with the lowest included, by percentiles of the target."""

    def cells(name: str, value: str) -> object:
        about = DICTIONARY[name]["values"]
        if "max" not in about or (value in about and value not in ("min", "max")):
            return value
        known = [float(v) for v in target[name] if v not in about]
        nulls = sum(k not in ("min", "max") for k in about)
        seen = [float(v) for v in other[name] if v not in about]
        count = 20 - nulls - (max(seen) > max(known)) - (min(seen) < min(known))
        edges = sorted(set(np.percentile(known, np.linspace(0, 100, count + 1))))
        number = float(value)
        if number > edges[-1]:
            return "over"
        if number < edges[0]:
            return "under"
        return max(1, sum(number > e for e in edges))

    away = []
    for a, b in combinations(["AGE", "PAY", "SEX"], 2):
        shares = []
        for table in (target, other):
            rows = zip(table["PUMA"], table[a], table[b], strict=True)
            n = len(table["PUMA"])
            found = Counter((g, cells(a, x), cells(b, y)) for g, x, y in rows)
            shares.append({k: v / n for k, v in found.items()})
        t, s = shares
        away.append(sum(abs(t.get(k, 0) - s.get(k, 0)) for k in t.keys() | s.keys()))
    return (2 - float(np.mean(away))) * 500


@pytest.mark.parametrize("most", [100, 60])
def test_the_score_is_the_definitions(monkeypatch, most: int) -> None:
    """With ages that the target has not (most 60), which have a bin of their own."""
    monkeypatch.setattr(kmarginal, "dictionary", lambda: DICTIONARY)
    rng = np.random.default_rng(most)
    target, other = people(rng, 150, most), people(rng, 90)
    assert kmarginal.score(target, target) == 1000.0
    assert kmarginal.score(target, other) == pytest.approx(judged(target, other), abs=1e-9)
    assert kmarginal.score(target, other) < 950


def test_tables_that_share_nothing_score_zero(monkeypatch) -> None:
    monkeypatch.setattr(kmarginal, "dictionary", lambda: DICTIONARY)
    target, other = (people(np.random.default_rng(s), 40) for s in (0, 1))
    target["PUMA"][:], other["PUMA"][:] = "x", "y"
    assert kmarginal.score(target, other) == pytest.approx(0.0, abs=1e-9)


def test_without_a_group_the_score_is_that_of_one_group(monkeypatch) -> None:
    monkeypatch.setattr(kmarginal, "dictionary", lambda: DICTIONARY)
    rng = np.random.default_rng(5)
    target, other = people(rng, 150), people(rng, 90)
    for table in (target, other):
        table["PUMA"][:] = "x"
    alone = ({a: v for a, v in t.items() if a != "PUMA"} for t in (target, other))
    assert kmarginal.score(*alone) == pytest.approx(judged(target, other), abs=1e-9)


@needs_data
def test_the_ten_columns_come_back_whole_and_the_year_goes_with_its_step_alone() -> None:
    table = kmarginal.columns(kept="demographic")
    coding = kmarginal.Coding(kept="demographic")
    data = coding.encode(table)
    back = coding.decode(data, np.random.default_rng(0))
    assert set(back) == set(table) == set(kmarginal.DEMOGRAPHIC)
    for name, column in table.items():
        np.testing.assert_array_equal(back[name].astype(str), column.astype(str))
    asked = kmarginal.asked(data.domain, within=False)
    assert [c for c in asked if kmarginal.YEAR in c] == [("AGEP", kmarginal.YEAR)]
    assert len(asked) == 45 + 1


@needs_data
def test_each_excerpt_has_pumas_of_its_own() -> None:
    found = [kmarginal.Coding(e).words["PUMA"] for e in kmarginal.EXCERPTS]
    assert [len(f) for f in found] == [5, 20]
    assert not set(found[0]) & set(found[1])


@needs_data
def test_coding_the_excerpt_loses_what_bins_lose_and_nothing_else() -> None:
    table, coding = kmarginal.columns(), kmarginal.Coding()
    data = coding.encode(table)
    back = coding.decode(data, np.random.default_rng(0))
    for name in coding.words:
        if name not in coding.edges:
            np.testing.assert_array_equal(back[name], table[name])
    np.testing.assert_array_equal(coding.encode(back).to_array(), data.to_array())
    assert 975 < kmarginal.score(table, back) < 990


@needs_data
def test_what_the_dictionary_calls_impossible_does_not_occur() -> None:
    coding = kmarginal.Coding()
    data, told = coding.encode(kmarginal.columns()), coding.possible()
    for clique, mask in told.items():
        counts = data.marginal(clique)
        assert mask.shape == counts.shape
        assert counts[~mask].sum() == 0, clique
        assert (~mask).sum() > 0
        assert mask.any(axis=0).all(), clique
        assert mask.any(axis=1).all(), clique
    infants = told["AGEP", "MSP"][0]
    assert [w for w, can in zip(coding.words["MSP"], infants, strict=True) if can] == ["N"]


def _raises(cap: int, pipe, *_) -> None:
    kmarginal.limit(cap)
    kmarginal.answer(pipe, lambda: [][1])


def _spins(cap: int, pipe, *_) -> None:
    kmarginal.limit(cap)
    while True:
        pass


@pytest.mark.slow
def test_a_row_says_whether_time_ran_out_or_something_failed() -> None:
    assert kmarginal.capped(60, work=_raises)["status"] == "failed: IndexError"
    assert kmarginal.capped(1, work=_spins) == {"cpu_seconds": 1, "status": "no end"}
