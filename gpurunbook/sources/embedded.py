"""Starting the embedded API server as a process of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

from gpurunbook.errors import InputError, Unreachable

START_SECONDS = 20.0

_STARTED: list[subprocess.Popen[bytes]] = []
"""Servers outlive us on purpose; without a reference Python would warn of a child that still runs."""


def state_folder(fixture: str, clusters: Path) -> Path:
    """Writes nothing. Where the state of a fixture cluster lies under the folder of clusters."""
    return clusters / (re.sub(r"[^A-Za-z0-9._-]+", "-", fixture).strip("-.") or "cluster")


def serve(fixture: str, *, home: Path | None, clusters: Path | None) -> Path:
    """Starts the server of a fixture cluster unless it runs, and gives the path of its kubeconfig.

    fixture: folder relative to `parameters/` of home, or an absolute one. Raises InputError when there is no such
    folder, Unreachable with the server's own words when it does not come up.
    """
    base = (home or Path.cwd()) / "parameters"
    seed = base / fixture
    if not (seed / "cluster.yaml").is_file():
        raise InputError(
            f"there is no fixture cluster at {seed}: no cluster.yaml",
            subject=f"cluster embedded:{fixture}",
            remedy=f"Fixture clusters lie under {base}; parameters/clusters/README.md says how to write one.",
        )
    state = state_folder(fixture, clusters or (home or Path.cwd()) / "outputs" / ".clusters")
    state.mkdir(parents=True, exist_ok=True)
    with (state / "server.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "gpurunbook.embedded", "--state", str(state), "--seed", str(seed)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    _STARTED.append(process)
    return _ready(state, process, fixture)


def _ready(state: Path, process: subprocess.Popen[bytes], fixture: str) -> Path:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        code = process.poll()
        if code not in (None, 0):
            break
        # Exit 0 means that another process serves this state already.
        if (code == 0 or _pid(state) == process.pid) and (state / "kubeconfig").is_file():
            return state / "kubeconfig"
        time.sleep(0.01)
    words = (state / "server.log").read_bytes()[-600:].decode(errors="replace").strip()
    raise Unreachable(
        f"the embedded server did not come up: {words or 'it said nothing'}",
        subject=f"cluster embedded:{fixture}",
        remedy=f"Its log is {state / 'server.log'}.",
    )


def _pid(state: Path) -> int:
    try:
        return int(json.loads((state / "server.json").read_bytes())["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
