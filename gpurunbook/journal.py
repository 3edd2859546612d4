"""The journal of one run: hash-chained JSON Lines, appended under a lock and fsynced.

A record is `{"seq", "time", "event", "data", "prev", "hash"}`; `hash` covers the canonical record without
itself, `prev` is the hash before. The head is the last hash. Events and their data: docs/architecture.md.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpurunbook.digests import digest as digest
from gpurunbook.errors import JournalError, Raced
from gpurunbook.findings import Verdict

LEASE = "lease"
"""Step under which the run's Lease is taken and given back: that keeps others out, and changes no target."""

JOURNAL = "journal.jsonl"
"""Its name in a run folder."""

ZERO = "sha256:" + "0" * 64
"""The head of an empty journal."""

Record = dict[str, Any]


def canonical(value: Any) -> bytes:
    """Writes nothing. JSON with sorted keys and no blanks; NaN and infinities raise ValueError."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def timestamp(now: datetime) -> str:
    """Writes nothing. RFC 3339 in UTC with microseconds and `Z`."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _sealed(record: Record) -> str:
    return digest(canonical({key: value for key, value in record.items() if key != "hash"}))


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if len(set(keys)) != len(keys):
        raise ValueError("the same key twice")
    return dict(pairs)


def parse(raw: bytes, name: str = JOURNAL) -> list[Record]:
    """Writes nothing. All records of a journal's bytes, the chain checked.

    Raises JournalError that names the first line that is cut, is no canonical record, or breaks the chain.
    """
    records: list[Record] = []
    head = ZERO
    lines = raw.split(b"\n")
    for number, line in enumerate(lines, 1):
        if number == len(lines):
            if line:
                raise JournalError(
                    "the last line is cut off, as by a crash while it was written",
                    subject=f"{name} line {number}",
                    remedy="Going on with the run takes it off: `gpurunbook run RUNBOOK --run-id RUN`; then seal.",
                    code="journal-cut",
                )
            break
        try:
            record = json.loads(line, object_pairs_hook=_unique, parse_constant=_no_number)
        except (ValueError, RecursionError) as wrong:
            raise JournalError(f"not a JSON record: {wrong}", subject=f"{name} line {number}") from None
        wanted = {"seq", "time", "event", "data", "prev", "hash"}
        if not isinstance(record, dict) or set(record) != wanted or not isinstance(record["data"], dict):
            raise JournalError("not a record of a journal", subject=f"{name} line {number}")
        if record["seq"] != len(records) or record["prev"] != head or record["hash"] != _sealed(record):
            raise JournalError("the hash chain is broken here", subject=f"{name} line {number}", code="journal-broken")
        if canonical(record) != line:
            raise JournalError("the line is not in canonical form", subject=f"{name} line {number}")
        head = record["hash"]
        records.append(record)
    return records


def read(path: Path, *, cut: bool = False) -> list[Record]:
    """Writes nothing. The records of the file at `path`; a missing file is an empty journal.

    A last line that is cut is read again once nobody appends: another process may be in the middle of it. cut: leave
    one out that a crash has cut off, as going on with the run does.
    """
    _no_link(path)
    try:
        raw = path.read_bytes()
        if raw and not raw.endswith(b"\n"):
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH)
                raw = file.read()
    except FileNotFoundError:
        return []
    except OSError as wrong:
        raise JournalError(f"cannot be read: {wrong.strerror}", subject=str(path)) from None
    return parse(raw[: raw.rfind(b"\n") + 1] if cut else raw, path.name)


def _no_link(path: Path) -> None:
    if path.is_symlink():
        raise JournalError(
            "is a symbolic link: what is behind it is not this run's alone, and no seal takes it",
            subject=str(path),
            remedy="Put the file itself there.",
        )


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Holds an exclusive lock on the file at `path`, made when missing. Blocks until it is free.

    Raises JournalError when it cannot be opened for writing.
    """
    _no_link(path)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as wrong:
        raise JournalError(
            f"cannot be opened for writing: {wrong.strerror}; nothing was changed",
            subject=str(path),
            remedy="Put the run folder back, or make it writable.",
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


class Journal:
    """One run's journal. Reading checks the chain; appending compares the head first."""

    def __init__(self, path: Path, clock: Callable[[], datetime]) -> None:
        self.path = path
        self._clock = clock
        self._records = read(path)

    @classmethod
    def open(cls, path: Path, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Journal:
        """Reads what is there. Writes nothing, but takes a last line off the file that a crash has cut."""
        try:
            return cls(path, clock)
        except JournalError as wrong:
            if wrong.code != "journal-cut":
                raise
        _drop_cut_line(path)
        return cls(path, clock)

    @property
    def records(self) -> list[Record]:
        """Writes nothing. The records read or written so far."""
        return self._records

    @property
    def head(self) -> str:
        """Writes nothing. The last hash, or 64 zeros."""
        return str(self._records[-1]["hash"]) if self._records else ZERO

    def refresh(self) -> None:
        """Writes nothing. Reads again what other processes may have appended. Raises JournalError as `read`, and when
        what this process knows is not there any more."""
        self._take(read(self.path))

    def _take(self, found: list[Record]) -> None:
        known = len(self._records)
        if known and (len(found) < known or found[known - 1]["hash"] != self.head):
            raise JournalError(
                f"it had {known} lines that are not there any more: it was deleted, cut or put back",
                subject=str(self.path),
                remedy="What this run did cannot be told any more. Look at its targets, and begin a new run.",
                code="journal-broken",
            )
        self._records = found

    def append(self, event: str, data: Mapping[str, Any], expect: str | None = None) -> Record:
        """Appends one record and fsyncs it.

        expect: the head that the caller judged by; by default the head that this object last saw. Raises Raced
        when the file's head is another one, JournalError when it cannot be written; then nothing was appended.
        """
        with locked(self.path) as descriptor:
            raw = _whole(descriptor)
            on_disk = parse(raw, self.path.name)
            head = on_disk[-1]["hash"] if on_disk else ZERO
            if head != (expect or self.head):
                self._take(on_disk)
                raise Raced(
                    f"another process wrote to the journal: its head is {head[:19]}…, known was {self.head[:19]}…",
                    subject=str(self.path),
                    remedy="Run the cell again; it judges afresh.",
                )
            record: Record = {
                "seq": len(on_disk),
                "time": timestamp(self._clock()),
                "event": event,
                "data": json.loads(canonical(dict(data))),
                "prev": head,
            }
            record["hash"] = _sealed(record)
            _write_line(descriptor, len(raw), canonical(record) + b"\n", self.path)
            _sync_folder(self.path)
            self._records = [*on_disk, record]
            return record


def _sync_folder(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _whole(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, size, 0) if size else b""


def _write_line(descriptor: int, offset: int, line: bytes, path: Path) -> None:
    try:
        written = 0
        while written < len(line):
            written += os.pwrite(descriptor, line[written:], offset + written)
        os.fsync(descriptor)
    except OSError as wrong:
        os.ftruncate(descriptor, offset)
        raise JournalError(
            f"cannot be extended: {wrong.strerror}; nothing was changed",
            subject=str(path),
            remedy="Make room on the disk.",
        ) from None


def _drop_cut_line(path: Path) -> None:
    with locked(path) as descriptor:
        raw = _whole(descriptor)
        os.ftruncate(descriptor, raw.rfind(b"\n") + 1)
        os.fsync(descriptor)


_BINDING = frozenset({"authorised", "intent"})


@dataclass
class State:
    """What a journal says of its run. judged: the record of each of the steps; closing: the last close or died that no
    reopen took back; bound: whether a step ever passed, or something was authorised or announced, by the parameters of
    its start."""

    run: str = ""
    runbook: str = ""
    start: Record = field(default_factory=dict)
    steps: dict[str, Record] = field(default_factory=dict)
    judged: dict[str, Record] = field(default_factory=dict)
    open_step: str = ""
    closing: Record | None = None
    bound: bool = False
    begun: set[tuple[str, str]] = field(default_factory=set)
    clusters: list[Record] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict:
        """Writes nothing. Of the closing record; a run without one, or that died, is unknown."""
        if self.closing is None or self.closing["event"] == "died":
            return Verdict.UNKNOWN
        return Verdict(self.closing["data"]["verdict"])

    @property
    def changed(self) -> bool:
        """Writes nothing. Whether a mutation of a target was announced and not surely refused: from then on a stop
        is a failure."""
        return bool(self.begun)

    def passed(self, step: str) -> bool:
        """Writes nothing. Whether the last judgement of the step let the run go on."""
        return bool(self.steps.get(step, {}).get("passed"))


def replay(records: Iterable[Record]) -> State:
    """Writes nothing. The state that the records lead to; the last judgement of a step counts.

    A second `start` has other parameters: it counts, and nothing before it, unless the run was bound by then.
    """
    state = State()
    for record in records:
        data = record["data"]
        state.bound = state.bound or record["event"] in _BINDING or data.get("passed") is True
        match record["event"]:
            case "start" if not state.bound:
                state = State(data["run"], data["runbook"], data)
            case "cluster":
                state.start = {**state.start, **data}
                state.clusters.append(data)
            case "step":
                state.open_step = data["step"]
            case "judged":
                state.steps[data["step"]] = data
                state.judged[data["step"]] = record
                state.open_step = ""
            case "intent" if data.get("step") != LEASE:
                state.begun.add((str(data.get("step")), str(data.get("name"))))
            case "result" if data.get("how") == "refused":
                state.begun.discard((str(data["step"]), str(data["name"])))
            case "reopen":
                state.closing = None
            case "close" | "died":
                state.closing = record
                state.open_step = "" if record["event"] == "close" else state.open_step
    return state
