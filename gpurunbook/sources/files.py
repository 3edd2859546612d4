"""Files that the user names."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from gpurunbook.errors import InputError
from gpurunbook.plan import Document, Folder, Observed, Problem


def read(path: str, limit: int = 1 << 30) -> bytes:
    """Writes nothing. The bytes of one file or pipe, `-` for standard input; a file in one piece, never copied.

    Raises InputError (`unreadable`) when it cannot be opened or is longer than limit bytes; then no more than that
    is read, also of what has no end.
    """
    try:
        if path == "-":
            data = b"" if sys.stdin is None else sys.stdin.buffer.read(limit + 1)
        else:
            with open(path, "rb", buffering=0) as file:  # noqa: PTH123  pathlib costs a tenth of the whole audit
                state = os.fstat(file.fileno())
                if state.st_size > limit:
                    data = None
                elif stat.S_ISREG(state.st_mode):
                    data = file.readall()
                else:
                    with io.BufferedReader(file) as pipe:
                        data = pipe.read(limit + 1)
    except (OSError, ValueError) as wrong:
        why = getattr(wrong, "strerror", None) or str(wrong)
        raise InputError(f"cannot be read: {why}", subject=path, code="unreadable") from None
    if data is None or len(data) > limit:
        raise InputError(f"is larger than {limit} bytes", subject=path, code="unreadable")
    return data


def folder(path: str, files: int, limit: int) -> Iterator[tuple[str, bytes | Problem]]:
    """Writes nothing. Every file of a folder and below, hidden ones too, one after another: its path in it, its bytes.

    What is no regular file, a symbolic link among them, and what cannot be read has a Problem for its bytes. Raises
    InputError (`unreadable`) for what is no folder, and at the file with which there are more than `files` files or
    `limit` bytes.
    """
    left = limit
    for count, (name, full) in enumerate(_inside(path)):
        if count >= files:
            raise InputError(f"holds more than {files} files", subject=path, code="unreadable")
        try:
            content = full if isinstance(full, Problem) else _regular(full, left)
        except OSError as wrong:
            content = Problem("unreadable", f"cannot be read: {wrong.strerror}")
        left -= len(content) if isinstance(content, bytes) else 0
        if left < 0:
            raise InputError(f"holds more than {limit} bytes", subject=path, code="unreadable")
        yield name, content


def _inside(top: str) -> Iterator[tuple[str, str | Problem]]:
    """Each path below a folder with where it stands; a folder that cannot be entered is a problem."""
    if not os.path.isdir(top):  # noqa: PTH112 (a NUL in the name is no crash here)
        raise InputError("is not a folder", subject=top, code="unreadable")
    refused: list[OSError] = []
    for place, folders, names in os.walk(top, onerror=refused.append):
        folders.sort()
        # pathlib raises for a path that is too long.
        links = [name for name in folders if os.path.islink(Path(place, name))]  # noqa: PTH114
        for name in sorted([*names, *links]):
            full = str(Path(place, name))
            # A name of other bytes than UTF-8 could stand in no JSON.
            yield os.fsencode(os.path.relpath(full, top)).decode(errors="backslashreplace"), full
    for wrong in refused:
        name = os.path.relpath(str(wrong.filename), top)
        yield name, Problem("unreadable", f"the folder cannot be read: {wrong.strerror}")


def _regular(path: str, limit: int) -> bytes | Problem:
    """At most `limit` + 1 bytes of a file that is no link, pipe or device."""
    if os.path.islink(path):  # noqa: PTH114
        return Problem("unreadable", "a symbolic link")
    with regular(path) as file:
        return Problem("unreadable", "not a regular file") if file is None else file.read(limit + 1)


@contextlib.contextmanager
def regular(path: str | Path, *, follow: bool = False) -> Iterator[BinaryIO | None]:
    """Writes nothing. The opened file, or None for a pipe or a device.

    follow: whether the path may be a symbolic link. Raises OSError, and ValueError for a NUL in the name.
    """
    # O_NONBLOCK: opening a pipe that nobody writes to would wait for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    try:
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield file if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    finally:
        os.close(descriptor)


def special(path: Path) -> bool:
    """Writes nothing. Whether there is a device, a pipe or a socket, perhaps behind a link."""
    return path.exists() and not path.is_file() and not path.is_dir()


def write(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Replaces one file atomically: the old content or the new, never a part. Raises OSError.

    A device or a pipe is written to and stays what it is: root could replace /dev/null by a file.
    """
    if special(path):
        with path.open("wb") as there:
            there.write(data)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def observe(need: Document | Folder) -> Observed:
    """Writes nothing. The bytes of a document or of a folder's files, or the problem that hid them."""
    try:
        if isinstance(need, Folder):
            return Observed(need, dict(folder(need.path, need.files, need.limit)))
        return Observed(need, read(need.path, need.limit))
    except InputError as wrong:
        return Observed(need, problem=Problem(wrong.code, wrong.message))
