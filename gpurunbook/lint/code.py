"""Rules on what the cells do: plain calls of the package, one gate per cell, in the declared order."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from gpurunbook.declared.book import Runbook
from gpurunbook.lint.source import At, Cell, Notebook, Rule

GATES = ("check", "change", "wait")
"""Methods of a run that are steps; their first argument is the step's id."""

FORBIDDEN = {
    "exit": "ends the kernel",
    "quit": "ends the kernel",
    "get_ipython": "reaches round the runbook, to magics and shells",
    "exec": "hides what the cell does",
    "eval": "hides what the cell does",
    "compile": "hides what the cell does",
    "__import__": "hides an import",
    "setattr": "changes what the package does",
    "delattr": "changes what the package does",
    "globals": "reaches round the runbook, to its names",
    "locals": "reaches round the runbook, to its names",
    "vars": "reaches round the runbook, to its names",
    "open": "reads or writes files that no evidence holds",
    "input": "waits for somebody who is not there in a headless run",
    "breakpoint": "waits for somebody who is not there in a headless run",
}
"""Built-in names that a cell may not use, with why."""


@dataclass(frozen=True)
class Call:
    """A call `run.METHOD(…)`. step: its first argument where that is plain text; top: it is a statement of its own."""

    cell: Cell
    line: int
    method: str
    step: str | None
    top: bool


def python(notebook: Notebook, _: Runbook) -> Iterator[At]:
    """A code cell is plain Python, without magics and shell escapes."""
    for cell in notebook.code:
        if cell.tree is not None:
            continue
        odd = [i for i, line in enumerate(cell.source.splitlines(), 1) if _is_magic(line)]
        yield At(cell, "a magic or a shell escape" if odd else "the cell is no Python", odd[0] if odd else 1)


def functions(notebook: Notebook, _: Runbook) -> Iterator[At]:
    """No functions and classes in cells."""
    for cell, node in _nodes(notebook):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield At(cell, f"a {_WORD[type(node)]} in a cell is tested by nobody", node.lineno)


def imports(notebook: Notebook, _: Runbook) -> Iterator[At]:
    """`import gpurunbook as rb`, and nothing else."""
    good = 0
    for cell, node in _nodes(notebook):
        if isinstance(node, ast.Import | ast.ImportFrom):
            if ast.unparse(node) == "import gpurunbook as rb":
                good += 1
            else:
                yield At(cell, f"{ast.unparse(node)!r:.120}, wanted only 'import gpurunbook as rb'", node.lineno)
    if good != 1:
        yield At(None, f"'import gpurunbook as rb' stands {good} times, wanted once")


def bare_print(notebook: Notebook, _: Runbook) -> Iterator[At]:
    """No print: it escapes and redacts nothing."""
    for cell, node in _nodes(notebook):
        if isinstance(node, ast.Name) and node.id == "print":
            yield At(cell, "print shows text that nobody escaped or redacted", node.lineno)


def plain_code(notebook: Notebook, _: Runbook) -> Iterator[At]:
    """Nothing that swallows a gate's error, ends the kernel, puts another gate in its place, or loops over the API."""
    for cell, node in _nodes(notebook):
        match node:
            case ast.Try() | ast.TryStar():
                yield At(cell, "try can swallow the error with which a gate stops the run", node.lineno)
            case ast.Raise():
                yield At(cell, "only the package raises: SystemExit would end as a success", node.lineno)
            case ast.Name(id=name) if name in FORBIDDEN:
                yield At(cell, f"{name} {FORBIDDEN[name]}", node.lineno)
            case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()):
                yield At(cell, f"setting .{name} changes what the package does", node.lineno)
            case ast.For() | ast.AsyncFor() | ast.While() | ast.ListComp() | ast.SetComp() | ast.DictComp():
                if _uses(node, "run", "rb"):
                    yield At(cell, "a loop over the API: what it did is not seen step by step", node.lineno)
            case ast.GeneratorExp() if _uses(node, "run", "rb"):
                yield At(cell, "a loop over the API: what it did is not seen step by step", node.lineno)


def start_and_close(notebook: Notebook, book: Runbook) -> Iterator[At]:
    """`run = rb.start("<runbook>")` before every gate, `run.close()` last; neither name is bound to anything else."""
    wanted = f"run = rb.start({book.name!r})"
    starts = [
        (cell, statement)
        for cell in notebook.code
        for statement in (cell.tree.body if cell.tree else [])
        if ast.unparse(statement) == wanted
    ]
    if len(starts) != 1:
        yield At(None, f"the statement {wanted!r} stands {len(starts)} times, wanted once")
    for cell, node in _nodes(notebook):
        match node:
            case ast.Name(id="run" | "rb" as name, ctx=ast.Store() | ast.Del()):
                if not any(node in ast.walk(statement) for _, statement in starts):
                    yield At(cell, f"{name} is bound to something else", node.lineno)
            case ast.MatchAs(name="run" | "rb" as name) | ast.MatchStar(name="run" | "rb" as name):
                yield At(cell, f"{name} is bound to something else", node.lineno)
    calls = _calls(notebook)
    if starts:
        first = starts[0][0].index
        for call in calls:
            if call.cell.index < first:
                yield At(call.cell, f"run.{call.method} stands before rb.start", call.line)
    closes = [call for call in calls if call.method == "close"]
    if len(closes) != 1 or not closes[0].top or _last(notebook) != "run.close()":
        yield At(
            closes[-1].cell if closes else None,
            f"run.close() stands {len(closes)} times, wanted once, as the last statement of the last code cell",
        )


def step_ids(notebook: Notebook, _: Runbook) -> Iterator[At]:
    """A gate is one statement in a cell of its own, which has the step's id; a cell calls nothing else of a run."""
    seen: set[int] = set()
    for call in _calls(notebook):
        where = f"run.{call.method}"
        if call.method not in GATES:
            if call.method != "close":
                yield At(call.cell, f"{where}: a run has {', '.join(GATES)} and close", call.line)
            continue
        if call.step is None:
            yield At(call.cell, f"{where}: the first argument is not the step's id in quotes", call.line)
        elif call.step != call.cell.id:
            yield At(call.cell, f"{where}({call.step!r:.60}) stands in the cell {call.cell.id!r:.60}", call.line)
        if not call.top:
            yield At(call.cell, f"{where} is not a statement of its own: it may be left out or swallowed", call.line)
        if call.cell.index in seen:
            yield At(call.cell, f"{where} is the second gate of this cell", call.line)
        seen.add(call.cell.index)


def step_order(notebook: Notebook, book: Runbook) -> Iterator[At]:
    """The gates are the declared steps, all of them, in the declared order."""
    wanted = [step.id for step in book.steps]
    calls = [c for c in _calls(notebook) if c.method in GATES]
    found = [call.step for call in calls]
    if found == wanted:
        return
    absent = [step for step in wanted if step not in found]
    for step in absent:
        yield At(None, f"the declared step {step!r} has no cell")
    for call in calls:
        if call.step is not None and call.step not in wanted:
            yield At(call.cell, f"the step {call.step!r:.60} is not declared", call.line)
    if not absent and all(step in wanted for step in found):
        yield At(None, f"the steps run {', '.join(map(str, found))}; declared: {', '.join(wanted)}")


def mutates(notebook: Notebook, _: Runbook) -> Iterator[At]:
    """A cell changes something exactly when it is tagged `mutates`."""
    changing = {call.cell.index for call in _calls(notebook) if call.method == "change"}
    for cell in notebook.cells:
        if cell.index in changing and "mutates" not in cell.tags:
            yield At(cell, "the cell changes something and is not tagged 'mutates'")
        if cell.index not in changing and "mutates" in cell.tags:
            yield At(cell, "the cell is tagged 'mutates' and holds no run.change")


def _nodes(notebook: Notebook) -> Iterator[tuple[Cell, ast.AST]]:
    for cell in notebook.code:
        if cell.tree is not None:
            for node in ast.walk(cell.tree):
                yield cell, node


def _calls(notebook: Notebook) -> list[Call]:
    found = []
    for cell in notebook.code:
        top = {id(s.value) for s in cell.tree.body if isinstance(s, ast.Expr | ast.Assign)} if cell.tree else set()
        for node in ast.walk(cell.tree) if cell.tree else []:
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="run"), attr=method), args=arguments):
                    step = None
                    if arguments and isinstance(arguments[0], ast.Constant) and isinstance(arguments[0].value, str):
                        step = arguments[0].value
                    found.append(Call(cell, node.lineno, method, step, id(node) in top))
    return sorted(found, key=lambda call: (call.cell.index, call.line))


def _uses(node: ast.AST, *names: str) -> bool:
    return any(isinstance(inner, ast.Name) and inner.id in names for inner in ast.walk(node))


def _last(notebook: Notebook) -> str:
    tree = notebook.code[-1].tree if notebook.code else None
    return ast.unparse(tree.body[-1]) if tree and tree.body else ""


def _is_magic(line: str) -> bool:
    return bool(re.match(r"\s*([%!?]|[A-Za-z_][\w, ]*=\s*[%!])", line)) or line.rstrip().endswith("?")


_WORD: dict[type[ast.AST], str] = {
    ast.FunctionDef: "function",
    ast.AsyncFunctionDef: "function",
    ast.ClassDef: "class",
    ast.Lambda: "lambda",
}

RULES = (
    Rule("python", "Write plain Python, and have the package do the rest.", "papermill and nbclient in CI", python),
    Rule("functions", "Move it into the package, with a test.", "tensorflow/docs nblint; house rule", functions),
    Rule("imports", "Take what is needed from `rb`.", "house rule: notebooks use one namespace", imports),
    Rule("print", "Let the step show it: its views are escaped and redacted.", "house rule", bare_print),
    Rule(
        "plain-code",
        "Leave only plain calls in the cell.",
        "nteract/papermill, sys.exit(0) ends as a success",
        plain_code,
    ),
    Rule("start-and-close", "Start first, close last, each once.", "house rule: no close, no verdict", start_and_close),
    Rule(
        "step-ids", "Give the cell the step's id, one gate to a cell.", "house rule: the seal compares cells", step_ids
    ),
    Rule("step-order", "Compare the cells with the declared steps.", "house rule: steps are declared once", step_order),
    Rule("mutates", "Tag exactly the cells with run.change.", "house rule: a reader sees what writes", mutates),
)
