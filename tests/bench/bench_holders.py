"""What a look at a large cluster costs: `gpurunbook holders`, and all checks of `node_cordon` before its change.

    python tests/bench/bench_holders.py [--nodes 500] [--pods 20000] [--pairs 5]

Whole processes with start-up, in turns; beside them one that imports the same, connects, and asks for nothing but the
cluster's name. Server and processes share the machine's cores. Wanted: under 5 s and 200 MB. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from large import head, line, served, spent

HOME = Path(__file__).parents[2]

HOLDERS = "import sys; from gpurunbook.cli import main; main(['holders', '--node', sys.argv[1], '-o', 'json'])"

# The check cells of the runbook before its change, as they stand, in the run that its start cell would open.
CHECKS = """
import json, sys
import gpurunbook as rb
from gpurunbook.runbook.start import open_run
from gpurunbook.declared.runbooks import declared
run = open_run(declared("node_cordon"), {"node": sys.argv[1], "holders": "may-stay"})
p = run.parameters
for cell in json.load(open(sys.argv[2]))["cells"]:
    if "mutates" in cell["metadata"]["tags"]:
        break
    if "checks" in cell["metadata"]["tags"]:
        exec("".join(cell["source"]))
"""

IDLE = """
from gpurunbook.runbook.start import open_run
from gpurunbook.cli import holders
from gpurunbook.sources.cluster import connect
print(connect("").uid)
"""


def main() -> None:
    """Prints one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--pairs", type=int, default=5)
    chosen = parser.parse_args()
    node = f"gpu-{chosen.nodes // 2:04d}"
    ways = {
        "gpurunbook holders": (HOLDERS, node),
        "all checks of node_cordon": (CHECKS, node, str(HOME / "runbooks" / "node_cordon.ipynb")),
        "idle process": (IDLE,),
    }
    runs = {name: [] for name in ways}
    with served(chosen.nodes, chosen.pods), tempfile.TemporaryDirectory() as out:
        os.environ |= {"GPURUNBOOK_HOME": str(HOME), "GPURUNBOOK_OUT": out}
        for _ in range(chosen.pairs):
            for name, (code, *arguments) in ways.items():
                # Tenants hold GPUs of every node, so that `holders` answers 1.
                runs[name].append(spent(code, *arguments, good=(0, 1)))
    head(f"{chosen.nodes} nodes, {chosen.pods} pods, {chosen.pairs} turns, medians")
    for name, spents in runs.items():
        line(name, spents)


if __name__ == "__main__":
    main()
