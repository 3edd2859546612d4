"""What runs have left in a cluster: our cordons and leases, judged from raw lists. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gpurunbook.nodes import cordon
from gpurunbook.plan import Need, Pages, Problem, Seen

LEASE = "gpurunbook.io/lease"
TARGET = "gpurunbook.io/target"

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
"""What may stand in a command that somebody pastes: marks in a cluster are text of others."""


@dataclass(frozen=True)
class Leftover:
    """One thing of ours. kind: `cordon` or `lease`; target: such as `node/gpu-a`; next: the command that goes on."""

    kind: str
    name: str
    target: str
    run: str
    since: str
    state: str
    next: str

    def as_json(self) -> dict[str, str]:
        """Writes nothing."""
        return asdict(self)


def needs() -> dict[str, Need]:
    """Writes nothing. What must be listed."""
    leases = "/apis/coordination.k8s.io/v1/leases"
    return {
        "nodes": Pages("/api/v1/nodes"),
        "leases": Pages(leases, None, (("labelSelector", f"{LEASE}=true"),)),
    }


def leftovers(seen: Seen, cluster: str = "") -> tuple[list[Leftover], list[Problem]]:
    """Writes nothing. All that is ours, by kind and name, and what could not be listed: that is never nothing.

    cluster: as `--cluster` names it, for the commands; "" is the current context. They are complete but for what only a
    person knows, which is `…` there.

    A lease can stand beside a cordon of its own run, beside another run's, or alone: a request to take it may arrive
    when its run is over, and nothing can refuse it then.
    """
    problems = [observed.problem for _, observed in sorted(seen.items()) if observed.problem]
    nodes, leases = seen["nodes"].value or (), seen["leases"].value or ()
    holders = {_target(lease): _holder(lease) for lease in leases}
    at = f" --cluster {shlex.quote(cluster)}" if cluster else ""
    more = f"{at} --set change_id=… --set reason=…"
    cordons = [left for node in nodes if (left := _cordon(node, holders, more))]
    owners = {left.target: left.run for left in cordons}
    found = [*cordons, *(_lease(lease, owners, more) for lease in leases)]
    return sorted(found, key=lambda left: (left.kind, left.name)), problems


def _cordon(node: Mapping[str, Any], holders: Mapping[str, str], more: str) -> Leftover | None:
    now = cordon.standing(node, "")
    if now.owner is None and not now.tainted and not now.garbled:
        return None
    name = str(node["metadata"]["name"])
    run, since = (now.run, str(now.owner["time"])) if now.owner else ("", "")
    marks = [word for word, there in (("unschedulable", now.unschedulable), ("taint", now.tainted)) if there]
    state = f"{' and '.join(marks) or 'no guard left'}{'' if now.owner else '; no readable owner'}"
    target = f"node/{name}"
    taken = f" --set take_over={holders[target]}" if target in holders else ""
    known = all(_PLAIN.fullmatch(word) for word in (run, name, holders.get(target, "x")))
    go_on = f"gpurunbook release {name}{taken}{more}, or gpurunbook adopt {name}{taken}{more}"
    return Leftover("cordon", name, target, run, since, state, go_on if known else "look at the node by hand")


def _lease(lease: Mapping[str, Any], owners: Mapping[str, str], more: str) -> Leftover:
    metadata, spec = lease["metadata"], lease.get("spec") or {}
    run, target = _holder(lease), _target(lease)
    name = f"{metadata.get('namespace')}/{metadata['name']}"
    go_on = [] if owners.get(target, run) != run else [f"gpurunbook abort {run}{more}"]
    if target in owners:
        node = target.removeprefix("node/")
        go_on.append(f"gpurunbook adopt {node} --set take_over={run}{more}, which keeps the cordon")
    known = _PLAIN.fullmatch(run) and (target not in owners or _PLAIN.fullmatch(target.removeprefix("node/")))
    next_ = ", or ".join(go_on) if known else "look at the lease by hand"
    return Leftover("lease", name, target, run, str(spec.get("acquireTime") or ""), "held", next_)


def _holder(lease: Mapping[str, Any]) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def _target(lease: Mapping[str, Any]) -> str:
    return str((lease["metadata"].get("annotations") or {}).get(TARGET) or "")
