"""Records of the audit: one per container of a pod and one per image volume, each judged by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

import msgspec

from gpurunbook.supply.auditcodes import FAILING
from gpurunbook.supply.imageids import NEVER_STARTED, UNRESOLVED, UNSEEN, Runtime, runtime
from gpurunbook.supply.pods import ContainerStatus, Malformed, Metadata, Pod, Spec, Status, live
from gpurunbook.supply.references import Desired, desired
from gpurunbook.supply.relations import Relations

TERMINAL = frozenset({"Failed", "Succeeded"})
"""Pod phases in which nothing starts any more."""

_ABSENT = {"unresolved": UNRESOLVED, "never-started": NEVER_STARTED, "unseen": UNSEEN}


class Record(msgspec.Struct, gc=False):
    """One image of one container. Fields in the order of their names, which is the order of the JSON.

    audit: `pass` or `fail`; evidence: whether a registry manifest digest is known to bind SBOM, signature and scan
    to; reasons: codes, sorted; resolved: the image ID as the runtime gave it.
    """

    audit: str
    container: str
    desired: str
    desired_class: str
    evidence: bool
    kind: str
    namespace: str
    pod: str
    reasons: tuple[str, ...]
    resolved: str
    runtime_class: str


class Reading(msgspec.Struct, frozen=True, gc=False):
    """How one pair of desired reference and image ID is read, which is the same wherever it stands.

    reasons: the codes that need no other record and no node, sorted; fails: whether one of them does; contested:
    whether another digest is pinned than the one that runs.
    """

    image: str
    image_id: str
    desired: Desired
    runtime: Runtime
    reasons: tuple[str, ...]
    fails: bool
    contested: bool


class Seen(msgspec.Struct, gc=False):
    """A record with what is compared across records: how its pair was read, and the pod's node."""

    record: Record
    reading: Reading
    node: str


class PodRecords(msgspec.Struct, gc=False):
    """What is kept of a pod: its records, in no particular order."""

    namespace: str
    seen: list[Seen]


def page(pods: list[Pod]) -> list[PodRecords | Malformed]:
    """Writes nothing. What an audit keeps of a page of a live list, for `plan.Pages`. Places are those in the page."""
    return list(of(live(pods)))


def of(pods: Iterable[Pod | Malformed]) -> Iterator[PodRecords | Malformed]:
    """Writes nothing. The records of pods as they were read, judged by themselves; see `settle`."""
    for pod in pods:
        yield pod if isinstance(pod, Malformed) else _records(pod)


def settle(one: Seen, relations: Relations, tolerate_never_started: bool) -> None:
    """Writes nothing. Judges a record again where its place matters, or what is tolerated; changes it in place."""
    record, reading = one.record, one.reading
    if reading.contested and not relations.related(reading.desired.pin, reading.runtime.digest, one.node):
        record.reasons, record.audit = tuple(sorted((*reading.reasons, "declared-digest-mismatch"))), "fail"
    elif tolerate_never_started and "never-started" in reading.reasons:
        record.audit = "fail" if FAILING.intersection(reading.reasons) - {"never-started"} else "pass"


def _records(pod: Pod) -> PodRecords:
    meta, spec, status = pod.metadata or Metadata(), pod.spec or Spec(), pod.status or Status()
    namespace, name, node = meta.namespace or "", meta.name or "", spec.node_name or ""
    seen = []
    for kind, container, reading in _readings(spec, status):
        word = reading.runtime.word
        audit, evidence = "fail" if reading.fails else "pass", word == "manifest"
        wanted, image_id, reasons = reading.desired.word, reading.image_id, reading.reasons
        record = Record(
            audit, container, reading.image, wanted, evidence, kind, namespace, name, reasons, image_id, word
        )
        seen.append(Seen(record, reading, node))
    return PodRecords(namespace, seen)


def _readings(spec: Spec, status: Status) -> Iterator[tuple[str, str, Reading]]:
    terminal = status.phase in TERMINAL
    lists = (
        ("container", spec.containers, status.container_statuses),
        ("init", spec.init_containers, status.init_container_statuses),
        ("ephemeral", spec.ephemeral_containers, status.ephemeral_container_statuses),
    )
    for kind, containers, statuses in lists:
        if containers:
            reported = {entry.name: entry for entry in statuses or ()}
            for container in containers:
                entry = reported.get(container.name)
                yield kind, container.name or "", _read(container.image or "", *_state(entry, terminal))
    for volume in spec.volumes or ():
        if volume.image is not None:
            yield "imageVolume", volume.name or "", _read(volume.image.reference or "", "", "unseen")


def _state(entry: ContainerStatus | None, terminal: bool) -> tuple[str, str]:
    """The image ID, and what else its reading needs: `cri-o` for that runtime, or what the absence of an ID means."""
    if entry is not None and entry.image_id:
        return entry.image_id, "cri-o" if (entry.container_id or "").startswith("cri-o://") else ""
    return "", "never-started" if terminal and not (entry is not None and entry.ran) else "unresolved"


@lru_cache(maxsize=8192)
def _read(image: str, image_id: str, how: str) -> Reading:
    wanted, running = desired(image), runtime(image_id, how == "cri-o") if image_id else _ABSENT[how]
    codes = {*wanted.codes, *wanted.notes, *filter(None, [running.code])}
    manifest, reference = running.word == "manifest", wanted.reference
    if manifest and reference is not None and reference.repository != running.repository:
        codes.add("repository-alias")
    contested = manifest and wanted.pin not in ("", running.digest)
    return Reading(image, image_id, wanted, running, tuple(sorted(codes)), bool(codes & FAILING), contested)
