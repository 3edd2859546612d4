"""The documentation against the package: nothing is missing, nothing dangles, every command that it shows exists.

Covered: README's table against runbooks/; the rooms against the package; the generated pages; verdicts with their exit
codes; error cards; commands, options, make targets and files in code; relative links and pictures; the executed
examples against their sources.
Not covered: what the commands print; scenarios and site file (test_scenario_docs.py); the codes of findings.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from gpurunbook import cli
from gpurunbook.evidence import executed
from gpurunbook.findings import EXIT, Status, Verdict
from gpurunbook.shown import cards
from gpurunbook.shown.scraps import CLOSING

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [
    README,
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *ROOT.glob("parameters/**/README.md"),
]
RUNBOOKS = sorted(path.stem for path in (ROOT / "runbooks").glob("*.ipynb"))
EXAMPLES = ROOT / "docs" / "examples"

LINK = re.compile(r"\]\(([^()\s]+)\)")
PROGRAMS = ("gpurunbook", "make", "papermill", "python")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def rows(text: str) -> Iterator[list[str]]:
    """Cells of the rows of all tables that begin with a word in backticks, linked or not."""
    for line in text.splitlines():
        if re.match(r"\| \[?`", line):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def word(cell: str) -> str:
    """The first word in backticks."""
    found = re.search(r"`([^`]+)`", cell)
    assert found, cell
    return found[1]


def blocks(text: str) -> Iterator[str]:
    """Lines of code blocks, fenced or indented."""
    fenced = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield line.strip()


def commands(page: Path) -> list[list[str]]:
    """The command lines of a page's code blocks and of code in its sentences, as words without comments."""
    text = page.read_text()
    lines = [line.removeprefix("$ ") for line in blocks(text) if not line.endswith("\\")]
    lines += [line for line in re.findall(r"`([^`\n]+)`", text) if " " in line and "COMMAND" not in line]
    found = [shlex.split(line, comments=True) for line in lines if line.split(" ")[0] in PROGRAMS]
    return [words for words in found if words]


# -- what must be there -------------------------------------------------------------------------------------------


def test_the_readme_has_a_row_for_each_runbook_in_the_words_of_its_header() -> None:
    table = {word(cells[0]): cells for cells in rows(README.read_text()) if len(cells) == 5}
    assert sorted(table) == RUNBOOKS
    for runbook, cells in table.items():
        header = "".join(json.loads((ROOT / "runbooks" / f"{runbook}.ipynb").read_bytes())["cells"][0]["source"])
        told = re.sub(r"(?<!\*)\*([^*]+)\*(?!\*)", r"\1", re.sub(r" \([^()]*\)", "", header))
        for about, cell in zip(("Purpose", "Blast radius", "Duration", "Rollback"), cells[1:], strict=True):
            (paragraph,) = re.findall(rf"\*\*{about}\.\*\* (.*)", told)
            start = re.sub(r" \([^()]*\)", "", cell).rstrip(".")
            assert paragraph.startswith(start), (
                f"{runbook}, {about}: the README says {start!r}, its header {paragraph!r}"
            )
        assert f"runbooks/{runbook}.ipynb" in cells[0]
        assert f"docs/examples/{runbook}.html" in cells[0]


def test_every_room_and_module_is_told_and_no_other() -> None:
    table = (ROOT / "docs" / "architecture.md").read_text().split("\n## Rooms\n", 1)[1].split("\n## ", 1)[0]
    told = [place for row in rows(table) for place in re.findall(r"[a-z_]+(?:/|\.py)", row[0])]
    package = Path(cli.__file__).parents[1]
    there = [path.name for path in package.glob("*.py") if path.stem != "__init__"]
    there += [f"{path.parent.name}/" for path in package.glob("*/__init__.py")]
    assert sorted(told) == sorted(there)


def test_a_large_room_has_its_reason() -> None:
    told = re.findall(r"^- `([a-z]+)/`: ", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    package = Path(cli.__file__).parents[1]
    sizes = {
        room.parent.name: sum(len(path.read_text().splitlines()) for path in room.parent.rglob("*.py"))
        for room in package.glob("*/__init__.py")
    }
    assert sorted(told) == sorted(name for name, lines in sizes.items() if lines > 2500)


@pytest.mark.parametrize("page", ["commands.md", "parameters.md"])
def test_the_pages_that_follow_from_the_package_are_up_to_date(page: str) -> None:
    spec = importlib.util.spec_from_file_location("write", ROOT / "docs" / "write.py")
    assert spec is not None
    assert spec.loader is not None
    write = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(write)
    assert (ROOT / "docs" / page).read_text() == write.PAGES[page](), "run `python docs/write.py`"


def test_every_verdict_and_status_is_explained_and_has_its_exit_code() -> None:
    table = list(rows((ROOT / "docs" / "verdicts.md").read_text()))
    assert {word(c[0]): int(c[2]) for c in table if len(c) == 4} == {str(v): EXIT[v] for v in Verdict}
    assert [word(c[0]) for c in table if len(c) == 3] == [str(s) for s in Status]


def test_every_error_card_is_explained_to_on_call() -> None:
    table = (ROOT / "docs" / "on-call.md").read_text()
    assert [title for _, title, _ in cards._KINDS if f"| {title} |" not in table] == []


# -- what is there is true ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_link_dangles(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        if not re.match(r"[a-z]+:", link):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), f"{name(page)} links to {link}"
            assert not anchor or anchor in headings(target), f"{name(page)} links to {link}"


def headings(page: Path) -> set[str]:
    """The anchors of a page as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_that_is_shown_exists(page: Path) -> None:
    for words in commands(page):
        line = " ".join(words)
        if words[0] == "gpurunbook" and words[1] != "--help":
            known(command(words[1]), words[2:], line)
        elif words[0] == "make":
            targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            assert {w for w in words[1:] if "=" not in w} <= set(targets), line
        for path in words[1:]:
            if re.match(r"(runbooks|parameters|docs|tests)/", path) and not re.search(r"[<…]", path):
                assert (ROOT / path).exists(), f"{line}: there is no {path}"


def command(given: str) -> click.Command:
    assert given in cli.COMMANDS, f"gpurunbook {given}"
    module, _, attribute = cli.COMMANDS[given][0].partition(":")
    found = getattr(importlib.import_module(module), attribute)
    assert isinstance(found, click.Command)
    return found


def known(shown: click.Command, words: list[str], line: str) -> None:
    """Every option is one of the command, or of the subcommand that is named."""
    if isinstance(shown, click.Group) and words and words[0] in shown.commands:
        shown, words = shown.commands[words[0]], words[1:]
    options = {spelling for parameter in shown.params for spelling in parameter.opts} | {"--help"}
    given = {word.partition("=")[0] for word in words if word.startswith("-") and word != "-"}
    assert shown.name == "lab" or given <= options, f"{line}: has no {', '.join(sorted(given - options))}"


def test_the_readme_shows_the_two_commands_first() -> None:
    assert [words[:2] for words in commands(README)][:2] == [["make", "run"], ["make", "test"]]


# -- examples -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runbook", RUNBOOKS)
def test_an_example_is_its_source_executed_to_the_end(runbook: str) -> None:
    notebook = executed.read((EXAMPLES / f"{runbook}.ipynb").read_bytes(), runbook)
    source = executed.read((ROOT / "runbooks" / f"{runbook}.ipynb").read_bytes(), runbook)
    again = f"run `python docs/examples/write.py {runbook}`"
    assert executed.compare(executed.outline(source), notebook) == [], again
    closings = [data["verdict"] for _, data in notebook.scraps(CLOSING)]
    assert closings == [main(runbook)], again
    page = (EXAMPLES / f"{runbook}.html").read_text()
    assert re.search(r'id="verdict">.*?class="rb-word">([a-z]+)<', page)[1] == closings[0], again  # type: ignore[index]


def main(runbook: str) -> Any:
    """The verdict that the main scenario must come to."""
    from gpurunbook.headless.batch import in_home

    (found,) = [scenario.expected.verdict for scenario in in_home(ROOT, [runbook]) if scenario.main]
    return found


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.[hi][tp]*")), ids=name)
def test_an_example_names_no_place_of_a_machine_and_asks_for_nothing(path: Path) -> None:
    text = path.read_text()
    assert not re.findall(r"/(?:home|root|tmp|Users|work|var|private)/[^\s\"<]*|[A-Z]:\\\\", text)
    assert "<script" not in text
    assert not re.search(r"""(?:src|href)=["'](?:https?:)?//""", text)
