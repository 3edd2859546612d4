"""A fixture cluster (parameters/clusters) on the real control plane.

Written are the objects that nobody controls; what a controller makes of them (pods of DaemonSets, Deployments, Jobs)
the real one makes, and kwok runs it. Cordons and taints come last: the pods were there before them. Then the state is
that of the fixture as far as a runbook sees it, but for uids, names of controlled pods, times and the server's version.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpurunbook.embedded import fixture
from gpurunbook.embedded.actors.client import Client, Refused
from gpurunbook.embedded.resources import CRDS, Catalog, Resource
from gpurunbook.embedded.seed import REHEARSAL, fill
from gpurunbook.embedded.store import Store
from tests.envtest.controlplane import HOLD, ControlPlane

Obj = dict[str, Any]

PLAYED = {"kwok.x-k8s.io/node": "fake"}
_OWN_STATUS = ("pods", "nodes")
"""Of built-in kinds, those whose status is the fixture's and not a controller's."""

_NODES = ("", "nodes")
_FIRST = [CRDS, ("", "namespaces"), _NODES]
_LAST = ("", "pods")


class Unseedable(Exception):
    """A fixture that a real API server cannot be made to show; the message says which part."""


def seed(admin: Client, folder: Path, seconds: float = 60) -> None:
    """Creates what the fixture holds, and waits until nodes are usable and controllers have made their part.

    For a control plane that holds no fixture yet. Raises Unseedable, Refused with the API server's own words, and
    TimeoutError naming what is not there yet.
    """
    read = fixture.load(folder)
    if read.config.faults or read.config.logs or read.config.poses_as:
        raise Unseedable(f"{folder}: faults, logs and poses_as are the embedded server's own")
    store, catalog = Store(), Catalog()
    fill(store, catalog, read)
    resources = {resource.table: resource for resource in catalog.all()}
    marks: dict[str, Obj] = {}
    order = [*_FIRST, *(table for table in resources if table not in (*_FIRST, _LAST)), _LAST]
    patched = {patch.target for patch in read.config.patches}
    for table in order:
        for entry in store.all(table):
            obj = entry.object()
            if table == _NODES:
                marks[obj["metadata"]["name"]] = _unmarked(obj)
            _create(admin, resources[table], obj, patched)
        if table == CRDS:
            _until(seconds, lambda: _unserved(admin, catalog))
    _until(seconds, lambda: _unfinished(admin))
    for name, spec in marks.items():
        if spec:
            admin.merge(f"/api/v1/nodes/{name}", {"spec": spec})


def _unmarked(node: Obj) -> Obj:
    """Takes cordon and taints off a node and gives what belongs there later; those of its role stay."""
    spec = node["spec"]
    later = {"unschedulable": True} if spec.pop("unschedulable", False) else {}
    taints = spec.get("taints", [])
    role = [taint for taint in taints if taint["key"].startswith("node-role.kubernetes.io/")]
    if role != taints:
        later["taints"], spec["taints"] = taints, role
    return later


def _collection(resource: Resource, namespace: str) -> str:
    root = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
    return root + (f"/namespaces/{namespace}" if resource.namespaced else "") + f"/{resource.plural}"


def _create(admin: Client, resource: Resource, obj: Obj, patched: set[str]) -> None:
    meta = obj["metadata"]
    name, namespace = meta["name"], meta.get("namespace", "")
    label = "/".join(part for part in (resource.kind, namespace, name) if part)
    if meta.get("ownerReferences"):
        if label in patched:
            raise Unseedable(f"{label} is patched, and made anew by its real controller")
        return
    kept: Obj = {key: meta[key] for key in ("name", "namespace", "labels", "annotations", "finalizers") if key in meta}
    status = obj.get("status") or {}
    body = {"apiVersion": resource.api_version, "kind": resource.kind, **obj, "metadata": kept}
    if resource.kind == "Node":
        kept["annotations"] = {**(kept.get("annotations") or {}), **PLAYED}
    elif resource.kind == "Pod" and status:  # kwok must not write a status of its own first
        kept["annotations"] = {**(kept.get("annotations") or {}), HOLD: "true"}
    elif resource.kind == "Namespace":
        kept["annotations"] = {k: v for k, v in (kept.get("annotations") or {}).items() if k != REHEARSAL}
        body = {"metadata": kept}
    else:
        body.pop("status", None)
    path = _collection(resource, namespace)
    reply = admin.send("POST", path, body)
    if reply.code == 409:  # what every cluster has: namespaces, bootstrap roles
        admin.merge(f"{path}/{name}", {"metadata": kept})
    elif reply.code != 201:
        raise Refused(reply.code, reply.body)
    if status and resource.status and (resource.custom or resource.plural in _OWN_STATUS):
        admin.merge(f"{path}/{name}/status", {"status": status})
    if resource.kind == "Pod" and status and status.get("phase") != "Pending":
        admin.merge(f"{path}/{name}", {"metadata": {"annotations": {HOLD: None}}})


# --- waiting


def _until(seconds: float, missing: Any) -> None:
    end = time.monotonic() + seconds
    while lacks := sorted(missing()):
        if time.monotonic() > end:
            raise TimeoutError(f"after {seconds} s not there yet: {', '.join(lacks)}")
        time.sleep(0.1)


def _unserved(admin: Client, catalog: Catalog) -> Iterator[str]:
    for resource in catalog.all():
        if resource.custom and admin.send("GET", _collection(resource, "default")).code != 200:
            yield resource.kind


def _unfinished(admin: Client) -> Iterator[str]:
    for node in admin.call("GET", "/api/v1/nodes")["items"]:
        if any(taint["key"] == "node.kubernetes.io/not-ready" for taint in node["spec"].get("taints", ())):
            yield f"Node {node['metadata']['name']}"
    for pod in admin.call("GET", "/api/v1/pods", fieldSelector="status.phase=Pending")["items"]:
        if HOLD not in pod["metadata"].get("annotations", {}):
            yield f"Pod {pod['metadata']['name']} (Pending on {pod['spec'].get('nodeName', 'no node')})"
    for plural, done in (("daemonsets", _rolled_out), ("deployments", _available)):
        for obj in admin.call("GET", f"/apis/apps/v1/{plural}")["items"]:
            if not done(obj):
                yield f"{plural} {obj['metadata']['name']}"
    for job in admin.call("GET", "/apis/batch/v1/jobs")["items"]:
        if not job["status"].get("completionTime"):
            yield f"jobs {job['metadata']['name']}"


def _rolled_out(obj: Obj) -> bool:
    status = obj["status"]
    wanted = status.get("desiredNumberScheduled", 0)
    settled = status.get("observedGeneration") == obj["metadata"]["generation"]
    return bool(settled and status.get("numberReady", 0) == status.get("updatedNumberScheduled", 0) == wanted)


def _available(obj: Obj) -> bool:
    return bool(obj["status"].get("availableReplicas", 0) == obj["spec"].get("replicas", 1))


# --- users


def users(plane: ControlPlane, folder: Path) -> dict[str, Path]:
    """Kubeconfigs of the fixture's users by the fixture's name of them; each one's API name is its context."""
    return {
        user.name: plane.user(user.username or user.name, *user.groups) for user in fixture.load(folder).config.users
    }
