"""Where a run can be disturbed: every request that an undisturbed run has sent, and every record of its journal."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_PASSING = frozenset({"continue", "resourceVersion", "timeoutSeconds"})


@dataclass(frozen=True)
class Request:
    """The nth request of its kind. persisted: whether it has changed the cluster."""

    method: str
    path: str
    query: str
    nth: int
    persisted: bool

    @property
    def label(self) -> str:
        """For messages."""
        return f"{self.method} {self.path.rsplit('/', 1)[-1]} #{self.nth}"

    @property
    def changes(self) -> bool:
        """Whether it is one that changes the cluster, or would without the dry run."""
        return self.persisted or "dryRun=" in self.query

    @property
    def followed(self) -> bool:
        """Of a wait, which follows in threads: whether and when it comes differs from one run to the next."""
        return "watch=" in self.query or "metadata.name%3D" in self.query

    def fault(self, action: dict[str, Any]) -> list[dict[str, Any]]:
        """What arms the server: this request of the operator meets the action."""
        match = {"method": self.method, "path": re.escape(self.path), "query": self.query, "user": "oncall"}
        return [{"match": match, "action": action, "nth": self.nth}]


def requests(log: Iterable[dict[str, Any]]) -> list[Request]:
    """The requests of a log in order."""
    seen: Counter[tuple[str, str, str]] = Counter()
    found = []
    for entry in log:
        kind = (entry["method"], entry["path"], _pattern(entry["query"]))
        seen[kind] += 1
        found.append(Request(*kind, seen[kind], entry["persisted"]))
    return found


def _pattern(query: str) -> str:
    """A regular expression for the query, whatever the passing parts of it are."""
    parts = []
    for part in query.split("&") if query else ():
        name = part.partition("=")[0]
        parts.append(f"{name}=[^&]*" if name in _PASSING else re.escape(part))
    return "&".join(parts) or "^$"
