"""What the audit of a captured list costs, beside a process that only parses the same bytes.

    python tests/bench/bench_audit.py [--containers 10000] [--pairs 7]

Each pair runs both processes one after the other, whole with start-up, in an order that alternates; the ratio is the
median over pairs, so that a busy machine slows both. Peak memory is that of the largest run. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GENERATOR = Path(__file__).parents[1] / "cases" / "audit" / "gen_podlist.py"

AUDIT = "import sys; from gpurunbook.cli import main; main(['audit', '--pod-json', sys.argv[1], '-o', 'json'])"
PARSE = "import sys, orjson; orjson.loads(open(sys.argv[1], 'rb').read())"


def spent(code: str, file: Path) -> tuple[float, float, float]:
    """Runs one process and gives its wall seconds, CPU seconds and peak resident megabytes."""
    with Path(os.devnull).open("wb") as nowhere:
        begin = time.perf_counter()
        process = subprocess.Popen([sys.executable, "-c", code, str(file)], stdout=nowhere, stderr=nowhere)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the process ended with {process.returncode}: {code}")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    """Prints one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--containers", type=int, default=10_000)
    parser.add_argument("--pairs", type=int, default=7)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pods.json"
        size = ["--containers", str(chosen.containers), "--weight", "real", "--runtime", "mixed"]
        subprocess.run([sys.executable, str(GENERATOR), *size, "--out", str(file)], check=True)
        audits, parses = [], []
        for turn in range(chosen.pairs):
            pair = [(AUDIT, audits), (PARSE, parses)]
            for code, runs in pair if turn % 2 else reversed(pair):
                runs.append(spent(code, file))
        megabytes = file.stat().st_size / 1e6
    print(f"{chosen.containers} records, {megabytes:.1f} MB, {chosen.pairs} pairs, medians")
    print(f"{'':24}{'wall s':>8}{'CPU s':>8}{'peak MB':>9}")
    for name, runs in (("gpurunbook audit", audits), ("orjson.loads only", parses)):
        wall, cpu = (statistics.median(r[i] for r in runs) for i in (0, 1))
        print(f"{name:24}{wall:8.2f}{cpu:8.2f}{max(r[2] for r in runs):9.0f}")
    ratios = [[a[i] / p[i] for a, p in zip(audits, parses, strict=True)] for i in (0, 1)]
    print(f"{'ratio, paired':24}{statistics.median(ratios[0]):8.2f}{statistics.median(ratios[1]):8.2f}")


if __name__ == "__main__":
    main()
