"""Which pods of a DaemonSet run its present template, and why the others do not.

The driver's DaemonSet is OnDelete: a changed ClusterPolicy leaves old pods running until each is deleted. That is
not the same as a pod that ought to be gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpurunbook.supply.members import at

REVISION_HASH = "controller-revision-hash"


class Rollouts:
    """DaemonSets and their ControllerRevisions, where those are among the objects."""

    def __init__(self, objects: Sequence[Mapping[str, Any]]) -> None:
        self._sets: dict[str, Mapping[str, Any]] = {}
        self._names: set[tuple[Any, Any]] = set()
        self._newest: dict[str, tuple[int, str]] = {}
        for raw in objects:
            if raw.get("kind") == "DaemonSet":
                self._sets[str(at(raw, "metadata", "uid"))] = raw
                self._names.add((at(raw, "metadata", "namespace"), at(raw, "metadata", "name")))
            elif raw.get("kind") == "ControllerRevision":
                self._revision(raw)

    def _revision(self, raw: Mapping[str, Any]) -> None:
        number, label = raw.get("revision"), at(raw, "metadata", "labels", REVISION_HASH)
        for owner in at(raw, "metadata", "ownerReferences") or []:
            if isinstance(number, int) and isinstance(label, str):
                uid = str(at(owner, "uid"))
                self._newest[uid] = max(self._newest.get(uid, (-1, "")), (number, label))

    def state(self, pod: Mapping[str, Any]) -> str:
        """Writes nothing. "" when the pod runs the present template, else why it does not.

        `pending`: of an earlier revision, and its DaemonSet is OnDelete, so it waits to be deleted;
        `rolling`: of an earlier revision, and the roll-out is going on;
        `stale`: deleted but still there, of a DaemonSet that is gone, or of an earlier revision although its
        DaemonSet says that all are updated.
        """
        if at(pod, "metadata", "deletionTimestamp"):
            return "stale"
        owner = next((o for o in at(pod, "metadata", "ownerReferences") or [] if at(o, "kind") == "DaemonSet"), None)
        if owner is None:
            return ""
        uid = str(at(owner, "uid"))
        owning = self._sets.get(uid)
        if owning is None:
            # Of a set that was made anew under its name; without any set of the name nothing is known of it.
            return "stale" if (at(pod, "metadata", "namespace"), at(owner, "name")) in self._names else ""
        if not self._earlier(pod, owning, uid):
            return ""
        if at(owning, "spec", "updateStrategy", "type") == "OnDelete":
            return "pending"
        status = at(owning, "status")
        seen = at(status, "observedGeneration") == at(owning, "metadata", "generation")
        updated, wanted = at(status, "updatedNumberScheduled") or 0, at(status, "desiredNumberScheduled")
        return "stale" if seen and updated == wanted else "rolling"

    def _earlier(self, pod: Mapping[str, Any], owning: Mapping[str, Any], uid: str) -> bool:
        label = at(pod, "metadata", "labels", REVISION_HASH)
        if uid in self._newest and isinstance(label, str):
            return label != self._newest[uid][1]
        template = at(owning, "spec", "template", "spec")
        return any(_of(template, part) != _of(at(pod, "spec"), part) for part in ("containers", "initContainers"))


def _of(spec: Any, part: str) -> dict[Any, Any]:
    return {at(container, "name"): at(container, "image") for container in at(spec, part) or []}
