"""The generated population: dependent, with missing values, the same for the same seed."""

from importlib import import_module

import numpy as np
import pytest

from consilience.data.binned import Numeric
from consilience.data.columns import MISSING, Boolean, Categorical
from consilience.data.population import POPULATION_SCHEMA, population, population_table
from consilience.domain import all_marginals
from consilience.errors import DataError

PEOPLE = population(20_000, np.random.default_rng(7))


def mutual_information(table: np.ndarray) -> float:
    p = table / table.sum()
    q = np.outer(p.sum(axis=1), p.sum(axis=0))
    return float(np.sum(p[p > 0] * np.log(p[p > 0] / q[p > 0])))


def test_columns_of_every_kind() -> None:
    assert len(POPULATION_SCHEMA) >= 10
    assert {type(c) for c in POPULATION_SCHEMA} == {Boolean, Categorical, Numeric}
    assert PEOPLE.domain == POPULATION_SCHEMA.domain
    assert PEOPLE.records == 20_000


def test_the_same_people_for_the_same_seed_and_others_for_another() -> None:
    again = population(20_000, np.random.default_rng(7))
    np.testing.assert_array_equal(again.to_array(), PEOPLE.to_array())
    other = population(20_000, np.random.default_rng(8))
    assert (other.to_array() != PEOPLE.to_array()).any()


def test_the_table_and_its_codes_are_the_same_people() -> None:
    table = population_table(20_000, np.random.default_rng(7))
    assert list(table) == list(PEOPLE.domain)
    encoded = POPULATION_SCHEMA.encode(table)
    np.testing.assert_array_equal(encoded.to_array(), PEOPLE.to_array())


def test_values_are_declared_and_in_range() -> None:
    table = population_table(5_000, np.random.default_rng(0))
    for column in POPULATION_SCHEMA:
        values = table[column.name]
        if isinstance(column, Categorical):
            assert set(values) <= {*column.values, None}
        elif isinstance(column, Numeric):
            numbers = values[~np.isnan(values)]
            assert numbers.min() >= column.edges[0]


@pytest.mark.parametrize("name", ["education", "occupation", "hours", "income", "health", "smoker"])
def test_missing_values_are_present_but_not_everywhere(name: str) -> None:
    counts = dict(zip(POPULATION_SCHEMA[name].labels, PEOPLE.marginal(name), strict=True))
    assert 0.01 < counts[MISSING] / PEOPLE.records < 0.5


@pytest.mark.parametrize("name", list(POPULATION_SCHEMA.domain))
def test_no_column_is_nearly_constant(name: str) -> None:
    assert PEOPLE.marginal(name).max() < 0.9 * PEOPLE.records


def expected_by_chance(table: np.ndarray) -> float:
    """The mutual information that independent columns of this size show on average."""
    return (table.shape[0] - 1) * (table.shape[1] - 1) / (2 * PEOPLE.records)


@pytest.mark.parametrize(
    "pair",
    [
        ("age", "employment"),
        ("education", "occupation"),
        ("occupation", "income"),
        ("region", "urban"),
        ("age", "health"),
        ("urban", "commute"),
        ("income", "insurance"),
        ("sex", "occupation"),
        ("education", "smoker"),
    ],
)
def test_columns_depend_on_each_other(pair: tuple[str, str]) -> None:
    table = PEOPLE.marginal(pair)
    assert mutual_information(table) > 10 * expected_by_chance(table)


def test_most_pairs_are_dependent_and_one_is_not() -> None:
    tables = PEOPLE.marginals(all_marginals(PEOPLE.domain, 2))
    excess = {c: mutual_information(t) / expected_by_chance(t) for c, t in tables.items()}
    assert np.mean([e > 10 for e in excess.values()]) > 0.5
    assert excess[("region", "sex")] < 3  # drawn independently: the measure can tell


def test_those_who_do_not_work_have_no_hours() -> None:
    employment, hours = POPULATION_SCHEMA["employment"], POPULATION_SCHEMA["hours"]
    table = PEOPLE.marginal(("employment", "hours"))
    retired = table[employment.labels.index("retired")]
    assert retired.sum() == retired[hours.labels.index(MISSING)] > 0


@pytest.mark.parametrize("rows", [0, 1, 10])
def test_any_number_of_rows(rows: int) -> None:
    assert population(rows, np.random.default_rng(0)).records == rows
    assert len(population_table(rows, np.random.default_rng(0))["age"]) == rows


def test_batches_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    # The package exports a function of the same name as the module.
    monkeypatch.setattr(import_module("consilience.data.population"), "DRAWN_AT_ONCE", 64)
    data = population(150, np.random.default_rng(0))
    assert data.records == 150
    table = population_table(150, np.random.default_rng(0))
    np.testing.assert_array_equal(POPULATION_SCHEMA.encode(table).to_array(), data.to_array())
    assert (data.to_array()[:64] != data.to_array()[64:128]).any()


def test_a_negative_number_of_people_is_refused() -> None:
    with pytest.raises(DataError, match="must not be negative, got -1"):
        population(-1, np.random.default_rng(0))
