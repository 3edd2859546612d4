"""What the pool loses when a node leaves it: allocatable GPUs by resource and product, and HAMi's cards and shares."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpurunbook.findings import Finding, Status, Verdict
from gpurunbook.nodes.resources import is_gpu, whole
from gpurunbook.plan import Check, Judgement, Pages, Seen, Table

CHECK = "capacity"
PRODUCT = "nvidia.com/gpu.product"
HAMI_REGISTER = "hami.io/node-nvidia-register"
PRESENT = "nvidia.com/gpu.present"

_PCI = re.compile(r"feature\.node\.kubernetes\.io/pci-(?:10de|(?:03[0-9a-f]{2}|1200)_(?:10de|1002))(?:_.+)?\.present")
"""NFD's labels of NVIDIA's and AMD's cards: display controllers and processing accelerators."""

_SOURCE = "gpurunbook.nodes.capacity"
_SHARED = "nvidia.com/gpu"


@dataclass(frozen=True)
class Loss:
    """One resource of the node. lost: allocatable here; pool: allocatable on all usable nodes of the same product,
    this one included; splits: HAMi's share count per card, where the number is one of shares."""

    product: str
    resource: str
    lost: int
    pool: int
    splits: tuple[int, ...] = ()

    @property
    def percent(self) -> float:
        """Writes nothing. What part of the pool goes, 0 to 100."""
        return round(100 * self.lost / self.pool, 1) if self.pool else 0.0


def product(node: Mapping[str, Any]) -> str:
    """Writes nothing. The GPU product label, "unlabelled" without one: it is absent while the driver is down."""
    labels = (node.get("metadata") or {}).get("labels") or {}
    return str(labels.get(PRODUCT) or "unlabelled")


def allocatable(node: Mapping[str, Any]) -> dict[str, int]:
    """Writes nothing. GPU resources of the node with their whole numbers. Raises ValueError for another quantity."""
    found = (node.get("status") or {}).get("allocatable") or {}
    return {name: whole(quantity) for name, quantity in sorted(found.items()) if is_gpu(name)}


def has_gpus(node: Mapping[str, Any]) -> bool:
    """Writes nothing. Whether the node has GPUs, as any of those that know says: the GPU Operator, NFD, HAMi, or the
    kubelet, which goes on naming a resource at 0 while its device plugin is down."""
    metadata, status = node.get("metadata") or {}, node.get("status") or {}
    if any(v == "true" and (k == PRESENT or _PCI.fullmatch(k)) for k, v in (metadata.get("labels") or {}).items()):
        return True
    if str((metadata.get("annotations") or {}).get(HAMI_REGISTER, "")).strip():
        return True
    return any(is_gpu(name) for which in ("capacity", "allocatable") for name in status.get(which) or ())


def usable(node: Mapping[str, Any]) -> bool:
    """Writes nothing. Whether the node takes pods now: Ready and schedulable."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
    return ready and (node.get("spec") or {}).get("unschedulable") is not True


def hami_cards(node: Mapping[str, Any]) -> list[int]:
    """Writes nothing. HAMi's split count of each card that the node registered, [] without HAMi.

    The annotation is `UUID,count,…:` per card, or (newer) a JSON list with `count`. Raises ValueError when it is
    neither.
    """
    text = str(((node.get("metadata") or {}).get("annotations") or {}).get(HAMI_REGISTER, "")).strip()
    if not text:
        return []
    if text.startswith("["):
        cards = json.loads(text)
        if not all(isinstance(c, dict) and isinstance(c.get("count"), int) for c in cards):
            raise ValueError(f"{HAMI_REGISTER} has a card without a count")
        return [int(c["count"]) for c in cards]
    fields = [card.split(",") for card in text.split(":") if card.strip()]
    if any(len(f) < 2 for f in fields):
        raise ValueError(f"{HAMI_REGISTER} has a card without a count")
    return [int(f[1]) for f in fields]


def losses(nodes: Iterable[Mapping[str, Any]], name: str) -> list[Loss]:
    """Writes nothing. What goes with the node of this name, per resource. Raises ValueError for a number that is none,
    LookupError when the node is not in the list."""
    listed = list(nodes)
    leaving = next((n for n in listed if (n.get("metadata") or {}).get("name") == name), None)
    if leaving is None:
        raise LookupError(f"node {name} is not among the {len(listed)} nodes")
    splits = tuple(hami_cards(leaving))
    pool: dict[str, int] = {}
    for node in listed:
        # Shares and whole cards bear one name; they are not one pool.
        alike = product(node) == product(leaving) and bool(hami_cards(node)) == bool(splits)
        if node is leaving or (alike and usable(node)):
            for resource, count in allocatable(node).items():
                pool[resource] = pool.get(resource, 0) + count
    return [
        Loss(product(leaving), resource, count, pool[resource], splits if resource == _SHARED else ())
        for resource, count in allocatable(leaving).items()
    ]


def capacity_lost(node: str) -> Check:
    """Writes nothing. Shows what the pool loses with the node. It judges nothing; only an unreadable list stops."""
    return Check(
        title=f"What the pool loses without {node}",
        needs={"nodes": Pages("/api/v1/nodes")},
        judge=lambda seen: judgement(node, seen),
        against=Verdict.BLOCKED,
    )


def judgement(node: str, seen: Seen) -> Judgement:
    """Writes nothing. One finding per GPU resource of the node; taking the last of a product is a warning."""
    observed = seen["nodes"]
    if observed.problem:
        return _unknown(node, f"nodes: {observed.problem.code}: {observed.problem.message}")
    try:
        found = losses(observed.value, node)
    except (ValueError, LookupError, TypeError) as wrong:
        return _unknown(node, str(wrong))
    rows = [(f.resource, f.product, f.lost, f.pool, f.percent, _shares(f)) for f in found]
    table = Table(
        title=f"Capacity that goes with {node}",
        columns=("resource", "product", "lost", "pool", "percent", "note"),
        rows=rows,
        bars=("percent",),
        note="Pool: nodes of the same product that are Ready and schedulable, this one included.",
    )
    facts = {
        f.resource: {
            "lost": f.lost,
            "pool": f.pool,
            "percent": f.percent,
            "product": f.product,
            "cards": len(f.splits) or f.lost,
        }
        for f in found
    }
    return Judgement(tuple(_told(f, node) for f in found) or (_none(node),), (table,), {"lost": facts})


def _shares(loss: Loss) -> str:
    """Cards and shares of HAMi; empty where whole cards are counted."""
    if not loss.splits:
        return ""
    cards, shares = len(loss.splits), sum(loss.splits)
    how = f"{cards} cards × {loss.splits[0]}" if len(set(loss.splits)) == 1 else f"{cards} cards, {shares} shares"
    return f"HAMi shares: {how}" + ("" if shares == loss.lost else f", but {loss.lost} are allocatable")


def _told(loss: Loss, node: str) -> Finding:
    last = loss.lost > 0 and loss.lost == loss.pool
    code = "capacity-last-of-pool" if last else "capacity-lost"
    text = f"{loss.lost} of {loss.pool} {loss.resource} of {loss.product} go ({loss.percent} %)"
    if loss.splits:
        text += f"; {_shares(loss)}"
    remedy = "No other usable node offers it: pods that need it will wait." if last else ""
    return _finding(node, Status.WARN if last else Status.PASS, code, text, remedy)


def _none(node: str) -> Finding:
    return _finding(
        node,
        Status.WARN,
        "capacity-none",
        "the node offers no GPU resource now; what DRA gives out is not counted",
        "Is its device plugin up?",
    )


def _unknown(node: str, why: str) -> Judgement:
    return Judgement((_finding(node, Status.UNKNOWN, "capacity-unreadable", why, "Make it readable, then run again."),))


def _finding(node: str, status: Status, code: str, message: str, remedy: str = "") -> Finding:
    return Finding(CHECK, f"Node/{node}", status, code, message, remedy, _SOURCE)
