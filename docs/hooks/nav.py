"""The menu: decisions are listed by their numbers, and pages that are named in mkdocs.yml but not written are left out."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

log = logging.getLogger("mkdocs.hooks.nav")


def on_config(config: Any) -> Any:
    root = Path(config["docs_dir"])
    config["nav"] = [*_written(config["nav"], root), {"Decisions": _decisions(root)}]
    return config


def _decisions(root: Path) -> list[Any]:
    """Under short titles; the pages' own are sentences."""
    numbered = sorted((root / "decisions").glob("[0-9]*.md"))
    titles = {p.stem.replace("-", " "): f"decisions/{p.name}" for p in numbered}
    return ["decisions/README.md", *({title: page} for title, page in titles.items())]


def _written(entries: list[Any], root: Path) -> list[Any]:
    kept = []
    for entry in entries:
        if isinstance(entry, str):
            kept += [entry] if (root / entry).is_file() else []
            continue
        ((title, target),) = entry.items()
        if isinstance(target, list):
            inner = _written(target, root)
            kept += [{title: inner}] if inner else []
        elif (root / target).is_file():
            kept.append(entry)
        else:
            log.info("%s is in the menu and not written yet", target)
    return kept
