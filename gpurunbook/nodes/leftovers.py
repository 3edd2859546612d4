"""What runs have left in a cluster: our cordons and leases, judged from raw lists. Pure."""

from __future__ import annotations

import re
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


def leftovers(seen: Seen) -> tuple[list[Leftover], list[Problem]]:
    """Writes nothing. All that is ours, by kind and name, and what could not be listed: that is never nothing."""
    problems = [observed.problem for _, observed in sorted(seen.items()) if observed.problem]
    found = [left for node in seen["nodes"].value or () if (left := _cordon(node))]
    found += [_lease(lease) for lease in seen["leases"].value or ()]
    return sorted(found, key=lambda left: (left.kind, left.name)), problems


def _cordon(node: Mapping[str, Any]) -> Leftover | None:
    now = cordon.standing(node, "")
    if now.owner is None and not now.tainted and not now.garbled:
        return None
    name = str(node["metadata"]["name"])
    run, since = (now.run, str(now.owner["time"])) if now.owner else ("", "")
    marks = [word for word, there in (("unschedulable", now.unschedulable), ("taint", now.tainted)) if there]
    state = f"{' and '.join(marks) or 'no guard left'}{'' if now.owner else '; no readable owner'}"
    known = _PLAIN.fullmatch(run) and _PLAIN.fullmatch(name)
    go_on = f"gpurunbook release {name}, or gpurunbook adopt {name}" if known else "look at the node by hand"
    return Leftover("cordon", name, f"node/{name}", run, since, state, go_on)


def _lease(lease: Mapping[str, Any]) -> Leftover:
    metadata, spec = lease["metadata"], lease.get("spec") or {}
    run = str(spec.get("holderIdentity") or "")
    target = str((metadata.get("annotations") or {}).get(TARGET) or "")
    name = f"{metadata.get('namespace')}/{metadata['name']}"
    go_on = f"gpurunbook abort {run}" if _PLAIN.fullmatch(run) else "look at the lease by hand"
    return Leftover("lease", name, target, run, str(spec.get("acquireTime") or ""), "held", go_on)
