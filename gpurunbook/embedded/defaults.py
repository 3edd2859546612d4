"""What an API server fills in when an object is created, as far as somebody reads it."""

from __future__ import annotations

import datetime as dt

from gpurunbook.embedded.resources import Resource
from gpurunbook.embedded.status import Obj

_SPEC = ("DeviceClass", "Lease", "NetworkPolicy", "ResourceClaimTemplate", "ResourceSlice")


def whole(resource: Resource, obj: Obj) -> None:
    """Give a built-in object the empty spec and status that Go always writes, in place."""
    if not resource.custom and (resource.status or resource.kind in _SPEC):
        obj["spec"] = obj.get("spec") or {}
    if not resource.custom and resource.status:
        obj["status"] = obj.get("status") or {}


def complete(resource: Resource, obj: Obj, now: dt.datetime) -> None:
    """Fill in defaults of a new object, in place."""
    whole(resource, obj)
    meta, spec = obj["metadata"], obj.get("spec", {})
    if resource.kind == "Namespace":
        meta["labels"] = {**(meta.get("labels") or {}), "kubernetes.io/metadata.name": meta.get("name", "")}
        obj["spec"] = {"finalizers": ["kubernetes"]}
        obj["status"] = {"phase": "Active"}
    elif resource.kind == "Pod":
        _pod(obj, spec)
    elif resource.kind == "DaemonSet":
        spec.setdefault(
            "updateStrategy", {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
        )
        spec.setdefault("revisionHistoryLimit", 10)
        obj["status"] = dict.fromkeys(
            ("currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"), 0
        )
    elif resource.kind == "CustomResourceDefinition":
        at = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        kinds = {"NamesAccepted": "NoConflicts", "Established": "InitialNamesAccepted"}
        conditions = [
            {"type": kind, "status": "True", "reason": reason, "message": "", "lastTransitionTime": at}
            for kind, reason in kinds.items()
        ]
        obj["status"] = {"acceptedNames": spec.get("names", {}), "conditions": conditions}


def count_template(resource: Resource, old: Obj, new: Obj) -> None:
    """Count the templates of a DaemonSet, where the server does: pods carry the number as a label."""
    if resource.kind == "DaemonSet" and old["spec"].get("template") != new["spec"].get("template"):
        name = "deprecated.daemonset.template.generation"
        annotations = new["metadata"].get("annotations") or {}
        new["metadata"]["annotations"] = annotations | {name: str(int(annotations.get(name, "1")) + 1)}


def _pod(obj: Obj, spec: Obj) -> None:
    for name, value in (
        ("dnsPolicy", "ClusterFirst"),
        ("restartPolicy", "Always"),
        ("schedulerName", "default-scheduler"),
        ("securityContext", {}),
        ("terminationGracePeriodSeconds", 30),
    ):
        spec.setdefault(name, value)
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        container.setdefault("resources", {})
    tolerations = spec.get("tolerations") or []
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(toleration.get("key") in (key, None) for toleration in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    spec["tolerations"] = tolerations
    obj["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
