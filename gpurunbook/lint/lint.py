"""The form of a runbook notebook, judged: reading, the verdict per file, and the repair of what is form only.

The rules stand in `form` (the file, its cells, its parameters) and `code` (what the cells do).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpurunbook.declared.book import Runbook
from gpurunbook.declared.runbooks import declared
from gpurunbook.errors import InputError, ParameterError
from gpurunbook.folder import keep
from gpurunbook.lint import code, form
from gpurunbook.lint.source import Notebook, canonical, read

RULES = (*form.RULES, *code.RULES)
"""All rules, in the order in which a notebook is read."""


@dataclass(frozen=True, order=True)
class Flaw:
    """One place where a notebook breaks a rule. line: within the cell, from 1, or 0 for the whole cell or file."""

    file: str
    position: int
    line: int
    rule: str
    cell: str
    message: str
    remedy: str
    source: str

    def as_json(self) -> dict[str, Any]:
        """Writes nothing. Without the cell's position, which only sorts."""
        return {key: value for key, value in asdict(self).items() if key != "position"}


def lint(path: Path, lookup: Callable[[str], Runbook] = declared) -> list[Flaw]:
    """Writes nothing. Every flaw of one notebook, in the notebook's order.

    lookup: from the file's stem to the declaration that it is compared with. Raises InputError when the file cannot
    be read as a notebook.
    """
    notebook = read(path)
    try:
        book = lookup(path.stem)
    except ParameterError as unknown:
        remedy = f"Name the notebook as its runbook, or declare it. {unknown.remedy}"
        return [Flaw(str(path), 0, 0, "declared", "", f"no runbook {path.stem!r} is declared", remedy, "house rule")]
    return sorted(_flaws(path, notebook, book))


def fix(path: Path) -> bool:
    """Replaces one notebook by its canonical form, when it differs; never touches a source. True when it wrote.

    Repairs canonical JSON, outputs, counts and metadata. Raises InputError as `lint` does.
    """
    notebook = read(path)
    wanted = canonical(notebook.tree)
    if wanted == notebook.raw:
        return False
    keep.write(path, wanted, path.stat().st_mode & 0o777)
    return True


def notebooks(paths: Iterable[Path]) -> list[Path]:
    """Writes nothing. The notebooks at or below the paths, sorted. Raises InputError when a path holds none."""
    found: set[Path] = set()
    for path in paths:
        here = sorted(path.rglob("*.ipynb")) if path.is_dir() else [path]
        here = [p for p in here if ".ipynb_checkpoints" not in p.parts]
        if not here:
            raise InputError("no notebook here", subject=str(path), remedy="Name a .ipynb file or a folder with some.")
        found.update(here)
    return sorted(found)


def _flaws(path: Path, notebook: Notebook, book: Runbook) -> Iterator[Flaw]:
    for rule in RULES:
        for at in rule.check(notebook, book):
            position = -1 if at.cell is None else at.cell.index
            cell = "" if at.cell is None else at.cell.id
            yield Flaw(str(path), position, at.line, rule.id, cell, at.message, rule.remedy, rule.source)


def answer(
    paths: Iterable[Path], *, repair: bool = False, lookup: Callable[[str], Runbook] = declared
) -> dict[str, Any]:
    """Replaces notebooks when `repair` is true, else writes nothing.

    `{"verdict": "ok" | "error" | "unreadable", "files", "findings", "fixed", "unreadable": [{"file", "message"}]}`
    """
    flaws: list[Flaw] = []
    fixed: list[str] = []
    unreadable: list[dict[str, str]] = []
    files = 0
    try:
        for path in notebooks(paths):
            files += 1
            try:
                if repair and fix(path):
                    fixed.append(str(path))
                flaws += lint(path, lookup)
            except InputError as wrong:
                unreadable.append({"file": str(path), "message": str(wrong)})
    except InputError as wrong:
        unreadable.append({"file": wrong.subject, "message": str(wrong)})
    return {
        "verdict": "unreadable" if unreadable else "error" if flaws else "ok",
        "files": files,
        "findings": [flaw.as_json() for flaw in flaws],
        "fixed": fixed,
        "unreadable": unreadable,
    }
