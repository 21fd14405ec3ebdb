"""Prose that is executed: every code block runs, every command exists, every link leads somewhere."""

from __future__ import annotations

import csv
import os
import re
import shlex
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

import consilience
from consilience.cli import main
from consilience.data import population_table

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")]
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PEOPLE = ("region", "sex", "age", "employment", "income")
MAKE = re.compile(r"`make ([^`]+)`")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """(line number, text) of each fenced block in a language."""
    text = page.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, m.start(2)) + 1, m.group(2))
        for m in FENCE.finditer(text)
        if m.group(1) == language
    ]


def make_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))


def shown_commands() -> list[tuple[str, str]]:
    """Every line that starts with $ in a console block, and every `make ...` in the prose."""
    found = []
    for page in PAGES:
        for _, text in blocks(page, "console"):
            found += [(name(page), line[2:]) for line in text.splitlines() if line.startswith("$ ")]
        prose = FENCE.sub("", page.read_text(encoding="utf-8"))
        found += [(name(page), f"make {rest}") for rest in MAKE.findall(prose)]
    return found


def schemas(page: Path) -> dict[str, str]:
    """{name: text} of the TOML files that a page shows: their first line is a comment with the name."""
    shown = (text for _, text in blocks(page, "toml"))
    return {t.partition("\n")[0][2:]: t for t in shown if t.startswith("# ")}


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=name)
def test_every_python_block_runs_in_order(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder of its own, which holds the files that the page shows."""
    monkeypatch.chdir(tmp_path)
    for file, text in schemas(page).items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    scope: dict[str, object] = {"__name__": "docs"}
    for line, text in blocks(page, "python"):
        source = "\n" * (line - 1) + text  # so that a failure names the line of the page
        exec(compile(source, str(page), "exec", dont_inherit=True), scope)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_relative_link_resolves(page: Path) -> None:
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    links = [unquote(link.partition("#")[0]) for link in LINK.findall(prose)]
    local = [link for link in links if link and "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []


@pytest.mark.parametrize(("page", "command"), shown_commands())
def test_every_command_shown_exists(page: str, command: str) -> None:
    program, *rest = shlex.split(command, comments=True)
    if program == "make":
        targets = [word for word in rest if "=" not in word and word != "..."]
        assert targets, f"{page}: name a target in {command!r}"
        assert set(targets) <= make_targets()
    elif program == "consilience":
        root = main.make_context("consilience", [], resilient_parsing=True)
        assert rest[0] in [*main.list_commands(root), "--help"], f"{page}: {command!r} is unknown"
    else:
        installs = [program, *rest[:1]] == ["pip", "install"] and rest[-1].startswith(".")
        assert installs or program == "sed", f"{page}: {command!r} is unknown"


def shell_lines(page: Path) -> list[str]:
    """Commands of ours on a page, in order; a backslash at the end of a line goes on."""
    text = "\n".join(text for _, text in blocks(page, "console")).replace("\\\n", " ")
    return [line[2:] for line in text.splitlines() if line.startswith(("$ consilience ", "$ sed "))]


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if shell_lines(p)], ids=name)
def test_every_command_shown_runs_in_order(page: Path, tmp_path: Path) -> None:
    """In a folder that holds people.csv and nothing else."""
    table = population_table(500, np.random.default_rng(0))
    with (tmp_path / "people.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(PEOPLE)
        writer.writerows(zip(*(table[column] for column in PEOPLE), strict=True))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for line in shell_lines(page):
        done = subprocess.run(
            line,
            shell=True,
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{name(page)}: {line}\n{done.stdout}{done.stderr}"


def test_the_readme_shows_the_two_commands_and_code() -> None:
    readme = ROOT / "README.md"
    commands = {
        command.split("#")[0].strip() for page, command in shown_commands() if page == "README.md"
    }
    assert {"make demo", "make test"} <= commands
    assert len(blocks(readme, "python")) >= 2
    assert len(readme.read_text(encoding="utf-8").splitlines()) <= 120


def test_every_make_target_is_in_the_help() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    described = set(re.findall(r"^([a-z-]+):.*##", text, re.MULTILINE))
    assert make_targets() == described | {"help"}


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    missing = [p.name for p in folder.glob("[0-9]*.md") if f"({p.name})" not in index]
    assert missing == []


# -- the site --------------------------------------------------------------------------------------


class Fetched(HTMLParser):
    """Addresses that a browser fetches by itself when it shows a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("script", "img", "iframe"):
            self.found.append(given.get("src") or "")
        if tag == "link":
            self.found.append(given.get("href") or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The docs site, built as `make docs` builds it."""
    target = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(target)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target


@pytest.mark.slow
def test_the_site_builds_without_warnings_and_shows_itself_without_a_network(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        fetched = Fetched()
        fetched.feed(page.read_text(encoding="utf-8"))
        outside = [a for a in fetched.found if a.startswith(("http:", "https:", "//"))]
        assert outside == [], page


@pytest.mark.slow
def test_the_command_reference_is_made_of_the_commands(site: Path) -> None:
    text = (site / "commands.html").read_text(encoding="utf-8")
    names = main.list_commands(main.make_context("consilience", [], resilient_parsing=True))
    assert [name for name in names if f"consilience {name}" not in text] == []
    assert "--epsilon" in text
    assert "<!-- the commands -->" not in text


@pytest.mark.slow
def test_worked_cases_show_what_they_print(site: Path) -> None:
    text = (site / "gallery" / "clickstreams.html").read_text(encoding="utf-8")
    assert "NOT PRIVATE: drawn with seeded noise" in text
    assert "<math" in (site / "method.html").read_text(encoding="utf-8")


def test_every_public_name_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    listed = {line.rpartition(".")[2] for line in text.splitlines() if line.startswith("::: ")}
    folders = {"baselines", "mechanisms"}
    assert set(consilience.__all__) - folders - listed == set()


def test_every_page_is_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    folder = ROOT / "docs"
    pages = [p.relative_to(folder).as_posix() for p in folder.rglob("*.md")]
    missing = [p for p in pages if not p.startswith("decisions/") and not _named(p, menu)]
    assert missing == []


def _named(page: str, menu: str) -> bool:
    return re.search(rf"[ :]{re.escape(page)}$", menu, re.MULTILINE) is not None


PACKAGE = ROOT / "src" / "consilience"


def architecture() -> str:
    return (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def listed_files() -> list[str]:
    """Paths, some of them patterns, in the table of files; a name without a folder is in that of its row's first."""
    table = architecture().partition("\n## Files\n")[2].partition("\n## ")[0]
    found = []
    for row in re.findall(r"^\| (`[^|]+`) \|", table, re.MULTILINE):
        names = re.findall(r"`([^`]+)`", row)
        folder = names[0].rpartition("/")[0]
        found += [n if "/" in n or not folder else f"{folder}/{n}" for n in names]
    return found


def test_the_architecture_page_lists_every_module_and_no_other() -> None:
    listed = listed_files()
    assert len(listed) == len(set(listed)) > 100
    assert [n for n in listed if not list(PACKAGE.glob(n))] == []
    covered = {path for n in listed for path in PACKAGE.glob(n)}
    modules = {p for p in PACKAGE.rglob("*.py") if p.name != "__init__.py"}
    assert sorted(str(p.relative_to(PACKAGE)) for p in modules - covered) == []


def test_the_walks_of_the_architecture_page_go_through_files_that_exist() -> None:
    walks = architecture().partition("\n## Six walks\n")[2].partition("\n## Files\n")[0]
    assert len(re.findall(r"^### ", walks, re.MULTILINE)) == 6
    named = re.findall(r"`((?:\w+/)?\w+\.py)`", walks)
    missing = [n for n in named if not list(PACKAGE.glob(n if "/" in n else f"**/{n}"))]
    assert missing == []
    first = re.findall(r"^\d\. `([^`]+)`", walks.partition("\n### A release")[0], re.MULTILINE)
    assert len(first) == len(set(first)) <= 7  # from `reconstruct` to the first kernel


def test_the_architecture_page_has_the_layers_of_the_contract() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = config["tool"]["importlinter"]["contracts"][0]["layers"]
    text = architecture()
    table = text[text.index("| layer |") : text.index("Four rules")]
    rows = re.findall(r"^\| (`[^|]+`) \|", table, re.MULTILINE)
    assert [set(re.findall(r"`(\w+)`", row)) for row in rows] == [
        {name.strip() for name in layer.split("|")} for layer in layers
    ]


def test_every_decision_that_is_referred_to_exists() -> None:
    folder = ROOT / "docs" / "decisions"
    numbers = {p.name[:3] for p in folder.glob("[0-9]*.md")}
    places = [*PAGES, *(ROOT / "src").rglob("*.py"), *(ROOT / "experiments").rglob("*.py")]
    for place in places:
        text = place.read_text(encoding="utf-8")
        named = re.findall(r"[Dd]ecisions?[ /]+(\d{3})\b", text)
        assert set(named) <= numbers, place
