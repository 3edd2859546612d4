"""Starting the embedded API server as a process of its own."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from gpurunbook.errors import InputError, Unreachable
from gpurunbook.sources import tools

START_SECONDS = 60.0


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
    subject = f"cluster embedded:{fixture}"
    if not (seed / "cluster.yaml").is_file():
        meant = fixture.removeprefix("parameters/")
        right = f"`embedded:{meant}` is one. " if meant != fixture and (base / meant / "cluster.yaml").is_file() else ""
        raise InputError(
            f"there is no fixture cluster at {seed}: no cluster.yaml",
            subject=subject,
            remedy=f"{right}Fixture clusters lie under {base}; parameters/clusters/README.md says how to write one.",
        )
    state = state_folder(fixture, clusters or (home or Path.cwd()) / "outputs" / ".clusters")
    try:
        state.mkdir(parents=True, exist_ok=True)
    except OSError as wrong:
        raise InputError(
            f"its state cannot be kept in {state}: {wrong.strerror}",
            subject=subject,
            remedy="Set GPURUNBOOK_CLUSTERS to a folder that can be written.",
        ) from None
    argv = [sys.executable, "-m", "gpurunbook.embedded", "--state", str(state), "--seed", str(seed)]
    done = tools.run(argv, timeout=START_SECONDS)
    if done.returncode:
        raise Unreachable(f"the embedded server did not come up: {done.complaint}", subject=subject)
    return Path(json.loads(done.stdout)["kubeconfig"])
