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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpurunbook.errors import Drifted
from gpurunbook.findings import Finding, Status

ANNOTATION = "gpurunbook.io/cordon"
TAINT = "gpurunbook.io/cordon"
EFFECT = "NoSchedule"

NOBODY, OURS, ANOTHER, TAINT_ONLY, CORDON_ONLY, LOST = "none", "ours", "another", "taint-only", "cordon-only", "lost"

KEEP, NOW, SETTLED, NEVER = "keep", "now", "after-settled", "never"

_FIELDS = ("run", "runbook", "step", "change", "plan", "head", "time")
_SOURCE = "gpurunbook.nodes.cordon"
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
            _whose(now),
            subject=f"Node/{_name(node)}",
            remedy=_take(now, _name(node)),
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
        raise Drifted("no run of ours owns a cordon of it", subject=f"Node/{_name(node)}", code="nothing-to-adopt")
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
            _whose(now), subject=f"Node/{_name(node)}", remedy="It is not ours to lift.", code="cordon-of-another"
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


# -- what to do about it ---------------------------------------------------------------------------------------------


def remake(now: Standing, *, manager_busy: bool) -> str:
    """Writes nothing. When a cordon of ours that was seen whole is made again: `keep`, `now`, `after-settled`, `never`.

    While a manager changes the node (cc-manager writes back the whole object it read; a change of ours in between
    gives it a 409 that it only logs) and one guard still stands, after it has settled. With both gone at once, and
    the manager's own write is then taken as lost. Another's cordon is never overwritten.
    """
    if now.state == OURS:
        return KEEP
    if now.state == ANOTHER:
        return NEVER
    guarded = now.unschedulable or now.tainted
    return SETTLED if guarded and manager_busy else NOW


def may_begin(node: Mapping[str, Any], run: str) -> Finding:
    """Writes nothing. Whether this run may cordon the node: nobody's or its own. Another's cordon is respected."""
    now, name = standing(node, run), _name(node)
    if now.state == NOBODY:
        return _finding(name, Status.PASS, "node-schedulable", "the node is schedulable and carries no mark of ours")
    if now.state == OURS:
        return _finding(name, Status.PASS, "cordon-ours", f"run {run} cordoned the node at {_when(now)}")
    if now.mine:
        return _finding(
            name, Status.WARN, "cordon-lost", _lost(now), "The run makes it again and judges the holders again."
        )
    if now.state == TAINT_ONLY:
        return _finding(name, Status.FAIL, "taint-without-owner", _whose(now), _take(now, name))
    return _finding(name, Status.FAIL, "cordon-of-another", _whose(now), _take(now, name))


def lost(
    node: Mapping[str, Any], run: str, seconds: float | None, landed: Iterable[str], cordoned: str = ""
) -> Finding:
    """Writes nothing. The report of a cordon of this run that is not whole.

    seconds: since it was last seen whole, None or 0 when nobody measured; landed: `namespace/name` of pods that came
    to the node in that time; cordoned: uid of the node object that was cordoned, "" when nobody knows.
    """
    now, pods = standing(node, run), sorted(landed)
    what = told(now)
    uid = (node.get("metadata") or {}).get("uid")
    if cordoned and uid != cordoned:
        what = f"the node was deleted and joined again (its uid is {uid}, {cordoned} was cordoned): {what}"
    many = "1 pod" if len(pods) == 1 else f"{len(pods)} pods"
    came = f"{many} came to the node: {', '.join(pods[:20])}" if pods else "no pod came to the node"
    remedy = "The cordon is made again and the holders are judged again."
    if now.state == ANOTHER:
        remedy = "Somebody else took the node: talk to them; it is not made again."
    status = Status.FAIL if now.state == ANOTHER else Status.WARN
    ago = f"{seconds:.0f}" if seconds and seconds >= 1 else "less than 1"
    since = f"last seen whole {ago} s ago; " if seconds else ""
    return _finding(_name(node), status, "cordon-lost", f"{what}; {since}{came}", remedy)


def told(now: Standing) -> str:
    """Writes nothing. In words what is missing of a cordon of this run, or whose it is."""
    return _whose(now) if now.state == ANOTHER else _lost(now)


def landed(before: Iterable[str], after: Iterable[Mapping[str, Any]]) -> list[str]:
    """Writes nothing. `namespace/name` of pods of a node whose uid was not there before, sorted."""
    known = set(before)
    fresh = (pod.get("metadata") or {} for pod in after)
    return sorted(f"{m.get('namespace')}/{m.get('name')}" for m in fresh if m.get("uid") not in known)


def may_release(node: Mapping[str, Any], run: str, holders: str) -> tuple[Finding, ...]:
    """Writes nothing. Whether the cordon may be lifted: only this run's, only when holders are `none`, only when Ready.

    holders: the verdict of gpurunbook.nodes.holders.
    """
    now, name = standing(node, run), _name(node)
    found = []
    if now.state == NOBODY:
        found.append(_finding(name, Status.PASS, "cordon-released", "the node carries no mark of ours"))
    elif now.mine:
        found.append(_finding(name, Status.PASS, "cordon-ours", f"run {run} owns the cordon since {_when(now)}"))
    else:
        found.append(
            _finding(name, Status.FAIL, "cordon-of-another", _whose(now), f"It is not ours to lift. {_take(now, name)}")
        )
    ready = _ready(node)
    if ready == "True":
        found.append(_finding(name, Status.PASS, "node-ready", "condition Ready is True"))
    else:
        status = Status.FAIL if ready == "False" else Status.UNKNOWN
        found.append(
            _finding(name, status, "node-not-ready", f"condition Ready is {ready}, wanted True", "Repair it first.")
        )
    if holders == "none":
        found.append(_finding(name, Status.PASS, "no-holders", "nobody holds a GPU of the node"))
    else:
        status = Status.FAIL if holders == "held" else Status.UNKNOWN
        remedy = f"`gpurunbook holders --node {name}` says who; the node stays cordoned."
        found.append(_finding(name, status, "node-held", f"holders: {holders}, wanted none", remedy))
    return tuple(found)


def _ready(node: Mapping[str, Any]) -> str:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return next((str(c.get("status")) for c in conditions if c.get("type") == "Ready"), "absent")


def _name(node: Mapping[str, Any]) -> str:
    return str((node.get("metadata") or {}).get("name", "?"))


def _when(now: Standing) -> str:
    return str(now.owner["time"]) if now.owner else "?"


def _whose(now: Standing) -> str:
    if now.garbled:
        return f"annotation {ANNOTATION} cannot be read ({now.garbled}), so nobody can say whose cordon it is"
    if now.owner is not None:
        owner = now.owner
        return f"run {now.run} of {owner['runbook']} owns the cordon (change {owner['change']}, since {owner['time']})"
    if now.state == TAINT_ONLY:
        return f"the node carries taint {TAINT}:{EFFECT} and no run owns it"
    return "the node is cordoned and no run of ours owns that"


def _take(now: Standing, name: str) -> str:
    if now.run:
        return (
            f"If run {now.run} is over, a release gives {name} back. If it died, resume it, or go on in its place by "
            "an adoption: `gpurunbook leftovers`, of this cluster, prints the commands."
        )
    if now.tainted or now.garbled:
        return f"Find out who removed the ownership; then remove taint {TAINT} and annotation {ANNOTATION} by hand."
    return f"Ask who cordoned it; they lift it themselves: `kubectl uncordon {name}`."


def _lost(now: Standing) -> str:
    gone = {
        TAINT_ONLY: "spec.unschedulable is gone, our taint still stands",
        CORDON_ONLY: "our taint is gone, the node is still unschedulable",
        LOST: "spec.unschedulable and our taint are gone",
        NOBODY: "spec.unschedulable, our taint and our annotation are gone",
        OURS: "the cordon stands again",
    }
    return gone[now.state]


def _finding(node: str, status: Status, code: str, message: str, remedy: str = "") -> Finding:
    return Finding("cordon", f"Node/{node}", status, code, message, remedy, _SOURCE)
