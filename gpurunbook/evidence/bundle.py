"""The files of a run folder as a bundle: which belong to it, read without following links, and replaced as one."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpurunbook.errors import EvidenceError, InputError
from gpurunbook.sources.files import regular

FORMAT = "gpurunbook.manifest/v1"
MANIFEST = "manifest.json"
SSH, COSIGN = ".sig", ".sigstore.json"  # a signature is named after what it signs, with one of these
SIGNATURE, COSIGNED = MANIFEST + SSH, MANIFEST + COSIGN
VERDICT = "verdict.json"
FINDINGS = "findings.json"
WITHHELD = "withheld"

# Written before the seal as locks, or after it: an approval of a sealed dry run carries its own signature.
_APPROVAL = {f"approval.json{end}" for end in ("", SSH, COSIGN)}
OUTSIDE = frozenset({MANIFEST, SIGNATURE, COSIGNED, "lock", "driver.lock", *_APPROVAL})
_CHECKPOINTS = ".ipynb_checkpoints"  # JupyterLab's copies of what was saved before
_PART = re.compile(r"\..+\.[0-9a-f]{8}\.part")

FILES = 100_000
CHUNK = 16 << 20
_OVERLAP = 64 << 10


@dataclass(frozen=True)
class Folder:
    """What lies in a folder. files: of the bundle; outside: other files; odd: links, pipes and what cannot be read.

    Names are relative, with `/`; bytes that are no UTF-8 are spelled as escapes.
    """

    files: Mapping[str, Path]
    outside: Mapping[str, Path]
    odd: Mapping[str, str]


def walk(root: Path) -> Folder:
    """Writes nothing. Follows no link, so that nothing outside of `root` is ever read.

    Raises InputError for a folder that cannot be listed or holds more than 100 000 files.
    """
    files: dict[str, Path] = {}
    outside: dict[str, Path] = {}
    odd: dict[str, str] = {}
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as wrong:
            raise InputError(f"the folder cannot be listed: {wrong.strerror}", subject=str(folder)) from None
        for entry in entries:
            path = Path(entry.path)
            name = os.fsencode(path.relative_to(root).as_posix()).decode("utf-8", "backslashreplace")
            if entry.is_dir(follow_symlinks=False):
                waiting.append(path)
            elif not entry.is_file(follow_symlinks=False):
                odd[name] = "a symbolic link" if entry.is_symlink() else "no regular file"
            elif name in OUTSIDE or _CHECKPOINTS in path.relative_to(root).parts[:-1]:
                outside[name] = path
            else:
                files[name] = path
        if len(files) > FILES:
            raise InputError(f"more than {FILES} files", subject=str(root))
    return Folder(dict(sorted(files.items())), outside, odd)


def chunks(path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Writes nothing. The file's bytes in pieces of 16 MB, each with the end of the piece before it.

    Raises InputError when it is not a regular file any more or cannot be read.
    """
    try:
        with regular(path) as file:
            if file is None:
                raise InputError("no regular file", subject=path.name)
            before = b""
            while piece := file.read(CHUNK):
                yield before, piece
                before = piece[-_OVERLAP:]
    except OSError as wrong:
        raise InputError(f"cannot be read: {wrong.strerror}", subject=path.name) from None
    except InputError:
        raise
    except ValueError:  # a NUL or a lone surrogate
        raise InputError("no file can have this name", subject=path.name) from None


def read(path: Path, limit: int) -> bytes:
    """Writes nothing. A whole file of at most `limit` bytes. Raises InputError."""
    whole = b""
    for _, piece in chunks(path):
        whole += piece
        if len(whole) > limit:
            raise InputError(f"is longer than {limit} bytes", subject=path.name)
    return whole


def file_digest(path: Path) -> str:
    """Writes nothing. `sha256:…` of a file of any size. Raises InputError."""
    total = hashlib.sha256()
    for _, piece in chunks(path):
        total.update(piece)
    return "sha256:" + total.hexdigest()


def dump(value: Any) -> bytes:
    """Writes nothing. JSON as it stands in a bundle: keys sorted, one a line; NaN and infinities raise ValueError."""
    return json.dumps(value, sort_keys=True, indent=1, allow_nan=False).encode() + b"\n"


def sweep(root: Path) -> None:
    """Removes what a writer left half-done when it was killed: `.NAME.xxxxxxxx.part`."""
    for path in root.glob(".*.part"):
        if _PART.fullmatch(path.name):
            path.unlink(missing_ok=True)


def replace(root: Path, files: Mapping[str, bytes], *, remove: Iterable[str] = (), mode: int = 0o644) -> None:
    """Replaces the files as one, in the order given: all are on the disk before the first takes its place.

    The manifest should be the last of them: the old one goes first, so that a crash leaves an unsealed folder, not
    a false one. A file whose content stays is not touched. Raises EvidenceError when there is no room; then
    everything is as it was.
    """
    changed = {name: data for name, data in files.items() if not _holds(root / name, data)}
    if changed:  # the old manifest goes, so the new one is written even when it is the same
        changed = {name: data for name, data in files.items() if name in changed or name == MANIFEST}
    staged: dict[str, Path] = {}
    try:
        for name, data in changed.items():
            staged[name] = root / f".{name}.{secrets.token_hex(4)}.part"
            _stage(staged[name], data, mode)
        if changed:
            (root / MANIFEST).unlink(missing_ok=True)
        for name in remove:
            (root / name).unlink(missing_ok=True)
        for name, part in staged.items():
            part.replace(root / name)
        _sync(root)
    except OSError as wrong:
        raise EvidenceError(
            f"the evidence cannot be written: {wrong.strerror}; no file was left half-written",
            subject=str(root),
            remedy="Make room on the disk, then seal again.",
        ) from None
    finally:
        for part in staged.values():
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)


def _holds(path: Path, data: bytes) -> bool:
    try:
        return read(path, len(data)) == data
    except InputError:
        return False


def _stage(part: Path, data: bytes, mode: int) -> None:
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(root: Path) -> None:
    handle = os.open(root, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
