"""A cordon with an owner: what it is made of, whose it is, what is left of it, and the patches that make and lift it.

Three marks in one JSON patch: `spec.unschedulable`, our NoSchedule taint, and an annotation that says which run owns
them. Other hands take the first one away without asking (NVIDIA/k8s-driver-manager#212,
rancher/system-upgrade-controller#341), so each mark is judged by itself. Nothing here sends anything.

A patch carries `test` operations for all that was judged and no resourceVersion: a heartbeat of the node is no
conflict. Whoever sends it adds the fresh one. `test` with null passes on a field that is absent, as
gopkg.in/evanphx/json-patch.v4 in the API server answers it; a failed test is 422.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpurunbook.errors import Drifted

ANNOTATION = "gpurunbook.io/cordon"
TAINT = "gpurunbook.io/cordon"
EFFECT = "NoSchedule"

NOBODY, OURS, ANOTHER, TAINT_ONLY, CORDON_ONLY, LOST = "none", "ours", "another", "taint-only", "cordon-only", "lost"

_FIELDS = ("run", "runbook", "step", "change", "plan", "head", "time")
_ANNOTATION_PATH = "/metadata/annotations/" + ANNOTATION.replace("~", "~0").replace("/", "~1")

Operation = dict[str, Any]


def taint() -> dict[str, str]:
    """Writes nothing. Our taint. It has no value, so that one toleration fits every run."""
    return {"effect": EFFECT, "key": TAINT}


def toleration() -> dict[str, str]:
    """Writes nothing. What a DaemonSet needs to come back under our taint."""
    return {"effect": EFFECT, "key": TAINT, "operator": "Exists"}


def ownership(
    *, run: str, runbook: str, step: str, change: str, plan: str, head: str, time: str, tainted: bool = True
) -> str:
    """Writes nothing. The annotation's value: canonical JSON. Values may be a plan's placeholders.

    run, runbook, step: ids; change: the change ticket; plan: plan digest; head: the journal's head before the intent;
    time: RFC 3339; tainted: whether our taint belongs to this cordon (`taint: false` is weaker).
    """
    fields = {
        "run": run,
        "runbook": runbook,
        "step": step,
        "change": change,
        "plan": plan,
        "head": head,
        "time": time,
        "tainted": tainted,
    }
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


@dataclass(frozen=True)
class Standing:
    """How a node's cordon stands for one run.

    state: `none` no mark at all; `ours` all marks of this run; `taint-only` and `cordon-only` one guard of this run is
    gone (or, with run "", our taint without an owner); `lost` both guards gone, the annotation says they were ours;
    `another` somebody else's cordon, another run's included. run, owner: of the annotation; garbled: why it cannot be
    read.
    """

    state: str
    run: str = ""
    owner: Mapping[str, Any] | None = None
    unschedulable: bool = False
    tainted: bool = False
    garbled: str = ""

    @property
    def mine(self) -> bool:
        """Writes nothing. Whether the annotation names the run that asks."""
        return self.owner is not None and self.state != ANOTHER


def owner(node: Mapping[str, Any]) -> dict[str, Any] | None:
    """Writes nothing. The ownership in a node's annotation, None without one. Raises ValueError when it cannot be
    read: then it is not ours to touch."""
    text = ((node.get("metadata") or {}).get("annotations") or {}).get(ANNOTATION)
    if text is None:
        return None
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"a {type(found).__name__}, wanted an object")
    wrong = [name for name in _FIELDS if not isinstance(found.get(name), str)]
    if wrong or not found["run"] or not isinstance(found.get("tainted"), bool):
        raise ValueError(f"not a text: {', '.join(wrong)}" if wrong else "no run, or no word on the taint")
    return found


def standing(node: Mapping[str, Any], run: str) -> Standing:
    """Writes nothing. Whose cordon the node carries, seen from one run, and what of it is left."""
    unschedulable = (node.get("spec") or {}).get("unschedulable") is True
    tainted = _index(node) is not None
    try:
        mine = owner(node)
    except (ValueError, RecursionError) as wrong:
        return Standing(ANOTHER, unschedulable=unschedulable, tainted=tainted, garbled=str(wrong))
    if mine is None:
        state = ANOTHER if unschedulable else (TAINT_ONLY if tainted else NOBODY)
        return Standing(state, unschedulable=unschedulable, tainted=tainted)
    if mine["run"] != run:
        state = ANOTHER
    elif unschedulable:
        state = OURS if tainted or not mine["tainted"] else CORDON_ONLY
    else:
        state = TAINT_ONLY if tainted else LOST
    return Standing(state, mine["run"], mine, unschedulable, tainted)


def judged(node: Mapping[str, Any]) -> dict[str, Any]:
    """Writes nothing. The fields that the cordon rules judge, for a drift digest. Others' taints are not among them."""
    metadata = node.get("metadata") or {}
    return {
        "uid": metadata.get("uid"),
        "unschedulable": (node.get("spec") or {}).get("unschedulable") is True,
        "tainted": _index(node) is not None,
        "annotation": (metadata.get("annotations") or {}).get(ANNOTATION),
    }


def _taints(node: Mapping[str, Any]) -> list[Any] | None:
    found = (node.get("spec") or {}).get("taints")
    return found if isinstance(found, list) else None


def _index(node: Mapping[str, Any]) -> int | None:
    for i, one in enumerate(_taints(node) or ()):
        if isinstance(one, dict) and one.get("key") == TAINT and one.get("effect") == EFFECT:
            return i
    return None


def name_of(node: Mapping[str, Any]) -> str:
    """Writes nothing. The name of a node, `?` where it says none."""
    return str((node.get("metadata") or {}).get("name", "?"))


def whose(now: Standing) -> str:
    """Writes nothing. In words whose cordon it is."""
    if now.garbled:
        return f"annotation {ANNOTATION} cannot be read ({now.garbled}), so nobody can say whose cordon it is"
    if now.owner is not None:
        owner = now.owner
        return f"run {now.run} of {owner['runbook']} owns the cordon (change {owner['change']}, since {owner['time']})"
    if now.state == TAINT_ONLY:
        return f"the node carries taint {TAINT}:{EFFECT} and no run owns it"
    return "the node is cordoned and no run of ours owns that"


def take(now: Standing, name: str) -> str:
    """Writes nothing. How the node, by its name, can be had where another owns it."""
    if now.run:
        return (
            f"If run {now.run} is over, a release gives {name} back. If it died, resume it, or go on in its place by "
            "an adoption: `gpurunbook leftovers`, of this cluster, prints the commands."
        )
    if now.tainted or now.garbled:
        return f"Find out who removed the ownership; then remove taint {TAINT} and annotation {ANNOTATION} by hand."
    return f"Ask who cordoned it; they lift it themselves: `kubectl uncordon {name}`."


# -- the patches -----------------------------------------------------------------------------------------------------


def cordon(node: Mapping[str, Any], value: str) -> list[Operation]:
    """Writes nothing. The JSON patch that makes the cordon, or makes again what is missing of it; [] when all is so.

    node: freshly read; value: of `ownership`. All tests stand first. The taint is appended, never the list replaced.
    Raises Drifted when the node carries another's cordon.
    """
    wanted = json.loads(value)
    now = standing(node, wanted["run"])
    if now.state != NOBODY and not now.mine:
        raise Drifted(
            whose(now),
            subject=f"Node/{name_of(node)}",
            remedy=take(now, name_of(node)),
            code="cordon-of-another",
        )
    if now.state == OURS:
        return []
    tests, writes = _tests(node), []
    if not now.unschedulable:
        writes.append({"op": "add", "path": "/spec/unschedulable", "value": True})
    if wanted["tainted"] and not now.tainted:
        # Without a list "/-" has nowhere to go; the test beside it keeps a list that appears meanwhile.
        if _taints(node) is None:
            tests.append({"op": "test", "path": "/spec/taints", "value": None})
            writes.append({"op": "add", "path": "/spec/taints", "value": [taint()]})
        else:
            writes.append({"op": "add", "path": "/spec/taints/-", "value": taint()})
    if now.owner is None:
        if (node.get("metadata") or {}).get("annotations") is None:
            writes.append({"op": "add", "path": "/metadata/annotations", "value": {ANNOTATION: value}})
        else:
            writes.append({"op": "add", "path": _ANNOTATION_PATH, "value": value})
    return tests + writes


def adopt(node: Mapping[str, Any], value: str) -> list[Operation]:
    """Writes nothing. The JSON patch that makes another run of ours the owner, and makes again what is missing.

    node: freshly read; value: of `ownership`, of the run that goes on. Raises Drifted when no run of ours owns it.
    """
    was = owner(node)
    if was is None:
        raise Drifted("no run of ours owns a cordon of it", subject=f"Node/{name_of(node)}", code="nothing-to-adopt")
    mine = copy.deepcopy(dict(node))
    mine["metadata"]["annotations"][ANNOTATION] = value
    writes = [o for o in cordon(mine, value) if o["op"] != "test"]
    tests = _tests(node)
    if any(o["path"] == "/spec/taints" for o in writes):
        tests.append({"op": "test", "path": "/spec/taints", "value": None})
    return [*tests, {"op": "replace", "path": _ANNOTATION_PATH, "value": value}, *writes]


def release(node: Mapping[str, Any], run: str) -> list[Operation]:
    """Writes nothing. The inverse: the JSON patch that takes away what is left of this run's cordon; [] for nothing.

    node: freshly read; others' taints and annotations stay. Raises Drifted when the cordon is not this run's.
    """
    now = standing(node, run)
    if now.state == NOBODY:
        return []
    if not now.mine:
        raise Drifted(
            whose(now), subject=f"Node/{name_of(node)}", remedy="It is not ours to lift.", code="cordon-of-another"
        )
    tests, writes = _tests(node), []
    if now.unschedulable:
        writes.append({"op": "remove", "path": "/spec/unschedulable"})
    index = _index(node)
    if index is not None:
        place = f"/spec/taints/{index}"
        tests += [{"op": "test", "path": f"{place}/{field}", "value": value} for field, value in taint().items()]
        writes.append({"op": "remove", "path": place})
    writes.append({"op": "remove", "path": _ANNOTATION_PATH})
    return tests + writes


def _tests(node: Mapping[str, Any]) -> list[Operation]:
    """What must still be so: the same node, its cordon and its owner as they were read."""
    metadata = node.get("metadata") or {}
    annotations = metadata.get("annotations")
    found = [
        {"op": "test", "path": "/metadata/uid", "value": metadata.get("uid")},
        {"op": "test", "path": "/spec/unschedulable", "value": (node.get("spec") or {}).get("unschedulable")},
    ]
    if annotations is None:
        return [*found, {"op": "test", "path": "/metadata/annotations", "value": None}]
    return [*found, {"op": "test", "path": _ANNOTATION_PATH, "value": annotations.get(ANNOTATION)}]
