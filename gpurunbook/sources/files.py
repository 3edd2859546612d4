"""Files that the user names."""

from __future__ import annotations

import sys

from gpurunbook.errors import InputError
from gpurunbook.plan import Document, Observed, Problem


def read(path: str, limit: int = 1 << 30) -> bytes:
    """Writes nothing. The bytes of one file or pipe, `-` for standard input; read in one piece, never copied.

    Raises InputError (`unreadable`) when it cannot be opened or is longer than limit bytes.
    """
    try:
        if path == "-":
            data = sys.stdin.buffer.read()
        else:
            with open(path, "rb", buffering=0) as file:  # noqa: PTH123  pathlib costs a tenth of the whole audit
                data = file.readall()
    except (OSError, ValueError) as wrong:
        why = getattr(wrong, "strerror", None) or str(wrong)
        raise InputError(f"cannot be read: {why}", subject=path, code="unreadable") from None
    if len(data) > limit:
        raise InputError(f"is larger than {limit} bytes", subject=path, code="unreadable")
    return data


def observe(need: Document) -> Observed:
    """Writes nothing. The bytes of a document, or the problem that hid them."""
    try:
        return Observed(need, read(need.path, need.limit))
    except InputError as wrong:
        return Observed(need, problem=Problem(wrong.code, wrong.message))
