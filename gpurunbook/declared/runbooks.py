"""The declared runbooks: which there are, and each by its name."""

from __future__ import annotations

import importlib
import pkgutil
import re

import msgspec

from gpurunbook import declared as room
from gpurunbook.declared.book import Runbook
from gpurunbook.errors import ParameterError

_SHARED = frozenset({"book", "common", "runbooks"})
"""Modules of this room that declare no runbook."""


def names() -> list[str]:
    """Writes nothing. The names of all declared runbooks, sorted."""
    return sorted(m.name for m in pkgutil.iter_modules(room.__path__) if m.name not in _SHARED)


def declared(name: str) -> Runbook:
    """Writes nothing. The declaration of one runbook.

    Raises ParameterError, with the nearest names, when there is none.
    """
    import difflib

    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name not in names():
        near = difflib.get_close_matches(name, names(), n=1)
        stem = name.rpartition("/")[2].removesuffix(".ipynb")
        near = [stem] if stem in names() else near
        hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(names())}."
        raise ParameterError("no such runbook", subject=repr(name), remedy=hint)
    book: Runbook = importlib.import_module(f"{room.__name__}.{name}").RUNBOOK
    return book


def defaults(book: Runbook) -> dict[str, object]:
    """Writes nothing. Parameter name → default, in declared order."""
    return msgspec.structs.asdict(book.parameters())
