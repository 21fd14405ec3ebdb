"""A made-up population: the people of the demo, of examples and of benchmarks. Nobody in it exists.

People are drawn column by column, each column from a multinomial logit or a log-normal whose
parameters depend on the columns before it, so that there is real dependence of several orders (age
to education to occupation to income), with missing values that themselves depend on other columns
(those who do not work have no hours; high incomes are more often withheld).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consilience.data.binned import Numeric
from consilience.data.columns import Boolean, Categorical
from consilience.data.schema import Schema
from consilience.data.values import Values
from consilience.errors import DataError
from consilience.records.dataset import Dataset

REGIONS = ("North", "Coast", "Capital", "Lakes", "Plains", "Hills", "South", "Islands")
HOUSEHOLDS = ("alone", "couple", "couple with children", "single parent", "shared")
EDUCATION = ("none", "primary", "secondary", "vocational", "bachelor", "master or above")
EMPLOYMENT = ("child", "student", "employed", "self-employed", "unemployed", "at home", "retired")
OCCUPATIONS = (
    "farming",
    "crafts",
    "industry",
    "transport",
    "sales",
    "service",
    "office",
    "care",
    "teaching",
    "technical",
    "management",
)
COMMUTES = ("from home", "on foot", "bicycle", "public transport", "car")
HEALTH = ("poor", "fair", "good", "very good", "excellent")
INSURANCE = ("public", "private", "none")

POPULATION_SCHEMA = Schema(
    [
        Categorical("region", REGIONS, missing="Capital"),
        Boolean("urban", missing=True),
        Categorical("sex", ("female", "male"), missing="female"),
        Numeric("age", (0, 6, 12, 18, 25, 35, 45, 55, 65, 75, 85, 105), whole=True, missing=40),
        Categorical("household", HOUSEHOLDS, missing="shared"),
        Categorical("education", EDUCATION),
        Categorical("employment", EMPLOYMENT),
        Categorical("occupation", OCCUPATIONS),
        Numeric("hours", (0, 10, 20, 30, 35, 40, 45, 50, 60, 80), whole=True),
        Numeric("income", (0, 5e3, 1e4, 1.5e4, 2e4, 3e4, 4e4, 5e4, 7.5e4, 1e5, 1.5e5, 2.5e5)),
        Categorical("commute", COMMUTES),
        Categorical("health", HEALTH),
        Categorical("insurance", INSURANCE, missing="none"),
        Boolean("smoker"),
    ],
    name="people",
)
"""The declared columns of the population; the order is the order in which people are drawn."""

DRAWN_AT_ONCE = 1 << 17  # people; keeps memory bounded for any number of rows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


def population(rows: int, rng: np.random.Generator) -> Dataset:
    """`rows` people as codes of `POPULATION_SCHEMA`; the same ones for the same state of `rng`."""
    parts = [POPULATION_SCHEMA.encode(_people(n, rng)).to_array() for n in _batches(rows)]
    return Dataset(np.concatenate(parts), POPULATION_SCHEMA.domain)


def population_table(rows: int, rng: np.random.Generator) -> dict[str, Values]:
    """The same people in text and numbers, with None or NaN where a value is missing."""
    parts = [_people(n, rng) for n in _batches(rows)]
    return {c.name: np.concatenate([p[c.name] for p in parts]) for c in POPULATION_SCHEMA}


def _batches(rows: int) -> list[int]:
    if rows < 0:
        raise DataError(f"the number of people must not be negative, got {rows}")
    full, rest = divmod(rows, DRAWN_AT_ONCE)
    return [DRAWN_AT_ONCE] * full + [rest] * (rest > 0 or full == 0)


def _people(n: int, rng: np.random.Generator) -> dict[str, Values]:
    region = rng.choice(len(REGIONS), n, p=[0.14, 0.12, 0.24, 0.08, 0.11, 0.09, 0.17, 0.05])
    urban = rng.random(n) < np.array([0.6, 0.7, 0.97, 0.45, 0.35, 0.3, 0.65, 0.4])[region]
    male = rng.random(n) < 0.495
    age = _ages(n, rng, urban, male)
    household = _household(rng, age, male, urban)
    education = _education(rng, age, urban, region)
    employment = _employment(rng, age, male, education, household, region)
    works = (employment == 2) | (employment == 3)
    occupation = _occupation(rng, male, education, urban)
    hours = _hours(rng, male, household, employment, occupation)
    income = _income(rng, age, male, education, employment, occupation, hours, region)
    commute = _commute(rng, urban, occupation, income, region)
    health = _health(rng, age, education, income)
    insurance = _insurance(rng, age, income, employment, region)
    smoker = rng.random(n) < _logistic(
        -1.1 - 0.35 * (education - 2) + 0.3 * male - 0.25 * (health - 2) - 3.0 * (age < 16)
    )
    grown = age >= 6
    withheld = rng.random(n) < 0.03 + 0.12 * (income > 75_000) + 0.05 * (employment == 3)
    return {
        "region": _text(REGIONS, region),
        "urban": urban,
        "sex": _text(("female", "male"), male.astype(np.int64)),
        "age": age,
        "household": _text(HOUSEHOLDS, household),
        "education": _text(EDUCATION, education, grown & (rng.random(n) < 0.98)),
        "employment": _text(EMPLOYMENT, employment, rng.random(n) < 0.99),
        "occupation": _text(OCCUPATIONS, occupation, works & (rng.random(n) < 0.97)),
        "hours": np.where(works, hours, np.nan),
        "income": np.where(withheld | (age < 16), np.nan, np.round(income, -2)),
        "commute": _text(COMMUTES, commute, works),
        "health": _text(HEALTH, health, rng.random(n) < 0.96),
        "insurance": _text(INSURANCE, insurance),
        "smoker": _yes_no(smoker, rng.random(n) < 0.93 - 0.4 * (age < 16)),
    }


# -- one column given the ones before it ---------------------------------------------------------


def _ages(n: int, rng: np.random.Generator, urban: Flags, male: Flags) -> Ints:
    """A mixture of children, working age and the old; cities are younger and women live longer."""
    centre = np.array([9.0, 29.0, 46.0, 70.0])
    group = _draw(
        rng,
        np.stack(
            [-0.4 + 0 * urban, 0.4 * urban, 0.3 + 0 * urban, -0.1 - 0.5 * urban - 0.2 * male], 1
        ),
    )
    spread = np.array([5.5, 8.0, 9.0, 10.0])
    return np.clip(np.round(rng.normal(centre[group], spread[group])), 0, 104).astype(np.int64)


def _household(rng: np.random.Generator, age: Ints, male: Flags, urban: Flags) -> Ints:
    child, young, middle, old = (
        age < 18,
        (age >= 18) & (age < 30),
        (age >= 30) & (age < 55),
        age >= 65,
    )
    scores = [
        -9.0 * child + 0.6 * young + 1.2 * old + 0.5 * old * ~male + 0.3 * urban,
        -9.0 * child + 0.3 * young + 0.9 * (age >= 55) + 0.4 * old * male,
        2.0 * child + 1.4 * middle - 2.5 * old - 0.5 * young,
        0.4 * child + 0.3 * middle * ~male - 2.0 * old - 1.0 * male * ~child,
        -0.5 + 1.3 * young - 1.0 * child + 0.4 * urban + 0.8 * (age >= 85),
    ]
    return _draw(rng, np.stack(scores, 1))


def _education(rng: np.random.Generator, age: Ints, urban: Flags, region: Ints) -> Ints:
    """Ordinal: a latent attainment, higher for the young and in cities, limited by age."""
    capital = region == 2
    latent = rng.normal(2.9 + 0.5 * urban + 0.4 * capital - 0.02 * np.maximum(age - 40, 0), 1.3)
    limit = np.select([age < 11, age < 16, age < 19, age < 22], [0, 1, 2, 3], 5)
    return np.clip(np.round(latent), 0, limit).astype(np.int64)


def _employment(
    rng: np.random.Generator,
    age: Ints,
    male: Flags,
    education: Ints,
    household: Ints,
    region: Ints,
) -> Ints:
    child, student_age, old = age < 16, (age >= 16) & (age < 26), age >= 66
    parent = (household == 2) | (household == 3)
    poor_region = np.isin(region, (4, 6, 7))
    scores = [
        np.where(child, 30.0, -30.0),
        -1.5 + 3.0 * student_age + 0.2 * education - 3.0 * (age >= 35),
        1.6 + 0.25 * education - 1.2 * (age < 20) - 4.0 * old - 0.4 * parent * ~male,
        -0.6 + 0.03 * np.minimum(age - 30, 30) - 2.5 * old + 0.4 * male,
        0.2 - 0.3 * education + 0.6 * poor_region + 0.4 * (age < 30) - 4.0 * old,
        -1.4 + 1.4 * parent * ~male - 0.15 * education - 1.0 * old - 1.0 * male,
        -4.0 + 2.5 * (age >= 60) + 5.5 * old,
    ]
    return _draw(rng, np.stack(scores, 1))


def _occupation(rng: np.random.Generator, male: Flags, education: Ints, urban: Flags) -> Ints:
    level = np.array([1.0, 2.4, 1.8, 2.0, 2.5, 1.8, 3.4, 3.2, 4.6, 4.4, 4.6])
    for_men = np.array([0.5, 1.2, 0.8, 1.3, -0.2, -0.5, -0.7, -1.5, -0.9, 0.9, 0.4])
    in_town = np.array([-2.2, -0.3, -0.3, 0.0, 0.3, 0.4, 0.6, 0.1, 0.0, 0.6, 0.5])
    fit = -0.45 * (education[:, None] - level) ** 2
    return _draw(rng, fit + np.outer(male - 0.5, for_men) + np.outer(urban - 0.5, in_town))


def _hours(
    rng: np.random.Generator, male: Flags, household: Ints, employment: Ints, occupation: Ints
) -> Floats:
    part_time = rng.random(male.size) < _logistic(
        -1.9
        + 1.3 * ~male
        + 0.8 * ((household == 2) | (household == 3)) * ~male
        + 0.7 * np.isin(occupation, (4, 5, 7))
    )
    centre = np.where(part_time, 22.0, 39.0) + 5.0 * (employment == 3) + 4.0 * (occupation == 10)
    return np.clip(np.round(rng.normal(centre, np.where(part_time, 6.0, 4.0))), 1, 79)


def _income(
    rng: np.random.Generator,
    age: Ints,
    male: Flags,
    education: Ints,
    employment: Ints,
    occupation: Ints,
    hours: Floats,
    region: Ints,
) -> Floats:
    """Log-normal about a wage (education, occupation, experience, hours), pension or support."""
    pay = np.array([-0.35, 0.0, -0.05, -0.1, -0.1, -0.3, 0.0, -0.05, 0.1, 0.3, 0.55])[occupation]
    place = np.array([0.0, 0.05, 0.25, -0.05, -0.1, -0.1, -0.12, -0.15])[region]
    experience = 0.02 * np.clip(age - 22, 0, 30)
    wage = 9.35 + 0.13 * education + pay + place + experience + 0.08 * male + np.log(hours / 38)
    support = (
        np.array([-9.0, 8.4, 0.0, 0.0, 8.9, 8.2, 9.5])[employment] + 0.08 * education + place / 2
    )
    works = (employment == 2) | (employment == 3)
    spread = np.where(employment == 3, 0.7, np.where(works, 0.35, 0.4))
    return np.exp(rng.normal(np.where(works, wage, support), spread))


def _commute(
    rng: np.random.Generator, urban: Flags, occupation: Ints, income: Floats, region: Ints
) -> Ints:
    desk = np.isin(occupation, (6, 9, 10))
    rich = income > 40_000
    scores = [
        -1.6 + 1.6 * desk + 1.2 * (occupation == 0),
        -0.9 + 0.5 * urban - 0.5 * rich,
        -0.8 + 0.6 * urban + 0.5 * (region == 4),
        -1.0 + 1.5 * urban + 0.9 * (region == 2) - 0.3 * rich,
        1.0 - 1.1 * urban + 0.6 * rich - 1.0 * (region == 2),
    ]
    return _draw(rng, np.stack(scores, 1))


def _health(rng: np.random.Generator, age: Ints, education: Ints, income: Floats) -> Ints:
    """Ordinal: a latent health that falls with age and rises with education and income."""
    latent = rng.normal(3.4 - 0.028 * age + 0.12 * education + 0.25 * (income > 40_000), 0.9)
    return np.clip(np.round(latent), 0, 4).astype(np.int64)


def _insurance(
    rng: np.random.Generator, age: Ints, income: Floats, employment: Ints, region: Ints
) -> Ints:
    scores = [
        1.2 + 1.0 * (age >= 66) + 0.6 * (age < 18),
        -1.2 + 1.3 * (income > 40_000) + 1.0 * (income > 75_000) + 0.7 * (employment == 3),
        -1.6 + 1.2 * (employment == 4) + 0.5 * np.isin(region, (6, 7)) - 1.5 * (age >= 66),
    ]
    return _draw(rng, np.stack(scores, 1))


# -- tools ---------------------------------------------------------------------------------------


def _draw(rng: np.random.Generator, scores: NDArray[np.floating]) -> Ints:
    """One choice per row, probabilities proportional to exp(score), by the Gumbel-max rule."""
    return np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)


def _logistic(score: NDArray[np.floating]) -> NDArray[np.floating]:
    return 1.0 / (1.0 + np.exp(-score))


def _text(labels: tuple[str, ...], codes: Ints, known: Flags | None = None) -> Values:
    words = np.array([*labels, None], dtype=object)
    return words[codes if known is None else np.where(known, codes, len(labels))]


def _yes_no(yes: Flags, known: Flags) -> Values:
    return np.array([False, True, None], dtype=object)[np.where(known, yes.astype(np.int64), 2)]
