"""What the review of a large rendered fleet costs, in one process with its start-up.

    python tests/bench/bench_manifests.py [--megabytes 20] [--runs 3] [--shape documents|list|packed]

The limits are 10 s and 500 MB for 20 MB. CPU seconds tell more than wall seconds on a busy machine. The documents are
as dense as manifests get (22 bytes a line); what charts render has longer lines and costs less. Those of `packed` stand
in texts of ConfigMaps and are parsed twice. Nothing is asserted.
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

REVIEW = "import sys; from gpurunbook.cli import main; main(['review-manifests', sys.argv[1], '-o', 'json'])"

SHAPES = ("documents", "list", "packed")

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: app-{n}
  namespace: gpu-operator
  labels:
    app.kubernetes.io/name: app-{n}
    helm.sh/chart: gpu-operator-v26.3.3
spec:
  replicas: 3
  template:
    spec:
      containers:
        - name: main
          image: "nvcr.io/nvidia/driver:580.126.20"
          env:
            - name: LEVEL
              value: "info"
            - name: POD
              valueFrom:
                fieldRef:
                  fieldPath: metadata.name
          resources:
            limits:
              nvidia.com/gpu: 1
          ports:
            - containerPort: 8080
              name: http
"""


def fleet(size: int, shape: str) -> str:
    """Writes nothing. Manifests of about `size` bytes, as documents, as one List, or in texts of ConfigMaps."""
    count = size // len(DEPLOYMENT)
    if shape == "packed":
        head = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: addon-{n}\ndata:\n  addon.yaml: |\n    "
        one = head + DEPLOYMENT.rstrip().replace("\n", "\n    ") + "\n"
        return "---\n".join(one.format(n=n) for n in range(count))
    if shape == "documents":
        return "---\n".join(DEPLOYMENT.format(n=n) for n in range(count))
    items = ("- " + DEPLOYMENT.format(n=n).rstrip().replace("\n", "\n  ") + "\n" for n in range(count))
    return "apiVersion: v1\nkind: List\nitems:\n" + "".join(items)


def main() -> None:
    """Prints one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=20)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--shape", choices=SHAPES)
    chosen = parser.parse_args()
    print(f"{'shape':12}{'MB':>6}{'wall s':>8}{'CPU s':>8}{'peak MB':>9}")
    for shape in [chosen.shape] if chosen.shape else SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "fleet.yaml"
            file.write_text(fleet(chosen.megabytes * 1_000_000, shape))
            runs = []
            for _ in range(chosen.runs):
                begin = time.perf_counter()
                process = subprocess.Popen([sys.executable, "-c", REVIEW, str(file)], stdout=subprocess.DEVNULL)
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
                if process.returncode:
                    raise SystemExit(f"the review ended with {process.returncode}")
                seconds = (time.perf_counter() - begin, usage.ru_utime + usage.ru_stime)
                runs.append((*seconds, usage.ru_maxrss / 1024))
            size = file.stat().st_size / 1e6
        wall, cpu = (statistics.median(run[n] for run in runs) for n in (0, 1))
        print(f"{shape:12}{size:6.1f}{wall:8.2f}{cpu:8.2f}{max(run[2] for run in runs):9.0f}")


if __name__ == "__main__":
    main()
