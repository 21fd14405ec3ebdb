"""Executed pages: the Python blocks of a worked case are run when the site is built, and what they print is shown."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from typing import Any

FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def executed(path: str) -> bool:
    return path in ("getting-started.md", "reading.md") or path.startswith("gallery/")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    if not executed(page.file.src_uri):
        return markdown
    scope: dict[str, object] = {"__name__": "docs"}

    def run(block: re.Match[str]) -> str:
        printed = io.StringIO()
        line = markdown.count("\n", 0, block.start(1))
        source = "\n" * line + block.group(1)  # so that a failure names the line of the page
        with redirect_stdout(printed):
            exec(compile(source, page.file.src_uri, "exec", dont_inherit=True), scope)
        shown = printed.getvalue().rstrip()
        return f"{block.group(0)}\n\n```text\n{shown}\n```" if shown else block.group(0)

    return FENCE.sub(run, markdown)
