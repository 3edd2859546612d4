"""An earlier audit, and which digests changed since under an unchanged reference."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from gpurunbook.errors import InputError
from gpurunbook.supply import strictjson
from gpurunbook.supply.imageids import runtime
from gpurunbook.supply.records import Seen
from gpurunbook.supply.references import desired
from gpurunbook.supply.relations import Relations

Place = tuple[str, str, str]
"""Namespace, container, and the identity of the desired reference: what stays when pods are renamed."""


class _Record(msgspec.Struct, gc=False):
    namespace: str
    container: str
    desired: str
    resolved: str
    runtime_class: str


class _Earlier(msgspec.Struct):
    verdict: str
    findings: list[dict[str, str]]
    records: list[_Record]
    cluster: str | None
    rehearsal: bool


class Baseline(msgspec.Struct):
    """Manifest digests of an earlier audit, by place and by reference alone."""

    places: dict[Place, set[str]]
    references: dict[str, set[str]]


class Change(msgspec.Struct):
    """A place whose manifest digests are not those of the baseline. pods: where it runs now, sorted."""

    place: Place
    before: list[str]
    now: list[str]
    pods: list[str]


def read(data: bytes, cluster: str | None, rehearsal: bool, live: bool) -> Baseline:
    """Writes nothing. The JSON of an earlier audit, checked for use against this one.

    cluster, rehearsal, live: of the audit that is being made. Raises InputError: `malformed-baseline`,
    `incomplete-baseline` (verdict error, or nothing to compare with), `foreign-baseline`.
    """
    try:
        earlier = strictjson.typed(strictjson.loads(data), _Earlier)
    except InputError as wrong:
        raise InputError(f"the baseline is not the JSON of an audit: {wrong}", code="malformed-baseline") from None
    if earlier.verdict == "error":
        codes = ", ".join(sorted({f.get("code", "?") for f in earlier.findings})) or "no code"
        raise InputError(f"the baseline is an audit with verdict error ({codes})", code="incomplete-baseline")
    if earlier.verdict not in ("pass", "fail"):
        raise InputError(
            f"the baseline's verdict is {earlier.verdict[:40]!r}, wanted pass or fail", code="malformed-baseline"
        )
    if live and cluster is None:
        raise InputError("this cluster cannot be named, so no baseline can be of it", code="foreign-baseline")
    if cluster and earlier.cluster and cluster != earlier.cluster:
        raise InputError(
            f"the baseline is of cluster {earlier.cluster[:80]!r}, this one is {cluster!r}", code="foreign-baseline"
        )
    if earlier.rehearsal and not rehearsal:
        raise InputError("the baseline is of a rehearsal, this cluster is live", code="foreign-baseline")
    return _indexed(earlier.records)


def _indexed(records: list[_Record]) -> Baseline:
    places: dict[Place, set[str]] = defaultdict(set)
    references: dict[str, set[str]] = defaultdict(set)
    for record in records:
        running = runtime(record.resolved) if record.resolved else None
        digest = running.digest if running is not None and running.word == "manifest" else ""
        if bool(digest) != (record.runtime_class == "manifest"):
            raise InputError(
                f"the baseline calls {record.resolved[:120]!r} {record.runtime_class[:40]!r}: it was altered, "
                "or made by another version",
                code="malformed-baseline",
            )
        reference = desired(record.desired).reference
        if digest and reference is not None:
            places[record.namespace, record.container, reference.identity].add(digest)
            references[reference.identity].add(digest)
    if not references:
        raise InputError("the baseline names no manifest digest to compare with", code="incomplete-baseline")
    return Baseline(dict(places), dict(references))


def changes(seen: Iterable[Seen], baseline: Baseline, relations: Relations) -> list[Change]:
    """Writes nothing. Every place whose digests changed under an unchanged reference, sorted.

    A place that the baseline has must run the same set of digests: one that came and one that went are both a
    change. A place that it has not is compared with what the same reference ran anywhere. Digests of one index are
    the same image. Config digests and local imports are never compared: a restart may turn one form into the other.
    """
    now: dict[Place, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for one in seen:
        if one.reading.runtime.word == "manifest" and one.reading.desired.reference is not None:
            place = (one.record.namespace, one.record.container, one.reading.desired.reference.identity)
            now[place][one.reading.runtime.digest].add(one.record.pod)
    found = []
    for place, digests in sorted(now.items()):
        before = baseline.places.get(place)
        known = before or baseline.references.get(place[2])
        if not known:
            continue
        came = set(digests) - known
        went = known - set(digests) if before else set()
        if all(relations.family(d) & known for d in came) and all(relations.family(d) & set(digests) for d in went):
            continue
        pods = sorted(set().union(*(digests[d] for d in came or digests)))
        found.append(Change(place, sorted(known), sorted(digests), pods))
    return found
