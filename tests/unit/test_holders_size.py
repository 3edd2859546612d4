"""Holders of a node in a cluster of 500 nodes and 20 000 pods: within 5 s and 200 MB, even when every pod is listed.

Covered: typed decoding of 40 pages and the judgement, in a process of its own so that its peak memory is its own.
Not covered: the transport. A cluster answers with the node's own pods only, which is some hundred times less.
"""

from __future__ import annotations

import json
import subprocess
import sys

SCRIPT = """
import json, resource, time
import msgspec
from gpurunbook.nodes.holders import Around, holders
from gpurunbook.nodes.shapes import PodPage

container = {
    "name": "main", "image": "registry.example/team/app:1.0",
    "env": [{"name": f"E{i}", "value": "v" * 30} for i in range(12)],
    "volumeMounts": [{"name": "v", "mountPath": "/x"}] * 5,
}
gpu = {**container, "name": "gpu", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
sample = json.dumps({
    "metadata": {
        "name": "NAME", "namespace": "t", "uid": "u", "annotations": {"a": "x" * 800},
        "managedFields": [{"manager": "m", "fieldsV1": {f"f:{i}": {} for i in range(60)}}],
    },
    "spec": {"nodeName": "NODE", "containers": [container, gpu], "tolerations": [{"operator": "Exists"}] * 4},
    "status": {"phase": "Running", "containerStatuses": [{"name": "c", "imageID": "y" * 120}] * 2},
})

def page(number):
    items = (
        sample.replace("NODE", f"n{i % 500}").replace("NAME", f"p{i}") for i in range(number * 500, number * 500 + 500)
    )
    return ('{"items":[' + ",".join(items) + "]}").encode()

spent, pods = 0.0, []
for number in range(40):
    raw = page(number)
    begin = time.monotonic()
    pods += msgspec.json.decode(raw, type=PodPage).items
    spent += time.monotonic() - begin
begin = time.monotonic()
report = holders("n7", pods, Around())
spent += time.monotonic() - begin
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"pods": len(pods), "holders": len(report.holders), "seconds": spent, "megabytes": peak}))
"""


def test_twenty_thousand_pods_fit_in_five_seconds_and_200_megabytes() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=True)
    seen = json.loads(done.stdout)
    assert (seen["pods"], seen["holders"]) == (20_000, 40)
    assert seen["seconds"] < 5
    assert seen["megabytes"] < 200
