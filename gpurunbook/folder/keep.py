"""Files of a run folder: whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpurunbook.errors import RunbookError, RunInUse
from gpurunbook.journal import timestamp
from gpurunbook.sources.files import write as write


def kept(path: Path, data: bytes) -> None:
    """Replaces one file of a run or of the user's, as `write`. Raises RunbookError `not-kept` that says what to do."""
    try:
        write(path, data)
    except OSError as wrong:
        raise RunbookError(
            f"cannot be kept: {wrong.strerror}",
            subject=str(path),
            remedy="Make room on the disk, or make the folder writable.",
            code="not-kept",
        ) from None


_HELD: dict[Path, int] = {}
"""Locks of this process by path: a second open of the same file would lock out its own process."""


def hold(path: Path) -> None:
    """Takes the lock at `path` for the life of this process.

    Raises RunInUse that names who has it, RunbookError `not-kept` where no lock can be made.
    """
    path = path.resolve()
    if path in _HELD:
        return
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as wrong:
        raise _unlocked(path, wrong) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise RunInUse(
            f"another process works on this run: {holder(path) or 'unknown process'}",
            subject=str(path.parent.name),
            remedy="Close that notebook or kernel first, or start a run of its own with `gpurunbook new`.",
        ) from None
    except OSError as wrong:
        os.close(descriptor)
        raise _unlocked(path, wrong) from None
    _HELD[path] = descriptor
    who = {"pid": os.getpid(), "host": socket.gethostname(), "since": timestamp(datetime.now(UTC))}
    with contextlib.suppress(OSError):  # on a full disk the lock holds all the same, without a name in it
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(who, sort_keys=True).encode(), 0)


def release(path: Path) -> None:
    """Gives the lock at `path` back, when this process has it."""
    descriptor = _HELD.pop(path.resolve(), None)
    if descriptor is not None:
        os.close(descriptor)


def _unlocked(path: Path, wrong: OSError) -> RunbookError:
    return RunbookError(
        f"cannot be locked: {wrong.strerror}",
        subject=str(path),
        remedy="Make the run folder writable, and put it on a disk that has locks.",
        code="not-kept",
    )


def holder(path: Path) -> str:
    """Writes nothing. Who wrote its name into the lock at `path`; "" where that cannot be read."""
    try:
        who: dict[str, Any] = json.loads(path.read_bytes()[:4096])
        return f"process {who['pid']} on {who['host']} since {who['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
