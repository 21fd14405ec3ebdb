"""What the page knows and gets: facts about a release, and answers by the functions that `consilience answer` calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from threading import Event, Lock, Thread
from typing import Any
from urllib.parse import parse_qsl

from consilience.errors import ConsilienceError
from consilience.release import Answer, Published
from consilience.release.answers import LEVEL
from consilience.release.labelled import csv_text
from consilience.release.questions import askable, read_question
from consilience.report.promise import in_words, promise_of, short

MOST_ROWS = 20_000
"""Of an answer on the page: more numbers than anybody reads; commands give all of them."""
KEPT = 500
"""Answers that are remembered."""


@dataclass(frozen=True)
class Asked:
    """A question as an address has it: ?ask=mean(income)&by=region&by=sex&where=age>=18&level=0.9."""

    ask: str = ""
    by: tuple[str, ...] = ()
    where: str = ""
    level: float = LEVEL

    @classmethod
    def of(cls, query: str) -> Asked:
        found: dict[str, list[str]] = {"ask": [], "by": [], "where": [], "level": []}
        for key, value in parse_qsl(query, max_num_fields=50):
            if key not in found:
                raise ConsilienceError(
                    f"an address must ask by ask, by, where and level, got {key!r}"
                )
            found[key].append(value)
        once = {k: found[k][-1] for k in ("ask", "where") if found[k]}
        return cls(**once, by=tuple(found["by"]), level=_level(found["level"]))


def _level(given: Sequence[str]) -> float:
    try:
        level = float(given[-1]) if given else LEVEL
    except ValueError:
        level = -1.0
    if not 0 < level < 1:
        raise ConsilienceError(f"the level must be a number between 0 and 1, got {given[-1]!r}")
    return level


class View:
    """A release, and the answers that were asked of it; one question is answered at a time."""

    def __init__(self, published: Published, folder: str) -> None:
        self.published, self.folder = published, folder
        self.askable = askable(published.schema)
        self.of = {a.name: a.of for a in self.askable}
        self.lock, self.prepared = Lock(), Event()
        self.prepared.set()
        self.answered: dict[Asked, Answer] = {}

    def answer(self, asked: Asked) -> Answer:
        if asked not in self.answered:
            self._check_size(asked)
            if self._inferred(asked):
                self.prepared.wait()
        with self.lock:
            found = self.answered.get(asked)
            if found is None:
                found = self.published.answer(asked.ask, asked.by, asked.where, level=asked.level)
                if len(self.answered) >= KEPT:
                    del self.answered[next(iter(self.answered))]
                self.answered[asked] = found
            return found

    def _inferred(self, asked: Asked) -> bool:
        question = read_question(self.published.schema, asked.ask, asked.by, asked.where)
        return not self.published.model.in_model({self.of[name] for name in question.columns})

    def prepare(self) -> None:
        """Make ahead, beside everything else, what answers that nobody measured begin with; those wait for it."""
        self.prepared.clear()

        def work() -> None:
            try:
                self.published.model.prepare()
            finally:
                self.prepared.set()

        Thread(target=work, daemon=True).start()

    def _check_size(self, asked: Asked) -> None:
        sizes = [len(self.published.labels.get(name, ())) for name in asked.by]
        cells = 1
        for size in sizes:
            cells *= size
        if cells > MOST_ROWS:
            raise ConsilienceError(
                f"a page must show at most {MOST_ROWS:,} numbers, {' by '.join(asked.by)} has {cells:,}; "
                "leave a column out, or use the command"
            )

    def described(self, asked: Asked) -> dict[str, Any]:
        """An answer as the page gets it: numbers by column, null where there are none."""
        found = self.answer(asked)
        rows = found.rows
        parts = {"value": found.name, "stderr": "stderr", "low": "low", "high": "high"}
        parts |= {} if found.bounds is None else {"least": "at_least", "most": "at_most"}
        return {
            "question": found.question,
            "measure": found.name,
            "by": list(found.by),
            "labels": [list(row) for row in found.labels],
            **{k: [row[name] for row in rows] for k, name in parts.items()},
            "verdict": found.verdict,
            "basis": found.basis,
            "notes": list(found.notes),
            "level": asked.level,
        }

    def csv(self, asked: Asked) -> str:
        return csv_text(self.answer(asked).rows)

    def facts(self) -> dict[str, Any]:
        """What stands above every view, and what can be asked for."""
        facts = self.published.facts
        promise = promise_of(self.published) if "budget" in facts else None
        total = facts["total"]
        said: dict[str, Any] = {
            "folder": self.folder,
            "title": str(self.published.schema.name or self.published.path.name),
            "people": f"{total['value']:,.0f} rows"
            + ("" if total.get("public") else ", an estimate"),
            "made": str(facts.get("created", ""))[:10],
            "mechanism": str(_inside(facts, "mechanism", "calibrated")),
            "mark": "" if facts["private"] in (True, None) else str(facts["mark"]),
            "promise": "not recorded here: this was made from noisy tables alone",
            "spent": "",
            "words": [],
            "version": version("consilience"),
            "level": LEVEL,
            "columns": [vars(a) | {"labels": list(a.labels)} for a in self.askable],
            "start": list(_first(self.published)),
        }  # fmt: skip
        if promise is not None:
            said["promise"] = promise.line
            said["words"] = in_words(promise)
            if promise.share is not None:
                said["spent"] = f"{short(100 * promise.share)} % of the budget by this release"
            if promise.ledger is not None:
                used, many = sum(line.share for line in promise.ledger), len(promise.ledger)
                said["spent"] += (
                    f"; its ledger: {short(100 * used)} % by {many} release{'s' if many != 1 else ''}"
                )
        return said


def _inside(facts: Mapping[str, Any], *names: str) -> Any:
    found: Any = facts
    for name in names:
        found = found.get(name, "") if isinstance(found, Mapping) else ""
    return found


def _first(published: Published) -> tuple[str, ...]:
    """Where to begin: the first published table of two columns, that a reader sees what a view is; else the first column."""
    pairs = (t["attributes"] for t in published.facts["tables"] if len(t["attributes"]) == 2)
    return tuple(next(pairs, [next(iter(published.schema)).name]))
