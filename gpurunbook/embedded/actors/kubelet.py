"""The kubelets of all nodes: pods on a node start, and go away when they are deleted."""

from __future__ import annotations

import datetime as dt
import re
import threading
from collections.abc import Callable

import msgspec

from gpurunbook.embedded.actors.client import MERGE_PATCH, Client, Obj
from gpurunbook.embedded.workloads import Runtime, started


class Kubelet(msgspec.Struct, forbid_unknown_fields=True):
    """nodes: which nodes; starting and ending: seconds that a pod takes; stuck: namespace/name of pods that do neither.

    finishing: seconds after which a pod that is not restarted has succeeded; never without it.
    """

    nodes: str = ".*"
    starting: float = 0
    ending: float = 0
    finishing: float | None = None
    stuck: str = ""
    runtime: Runtime = "containerd"

    def act(self, client: Client) -> None:
        """Follow all pods, for ever."""
        for event in client.follow("/api/v1/pods"):
            pod = event["object"]
            meta, node = pod["metadata"], pod["spec"].get("nodeName", "")
            if event["type"] == "DELETED" or not node or not re.fullmatch(self.nodes, node):
                continue
            if self.stuck and re.fullmatch(self.stuck, f"{meta['namespace']}/{meta['name']}"):
                continue
            phase = pod.get("status", {}).get("phase")
            if "deletionTimestamp" in meta:
                self._soon(client, pod, min(self.ending, meta.get("deletionGracePeriodSeconds") or 0), self._end)
            elif phase == "Pending":
                self._soon(client, pod, self.starting, self._start)
            elif phase == "Running" and self.finishing is not None and pod["spec"].get("restartPolicy") == "Never":
                self._soon(client, pod, self.finishing, self._finish)

    def _soon(self, client: Client, pod: Obj, seconds: float, deed: Callable[[Client, Obj], None]) -> None:
        if seconds <= 0:
            return deed(client, pod)
        timer = threading.Timer(seconds, deed, (client.again(), pod))
        timer.daemon = True
        return timer.start()

    def _report(self, client: Client, pod: Obj, ended: bool) -> None:
        at = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        # the resourceVersion is left out: a kubelet's patch of the status wins; the uid makes it this very pod
        patch = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": started(pod, at, self.runtime, ended=ended)}
        client.send("PATCH", _path(pod) + "/status", patch, MERGE_PATCH)

    def _start(self, client: Client, pod: Obj) -> None:
        self._report(client, pod, ended=False)

    def _finish(self, client: Client, pod: Obj) -> None:
        self._report(client, pod, ended=True)

    def _end(self, client: Client, pod: Obj) -> None:
        client.send("DELETE", _path(pod), {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}})


def _path(pod: Obj) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
