"""A large cluster for the measurements, served by the embedded API server, and the cost of processes that read it."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CLUSTERS = Path(__file__).parents[2] / "parameters" / "clusters"


@dataclass(frozen=True)
class Spent:
    """Of one whole process: wall and CPU seconds, and the peak of its resident memory in MB."""

    wall: float
    cpu: float
    peak: float


@contextlib.contextmanager
def served(nodes: int, pods: int = 0, weight: str = "real") -> Iterator[dict[str, Any]]:
    """A server with so many nodes, the pods of the fixture's workloads on them, and pods of tenants up to `pods`.

    Gives its server.json. Runs and commands of this process and its children find it by KUBECONFIG.
    """
    small = yaml.safe_load((CLUSTERS / "small" / "cluster.yaml").read_text())
    text = {"name": "large", "base": str(CLUSTERS / "cordon-tolerated"), "users": small["users"]}
    text["generate"] = small["generate"] | {"nodes": nodes, "pods": pods, "weight": weight}
    with tempfile.TemporaryDirectory() as folder:
        seed, state = Path(folder, "seed"), Path(folder, "state")
        seed.mkdir()
        (seed / "cluster.yaml").write_text(yaml.safe_dump(text))
        line = [sys.executable, "-m", "gpurunbook.embedded", "--state", str(state)]
        begin = [*line, "--seed", str(seed), "--idle", "300"]
        told = json.loads(subprocess.run(begin, check=True, capture_output=True).stdout)
        os.environ["KUBECONFIG"] = told["kubeconfig"]
        try:
            yield told
        finally:
            subprocess.run([*line, "--stop"], check=True)


def spent(code: str, *arguments: str, good: Sequence[int] = (0,)) -> Spent:
    """Runs one Python process to its end. good: exit codes that are an answer."""
    with open(os.devnull, "wb") as nowhere:
        begin = time.perf_counter()
        process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=nowhere)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in good:
        raise SystemExit(f"the process ended with {process.returncode}: {code}")
    return Spent(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def line(name: str, runs: Sequence[Spent]) -> None:
    """Prints medians, and the largest peak."""
    wall, cpu = statistics.median(r.wall for r in runs), statistics.median(r.cpu for r in runs)
    print(f"{name:34}{wall:8.2f}{cpu:8.2f}{max(r.peak for r in runs):9.0f}")


def head(what: str) -> None:
    """Prints the head of a table of `line`."""
    print(f"{what}\n{'':34}{'wall s':>8}{'CPU s':>8}{'peak MB':>9}")
