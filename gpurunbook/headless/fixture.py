"""The embedded API servers of a scenario, as their administrator. Only for scenarios; no run imports this."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpurunbook.errors import InputError
from gpurunbook.headless.expectation import Deed

SECONDS = 10.0
STOP_SECONDS = 5.0


class Fixture:
    """The one server whose state lies under a folder of clusters, once a run has started it."""

    def __init__(self, clusters: Path) -> None:
        self._clusters = clusters
        self._told = 0

    def do(self, deed: Deed) -> None:
        """Changes one object of the cluster. Raises InputError with the server's words when it refuses."""
        if deed.merge is not None:
            code, said = self._send("PATCH", deed.path, deed.merge, "application/merge-patch+json")
        else:
            code, said = self._send("POST", deed.path, deed.create, "application/json")
        if code not in (200, 201):
            raise InputError(f"it was refused: {code} {said.get('message')}", subject=f"meanwhile: {deed.path}")

    def news(self) -> list[dict[str, Any]]:
        """Writes nothing. The requests since the last look, oldest first, without those of actors."""
        if not any(_servers(self._clusters)):
            return []
        _, found = self._send("GET", f"/_gpurunbook/requests?since={self._told}")
        self._told = max((entry["n"] for entry in found), default=self._told)
        return [entry for entry in found if not entry["actor"]]

    def _send(self, method: str, path: str, body: Any = None, kind: str = "") -> tuple[int, Any]:
        for server in _servers(self._clusters):
            data = b"" if body is None else json.dumps(body).encode()
            headers = {"Authorization": f"Bearer {server['token']}", "Content-Type": kind}
            try:
                with contextlib.closing(_connection(server, SECONDS)) as where:
                    where.request(method, path, data, headers)
                    answer = where.getresponse()
                    return answer.status, json.loads(answer.read() or b"{}")
            except (OSError, http.client.HTTPException, ValueError) as wrong:
                raise InputError(f"the embedded server does not answer: {wrong!r}", subject=path) from None
        raise InputError("no embedded server runs here", subject=path, remedy="Scenarios need an embedded cluster.")


def _servers(clusters: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(clusters.glob("*/server.json")):
        with contextlib.suppress(OSError, ValueError):
            yield {**json.loads(path.read_bytes()), "state": path.parent}


def _connection(server: dict[str, Any], seconds: float) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(server["url"]).netloc, timeout=seconds)


def stop(clusters: Path) -> None:
    """Asks the embedded servers whose state lies in the folder to end, and waits for them a few seconds."""
    for server in _servers(clusters):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
            where = _connection(server, STOP_SECONDS)
            where.request("POST", "/_gpurunbook/stop", headers={"Authorization": f"Bearer {server['token']}"})
            where.getresponse().read()
            where.close()
            _gone(server["state"] / "lock")


def _gone(lock: Path) -> None:
    end = time.monotonic() + STOP_SECONDS
    with lock.open("rb") as file:
        while time.monotonic() < end:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return
            time.sleep(0.01)
