"""The current tuple and the hardware as the live cluster shows them, beside what somebody typed.

A record and a request say from where a step leads and on which hardware; both are typed. Here they are compared with
what runs. What nobody shows is unknown, and every pool of nodes that disagrees is named.
Source: GPU supply-chain policy, promotion step 2 (upgrade check).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpurunbook.findings import Finding, Status, worst
from gpurunbook.plan import Judgement, Need, Seen, Table
from gpurunbook.supply import live, sightings
from gpurunbook.supply.members import at
from gpurunbook.supply.qualification import COMPONENTS, identity
from gpurunbook.supply.sightings import Sighting

CHECK = "current"
SOURCE = "GPU supply-chain policy, promotion step 2"

HARDWARE = "hardware"
PRODUCT = "nvidia.com/gpu.product"
WORKLOAD = "nvidia.com/gpu.workload.config"
NFD_NODE = "nfd.node.kubernetes.io/node-name"

_OF_NODE = ("kernel", "rke2", "driver")
"""Fields that a node has by itself. Operator and exporter are the cluster's: they change everywhere at once."""

_RUNS = ("Pod/", "HelmRelease/")
"""Where something shows what runs: an operand that is switched off keeps its version in the ClusterPolicy."""

_SHOWN = 8
_NVIDIA, _DISPLAY = "10de", "03"
_LABEL = re.compile(
    r"feature\.node\.kubernetes\.io/pci-03[0-9a-f]{2}_(10de)_([0-9a-f]{4})_([0-9a-f]{4})_([0-9a-f]{4})\.present"
)


@dataclass(frozen=True)
class Typed:
    """What somebody wrote. current, target: field of COMPONENTS → value; hardware: of the request; qualified: of the
    record, which the nodes of the canary must have."""

    current: Mapping[str, str]
    target: Mapping[str, str]
    hardware: Sequence[str]
    qualified: Sequence[str]


@dataclass
class GpuNode:
    """One node with a GPU. hardware: vendor:device/subvendor:subdevice of its GPUs; empty: nothing says so."""

    name: str
    pool: str
    driverless: bool
    hardware: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Current:
    """What runs. values: sightings by field of COMPONENTS; nodes: those with a GPU, by name; others: the other nodes;
    unread: what could not be listed, and why."""

    values: Mapping[str, Sequence[Sighting]]
    nodes: Mapping[str, GpuNode]
    others: Collection[str]
    unread: Mapping[str, str]


def needs(namespaces: Sequence[str]) -> dict[str, Need]:
    """Writes nothing. What must be observed."""
    return live.needs(namespaces, hardware=True)


def collect(seen: Seen, namespaces: Sequence[str]) -> Current:
    """Writes nothing. The current tuple and the hardware from what was observed of `needs`."""
    objects, unread = live.objects(seen, namespaces)
    values: dict[str, list[Sighting]] = {name: [] for name in (*COMPONENTS, "dcgmExporterDigest")}
    for one in sightings.live(objects):
        if one.field in values and one.state != "unresolved":
            values[one.field].append(one)
    devices: dict[str, set[str]] = defaultdict(set)
    for raw in objects:
        if raw["kind"] == "NodeFeature":
            devices[str(at(raw, "metadata", "labels", NFD_NODE))] |= _devices(raw)
    nodes: dict[str, GpuNode] = {}
    others: set[str] = set()
    for raw in (one for one in objects if one["kind"] == "Node"):
        name, labels = str(at(raw, "metadata", "name")), at(raw, "metadata", "labels") or {}
        hardware = devices[name] | _labelled(labels)
        if sightings.has_gpu(raw) or hardware:
            driverless = str(labels.get(WORKLOAD, "")).startswith("vm-")
            nodes[name] = GpuNode(name, str(labels.get(PRODUCT) or "without a product label"), driverless, hardware)
        else:
            others.add(name)
    return Current(values, nodes, others, unread)


def _labelled(labels: Mapping[str, Any]) -> set[str]:
    """Of NFD's labels where `deviceLabelFields` names all five."""
    found = (_LABEL.fullmatch(label) for label, value in labels.items() if value == "true")
    return {"{}:{}/{}:{}".format(*one.groups()) for one in found if one}


def _devices(raw: Mapping[str, Any]) -> set[str]:
    """GPUs only: the same card also has an audio function, and NVSwitches are NVIDIA's too."""
    found = set()
    elements = at(raw, "spec", "features", "instances", "pci.device", "elements")
    for element in elements if isinstance(elements, list) else []:
        given = at(element, "attributes")
        parts = [str(at(given, name)).lower() for name in ("vendor", "device", "subsystem_vendor", "subsystem_device")]
        if parts[0] == _NVIDIA and str(at(given, "class")).startswith(_DISPLAY):
            found.add("{}:{}/{}:{}".format(*parts))
    return found


def filled(now: Current) -> tuple[dict[str, str], list[str]]:
    """Writes nothing. Current tuple and hardware to write into a request: a value only where every place agrees on it,
    and no hardware where that of one GPU node is not known."""
    values = {name: {one.value for one in now.values[name]} for name in COMPONENTS}
    current = {name: min(found) if len(found) == 1 else "" for name, found in values.items()}
    known = bool(now.nodes) and all(node.hardware for node in now.nodes.values())
    return current, sorted(set().union(*(n.hardware for n in now.nodes.values()))) if known else []


def judge(typed: Typed, now: Current, canaries: Sequence[str] | None = None) -> Judgement:
    """Writes nothing. Compares what was typed with what runs.

    canaries: None before an upgrade, when everything must still run the current tuple. In a promotion the nodes that
    were upgraded: they must be there with the record's hardware. What the cluster has once (charts, operands that roll
    by themselves, the control plane) may then be on the target already; every other GPU node must not.
    """
    found = list(_unread(now))
    if not now.nodes and "Node" not in now.unread:
        found.append(_finding(Status.UNKNOWN, "no-gpu-node", "cluster", "no node has a GPU", _LOOK))
    if canaries is not None:
        found += _canaries(typed, now, canaries)
    upgraded = set(canaries or ())
    staying = {name: node for name, node in now.nodes.items() if name not in upgraded}
    if now.nodes and not staying:
        message = "every GPU node is one of the canary: nothing runs any more what was typed as current"
        remedy = "The released tuple and the canary's bundle are all that says what ran before."
        found.append(_finding(Status.WARN, "current-nowhere", "cluster", message, remedy))
    rows: list[tuple[str, str, str, str]] = []
    for name in COMPONENTS:
        told = list(_field(name, typed, now, staying, upgraded, rolling=canaries is not None))
        if name in _OF_NODE:
            told += _upgraded(name, typed.target[name], now, sorted(upgraded & set(now.nodes)))
        found += told
        rows.append(
            (
                name,
                typed.current[name] or "–",
                _shown(now, name, typed.target[name] if canaries is not None else ""),
                _status(told),
            )
        )
    told = list(_hardware(typed, now))
    found += told
    identities: set[str] = set().union(*(node.hardware for node in now.nodes.values()))
    rows.append((HARDWARE, ", ".join(typed.hardware) or "–", _listed(identities), _status(told)))
    if not any(one.status in (Status.FAIL, Status.UNKNOWN) for one in found):
        message = f"{len(now.nodes)} GPU nodes and the cluster are as typed"
        found.append(_finding(Status.PASS, "current-as-typed", "cluster", message, ""))
    columns = ("field", "typed", "live", "status")
    return Judgement(tuple(found), (Table("Typed and live", columns, rows, status="status"), _pools(now, upgraded)))


_LOOK = "Read what carries it, then ask again: what nobody shows is not as typed."
_TRUST = "Find out which of the two is right; correct the record and the request, or bring the cluster back."


def _unread(now: Current) -> Iterator[Finding]:
    for name, message in now.unread.items():
        yield _finding(Status.UNKNOWN, "live-unreadable", name, message, _LOOK)


def _canaries(typed: Typed, now: Current, canaries: Sequence[str]) -> Iterator[Finding]:
    if "Node" in now.unread:
        return
    qualified = _identities(typed.qualified)
    seen: set[str] = set()
    for name in sorted(set(canaries)):
        if name not in now.nodes:
            code = "canary-node-without-gpu" if name in now.others else "canary-node-unknown"
            message = "it has no GPU" if name in now.others else "the cluster has no such node"
            yield _finding(Status.FAIL, code, f"Node/{name}", message, "Name the nodes that were upgraded.")
            continue
        seen |= now.nodes[name].hardware
        if other := sorted(now.nodes[name].hardware - qualified):
            message = f"it has {', '.join(other)}, the record is for {_listed(qualified)}"
            remedy = "A canary proves its own hardware only: qualify this, or name the node that it ran on."
            yield _finding(Status.FAIL, "canary-node-hardware", f"Node/{name}", message, remedy)
    if seen and (lacking := sorted(qualified - seen)):
        message = f"none of {', '.join(sorted(set(canaries)))} has {', '.join(lacking)}, which the record is for"
        yield _finding(Status.FAIL, "canary-node-hardware", "record", message, "Run the canary on that hardware too.")


def _field(
    name: str, typed: Typed, now: Current, staying: Mapping[str, GpuNode], upgraded: Collection[str], *, rolling: bool
) -> Iterator[Finding]:
    """A field that was left blank is told only where its places disagree, or where nothing shows it."""
    wanted, target = typed.current[name], typed.target[name]
    source = "dcgmExporterDigest" if wanted.startswith("sha256:") else name
    here = [one for one in now.values[source] if one.node not in upgraded or name not in _OF_NODE]
    blank = not wanted.strip()
    if blank and len({one.value for one in here}) == 1:
        return
    grouped: dict[tuple[str, str], list[Sighting]] = defaultdict(list)
    for one in here:
        moved = rolling and (name not in _OF_NODE or one.node not in staying)
        if one.value != wanted and not (moved and _same(one, target, now)):
            grouped[(_subject(name, one, now), one.value)].append(one)
    for (subject, value), ones in sorted(grouped.items()):
        nodes = sorted({one.node for one in ones if one.node})
        where = f" on {_named(nodes)}" if nodes and name in _OF_NODE else ""
        places = _named(sorted({one.where + (f" ({one.state})" if one.state else "") for one in ones}))
        told = "others differ" if blank else f"typed is {wanted!r:.80}"
        message = f"{name} is {value!r:.80}{where}, {told}; seen in {places}"
        code = "current-disagrees" if blank else "current-differs"
        yield _finding(Status.FAIL, code, subject, message, _TRUST)
    if not here and (staying or name not in _OF_NODE):
        yield _finding(Status.UNKNOWN, "current-unseen", name, f"{name} was not seen in the cluster", _LOOK)
    elif name not in _OF_NODE:
        if not any(one.where.startswith(_RUNS) for one in here):
            message = f"{name} is only declared, in {_named(sorted({one.where for one in here}))}; nothing of it runs"
            yield _finding(Status.UNKNOWN, "current-unseen", name, message, _LOOK)
    else:
        seen = {one.node for one in here}
        needed = [n for n in staying.values() if n.name not in seen and not (name == "driver" and n.driverless)]
        for (pool, _), nodes in _by_pool(needed):
            message = f"nothing shows {name} of {_named(nodes)}"
            yield _finding(Status.UNKNOWN, "current-unseen", f"pool {pool}", message, _LOOK)


def _upgraded(name: str, target: str, now: Current, canaries: Sequence[str]) -> Iterator[Finding]:
    """A node that is named as upgraded must run the target, in every place that is bound to it."""
    for node in canaries:
        here = [one for one in now.values[name] if one.node == node]
        if other := [one for one in here if one.value != target]:
            places = _named(sorted({one.where + (f" ({one.state})" if one.state else "") for one in other}))
            message = f"{name} is {other[0].value!r:.80} on it, the target is {target!r:.80}; seen in {places}"
            remedy = "Finish its upgrade first, or do not name it."
            yield _finding(Status.FAIL, "canary-node-not-upgraded", f"Node/{node}", message, remedy)
        elif not here and not (name == "driver" and now.nodes[node].driverless):
            yield _finding(Status.UNKNOWN, "current-unseen", f"Node/{node}", f"nothing shows {name} of it", _LOOK)


def _subject(name: str, one: Sighting, now: Current) -> str:
    if name not in _OF_NODE or not one.node:
        return "cluster"
    return f"pool {now.nodes[one.node].pool}" if one.node in now.nodes else f"Node/{one.node}"


def _same(one: Sighting, target: str, now: Current) -> bool:
    """Whether it is on the target, which a record may name by the exporter's digest instead of by its tag."""
    if one.field == "dcgmExporter" and target.startswith("sha256:"):
        return {other.value for other in now.values["dcgmExporterDigest"]} == {target}
    if one.field == "dcgmExporterDigest" and not target.startswith("sha256:"):
        return {other.value for other in now.values["dcgmExporter"]} == {target}
    return one.value == target


def _hardware(typed: Typed, now: Current) -> Iterator[Finding]:
    wanted = _identities(typed.hardware)
    if not wanted or "Node" in now.unread:
        return
    nodes = now.nodes.values()
    for (pool, _), names in _by_pool([node for node in nodes if not node.hardware]):
        message = f"nothing says which GPU {_named(names)} has: no NodeFeature of NFD lists one"
        remedy = "Have NFD's worker run there; `lspci -nn -d 10de:` on the host shows what it must say."
        yield _finding(Status.UNKNOWN, "hardware-unseen", f"pool {pool}", message, remedy)
    for (pool, has), names in _by_pool([node for node in nodes if node.hardware - wanted]):
        message = f"{_named(names)} have {has}, typed is {_listed(wanted)}"
        remedy = "An upgrade meets every pool: qualify this hardware too, or keep the pool out of the cluster."
        yield _finding(Status.FAIL, "hardware-differs", f"pool {pool}", message, remedy)
    known = bool(now.nodes) and all(node.hardware for node in nodes)
    if known and (gone := sorted(wanted - set().union(*(node.hardware for node in nodes)))):
        message = f"no node has {', '.join(gone)}, which was typed"
        yield _finding(Status.FAIL, "hardware-not-live", "cluster", message, _TRUST)


def _by_pool(nodes: Collection[GpuNode]) -> list[tuple[tuple[str, str], list[str]]]:
    """Names of nodes by pool and hardware."""
    made: dict[tuple[str, str], list[str]] = defaultdict(list)
    for node in nodes:
        made[(node.pool, _listed(node.hardware))].append(node.name)
    return sorted((pool, sorted(names)) for pool, names in made.items())


def _pools(now: Current, upgraded: Collection[str]) -> Table:
    """Nodes that are alike in all that is compared, one row each."""
    made: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for node in now.nodes.values():
        values = (
            ", ".join(sorted({one.value for one in now.values[name] if one.node == node.name})) or "–"
            for name in _OF_NODE
        )
        key = (node.pool, "yes" if node.name in upgraded else "no", _listed(node.hardware), *values)
        made[key].append(node.name)
    rows = [(*key, _named(sorted(names))) for key, names in sorted(made.items())]
    return Table("Pools", ("pool", "canary", HARDWARE, *_OF_NODE, "nodes"), rows)


def _shown(now: Current, name: str, target: str) -> str:
    counts: dict[str, int] = defaultdict(int)
    for one in now.values[name]:
        state = one.state or ("target" if one.value == target else "")
        counts[f"{one.value} ({state})" if state else one.value] += 1
    return ", ".join(f"{word} ×{n}" if n > 1 else word for word, n in sorted(counts.items())) or "–"


def _identities(given: Sequence[str]) -> set[str]:
    """Those of the right form; the qualification refuses the others."""
    return {found for raw in given if (found := identity(raw))}


def _listed(given: Collection[str]) -> str:
    return ", ".join(sorted(given)) or "–"


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _status(told: Sequence[Finding]) -> str:
    return str(worst(told)) if told else "pass"


def _finding(status: Status, code: str, subject: str, message: str, remedy: str) -> Finding:
    return Finding(CHECK, subject, status, code, message, remedy, SOURCE)
