"""Who holds the GPUs of a node: nobody, somebody, or it cannot be said.

The union of all signals counts (pods, DRA claims, virtual machine instances), each holder with its reasons. What
could not be read is unknown, and unknown blocks like held. Needs, on a cluster: get nodes; list pods, daemonsets.apps,
runtimeclasses.node.k8s.io, and where they are served resourceclaims.resource.k8s.io,
virtualmachineinstances.kubevirt.io and kubevirts.kubevirt.io; GET /apis tells which are served.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpurunbook.findings import Finding, Status, Verdict
from gpurunbook.nodes import claims, machines, operands, signals
from gpurunbook.nodes.discovery import GROUPS, Served, node_object
from gpurunbook.nodes.resources import permitted
from gpurunbook.nodes.shapes import Claim, ClaimPage, DaemonSetPage, Pod, PodPage, RuntimeClassPage
from gpurunbook.nodes.signals import Reason
from gpurunbook.nodes.vmshapes import KubeVirtPage, Vmi, VmiPage
from gpurunbook.plan import Check, Judgement, Need, Pages, Seen, Table

CHECK = "holders"
NONE, HELD, UNKNOWN = "none", "held", "unknown"

ROWS = 200
"""Holders shown in a notebook; the findings name all."""

_SOURCE = "gpurunbook.nodes.holders"


@dataclass(frozen=True)
class Holder:
    """Something that holds a GPU of the node, or may.

    pod: `namespace/name`; kind: `pod`, `vmi` (an instance without a pod here) or `claim` (reserved for nobody);
    sure: False when the only reason is a claim that could not be read; operator_owned: it is the operator's own and
    goes away by itself.
    """

    pod: str
    kind: str
    owner: str
    reasons: tuple[Reason, ...]
    operator_owned: bool = False

    @property
    def sure(self) -> bool:
        """Writes nothing. Whether it surely holds."""
        return any(r.word != claims.UNREAD for r in self.reasons)

    @property
    def words(self) -> list[str]:
        """Writes nothing. The reason words, sorted, each once."""
        return sorted({r.word for r in self.reasons})

    def as_json(self) -> dict[str, Any]:
        """Writes nothing. The holder for machines; `seen` are the details of its reasons."""
        seen = [f"{r.word}: {r.detail}" for r in self.reasons]
        return {"kind": self.kind, "owner": self.owner, "pod": self.pod, "reasons": self.words, "seen": seen}


@dataclass(frozen=True)
class Report:
    """The answer for one node. problems: what could not be read; doubts: what may hold without proof."""

    node: str
    holders: tuple[Holder, ...]
    operands: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    doubts: Mapping[str, str] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """Writes nothing. `held` when one surely holds; else `unknown` when anything was not read; else `none`."""
        if any(h.sure for h in self.holders):
            return HELD
        return UNKNOWN if self.holders or self.problems else NONE

    def as_json(self) -> dict[str, Any]:
        """Writes nothing. The stable answer of `gpurunbook holders -o json`."""
        return {
            "verdict": self.verdict,
            "blocking": sorted({h.pod for h in self.holders if not h.operator_owned}),
            "operator_owned": sorted({h.pod for h in self.holders if h.operator_owned}),
            "holders": [h.as_json() for h in self.holders],
            "node": self.node,
            "operands": list(self.operands),
            "problems": list(self.problems),
            "doubts": dict(sorted(self.doubts.items())),
        }


@dataclass(frozen=True)
class Around:
    """What is known of the cluster beside the pods; all empty when only a file of pods is judged.

    claims: by `namespace/name`, None when there is no list of them; labels: of the node, None when not known;
    there: the operand DaemonSets that exist, None when not known; names: GPU resource names beyond the vendors' own;
    handlers: of the runtime classes that are there, by their names; operator: namespaces of the GPU Operator.
    """

    claims: Mapping[str, Claim] | None = None
    labels: Mapping[str, str] | None = None
    vmis: tuple[Vmi, ...] = ()
    there: operands.Known | None = None
    names: frozenset[str] = frozenset()
    handlers: Mapping[str, str] = field(default_factory=dict)
    operator: Collection[str] = operands.NAMESPACES


def holders(node: str, pods: Iterable[Pod], around: Around, problems: Iterable[str] = ()) -> Report:
    """Writes nothing. Judges pods of any node, bound or not, for one node."""
    found: dict[tuple[str, str], Holder] = {}
    mine: set[str] = set()
    named: set[str] = set()
    doubts: dict[str, str] = {}
    vms = dict(machines.on_node(around.vmis, node, around.names))
    for pod in pods:
        if not pod.live or pod.spec.nodeName not in (None, "", node):
            continue
        key = pod.metadata.key
        if pod.spec.nodeName:
            named.update(f"{pod.metadata.namespace}/{name}" for _, name in claims.names(pod))
        owned = operands.operator_owned(pod, node, around.there, around.operator)
        if pod.spec.nodeName and not owned and operands.operand(pod, around.there, around.operator):
            mine.add(key)
            continue
        reasons = _reasons(pod, node, around)
        vm = vms.pop(machines.of_pod(pod), None) if pod.spec.nodeName else None
        reasons += [vm] if vm else []
        if reasons:
            owner = pod.metadata.controller
            reasons = sorted({*reasons, *signals.states(pod)})
            found["pod", key] = Holder(key, "pod", f"{owner.kind}/{owner.name}" if owner else "", (*reasons,), owned)
        elif pod.spec.nodeName and (doubt := signals.doubts(pod, around.handlers)):
            doubts[key] = "; ".join(doubt)
    for key, reason in vms.items():
        found["vmi", key] = Holder(key, "vmi", "", (reason,))
    for claim, kind, key, reason in claims.without_pod(around.claims or {}, node, around.labels):
        told_already = (kind, key) in found or key in mine if kind == "pod" else claim in named
        if not told_already:
            found[kind, key] = Holder(key, kind, "", (reason,))
    ordered = sorted(found.values(), key=lambda h: (h.pod, h.kind))
    return Report(node, tuple(ordered), tuple(sorted(mine)), tuple(sorted(problems)), doubts)


def _reasons(pod: Pod, node: str, around: Around) -> list[Reason]:
    if not pod.spec.nodeName:
        return signals.assigned(pod, node)
    return [*signals.signals(pod, around.names, around.handlers), *claims.of_pod(pod, around.claims)]


def no_holders(node: str, operator: Collection[str] = operands.NAMESPACES) -> Check:
    """Writes nothing. The check that nobody holds a GPU of the node; a holder blocks the run.

    operator: namespaces of the GPU Operator, where its own short-lived pods may hold a GPU for a while.
    """
    return Check(
        title=f"Nobody holds a GPU of {node}",
        needs=needs(node),
        follow=follow,
        judge=lambda seen: judgement(report(node, seen, operator)),
        against=Verdict.BLOCKED,
    )


def needs(node: str) -> dict[str, Need]:
    """Writes nothing. What must be observed first: pods that are not bound yet, and lists of this node.

    In this order: a pod that is bound between the two lists stands in both, and not in neither.
    """
    return {
        "node": node_object(node),
        "unbound": Pages("/api/v1/pods", PodPage, (("fieldSelector", "spec.nodeName="),)),
        "pods": Pages("/api/v1/pods", PodPage, (("fieldSelector", f"spec.nodeName={node}"),)),
        "daemonsets": Pages("/apis/apps/v1/daemonsets", DaemonSetPage),
        "runtimeclasses": Pages("/apis/node.k8s.io/v1/runtimeclasses", RuntimeClassPage),
        "groups": GROUPS,
    }


def follow(seen: Seen) -> dict[str, Need]:
    """Writes nothing. Claims and virtual machine instances, where the cluster serves their API group."""
    served = Served(seen["groups"])
    found: dict[str, Need] = {}
    if version := served.version("resource.k8s.io", ("v1", "v1beta2", "v1beta1", "v1alpha3")):
        found["claims"] = Pages(f"/apis/resource.k8s.io/{version}/resourceclaims", ClaimPage)
    if version := served.version("kubevirt.io", ("v1",)):
        found["vmis"] = Pages(f"/apis/kubevirt.io/{version}/virtualmachineinstances", VmiPage)
        found["kubevirts"] = Pages(f"/apis/kubevirt.io/{version}/kubevirts", KubeVirtPage)
    return found


def report(node: str, seen: Seen, operator: Collection[str] = operands.NAMESPACES) -> Report:
    """Writes nothing. Judges what was observed for `needs` and `follow`. A group that is not served is absent;
    anything that is served and could not be read, a 404 included, is a problem."""
    problems = {name: f"{name}: {o.problem.code}: {o.problem.message}" for name, o in seen.items() if o.problem}
    values: dict[str, Any] = {name: o.value for name, o in seen.items() if o.problem is None}
    if "groups" in values and Served(seen["groups"]).problem:
        problems["groups"] = f"groups: {Served(seen['groups']).problem}"
    labels = (values.get("node", {}).get("metadata") or {}).get("labels") or {}
    daemonsets = values.get("daemonsets")
    around = Around(
        claims=claims.by_key(values["claims"]) if "claims" in values else None,
        labels=labels if "node" in values else None,
        vmis=tuple(values.get("vmis", ())),
        there=None if daemonsets is None else operands.known(daemonsets, operator),
        names=frozenset(n for k in values.get("kubevirts", ()) for n in permitted(k) if n),
        handlers={r.metadata.name: r.handler for r in values.get("runtimeclasses", ())},
        operator=operator,
    )
    return holders(node, [*values.get("pods", ()), *values.get("unbound", ())], around, problems.values())


def judgement(answer: Report) -> Judgement:
    """Writes nothing. The answer as findings, tables and facts."""
    found = [_finding(h, answer.verdict) for h in answer.holders]
    # Beside a sure holder, what could not be read changes nothing: the node is held.
    gravity = Status.WARN if answer.verdict == HELD else Status.UNKNOWN
    found += [
        Finding(
            CHECK,
            f"Node/{answer.node}",
            gravity,
            "holders-unreadable",
            f"not everything that may hold a GPU could be read: {problem}",
            "Make it readable (permission, API service), then run the step again.",
            _SOURCE,
        )
        for problem in answer.problems
    ]
    found += [
        Finding(
            CHECK,
            _subject("pod", pod),
            Status.WARN,
            "gpu-possibly-held",
            why,
            "Look with nvidia-smi on the node, or ask its owner.",
            _SOURCE,
        )
        for pod, why in sorted(answer.doubts.items())
    ]
    if answer.verdict == NONE:
        message = f"no pod, claim or virtual machine holds a GPU ({len(answer.operands)} operand pods not counted)"
        found.insert(0, Finding(CHECK, f"Node/{answer.node}", Status.PASS, "no-holders", message, "", _SOURCE))
    return Judgement(tuple(found), (_table(answer),), answer.as_json())


def _subject(kind: str, name: str) -> str:
    namespace, _, own = name.partition("/")
    return f"{namespace}/{ {'pod': 'Pod', 'vmi': machines.VMI, 'claim': 'ResourceClaim'}[kind] }/{own}"


def _finding(holder: Holder, verdict: str) -> Finding:
    why = "; ".join(f"{r.word}: {r.detail}" for r in holder.reasons)
    if not holder.sure:
        status = Status.FAIL if verdict == HELD else Status.UNKNOWN
        code, remedy = "gpu-holder-unread", "Make its ResourceClaim readable, or stop the pod."
    elif holder.operator_owned:
        status, code = Status.FAIL, "gpu-held-by-operator"
        remedy = "It is the operator's own and ends by itself: wait, then run the step again."
    else:
        status, code = Status.FAIL, "gpu-held"
        remedy = f"Have its owner{f' ({holder.owner})' if holder.owner else ''} stop it, and wait until it is gone."
    return Finding(CHECK, _subject(holder.kind, holder.pod), status, code, why, remedy, _SOURCE)


def _table(answer: Report) -> Table:
    rows = [
        (
            h.pod,
            h.owner or h.kind,
            "operator" if h.operator_owned else ("held" if h.sure else "unknown"),
            ", ".join(h.words),
            "; ".join(r.detail for r in h.reasons if r.detail),
        )
        for h in answer.holders
    ]
    note = f"{len(answer.operands)} operand pods use the devices and are nobody's workload."
    return Table(
        title=f"Who holds the GPUs of {answer.node}: {answer.verdict}",
        columns=("pod", "owner", "status", "reasons", "seen"),
        rows=rows[:ROWS],
        total=len(rows),
        status="status",
        note=note,
    )
