"""Pods as the API server writes them, for tests of the audit."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from gpurunbook.plan import Document, Observed
from gpurunbook.supply.audit import Scope
from gpurunbook.supply.report import Report

REPO = "registry.example/gpu/driver"
IMAGE = f"{REPO}:580.126.20"

WAYS = {"as a small file": (1 << 40, 0), "as a large file": (0, 1 << 40), "as a very large file": (0, 0)}
"""Values of podlist.WHOLE and podlist.AT_ONCE that make any file be read as one of these sizes."""


def sha(name: str) -> str:
    """A digest that stands for `name`."""
    return "sha256:" + hashlib.sha256(name.encode()).hexdigest()


def running(name: str, image_id: str, container_id: str = "containerd://" + "c" * 64, **more: Any) -> dict[str, Any]:
    """A status entry."""
    state = {"running": {"startedAt": "2026-08-20T08:00:10Z"}}
    return {"name": name, "image": IMAGE, "imageID": image_id, "containerID": container_id, "state": state, **more}


def pod(
    image: str | None = IMAGE,
    image_id: str | None = f"{REPO}@{sha('one')}",
    *,
    name: str = "driver-x",
    namespace: str = "gpu-operator",
    node: str = "gpu-a",
    phase: str = "Running",
    entry: dict[str, Any] | None = None,
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A pod of one container `driver`. entry: its status entry instead of a running one; image_id None: none."""
    container = {"name": "driver"} | ({} if image is None else {"image": image})
    statuses = [entry] if entry is not None else [] if image_id is None else [running("driver", image_id)]
    return {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"nodeName": node, "containers": [container], **(spec or {})},
        "status": {"phase": phase, "containerStatuses": statuses, **(status or {})},
    }


def podlist(*pods: Any, kind: str = "PodList", **more: Any) -> bytes:
    """A list as JSON."""
    whole = {"apiVersion": "v1", "kind": kind, "metadata": {"resourceVersion": "1"}, "items": list(pods), **more}
    return json.dumps(whole).encode()


def audited(
    data: bytes,
    *,
    demanded: tuple[str, ...] = (),
    relations: object = None,
    nodes: object = None,
    baseline: bytes | None = None,
    tolerate: bool = False,
) -> Report:
    """The report on a captured list."""
    scope = Scope(
        demanded,
        "pods.json",
        "baseline.json" if baseline is not None else "",
        "relations.json" if relations is not None else "",
        "platforms.json" if nodes is not None else "",
        tolerate,
    )
    given = {
        "pods": data,
        "relations": json.dumps(relations).encode(),
        "platforms": json.dumps(nodes).encode(),
        "baseline": baseline,
    }
    return scope.report({n: Observed(Document(n), given[n]) for n in scope.needs()}, None, True)


def codes(report: Report) -> list[str]:
    """The codes of the findings, each once."""
    return sorted({f.code for f in report.findings})
