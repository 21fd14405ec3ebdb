"""Plain HTML for values that show themselves in a notebook: one table, no script, no colour of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(
    caption: str,
    rows: Iterable[Sequence[object]],
    head: Sequence[object] = (),
    *,
    note: str = "",
) -> str:
    """An HTML table; the first cell of each row is its heading. Everything is escaped."""
    top = "".join(f'<th scope="col">{escape(str(h))}</th>' for h in head)
    body = "".join(
        f'<tr><th scope="row" style="text-align:left">{escape(str(first))}</th>'
        + "".join(f"<td>{escape(str(v))}</td>" for v in rest)
        + "</tr>"
        for first, *rest in rows
    )
    start = f"<thead><tr>{top}</tr></thead>" if top else ""
    end = f"<p>{escape(note)}</p>" if note else ""
    return f"<table><caption>{escape(caption)}</caption>{start}<tbody>{body}</tbody></table>{end}"
