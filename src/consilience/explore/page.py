"""The page itself: one HTML file with style and script inside, the same for a server and for files on a disk."""

from __future__ import annotations

import base64
import hashlib
from html import escape
from importlib.resources import files
from typing import Any

from consilience.report.page import script_json, styles

ASSETS = files("consilience.explore")


class Page:
    """A page about these facts. live: questions go to the server; else to files beside it, those that `held` lists."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.facts = facts
        self.style = f"{styles()}\n{_asset('page.css')}"
        self.script = "\n".join(_asset(f"{name}.js") for name in ("charts", "tables", "page"))
        inside = {"script-src": self.script, "style-src": self.style}
        hashes = "; ".join(f"{what} 'sha256-{_digest(text)}'" for what, text in inside.items())
        self.policy = (
            f"default-src 'none'; {hashes}; connect-src 'self'; img-src data:; base-uri 'none'; "
            "form-action 'none'; frame-ancestors 'none'"
        )

    def live(self) -> str:
        return self._whole({**self.facts, "held": None})

    def static(self, held: list[list[Any]]) -> str:
        return self._whole({**self.facts, "held": held})

    def _whole(self, facts: dict[str, Any]) -> str:
        title = escape(facts["title"])
        alarm = (
            f'<p class="alarm" role="alert">{escape(facts["mark"])}. Do not publish.</p>'
            if facts["mark"]
            else ""
        )
        words = "".join(f"<p>{escape(w)}</p>" for w in facts["words"])
        spent = f'<span class="spent">{escape(facts["spent"])}</span>' if facts["spent"] else ""
        more = f"<details><summary>What that means</summary>{words}</details>" if words else ""
        return (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
            '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
            f'<style>{self.style}</style></head><body><a class="skip" href="#view">Skip to the numbers</a>'
            f'<header><h1 dir="auto">{title}</h1><p class="quiet">{escape(facts["people"])}, '
            f"{sum(c['name'] == c['of'] for c in facts['columns'])} columns. {escape(facts['mechanism'])}</p>{alarm}"
            f'<section class="promise" aria-label="What is promised and what was spent">'
            f"<span><strong>{escape(facts['promise'])}</strong></span>{spent}{more}</section></header>"
            f"{_asset('form.html')}"
            f"<footer><p>consilience {escape(facts['version'])}. Every number here is published or follows from what is; "
            "this page fetches nothing from outside.</p></footer>"
            '<div id="tip" role="status" hidden></div>'
            f'<script type="application/json" id="facts">{script_json(facts)}</script>'
            f"<script>{self.script}</script></body></html>\n"
        )


def _asset(name: str) -> str:
    return ASSETS.joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
