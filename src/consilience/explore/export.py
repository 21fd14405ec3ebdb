"""The page as files: an agency can publish the folder as it is, and it opens from disk.

Answers are made ahead for what was measured: every column, every pair and every published table (counts and shares), and means
and medians by each column. Scripts hold them, one for each family of columns, because a page that was opened from a disk may load
scripts and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

from consilience.domain import Clique
from consilience.errors import ConsilienceError
from consilience.explore.page import Page
from consilience.explore.view import Asked, View
from consilience.progress import Progress, Step, quiet
from consilience.release import Published
from consilience.release.conditions import quoted
from consilience.release.folder import new_folder
from consilience.report.page import script_json

MOST_NUMBERS = 400_000
"""Of all answers of an export: some 40 MB of files."""


def export(
    published: Published,
    folder: str,
    target: Path,
    *,
    most: int = MOST_NUMBERS,
    progress: Progress = quiet,
) -> list[Clique]:
    """Write the page and its answers into a new folder, or nothing. Returns the tables that were too large to be held."""
    view = View(published, folder)
    facts = view.facts()
    held, left = _within(view, most)
    listed: list[list[Any]] = []
    with new_folder(target) as draft:
        (draft / "answers").mkdir()
        for number, by in enumerate(held):
            progress(Step("answering", number, len(held)))
            answers = {ask: view.described(Asked(ask, by)) for ask in _asks(view, by)}
            file = f"answers/{number}.js"
            text = f"answered({script_json(file)},{script_json(answers)});\n"
            (draft / file).write_text(text, encoding="utf-8")
            listed.append([list(by), list(answers), file])
        (draft / "index.html").write_text(Page(facts).static(listed), encoding="utf-8")
    return left


def _within(view: View, most: int) -> tuple[list[Clique], list[Clique]]:
    """(families of columns that are held, those that are not): the smallest first while there is room."""
    labels = view.published.labels
    sized = []
    for by in dict.fromkeys(_families(view)):
        cells = 1
        for name in by:
            cells *= len(labels[name])
        sized.append((cells * len(_asks(view, by)), len(by), by))
    sized.sort(key=lambda entry: entry[:2])
    room, held, left = most, [], []
    for numbers, _, by in sized:
        room -= numbers
        (held if room >= 0 else left).append(by)
    if not any(held):
        raise ConsilienceError(
            f"an export must hold one table in {most:,} numbers, the smallest has {sized[1][0]:,}; serve the page instead"
        )
    return held, left


def _families(view: View) -> Iterator[Clique]:
    published, of = view.published, view.of
    yield ()
    yield from ((name,) for name in of)
    for entry in published.facts["tables"]:
        yield published.model.domain.named(entry["attributes"])
    pairs = combinations(of, 2)
    yield from (p for p in pairs if of[p[0]] != of[p[1]] and published.model.in_model(p))


def _asks(view: View, by: Clique) -> tuple[str, ...]:
    """Counts, shares of everybody, of each row and of each column; of a column of numbers its mean and median."""
    model, bases = view.published.model, {view.of[name] for name in by}
    numbers = [
        a.name
        for a in view.askable
        if a.numbers and a.name not in bases and model.in_model({*bases, a.name})
    ]
    within = {1: ("share()",), 2: ("share()", *(f"share({_word(n)})" for n in by))}.get(len(by), ())
    of = [f"{kind}({_word(n)})" for n in numbers for kind in ("mean", "median")]
    return ("", *within, *(of if len(by) < 2 else ()))


def _word(name: str) -> str:
    """As the page writes it: quoted where it must be."""
    plain = name and all(c.isalnum() or c in "_.+-" for c in name)
    return name if plain else quoted(name)
