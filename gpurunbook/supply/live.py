"""The objects of a live cluster that carry the tuple: which lists hold them, and what of these could be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpurunbook.plan import Need, Pages, Seen

_CLUSTER = {
    "Node": "/api/v1/nodes",
    "ClusterPolicy": "/apis/nvidia.com/v1/clusterpolicies",
    "NVIDIADriver": "/apis/nvidia.com/v1alpha1/nvidiadrivers",
    "HelmRelease": "/apis/helm.toolkit.fluxcd.io/v2/helmreleases",
}
_NAMESPACED = {
    "Pod": "/api/v1/namespaces/{}/pods",
    "DaemonSet": "/apis/apps/v1/namespaces/{}/daemonsets",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "ControllerRevision": "/apis/apps/v1/namespaces/{}/controllerrevisions",
}
_HARDWARE = {"NodeFeature": "/apis/nfd.k8s-sigs.io/v1alpha1/nodefeatures"}
"""NFD's worker writes one per node, with every PCI device (source/pci of node-feature-discovery); its labels have only
class and vendor unless it is told otherwise."""

_DEFINED = {"ClusterPolicy", "NVIDIADriver", "HelmRelease", "NodeFeature"}
"""Kinds whose definition may not be installed: then there is none of them. What only they carry is missed later."""


def needs(namespaces: Sequence[str], *, hardware: bool = False) -> dict[str, Need]:
    """Writes nothing. The lists, by kind and namespace. hardware: with what says which PCI devices a node has."""
    found: dict[str, Need] = {kind: Pages(path) for kind, path in (_CLUSTER | (_HARDWARE if hardware else {})).items()}
    for namespace in namespaces:
        found |= {f"{kind} {namespace}": Pages(path.format(namespace)) for kind, path in _NAMESPACED.items()}
    return found


def objects(seen: Seen, namespaces: Sequence[str]) -> tuple[list[Mapping[str, Any]], dict[str, str]]:
    """Writes nothing. The objects, each with its kind, and why a list could not be read, by its name in `needs`."""
    found: list[Mapping[str, Any]] = []
    unread: dict[str, str] = {}
    for name in needs(namespaces, hardware="NodeFeature" in seen):
        observed, kind = seen[name], name.split()[0]
        if observed.problem is None:
            found += [{**raw, "kind": kind} for raw in observed.value]
        elif not (kind in _DEFINED and observed.problem.code == "not-found"):
            unread[name] = observed.problem.message
    return found, unread
