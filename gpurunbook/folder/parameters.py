"""Parameters of a run: a closed set of names with exact types, judged before any API call."""

from __future__ import annotations

import ast
import difflib
import json
import shlex
import typing
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from gpurunbook.declared.book import Runbook
from gpurunbook.errors import ParameterError, RunBound
from gpurunbook.journal import State
from gpurunbook.shown.redact import redact
from gpurunbook.supply import times

INJECTED = "# Parameters"
"""First line of the cell that papermill injects (papermill/translators.py)."""

_WRITE = "Write it in the parameters cell, or in a YAML file given with -f; papermill's -p guesses types."


def marker(runbook: str) -> str:
    """Writes nothing. The first line of the parameters cell of a runbook."""
    return f"# parameters of {runbook}"


def assigned(cell: str) -> list[str] | None:
    """Writes nothing. The names that a parameter cell assigns, or None when it holds anything but assignments."""
    try:
        body = ast.parse(cell).body
    except SyntaxError:
        return None
    names: list[str] = []
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
                names.append(name)
            case _:
                return None
    return names


def collect(book: Runbook, cells: Iterable[str], namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Writes nothing. The parameters that the executed cells set, by name.

    cells: sources of the executed cells, oldest first. The last parameters cell and the last cell that papermill
    injected count; of names set by both the namespace holds what is in force. Raises ParameterError when no
    parameters cell was executed.
    """
    own: list[str] | None = None
    injected: list[str] = []
    for cell in cells:
        first = cell.lstrip().split("\n", 1)[0].strip()
        if first == marker(book.name):
            own = _names(cell, "the parameters cell")
        elif first == INJECTED:
            injected = _names(cell, "the injected parameters cell")
    if own is None:
        raise ParameterError(
            "the parameters cell was not run in this kernel",
            subject=book.name,
            remedy=f"Run the cell that begins with {marker(book.name)!r}, then this one.",
        )
    return {name: namespace[name] for name in [*own, *injected] if name in namespace}


def _names(cell: str, what: str) -> list[str]:
    names = assigned(cell)
    if names is None:
        raise ParameterError(
            f"{what} holds something else than NAME = VALUE lines",
            remedy="Keep only assignments in it and run it again.",
        )
    return names


def unknown(book: Runbook, name: str) -> ParameterError:
    """Writes nothing. The refusal of a name that the runbook does not have, with the nearest one that it has."""
    fields = [f.name for f in msgspec.structs.fields(book.parameters)]
    near = difflib.get_close_matches(name, fields, n=1, cutoff=0.6)
    hint = f"Did you mean {near[0]!r}?" if near else f"It has: {', '.join(fields)}."
    return ParameterError(f"{book.name} has no parameter of this name", subject=repr(name), remedy=hint)


def load(book: Runbook, values: Mapping[str, Any]) -> msgspec.Struct:
    """Writes nothing. The parameters as the runbook's struct; absent names take their default.

    Raises ParameterError that names the parameter: an unknown name with the nearest known ones, or a value that is
    not of the exact type with what was probably meant.
    """
    fields = {f.name: f for f in msgspec.structs.fields(book.parameters)}
    for name in values:
        if name not in fields:
            raise unknown(book, name)
    for name, value in values.items():
        kind = fields[name].type
        try:
            _reject_odd(value)
            msgspec.convert(value, kind, strict=True)
        except (msgspec.ValidationError, ValueError) as wrong:
            raise ParameterError(
                f"is {value!r:.80} ({type(value).__name__}), wanted {_spell(kind)}: {wrong}",
                subject=f"parameter {name!r}",
                remedy=_meant(value, kind),
            ) from None
    chosen: msgspec.Struct = msgspec.convert(dict(values), book.parameters, strict=True)
    moment(chosen)
    return chosen


def anew(state: State, values: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Writes nothing. Which of the values the run does not go by: by name what it has, and what is given."""
    has = state.start["parameters"]
    given = {name: redact(value) for name, value in values.items() if name != "run_id"}
    return {name: (has.get(name), value) for name, value in sorted(given.items()) if value != has.get(name)}


def keep_to(book: Runbook, state: State, values: Mapping[str, Any]) -> None:
    """Writes nothing. Raises RunBound, with the command of another run, when something has counted by other parameters
    than the values."""
    changed = anew(state, values) if state.bound else {}
    if changed:
        another = command(book, {**state.start["parameters"], **redact(dict(values))})
        raise RunBound(
            "what has passed in it was judged by its own parameters, which it keeps: "
            + ", ".join(f"{name} was {was!r}, is {now!r}" for name, (was, now) in changed.items()),
            subject=f"run {state.run}",
            remedy=f"A new run takes these: `{another}`.",
        )


def command(book: Runbook, values: Mapping[str, Any]) -> str:
    """Writes nothing. The command that makes a new run with these parameters; what is the default is left out."""
    defaults = msgspec.to_builtins(book.parameters())
    words = ["gpurunbook", "new", book.name]
    for name, value in values.items():
        if name != "run_id" and value != defaults.get(name):
            text = value if isinstance(value, str) else json.dumps(value)
            words += ["--set", f"{name}={text}"]
    return shlex.join(words)


def moment(chosen: msgspec.Struct) -> datetime | None:
    """Writes nothing. The time of parameter `now`, None where it is not set or there is none.

    Raises ParameterError when it is not RFC 3339.
    """
    given = getattr(chosen, "now", "")
    if not given:
        return None
    at = times.instant(given)
    if at is None:
        raise ParameterError(
            f"is {given!r:.80}, wanted RFC 3339 with a T and a zone, 2026-01-31T12:00:00Z", subject="parameter 'now'"
        )
    try:
        return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=at // 1000)
    except OverflowError:
        raise ParameterError(f"is {given!r:.80}, which is no year from 1 to 9999", subject="parameter 'now'") from None


BLANK = "…"
"""Stands in a printed command where a person must write; given as it stands it counts as nothing."""

_ODD = frozenset({"Cc", "Cs", "Zl", "Zp"})  # controls, lone surrogates, ends of lines
_TURNING = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})
_EXACT = 1 << 53


def _reject_odd(value: Any) -> None:
    """Raises ValueError for what no file, terminal or reader of JSON would give back as it was meant."""
    if isinstance(value, str) and not value.isascii():
        for char in value:
            if unicodedata.category(char) in _ODD or unicodedata.bidirectional(char) in _TURNING:
                raise ValueError(f"it holds the control character U+{ord(char):04X}")
    elif isinstance(value, str) and any(ord(c) < 32 or ord(c) == 127 for c in value):
        raise ValueError("it holds a control character")
    if isinstance(value, int) and abs(value) >= _EXACT:
        raise ValueError("whole numbers are exact up to 15 digits only")
    if isinstance(value, list | tuple):
        for item in value:
            _reject_odd(item)


def _base(kind: Any) -> Any:
    return _base(typing.get_args(kind)[0]) if typing.get_origin(kind) is typing.Annotated else kind


def _spell(kind: Any) -> str:
    kind = _base(kind)
    words = {bool: "True or False", str: "text in quotes", int: "a whole number", float: "a number"}
    if typing.get_origin(kind) is list:
        return "a list of " + _spell(typing.get_args(kind)[0])
    if typing.get_origin(kind) is typing.Literal:
        return "one of " + ", ".join(map(repr, typing.get_args(kind)))
    return words.get(kind, str(kind))


def _meant(value: Any, kind: Any) -> str:
    kind = _base(kind)
    if kind is bool and isinstance(value, str):
        low = value.strip().lower()
        if low in {"false", "no", "off", "0", "n"}:
            return f"Was False meant? The text {value!r} would count as true. {_WRITE}"
        if low in {"true", "yes", "on", "1", "y"}:
            return f"Was True meant? {_WRITE}"
    if kind is str and isinstance(value, bool):
        return f"Was the text meant? Put quotes around it: YAML reads on, off, yes and no as {value}."
    if kind is str and isinstance(value, int | float):
        lost = "1.10 becomes 1.1" if isinstance(value, float) else "012 becomes 12 or 10"
        return f"Put quotes around it: unquoted, it was read as the number {value!r}, and {lost}. {_WRITE}"
    if typing.get_origin(kind) is list and isinstance(value, str):
        return f"A list of one was meant? Write [{value!r}]. {_WRITE}"
    return _WRITE
