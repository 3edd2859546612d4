"""Taking a GPU node out of service and giving it back: the steps of `node_cordon`, of the rules beside this file."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

from gpurunbook.findings import Finding, Status, Verdict, worst
from gpurunbook.nodes import capacity, cordon, cordonable, holders, tolerations
from gpurunbook.nodes.cordon import ANNOTATION, EFFECT, TAINT
from gpurunbook.nodes.discovery import node_object
from gpurunbook.plan import (
    Change,
    Check,
    Judgement,
    Mutation,
    Need,
    Pages,
    Planned,
    Problem,
    Progress,
    Seen,
    Stood,
    Table,
    Target,
    Wait,
)
from gpurunbook.pointers import escape

CORDON, RELEASE, ADOPT = "cordon", "release", "adopt"
NOBODY, MAY_STAY = "nobody", "may-stay"

OWNER = "/metadata/annotations/" + escape(ANNOTATION)
UNSCHEDULABLE = "/spec/unschedulable"

_SOURCE = "gpurunbook.nodes.service"


def _finding(node: str, status: Status, code: str, message: str, remedy: str = "") -> Finding:
    return Finding("service", f"Node/{node}", status, code, message, remedy, _SOURCE)


def _unread(node: str, seen: Seen, names: tuple[str, ...]) -> list[Finding]:
    return [
        _finding(node, Status.UNKNOWN, f"{name}-unreadable", f"{problem.code}: {problem.message}", _read(problem))
        for name in names
        if (problem := seen[name].problem)
    ]


def _read(problem: Problem) -> str:
    if problem.code == "not-found":
        return "Correct the parameter `node`: `kubectl get nodes` lists what there is."
    return "Make it readable to this user, then run the step again."


# -- checks ----------------------------------------------------------------------------------------------------------


def whose(node: str, action: str, run: str, max_out: int, plan: str = "") -> Check:
    """Writes nothing. The check that this run may do the action: whose cordon it is, and how many nodes are out.

    action: `cordon`, `release` or `adopt`; max_out: at most so many GPU nodes out of service, this one included; plan:
    digest of the plan that is applied: a node that another run has cordoned by it needs nothing more.
    """

    def judge(seen: Seen) -> Judgement:
        unread = _unread(node, seen, ("node", "nodes"))
        if unread:
            return Judgement(tuple(unread))
        found = seen["node"].value
        findings = [_applied(found, node, run, plan) or _may(found, node, action, run)]
        if action == CORDON:
            findings.append(_budget(seen["nodes"].value, node, max_out))
        return Judgement(tuple(findings), (_marks(found, node, run),), {"state": cordon.standing(found, run).state})

    needs: dict[str, Need] = {"node": node_object(node), "nodes": Pages("/api/v1/nodes")}
    return Check(f"May this run {action} {node}", needs, judge, Verdict.BLOCKED)


def _applied(found: Mapping[str, Any], node: str, run: str, plan: str) -> Finding | None:
    now = cordon.standing(found, "")
    if not plan or now.owner is None or now.run == run or now.owner["plan"] != plan:
        return None
    text = f"run {now.run} has applied this plan already, at {now.owner['time']}: there is nothing left to do"
    remedy = f"A release gives {node} back. If run {now.run} died meanwhile, resume it."
    return _finding(node, Status.FAIL, "plan-applied", text, remedy)


def _may(found: Mapping[str, Any], node: str, action: str, run: str) -> Finding:
    if action == CORDON:
        return cordonable.may_begin(found, run)
    now = cordon.standing(found, run)
    if now.owner is not None:
        text = f"run {now.run} of {now.owner['runbook']} owns the cordon since {now.owner['time']}"
        return _finding(node, Status.PASS, "cordon-owned", text)
    if now.state == cordon.NOBODY and action == RELEASE:
        return _finding(node, Status.PASS, "cordon-released", "the node carries no mark of ours: nothing to release")
    if now.state == cordon.NOBODY:
        return _finding(node, Status.FAIL, "nothing-to-adopt", "the node carries no mark of ours", "Cordon it instead.")
    return dataclasses.replace(cordonable.may_begin(found, run), check="service")


def _budget(nodes: list[Mapping[str, Any]], node: str, max_out: int) -> Finding:
    gpu = [n for n in nodes if n["metadata"]["name"] == node or capacity.has_gpus(n)]
    out = sorted(
        str(n["metadata"]["name"])
        for n in gpu
        if (n.get("spec") or {}).get("unschedulable") is True and n["metadata"]["name"] != node
    )
    names = ", ".join(out[:10]) or "none"
    text = f"{len(out)} of {len(gpu)} GPU nodes are out already ({names}), at most {max_out} may be"
    if len(out) + 1 > max_out:
        remedy = "Give a node back first, or raise max_out after asking who needs the capacity."
        return _finding(node, Status.FAIL, "budget-exceeded", text, remedy)
    return _finding(node, Status.PASS, "within-budget", text)


def _marks(found: Mapping[str, Any], node: str, run: str) -> Table:
    now = cordon.standing(found, run)
    return Table(
        f"Marks on {node}",
        ("mark", "there", "owner"),
        [
            ("spec.unschedulable", now.unschedulable, ""),
            (f"taint {TAINT}:{EFFECT}", now.tainted, ""),
            (f"annotation {ANNOTATION}", now.owner is not None, now.run or now.garbled),
        ],
    )


def held(node: str, action: str, policy: str) -> Check:
    """Writes nothing. Who holds GPUs of the node. `nobody`: a holder blocks; `may-stay`: holders are shown and stay.

    A cordon drives nobody out; to stop harm it may be made over holders. A release demands that there are none while
    there is something to release, an adoption only shows them. What cannot be read blocks in every case.
    """
    check = holders.no_holders(node)

    def judge(seen: Seen) -> Judgement:
        found = check.judge(seen)
        stay = action == ADOPT or (action == CORDON and policy == MAY_STAY)
        if not stay and not (action == RELEASE and _in_service(seen)):
            return found
        softer = (dataclasses.replace(f, status=Status.WARN) if f.status is Status.FAIL else f for f in found.findings)
        return dataclasses.replace(found, findings=tuple(softer))

    return dataclasses.replace(check, title=f"Who holds a GPU of {node}", judge=judge)


def held_after(node: str, action: str, policy: str) -> Check:
    """Writes nothing. `held` once more, after the change: a pod that was bound in flight lands under a cordon too.

    A release is not asked again: the node takes pods from then on.
    """
    if action == RELEASE:
        given = _finding(node, Status.PASS, "node-given-back", "the node takes pods again; who comes now may stay")
        return Check("Who holds the GPUs now", {}, lambda _: Judgement((given,)))
    return dataclasses.replace(held(node, action, policy), title="Who holds the GPUs now")


def _in_service(seen: Seen) -> bool:
    return not seen["node"].problem and cordon.standing(seen["node"].value, "").state == cordon.NOBODY


def returns(node: str, action: str, taint: bool) -> Check:
    """Writes nothing. Whether DaemonSets that must run on the node come back under our taint; asked for a cordon."""
    if action == CORDON and taint:
        return tolerations.daemonsets_return(node)
    text = "no taint is set by this action"
    found = _finding(node, Status.PASS, "taint-not-asked", text)
    if action == CORDON:
        weaker = "the cordon is made without our taint: whoever uncordons the node lets pods land at once"
        found = _finding(node, Status.WARN, "taint-off", weaker, "Set `taint` to True once the DaemonSets tolerate it.")
    return Check("DaemonSets under our taint", {}, lambda _: Judgement((found,)), Verdict.BLOCKED)


# -- the change ------------------------------------------------------------------------------------------------------


def mark(node: str, action: str, taint: bool, policy: str) -> Change:
    """Patches one node: makes, lifts or takes over the cordon. A release needs a Ready node that nobody holds.

    Holders are read once more with the node: between a check and a change a pod may have come.
    """

    def plan(seen: Seen) -> Planned:
        unread = _unread(node, seen, ("node",))
        if unread:
            return Planned(tuple(unread))
        found = seen["node"].value
        report = holders.report(node, seen)
        if action == RELEASE:
            return _release(found, node, report.verdict)
        if action == CORDON and policy == NOBODY and report.verdict != holders.NONE:
            return Planned(holders.judgement(report).findings)
        return _take(found, node, action, taint)

    return Change(f"{action} {node}", holders.needs(node), plan, Verdict.BLOCKED, holders.follow)


def _ownership(run: str, taint: bool) -> str:
    """The annotation's value of a run; all but the run is filled in when it is sent."""
    return cordon.ownership(
        run=run,
        runbook="${runbook}",
        step="${step}",
        change="${change_id}",
        plan="${plan}",
        head="${head}",
        time="${time}",
        tainted=taint,
    )


def _take(found: Mapping[str, Any], node: str, action: str, taint: bool) -> Planned:
    value = _ownership("${run}", taint)
    may = _may(found, node, action, "${run}")
    if may.status is Status.FAIL:
        return Planned((may,))
    body = cordon.cordon(found, value) if action == CORDON else cordon.adopt(found, value)
    goal = {UNSCHEDULABLE: True, OWNER: value}
    return Planned((may,), (_patch(found, node, action, body, goal, _inverse(found, node, value, taint)),))


def _release(found: Mapping[str, Any], node: str, verdict: str) -> Planned:
    now = cordon.standing(found, "")
    if now.state == cordon.NOBODY:
        text = "the node carries no mark of ours: nothing to release"
        return Planned((_finding(node, Status.PASS, "cordon-released", text),))
    owner = now.owner
    may = cordonable.may_release(found, str(owner["run"]) if owner else "", verdict)
    if worst(may) in (Status.FAIL, Status.UNKNOWN) or owner is None:
        return Planned(may)
    body = cordon.release(found, str(owner["run"]))
    return Planned(may, (_patch(found, node, RELEASE, body, {UNSCHEDULABLE: None, OWNER: None}, None),))


def _patch(
    found: Mapping[str, Any], node: str, name: str, body: list[Any], goal: Mapping[str, Any], inverse: Mutation | None
) -> Mutation:
    metadata, spec = found.get("metadata") or {}, found.get("spec") or {}
    judged = {UNSCHEDULABLE: spec.get("unschedulable"), OWNER: (metadata.get("annotations") or {}).get(ANNOTATION)}
    target = Target("Node", node, node_object(node).path, uid=str(metadata.get("uid") or ""))
    return Mutation(name, "patch", target, body, "json", judged, goal, inverse)


def _inverse(found: Mapping[str, Any], node: str, value: str, taint: bool) -> Mutation:
    """What undoes it, computed on the node as it will be."""
    later: dict[str, Any] = copy.deepcopy(dict(found))
    later.setdefault("metadata", {}).setdefault("annotations", {})[ANNOTATION] = value
    later["spec"] = {**(later.get("spec") or {}), "unschedulable": True}
    if taint and not cordon.standing(later, "${run}").tainted:
        later["spec"]["taints"] = [*(later["spec"].get("taints") or []), cordon.taint()]
    return _patch(later, node, RELEASE, cordon.release(later, "${run}"), {UNSCHEDULABLE: None, OWNER: None}, None)


# -- what must stand, and the wait -----------------------------------------------------------------------------------


def keep(node: str, action: str, taint: bool, run: str, stood: Stood | None) -> Change:
    """Patches the node again where this run's cordon was lost; nothing while it stands, or after a release.

    stood: when it was last seen whole, and what was seen then. Reports which pods landed since: those that were not
    there then, or, where only the time is known, those that were bound later; DaemonSet pods do not count.
    """

    def plan(seen: Seen) -> Planned:
        unread = _unread(node, seen, ("node", "pods"))
        if unread:
            return Planned(tuple(unread))
        found = seen["node"].value
        now = cordon.standing(found, run)
        since = stood.time if stood else str(now.owner["time"]) if now.owner else ""
        came = tuple(_came(seen["pods"].value, stood, since))
        if action == RELEASE or now.state == cordon.OURS:
            return Planned((_finding(node, Status.PASS, "cordon-stands", "all marks of this run stand"),), came=came)
        lost = cordonable.lost(found, run, stood.seconds if stood else None, came, stood.uid if stood else "")
        when = cordonable.remake(now, manager_busy=_busy(found))
        if when == cordonable.SETTLED:
            waits = "A manager is changing the node: the cordon is made again when it has settled."
            return Planned((dataclasses.replace(lost, remedy=waits),), came=came)
        if when == cordonable.NEVER:
            return Planned((lost,), came=came)
        value = _ownership(run, taint)
        body = cordon.cordon(found, value)
        return Planned((lost,), (_patch(found, node, CORDON, body, _again(found, body, value), None),), came=came)

    pods = Pages("/api/v1/pods", None, (("fieldSelector", f"spec.nodeName={node}"),))
    return Change(f"The cordon of {node} stands", {"node": node_object(node), "pods": pods}, plan)


def _again(found: Mapping[str, Any], body: list[dict[str, Any]], value: str) -> dict[str, Any]:
    """What holds once the marks that are missing were made again."""
    annotations = (found.get("metadata") or {}).get("annotations") or {}
    goal: dict[str, Any] = {UNSCHEDULABLE: True, OWNER: annotations.get(ANNOTATION, value)}
    taints = (found.get("spec") or {}).get("taints") or ()
    if any(o["op"] == "add" and o["path"].startswith("/spec/taints") for o in body):
        goal[f"/spec/taints/{len(taints)}"] = cordon.taint()
    return goal


def _busy(found: Mapping[str, Any]) -> bool:
    """A manager has paused operands of the node for a change of its own (k8s-cc-manager, k8s-driver-manager)."""
    labels = (found.get("metadata") or {}).get("labels") or {}
    return any(k.startswith("nvidia.com/gpu.deploy.") and "paused-for-" in str(v) for k, v in labels.items())


def _awaited(now: cordon.Standing, node: Mapping[str, Any]) -> str:
    busy = now.mine and cordonable.remake(now, manager_busy=_busy(node)) == cordonable.SETTLED
    waits = "; a manager is changing the node, and the cordon is made again when it has settled" if busy else ""
    return f"all marks of this run: {cordonable.told(now)}{waits}"


def _came(pods: list[Mapping[str, Any]], stood: Stood | None, since: str) -> list[str]:
    before = stood.seen.get("pods") if stood else None
    if before is not None and not before.problem:
        known = [str((pod.get("metadata") or {}).get("uid")) for pod in before.value]
        return cordonable.landed(known, [pod for pod in pods if not _daemon(pod)])
    # Times of objects have whole seconds; the cordon's own time has more.
    late = [pod for pod in pods if not _daemon(pod) and _bound(pod) >= since[:19]]
    return cordonable.landed((), late)


def _daemon(pod: Mapping[str, Any]) -> bool:
    """A pod that a cordon does not keep away: a DaemonSet's, or a static one's mirror."""
    owners = (pod.get("metadata") or {}).get("ownerReferences") or ()
    return any(owner.get("kind") in ("DaemonSet", "Node") for owner in owners)


def _bound(pod: Mapping[str, Any]) -> str:
    """When the pod came to its node. It may have been waiting long before that."""
    status = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "True":
            return str(condition.get("lastTransitionTime") or "")
    return str(status.get("startTime") or (pod.get("metadata") or {}).get("creationTimestamp") or "")


def settled(node: str, action: str, run: str, seconds: float = 120.0, hold: float = 0.0) -> Wait:
    """Writes nothing. Waits until the node shows what the action was for, by watch.

    hold: seconds for which all marks of a cordon must stand without a break. A controller that works against it is
    seen then, and not by whoever opens the node next; a release is done when it is done.
    """

    def progress(seen: Seen) -> Progress:
        observed = seen["node"]
        if observed.problem:
            return Progress("waiting", (f"node {node} to be readable: {observed.problem.code}",))
        now = cordon.standing(observed.value, run)
        if action == RELEASE:
            lifted = not now.unschedulable and now.owner is None and not now.tainted
            missing = () if lifted else ("the marks to be gone",)
            done = _finding(node, Status.PASS, "node-in-service", "the node is schedulable and carries no mark of ours")
        else:
            missing = () if now.state == cordon.OURS else (_awaited(now, observed.value),)
            stood = f" and stood for {hold:.0f} s" if hold > 0 else ""
            done = _finding(node, Status.PASS, "node-out-of-service", f"all marks of run {run} stand{stood}")
        return Progress("waiting", missing) if missing else Progress("done", (), (done,))

    hold = 0.0 if action == RELEASE else max(hold, 0.0)
    return Wait(f"{action} of {node} to settle", {"node": node_object(node)}, progress, seconds + hold, hold)
