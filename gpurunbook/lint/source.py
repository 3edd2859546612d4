"""A source notebook as the linter reads it, and its canonical form.

Canonical form: what nbformat writes (indent 1, sorted keys, one JSON string per line of source, UTF-8, a newline at
the end), without outputs and counts, and with no metadata but the kernel's name, `gpurunbook` and the cells' tags.
JupyterLab adds language_info and timings on saving, papermill its own block: diffs would drown in them.
"""

from __future__ import annotations

import ast
import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gpurunbook.declared.book import Runbook
from gpurunbook.errors import InputError
from gpurunbook.sources import files
from gpurunbook.supply import strictjson

_LONGEST = 256 << 20

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
"""The one kernel: another name is a NoSuchKernel in somebody's environment (nteract/papermill#251)."""


@dataclass(frozen=True)
class Cell:
    """One cell. raw: as it stands in the file; source: its text."""

    index: int
    raw: dict[str, Any]
    source: str

    @property
    def id(self) -> str:
        """Writes nothing. The cell's id, or empty where there is none."""
        return str(self.raw.get("id", ""))

    @property
    def kind(self) -> str:
        """Writes nothing. `code`, `markdown` or `raw`."""
        return str(self.raw["cell_type"])

    @property
    def tags(self) -> list[str]:
        """Writes nothing. The cell's tags."""
        tags = self.raw["metadata"].get("tags", [])
        return [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []

    @cached_property
    def tree(self) -> ast.Module | None:
        """Writes nothing. The cell's syntax tree, or None when it is not plain Python."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape in a string is not ours to judge
            try:
                return ast.parse(self.source)
            except (SyntaxError, ValueError, RecursionError):
                return None


@dataclass(frozen=True)
class Notebook:
    """One notebook file."""

    path: Path
    raw: bytes
    tree: dict[str, Any]
    cells: tuple[Cell, ...]

    @property
    def code(self) -> list[Cell]:
        """Writes nothing. The code cells."""
        return [cell for cell in self.cells if cell.kind == "code"]


@dataclass(frozen=True)
class At:
    """Where a rule is broken, and how. cell: None for the file as a whole; line: within the cell, from 1."""

    cell: Cell | None
    message: str
    line: int = 0


Check = Callable[[Notebook, Runbook], Iterator[At]]


@dataclass(frozen=True)
class Rule:
    """One rule. remedy: what to do about it; source: where it comes from."""

    id: str
    remedy: str
    source: str
    check: Check


def read(path: Path) -> Notebook:
    """Writes nothing. The notebook of one file. Raises InputError when it is not a notebook of format 4."""
    try:
        raw = files.read(str(path), _LONGEST)
    except InputError as wrong:
        raise _unreadable(path, wrong.message) from None
    try:
        tree = strictjson.loads(raw)
        json.dumps(tree, ensure_ascii=False).encode("utf-8")  # a lone surrogate could not be written back
    except (InputError, ValueError, RecursionError) as wrong:
        raise _unreadable(path, f"not JSON in UTF-8: {wrong}") from None
    if not isinstance(tree, dict) or not isinstance(tree.get("cells"), list) or tree.get("nbformat") != 4:
        raise _unreadable(path, "not a notebook of nbformat 4")
    return Notebook(path, raw, tree, tuple(_cell(path, i, cell) for i, cell in enumerate(tree["cells"])))


def canonical(tree: dict[str, Any]) -> bytes:
    """Writes nothing. The bytes of the notebook in canonical form; sources, ids and tags are kept as they are."""
    metadata = tree.get("metadata")
    own = {"gpurunbook": metadata["gpurunbook"]} if isinstance(metadata, dict) and "gpurunbook" in metadata else {}
    return dump(
        {
            "cells": [_bare(cell) for cell in tree["cells"]],
            "metadata": {**own, "kernelspec": KERNEL},
            "nbformat": 4,
            "nbformat_minor": 5,
        }
    )


def dump(tree: dict[str, Any]) -> bytes:
    """Writes nothing. The same content as nbformat writes it."""
    split = {**tree, "cells": [{**cell, "source": _lines(cell["source"])} for cell in tree["cells"]]}
    return (json.dumps(split, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode("utf-8")


def _bare(cell: dict[str, Any]) -> dict[str, Any]:
    metadata = {key: cell["metadata"][key] for key in ("gpurunbook", "tags") if key in cell["metadata"]}
    if not isinstance(metadata.get("tags"), list):
        metadata["tags"] = []
    bare = {"cell_type": cell["cell_type"], "metadata": metadata, "source": cell["source"]}
    if "id" in cell:
        bare["id"] = cell["id"]
    if cell["cell_type"] == "code":
        bare |= {"execution_count": None, "outputs": []}
    elif cell.get("attachments"):
        bare["attachments"] = cell["attachments"]
    return bare


def _lines(source: str | list[str]) -> list[str]:
    return ("".join(source) if isinstance(source, list) else source).splitlines(keepends=True)


def _cell(path: Path, index: int, cell: Any) -> Cell:
    match cell:
        case {"cell_type": "code" | "markdown" | "raw", "metadata": dict(), "source": str(source)}:
            return Cell(index, cell, source)
        case {"cell_type": "code" | "markdown" | "raw", "metadata": dict(), "source": list(lines)} if all(
            isinstance(line, str) for line in lines
        ):
            return Cell(index, cell, "".join(lines))
    raise _unreadable(path, f"cell {index + 1} has no type, metadata or source as nbformat 4 wants them")


def _unreadable(path: Path, why: str) -> InputError:
    return InputError(why, subject=str(path), remedy="Put back the last readable version.", code="unreadable")
