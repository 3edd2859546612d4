"""Nodes and pods in numbers: copies of a node template, and the pods of the fixture's workloads on them.

Nothing is random: names and uids are hashes of what they stand for. Pods are bytes, made from one pattern per
workload and runtime, so that 20 000 of them are there in a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from gpurunbook.embedded.status import Obj
from gpurunbook.embedded.workloads import Runtime, digest, owned_pod, started

STARTED = "2026-08-20T08:00:10Z"
_ONCE_PER = 50  # nodes that share one pod of a workload that is no DaemonSet
_TENANTS, _TENANT_PODS = 100, 40


class Generate(msgspec.Struct, forbid_unknown_fields=True):
    """What to make; described in parameters/clusters/README.md."""

    nodes: int = 0
    node: dict[str, Any] = {}
    pods: int = 0
    runtime: Literal["containerd", "crio", "docker", "mixed"] = "containerd"
    weight: Literal["lean", "real"] = "lean"


@dataclass(frozen=True)
class Pod:
    """One generated pod. `like` is an object with the same labels and selectable fields but name and node."""

    namespace: str
    name: str
    node: str
    raw: bytes
    like: Obj


def node_name(number: int) -> str:
    """gpu-0000 and so on."""
    return f"gpu-{number:04d}"


def nodes(wanted: Generate) -> Iterator[Obj]:
    """The nodes, with @NAME@, @N@ and @HASH@ (eight hex digits of its own) replaced in every text of the template."""
    pattern = msgspec.json.encode(wanted.node)
    for number in range(wanted.nodes):
        name = node_name(number)
        marks = {"@NAME@": name, "@N@": str(number), "@HASH@": digest(name)[:8]}
        yield msgspec.json.decode(_fill(pattern, marks))


def namespaces(wanted: Generate, workloads: list[Obj]) -> list[str]:
    """The namespaces of the tenants that `pods` brings about."""
    surplus = wanted.pods - sum(1 for _ in _owned(wanted, workloads))
    return [f"tenant-{number:02d}" for number in range(min(_TENANTS, -(-surplus // _TENANT_PODS)))]


def pods(wanted: Generate, workloads: list[Obj]) -> Iterator[Pod]:
    """The pods of the workloads, then those of tenants up to the wanted number; @RV@ stands for the version."""
    patterns: dict[Any, tuple[Obj, bytes]] = {}
    made = 0
    for owner, number in _owned(wanted, workloads):
        name = owner["metadata"]["name"]
        yield _pod(patterns, wanted, owner, number, f"{name}-{digest(f'{name}/{number}')[:5]}")
        made += 1
    for serial in range(wanted.pods - made):
        owner = _tenant(serial // _TENANT_PODS % _TENANTS)
        yield _pod(patterns, wanted, owner, serial % wanted.nodes, f"train-{digest(f'train/{serial}')[:10]}")


def _owned(wanted: Generate, workloads: list[Obj]) -> Iterator[tuple[Obj, int]]:
    for number in range(wanted.nodes):
        for owner in workloads:
            if owner["kind"] == "DaemonSet" or number % _ONCE_PER == 0:
                yield owner, number


def _tenant(number: int) -> Obj:
    meta = {"name": "train", "namespace": f"tenant-{number:02d}", "uid": digest(f"tenant/{number}")[:8]}
    container = {
        "name": "train",
        "image": "nvcr.io/nvidia/pytorch:26.06-py3",
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    template = {"metadata": {"labels": {"app": "train"}}, "spec": {"containers": [container], "restartPolicy": "Never"}}
    return {"apiVersion": "batch/v1", "kind": "Tenant", "metadata": meta, "spec": {"template": template}}


def _pod(patterns: dict[Any, tuple[Obj, bytes]], wanted: Generate, owner: Obj, number: int, name: str) -> Pod:
    runtime: Runtime = (
        ("containerd", "containerd", "crio", "docker")[number % 4] if wanted.runtime == "mixed" else wanted.runtime
    )
    meta = owner["metadata"]
    key = (meta["namespace"], meta["name"], runtime)
    if key not in patterns:
        patterns[key] = _pattern(owner, runtime, wanted.weight)
    like, pattern = patterns[key]
    unique = digest(f"{meta['namespace']}/{name}")
    marks = {"@NAME@": name, "@NODE@": node_name(number), "@UID@": f"{unique[:8]}-0000-4000-8000-{unique[8:20]}"}
    for container, mark in like["marks"].items():
        marks[mark] = digest(f"cid:{unique}/{container}")
    return Pod(meta["namespace"], name, node_name(number), _fill(pattern, marks), like)


def _pattern(owner: Obj, runtime: Runtime, weight: str) -> tuple[Obj, bytes]:
    pod = owned_pod(owner, "@NODE@", "@NAME@")
    if owner["kind"] == "Tenant":
        del pod["metadata"]["ownerReferences"]
    pod["metadata"] |= {
        "uid": "@UID@",
        "resourceVersion": "@RV@",
        "creationTimestamp": "2026-08-20T07:59:50Z",
        "generation": 1,
    }
    if weight == "real":
        _weigh(pod["spec"])
    pod["status"] = started(pod, STARTED, runtime, ended=owner["kind"] == "Job", salt=runtime)
    containers = [*pod["status"].get("initContainerStatuses", ()), *pod["status"]["containerStatuses"]]
    marks = {container["name"]: container["containerID"].partition("://")[2] for container in containers}
    stored = {key: value for key, value in pod.items() if key not in ("apiVersion", "kind")}
    return {**stored, "marks": marks}, msgspec.json.encode(stored)


def _weigh(spec: Obj) -> None:
    """Give a pod the bulk of a real operand: environment, mounts, volumes."""
    paths = [f"/run/nvidia/{i}" for i in range(9)]
    env = [{"name": f"NVIDIA_SETTING_{i:02d}", "value": f"value-{i:02d}-" + "x" * 24} for i in range(14)]
    mounts = [
        {"name": f"vol-{i}", "mountPath": path, "mountPropagation": "HostToContainer"} for i, path in enumerate(paths)
    ]
    volumes = [
        {"name": f"vol-{i}", "hostPath": {"path": path, "type": "DirectoryOrCreate"}} for i, path in enumerate(paths)
    ]
    for field in ("initContainers", "containers"):
        if field in spec:
            spec[field] = [{**container, "env": env, "volumeMounts": mounts} for container in spec[field]]
    spec["volumes"] = [*spec.get("volumes", ()), *volumes]


def _fill(pattern: bytes, marks: dict[str, str]) -> bytes:
    for mark, value in marks.items():
        pattern = pattern.replace(mark.encode(), value.encode())
    return pattern
