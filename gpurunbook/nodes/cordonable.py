"""Whether a node may be cordoned or given back, when a cordon is made again, and the report of one that was lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpurunbook.findings import Finding, Status
from gpurunbook.nodes.cordon import (
    ANOTHER,
    CORDON_ONLY,
    LOST,
    NOBODY,
    OURS,
    TAINT_ONLY,
    Standing,
    name_of,
    standing,
    take,
    whose,
)

KEEP, NOW, SETTLED, NEVER = "keep", "now", "after-settled", "never"

_SOURCE = "gpurunbook.nodes.cordon"


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
    now, name = standing(node, run), name_of(node)
    if now.state == NOBODY:
        return _finding(name, Status.PASS, "node-schedulable", "the node is schedulable and carries no mark of ours")
    if now.state == OURS:
        return _finding(name, Status.PASS, "cordon-ours", f"run {run} cordoned the node at {_when(now)}")
    if now.mine:
        return _finding(
            name, Status.WARN, "cordon-lost", _lost(now), "The run makes it again and judges the holders again."
        )
    if now.state == TAINT_ONLY:
        return _finding(name, Status.FAIL, "taint-without-owner", whose(now), take(now, name))
    return _finding(name, Status.FAIL, "cordon-of-another", whose(now), take(now, name))


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
    return _finding(name_of(node), status, "cordon-lost", f"{what}; {since}{came}", remedy)


def told(now: Standing) -> str:
    """Writes nothing. In words what is missing of a cordon of this run, or whose it is."""
    return whose(now) if now.state == ANOTHER else _lost(now)


def landed(before: Iterable[str], after: Iterable[Mapping[str, Any]]) -> list[str]:
    """Writes nothing. `namespace/name` of pods of a node whose uid was not there before, sorted."""
    known = set(before)
    fresh = (pod.get("metadata") or {} for pod in after)
    return sorted(f"{m.get('namespace')}/{m.get('name')}" for m in fresh if m.get("uid") not in known)


def may_release(node: Mapping[str, Any], run: str, holders: str) -> tuple[Finding, ...]:
    """Writes nothing. Whether the cordon may be lifted: only this run's, only when holders are `none`, only when Ready.

    holders: the verdict of gpurunbook.nodes.holders.
    """
    now, name = standing(node, run), name_of(node)
    found = []
    if now.state == NOBODY:
        found.append(_finding(name, Status.PASS, "cordon-released", "the node carries no mark of ours"))
    elif now.mine:
        found.append(_finding(name, Status.PASS, "cordon-ours", f"run {run} owns the cordon since {_when(now)}"))
    else:
        found.append(
            _finding(name, Status.FAIL, "cordon-of-another", whose(now), f"It is not ours to lift. {take(now, name)}")
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


def _when(now: Standing) -> str:
    return str(now.owner["time"]) if now.owner else "?"


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
