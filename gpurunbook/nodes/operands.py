"""Operands: the DaemonSets of the GPU stack, which use the devices of every node and are nobody's workload.

A pod is an operand by its controller: namespace and name on the list below and, on a live cluster, the uid of the
DaemonSet that is there. A pod that only calls itself so is a tenant.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from gpurunbook.nodes.shapes import DaemonSet, Pod

NAMESPACES = ("gpu-operator", "nvidia-gpu-operator")
"""Where the GPU Operator runs by default, and on OpenShift."""

_OPERATOR = re.compile(
    r"gpu-feature-discovery|nvidia-(?:"
    r"cc-manager|container-toolkit-daemonset|dcgm|dcgm-exporter|device-plugin-daemonset|"
    r"device-plugin-mps-control-daemon|driver-daemonset(?:-.+)?|gpu-driver-.+|kata-manager|"
    r"kata-sandbox-device-plugin-daemonset|mig-manager|node-status-exporter|operator-validator|"
    r"sandbox-device-plugin-daemonset|sandbox-validator|vfio-manager|vgpu-device-manager|"
    r"vgpu-manager-daemonset(?:-.+)?)"
)
_DRA = re.compile(r"(?:nvidia-dra-driver-gpu|dra-driver-nvidia-gpu)-kubelet-plugin")
_ELSEWHERE = (
    (("hami-system", "kube-system"), re.compile(r"(?:.+-)?hami(?:-.+)?-device-plugin|hami-dra-driver-kubelet-plugin")),
    (("nvidia-dra-driver-gpu", "dra-driver-nvidia-gpu"), _DRA),
    (
        ("kube-system", "nvidia-device-plugin"),
        re.compile(r"nvidia-device-plugin(?:-daemonset)?|nvidia-kubevirt-gpu-dp-daemonset"),
    ),
)

_VALIDATOR = re.compile(r"nvidia-(?:device-plugin|cuda)-validator-.+")
_GFD_ACCOUNT = "nvidia-sandbox-device-plugin"


@dataclass(frozen=True)
class Known:
    """The DaemonSets that are there: uid by `namespace/name`, and the uids of what controls the operator's own."""

    uids: Mapping[str, str]
    controllers: frozenset[str]


def listed(namespace: str, name: str, operator: Collection[str] = NAMESPACES) -> bool:
    """Writes nothing. Whether a DaemonSet of this namespace and name is on the list of operands."""
    if namespace in operator and (_OPERATOR.fullmatch(name) or _DRA.fullmatch(name)):
        return True
    return any(namespace in places and pattern.fullmatch(name) for places, pattern in _ELSEWHERE)


def known(daemonsets: Iterable[DaemonSet], operator: Collection[str] = NAMESPACES) -> Known:
    """Writes nothing. What the list of DaemonSets says of the operands in it."""
    found = [d.metadata for d in daemonsets if listed(d.metadata.namespace, d.metadata.name, operator)]
    mine = [m.controller for m in found if m.namespace in operator]
    return Known({m.key: m.uid for m in found}, frozenset(o.uid for o in mine if o and o.uid))


def operand(pod: Pod, there: Known | None, operator: Collection[str] = NAMESPACES) -> bool:
    """Writes nothing. Whether the pod belongs to an operand DaemonSet. there: None when only a file is judged."""
    owner = pod.metadata.controller
    if (
        owner is None
        or (owner.apiVersion, owner.kind) != ("apps/v1", "DaemonSet")
        or not listed(pod.metadata.namespace, owner.name, operator)
    ):
        return False
    if there is None:
        return True
    return bool(owner.uid) and there.uids.get(f"{pod.metadata.namespace}/{owner.name}") == owner.uid


def operator_owned(pod: Pod, node: str, there: Known | None, operator: Collection[str] = NAMESPACES) -> bool:
    """Writes nothing. Whether the pod is a short-lived one of the operator's that takes a GPU for a while.

    `gfd-<node>` of the sandbox device plugin has no owner and a fixed service account; the validator's workload
    pods are controlled by what controls the operator's DaemonSets (ClusterPolicy).
    """
    meta = pod.metadata
    if meta.namespace not in operator:
        return False
    if meta.name == f"gfd-{node}":
        return meta.controller is None and pod.spec.serviceAccountName in (None, "", _GFD_ACCOUNT)
    if not _VALIDATOR.fullmatch(meta.name):
        return False
    return there is None or (meta.controller is not None and meta.controller.uid in there.controllers)
