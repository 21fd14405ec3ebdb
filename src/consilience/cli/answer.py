"""consilience answer: questions to a release, each answer with its error and what it rests on."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import pyarrow
from rich import box
from rich.table import Table

from consilience.cli.options import whole_option
from consilience.cli.output import Output, check_new_file, json_option, quiet_option
from consilience.errors import ConsilienceError, ReleaseError
from consilience.release import read_release, write_table
from consilience.release.answers import ERRORS, Answer, answer
from consilience.release.labelled import csv_text
from consilience.release.questions import read_question, read_questions

FORMATS = ("table", "csv", "json", "parquet", "markdown")


@click.command("answer")
@click.argument("release", type=click.Path(path_type=Path))
@click.argument("question", default="")
@click.option("--by", default="", help="Columns or hierarchies, an answer for each combination.")
@click.option(
    "--where", "condition", default="", help="Conditions that must all hold: age>=65,sex=F|X."
)
@click.option(
    "--batch",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True),
    help="A file with a question a line (- for standard input), answered together.",
)
@click.option(
    "--level",
    default=0.9,
    show_default=True,
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Of the intervals.",
)
@click.option(
    "--errors",
    type=click.Choice(ERRORS),
    default="auto",
    show_default=True,
    help="Standard errors and intervals: those that the folder keeps, all (which may refit the model), or none.",
)
@whole_option
@click.option("--format", "shape", type=click.Choice(FORMATS), default="table", show_default=True)
@click.option("--csv", "as_csv", is_flag=True, help="The same as --format csv.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="A new file for the answer; Parquet needs one."
)
@json_option
@quiet_option
def answer_command(
    release: Path,
    question: str,
    by: str,
    condition: str,
    batch: Path | None,
    level: float,
    errors: str,
    whole: bool,
    shape: str,
    as_csv: bool,
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """An answer from a RELEASE folder, with its standard error, its interval and what it rests on.

    QUESTION is a list of columns or hierarchies, whose combinations are counted (nothing: the number of people), or one of
    mean(x), sum(x), median(x), quantile(x, 0.9), share(x=label), and difference(measure, group, group) or ratio(...). Any
    columns can be asked for, measured together or not. Numbers in bins come with the exact bounds that the bins leave.

    \b
    Examples:
      consilience answer release/ age,sex
      consilience answer release/ 'mean(income)' --by region --where 'age>=18'
      consilience answer release/ 'ratio(median(income), sex=F, sex=M)'
      consilience answer release/ --batch questions.txt --format csv
    """
    shape = "json" if as_json else "csv" if as_csv else shape
    output = Output(quiet, shape == "json")
    if out is not None:
        check_new_file(out)
    elif shape == "parquet":
        raise ReleaseError("an answer in Parquet must go to a file, got none; name one with --out")
    if batch is not None and (question or by):
        raise ConsilienceError(
            "--batch reads the questions from a file, got a question as well; leave one out"
        )
    published = read_release(release)
    schema = published.schema
    if batch is not None:
        text = sys.stdin.read() if str(batch) == "-" else _text(batch)
        asked = read_questions(schema, text, condition)
    else:
        asked = [read_question(schema, question, by, condition)]
    with output.working("answering") as report:
        model = published.model.whole(report) if whole else published.model
        if (
            published.stated in ("auto", "bootstrap", "simulated")
            and errors != "none"
            and _refits(published)
        ):
            output.say(
                "this folder keeps no replicates: the model is refitted to find errors", "yellow"
            )
        found = [
            answer(
                model,
                schema,
                q,
                published.stated,
                report,
                errors=errors,
                level=level,
            )
            for q in asked
        ]
    mark = None if published.private else str(published.facts.get("mark"))
    _write(output, found, shape, out, batch is not None, mark)
    for a in found if shape != "json" else ():
        style = None if a.verdict == "measured" else "yellow"
        output.say(f"{a.question or 'people'}: {a.basis}" if batch is not None else a.basis, style)
        for note in a.notes:
            output.say(note)
    if mark is not None:
        output.say(mark, "red")


def _refits(published: Any) -> bool:
    model = published.model
    return bool(model.measurements) and model.replicates is None and not model.plain


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ReleaseError(f"{str(path)!r} cannot be read: {str(error).splitlines()[0]}") from error


# -- showing -----------------------------------------------------------------------------------------


def _write(
    output: Output,
    found: Sequence[Answer],
    shape: str,
    out: Path | None,
    many: bool,
    mark: str | None,
) -> None:
    if shape == "table" and out is None:
        for a in found:
            if many:
                output.show(a.question or "people")
            output.results.print(_table(a))
        return
    if shape == "json":
        said = [_described(a, mark) for a in found]
        result: Any = said if many else said[0]
        if out is None:
            output.json(result)
            return
        _new(out, lambda path: path.write_text(_json_text(result), encoding="utf-8"))
    elif shape == "parquet":
        assert out is not None
        table = _together(found, many)
        if mark is not None:
            table = table.replace_schema_metadata({"mark": mark})
        _new(out, lambda path: write_table(table, path))
    else:
        text = (_markdown if shape in ("markdown", "table") else _csv)(found, many)
        if out is None:
            click.echo(text, nl=False)
            return
        _new(out, lambda path: path.write_text(text, encoding="utf-8"))
    output.say(f"{out}: {sum(len(a.values) for a in found):,} numbers")


def _new(out: Path, write: Callable[[Path], object]) -> None:
    """All of a file or nothing."""
    draft = out.with_name(f".{out.name}.draft{out.suffix}")
    try:
        write(draft)
        draft.replace(out)
    except OSError as error:
        raise ReleaseError(
            f"the answer cannot be written to {str(out)!r}: {error.strerror or error}"
        ) from error
    finally:
        draft.unlink(missing_ok=True)


def _json_text(result: Any) -> str:
    return json.dumps(result, indent=1, ensure_ascii=False) + "\n"


def _described(a: Answer, mark: str | None) -> dict[str, Any]:
    return {
        "question": a.question,
        "attributes": list(a.by),
        "trust": a.verdict,
        "rests_on": a.basis,
        "notes": list(a.notes),
        "private": mark is None,
        "rows": a.rows,
    }


def _flat(a: Answer, many: bool) -> list[dict[str, Any]]:
    """Rows as files of several questions have them: the number is called value there."""
    if not many:
        return a.rows
    group = "; ".join
    return [
        {
            "question": a.question,
            "group": group(f"{n}={row[n]}" for n in a.by),
            "value": row[a.name],
            **{k: row.get(k) for k in ("stderr", "low", "high", "at_least", "at_most")},
            "rests_on": a.basis,
        }
        for row in a.rows
    ]


def _together(found: Sequence[Answer], many: bool) -> pyarrow.Table:
    if not many:
        return found[0].to_arrow()
    return pyarrow.Table.from_pylist([row for a in found for row in _flat(a, True)])


def _csv(found: Sequence[Answer], many: bool) -> str:
    return csv_text([row for a in found for row in _flat(a, many)])


def _markdown(found: Sequence[Answer], many: bool) -> str:
    parts = []
    for a in found:
        names, rows = _cells(a)
        lines = [names, ["---"] * len(names), *rows]
        table = "\n".join("| " + " | ".join(_escaped(c) for c in line) + " |" for line in lines)
        head = f"**{a.question or 'people'}**\n\n" if many else ""
        notes = "".join(f"\n\n{note}." for note in (a.basis, *a.notes))
        parts.append(f"{head}{table}{notes}\n")
    return "\n".join(parts)


def _escaped(cell: str) -> str:
    return cell.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


def _table(a: Answer) -> Table:
    names, rows = _cells(a)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(names):
        table.add_column(name, justify="left" if i < len(a.by) else "right")
    for row in rows:
        table.add_row(*row)
    return table


def _cells(a: Answer) -> tuple[list[str], list[list[str]]]:
    """Headings and rows as people read them: the error beside the number, the interval, and what bins leave open."""
    names = [*a.by, a.name]
    names += [] if a.stderr is None else ["± standard error", "interval"]
    names += [] if a.bounds is None else ["bins leave open"]

    def number(value: float | None) -> str:
        """One decimal for people and what is large, four digits for what is small."""
        if value is None:
            return "-"
        if isinstance(value, int):
            return f"{value:,}"
        many = a.name == "count" or abs(value) >= 1000 or value == 0
        return f"{value:,.1f}" if many else f"{value:,.4g}"

    rows = []
    for row in a.rows:
        shown = [*(str(row[n]) for n in a.by), number(row[a.name])]
        if a.stderr is not None:
            shown += [
                f"± {number(row['stderr'])}",
                f"{number(row['low'])} to {number(row['high'])}",
            ]
        if a.bounds is not None:
            shown.append(f"{number(row['at_least'])} to {number(row['at_most'])}")
        rows.append(shown)
    return names, rows
