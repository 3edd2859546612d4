"""Get, list and watch."""

from __future__ import annotations

import base64
import json
import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from gpurunbook.embedded.requests import Request, Target
from gpurunbook.embedded.resources import Resource
from gpurunbook.embedded.selection import fields as parse_fields
from gpurunbook.embedded.selection import labels as parse_labels
from gpurunbook.embedded.status import ApiError, Obj, bad_request, expired, not_found, not_implemented
from gpurunbook.embedded.store import Entry, Event, Name, Store, selectable

TOO_OLD_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list "
    "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
    "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
    "modified, or deleted between the time the first chunk was returned and now may show up in the list."
)
BOOKMARK_SECONDS, LOOK_SECONDS = 5.0, 1.0


def whole(resource: Resource, entry: Entry) -> bytes:
    """The JSON of one object, with kind and apiVersion."""
    return b'{"kind":"%s","apiVersion":"%s",%s' % (resource.kind.encode(), resource.api_version.encode(), entry.raw[1:])


def selects(request: Request, target: Target, resource: Resource) -> Callable[[Entry], bool] | None:
    """The predicate of the request's selectors; None where everything matches."""
    by_label = parse_labels(request.get("labelSelector"))
    by_field, equal = parse_fields(request.get("fieldSelector"), selectable(resource.table))
    if target.name and equal.get("metadata.name", target.name) != target.name:
        raise bad_request("name of the object and the field selector differ")
    if by_label is None and by_field is None:
        return None

    def matches(entry: Entry) -> bool:
        return (by_field is None or by_field(entry.fields)) and (by_label is None or by_label(entry.labels))

    return matches


def get(store: Store, target: Target, resource: Resource) -> bytes:
    """One object; 404 without it."""
    entry = store.get(resource.table, (target.namespace, target.name))
    if entry is None:
        raise not_found(resource.group, resource.plural, target.name)
    return whole(resource, entry)


def _token(rv: int, name: Name) -> str:
    start = "/".join(part for part in name if part) + "\0"
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": rv, "start": start}, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _resume(token: str, resource: Resource, namespace: str) -> tuple[int, Name]:
    try:
        data = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        rv, start = data["rv"], data["start"]
        if data["v"] != "meta.k8s.io/v1" or not isinstance(rv, int) or not isinstance(start, str):
            raise ValueError("not a token of this server")
    except (ValueError, KeyError, TypeError) as error:
        raise bad_request(f"continue key is not valid: {error}") from error
    place, slash, rest = start.partition("/")
    name = (place, rest) if slash else ("", start)
    if bool(slash) is not resource.namespaced or (namespace and place != namespace):
        raise bad_request("continue key is not valid: it is for another list")
    return rv, name


def _version(request: Request, store: Store) -> int:
    """The version to list at."""
    text, match = request.get("resourceVersion"), request.get("resourceVersionMatch")
    if match and not text:
        raise bad_request("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if text and not text.isdecimal():
        raise bad_request(f"invalid resource version: {text}")
    wanted = int(text or 0)
    if wanted > store.rv:
        message = f"Timeout: Too large resource version: {wanted}, current: {store.rv}"
        details = {"causes": [{"reason": "ResourceVersionTooLarge"}], "retryAfterSeconds": 1}
        raise ApiError(504, "Timeout", message, details)
    return wanted if match == "Exact" else store.rv


def listing(store: Store, request: Request, target: Target, resource: Resource) -> bytes:
    """A page of a collection."""
    chosen = selects(request, target, resource)
    limit = request.number("limit") or 0
    token = request.get("continue")
    with store.lock:
        start: Name | None = None
        if token:
            if request.get("resourceVersion") not in ("", "0"):
                raise bad_request("specifying resource version is not allowed when using continue")
            rv, start = _resume(token, resource, target.namespace)
            if rv == -1:
                rv = store.rv
            elif rv < store.compacted:
                raise expired(TOO_OLD_CONTINUE, {"continue": _token(-1, (start[0], start[1].rstrip("\0")))})
        else:
            rv = _version(request, store)
        found: list[bytes] = []
        last: Name | None = None
        more = False
        for entry in store.page(resource.table, target.namespace, rv, start):
            if chosen is not None and not chosen(entry):
                continue
            if limit and len(found) == limit:
                more = True
                break
            found.append(whole(resource, entry) if resource.custom else entry.raw)
            last = entry.name
        meta: Obj = {"resourceVersion": str(rv)}
        if more and last is not None:
            meta["continue"] = _token(rv, last)
            if chosen is None:
                meta["remainingItemCount"] = store.count(resource.table, target.namespace, (last[0], last[1] + "\0"))
    head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": meta}
    return b'%s,"items":[%s]}' % (msgspec.json.encode(head)[:-1], b",".join(found))


@dataclass
class Watch:
    """A watch: lines of JSON until the time is over, the past is gone, or the server ends."""

    store: Store
    resource: Resource
    namespace: str
    selects: Callable[[Entry], bool] | None
    rv: int
    bookmarks: bool
    seconds: float
    initial: list[Entry]
    clock: Callable[[], float] = time.monotonic

    def _line(self, event: Event) -> bytes | None:
        entry, prev = event.entry, event.prev
        if self.namespace and entry.name[0] != self.namespace:
            return None
        now = not event.deleted and (self.selects is None or self.selects(entry))
        before = prev is not None and (self.selects is None or self.selects(prev))
        if not now and not before:
            return None
        kind = ("MODIFIED" if before else "ADDED") if now else "DELETED"
        return self._event(kind, whole(self.resource, entry))

    @staticmethod
    def _event(kind: str, body: bytes) -> bytes:
        return b'{"type":"%s","object":%s}\n' % (kind.encode(), body)

    def _bookmark(self) -> bytes:
        body = {
            "kind": self.resource.kind,
            "apiVersion": self.resource.api_version,
            "metadata": {"resourceVersion": str(self.rv), "creationTimestamp": None},
        }
        return self._event("BOOKMARK", msgspec.json.encode(body))

    def lines(self) -> Iterator[bytes]:
        """The events; an empty line of bytes now and then, so that a reader that left is noticed."""
        end = self.clock() + self.seconds
        yield from (self._event("ADDED", whole(self.resource, entry)) for entry in self.initial)
        look = self.clock() + LOOK_SECONDS
        mark = self.clock() + BOOKMARK_SECONDS if self.bookmarks else math.inf
        while True:
            with self.store.changed:
                gone: ApiError | None = None
                events: list[Event] = []
                try:
                    events = self.store.since(self.rv, self.resource.table)
                except ApiError as error:
                    gone = error
                now, due = self.clock(), min(mark, look, end)
                if not (events or gone or self.store.closed) and now < due:
                    self.store.changed.wait(due - now)
                    continue
                self.rv = max(self.rv, self.store.rv)
            if gone:  # as upstream: once the watch was admitted, an error is an event
                yield self._event("ERROR", msgspec.json.encode(gone.body()))
                return
            yield from filter(None, map(self._line, events))
            now = self.clock()
            over = self.store.closed or now >= end
            if now >= mark or (over and self.bookmarks):
                mark = now + BOOKMARK_SECONDS
                yield self._bookmark()
            if over:
                return
            if now >= look:
                look = now + LOOK_SECONDS
                yield b""


def watch(store: Store, request: Request, target: Target, resource: Resource) -> Watch:
    """A watch from the request's resourceVersion; without one, everything there is comes first as ADDED."""
    if request.get("resourceVersionMatch"):
        raise not_implemented("watches with resourceVersionMatch")
    if target.name:  # GET of one name with watch=true
        request.query["fieldSelector"] = [f"metadata.name={target.name}"]
    chosen = selects(request, target, resource)
    text = request.get("resourceVersion")
    if text and not text.isdecimal():
        raise bad_request(f"invalid resource version: {text}")
    seconds = request.number("timeoutSeconds") or random.randint(1800, 3600)  # noqa: S311 - as a real server does
    with store.lock:
        initial: list[Entry] = []
        rv = int(text or 0)
        if rv == 0:
            rv = store.rv
            initial = [e for e in store.page(resource.table, target.namespace, rv) if chosen is None or chosen(e)]
    return Watch(store, resource, target.namespace, chosen, rv, request.truth("allowWatchBookmarks"), seconds, initial)
