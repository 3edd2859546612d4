"""The table declared | rendered | live | released | proposed: does the tuple stand everywhere it must?"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpurunbook.findings import Finding, Status, worst
from gpurunbook.plan import Judgement, Table
from gpurunbook.supply.sightings import Sighting
from gpurunbook.supply.tuple import FIELDS, Tuple

CHECK = "tuple-places"
SOURCE = "GPU supply-chain policy, Released pilot tuple; promotion steps 2 and 3"

PLACES = ("declared", "rendered", "live")

_NOWHERE = {
    "declared": {"kernel", "rke2", "dcgmExporterDigest"},
    "rendered": {"kernel", "rke2", "dcgmExporterDigest", "gpuOperator"},
    "live": set(),
}
"""Fields that a place need not have: the kernel is the host's, and a digest is only known of what runs."""

_EXPLICIT = {
    "kernelModuleType": "the operator would decide by GPU and branch",
    "hamiScheduler": "an empty tag follows the cluster's version by itself",
}
"""Fields that must be written out, and why."""

_STATES = {
    "pending": (
        "ondelete-pending",
        "its DaemonSet is OnDelete and the pod is of an earlier revision",
        "Cordon the node, clear its holders, then delete the pod.",
    ),
    "rolling": ("rolling", "its roll-out is still going on", "Wait for the roll-out and check again."),
    "stale": (
        "stale-pod",
        "the pod is deleted but still there, of a DaemonSet that is gone, or was passed over by the roll-out",
        "Find out why it is still there; delete it only on a cordoned node without holders.",
    ),
}


@dataclass(frozen=True)
class _Cell:
    text: str
    findings: tuple[Finding, ...]


def compare(
    released: Tuple,
    proposed: Tuple | None,
    seen: Mapping[str, Sequence[Sighting]],
    nodes: Collection[str] | None = None,
) -> Judgement:
    """Writes nothing. Compares every sighting with the proposed tuple, or outside a promotion with the released one.

    seen: place → sightings; a place that is left out was not read and is shown so, without a finding. nodes: in the
    middle of a promotion only sightings on these nodes (and those on none) are judged; None for all.
    """
    wanted = proposed or released
    findings: list[Finding] = []
    rows: list[list[str | int | float | bool | None]] = []
    for field in FIELDS:
        cells = [_cell(field, place, wanted, seen, nodes) for place in PLACES]
        found = [one for cell in cells for one in cell.findings]
        findings += found
        status = worst(found) if found else Status.PASS
        other = proposed.values[field] if proposed else None
        rows.append([field, *(cell.text for cell in cells), released.values[field], other, str(status)])
    if not findings:
        read = ", ".join(place for place in PLACES if place in seen)
        status, message = (
            (Status.PASS, f"{read}: all as {wanted.state}") if read else (Status.UNKNOWN, "nothing was read")
        )
        findings.append(
            Finding(CHECK, "tuple", status, "tuple-in-place" if read else "nothing-read", message, "", SOURCE)
        )
    columns = ("field", *PLACES, "released", "proposed", "status")
    table = Table("The tuple, wherever it stands", columns, rows, status="status")
    return Judgement(tuple(findings), (table,), {"wanted": wanted.state})


def neither(released: Tuple, proposed: Tuple, live: Sequence[Sighting], nodes: Collection[str]) -> Iterator[Finding]:
    """Writes nothing. What other nodes than the upgraded ones run that is of neither tuple."""
    for one in live if nodes else ():
        known = {released.values[one.field], proposed.values[one.field]}
        if one.node and one.node not in nodes and one.state != "unresolved" and one.value not in known:
            message = (
                f"{one.field} is {one.value!r} on {one.node}, which is of neither the released nor the proposed tuple"
            )
            remedy = "A node runs a whole tuple, the old one or the new one: bring it to one of them."
            yield Finding(CHECK, one.where, Status.FAIL, "live-neither", message, remedy, SOURCE)


def _cell(
    field: str,
    place: str,
    wanted: Tuple,
    seen: Mapping[str, Sequence[Sighting]],
    nodes: Collection[str] | None,
) -> _Cell:
    if place not in seen:
        return _Cell("not read", ())
    all_here = [one for one in seen[place] if one.field == field]
    here = [one for one in all_here if nodes is None or not one.node or one.node in nodes]
    counts: dict[str, int] = {}
    for one in all_here:
        word = f"{one.value} ({one.state})" if one.state else one.value
        counts[word] = counts.get(word, 0) + 1
    text = ", ".join(f"{word} ×{n}" if n > 1 else word for word, n in sorted(counts.items())) or "–"
    found = [finding for one in here if (finding := _judge(one, place, wanted))]
    if not any(one.state in {"", "pending", "rolling", "stale"} for one in here):
        found += _absent(field, place, here, seen)
    return _Cell(text, tuple(found))


def _judge(one: Sighting, place: str, wanted: Tuple) -> Finding | None:
    value = wanted.values[one.field]
    if one.state == "unresolved":
        return None
    if one.state in _STATES:
        code, why, remedy = _STATES[one.state]
        message = f"{one.field} is {one.value!r}, {wanted.state} is {value!r}: {why}"
        status = Status.WARN if one.value == value else Status.FAIL
        return Finding(CHECK, one.where, status, code, message, remedy, SOURCE)
    if one.value == value:
        return None
    message = f"{one.field} is {one.value!r}, {wanted.state} is {value!r}"
    remedy = "Bring this place to the tuple, or qualify a new one; a tuple is not changed in part."
    return Finding(CHECK, one.where, Status.FAIL, f"{place}-differs", message, remedy, SOURCE)


def _absent(field: str, place: str, here: Sequence[Sighting], seen: Mapping[str, Sequence[Sighting]]) -> list[Finding]:
    if field in _NOWHERE[place]:
        return []
    if field == "dcgmExporter" and any(one.field == "dcgmExporterDigest" for one in seen[place]) and place != "live":
        return []
    if place == "live":
        message = f"{field} was not seen in the live cluster"
        return [Finding(CHECK, field, Status.UNKNOWN, "live-unknown", message, "Read what carries it.", SOURCE)]
    if here:
        message = f"{field} is {here[0].value!r} in {here[0].where}: only what is rendered or runs can tell its value"
        elsewhere = any(
            one.field == field and not one.state for other in PLACES if other != place for one in seen.get(other, ())
        )
        status = Status.WARN if elsewhere else Status.UNKNOWN
        return [Finding(CHECK, field, status, f"{place}-unresolved", message, "Look at the rendered place.", SOURCE)]
    if field in _EXPLICIT:
        message = f"{field} is not {place}: {_EXPLICIT[field]}"
        return [Finding(CHECK, field, Status.FAIL, f"{place}-missing", message, "Write it out.", SOURCE)]
    message = f"{field} is not {place}: the chart's default decides"
    return [Finding(CHECK, field, Status.WARN, f"{place}-missing", message, "Write it out.", SOURCE)]
