"""Records of the audit: one per container of a pod and one per image volume, each judged by itself."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import msgspec

from gpurunbook.supply.auditcodes import FAILING
from gpurunbook.supply.imageids import NEVER_STARTED, UNRESOLVED, UNSEEN, Runtime, runtime
from gpurunbook.supply.podlist import ContainerStatus, Pod, Spec, Status
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


def records(pod: Pod, relations: Relations, tolerate_never_started: bool = False) -> Iterator[Seen]:
    """Writes nothing. The records of one pod as `podlist` gives it, in no particular order."""
    meta, spec, status = pod.metadata, pod.spec, pod.status or Status()
    if meta is None or spec is None:
        return
    namespace, name, node = meta.namespace or "", meta.name or "", spec.node_name or ""
    for kind, container, reading in _readings(spec, status, tolerate_never_started):
        reasons, fails = reading.reasons, reading.fails
        if reading.contested and not relations.related(reading.desired.pin, reading.runtime.digest, node):
            reasons, fails = tuple(sorted((*reasons, "declared-digest-mismatch"))), True
        word = reading.runtime.word
        audit, evidence = "fail" if fails else "pass", word == "manifest"
        wanted, image_id = reading.desired.word, reading.image_id
        record = Record(
            audit, container, reading.image, wanted, evidence, kind, namespace, name, reasons, image_id, word
        )
        yield Seen(record, reading, node)


def _readings(spec: Spec, status: Status, tolerate: bool) -> Iterator[tuple[str, str, Reading]]:
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
                yield kind, container.name or "", _read(container.image or "", *_state(entry, terminal), tolerate)
    for volume in spec.volumes or ():
        if volume.image is not None:
            yield "imageVolume", volume.name or "", _read(volume.image.reference or "", "", "unseen", tolerate)


def _state(entry: ContainerStatus | None, terminal: bool) -> tuple[str, str]:
    """The image ID, and what else its reading needs: `cri-o` for that runtime, or what the absence of an ID means."""
    if entry is not None and entry.image_id:
        return entry.image_id, "cri-o" if (entry.container_id or "").startswith("cri-o://") else ""
    return "", "never-started" if terminal and not (entry is not None and entry.ran) else "unresolved"


@lru_cache(maxsize=8192)
def _read(image: str, image_id: str, how: str, tolerate_never_started: bool) -> Reading:
    wanted, running = desired(image), runtime(image_id, how == "cri-o") if image_id else _ABSENT[how]
    codes = {*wanted.codes, *wanted.notes, *filter(None, [running.code])}
    manifest, reference = running.word == "manifest", wanted.reference
    if manifest and reference is not None and reference.repository != running.repository:
        codes.add("repository-alias")
    failing = codes & FAILING - ({"never-started"} if tolerate_never_started else set())
    contested = manifest and wanted.pin not in ("", running.digest)
    return Reading(image, image_id, wanted, running, tuple(sorted(codes)), bool(failing), contested)
