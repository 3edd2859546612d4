"""To which chart a DaemonSet of the GPU and node stack belongs, and which Helm value holds its tolerations."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from gpurunbook.nodes.operands import NAMESPACES, listed

_CHART = re.compile(r"(.+?)(?:-chart)?-v?[0-9]+\..*")
_CNI_PATHS = ("/etc/cni/", "/opt/cni/")
_REGISTRAR = "node-driver-registrar"


@dataclass(frozen=True)
class Fix:
    """Where tolerations are set. part: what the DaemonSet is; where: chart or object; value: its path there."""

    part: str
    where: str
    value: str

    @property
    def spelled(self) -> str:
        """Writes nothing. `daemonsets.tolerations of chart gpu-operator`."""
        return f"{self.value} of {self.where}"


def fix(daemonset: Mapping[str, Any], operator: Collection[str] = NAMESPACES) -> Fix | None:
    """Writes nothing. Where the DaemonSet's tolerations are set; None for one that is not of the GPU or node stack."""
    metadata = daemonset.get("metadata") or {}
    labels = metadata.get("labels") or {}
    name, namespace = str(metadata.get("name", "")), str(metadata.get("namespace", ""))
    spec = ((daemonset.get("spec") or {}).get("template") or {}).get("spec") or {}
    chart = _CHART.fullmatch(str(labels.get("helm.sh/chart", "")))
    of = chart[1] if chart else ""

    if of == "node-feature-discovery" or "node-feature-discovery" in name:
        return _discovery(name, namespace, labels, operator)
    if controller := _controller(metadata):
        return controller
    if "dra-driver" in name and name.endswith("-kubelet-plugin") and "hami" not in name:
        return Fix("DRA driver", f"chart {of or 'nvidia-dra-driver-gpu'}", "kubeletPlugin.tolerations")
    if of == "gpu-operator" or (namespace in operator and listed(namespace, name, operator)):
        return Fix("GPU Operator", "chart gpu-operator", "daemonsets.tolerations")
    if (
        of == "hami"
        or labels.get("app.kubernetes.io/component") == "hami-device-plugin"
        or "hami-device-plugin" in name
    ):
        return Fix("HAMi", "chart hami", "devicePlugin.tolerations")
    if of == "kata-deploy" or re.fullmatch(r"kata-deploy(?:-.+)?", name):
        return Fix("Kata", "chart kata-deploy", "tolerations")
    part = _node_part(spec, namespace, name)
    return Fix(part, f"DaemonSet {namespace}/{name}", "spec.template.spec.tolerations") if part else None


def _controller(metadata: Mapping[str, Any]) -> Fix | None:
    """What the GPU Operator's own objects control: an NVIDIADriver has tolerations of its own."""
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller") and str(owner.get("apiVersion", "")).startswith("nvidia.com/"):
            if owner.get("kind") == "NVIDIADriver":
                return Fix("GPU Operator", f"NVIDIADriver {owner.get('name')}", "spec.tolerations")
            return Fix("GPU Operator", "chart gpu-operator", "daemonsets.tolerations")
    return None


def _discovery(name: str, namespace: str, labels: Mapping[str, str], operator: Collection[str]) -> Fix:
    role = "topologyUpdater" if "topology-updater" in name else "worker"
    parent = ""
    if namespace in operator or name.startswith("gpu-operator-"):
        parent = "gpu-operator"
    elif name.startswith("kata-deploy-") or labels.get("app.kubernetes.io/instance") == "kata-deploy":
        parent = "kata-deploy"
    if parent:
        return Fix("NFD", f"chart {parent}", f"node-feature-discovery.{role}.tolerations")
    return Fix("NFD", "chart node-feature-discovery", f"{role}.tolerations")


def _node_part(spec: Mapping[str, Any], namespace: str, name: str) -> str:
    """Network, storage and what else a node cannot do without, told by what it mounts and how critical it calls
    itself."""
    if "hami" in name and namespace == "hami-system":
        return "HAMi"
    paths = [str((v.get("hostPath") or {}).get("path", "")) + "/" for v in spec.get("volumes") or ()]
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    if any(_REGISTRAR in str(c.get("name", "")) or _REGISTRAR in str(c.get("image", "")) for c in containers):
        return "CSI"
    if any(path.startswith(_CNI_PATHS) for path in paths):
        return "CNI"
    if spec.get("priorityClassName") == "system-node-critical":
        return "node-critical"
    return ""
