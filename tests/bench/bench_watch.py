"""How quickly `run.wait` reacts to a change of an object, over the watch's own delivery.

    python tests/bench/bench_watch.py [--changes 30]

A node of the embedded server is changed again and again. Beside a wait for it a bare watch of the same node reads
lines from its connection and notes when each comes. The wait is told to be over by its pure predicate; it has said so
(judged), and its cell has gone on (returned). Differences are paired by change. Wanted: under 200 ms over the bare
watch. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from typing import Any

from large import served

from gpurunbook.plan import Object, Progress, Seen, Wait
from gpurunbook.runbook.waiting import until
from gpurunbook.sources.cluster import Cluster, connect

PATH = "/api/v1/nodes/gpu-0001"
MARK = "gpurunbook.io/bench"


class Bare(threading.Thread):
    """A watch without anything around it: when each value of the mark came."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(daemon=True)
        query = [("watch", "1"), ("fieldSelector", "metadata.name=gpu-0001")]
        self._answer = cluster.connection.stream("/api/v1/nodes", query, 60.0, "WATCH nodes")
        self.came: dict[str, float] = {}

    def run(self) -> None:
        """Reads to the end of the program."""
        rest = b""
        while part := self._answer.read1(1 << 16):
            now = time.perf_counter()
            *lines, rest = (rest + part).split(b"\n")
            for line in filter(None, lines):
                self.came.setdefault(_mark(json.loads(line)["object"]), now)


def _mark(node: dict[str, Any]) -> str:
    return str((node["metadata"].get("annotations") or {}).get(MARK, ""))


def waited(cluster: Cluster, value: str, began: threading.Event) -> tuple[float, float]:
    """Waits for the value as a cell does: when it was judged to be there, and when the wait returned."""
    judged = 0.0

    def progress(seen: Seen) -> Progress:
        nonlocal judged
        if not seen["node"].problem:
            began.set()
            if _mark(seen["node"].value) == value:
                judged = time.perf_counter()
                return Progress("done")
        return Progress("waiting", ("the mark",))

    until(cluster, Wait("the mark", {"node": Object(PATH)}, progress, 60.0), standing=lambda seen: None)
    return judged, time.perf_counter()


def once(cluster: Cluster, bare: Bare, value: str) -> tuple[float, float, float]:
    """One change: milliseconds of the bare watch, of the judgement and of the return, since it was sent."""
    began, times = threading.Event(), []
    waiting = threading.Thread(target=lambda: times.extend(waited(cluster, value, began)))
    waiting.start()
    began.wait()
    time.sleep(0.2)  # so that the watch is open, and the change does not come with the list
    body = json.dumps({"metadata": {"annotations": {MARK: value}}}).encode()
    sent = time.perf_counter()
    cluster.connection.send("PATCH", PATH, (), body, "application/merge-patch+json")
    waiting.join()
    while value not in bare.came:
        time.sleep(0.001)
    bare_ms, judged, returned = ((moment - sent) * 1000 for moment in (bare.came[value], *times))
    return bare_ms, judged, returned


def main() -> None:
    """Prints medians and the largest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=30)
    chosen = parser.parse_args()
    with served(3):
        cluster = connect("")
        bare = Bare(cluster)
        bare.start()
        rows = [once(cluster, bare, f"v{number}") for number in range(chosen.changes)]
    print(f"{chosen.changes} changes, milliseconds")
    print(f"{'':44}{'median':>8}{'largest':>9}")
    for name, values in {
        "the bare watch brings the change": [row[0] for row in rows],
        "the wait has judged it, over the bare watch": [row[1] - row[0] for row in rows],
        "the wait has returned, over the bare watch": [row[2] - row[0] for row in rows],
    }.items():
        print(f"{name:44}{statistics.median(values):8.1f}{max(values):9.1f}")


if __name__ == "__main__":
    main()
