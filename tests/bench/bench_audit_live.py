"""What `gpurunbook audit` of a live cluster costs, beside a process that only fetches the same pages.

    python tests/bench/bench_audit_live.py [--nodes 1425] [--pairs 5]

Whole processes with start-up, in an order that turns; ratios are medians over pairs, so that a busy machine slows
both. Memory is that over a process which imports the same and asks for nothing but the cluster's name. Server and
processes share the machine's cores. Wanted: at most 1.3 times, and under 60 MB. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import urllib.request

from large import Spent, head, line, served, spent

AUDIT = "from gpurunbook.cli import main; main(['audit', '-o', 'json'])"

IDLE = """
import gpurunbook.cli.audit
from gpurunbook.sources.cluster import connect
live = connect(None)
assert live.uid
"""

FETCH = (
    IDLE
    + """
import msgspec
from gpurunbook.sources.cluster import PAGE
class Meta(msgspec.Struct):
    next: str | None = msgspec.field(default=None, name="continue")
class Page(msgspec.Struct):
    metadata: Meta
for namespace in gpurunbook.cli.audit.DEFAULT_NAMESPACES:
    token = ""
    while token is not None:
        query = [("limit", PAGE)] + ([("continue", token)] if token else [])
        raw = live.connection.read(f"/api/v1/namespaces/{namespace}/pods", query)
        token = msgspec.json.decode(raw, type=Page).metadata.next or None
"""
)


def main() -> None:
    """Prints one table, and the two ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1425)
    parser.add_argument("--pairs", type=int, default=5)
    chosen = parser.parse_args()
    ways = {"gpurunbook audit": AUDIT, "fetching the pages only": FETCH, "idle process": IDLE}
    runs: dict[str, list[Spent]] = {name: [] for name in ways}
    with served(chosen.nodes) as told:
        pods = _count(told)
        for turn in range(chosen.pairs):
            for name, code in list(ways.items()) if turn % 2 else reversed(ways.items()):
                runs[name].append(spent(code, good=(0, 1)))
    audits, fetches, idles = runs.values()
    head(f"{pods} pods, {chosen.pairs} pairs, medians")
    for name, spents in runs.items():
        line(name, spents)
    for kind in ("wall", "cpu"):
        whole = [getattr(a, kind) / getattr(f, kind) for a, f in zip(audits, fetches, strict=True)]
        print(f"ratio of {kind}, paired: {statistics.median(whole):.2f}")
    over = max(r.peak for r in audits) - statistics.median(r.peak for r in idles)
    print(f"memory over the idle process: {over:.0f} MB")


def _count(told: dict[str, str]) -> int:
    """Without reading them here: a process begins with the peak of the one that started it."""
    found = 0
    for namespace in ("gpu-operator", "hami-system"):
        url = f"{told['url']}/api/v1/namespaces/{namespace}/pods?limit=1"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {told['token']}"})
        with urllib.request.urlopen(request) as answer:
            page = json.loads(answer.read())
        found += len(page["items"]) + page["metadata"].get("remainingItemCount", 0)
    return found


if __name__ == "__main__":
    main()
