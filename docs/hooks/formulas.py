"""Formulas of the method page: $...$ and $$...$$ as MathML, which browsers show by themselves."""

from __future__ import annotations

import re
from typing import Any

from latex2mathml.converter import convert

DISPLAY = re.compile(r"^\$\$\n(.*?)\n\$\$$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<![\\$`\w])\$([^$\n]+?)\$(?![\d`])")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    if page.file.src_uri != "method.md":
        return markdown
    blocks = DISPLAY.sub(lambda m: f"<p>{_mathml(m.group(1), 'block')}</p>", markdown)
    return INLINE.sub(lambda m: f"<span>{_mathml(m.group(1), 'inline')}</span>", blocks)


def _mathml(latex: str, display: str) -> str:
    return convert(" ".join(latex.split()), display=display)
