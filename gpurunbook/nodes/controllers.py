"""Who else cordons and uncordons nodes here: System Upgrade Controller, NVSentinel, autoscalers.

Each is found, absent or unknown. Absent needs proof: the list of API groups, or a 404 on one named object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpurunbook.findings import Finding, Status, Verdict
from gpurunbook.nodes.discovery import GROUPS, Served, node_object
from gpurunbook.nodes.selectors import label_selector
from gpurunbook.plan import Check, Judgement, Need, Object, Observed, Pages, Seen, Table

CHECK = "other-hands"
FOUND, ABSENT, UNKNOWN = "found", "absent", "unknown"

MANAGED = "k8saas.nvidia.com/ManagedByNVSentinel"
"""Node label; `false` keeps NVSentinel from acting on the node."""

QUARANTINE = "quarantineHealthEvent"
"""Annotation with the health event for which NVSentinel quarantined the node."""

SENTINEL_STATE = "dgxc.nvidia.com/nvsentinel-state"
"""Node label: how far NVSentinel is with the node (quarantined, draining, …)."""

SENTINEL_GROUPS = ("janitor.dgxc.nvidia.com", "nvsentinel.dgxc.nvidia.com")
"""NVSentinel's API groups; the second is also the prefix of the labels that it puts on every GPU node."""

NO_SCALE_DOWN = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
NO_DISRUPTION = "karpenter.sh/do-not-disrupt"

CLUSTER_AUTOSCALER, KARPENTER = "Cluster Autoscaler", "Karpenter"
LEAVING = {
    "ToBeDeletedByClusterAutoscaler": CLUSTER_AUTOSCALER,
    "DeletionCandidateOfClusterAutoscaler": CLUSTER_AUTOSCALER,
    "karpenter.sh/disrupted": KARPENTER,
    "karpenter.sh/disruption": KARPENTER,
}
"""Node taints of an autoscaler that is about to remove the node; it may keep its status where nobody looked."""

KARPENTER_LABELS = ("karpenter.sh/nodepool", "karpenter.sh/provisioner-name")

_SOURCE = "gpurunbook.nodes.controllers"


@dataclass(frozen=True)
class Hand:
    """One controller. presence: found, absent or unknown; state: what it is about to do here, in few words."""

    name: str
    presence: str
    state: str
    finding: Finding


def other_hands(node: str, sentinel: str = "nvsentinel") -> Check:
    """Writes nothing. The check of who else may cordon or uncordon the node. sentinel: NVSentinel's namespace."""
    return Check(
        title=f"Who else cordons {node}",
        needs={
            "node": node_object(node),
            "groups": GROUPS,
            "breaker": Object(f"/api/v1/namespaces/{sentinel}/configmaps/circuit-breaker"),
            "autoscaler": Object("/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status"),
        },
        follow=follow,
        judge=judgement,
        against=Verdict.BLOCKED,
    )


def follow(seen: Seen) -> dict[str, Need]:
    """Writes nothing. The Plans, where the System Upgrade Controller's API is served."""
    version = Served(seen["groups"]).version("upgrade.cattle.io", ("v1",))
    return {"plans": Pages(f"/apis/upgrade.cattle.io/{version}/plans")} if version else {}


def judgement(seen: Seen) -> Judgement:
    """Writes nothing. One finding per controller, found or absent, with what it means for the node."""
    node = seen["node"]
    if node.problem:
        text = f"node: {node.problem.code}: {node.problem.message}"
        return Judgement((_finding("Node", Status.UNKNOWN, "other-hands-unreadable", text, "Make it readable."),))
    hands = (
        upgrade_controller(seen["groups"], seen.get("plans"), node.value),
        sentinel(seen["breaker"], seen["groups"], node.value),
        autoscaler(seen["autoscaler"], seen["groups"], node.value),
    )
    table = Table(
        title="Other hands on the node",
        columns=("controller", "presence", "state"),
        rows=[(h.name, h.presence, h.state) for h in hands],
    )
    return Judgement(
        tuple(h.finding for h in hands), (table,), {h.name: {"presence": h.presence, "state": h.state} for h in hands}
    )


def upgrade_controller(groups: Observed, plans: Observed | None, node: Mapping[str, Any]) -> Hand:
    """Writes nothing. Plans of the System Upgrade Controller that cordon or drain this node: they uncordon it after
    their job, whoever cordoned it (rancher/system-upgrade-controller#341)."""
    name, subject = "system-upgrade-controller", _subject(node)
    served = Served(groups)
    if served.problem:
        return _hand(name, UNKNOWN, "", subject, Status.UNKNOWN, "other-hands-unreadable", f"groups: {served.problem}")
    if plans is None:
        return _hand(name, ABSENT, "", subject, Status.PASS, "upgrade-controller-absent", "its API is not served")
    if plans.problem:
        text = f"plans: {plans.problem.code}: {plans.problem.message}"
        return _hand(name, UNKNOWN, "", subject, Status.UNKNOWN, "other-hands-unreadable", text)
    cordoning = list(cordoning_plans(plans.value, node))
    if not cordoning:
        text = f"none of {len(plans.value)} Plans cordons or drains this node"
        return _hand(name, FOUND, text, subject, Status.PASS, "upgrade-plans-harmless", text)
    text = "; ".join(cordoning)
    remedy = (
        "Take cordon and drain out of these Plans, or their nodeSelector off this node, while the cordon must last."
    )
    return _hand(name, FOUND, text, subject, Status.WARN, "upgrade-plan-uncordons", text, remedy)


def cordoning_plans(plans: Iterable[Mapping[str, Any]], node: Mapping[str, Any]) -> Iterable[str]:
    """Writes nothing. Plans that choose the node and cordon or drain it, each with how far it is here."""
    metadata = node.get("metadata") or {}
    labels = metadata.get("labels") or {}
    for plan in sorted(plans, key=lambda p: str((p.get("metadata") or {}).get("name"))):
        spec, status = plan.get("spec") or {}, plan.get("status") or {}
        # drain: {} drains with defaults; only null does not drain.
        if not (spec.get("cordon") is True or spec.get("drain") is not None):
            continue
        if not label_selector(spec.get("nodeSelector"), labels):
            continue
        name = str((plan.get("metadata") or {}).get("name"))
        done = labels.get(f"plan.upgrade.cattle.io/{name}")
        state = "waiting to be applied"
        if metadata.get("name") in (status.get("applying") or ()):
            state = "being applied now"
        elif done is not None and done == status.get("latestHash"):
            state = "applied, runs again when it changes"
        yield f"Plan {name} cordons and uncordons it: {state}"


def sentinel(breaker: Observed, groups: Observed, node: Mapping[str, Any]) -> Hand:
    """Writes nothing. NVSentinel with the state of its circuit breaker (ConfigMap `circuit-breaker`, `data.status`):
    CLOSED is normal, TRIPPED blocks new remediation; many cordons in a short time, ours too, trip it.

    Without its quarantine module, or in another namespace, it is there all the same and has no breaker here.
    """
    name, subject = "nvsentinel", _subject(node)
    metadata = node.get("metadata") or {}
    labels = metadata.get("labels") or {}
    managed, quarantined = labels.get(MANAGED), QUARANTINE in (metadata.get("annotations") or {})
    quarantined = quarantined or SENTINEL_STATE in labels
    traces = managed is not None or quarantined
    if breaker.problem and breaker.problem.code == "not-found" and not traces:
        signs = [g for g in SENTINEL_GROUPS if Served(groups).has(g)]
        signs += sorted(label for label in labels if label.startswith(f"{SENTINEL_GROUPS[1]}/"))
        if signs:
            text = f"its circuit breaker is not where it was looked for, but there is {', '.join(signs)}"
            remedy = "Ask its owner whether it quarantines nodes here, and in which namespace it runs."
            return _hand(name, FOUND, text, subject, Status.WARN, "nvsentinel-without-breaker", text, remedy)
        text = "no circuit-breaker ConfigMap, no API of it, no mark on the node"
        return _hand(name, ABSENT, "", subject, Status.PASS, "nvsentinel-absent", text)
    if breaker.problem:
        text = f"circuit breaker: {breaker.problem.code}: {breaker.problem.message}"
        if traces:
            text += "; the node carries its marks"
        return _hand(
            name, UNKNOWN, "", subject, Status.UNKNOWN, "other-hands-unreadable", text, "Is its namespace another one?"
        )
    status = str((breaker.value.get("data") or {}).get("status", ""))
    if status not in ("CLOSED", "TRIPPED"):
        text = f"its circuit breaker says {status!r}, wanted CLOSED or TRIPPED"
        return _hand(name, UNKNOWN, status, subject, Status.UNKNOWN, "other-hands-unreadable", text)
    state = f"breaker {status}, {'leaves the node alone' if managed == 'false' else 'manages the node'}"
    if quarantined:
        remedy = "Let it finish, or cancel its quarantine first."
        text = f"{state}, has quarantined it"
        return _hand(name, FOUND, text, subject, Status.WARN, "nvsentinel-quarantine", text, remedy)
    if status == "TRIPPED":
        remedy = "Find out why before more nodes leave; it stays tripped until somebody resets it."
        return _hand(name, FOUND, state, subject, Status.WARN, "nvsentinel-tripped", state, remedy)
    if managed != "false":
        remedy = f"Label the node {MANAGED}=false for the time of the work, and take the label off afterwards."
        return _hand(name, FOUND, state, subject, Status.WARN, "nvsentinel-manages", state, remedy)
    return _hand(name, FOUND, state, subject, Status.PASS, "nvsentinel-off", state)


def autoscaler(status: Observed, groups: Observed, node: Mapping[str, Any]) -> Hand:
    """Writes nothing. Cluster Autoscaler (its status ConfigMap) or Karpenter (its API), or the marks of either on the
    node: an empty cordoned node is what they remove first.

    Karpenter removes a node that has expired whatever its annotations say, so it is never kept off for good.
    """
    name, subject = "autoscaler", _subject(node)
    served = Served(groups)
    metadata = node.get("metadata") or {}
    taints = [str(t.get("key")) for t in (node.get("spec") or {}).get("taints") or ()]
    leaving = sorted(t for t in taints if t in LEAVING)
    kinds = {LEAVING[t] for t in leaving}
    if served.has("karpenter.sh") or any(label in (metadata.get("labels") or {}) for label in KARPENTER_LABELS):
        kinds.add(KARPENTER)
    if status.problem is None:
        kinds.add(CLUSTER_AUTOSCALER)
    unread = [f"groups: {served.problem}"] if served.problem else []
    if status.problem and status.problem.code != "not-found":
        unread.append(f"status ConfigMap: {status.problem.code}: {status.problem.message}")
    if not kinds and unread:
        return _hand(name, UNKNOWN, "", subject, Status.UNKNOWN, "other-hands-unreadable", "; ".join(unread))
    if not kinds:
        text = "no ConfigMap kube-system/cluster-autoscaler-status, no Karpenter API, no mark on the node"
        return _hand(name, ABSENT, "", subject, Status.PASS, "autoscaler-absent", text)
    text = " and ".join(sorted(kinds))
    if leaving:
        text = f"{text}, which is about to remove the node (taint {', '.join(leaving)})"
        remedy = "Let it finish and take another node, or cancel the removal first."
        return _hand(name, FOUND, text, subject, Status.WARN, "autoscaler-removing", text, remedy)
    annotations = metadata.get("annotations") or {}
    if annotations.get(NO_SCALE_DOWN) == "true" and kinds == {CLUSTER_AUTOSCALER}:
        if unread:
            text = f"{text}, which may not remove this node; of Karpenter nothing is known: {'; '.join(unread)}"
            return _hand(name, UNKNOWN, text, subject, Status.UNKNOWN, "other-hands-unreadable", text)
        text = f"{text}, which may not remove this node"
        return _hand(name, FOUND, text, subject, Status.PASS, "autoscaler-kept-off", text)
    marks = {CLUSTER_AUTOSCALER: NO_SCALE_DOWN, KARPENTER: NO_DISRUPTION}
    wanted = " and ".join(f"{marks[kind]}=true" for kind in sorted(kinds))
    remedy = f"Keep it off the node while it stands empty, for example by annotation {wanted}."
    return _hand(name, FOUND, text, subject, Status.WARN, "autoscaler-found", f"{text} may remove the node", remedy)


def _subject(node: Mapping[str, Any]) -> str:
    return f"Node/{(node.get('metadata') or {}).get('name')}"


def _hand(
    name: str, presence: str, state: str, subject: str, status: Status, code: str, message: str, remedy: str = ""
) -> Hand:
    if status is Status.UNKNOWN and not remedy:
        remedy = "Make it readable, then run the step again."
    return Hand(name, presence, state, _finding(subject, status, code, f"{name} is {presence}: {message}", remedy))


def _finding(subject: str, status: Status, code: str, message: str, remedy: str = "") -> Finding:
    return Finding(CHECK, subject, status, code, message, remedy, _SOURCE)
