"""Fill an empty store from a fixture: its files, what it has generated, and what every cluster has."""

from __future__ import annotations

import msgspec

from gpurunbook.embedded.access import bootstrap
from gpurunbook.embedded.defaults import whole
from gpurunbook.embedded.fixture import Config, FixtureError, Seed, reference, uid
from gpurunbook.embedded.generate import Generate, Pod, nodes, placements, pods, tenants
from gpurunbook.embedded.patches import merge
from gpurunbook.embedded.resources import CRDS, Catalog, plural_of
from gpurunbook.embedded.status import Obj
from gpurunbook.embedded.store import Store, selected_fields

REHEARSAL = "gpurunbook.io/rehearsal"
_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_PODS, _NODES = ("", "pods"), ("", "nodes")
_ORDER = {"CustomResourceDefinition": 0, "Namespace": 1}


def _namespace(name: str) -> Obj:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


class _Filling:
    """One pass over a seed."""

    def __init__(self, store: Store, catalog: Catalog, seed: Seed) -> None:
        self.store, self.catalog, self.config = store, catalog, seed.config
        self.present = {reference(obj) for obj in seed.objects}
        self.gone = set(self.config.remove)
        self.patches: dict[str, list[Obj]] = {}
        for patch in self.config.patches:
            self.patches.setdefault(patch.target, []).append(patch.merge)
        self.met: set[str] = set()

    def made(self, obj: Obj) -> None:
        """Store an object that no file holds, unless one does, and as cluster.yaml patches it."""
        label = reference(obj)
        if label in self.gone:
            self.met.add(label)
        elif label not in self.present:
            for patch in self.patches.get(label, ()):
                self.met.add(label)
                obj = merge(obj, patch)
            self.put(obj)

    def put(self, obj: Obj) -> None:
        """Complete one object and store it."""
        label = reference(obj)
        resource = self.catalog.of_kind(obj["apiVersion"], obj["kind"])
        if resource is None:
            text = f"{label}: {obj['apiVersion']} {obj['kind']} is not served"
            raise FixtureError(f"{text}; add its CustomResourceDefinition to the fixture")
        meta: Obj = {**obj["metadata"]}
        place = meta.get("namespace", "") if resource.namespaced else ""
        if resource.namespaced and not place:
            raise FixtureError(f"{label}: metadata.namespace is missing")
        meta.setdefault("uid", uid(self.config.name, obj["kind"], place, meta["name"]))
        meta.setdefault("creationTimestamp", self.config.created)
        if resource.generation:
            meta.setdefault("generation", 1)
        stored = {"metadata": meta} | {k: v for k, v in obj.items() if k not in ("apiVersion", "kind", "metadata")}
        whole(resource, stored)
        if obj["kind"] == "Namespace":
            _complete_namespace(stored, self.config)
        if resource.table == CRDS:
            self.catalog.define(meta["name"], obj)
        self.store.write(resource.table, (place, meta["name"]), stored)

    def pod(self, pod: Pod) -> None:
        """Store a generated pod: as bytes where nothing is asked of it."""
        label = f"Pod/{pod.namespace}/{pod.name}"
        if label in self.gone or label in self.patches:
            return self.made({"apiVersion": "v1", "kind": "Pod", **msgspec.json.decode(pod.raw)})
        if label in self.present:
            return None
        name = (pod.namespace, pod.name)
        raw = pod.raw.replace(b"@RV@", str(self.store.rv + 1).encode())
        fields = selected_fields(_PODS, name, pod.like) | {"spec.nodeName": pod.node}
        return self.store.load(_PODS, name, raw, pod.like["metadata"]["labels"], fields)


def _rolled_out(count: int) -> Obj:
    names = (
        "currentNumberScheduled",
        "desiredNumberScheduled",
        "numberAvailable",
        "numberReady",
        "updatedNumberScheduled",
    )
    return dict.fromkeys(names, count) | {"numberMisscheduled": 0, "observedGeneration": 1}


def _complete_namespace(stored: Obj, config: Config) -> None:
    meta = stored["metadata"]
    meta["labels"] = {"kubernetes.io/metadata.name": meta["name"], **(meta.get("labels") or {})}
    stored["spec"] = stored["spec"] or {"finalizers": ["kubernetes"]}
    stored["status"] = stored["status"] or {"phase": "Active"}
    if meta["name"] == "kube-system":
        meta["uid"] = config.uid or meta["uid"]
        if config.poses_as != "live":
            meta["annotations"] = {**(meta.get("annotations") or {}), REHEARSAL: "embedded"}


def _generate(filling: _Filling, store: Store, wanted: Generate) -> None:
    """Nodes, then the pods of the workloads that there are on all nodes that there are, then tenants."""
    for obj in nodes(wanted):
        filling.made(obj)
    workloads = []
    for group, kind in (("apps", "DaemonSet"), ("apps", "ReplicaSet"), ("batch", "Job")):
        entries = store.all((group, plural_of(kind)))
        workloads += [{"apiVersion": f"{group}/v1", "kind": kind, **entry.object()} for entry in entries]
    there = [entry.object() for entry in store.all(_NODES)]
    placed = list(placements(workloads, there))
    for name in tenants(wanted, len(placed)):
        filling.made(_namespace(name))
    for workload in workloads:
        if workload["kind"] == "DaemonSet" and not workload["status"]:
            count = sum(1 for owner, _ in placed if owner is workload)
            filling.put(workload | {"status": _rolled_out(count)})
    for pod in pods(wanted, placed, [node for node in there if not node["spec"].get("taints")]):
        filling.pod(pod)


def fill(store: Store, catalog: Catalog, seed: Seed) -> None:
    """Store all that the seed says. Raises FixtureError for an object of an unknown kind or a patch of nothing."""
    filling = _Filling(store, catalog, seed)
    for obj in sorted(seed.objects, key=lambda obj: _ORDER.get(obj["kind"], 2)):
        filling.put(obj)
    for obj in [*map(_namespace, _NAMESPACES), *bootstrap()]:
        filling.made(obj)
    if seed.config.generate:
        _generate(filling, store, seed.config.generate)
    unmet = sorted((filling.gone | filling.patches.keys()) - filling.met)
    if unmet:
        raise FixtureError(f"cluster.yaml removes or patches {', '.join(unmet)}: no such object in the fixture")
    store.compact()
