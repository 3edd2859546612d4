"""Fill an empty store from a fixture: its files, what it has generated, and what every cluster has."""

from __future__ import annotations

import msgspec

from gpurunbook.embedded.access import bootstrap
from gpurunbook.embedded.defaults import whole
from gpurunbook.embedded.fixture import Config, FixtureError, Seed, reference, uid
from gpurunbook.embedded.generate import Generate, Pod, namespaces, nodes, pods
from gpurunbook.embedded.patches import merge
from gpurunbook.embedded.resources import CRDS, Catalog
from gpurunbook.embedded.status import Obj
from gpurunbook.embedded.store import Store, selected_fields

REHEARSAL = "gpurunbook.io/rehearsal"
_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_PODS = ("", "pods")
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
        if obj["kind"] == "DaemonSet" and self.config.generate:
            stored["status"] = stored["status"] or _rolled_out(self.config.generate.nodes)
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


def _rolled_out(nodes: int) -> Obj:
    names = (
        "currentNumberScheduled",
        "desiredNumberScheduled",
        "numberAvailable",
        "numberReady",
        "updatedNumberScheduled",
    )
    return dict.fromkeys(names, nodes) | {"numberMisscheduled": 0, "observedGeneration": 1}


def _complete_namespace(stored: Obj, config: Config) -> None:
    meta = stored["metadata"]
    meta["labels"] = {"kubernetes.io/metadata.name": meta["name"], **(meta.get("labels") or {})}
    stored["spec"] = stored["spec"] or {"finalizers": ["kubernetes"]}
    stored["status"] = stored["status"] or {"phase": "Active"}
    if meta["name"] == "kube-system":
        meta["uid"] = config.uid or meta["uid"]
        if config.poses_as != "live":
            meta["annotations"] = {**(meta.get("annotations") or {}), REHEARSAL: "embedded"}


def _workloads(store: Store) -> list[Obj]:
    """The stored objects whose pods are generated, in the order in which they were seeded."""
    kinds = {"daemonsets": "DaemonSet", "replicasets": "ReplicaSet", "jobs": "Job"}
    found = []
    for plural, kind in kinds.items():
        group = "batch" if kind == "Job" else "apps"
        for entry in store.all((group, plural)):
            found.append((entry.rv, {"apiVersion": f"{group}/v1", "kind": kind, **entry.object()}))
    return [obj for _, obj in sorted(found, key=lambda pair: pair[0])]


def fill(store: Store, catalog: Catalog, seed: Seed) -> None:
    """Store all that the seed says. Raises FixtureError for an object of an unknown kind or a patch of nothing."""
    filling = _Filling(store, catalog, seed)
    for obj in sorted(seed.objects, key=lambda obj: _ORDER.get(obj["kind"], 2)):
        filling.put(obj)
    for obj in [*map(_namespace, _NAMESPACES), *bootstrap()]:
        filling.made(obj)
    wanted: Generate | None = seed.config.generate
    if wanted and wanted.nodes:
        workloads = _workloads(store)
        for obj in [*nodes(wanted), *map(_namespace, namespaces(wanted, workloads))]:
            filling.made(obj)
        for pod in pods(wanted, workloads):
            filling.pod(pod)
    unmet = sorted((filling.gone | filling.patches.keys()) - filling.met)
    if unmet:
        raise FixtureError(f"cluster.yaml removes or patches {', '.join(unmet)}: no such object in the fixture")
    store.compact()
