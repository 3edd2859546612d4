"""Create, replace, patch and delete."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

from gpurunbook.embedded import patches, reads
from gpurunbook.embedded.defaults import complete, count_template
from gpurunbook.embedded.requests import Request, Target
from gpurunbook.embedded.resources import CRDS, Catalog, Resource
from gpurunbook.embedded.status import (
    MODIFIED,
    ApiError,
    Obj,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    invalid_value,
    method_not_allowed,
    not_found,
    not_implemented,
    unsupported_media,
)
from gpurunbook.embedded.store import Entry, Store
from gpurunbook.embedded.validation import check, wrong_shape

Done = tuple[int, bytes, bool]
"""Status, body, and whether anything was written."""

_JSON, _MERGE = "application/json-patch+json", "application/merge-patch+json"
_STRATEGIC, _APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
_SYSTEM = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "selfLink",
    "uid",
)
_LETTERS = "bcdfghjklmnpqrst"


def rfc3339(at: dt.datetime) -> str:
    """As object timestamps are written."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def stored(obj: Obj) -> Obj:
    """Without kind and apiVersion."""
    return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}


class Writes:
    """The writing verbs over one store. Every verb gives status, body, and whether anything was written."""

    def __init__(self, store: Store, catalog: Catalog, now: Callable[[], dt.datetime]) -> None:
        self.store, self.catalog, self.now = store, catalog, now

    def whole(self, resource: Resource, obj: Obj) -> bytes:
        """The JSON of an object that was not stored."""
        return msgspec.json.encode({"kind": resource.kind, "apiVersion": resource.api_version, **obj})

    def existing(self, target: Target, resource: Resource) -> Entry:
        """The target as it is; 404 without it."""
        entry = self.store.get(resource.table, (target.namespace, target.name))
        if entry is None:
            raise not_found(resource.group, resource.plural, target.name)
        return entry

    def keep(self, resource: Resource, name: tuple[str, str], obj: Obj) -> bytes:
        """Store an object; the JSON of it."""
        entry = self.store.write(resource.table, name, obj)
        if resource.table == CRDS:
            self.catalog.define(name[1], obj)
        return reads.whole(resource, entry)

    def create(self, request: Request, target: Target, resource: Resource) -> Done:
        """POST to a collection."""
        dry = request.dry_run("CreateOptions")
        obj = self._body(request, resource)
        with self.store.lock:
            if resource.namespaced:
                self._namespace(target, resource)
            meta = self._fresh_metadata(obj, target, resource)
            if obj["metadata"].get("resourceVersion"):
                raise ApiError(500, "", "resourceVersion should not be set on objects to be created")
            if resource.status and resource.kind != "Node":  # a kubelet registers with its status
                obj.pop("status", None)
            obj["metadata"] = meta
            complete(resource, obj, self.now())
            self._valid(resource, obj, None)
            name = (target.namespace, meta["name"])
            if self.store.get(resource.table, name):
                raise already_exists(resource.group, resource.plural, meta["name"])
            if dry:
                return 201, self.whole(resource, obj), False
            return 201, self.keep(resource, name, obj), True

    def _body(self, request: Request, resource: Resource) -> Obj:
        body = request.object()
        api_version, kind = body.get("apiVersion"), body.get("kind")
        if resource.custom and not kind:
            raise bad_request("Object 'Kind' is missing in the body")
        if kind not in (None, resource.kind):
            raise bad_request(f'{kind} in version "{api_version}" cannot be handled as a {resource.kind}')
        if api_version not in (None, resource.api_version):
            text = f"the API version in the data ({api_version}) does not match the expected API version"
            raise bad_request(f"{text} ({resource.api_version})")
        wrong = wrong_shape(resource, body)
        if wrong:
            raise bad_request(
                f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {wrong}'
            )
        return {**stored(body), "metadata": body.get("metadata") or {}}

    def _namespace(self, target: Target, resource: Resource) -> None:
        """The namespace must be there and not be going away."""
        if not target.namespace:
            raise method_not_allowed()
        entry = self.store.get(("", "namespaces"), ("", target.namespace))
        if entry is None:
            raise not_found("", "namespaces", target.namespace)
        if entry.fields["status.phase"] == "Terminating":
            why = f"unable to create new content in namespace {target.namespace} because it is being terminated"
            raise forbidden(resource.group, resource.plural, target.name, why)

    def _fresh_metadata(self, obj: Obj, target: Target, resource: Resource) -> Obj:
        meta = {key: value for key, value in obj["metadata"].items() if key not in _SYSTEM}
        if meta.get("namespace", target.namespace) != target.namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        if target.namespace:
            meta["namespace"] = target.namespace
        seed = f"{resource.kind}/{target.namespace}/{meta.get('name') or meta.get('generateName')}/{self.store.rv}"
        unique = hashlib.sha256(seed.encode()).hexdigest()
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"] + "".join(_LETTERS[int(digit, 16)] for digit in unique[-5:])
        meta["uid"] = f"{unique[:8]}-{unique[8:12]}-4{unique[13:16]}-8{unique[17:20]}-{unique[20:32]}"
        meta["creationTimestamp"] = rfc3339(self.now())
        if resource.generation:
            meta["generation"] = 1
        return meta

    def _valid(self, resource: Resource, obj: Obj, old: Obj | None) -> None:
        causes = check(resource, obj, old)
        if causes:
            raise invalid(resource.group, resource.kind, obj["metadata"].get("name") or "", causes)

    def update(self, request: Request, target: Target, resource: Resource) -> Done:
        """PUT of an object or its status."""
        dry = request.dry_run("UpdateOptions")
        body = self._body(request, resource)
        with self.store.lock:
            entry = self.existing(target, resource)
            old = entry.object()
            wanted = body["metadata"].get("uid")
            if wanted and wanted != old["metadata"]["uid"]:
                text = (
                    f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {old['metadata']['uid']}"
                )
                raise conflict(resource.group, resource.plural, target.name, text)
            return self._replace(target, resource, entry, old, body, dry)

    def patch(self, request: Request, target: Target, resource: Resource) -> Done:
        """PATCH of an object or its status, in three of the four formats; apply is answered with 501."""
        accepted = [_JSON, _MERGE, _APPLY] if resource.custom else [_JSON, _MERGE, _STRATEGIC, _APPLY]
        kind = request.content_type.partition(";")[0].strip()
        if kind not in accepted:
            raise unsupported_media(accepted)
        if kind == _APPLY:
            raise not_implemented("server-side apply")
        dry = request.dry_run("PatchOptions")
        try:
            change = msgspec.json.decode(request.body)
        except msgspec.DecodeError as error:
            raise bad_request(f"error decoding patch: {error}") from error
        if kind != _JSON and not isinstance(change, dict):
            raise bad_request("error decoding patch: json: cannot unmarshal array into Go value of type map")
        deeds: dict[str, Callable[[Any, Any], Obj]] = {
            _JSON: patches.json_patch,
            _MERGE: patches.merge,
            _STRATEGIC: patches.strategic,
        }
        with self.store.lock:
            entry = self.existing(target, resource)
            old = entry.object()
            new = deeds[kind]({"kind": resource.kind, "apiVersion": resource.api_version, **old}, change)
            wrong = wrong_shape(resource, new)
            if wrong:
                cause = invalid_value("patch", msgspec.json.encode(new).decode(), wrong)
                raise invalid("", "", "", [cause])
            return self._replace(target, resource, entry, old, stored(new), dry)

    def _replace(self, target: Target, resource: Resource, entry: Entry, old: Obj, new: Obj, dry: bool) -> Done:
        """Store `new` in the place of `old`, with everything that an update may not change put back."""
        meta, before = {**(new.get("metadata") or {})}, old["metadata"]
        new = {**new, "metadata": meta}
        if meta.get("name") != target.name:
            text = (
                f"the name of the object ({meta.get('name') or ''}) does not match the name on the URL ({target.name})"
            )
            raise bad_request(text)
        if meta.setdefault("namespace", target.namespace) != target.namespace:
            text = f"the namespace of the object ({meta['namespace']}) does not match the namespace on the request"
            raise bad_request(f"{text} ({target.namespace})")
        if not target.namespace:
            del meta["namespace"]
        version = meta.get("resourceVersion") or ""
        if not version and not resource.unconditional:
            cause = invalid_value("metadata.resourceVersion", "0x0", "must be specified for an update")
            raise invalid(resource.group, resource.plural, target.name, [cause])
        if version and version != str(entry.rv):
            raise conflict(resource.group, resource.plural, target.name, MODIFIED)
        meta["resourceVersion"] = str(entry.rv)
        for name in ("creationTimestamp", "generation", "deletionTimestamp"):  # never changed by an update
            if name in before:
                meta[name] = before[name]
        for name in ("uid", "deletionGracePeriodSeconds"):
            if name in before and not meta.get(name):
                meta[name] = before[name]
        meta.pop("managedFields", None)
        new = self._part(target, resource, old, new)
        self._valid(resource, new, old)
        if self._counts(target, resource, old, new):
            new["metadata"]["generation"] = before.get("generation", 0) + 1
            count_template(resource, old, new)
        if patches.same(new, old):
            return 200, reads.whole(resource, entry), False
        gone = (
            "deletionTimestamp" in before
            and not meta.get("finalizers")
            and not before.get("deletionGracePeriodSeconds")
        )
        if dry:
            return 200, self.whole(resource, new), False
        if gone:
            self.store.write(resource.table, entry.name, None)
            return 200, self.whole(resource, new), True
        return 200, self.keep(resource, entry.name, new), True

    @staticmethod
    def _part(target: Target, resource: Resource, old: Obj, new: Obj) -> Obj:
        """Only the status through the status subresource, and everything but it otherwise."""
        if target.subresource == "status":
            made = old | ({} if resource.custom else {"metadata": new["metadata"]})
            made.pop("status", None)
            return made | ({"status": new["status"]} if "status" in new else {})
        if resource.status:
            new = {key: value for key, value in new.items() if key != "status"}
            new |= {"status": old["status"]} if "status" in old else {}
        return new

    @staticmethod
    def _counts(target: Target, resource: Resource, old: Obj, new: Obj) -> bool:
        """Whether the change makes a new generation."""
        if not resource.generation or target.subresource:
            return False
        if not resource.custom:
            return not patches.same(old.get("spec"), new.get("spec"))
        return not patches.same(old | {"metadata": 0}, new | {"metadata": 0})
