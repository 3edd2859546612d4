"""The three standard streams of a command: an answer that is not written in full is no answer."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any

from gpurunbook.errors import RunbookError


class _Answer(io.BufferedWriter):
    """Standard output. Raises RunbookError when it cannot be written; BrokenPipeError, when nobody reads it, stays."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as wrong:
            raise _lost(wrong) from None

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as wrong:
            raise _lost(wrong) from None


class _Words(io.FileIO):
    """Standard error. What cannot be written there is left out: the answer stands without it."""

    def write(self, data: Any) -> int:
        try:
            written = super().write(data)
        except OSError:
            return len(data)
        return len(data) if written is None else written  # None: it would block, and may not


def _lost(wrong: OSError) -> OSError | RunbookError:
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(nowhere, 1)  # else Python tries once more at its end, and ends with 120
    os.close(nowhere)
    if wrong.errno == errno.EPIPE:
        return wrong
    return RunbookError(
        f"the answer cannot be written: {wrong.strerror}",
        subject="standard output",
        remedy="Make room where it goes, then give the command again.",
        code="unwritten",
    )


def prepare() -> None:
    """Replaces the standard streams of this process by those above. Raises RunbookError when output is closed.

    With PYTHONUNBUFFERED, common in containers, Python's own write what the first call takes and drop the rest.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free number: else the next file that is opened, a journal even, would be taken for the stream.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdout is None:
        raise RunbookError(
            "it is closed, so the answer has nowhere to go",
            subject="standard output",
            remedy="Send it to a file, or to /dev/null where only the exit code counts.",
            code="unwritten",
        )
    if _own(sys.stdout, 1):
        sys.stdout = _text(_Answer(io.FileIO(1, "w", closefd=False)), sys.stdout)
    if _own(sys.stderr, 2):
        sys.stderr = _text(io.BufferedWriter(_Words(2, "w", closefd=False)), sys.stderr)


def _own(stream: Any, descriptor: int) -> bool:
    """Whether it is the stream that Python made, and no other that a caller has put there."""
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    return type(raw) is io.FileIO and raw.fileno() == descriptor


def _text(buffer: io.BufferedWriter, like: Any) -> io.TextIOWrapper:
    like.flush()
    return io.TextIOWrapper(
        buffer, encoding=like.encoding, errors=like.errors, line_buffering=like.line_buffering or like.write_through
    )
