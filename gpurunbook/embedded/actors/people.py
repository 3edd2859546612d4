"""Other hands: they cordon, uncordon, place pods, and take nodes away, at a moment that a test chooses."""

from __future__ import annotations

import re
import time
from typing import Any

import msgspec

from gpurunbook.embedded.actors.client import MERGE_PATCH, Client, Obj, Refused

_GONE = 404
_REGISTERED = ("kubernetes.io/", "node.kubernetes.io/", "beta.kubernetes.io/")


class Trigger(msgspec.Struct, forbid_unknown_fields=True):
    """When: an object of the collection `path` has the name (a regular expression) and the value; then `after` seconds.

    The value is that at the dotted `field`; with `equals` left out it only has to be there.
    """

    path: str = ""
    name: str = ".*"
    field: str = ""
    equals: Any = None
    after: float = 0

    def wait(self, client: Client) -> None:
        """Come back when it is time."""
        for event in client.follow(self.path) if self.path else ():
            if event["type"] != "DELETED" and self._meets(event["object"]):
                break
        time.sleep(self.after)

    def _meets(self, obj: Obj) -> bool:
        if not re.fullmatch(self.name, obj["metadata"]["name"]):
            return False
        value: Any = obj
        for part in self.field.split(".") if self.field else ():
            value = value.get(part) if isinstance(value, dict) else None
        return value == self.equals if self.equals is not None else value is not None


def _node(name: str) -> str:
    return f"/api/v1/nodes/{name}"


class Cordoner(msgspec.Struct, forbid_unknown_fields=True):
    """Cordons a node once, as kubectl does: nothing but spec.unschedulable."""

    node: str
    when: Trigger = msgspec.field(default_factory=Trigger)

    def act(self, client: Client) -> None:
        """Wait, and cordon."""
        self.when.wait(client)
        client.call("PATCH", _node(self.node), {"spec": {"unschedulable": True}}, MERGE_PATCH)


class FightsCordon(msgspec.Struct, forbid_unknown_fields=True):
    """Uncordons a node `delay` seconds after each time that it finds it cordoned, `times` times (0: always).

    taints: `leave` them, as the driver manager and the upgrade controller do, or `remove` all of them.
    """

    node: str
    times: int = 1
    delay: float = 0.3
    taints: str = "leave"
    when: Trigger = msgspec.field(default_factory=Trigger)

    def act(self, client: Client) -> None:
        """Wait, and uncordon until it was done often enough."""
        self.when.wait(client)
        done = 0
        for event in client.follow("/api/v1/nodes", fieldSelector=f"metadata.name={self.node}"):
            if event["type"] == "DELETED" or not event["object"]["spec"].get("unschedulable"):
                continue
            time.sleep(self.delay)
            patch: Obj = {"spec": {"unschedulable": False}}
            if self.taints == "remove":
                patch["spec"]["taints"] = None
            client.call("PATCH", _node(self.node), patch, MERGE_PATCH)
            done += 1
            if done == self.times:
                return


class LandsPods(msgspec.Struct, forbid_unknown_fields=True):
    """Places `times` pods on a node as soon as it is schedulable, or, `forced`, whatever the cordon says."""

    node: str
    namespace: str = "default"
    name: str = "landed-"
    times: int = 1
    every: float = 0
    forced: bool = False
    resources: dict[str, str] = msgspec.field(default_factory=lambda: {"nvidia.com/gpu": "1"})
    when: Trigger = msgspec.field(default_factory=Trigger)

    def act(self, client: Client) -> None:
        """Wait, and create the pods."""
        self.when.wait(client)
        for _ in range(self.times):
            for event in client.follow("/api/v1/nodes", fieldSelector=f"metadata.name={self.node}"):
                if event["type"] != "DELETED" and (self.forced or not event["object"]["spec"].get("unschedulable")):
                    break
            container = {"name": "main", "image": "registry.example/landed:1", "resources": {"limits": self.resources}}
            spec = {"containers": [container], "nodeName": self.node, "tolerations": [{"operator": "Exists"}]}
            body = {"metadata": {"generateName": self.name}, "spec": spec}
            client.call("POST", f"/api/v1/namespaces/{self.namespace}/pods", body)
            time.sleep(self.every)


class NodeRejoin(msgspec.Struct, forbid_unknown_fields=True):
    """Deletes a node object; after `away` seconds its kubelet registers it again: a new uid, no cordon, no annotations.

    keep_labels: all labels come back with it, as from a kubelet configuration, and not only a kubelet's own.
    """

    node: str
    away: float = 0.5
    keep_labels: bool = True
    when: Trigger = msgspec.field(default_factory=Trigger)

    def act(self, client: Client) -> None:
        """Wait, delete, wait, create."""
        self.when.wait(client)
        node = client.call("GET", _node(self.node))
        try:
            client.call("DELETE", _node(self.node))
        except Refused as refused:
            if refused.code != _GONE:
                raise
        time.sleep(self.away)
        labels = node["metadata"].get("labels") or {}
        kept = {key: value for key, value in labels.items() if self.keep_labels or key.startswith(_REGISTERED)}
        spec = {key: value for key, value in node["spec"].items() if key in ("podCIDR", "podCIDRs", "providerID")}
        body = {"metadata": {"name": self.node, "labels": kept}, "spec": spec, "status": node["status"]}
        client.call("POST", "/api/v1/nodes", body)
