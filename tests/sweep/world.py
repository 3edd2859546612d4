"""What a cluster has come to, and how: from the log of its server, in which every version of every object stands."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from stage import NODE, Place

from gpurunbook.nodes.cordon import ANNOTATION, TAINT

LEASE = f"gpurunbook-node-{NODE}"
OPERATOR = "oncall@example.com"
ADMIN = "gpurunbook-admin"
OF_A_RUN = ("run", "head", "time")
"""Words of the annotation that differ from one run to the next."""


def _versions(place: Place) -> list[tuple[str, str, Any]]:
    lines = [json.loads(line) for line in (place.state / "objects.log").read_bytes().splitlines()]
    return [("/".join(table), "/".join(name), found) for _, table, name, found in lines]


def comes_to(place: Place, *varying: str) -> dict[str, Any]:
    """Every object that was ever written after the seed, as it is now; None for what is gone.

    varying: words of the cordon's annotation that are left out, besides those of a run.
    """
    return {f"{table} {name}": _plain(found, (*OF_A_RUN, *varying)) for table, name, found in _versions(place)}


def _plain(found: Any, varying: tuple[str, ...]) -> Any:
    if found is None:
        return None
    metadata = {k: v for k, v in found["metadata"].items() if k not in {"resourceVersion", "managedFields"}}
    annotations = dict(metadata.get("annotations") or {})
    if ANNOTATION in annotations:
        owner = json.loads(annotations[ANNOTATION])
        annotations[ANNOTATION] = {k: v for k, v in owner.items() if k not in varying}
    return {**found, "metadata": {**metadata, "annotations": annotations}}


def standing(place: Place) -> str:
    """What a newcomer finds, without times and names of runs: equal words mean equal clusters for him."""
    now = comes_to(place, "plan")
    lease = now.get(f"coordination.k8s.io/leases gpu-operator/{LEASE}")
    return json.dumps([bool(lease), now.get(f"/nodes /{NODE}")], sort_keys=True)


def node(place: Place) -> dict[str, Any]:
    """The node as it is."""
    found: dict[str, Any] = place.admin.call("GET", f"/api/v1/nodes/{NODE}")
    return found


def owner(found: dict[str, Any]) -> str:
    """The run in a node's annotation, or ""."""
    text = (found["metadata"].get("annotations") or {}).get(ANNOTATION)
    return str(json.loads(text)["run"]) if text else ""


def lease_holder(place: Place) -> str:
    """The run that holds the node's lease, or ""."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/gpu-operator/leases/{LEASE}"
    reply = place.admin.send("GET", path)
    return str(reply.body["spec"]["holderIdentity"]) if reply.code == 200 else ""


def turns(place: Place) -> list[tuple[bool, bool]]:
    """How the node's guards stood, one after the other since the seed."""
    return turned(found for table, name, found in _versions(place) if (table, name) == ("/nodes", f"/{NODE}") and found)


def turned(nodes: Iterable[dict[str, Any]]) -> list[tuple[bool, bool]]:
    """The changes between versions of a node: unschedulable, our taint."""
    seen: list[tuple[bool, bool]] = []
    for found in nodes:
        taints = found["spec"].get("taints") or ()
        now = (found["spec"].get("unschedulable") is True, any(t["key"] == TAINT for t in taints))
        seen += [now] if not seen or seen[-1] != now else []
    return seen


def persisted(place: Place) -> list[tuple[str, str]]:
    """What runs have written since the cluster was copied: method and the last part of the path."""
    return [
        (entry["method"], entry["path"].rsplit("/", 1)[-1])
        for entry in place.server.log(persisted=True)
        if entry["user"] == OPERATOR
    ]
