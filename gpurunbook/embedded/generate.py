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
from gpurunbook.embedded.workloads import Runtime, digest, owned_pod, started, wanted_on

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


def tenants(wanted: Generate, made: int) -> list[str]:
    """The namespaces of the tenants whose pods come on top of those that were made."""
    surplus = wanted.pods - made
    return [f"tenant-{number:02d}" for number in range(min(_TENANTS, -(-surplus // _TENANT_PODS)))]


def placements(workloads: list[Obj], there: list[Obj]) -> Iterator[tuple[Obj, Obj]]:
    """Workload and node of every pod: DaemonSets where they are wanted, others on every fiftieth such node."""
    for owner in workloads:
        fitting = [node for node in there if wanted_on(owner, node)[0]]
        for node in fitting if owner["kind"] == "DaemonSet" else fitting[::_ONCE_PER]:
            yield owner, node


def pods(wanted: Generate, placed: list[tuple[Obj, Obj]], there: list[Obj]) -> Iterator[Pod]:
    """The pods of the workloads, then those of tenants up to the wanted number; @RV@ stands for the version."""
    patterns: dict[Any, tuple[Obj, bytes]] = {}
    for owner, node in placed:
        name, where = owner["metadata"]["name"], node["metadata"]["name"]
        runtime = _runtime(wanted, where)
        yield _pod(patterns, wanted, owner, where, runtime, f"{name}-{digest(f'{name}/{where}')[:5]}")
    for serial in range(wanted.pods - len(placed)):
        owner, where = _tenant(serial // _TENANT_PODS % _TENANTS), there[serial % len(there)]["metadata"]["name"]
        yield _pod(patterns, wanted, owner, where, _runtime(wanted, where), f"train-{digest(f'train/{serial}')[:10]}")


def _runtime(wanted: Generate, node: str) -> Runtime:
    if wanted.runtime == "mixed":
        return ("containerd", "containerd", "crio", "docker")[int(node[-1], 36) % 4]
    return wanted.runtime


def _tenant(number: int) -> Obj:
    meta = {"name": "train", "namespace": f"tenant-{number:02d}", "uid": digest(f"tenant/{number}")[:8]}
    container = {
        "name": "train",
        "image": "nvcr.io/nvidia/pytorch:26.06-py3",
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    template = {"metadata": {"labels": {"app": "train"}}, "spec": {"containers": [container], "restartPolicy": "Never"}}
    return {"apiVersion": "batch/v1", "kind": "Tenant", "metadata": meta, "spec": {"template": template}}


def _pod(patterns: Any, wanted: Generate, owner: Obj, node: str, runtime: Runtime, name: str) -> Pod:
    meta = owner["metadata"]
    key = (meta["namespace"], meta["name"], runtime)
    if key not in patterns:
        patterns[key] = _pattern(owner, runtime, wanted.weight)
    like, pattern = patterns[key]
    unique = digest(f"{meta['namespace']}/{name}")
    marks = {"@NAME@": name, "@NODE@": node, "@UID@": f"{unique[:8]}-0000-4000-8000-{unique[8:20]}"}
    for container, mark in like["marks"].items():
        marks[mark] = digest(f"cid:{unique}/{container}")
    return Pod(meta["namespace"], name, node, _fill(pattern, marks), like)


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
