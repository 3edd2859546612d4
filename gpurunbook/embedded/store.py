"""The objects, in memory, with one counter of resource versions, the recent past, and a log on disk.

Every object is kept as the bytes that are served (JSON without kind and apiVersion), so that listing costs a
join and nobody can change a stored object by accident. State on disk is the seed plus this log: opening the
same log again gives the same objects, versions and recent past.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from gpurunbook.embedded.status import Obj, expired

Table = tuple[str, str]
Name = tuple[str, str]

_SELECTABLE = {
    ("", "pods"): "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork "
    "status.phase status.podIP status.nominatedNodeName",
    ("", "nodes"): "spec.unschedulable",
    ("", "namespaces"): "status.phase",
    ("", "secrets"): "type",
    ("", "events"): "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid "
    "involvedObject.apiVersion reason reportingComponent source type",
    ("apps", "replicasets"): "status.replicas",
    ("batch", "jobs"): "status.successful",
    ("resource.k8s.io", "resourceslices"): "spec.nodeName spec.driver",
}
_DEFAULTS = {"spec.unschedulable": "false", "spec.hostNetwork": "false"}


def selectable(table: Table) -> frozenset[str]:
    """The fields that a field selector may name."""
    return frozenset(["metadata.name", "metadata.namespace", *_SELECTABLE.get(table, "").split()])


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def selected_fields(table: Table, name: Name, obj: Obj) -> dict[str, str]:
    """The values of the selectable fields of an object."""
    found = {"metadata.namespace": name[0], "metadata.name": name[1]}
    for path in _SELECTABLE.get(table, "").split():
        value: Any = obj
        for part in path.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        found[path] = _DEFAULTS.get(path, "") if value is None else _text(value)
    return found


@dataclass(frozen=True, slots=True)
class Entry:
    """One version of one object."""

    name: Name
    rv: int
    raw: bytes
    labels: dict[str, str]
    fields: dict[str, str]

    def object(self) -> Obj:
        """A fresh copy."""
        decoded: Obj = msgspec.json.decode(self.raw)
        return decoded


@dataclass(frozen=True, slots=True)
class Event:
    """One write. `entry` is the object after it (or as it was deleted), `prev` before."""

    rv: int
    table: Table
    deleted: bool
    entry: Entry
    prev: Entry | None


@dataclass
class _Rows:
    entries: dict[Name, Entry] = field(default_factory=dict)
    order: list[Name] = field(default_factory=list)


class Store:
    """Objects by table and name. Callers hold `lock` around a read that a write depends on."""

    def __init__(self, history: int = 20000) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.rv = 1000
        self.compacted = 0
        self.closed = False
        self._rows: dict[Table, _Rows] = {}
        self._events: deque[Event] = deque()
        self._history = history
        self._log = -1

    def open_log(self, path: Path) -> None:
        """Replay the log, drop a last line that was cut off, and append to it from now on."""
        whole = 0
        with self.lock:
            if path.exists():
                for line in path.read_bytes().splitlines(keepends=True):
                    if not line.endswith(b"\n"):
                        break
                    whole += len(line)
                    rv, table, name, obj = msgspec.json.decode(line)
                    self.rv = rv - 1
                    self.write((table[0], table[1]), (name[0], name[1]), obj)
            self._log = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
            os.ftruncate(self._log, whole)
            os.lseek(self._log, 0, os.SEEK_END)

    def close(self) -> None:
        """End all watches and close the log."""
        with self.changed:
            self.closed = True
            if self._log >= 0:
                os.fsync(self._log)
                os.close(self._log)
                self._log = -1
            self.changed.notify_all()

    def load(self, table: Table, name: Name, raw: bytes, labels: dict[str, str], fields: dict[str, str]) -> None:
        """Place bytes that carry `self.rv + 1` as resourceVersion; no event. For seeding only."""
        self.rv += 1
        self._put(table, Entry(name, self.rv, raw, labels, fields))

    def _put(self, table: Table, entry: Entry) -> None:
        rows = self._rows.setdefault(table, _Rows())
        if entry.name not in rows.entries:
            if not rows.order or rows.order[-1] < entry.name:
                rows.order.append(entry.name)
            else:
                insort(rows.order, entry.name)
        rows.entries[entry.name] = entry

    def get(self, table: Table, name: Name) -> Entry | None:
        """The object as it is now."""
        rows = self._rows.get(table)
        return rows.entries.get(name) if rows else None

    def all(self, table: Table, namespace: str = "") -> list[Entry]:
        """The objects as they are now, in order."""
        with self.lock:
            return list(self.page(table, namespace, self.rv))

    def write(self, table: Table, name: Name, obj: Obj | None) -> Entry:
        """Put the object, or delete it with None; sets its resourceVersion, logs, and wakes the watches."""
        with self.changed:
            prev = self.get(table, name)
            self.rv += 1
            stored = obj if obj is not None else (prev.object() if prev else {"metadata": {}})
            stored["metadata"]["resourceVersion"] = str(self.rv)
            labels = stored["metadata"].get("labels") or {}
            fields = selected_fields(table, name, stored)
            entry = Entry(name, self.rv, msgspec.json.encode(stored), labels, fields)
            if obj is not None:
                self._put(table, entry)
            elif prev:
                rows = self._rows[table]
                del rows.entries[name]
                rows.order.pop(bisect_left(rows.order, name))
            if self._log >= 0:
                written = obj if obj is None else msgspec.Raw(entry.raw)
                os.write(self._log, msgspec.json.encode((self.rv, table, name, written)) + b"\n")
            self._events.append(Event(self.rv, table, obj is None, entry, prev))
            while len(self._events) > self._history:
                self.compacted = self._events.popleft().rv
            self.changed.notify_all()
            return entry

    def compact(self) -> None:
        """Forget the past: older continue tokens and watch positions are expired from now on."""
        with self.changed:
            self._events.clear()
            self.compacted = self.rv
            self.changed.notify_all()

    def since(self, rv: int, table: Table) -> list[Event]:
        """What happened to the table after `rv`. 410 when that is no longer known."""
        if rv < self.compacted:
            raise expired(f"too old resource version: {rv} ({self.compacted})")
        newer = []
        for event in reversed(self._events):
            if event.rv <= rv:
                break
            if event.table == table:
                newer.append(event)
        return newer[::-1]

    def page(self, table: Table, namespace: str, rv: int, start: Name | None = None) -> Iterator[Entry]:
        """The objects as they were at `rv`, from `start` on. Hold the lock while iterating."""
        rows = self._rows.get(table) or _Rows()
        entries, order = rows.entries, rows.order
        undo = self.since(rv, table) if rv < self.rv else []
        if undo:
            entries = dict(entries)
            for event in reversed(undo):
                if event.prev is None:
                    entries.pop(event.entry.name, None)
                else:
                    entries[event.entry.name] = event.prev
            order = sorted(entries)
        first = start if start is not None else (namespace, "")
        for at in range(bisect_left(order, first), len(order)):
            if namespace and order[at][0] != namespace:
                return
            yield entries[order[at]]

    def count(self, table: Table, namespace: str, start: Name) -> int:
        """How many objects there are now from `start` on."""
        order = (self._rows.get(table) or _Rows()).order
        end = bisect_left(order, (namespace + "\0", "")) if namespace else len(order)
        return max(0, end - bisect_left(order, start))
