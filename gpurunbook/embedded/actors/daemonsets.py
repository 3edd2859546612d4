"""The DaemonSet controller, as far as runbooks meet it, with the garbage collection of its pods."""

from __future__ import annotations

import threading
import time
from typing import Any

import msgspec

from gpurunbook.embedded.actors.client import MERGE_PATCH, Client, Obj
from gpurunbook.embedded.workloads import owned_pod, template_hash, wanted_on

_APPS = "/apis/apps/v1"


def ready(pod: Obj) -> bool:
    """Whether the pod has the condition Ready."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


class DaemonSetController(msgspec.Struct, forbid_unknown_fields=True):
    """Creates missing pods, replaces old ones (RollingUpdate) or leaves them (OnDelete), and writes the status.

    settling: seconds in which changes are gathered before the next look.
    """

    settling: float = 0.05

    def act(self, client: Client) -> None:
        """Look again whenever a DaemonSet, a node or a pod changed, for ever."""
        changed = threading.Event()
        failed: list[Exception] = []

        def follow(path: str, own: Client) -> None:
            try:
                for _ in own.follow(path):
                    changed.set()
            except Exception as error:
                failed.append(error)
                changed.set()

        for path in (f"{_APPS}/daemonsets", "/api/v1/nodes", "/api/v1/pods"):
            threading.Thread(target=follow, args=(path, client.again()), daemon=True).start()
        while changed.wait():
            if failed:
                raise failed[0]
            time.sleep(self.settling)
            changed.clear()
            self.reconcile(client)

    def reconcile(self, client: Client) -> None:
        """One look at everything."""
        nodes = client.call("GET", "/api/v1/nodes")["items"]
        pods = client.call("GET", "/api/v1/pods")["items"]
        daemonsets = client.call("GET", f"{_APPS}/daemonsets")["items"]
        owned: dict[str, list[Obj]] = {item["metadata"]["uid"]: [] for item in daemonsets}
        names = {node["metadata"]["name"] for node in nodes}
        for pod in pods:
            owner = next((ref for ref in pod["metadata"].get("ownerReferences") or () if ref.get("controller")), None)
            if not owner or owner["kind"] != "DaemonSet":
                continue
            if owner["uid"] not in owned or pod["spec"].get("nodeName") not in names:
                _delete(client, pod, gracePeriodSeconds=0)
            else:
                owned[owner["uid"]].append(pod)
        for daemonset in daemonsets:
            self._one(
                client,
                {"apiVersion": "apps/v1", "kind": "DaemonSet", **daemonset},
                nodes,
                owned[daemonset["metadata"]["uid"]],
            )

    def _one(self, client: Client, daemonset: Obj, nodes: list[Obj], pods: list[Obj]) -> None:
        meta = daemonset["metadata"]
        current = template_hash(daemonset["spec"]["template"])
        by_node: dict[str, list[Obj]] = {}
        for pod in pods:
            by_node.setdefault(pod["spec"]["nodeName"], []).append(pod)
        desired = scheduled = misscheduled = 0
        for node in nodes:
            name = node["metadata"]["name"]
            start, stay = wanted_on(daemonset, node)
            there = by_node.get(name, [])
            desired += start
            scheduled += start and bool(there)
            misscheduled += not start and bool(there)
            if start and not there:
                made = owned_pod(daemonset, name, "")
                made["metadata"] |= {"generateName": f"{meta['name']}-"}
                del made["metadata"]["name"]
                client.call("POST", f"/api/v1/namespaces/{meta['namespace']}/pods", made)
            for pod in there if not stay else ():
                _delete(client, pod)
        old = [pod for pod in pods if pod["metadata"]["labels"].get("controller-revision-hash") != current]
        good = sum(1 for pod in pods if ready(pod) and "deletionTimestamp" not in pod["metadata"])
        update = daemonset["spec"].get("updateStrategy") or {}
        if update.get("type", "RollingUpdate") == "RollingUpdate":
            budget = _number((update.get("rollingUpdate") or {}).get("maxUnavailable", 1), desired) - (desired - good)
            alive = [pod for pod in old if "deletionTimestamp" not in pod["metadata"]]
            for pod in sorted(alive, key=ready)[: max(0, budget)]:
                _delete(client, pod)
        status = {
            "currentNumberScheduled": scheduled,
            "desiredNumberScheduled": desired,
            "numberAvailable": good,
            "numberMisscheduled": misscheduled,
            "numberReady": good,
            "numberUnavailable": max(0, desired - good),
            "observedGeneration": meta.get("generation", 1),
            "updatedNumberScheduled": len(pods) - len(old),
        }
        seen = daemonset.get("status") or {}
        if any(seen.get(key, 0) != value for key, value in status.items()):
            path = f"{_APPS}/namespaces/{meta['namespace']}/daemonsets/{meta['name']}/status"
            client.call("PATCH", path, {"status": status}, MERGE_PATCH)


def _number(value: Any, whole: int) -> int:
    """A number, or a percentage of the whole, rounded up."""
    if isinstance(value, str) and value.endswith("%"):
        return -(-int(value[:-1]) * whole // 100)
    return int(value)


def _delete(client: Client, pod: Obj, **options: Any) -> None:
    meta = pod["metadata"]
    if "deletionTimestamp" in meta and not options:
        return
    path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
    client.send("DELETE", path, {"preconditions": {"uid": meta["uid"]}, **options})
