"""What kubelets and workload controllers make of a template: pods, and the status of running ones. No I/O."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec

from gpurunbook.embedded.status import Obj

Runtime = Literal["containerd", "crio", "docker"]
CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
_SCHEMES = {"containerd": "containerd", "crio": "cri-o", "docker": "docker"}
# what the DaemonSet controller adds to every pod
_ADDED = [("not-ready", "NoExecute"), ("unreachable", "NoExecute")]
_ADDED += [(key, "NoSchedule") for key in ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")]
_TOLERATIONS = [{"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect} for key, effect in _ADDED]


def digest(text: str) -> str:
    """The SHA-256 that stands for an image or a name."""
    return hashlib.sha256(("fixture:" + text).encode()).hexdigest()


def image_id(image: str, runtime: Runtime) -> str:
    """What a runtime writes into imageID for an image that it resolved."""
    name, _, pinned = image.partition("@")
    head, slash, leaf = name.rpartition("/")
    value = f"{head}{slash}{leaf.partition(':')[0]}@{pinned or 'sha256:' + digest(image)}"
    return "docker-pullable://" + value if runtime == "docker" else value


def template_hash(template: Any) -> str:
    """The controller-revision-hash of a pod template."""
    return hashlib.sha256(msgspec.json.encode(template, order="deterministic")).hexdigest()[:10]


def tolerates(tolerations: list[Obj], taint: Obj) -> bool:
    """Whether one of the tolerations is for the taint."""
    for toleration in tolerations:
        key, effect = toleration.get("key"), toleration.get("effect")
        if (key and key != taint["key"]) or (effect and effect != taint["effect"]):
            continue
        if toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", ""):
            return True
    return False


def wanted_on(daemonset: Obj, node: Obj) -> tuple[bool, bool]:
    """Whether a pod of it should be started on the node, and whether one that is there may go on."""
    spec = daemonset["spec"]["template"]["spec"]
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False, False
    tolerations = [*(spec.get("tolerations") or ()), *_TOLERATIONS]
    against = [t["effect"] for t in node["spec"].get("taints") or () if not tolerates(tolerations, t)]
    return not {"NoSchedule", "NoExecute"} & set(against), "NoExecute" not in against


def owned_pod(owner: Obj, node: str, name: str) -> Obj:
    """The pod that a controller makes from its template for a node. Without uid and status."""
    meta, template = owner["metadata"], owner["spec"]["template"]
    spec: Obj = {**template["spec"], "nodeName": node}
    labels = dict((template.get("metadata") or {}).get("labels") or {})
    if owner["kind"] == "DaemonSet":
        generation = (meta.get("annotations") or {}).get("deprecated.daemonset.template.generation", "1")
        labels |= {"controller-revision-hash": template_hash(template), "pod-template-generation": generation}
        spec["tolerations"] = [*spec.get("tolerations", ()), *_TOLERATIONS]
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("schedulerName", "default-scheduler")
    ref = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": meta["namespace"],
            "labels": labels,
            "ownerReferences": [ref | {"controller": True, "blockOwnerDeletion": True}],
        },
        "spec": spec,
    }


def started(pod: Obj, at: str, runtime: Runtime = "containerd", *, ended: bool = False, salt: str = "") -> Obj:
    """The status that a kubelet gives a pod whose containers all run, or, `ended`, have all succeeded."""

    def container(spec: Obj, over: bool) -> Obj:
        state: Obj = {"running": {"startedAt": at}}
        if over:
            state = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": at, "finishedAt": at}}
        key = f"cid:{pod['metadata'].get('uid', '')}/{salt}/{spec['name']}"
        return {
            "name": spec["name"],
            "image": spec["image"],
            "imageID": image_id(spec["image"], runtime),
            "containerID": f"{_SCHEMES[runtime]}://{digest(key)}",
            "ready": not ended,
            "restartCount": 0,
            "started": not over,
            "state": state,
            "lastState": {},
        }

    spec = pod["spec"]
    status: Obj = {"phase": "Succeeded" if ended else "Running"}
    status["conditions"] = [
        {"type": kind, "status": "False" if ended else "True", "lastProbeTime": None, "lastTransitionTime": at}
        for kind in CONDITIONS
    ]
    status["startTime"] = at
    if spec.get("initContainers"):
        status["initContainerStatuses"] = [
            container(init, init.get("restartPolicy") != "Always") for init in spec["initContainers"]
        ]
    status["containerStatuses"] = [container(main, ended) for main in spec["containers"]]
    return status
