"""Start and end embedded API servers for tests, as a user would: `python -m gpurunbook.embedded`."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpurunbook.embedded.actors.client import Client

SMALL = Path(__file__).parents[2] / "parameters" / "clusters" / "small"


@dataclass
class Embedded:
    """A server that runs: its state folder and what server.json says."""

    state: Path
    info: dict[str, Any]
    since: int = 0

    def client(self, context: str = "") -> Client:
        """A client for a context of its kubeconfig; the administrator without one."""
        if context:
            return Client.of_kubeconfig(self.state / "kubeconfig", context)
        return Client(self.info["url"], {"Authorization": f"Bearer {self.info['token']}"})

    def control(self, method: str, what: str, body: Any = None) -> Any:
        """The part that is not Kubernetes: requests, faults, compact."""
        return self.client().call(method, f"/_gpurunbook/{what}", body)

    def log(self, **wanted: Any) -> list[dict[str, Any]]:
        """The request log after `since`, filtered by equality."""
        entries = self.control("GET", f"requests?since={self.since}")
        return [entry for entry in entries if all(entry.get(key) == value for key, value in wanted.items())]


def command(state: Path, *arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the starter."""
    line = [sys.executable, "-m", "gpurunbook.embedded", "--state", state, *arguments]
    return subprocess.run([str(part) for part in line], capture_output=True, text=True, check=check, timeout=300)


def start(state: Path, seed: Path | None = SMALL, idle: float = 3600) -> Embedded:
    """Start a server, or find the one that serves the state folder."""
    seeded = ["--seed", seed] if seed else []
    done = command(state, *seeded, "--idle", str(idle))
    return Embedded(state, json.loads(done.stdout))


def stop(state: Path) -> None:
    """End it and wait until it is gone; one that nobody has asked for long has ended by itself."""
    try:
        info = json.loads((state / "server.json").read_text())
    except FileNotFoundError:
        return
    Embedded(state, info).control("POST", "stop")
    end = time.monotonic() + 180
    with (state / "lock").open() as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                assert time.monotonic() < end, f"{state}: the server does not end"
                time.sleep(0.01)


def fixture(folder: Path, text: str, **files: str) -> Path:
    """A fixture folder with a cluster.yaml and object files."""
    folder.mkdir(parents=True)
    (folder / "cluster.yaml").write_text(text)
    for name, content in files.items():
        (folder / f"{name}.yaml").write_text(content)
    return folder
