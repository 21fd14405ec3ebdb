"""The menu: pages that are named in mkdocs.yml but not written are left out."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

log = logging.getLogger("mkdocs.hooks.nav")


def on_config(config: Any) -> Any:
    root = Path(config["docs_dir"])
    config["nav"] = _written(config["nav"], root)
    return config


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
