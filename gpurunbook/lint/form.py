"""Rules on the file, its cells, its text and its parameters. Each says where it is broken; none writes anything."""

from __future__ import annotations

import ast
import re
import tokenize
import typing
from collections.abc import Iterator
from io import StringIO
from urllib.parse import unquote

from gpurunbook.declared.book import Runbook
from gpurunbook.declared.runbooks import defaults
from gpurunbook.folder.parameters import assigned, marker
from gpurunbook.lint.source import KERNEL, At, Cell, Notebook, Rule, dump

LINES = 12
"""At most so many lines in a code cell; the parameters cell apart."""

SECTIONS = ("Purpose", "Blast radius", "Duration", "Abort", "Rollback")
TAGS = {
    "raises-exception": "nbclient goes on after an error in this cell: a gate in it would hold nobody",
    "skip-execution": "nbclient leaves this cell out without a word",
    "injected-parameters": "papermill wrote this cell: the file is an executed copy",
}
"""Tags that are refused, with what they do."""

ALLOWED = ("parameters", "checks", "waits", "mutates")

_ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_RANDOM = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{8}")
_HEADING = re.compile(r"#{2,6} +(.+?) *#*")
_LABEL = re.compile(r"(?:[-*] +|\| *)?\*\*([^*]+)\*\*(.*)")
_FENCED = re.compile(r"(?ms)^(```|~~~).*?^\1|`[^`\n]*`")
_LINK = re.compile(r"\]\(\s*<?([^)\s>]+)|(?m:^\[[^\]]+\]:\s*<?([^\s>]+))|(?:href|src)\s*=\s*[\"']([^\"']+)")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def canonical_json(notebook: Notebook, _: Runbook) -> Iterator[At]:
    """The bytes are what nbformat would write."""
    if notebook.raw != dump(notebook.tree):
        yield At(None, "the file is not canonical JSON: indent 1, sorted keys, source by lines, newline at the end")


def notebook_metadata(notebook: Notebook, _: Runbook) -> Iterator[At]:
    """Nothing but the kernel, `gpurunbook` and the version 4.5."""
    metadata = notebook.tree.get("metadata")
    held = metadata if isinstance(metadata, dict) else {}
    if held.get("kernelspec") != KERNEL:
        yield At(None, f"kernelspec is {held.get('kernelspec')!r:.120}, wanted {KERNEL!r}")
    extra = sorted({*held, *notebook.tree} - {"kernelspec", "gpurunbook", "cells", "metadata", "nbformat"})
    if extra != ["nbformat_minor"]:
        yield At(None, f"the notebook holds {', '.join(extra)}, wanted nbformat_minor beside the kernelspec")
    if notebook.tree.get("nbformat_minor") != 5:
        yield At(None, f"nbformat is 4.{notebook.tree.get('nbformat_minor')}, wanted 4.5, which has cell ids")


def no_outputs(notebook: Notebook, _: Runbook) -> Iterator[At]:
    """A source holds neither outputs nor execution counts."""
    for cell in notebook.code:
        if cell.raw.get("outputs") != [] or cell.raw.get("execution_count", 0) is not None:
            yield At(cell, "the cell holds outputs or an execution count")


def cell_metadata(notebook: Notebook, _: Runbook) -> Iterator[At]:
    """Tags always, `gpurunbook` perhaps, nothing else."""
    for cell in notebook.cells:
        known = {"cell_type", "id", "metadata", "source"}
        known |= {"outputs", "execution_count"} if cell.kind == "code" else {"attachments"}
        extra = sorted({*cell.raw} - known) + sorted({*cell.raw["metadata"]} - {"tags", "gpurunbook"})
        if extra:
            yield At(cell, f"the cell carries {', '.join(extra)}")
        if not isinstance(cell.raw["metadata"].get("tags"), list):
            yield At(cell, "the cell has no list of tags")


def cell_ids(notebook: Notebook, _: Runbook) -> Iterator[At]:
    """Named, kebab-case, unique."""
    seen: set[str] = set()
    for cell in notebook.cells:
        if not _ID.fullmatch(cell.id) or len(cell.id) > 64 or _RANDOM.fullmatch(cell.id):
            yield At(cell, f"the id is {cell.id!r:.80}, wanted a name such as 'zero-holders'")
        elif cell.id in seen:
            yield At(cell, "the id stands twice")
        seen.add(cell.id)


def tags(notebook: Notebook, _: Runbook) -> Iterator[At]:
    """Only tags with a meaning here; those that hide a failure are refused by name."""
    for cell in notebook.cells:
        for tag in cell.tags:
            if tag not in ALLOWED:
                yield At(cell, f"the tag {tag!r:.60} is refused: {TAGS.get(tag, 'it has no meaning in a runbook')}")


def header(notebook: Notebook, _: Runbook) -> Iterator[At]:
    """The first cell is Markdown with a title and the five sections, none of them empty."""
    first = notebook.cells[0] if notebook.cells else None
    if first is None or first.kind != "markdown":
        yield At(first, "the first cell is no Markdown header")
        return
    if not re.fullmatch(r"# +\S.*", first.source.split("\n", 1)[0].strip()):
        yield At(first, "the header does not begin with a title, `# …`", 1)
    found = _sections(first.source)
    for name in SECTIONS:
        if name.lower() not in found:
            yield At(first, f"the header has no section {name!r}")
        elif not found[name.lower()]:
            yield At(first, f"the section {name!r} is empty")


def markdown_first(notebook: Notebook, _: Runbook) -> Iterator[At]:
    """Each code cell follows a Markdown cell with text; raw cells are refused."""
    before: Cell | None = None
    for cell in notebook.cells:
        if cell.kind == "raw":
            yield At(cell, "a raw cell is shown nowhere")
        if cell.kind == "code" and (before is None or before.kind != "markdown" or not before.source.strip()):
            yield At(cell, "no Markdown stands before this code cell")
        before = cell


def cell_length(notebook: Notebook, _: Runbook) -> Iterator[At]:
    """At most twelve lines, the parameters cell apart."""
    for cell in notebook.code:
        lines = len(cell.source.splitlines())
        if lines > LINES and "parameters" not in cell.tags:
            yield At(cell, f"the cell has {lines} lines, at most {LINES} are read in an incident", LINES + 1)


def links(notebook: Notebook, _: Runbook) -> Iterator[At]:
    """Relative links of the text lead to files that are there."""
    for cell in notebook.cells:
        if cell.kind != "markdown":
            continue
        text = _FENCED.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), cell.source)
        for match in _LINK.finditer(text):
            target = next(filter(None, match.groups()))
            line = text.count("\n", 0, match.start()) + 1
            file = unquote(re.split(r"[?#]", target, maxsplit=1)[0])
            if not file or _SCHEME.match(target):
                continue
            if file.startswith("/") or not (notebook.path.parent / file).exists():
                yield At(cell, f"the link {target!r:.120} leads nowhere from {notebook.path.parent.name}/", line)


def parameters_cell(notebook: Notebook, book: Runbook) -> Iterator[At]:
    """One cell tagged `parameters`, the first code cell, equal to the schema in names, order and defaults."""
    tagged = [cell for cell in notebook.cells if "parameters" in cell.tags]
    if len(tagged) != 1 or tagged != notebook.code[:1]:
        yield At(tagged[-1] if tagged else None, "wanted one cell tagged 'parameters', and it the first code cell")
        return
    cell = tagged[0]
    if cell.source.split("\n", 1)[0] != marker(book.name):
        yield At(cell, f"the first line is not exactly {marker(book.name)!r}: the run would not find its parameters", 1)
    names = assigned(cell.source)
    if names is None:
        yield At(cell, "the cell holds something else than NAME = VALUE lines")
        return
    wanted = defaults(book)
    if names != list(wanted):
        yield At(cell, f"the names are {', '.join(names)}; the schema has, in this order, {', '.join(wanted)}")
    for name, line, value in _values(cell):
        if name in wanted and not _same(value, wanted[name]):
            yield At(cell, f"{name} is {value!r:.80}, the schema's default is {wanted[name]!r:.80}", line)


def parameters_explained(notebook: Notebook, _: Runbook) -> Iterator[At]:
    """A comment at each parameter: behind it, or on the lines just above."""
    for cell in notebook.code:
        if "parameters" not in cell.tags or cell.tree is None or not assigned(cell.source):
            continue
        behind, alone = _comments(cell)
        for statement in cell.tree.body:
            inside = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
            above = statement.lineno - 1
            if not behind.intersection(inside) and (above == 1 or above not in alone):
                yield At(cell, f"no comment explains {_name(statement)}", statement.lineno)


def _sections(text: str) -> dict[str, str]:
    """Lower-cased name of each section → its text. A section is a heading or a line that begins in bold."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.splitlines():
        if heading := _HEADING.fullmatch(line.strip()):
            current = found.setdefault(heading[1].strip(" .:").lower(), [])
        elif label := _LABEL.fullmatch(line.strip()):
            current = found.setdefault(label[1].strip(" .:").lower(), [])
            current.append(label[2].strip(" |:.-"))
        else:
            current.append(line.strip(" |:.-"))
    return {name: "".join(lines) for name, lines in found.items()}


class _Unknown:
    def __repr__(self) -> str:
        return "no plain value"


def _values(cell: Cell) -> Iterator[tuple[str, int, object]]:
    for statement in cell.tree.body if cell.tree else []:
        try:
            value: object = ast.literal_eval(typing.cast(ast.Assign, statement).value)
        except (ValueError, TypeError, RecursionError):
            value = _Unknown()
        yield _name(statement), statement.lineno, value


def _name(statement: ast.stmt) -> str:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
    return "?"


def _same(value: object, default: object) -> bool:
    if isinstance(value, list | tuple) and isinstance(default, list | tuple):
        return len(value) == len(default) and all(map(_same, value, default))
    return type(value) is type(default) and value == default


def _comments(cell: Cell) -> tuple[set[int], set[int]]:
    """The lines with a comment behind code, and those of a comment alone; empty comments say nothing."""
    tokens = tokenize.generate_tokens(StringIO(cell.source).readline)
    comments = [t for t in tokens if t.type == tokenize.COMMENT and t.string.strip("# ")]
    alone = {t.start[0] for t in comments if t.line.lstrip().startswith("#")}
    return {t.start[0] for t in comments} - alone, alone


_NBFORMAT = "nbformat 4.5 and its writer; https://nbformat.readthedocs.io"
_FIX = "Run `gpurunbook lint --fix`, which repairs form only."

RULES = (
    Rule("canonical-json", _FIX, _NBFORMAT, canonical_json),
    Rule("notebook-metadata", _FIX, _NBFORMAT, notebook_metadata),
    Rule("no-outputs", _FIX, "tensorflow/docs nbfmt: a source or a published notebook, never both", no_outputs),
    Rule("cell-metadata", _FIX, "nteract/papermill#637: cells without tags break tools", cell_metadata),
    Rule(
        "cell-ids",
        "Name the cell for what it does, in words with hyphens; a step's cell has the step's id.",
        "JEP 62, cell ids; house rule: evidence names cells",
        cell_ids,
    ),
    Rule("tags", "Take the tag off.", "nbclient and papermill, which act on cell tags", tags),
    Rule(
        "header",
        f"Begin with `# Title` and the sections {', '.join(SECTIONS)}, as headings or as lines `**Purpose**: …`.",
        "house rule: what a reader must know before the first click",
        header,
    ),
    Rule(
        "markdown-first",
        "Say before the cell what it does, why, and what bad looks like.",
        "house rule: a runbook is read by a tired person",
        markdown_first,
    ),
    Rule("cell-length", "Split the cell, or move what it does into the package.", "house rule", cell_length),
    Rule("links", "Correct the link, or add the file.", "house rule: no link of a runbook dangles", links),
    Rule(
        "parameters-cell",
        "Write the cell anew from the declaration: names, order and defaults.",
        "papermill's parameters cell; zph/runbook#4: the schema lives in the package",
        parameters_cell,
    ),
    Rule(
        "parameters-explained",
        "Say behind the value, or above it, what it means and when to change it.",
        "house rule",
        parameters_explained,
    ),
)
