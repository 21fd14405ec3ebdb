"""The picture of the page in docs/explore.md: generated people, released with real noise, as Chromium shows the page.

python experiments/screenshot.py      writes docs/figures/explore.png; needs Chromium and Pillow (the extra `experiments`)
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from threading import Thread

import numpy as np
from PIL import Image

import consilience as cs
from consilience.data import POPULATION_SCHEMA
from consilience.explore.server import Server
from consilience.explore.view import View

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from report.browser import browser, find_chromium  # noqa: E402

TARGET = ROOT / "docs" / "figures" / "explore.png"
VIEW = "#by=employment&by=education&percent=row"
SIZE = (1200, 880)


def main() -> None:
    program = find_chromium()
    if program is None:
        raise SystemExit("Chromium must be installed to take the picture, it is not")
    people = cs.population(50_000, np.random.default_rng(0))
    mechanism = cs.mechanisms.Gaussian(cs.all_marginals(people.domain, 2))
    budget = cs.Budget(epsilon=1, delta=1e-6, neighbours="replace-one")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        ledger, out = folder / "people.ledger", folder / "release"
        published = cs.release(people, POPULATION_SCHEMA, mechanism, budget, ledger=ledger, out=out)
        with Server(View(published, "release/")) as server, browser(program) as tab:
            Thread(target=server.serve_forever, daemon=True).start()
            tab.size(*SIZE)
            tab.scheme("light")
            tab.open(server.address + VIEW)
            tab.wait("document.body.dataset.shown")
            taken = tab.screenshot(folder / "page.png")
            server.shutdown()
        Image.open(taken).convert("RGB").quantize(160).save(TARGET, optimize=True)
    print(TARGET, TARGET.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
