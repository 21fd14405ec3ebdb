"""release and resume: from a table and a budget to a folder that may be published.

The order is that of every private call, with the disk in between: refuse whatever can be refused; make room for what will be
measured; ask the ledger; count; reserve the cost durably; draw; keep what was drawn on disk. Up to here it costs privacy, from
here on it is free and can be repeated by `resume`: reconstruct, find standard errors, write the folder, discard what was kept.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from consilience.data.schema import Schema
from consilience.data.schema_file import read_schema
from consilience.data.survey import CodedTable
from consilience.domain import Workload
from consilience.errors import (
    BudgetError,
    ConsilienceError,
    DataError,
    LedgerError,
    ReleaseError,
    UncountedWarning,
)
from consilience.measurements.controls import bound_controls
from consilience.mechanisms import Auto, Calibrated, CalibratedAdaptive, Mechanism, Release, Source
from consilience.mechanisms.mechanism import Tape, check_budget
from consilience.privacy import Budget, Ledger, NoiseSource
from consilience.progress import Progress, Step, quiet
from consilience.release.drawn import TapeOnDisk
from consilience.release.facts import account_facts, readme, release_facts
from consilience.release.folder import Published, check_target, write_release
from consilience.release.labelled import RESULTS
from consilience.release.paid import Paid, check_unpaid, paid_for, read_unfinished
from consilience.release.registry import (
    from_record,
    keep_stated,
    record_of_0_1,
    to_record,
    with_settings,
)
from consilience.release.standard_errors import (
    check_ended,
    check_errors,
    chosen_method,
    errors_of,
    with_replicates,
)
from consilience.solvers.rounding import whole_limits

Say = Callable[[str], None]
"""Takes a line for the person who makes the release; none of it is in the folder."""
Place = str | os.PathLike[str]

BYTES_PER_CELL = 16
"""Room on disk that is kept for each cell that may be measured."""


def release(
    table: Source,
    schema: Schema | Place,
    mechanism: Mechanism,
    budget: Budget,
    *,
    out: Place,
    ledger: Ledger | Place | None = None,
    name: str | None = None,
    tables: Iterable[Iterable[str]] | None = None,
    errors: str = "auto",
    whole: bool = False,
    strict: bool = False,
    accept_draft: bool = False,
    accept_delta: bool = False,
    noise: NoiseSource | None = None,
    progress: Progress | None = None,
    say: Say | None = None,
) -> Published:
    """Measure a table with noise, make the tables consistent, and write a folder that is safe to publish.

    table: what `read_table` returns, or anything else that counts marginals, coded by the schema (a `Schema`, or its TOML file).
    out: a folder to be made. ledger: the account of all that is spent on this table, or its file, which is made with this
    budget as its total if it is not there; name: of the table, by which the ledger knows it, the schema's unless given.
    tables: what to publish, the mechanism's workload unless given (without one, what was measured). errors: "auto",
    "closed-form", "bootstrap", "simulated" or "none". whole: publish whole numbers (`Model.whole`). strict: refuse values that
    the schema does not declare. accept_draft: release by a schema that was read off the data all the same; the release is then
    not marked private. accept_delta: take a delta above 0.01. noise: the operating system's; `SeededNoise` for experiments, which
    protects nobody. say: takes a line now and then for the person who watches.

    What is drawn is kept beside `out` until the folder stands: `resume` finishes a release that was interrupted.
    """
    target, progress, say = Path(out), progress or quiet, say or _silent
    check_target(target)
    check_unpaid(target)
    if not isinstance(schema, Schema | str | os.PathLike):
        raise DataError(f"schema must be a Schema or the path of its TOML file, got {schema!r}")
    declared = schema if isinstance(schema, Schema) else read_schema(schema)
    check_draft(declared, accept_draft)
    check_budget(budget)
    check_delta(budget, accept_delta)
    if ledger is None and noise is None:
        say("no ledger: nothing keeps count of what is spent on this table")
    order = Order.of(declared, mechanism, budget, tables, errors, whole)
    progress(Step("calibrating", 0))
    ready = order.mechanism.calibrate(budget)
    say(described(ready))
    if budget.neighbours.unit is not None:
        say(f"whose privacy: {budget.neighbours.per}")
    progress(Step("looking for values that the schema does not declare", 0))
    _check_table(table, declared, budget, strict, say)
    if budget.delta is not None and budget.delta * table.records > 1:
        say(
            f"delta {float(budget.delta):g} is more than one in the {table.records:,} rows: publishing somebody's row as it is "
            "would keep such a promise; 1e-6 or less is usual"
        )
    paid = Paid.begin(target, declared, order.record(ready), BYTES_PER_CELL * order.cells)
    with keeping(paid):
        account = _opened(ledger, name or declared.name, budget, say)
        progress(Step("counting", 0))
        with warnings.catch_warnings():
            if say is not _silent:  # it was said above
                warnings.simplefilter("ignore", UncountedWarning)
            tape = None
            if noise is None or noise.private:
                rows = table.records if budget.neighbours.total_public else None
                tape = TapeOnDisk(paid.path, {"paid": paid_for(ready), "rows": rows})
            noisy, standing = _measure(ready, table, noise, account, paid, tape, progress)
        return _finish(order, ready, noisy, standing, paid, target, progress, say)


def resume(
    partial: Place,
    *,
    table: Source | Callable[[Schema], Source] | None = None,
    ledger: Place | None = None,
    out: Place | None = None,
    mechanism: Mechanism | None = None,
    settings: Mapping[str, Any] | None = None,
    errors: str | None = None,
    whole: bool | None = None,
    progress: Progress | None = None,
    say: Say | None = None,
) -> Published:
    """Finish a release that was paid for and interrupted: nothing is spent.

    partial: the folder that it left beside its output. table: the table of the release (or what opens it by its schema), needed
    where the release ended before all was drawn: the rest is drawn for the same payment, which the ledger must hold, and what was
    drawn before is not drawn again. ledger: where it is now, if it was moved. MWEM and AIM can be finished without the table,
    with the rounds that they had. What costs no privacy may be changed: where the folder goes, how standard errors are found,
    whether numbers are whole, and the settings of the reconstruction ({"memory": "8 GB"}). mechanism: the one that was released,
    needed only where it does not come with the package.
    """
    progress, say = progress or quiet, say or _silent
    left = read_unfinished(Path(partial))
    target = left.out if out is None else Path(out)
    check_target(target)
    if table is None:
        left.check_drawn()
    order = Order.restore(left.schema, left.order, mechanism, settings or {}, errors, whole)
    with keeping(left.paid.taken()) as paid:
        progress(Step("calibrating", 0))
        ready = order.mechanism.calibrate(order.budget)
        say(described(ready))
        if mechanism is not None and str(ready) != left.order.get("calibrated", str(ready)):
            raise ReleaseError(
                f"the mechanism must be the one that was paid for, {left.order['calibrated']}, got {ready}"
            )
        whole = left.about is not None and not isinstance(ready, CalibratedAdaptive)
        if table is None or whole:
            noisy, standing = left.release(ready), (left.about or {})["account"]
            check_ended(ready, order.errors, left.about or {})
        else:
            source = table if isinstance(table, Source) else table(left.schema)
            _check_table(source, left.schema, order.budget, False, say)
            tape, account = left.rest(ready, source.records, ledger)
            progress(Step("counting", 0))
            noisy, standing = _measure(ready, source, None, account, paid, tape, progress)
        return _finish(order, ready, noisy, standing, paid, target, progress, say)


# -- what is asked for -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Order:
    """What a release is asked for. It is written down before anything is spent, and read again by `resume`."""

    schema: Schema
    mechanism: Mechanism
    budget: Budget
    tables: Workload | None
    errors: str
    whole: bool = False

    @classmethod
    def of(
        cls,
        schema: Schema,
        mechanism: Mechanism,
        budget: Budget,
        tables: Iterable[Iterable[str]] | None = None,
        errors: str = "auto",
        whole: bool = False,
    ) -> Order:
        """Refuses here, before anything is spent, what could not be written at the end."""
        check_budget(budget)
        if not isinstance(mechanism, Mechanism):
            raise ConsilienceError(
                f"a release must have a mechanism, such as mechanisms.Gaussian(workload), got {mechanism!r}"
            )
        clash = next((a for a in schema.domain if a in RESULTS), None)
        if clash is not None:
            raise ConsilienceError(
                f"no column may be called {clash!r}, which the released tables have for their results; rename it in the "
                "table and the schema"
            )
        if isinstance(mechanism, Auto):
            mechanism, _ = mechanism.choose(budget)
        check_errors(mechanism, errors)
        wanted = getattr(mechanism, "workload", None) if tables is None else tables
        if wanted is not None:
            wanted = Workload(schema.domain, wanted)
        kept = keep_stated(mechanism, schema)
        if whole:
            for control in bound_controls(schema.domain, kept.fit.controls):
                whole_limits(control)
        return cls(schema, kept, budget, wanted, errors, whole)

    @property
    def cells(self) -> int:
        return 0 if self.tables is None else self.tables.cells

    def record(self, ready: Calibrated) -> dict[str, Any]:
        """The order as JSON; `restore` reads it."""
        return {
            "budget": self.budget.to_record(),
            "mechanism": to_record(self.mechanism),
            "calibrated": str(ready),
            "tables": None if self.tables is None else [list(c) for c in self.tables],
            "errors": self.errors,
            "whole": self.whole,
        }

    @classmethod
    def restore(
        cls,
        schema: Schema,
        record: Mapping[str, Any],
        mechanism: Mechanism | None,
        settings: Mapping[str, Any],
        errors: str | None,
        whole: bool | None,
    ) -> Order:
        """The order of a record, with another way of reconstructing or other standard errors where they are given."""
        if "own" in record:
            record = record_of_0_1(schema, record)
        if mechanism is None:
            if record["mechanism"] is None:
                raise ReleaseError(
                    f"{record['calibrated']} does not come with the package, or has settings that cannot be written "
                    "down; give it again, from Python: consilience.release.resume(folder, mechanism=...)"
                )
            mechanism = from_record(record["mechanism"], schema.domain)
        budget = Budget.from_record(record["budget"])
        changed = with_settings(mechanism, **settings)
        rounded = bool(record.get("whole")) if whole is None else whole
        return cls.of(
            schema, changed, budget, record["tables"], errors or record["errors"], rounded
        )


def described(ready: Calibrated) -> str:
    """What is measured and how it will be reconstructed, in words."""
    plan = getattr(ready, "plan", None)
    return str(ready) if plan is None else f"{ready}\n{plan}"


def _silent(text: str) -> None: ...


# -- the private half ------------------------------------------------------------------------------


def check_draft(schema: Schema, accepted: bool) -> None:
    """Refuse a schema that was read off the data and that nobody has checked."""
    if schema.draft and not accepted:
        raise DataError(
            f"the schema is a draft, read off the data, and would publish it; check {'; '.join(schema.draft)}; then delete the "
            "line draft = [...] from it (or --accept-draft, accept_draft=True: the release is then not private, and says so)"
        )


MOST_DELTA = Fraction(1, 100)


def check_delta(budget: Budget, accepted: bool) -> None:
    """Refuse a promise that may be broken for one person in a hundred."""
    if budget.delta is not None and budget.delta > MOST_DELTA and not accepted:
        raise BudgetError(
            f"delta must be at most {float(MOST_DELTA):g}, got {float(budget.delta):g}: it is the chance that the promise "
            "does not hold; 1e-6 is usual (or --accept-delta, accept_delta=True)"
        )


def _check_table(table: Source, schema: Schema, budget: Budget, strict: bool, say: Say) -> None:
    """Look for undeclared values, which only the custodian is told about; refuse an empty table."""
    if not isinstance(table, Source):
        raise DataError(
            f"a release is made of a table that can be counted, such as read_table gives, got {type(table).__name__}"
        )
    if table.domain != schema.domain:
        raise DataError(
            f"the table must be coded by the schema, {schema.domain!r}, got {table.domain!r}"
        )
    if table.records < 1 and budget.neighbours.value == "replace-one":
        raise DataError("a table must have rows, got a header only; nothing was spent")
    if not isinstance(table, CodedTable):
        return
    survey = table.survey
    if strict:
        survey.refuse()
    for line in survey.lines():
        say(line)


def _opened(
    ledger: Ledger | Place | None, name: str | None, budget: Budget, say: Say
) -> Ledger | None:
    """The ledger of this table, made if it is not there. It knows the table by its declared name and refuses others."""
    if ledger is None:
        return None
    if isinstance(ledger, Ledger):
        return ledger if name is None else Ledger(ledger.path, table=name)
    if not isinstance(ledger, str | os.PathLike):
        raise LedgerError(f"ledger must be a Ledger or the path of one, got {ledger!r}")
    path = Path(ledger)
    if name is None:
        known = Ledger(path).read().table if path.exists() else path.name.partition(".")[0]
        raise LedgerError(
            f"a ledger protects one table, which must have a name: add the line name = {json.dumps(known)} (or its own name) "
            "at the top of the schema; nothing was spent"
        )
    if path.exists():
        return Ledger(path, table=name)
    for other in Ledger.beside(path, name):
        say(f"{other} is a ledger of table {name!r} already; what two ledgers admit adds up")
    say(f"new ledger {path} for table {name!r}, with this release's budget as its total")
    return Ledger.create(path, table=name, total=budget)


def _measure(
    ready: Calibrated,
    table: Source,
    noise: NoiseSource | None,
    ledger: Ledger | None,
    paid: Paid,
    tape: Tape | None,
    progress: Progress,
) -> tuple[Release, dict[str, Any] | None]:
    """Pay and draw; what is drawn is on disk before anything else is done with it. Also what the ledger says now."""

    def standing() -> dict[str, Any] | None:
        return None if ledger is None else account_facts(ledger.read())

    if not isinstance(ready, CalibratedAdaptive):
        noisy = ready.measure(table, noise=noise, ledger=ledger, progress=progress, tape=tape)
        account = standing()
        paid.keep(noisy, {"account": account, "paid": paid_for(ready)})
        return noisy, account
    run = ready.start(table, noise=noise, ledger=ledger, progress=progress, tape=tape)
    about = {"account": (account := standing()), "paid": paid_for(ready), "ended": False}
    kept = 0
    try:
        for _ in run:
            paid.keep(run.release, about)
            kept = len(run.release.measurements)
        about["ended"], kept = True, 0
    finally:  # a round that was interrupted may have drawn before
        if len(run.release.measurements) > kept:
            paid.keep(run.release, about)
    return run.release, account


@contextmanager
def keeping(paid: Paid) -> Iterator[Paid]:
    """Whatever goes wrong in here says where the paid-for measurements are, if there are any."""
    try:
        yield paid
    except BaseException as error:
        if paid.advice is not None:
            error.add_note(f"what was paid for is kept, finish it with: {paid.advice}")
        else:
            paid.discard()
        raise
    finally:
        paid.leave()


# -- the free half ---------------------------------------------------------------------------------


def _finish(
    order: Order,
    ready: Calibrated,
    noisy: Release,
    account: Mapping[str, Any] | None,
    paid: Paid,
    out: Path,
    progress: Progress,
    say: Say,
) -> Published:
    """Reconstruct, find standard errors, write the folder, and remove what was kept for the case of a crash."""
    progress(Step("reconstructing", 0))
    result = ready.reconstruct(noisy, progress=progress)
    errors, refits, why = chosen_method(result.model, order.errors)
    if why:
        say(why)
    cliques = order.tables or dict.fromkeys(
        result.model.domain.named(m.attributes) for m in noisy.measurements
    )
    progress(Step("standard errors", 0))
    model = with_replicates(ready, result, errors, refits, progress)
    if order.whole:
        model = model.whole(progress)
        say(str(model.rounding).partition("\n")[0])
    tables = errors_of(model, list(cliques), errors, progress)
    facts = release_facts(order.mechanism, ready, noisy, model, errors, order.schema.draft)
    shutil.rmtree(paid.draft, ignore_errors=True)
    near = paid.path.stat().st_dev == out.absolute().parent.stat().st_dev
    progress(Step("writing the folder", 0))
    published = write_release(
        out,
        model=model,
        schema=order.schema,
        measurements=noisy.measurements,
        tables=tables,
        facts=facts,
        ledger=account,
        readme=readme(facts),
        draft=paid.draft if near else None,
    )
    paid.discard()
    return published
