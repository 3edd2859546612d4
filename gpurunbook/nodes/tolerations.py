"""Which DaemonSets would not come back on a node under our taint, and the Helm value that lets them.

A NoSchedule taint evicts nobody, but a pod that is deleted or restarted afterwards (a driver upgrade, a mode switch,
a reboot) is not scheduled again. The charts do not tolerate a foreign taint by default.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpurunbook.findings import Finding, Status, Verdict
from gpurunbook.nodes import families
from gpurunbook.nodes.cordon import taint, toleration
from gpurunbook.nodes.discovery import node_object
from gpurunbook.nodes.families import Fix
from gpurunbook.nodes.operands import NAMESPACES
from gpurunbook.nodes.selectors import daemon_runs_on
from gpurunbook.plan import Check, Judgement, Pages, Seen, Table

CHECK = "tolerations"

_SOURCE = "gpurunbook.nodes.tolerations"
_DEPLOY = "nvidia.com/gpu.deploy."
_PAUSED = "paused-for-"


def tolerates(tolerations: Iterable[Mapping[str, Any]] | None, wanted: Mapping[str, Any]) -> bool:
    """Writes nothing. Whether any toleration matches the taint, as the scheduler decides it.

    Empty effect and empty key match every one; operator "" is Equal; tolerationSeconds plays no part. Lt and Gt (a
    feature gate) compare numbers and match nothing here.
    """
    return any(_matches(t, wanted) for t in tolerations or ())


def _matches(one: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    if one.get("effect") and one["effect"] != wanted.get("effect"):
        return False
    if one.get("key") and one["key"] != wanted.get("key"):
        return False
    match one.get("operator") or "Equal":
        case "Equal":
            return (one.get("value") or "") == (wanted.get("value") or "")
        case "Exists":
            return True
    return False


def intended(labels: Mapping[str, str]) -> dict[str, str]:
    """Writes nothing. Node labels as they are once every paused operand is back.

    `paused-for-cc-mode-change` stands for `true`, `X_paused-for-…` for `X`: those pods must come back as well.
    """
    found = dict(labels)
    for key, value in labels.items():
        if key.startswith(_DEPLOY) and _PAUSED in value:
            found[key] = value.partition(_PAUSED)[0].removesuffix("_") or "true"
    return found


@dataclass(frozen=True)
class Missing:
    """One DaemonSet that chooses the node and does not tolerate our taint. fix: None where it is no part of the GPU or
    node stack; tolerations: what the value must be, the present ones included."""

    name: str
    fix: Fix | None
    tolerations: list[Any]


def missing(
    daemonsets: Iterable[Mapping[str, Any]],
    node: str,
    labels: Mapping[str, str],
    operator: Collection[str] = NAMESPACES,
) -> list[Missing]:
    """Writes nothing. The DaemonSets that would not come back on the node under our taint, by name."""
    lacking: list[tuple[str, Fix | None]] = []
    # One value of a chart serves several DaemonSets, so it must keep the tolerations of all of them.
    present: dict[Fix | None, list[Any]] = {}
    for one in daemonsets:
        spec = ((one.get("spec") or {}).get("template") or {}).get("spec") or {}
        if not daemon_runs_on(spec, node, intended(labels)):
            continue
        tolerations, fix = spec.get("tolerations") or [], families.fix(one, operator)
        kept = present.setdefault(fix, [])
        kept += [t for t in tolerations if t not in kept and t != toleration()]
        if not tolerates(tolerations, taint()):
            metadata = one.get("metadata") or {}
            lacking.append((f"{metadata.get('namespace')}/{metadata.get('name')}", fix))
    return sorted(
        (Missing(name, fix, [*present[fix], toleration()] if fix else []) for name, fix in lacking),
        key=lambda m: m.name,
    )


def daemonsets_return(node: str, operator: Collection[str] = NAMESPACES) -> Check:
    """Writes nothing. The check that what must run on the node tolerates our taint; else the run is blocked."""
    return Check(
        title=f"DaemonSets come back on {node} under our taint",
        needs={"node": node_object(node), "daemonsets": Pages("/apis/apps/v1/daemonsets")},
        judge=lambda seen: judgement(node, seen, operator),
        against=Verdict.BLOCKED,
    )


def judgement(node: str, seen: Seen, operator: Collection[str] = NAMESPACES) -> Judgement:
    """Writes nothing. One finding per DaemonSet that would not come back; those outside the stack only warn."""
    problems = [(name, o.problem) for name, o in sorted(seen.items()) if o.problem]
    if problems:
        return Judgement(
            tuple(
                _finding(
                    f"Node/{node}",
                    Status.UNKNOWN,
                    "tolerations-unreadable",
                    f"{name}: {problem.code}: {problem.message}",
                    "Make it readable, then run the step again.",
                )
                for name, problem in problems
            )
        )
    labels = (seen["node"].value.get("metadata") or {}).get("labels") or {}
    lacking = missing(seen["daemonsets"].value, node, labels, operator)
    found = [_told(one, node) for one in lacking]
    if not any(f.status is Status.FAIL for f in found):
        message = f"every DaemonSet of the GPU and node stack on {node} tolerates {_taint_text()}"
        found.insert(0, _finding(f"Node/{node}", Status.PASS, "taint-tolerated", message))
    fixes = {m.fix.spelled: m.tolerations for m in lacking if m.fix}
    table = Table(
        title=f"DaemonSets that would not come back on {node} under {_taint_text()}",
        columns=("DaemonSet", "part of", "status", "Helm value", "set it to"),
        rows=[
            (m.name, m.fix.part, "fail", m.fix.value, json.dumps(m.tolerations, sort_keys=True))
            if m.fix
            else (m.name, "", "warn", "", "")
            for m in lacking
        ],
        status="status",
    )
    return Judgement(
        tuple(found),
        (table,),
        {
            "missing": [m.name for m in lacking if m.fix],
            "others": [m.name for m in lacking if not m.fix],
            "fixes": fixes,
        },
    )


def _told(one: Missing, node: str) -> Finding:
    namespace, _, name = one.name.partition("/")
    subject = f"{namespace}/DaemonSet/{name}"
    what = f"it chooses {node} and does not tolerate {_taint_text()}: its pod would not come back"
    if one.fix is None:
        return _finding(subject, Status.WARN, "taint-not-tolerated-other", what)
    value = json.dumps(one.tolerations, sort_keys=True)
    remedy = f"Set {one.fix.spelled} to {value}, or choose `taint: false`, which is weaker."
    return _finding(subject, Status.FAIL, "taint-not-tolerated", f"{what} ({one.fix.part})", remedy)


def _taint_text() -> str:
    return f"{taint()['key']}:{taint()['effect']}"


def _finding(subject: str, status: Status, code: str, message: str, remedy: str = "") -> Finding:
    return Finding(CHECK, subject, status, code, message, remedy, _SOURCE)
