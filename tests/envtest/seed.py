"""Fixture clusters (parameters/clusters) on the real control plane, one after the other.

Written are the objects that nobody controls; what a controller makes of them (pods of DaemonSets, Deployments, Jobs)
the real one makes, and kwok runs it. Then the state is that of the fixture as far as a runbook sees it, but for uids,
names of controlled pods, times and the server's version.

What the next fixture has too is put right and not made anew, which takes a second and not ten. Its actors are played by
rivals.py.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from gpurunbook.embedded import fixture
from gpurunbook.embedded.actors.client import MERGE_PATCH, Client, Refused
from gpurunbook.embedded.resources import CRDS, Catalog, Resource
from gpurunbook.embedded.seed import REHEARSAL, fill
from gpurunbook.embedded.store import Store
from tests.envtest.controlplane import HOLD, ControlPlane
from tests.envtest.rivals import READS_LOG
from tests.eventually import eventually

Obj = dict[str, Any]

PLAYED = {"kwok.x-k8s.io/node": "fake"}

_NODES, _PODS, _NAMESPACES = ("", "nodes"), ("", "pods"), ("", "namespaces")
_DAEMONSETS, _DEPLOYMENTS, _JOBS = ("apps", "daemonsets"), ("apps", "deployments"), ("batch", "jobs")
_RBAC, _WEBHOOKS = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"

_MADE_BY_ITSELF = [
    ("", "configmaps"),
    ("", "endpoints"),
    ("", "events"),
    ("", "serviceaccounts"),
    ("apiregistration.k8s.io", "apiservices"),
    ("apps", "controllerrevisions"),
    ("discovery.k8s.io", "endpointslices"),
    ("events.k8s.io", "events"),
    ("storage.k8s.io", "csinodes"),
]
"""Left alone when a fixture goes, unless it wrote them: they go with their namespace or owner, or matter to nobody."""

_ALWAYS_NEW = [_PODS, (_RBAC, "rolebindings"), (_RBAC, "clusterrolebindings")]
"""Of these the server lets too little be changed."""

_STATUS_OF_FIXTURE = [_PODS, _NODES]
"""Of built-in kinds, those whose status is the fixture's and not a controller's."""

_FIRST, _LAST = [CRDS, _NAMESPACES, _NODES], [_PODS]


_ORDER = {_WEBHOOKS: 0, CRDS[0]: 2}


class Unseedable(Exception):
    """A fixture that a real API server cannot be made to show; the message says which part."""


class Seeder:
    """Makes one control plane show one fixture after the other. What is there at first stays for ever."""

    def __init__(self, admin: Client) -> None:
        self._admin = admin
        self._first = {path for _, path, _ in self._there()}
        self._written: set[str] = set()

    def show(self, folder: Path, seconds: float = 180) -> None:
        """Deletes what an earlier fixture and its runs left, writes what this one holds, and waits until nodes are
        usable and controllers have made their part.

        Raises Unseedable, Refused with the API server's own words, and TimeoutError naming what is not as it should be.
        """
        read = fixture.load(folder)
        if read.config.faults or read.config.logs or read.config.poses_as:
            raise Unseedable(f"{folder}: faults, logs and poses_as are the embedded server's own")
        if any(actor.name == READS_LOG for actor in read.config.actors):
            raise Unseedable(f"{folder}: {READS_LOG} reads the embedded server's request log")
        store, catalog = Store(), Catalog()
        fill(store, catalog, read)
        resources = {resource.table: resource for resource in reversed(catalog.all())}  # v1 before its betas
        patched = {patch.target for patch in read.config.patches}
        wanted: dict[str, tuple[Resource, Obj]] = {}
        for table in [*_FIRST, *(t for t in sorted(resources) if t not in (*_FIRST, *_LAST)), *_LAST]:
            for entry in store.all(table):
                resource, obj = resources[table], entry.object()
                if not obj["metadata"].get("ownerReferences"):
                    wanted[_path(resource, obj)] = resource, obj
                elif (label := _label(resource, obj)) in patched:
                    raise Unseedable(f"{label} is patched, and made anew by its real controller")
        marks = {path: _unmark(obj) for path, (resource, obj) in wanted.items() if resource.table == _NODES}
        _until(seconds, lambda: self._superfluous(wanted))
        for path in self._written.difference(wanted):
            self._admin.send("DELETE", path)
        self._written = {path for path, (resource, _) in wanted.items() if resource.table in _MADE_BY_ITSELF}
        for path, (resource, obj) in wanted.items():
            _write(self._admin, resource, path, obj)
            if resource.table == CRDS:
                _until(seconds, partial(self._unserved, path))
        _until(seconds, partial(self._unfinished, _daemons(store)))
        for path, later in marks.items():
            for part, place in (("spec", path), ("status", f"{path}/status")):
                if later[part]:
                    self._admin.merge(place, {part: later[part]})
        _until(seconds, partial(self._untainted, marks))

    def _there(self) -> Iterator[tuple[Resource, str, Obj]]:
        """Everything on the plane that a fixture or a run can have made, with its path."""
        catalog = Catalog()
        for crd in self._admin.call("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]:
            catalog.define(crd["metadata"]["name"], crd)
        for resource in {r.table: r for r in reversed(catalog.all()) if r.table not in _MADE_BY_ITSELF}.values():
            for obj in self._listed(resource):
                if obj["metadata"].get("namespace") != "kube-node-lease":  # by these kwok keeps nodes alive
                    yield resource, _path(resource, obj), obj

    def _listed(self, resource: Resource) -> list[Obj]:
        end = time.monotonic() + 180
        while True:
            reply = self._admin.send("GET", _collection(resource, ""))
            if reply.code == 200:
                found: list[Obj] = reply.body["items"]
                return found
            if reply.code in (404, 405):  # not served by this server, or no more; nothing that is listed
                return []
            if reply.code != 429 or time.monotonic() > end:  # 429: its definition has just come or is going
                raise Refused(reply.code, reply.body)
            time.sleep(0.1)

    def _superfluous(self, wanted: dict[str, tuple[Resource, Obj]]) -> Iterator[str]:
        """Deletes what does not belong there, and names it while it is still there."""
        there = [(resource, path, obj) for resource, path, obj in self._there() if path not in self._first]
        kept = {
            obj["metadata"]["uid"]
            for resource, path, obj in there
            if path in wanted and resource.table not in _ALWAYS_NEW and not (resource.table == _JOBS and _odd(obj))
        }
        nodes = {"", *(obj["metadata"]["name"] for resource, obj in wanted.values() if resource.table == _NODES)}
        for table in (("apps", "replicasets"), _PODS):
            kept |= {
                obj["metadata"]["uid"]
                for resource, _, obj in there
                if resource.table == table and _owners(obj) and kept.issuperset(_owners(obj))
                if obj["spec"].get("nodeName", "") in nodes and not _odd(obj)
            }
        # Webhooks first, since they can refuse the rest; definitions and namespaces last.
        for _, path, obj in sorted(there, key=lambda t: _ORDER.get(t[0].group, 1) + (t[0].table == _NAMESPACES)):
            if obj["metadata"]["uid"] not in kept:
                yield path
                if obj["metadata"].get("finalizers"):
                    self._admin.send("PATCH", path, {"metadata": {"finalizers": None}}, MERGE_PATCH)
                self._admin.send("DELETE", path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})

    def _unserved(self, path: str) -> Iterator[str]:
        definition = self._admin.call("GET", path)
        conditions = {c["type"]: c["status"] for c in definition.get("status", {}).get("conditions") or ()}
        if conditions.get("Established") != "True":
            yield path

    def _untainted(self, marks: dict[str, Obj]) -> Iterator[str]:
        """What the node lifecycle controller makes of the marks."""
        for path, later in marks.items():
            due = {("node.kubernetes.io/unschedulable", "NoSchedule")} if "unschedulable" in later["spec"] else set()
            if later["status"]:  # two loops of the controller, each with its effect
                due |= {("node.kubernetes.io/not-ready", effect) for effect in ("NoSchedule", "NoExecute")}
            taints = self._admin.call("GET", path)["spec"].get("taints", ()) if due else ()
            if not due <= {(taint["key"], taint["effect"]) for taint in taints}:
                yield path

    def _unfinished(self, daemons: Counter[tuple[str, str]]) -> Iterator[str]:
        """What kubelets and controllers still have to do. daemons: how many pods each DaemonSet has in the fixture; it
        wants fewer as long as its controller has not seen that a node is usable."""
        for node in self._admin.call("GET", "/api/v1/nodes")["items"]:
            if any(taint["key"] == "node.kubernetes.io/not-ready" for taint in node["spec"].get("taints", ())):
                yield f"Node {node['metadata']['name']}"
        for pod in self._admin.call("GET", "/api/v1/pods")["items"]:
            meta, phase = pod["metadata"], pod["status"].get("phase")
            if phase == "Pending" and HOLD not in meta.get("annotations", {}):
                yield f"Pod {meta['name']} (Pending on {pod['spec'].get('nodeName', 'no node')})"
            elif _owners(pod) and "deletionTimestamp" in meta:
                yield f"Pod {meta['name']} (Terminating)"
        for table, done in ((_DAEMONSETS, _rolled_out), (_DEPLOYMENTS, _available), (_JOBS, _complete)):
            for obj in self._admin.call("GET", f"/apis/{table[0]}/v1/{table[1]}")["items"]:
                if not done(obj):
                    yield f"{table[1]} {obj['metadata']['name']} {obj['status']}"
        for daemonset in self._admin.call("GET", "/apis/apps/v1/daemonsets")["items"]:
            meta, wanted = daemonset["metadata"], daemonset["status"].get("desiredNumberScheduled", 0)
            if wanted < (due := daemons[meta["namespace"], meta["name"]]):
                yield f"daemonsets {meta['name']} (wants {wanted} pods of {due})"


def users(plane: ControlPlane, folder: Path) -> dict[str, Path]:
    """Kubeconfigs of the fixture's users by the fixture's name of them; each one's API name is its context."""
    return {
        user.name: plane.user(user.username or user.name, *user.groups) for user in fixture.load(folder).config.users
    }


# --- objects


def _collection(resource: Resource, namespace: str) -> str:
    root = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
    inside = f"/namespaces/{namespace}" if resource.namespaced and namespace else ""
    return f"{root}{inside}/{resource.plural}"


def _path(resource: Resource, obj: Obj) -> str:
    return f"{_collection(resource, obj['metadata'].get('namespace', ''))}/{obj['metadata']['name']}"


def _label(resource: Resource, obj: Obj) -> str:
    meta = obj["metadata"]
    return "/".join(part for part in (resource.kind, meta.get("namespace", ""), meta["name"]) if part)


def _owners(obj: Obj) -> set[str]:
    return {owner["uid"] for owner in obj["metadata"].get("ownerReferences", ())}


def _daemons(store: Store) -> Counter[tuple[str, str]]:
    """How many pods each DaemonSet has, by its namespace and name."""
    pods = [entry.object()["metadata"] for entry in store.all(_PODS)]
    owners = [(meta["namespace"], owner) for meta in pods for owner in meta.get("ownerReferences", ())]
    return Counter((place, owner["name"]) for place, owner in owners if owner["kind"] == "DaemonSet")


def _odd(obj: Obj) -> bool:
    """Whether somebody is deleting it, or its node was not ready and no kubelet has said since that the pod is."""
    conditions = {c["type"]: c["status"] for c in obj["status"].get("conditions") or ()}
    lost = obj["status"].get("phase") == "Running" and conditions.get("Ready") != "True"
    return lost or "deletionTimestamp" in obj["metadata"]


def _unmark(node: Obj) -> Obj:
    """Takes cordon, taints and unreadiness off a node and gives what belongs there later: the pods were there before
    them. Taints of its role stay."""
    spec = node["spec"]
    later: Obj = {"spec": {}, "status": {}}
    if spec.pop("unschedulable", False):
        later["spec"]["unschedulable"] = True
    taints = spec.get("taints", [])
    role = [taint for taint in taints if taint["key"].startswith("node-role.kubernetes.io/")]
    if role != taints:
        later["spec"]["taints"], spec["taints"] = taints, role
    conditions = node["status"].get("conditions", [])
    if any(c["type"] == "Ready" and c["status"] != "True" for c in conditions):
        later["status"]["conditions"] = conditions
        node["status"]["conditions"] = [c | ({"status": "True"} if c["type"] == "Ready" else {}) for c in conditions]
    return later


def _write(admin: Client, resource: Resource, path: str, obj: Obj) -> None:
    """Creates an object, or makes the one that is there the same."""
    meta, status = obj["metadata"], obj.get("status") or {}
    kept: Obj = {key: meta[key] for key in ("name", "namespace", "labels", "annotations", "finalizers") if key in meta}
    notes = kept.setdefault("annotations", {})
    body = {"apiVersion": resource.api_version, "kind": resource.kind, **obj, "metadata": kept}
    if resource.table == _NODES:
        notes.update(PLAYED)
    elif resource.table == _PODS and status:  # kwok must not write a status of its own first
        notes[HOLD] = "true"
    else:
        body.pop("status", None)
    reply = admin.send("POST", path.rpartition("/")[0], body)
    if reply.code == 409:
        _replace(admin, resource, path, body)
    elif reply.code != 201:
        raise Refused(reply.code, reply.body)
    if status and resource.status and (resource.custom or resource.table in _STATUS_OF_FIXTURE):
        admin.merge(f"{path}/status", {"status": status})
    if resource.table == _PODS and meta.get("deletionTimestamp"):
        admin.send("DELETE", path, {"gracePeriodSeconds": meta.get("deletionGracePeriodSeconds", 30)})
    elif resource.table == _PODS and status and status.get("phase") != "Pending":
        admin.merge(path, {"metadata": {"annotations": {HOLD: None}}})


def _replace(admin: Client, resource: Resource, path: str, body: Obj) -> None:
    if resource.table == _NAMESPACES:
        marks = body["metadata"]
        marks["annotations"] = {k: v for k, v in marks["annotations"].items() if k != REHEARSAL}
        admin.merge(path, {"metadata": marks})
        return
    if resource.table == _JOBS:  # cannot be changed, and has run
        return
    while True:
        before = admin.call("GET", path)
        body["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"]
        reply = admin.send("PUT", path, body)
        if reply.code == 200:
            break
        if reply.code != 409:  # 409: a controller wrote it between the two
            raise Refused(reply.code, reply.body)
    after = reply.body
    changed = before["metadata"].get("generation") != after["metadata"].get("generation")
    if resource.table == _DAEMONSETS and changed:  # OnDelete, or one node after the other
        namespace, generation = after["metadata"]["namespace"], after["metadata"]["generation"]
        # A pod that is deleted before the controller knows the new template is made again from the old one.
        eventually(lambda: admin.call("GET", path)["status"].get("observedGeneration") == generation)
        for pod in admin.call("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]:
            if after["metadata"]["uid"] in _owners(pod):
                admin.send("DELETE", f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}")


# --- waiting


def _until(seconds: float, missing: Callable[[], Iterable[str]]) -> None:
    end = time.monotonic() + seconds
    while lacks := sorted(missing()):
        if time.monotonic() > end:
            raise TimeoutError(f"not as it should be after {seconds} s: {', '.join(lacks)}")
        time.sleep(0.1)


def _rolled_out(obj: Obj) -> bool:
    status = obj["status"]
    wanted = status.get("desiredNumberScheduled", 0)
    settled = status.get("observedGeneration") == obj["metadata"]["generation"]
    return bool(settled and status.get("numberReady", 0) == status.get("updatedNumberScheduled", 0) == wanted)


def _available(obj: Obj) -> bool:
    status = obj["status"]
    settled = status.get("observedGeneration") == obj["metadata"]["generation"]
    counts = {status.get(kind, 0) for kind in ("replicas", "updatedReplicas", "availableReplicas")}
    return bool(settled and counts == {obj["spec"].get("replicas", 1)})


def _complete(obj: Obj) -> bool:
    return "completionTime" in obj["status"]
