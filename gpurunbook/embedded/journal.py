"""The request log: one JSON line per request, kept in the state folder."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import msgspec


class RequestLog:
    """Appends to requests.jsonl and hands out request numbers, which go on after a restart."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._n = max((entry["n"] for entry in self.read(0)), default=0)

    def number(self) -> int:
        """The number of the next request."""
        with self._lock:
            self._n += 1
            return self._n

    def append(self, entry: dict[str, Any]) -> None:
        """One line, written before the answer leaves, so that whoever has the answer finds it here."""
        line = msgspec.json.encode(entry) + b"\n"
        with self._lock:
            if self._fd >= 0:
                os.write(self._fd, line)

    def read(self, since: int) -> list[Any]:
        """The entries with a number above `since`, in the order of their numbers."""
        lines = self._path.read_bytes().split(b"\n")[:-1]
        entries = [msgspec.json.decode(line) for line in lines if line.endswith(b"}")]
        return sorted((entry for entry in entries if entry["n"] > since), key=lambda entry: entry["n"])

    def close(self) -> None:
        """End it."""
        with self._lock:
            os.close(self._fd)
            self._fd = -1
