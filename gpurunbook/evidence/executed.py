"""An executed notebook as evidence: its cells, their digests, its scraps, and how it differs from its source.

Read with plain JSON: importing nbformat costs a second, and its validation says nothing about what was run.
papermill's own statuses are not used: after a dead kernel or a time-out they call every cell completed
(papermill/engines.py, notebook_complete).
"""

from __future__ import annotations

import ast
import bisect
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpurunbook.errors import InputError
from gpurunbook.folder.parameters import INJECTED
from gpurunbook.journal import canonical, digest
from gpurunbook.shown.scraps import MIME
from gpurunbook.supply import strictjson

# Cells that papermill adds (papermill/parameterize.py, papermill/execute.py).
INJECTED_TAG = "injected-parameters"
_MARKER_TAG = "papermill-error-cell-tag"
_MARKER = re.compile(
    r'<span [^<>]*>(?:An Exception was encountered at \'<a href="#papermill-error-cell">In \[[0-9None]+\]</a>\'\.'
    r"|Execution using papermill encountered an exception here and stopped:)</span>"
)


@dataclass(frozen=True)
class Cell:
    """One cell. key: its id, made unique; ran: execution count, None when it did not run or is no code."""

    key: str
    id: str
    kind: str
    source: str
    outputs: tuple[dict[str, Any], ...]
    ran: int | None
    tags: tuple[str, ...]

    @property
    def code(self) -> bool:
        """Writes nothing. Whether there is something to run in it."""
        return self.kind == "code" and bool(self.source.strip())

    @property
    def errors(self) -> list[dict[str, Any]]:
        """Writes nothing. Its error outputs."""
        return [output for output in self.outputs if output["output_type"] == "error"]

    @property
    def scraps(self) -> dict[str, Any]:
        """Writes nothing. Name → data of the scraps that it shows; the last of a name counts, as for scrapbook."""
        payloads = (output["data"].get(MIME) for output in self.outputs if isinstance(output.get("data"), dict))
        return {str(p.get("name")): p.get("data") for p in payloads if isinstance(p, dict)}


@dataclass(frozen=True)
class Notebook:
    """The cells in order, and the parameters that papermill noted in the metadata, by name."""

    cells: tuple[Cell, ...]
    noted: Mapping[str, Any]

    def cell(self, id: str) -> Cell | None:
        """Writes nothing. The first cell of that id."""
        return next((cell for cell in self.cells if cell.id == id), None)

    def scraps(self, name: str) -> Iterator[tuple[Cell, Any]]:
        """Writes nothing. The cells that show a scrap of that name, with its data, in their order."""
        for cell in self.cells:
            if name in cell.scraps:
                yield cell, cell.scraps[name]


def read(raw: bytes, name: str) -> Notebook:
    """Writes nothing. Raises InputError that names the first thing that is not as nbformat 4 has it."""
    try:
        whole = strictjson.loads(raw)
    except InputError as wrong:
        raise InputError(f"not a whole notebook: {wrong.message}", subject=name) from None
    if not isinstance(whole, dict) or whole.get("nbformat") != 4 or not isinstance(whole.get("cells"), list):
        raise InputError("not a notebook of nbformat 4", subject=name)
    cells: list[Cell] = []
    taken: set[str] = set()
    for at, value in enumerate(whole["cells"], 1):
        try:
            cells.append(_cell(value, at, taken))
        except (TypeError, KeyError) as wrong:
            raise InputError(f"not a notebook: cell {at}: {wrong}", subject=name) from None
    noted = _get(_get(whole.get("metadata"), "papermill"), "parameters")
    return Notebook(tuple(cells), noted if isinstance(noted, dict) else {})


def _get(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None


def _cell(value: Any, at: int, taken: set[str]) -> Cell:
    id, kind, ran = _get(value, "id"), _get(value, "cell_type"), _get(value, "execution_count")
    if kind not in {"code", "markdown", "raw"}:
        raise TypeError(f"cell_type is {kind!r:.40}")
    if id is not None and not (isinstance(id, str) and 0 < len(id) <= 64):
        raise TypeError(f"id is {id!r:.40}")
    if ran is not None and (isinstance(ran, bool) or not isinstance(ran, int)):
        raise TypeError(f"execution_count is {ran!r:.40}")
    key = plain = id or f"cell {at}"
    while key in taken:
        key = f"{plain} (again, cell {at})"
    taken.add(key)
    tags = _get(value.get("metadata"), "tags")
    outputs = value.get("outputs", []) if kind == "code" else []
    if not isinstance(outputs, list):
        raise TypeError("outputs is no list")
    return Cell(
        key=key,
        id=id or "",
        kind=kind,
        source=joined(value["source"]),
        outputs=tuple(_output(output) for output in outputs),
        ran=ran if kind == "code" else None,
        tags=tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else (),
    )


def _output(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or not isinstance(value.get("output_type"), str):
        raise TypeError("an output is no output")
    # A re-run of equal cells differs in counts and times only; those are no part of what was shown.
    made = {key: item for key, item in value.items() if key not in {"execution_count", "transient"}}
    if "text" in made:
        made["text"] = joined(made["text"])
    if isinstance(made.get("data"), dict):
        made["data"] = {k: joined(v) if _lines(v) else v for k, v in made["data"].items()}
    return made


def _lines(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(line, str) for line in value)


def joined(text: Any) -> str:
    """Writes nothing. A text, or a list of lines, as one text. Raises TypeError for anything else."""
    if isinstance(text, str):
        return text
    if _lines(text):
        return "".join(text)
    raise TypeError(f"wanted text, found {type(text).__name__}")


def cell_digest(cell: Cell) -> str:
    """Writes nothing. Over id, kind, source, whether it ran, and outputs without counts and times."""
    id = "injected" if INJECTED_TAG in cell.tags else "marker" if _MARKER_TAG in cell.tags else cell.id
    return digest(
        canonical(
            {"id": id, "kind": cell.kind, "source": cell.source, "ran": cell.ran is not None, "outputs": cell.outputs}
        )
    )


def values(source: str) -> dict[str, Any] | None:
    """Writes nothing. What a parameter cell assigns, or None when it holds anything but NAME = LITERAL."""
    found: dict[str, Any] = {}
    try:
        for statement in ast.parse(source).body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    found[name] = ast.literal_eval(value)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    found[name] = ast.literal_eval(value)
                case _:
                    return None
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return None
    return found


def outline(notebook: Notebook) -> list[dict[str, Any]]:
    """Writes nothing. Of a source notebook what a comparison needs: id, kind, digest of the text, whether it holds
    the parameters.
    """
    return [
        {
            "id": cell.id,
            "kind": cell.kind,
            "sha256": digest(cell.source.rstrip().encode("utf-8", "backslashreplace")),
            "parameters": "parameters" in cell.tags,
        }
        for cell in notebook.cells
    ]


def anomaly(kind: str, cell: str, detail: str) -> dict[str, str]:
    """Writes nothing. One way in which a notebook is not its source, run from top to bottom, or not what the journal
    says. cell: the cell, or the file that is meant.
    """
    return {"kind": kind, "cell": cell, "detail": detail}


def compare(source: list[dict[str, Any]], notebook: Notebook) -> list[dict[str, str]]:
    """Writes nothing. Every cell that was edited, added, deleted, moved, skipped or run out of order, in this order
    of kinds. source: an `outline`. papermill's own cells are known, so are values set in the parameters cell, and the
    empty cell that JupyterLab adds when the last one is run by Shift+Enter.
    """
    known = {entry["id"]: entry for entry in source}
    found: list[dict[str, str]] = []
    present: list[str] = []
    for cell in notebook.cells:
        entry = known.get(cell.key)
        if entry is None:
            if not of_papermill(cell) and (cell.source.strip() or cell.outputs):
                found.append(anomaly("added", cell.key, f"a {cell.kind} cell that the source does not have"))
            continue
        present.append(cell.key)
        if not _same(entry, cell):
            found.append(anomaly("edited", cell.key, f"a {cell.kind} cell whose text is not that of the source"))
    found += [anomaly("deleted", id, "a cell of the source is not there") for id in known if id not in set(present)]
    wanted = [id for id in known if id in set(present)]
    found += [anomaly("moved", id, "it stands elsewhere in the source") for id in _unsorted(present, wanted)]
    found += [
        anomaly("skipped", cell.key, "it did not run" + (", its outputs are older" if cell.outputs else ""))
        for cell in notebook.cells
        if cell.code and cell.ran is None
    ]
    return sorted(found, key=lambda entry: _KINDS.index(entry["kind"])) + list(_out_of_order(notebook.cells))


_KINDS = ("edited", "added", "deleted", "moved", "skipped")


def _same(entry: Mapping[str, Any], cell: Cell) -> bool:
    if entry["kind"] != cell.kind:
        return False
    if entry["parameters"] and values(cell.source) is not None:
        return True
    return bool(entry["sha256"] == digest(cell.source.rstrip().encode("utf-8", "backslashreplace")))


def of_papermill(cell: Cell) -> bool:
    """Writes nothing. Whether papermill itself added the cell, and nothing else stands in it."""
    if cell.kind == "markdown" and _MARKER_TAG in cell.tags:
        return bool(_MARKER.fullmatch(cell.source))
    first = cell.source.lstrip().split("\n", 1)[0].strip()
    return cell.kind == "code" and INJECTED_TAG in cell.tags and first == INJECTED and values(cell.source) is not None


def _unsorted(present: list[str], wanted: list[str]) -> list[str]:
    """The fewest that must be taken out so that the rest stand in order: all but a longest rising sequence."""
    place = {id: at for at, id in enumerate(wanted)}
    order = [place[id] for id in present]
    ends: list[int] = []  # of rising runs by length; a run is told by the chain of what came before
    before: dict[int, int | None] = {}
    for at in order:
        length = bisect.bisect_left(ends, at)
        before[at] = ends[length - 1] if length else None
        ends[length : length + 1] = [at]
    kept: set[int] = set()
    last: int | None = ends[-1] if ends else None
    while last is not None:
        kept.add(last)
        last = before[last]
    return [id for id, at in zip(present, order, strict=True) if at not in kept]


def _out_of_order(cells: Iterable[Cell]) -> Iterator[dict[str, str]]:
    last: Cell | None = None
    for cell in cells:
        if cell.ran is None:
            continue
        if last is not None and last.ran is not None and cell.ran <= last.ran:
            detail = (
                f"run as number {cell.ran}, before the cell {last.key} above it (number {last.ran}), or after a restart"
            )
            yield anomaly("out-of-order", cell.key, detail)
        last = cell
