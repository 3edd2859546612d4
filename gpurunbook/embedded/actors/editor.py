"""Somebody who edits an object at the worst moment: after it was read. Only of an embedded server: it keeps a log."""

from __future__ import annotations

import re
import time
from typing import Any

import msgspec

from gpurunbook.embedded.actors.client import MERGE_PATCH, Client

_PAUSE = 0.05


class Editor(msgspec.Struct, forbid_unknown_fields=True):
    """Patches the object at `path` once a GET of a path that matches `after` (a regular expression) was answered."""

    path: str
    merge: dict[str, Any]
    after: str

    def act(self, client: Client) -> None:
        """Wait, and patch."""
        since = 0
        while True:
            for entry in client.call("GET", "/_gpurunbook/requests", since=since):
                since = max(since, entry["n"])
                if entry["verb"] == "get" and re.fullmatch(self.after, entry["path"]):
                    client.call("PATCH", self.path, self.merge, MERGE_PATCH)
                    return
            time.sleep(_PAUSE)
