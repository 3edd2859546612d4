"""Deletion: at once, after a grace period, or when the last finalizer is gone."""

from __future__ import annotations

import datetime as dt

import msgspec

from gpurunbook.embedded import reads
from gpurunbook.embedded.patches import same
from gpurunbook.embedded.requests import Request, Target
from gpurunbook.embedded.resources import CRDS, Resource
from gpurunbook.embedded.status import Obj, conflict, not_implemented, success
from gpurunbook.embedded.store import Entry
from gpurunbook.embedded.writes import Done, Writes, rfc3339

# the kinds whose deletion is answered with the object; others are with a Status
_RETURNED = ("pods", "namespaces", "services", "serviceaccounts", "resourceclaims", "resourceclaimtemplates")


def delete(writes: Writes, request: Request, target: Target, resource: Resource) -> Done:
    """DELETE of one object."""
    options, dry = _options(request)
    with writes.store.lock:
        return end(writes, resource, writes.existing(target, resource), options, dry)


def deletecollection(writes: Writes, request: Request, target: Target, resource: Resource) -> Done:
    """DELETE of a collection: every object that the selectors choose."""
    options, dry = _options(request)
    with writes.store.lock:
        chosen = reads.selects(request, target, resource)
        found = [entry for entry in writes.store.all(resource.table, target.namespace) if not chosen or chosen(entry)]
        for entry in found:
            end(writes, resource, entry, options, dry)
    head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": {}}
    items = [msgspec.Raw(reads.whole(resource, entry) if resource.custom else entry.raw) for entry in found]
    return 200, msgspec.json.encode(head | {"items": items}), bool(found) and not dry


def _options(request: Request) -> tuple[Obj, bool]:
    """Grace period and preconditions of body or query, and whether nothing may be persisted."""
    body = request.object() if request.body else {}
    if body.get("dryRun"):  # from here on it counts as the query's
        request.query["dryRun"] = body["dryRun"]
    dry = request.dry_run("DeleteOptions")
    policy = body.get("propagationPolicy") or request.get("propagationPolicy")
    if policy not in ("", "Background") or request.truth("orphanDependents"):
        raise not_implemented(f"deletion with propagationPolicy {policy or 'Orphan'}")
    grace = body.get("gracePeriodSeconds", request.number("gracePeriodSeconds"))
    return {"grace": grace, "preconditions": body.get("preconditions") or {}}, dry


def end(writes: Writes, resource: Resource, entry: Entry, options: Obj, dry: bool) -> Done:
    """Delete an object, or mark it as going away while a grace period or finalizers hold it."""
    obj = entry.object()
    meta = obj["metadata"]
    _preconditions(resource, meta, options["preconditions"])
    if resource.table in (CRDS, ("", "namespaces")):
        raise not_implemented(f"deletion of {resource.plural}")
    waits = bool(meta.get("finalizers"))
    if resource.table == ("", "pods"):
        held = _grace(writes, obj, options["grace"])
        if held is None:  # it is going away already, and no sooner for this
            return 200, reads.whole(resource, entry), False
        waits = waits or held > 0
    elif waits and "deletionTimestamp" not in meta:
        _mark(writes, meta, 0)
    if waits:
        if same(obj, entry.object()):
            return 200, reads.whole(resource, entry), False
        return 200, writes.whole(resource, obj) if dry else writes.keep(resource, entry.name, obj), not dry
    details = {"name": meta["name"], "group": resource.group, "kind": resource.plural, "uid": meta["uid"]}
    gone = success({key: value for key, value in details.items() if value})
    body = writes.whole(resource, obj) if resource.plural in _RETURNED else msgspec.json.encode(gone)
    if not dry:
        writes.store.write(resource.table, entry.name, None)
    return 200, body, not dry


def _preconditions(resource: Resource, meta: Obj, wanted: Obj) -> None:
    if wanted.get("uid") not in (None, meta["uid"]):
        text = f"the UID in the precondition ({wanted['uid']}) does not match the UID in record ({meta['uid']}). "
        text += "The object might have been deleted and then recreated"
        raise conflict(resource.group, resource.plural, meta["name"], text)
    seen = meta["resourceVersion"]
    if wanted.get("resourceVersion") not in (None, seen):
        text = f"the ResourceVersion in the precondition ({wanted['resourceVersion']}) does not match the "
        text += f"ResourceVersion in record ({seen}). The object might have been modified"
        raise conflict(resource.group, resource.plural, meta["name"], text)


def _mark(writes: Writes, meta: Obj, grace: int) -> None:
    meta["deletionTimestamp"] = rfc3339(writes.now() + dt.timedelta(seconds=grace))
    meta["deletionGracePeriodSeconds"] = grace
    if meta.get("generation"):
        meta["generation"] += 1


def _grace(writes: Writes, pod: Obj, wanted: int | None) -> int | None:
    """Mark a pod and say for how long it may stay; None where a deletion that goes on is not shortened."""
    meta, spec = pod["metadata"], pod["spec"]
    if "deletionTimestamp" in meta:
        running = meta.get("deletionGracePeriodSeconds") or 0
        if running == 0:
            return 0
        if wanted is None or wanted >= running:
            return None
        until = dt.datetime.fromisoformat(meta["deletionTimestamp"]) + dt.timedelta(seconds=wanted - running)
        meta |= {"deletionTimestamp": rfc3339(until), "deletionGracePeriodSeconds": wanted}
        return wanted
    grace = spec.get("terminationGracePeriodSeconds", 30) if wanted is None else wanted
    if not spec.get("nodeName") or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        grace = 0
    grace = 1 if grace < 0 else grace
    _mark(writes, meta, grace)
    return int(grace)
