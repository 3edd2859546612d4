"""A Lease per target keeps other runs out. It is never stolen: a run that died gives it back by resume or abort."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from gpurunbook.errors import Drifted, GateError, NotFound, RunbookError
from gpurunbook.journal import LEASE as STEP
from gpurunbook.journal import Record
from gpurunbook.plan import Mutation, Target
from gpurunbook.pointers import escape
from gpurunbook.runbook.changing import words
from gpurunbook.runbook.ledger import Ledger
from gpurunbook.runbook.left import at
from gpurunbook.sources.door import Door

LABEL = "gpurunbook.io/lease"
"""Label of all our leases; its value is `true`."""

RUN = "gpurunbook.io/run"
"""Annotation: the run that holds it."""

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""A run's id, as a run folder can be named."""


def name(target: str) -> str:
    """Writes nothing. The Lease's name for a target such as `node/gpu-a` or `cluster`: `gpurunbook-node-gpu-a`."""
    plain = "gpurunbook-" + target.replace("/", "-")
    return plain if len(plain) <= 253 else f"{plain[:220]}-{hashlib.sha256(plain.encode()).hexdigest()[:16]}"


def collection(namespace: str) -> str:
    """Writes nothing. The API path of the leases of a namespace."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


def acquire(namespace: str, target: str) -> Mutation:
    """Writes nothing. The mutation that takes the lease of a target; it fails when the lease exists."""
    return Mutation(
        name="lease",
        verb="create",
        target=Target("Lease", name(target), collection(namespace), namespace),
        body={
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": name(target),
                "namespace": namespace,
                "labels": {LABEL: "true"},
                "annotations": {RUN: "${run}", "gpurunbook.io/target": target, "gpurunbook.io/reason": "${reason}"},
            },
            "spec": {"holderIdentity": "${run}", "acquireTime": "${time}"},
        },
        goal={"/spec/holderIdentity": "${run}", f"/metadata/annotations/{escape(RUN)}": "${run}"},
    )


def take_over(namespace: str, target: str, uid: str, holder: str) -> Mutation:
    """Writes nothing. The mutation that takes the lease from one named run, and from no other."""
    path = f"{collection(namespace)}/{name(target)}"
    return Mutation(
        name="lease",
        verb="patch",
        patch="merge",
        target=Target("Lease", name(target), path, namespace, uid),
        body={
            "metadata": {"annotations": {RUN: "${run}", "gpurunbook.io/taken-from": holder}},
            "spec": {"holderIdentity": "${run}", "acquireTime": "${time}"},
        },
        judged={"/spec/holderIdentity": holder},
        goal={"/spec/holderIdentity": "${run}", f"/metadata/annotations/{escape(RUN)}": "${run}"},
    )


def give_back(namespace: str, target: str, uid: str) -> Mutation:
    """Writes nothing. The mutation that deletes this very lease."""
    path = f"{collection(namespace)}/{name(target)}"
    return Mutation(name="lease-back", verb="delete", target=Target("Lease", name(target), path, namespace, uid))


def target(run: Ledger) -> str:
    """Writes nothing. What the run's lease is for, such as `node/gpu-a`; "" where its runbook declares none."""
    return run.book.lease.format_map(msgspec.structs.asdict(run.parameters))


def take(run: Ledger, door: Door, namespace: str) -> None:
    """Takes the Lease of the run's target, unless it has it: creates it, or takes it over from the run that is named.

    A dry run only proves that it could. Raises GateError `lease-held` when another run holds it,
    `lease-namespace-missing`; RunbookError `dry-run-not-validated` when the server cannot say.
    """
    wanted = target(run)
    if not wanted:
        return
    found = _found(run, namespace, wanted)
    mutation = acquire(namespace, wanted)
    held_by = _holder(found)
    if found and held_by and held_by == run.parameters.take_over:
        mutation = take_over(namespace, wanted, str(found["metadata"]["uid"]), held_by)
    try:
        outcome = door.send(STEP, mutation, words(run, STEP))
    except Drifted as wrong:
        found = _found(run, namespace, wanted)
        since = ((found or {}).get("spec") or {}).get("acquireTime")
        raise GateError(
            f"run {_holder(found) or 'unknown'} holds it since {since}",
            subject=f"lease {namespace}/{name(wanted)}",
            remedy=_go_on(_holder(found)),
            code="lease-held",
        ) from wrong
    except NotFound as wrong:
        raise GateError(
            f"there is no namespace {namespace} to keep it in",
            subject=f"lease {name(wanted)}",
            remedy="Name one that exists as lease_namespace in the site file.",
            code="lease-namespace-missing",
        ) from wrong
    if outcome.how == "not-validated":
        raise RunbookError(
            f"the server did not validate this change: {outcome.why}",
            subject=f"lease {namespace}/{name(wanted)}",
            remedy="A dry run needs the write permission, and webhooks without side effects.",
            code="dry-run-not-validated",
        )


def _go_on(holder: str) -> str:
    """What whoever is kept out can do. The holder's name is text of others, and may stand in a command."""
    if not _PLAIN.fullmatch(holder):
        return "Look at the lease by hand: it names no run that could give it back."
    return (
        f"Wait until that run closes. If it died, `gpurunbook resume {holder}` on its machine; if it cannot go on, or "
        f"is over, begin a new dry run with --set take_over={holder}."
    )


def demand(run: Ledger, namespace: str) -> None:
    """Writes nothing. Raises GateError `lease-lost` unless this run holds the lease of its target."""
    wanted = target(run)
    holder = _holder(_found(run, namespace, wanted)) if wanted else run.id
    if holder != run.id:
        raise GateError(
            f"{f'run {holder}' if holder else 'nobody'} holds it, and no longer this run",
            subject=f"lease {namespace}/{name(wanted)}",
            remedy=f"Nothing is made again without it. `gpurunbook leftovers{at(run)}` says what stands, and whose.",
            code="lease-lost",
        )


def leave(run: Ledger, door: Door, namespace: str) -> None:
    """Deletes the Lease that this run holds, if it holds one; notes it when one that it held is gone already."""
    wanted = target(run)
    found = _found(run, namespace, wanted) if wanted else None
    if found and _holder(found) == run.id:
        door.send(STEP, give_back(namespace, wanted, str(found["metadata"]["uid"])), words(run, STEP))
    elif wanted and taken(run.journal.records) and not _unanswered(run.journal.records):
        # Its deletion was answered to a kernel that died, or others deleted it: no uid is that of a lease of ours.
        door.send(STEP, give_back(namespace, wanted, ""), words(run, STEP))


def taken(records: Sequence[Record]) -> bool:
    """Writes nothing. Whether this run may hold a lease, by its journal."""
    last = _last(records)
    if last is None:
        return False
    event, data = last["event"], last["data"]
    if data["name"] == "lease-back":
        return bool(event == "intent" or data["how"] == "refused")
    return bool(event == "intent" or data["how"] != "refused")


def _unanswered(records: Sequence[Record]) -> bool:
    """Whether it was asked for and nobody knows the answer: then it may still come."""
    last = _last(records)
    return last is not None and (last["event"], last["data"]["name"]) == ("intent", "lease")


def _last(records: Sequence[Record]) -> Record | None:
    found = [r for r in records if r["event"] in {"intent", "result"} and r["data"]["step"] == STEP]
    return found[-1] if found else None


def _holder(found: dict[str, Any] | None) -> str:
    return str(((found or {}).get("spec") or {}).get("holderIdentity") or "")


def _found(run: Ledger, namespace: str, wanted: str) -> dict[str, Any] | None:
    try:
        return run.cluster.object(f"{collection(namespace)}/{name(wanted)}")
    except NotFound:
        return None
