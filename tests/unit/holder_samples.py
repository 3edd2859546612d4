"""Pods, claims and API answers for the tests of holders, written short."""

from __future__ import annotations

from typing import Any

import msgspec

from gpurunbook.plan import Object, Observed, Pages, Problem


def pod(short: dict[str, Any], node: str = "n1") -> dict[str, Any]:
    """A pod as the API gives it, from a short form: metadata, spec and status fields side by side."""
    short = {"namespace": "t", "nodeName": node, "phase": "Running", "containers": [{"name": "main"}], **short}
    meta = {k: short.pop(k) for k in ("name", "namespace", "annotations", "uid") if k in short}
    if short.pop("deleted", False):
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if owner := short.pop("owner", None):
        version = "apps/v1" if owner.get("kind") == "DaemonSet" else "v1"
        meta["ownerReferences"] = [{"apiVersion": version, "uid": "u", "controller": True, **owner}]
    status: dict[str, Any] = {"phase": short.pop("phase")}
    status |= {k: short.pop(k) for k in [*short] if k.endswith("tatuses") and k != "claimStatuses"}
    if statuses := short.pop("claimStatuses", None):
        status["resourceClaimStatuses"] = statuses
    if extended := short.pop("extendedClaim", None):
        status["extendedResourceClaimStatus"] = {"resourceClaimName": extended}
    if short["nodeName"] is None:
        del short["nodeName"]
    return {"metadata": meta, "spec": short, "status": status}


def claim(short: dict[str, Any]) -> dict[str, Any]:
    """A ResourceClaim of v1 from a short form."""
    found: dict[str, Any] = {
        "metadata": {"name": short["name"], "namespace": short.get("namespace", "t")},
        "spec": {"devices": {"requests": short.get("requests", [])}},
        "status": {},
    }
    if "results" in short:
        allocation: dict[str, Any] = {"devices": {"results": short["results"]}}
        term = {"matchFields": [short["fields"]]} if "fields" in short else {}
        term |= {"matchExpressions": [short["labels"]]} if "labels" in short else {}
        if term:
            allocation["nodeSelector"] = {"nodeSelectorTerms": [term]}
        found["status"]["allocation"] = allocation
    if "reservedFor" in short:
        found["status"]["reservedFor"] = short["reservedFor"]
    return found


def groups(*names: str) -> dict[str, Any]:
    """What GET /apis says when these `group/version` are served."""
    found: dict[str, list[str]] = {"apps": ["v1"], "node.k8s.io": ["v1"]}
    for name in names:
        group, _, version = name.partition("/")
        found.setdefault(group, []).append(version)
    return {
        "kind": "APIGroupList",
        "groups": [
            {"name": g, "versions": [{"version": v} for v in vs], "preferredVersion": {"version": vs[0]}}
            for g, vs in found.items()
        ],
    }


class FakeCluster:
    """Answers needs from raw API content by path and selector, through the page types, as `sources.cluster` does.

    A value that is a Problem is that problem; a path that is not there is a 404.
    """

    def __init__(self, content: dict[str, Any]) -> None:
        self.content = content
        self.asked: list[str] = []

    def observe(self, need: Any) -> Observed:
        """The need with its value or its problem."""
        path = need.path
        if isinstance(need, Pages) and (query := dict(need.query)):
            path += "?" + query["fieldSelector"]
        self.asked.append(path)
        found = self.content.get(path, Problem("not-found", f"HTTP 404: GET {path}"))
        if isinstance(found, Problem):
            return Observed(need, problem=found)
        if isinstance(need, Object):
            return Observed(need, found)
        if need.page is None:
            return Observed(need, found)
        try:
            return Observed(need, msgspec.convert({"items": found}, need.page).items or [])
        except msgspec.ValidationError as wrong:
            return Observed(need, problem=Problem("garbled", str(wrong)))


def cluster(*served: str, **more: Any) -> dict[str, Any]:
    """Content of a cluster with node n1 and nobody on it; `more`: pods, unbound, daemonsets, claims, vmis, kubevirts,
    runtimeclasses, labels."""
    content: dict[str, Any] = {
        "/apis": groups(*served),
        "/api/v1/nodes/n1": {"metadata": {"name": "n1", "uid": "n1-uid", "labels": more.get("labels", {"zone": "a"})}},
        "/api/v1/pods?spec.nodeName=n1": [pod(p) for p in more.get("pods", [])],
        "/api/v1/pods?spec.nodeName=": [pod({"nodeName": None, **p}) for p in more.get("unbound", [])],
        "/apis/apps/v1/daemonsets": more.get("daemonsets", []),
        "/apis/node.k8s.io/v1/runtimeclasses": more.get("runtimeclasses", []),
    }
    for name in served:
        if name.startswith("resource.k8s.io/"):
            content[f"/apis/{name}/resourceclaims"] = [claim(c) for c in more.get("claims", [])]
        if name.startswith("kubevirt.io/"):
            content[f"/apis/{name}/virtualmachineinstances"] = more.get("vmis", [])
            content[f"/apis/{name}/kubevirts"] = more.get("kubevirts", [])
    return content
