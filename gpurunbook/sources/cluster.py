"""Reading a cluster: who and what it is, and its objects in raw pages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gpurunbook.declared.book import Permission
from gpurunbook.errors import ClusterError, Denied, Drifted, Garbled, Gone, InputError, NotFound, ServerFault
from gpurunbook.plan import Need, Object, Observed, Pages, Problem
from gpurunbook.sources import embedded
from gpurunbook.sources.connection import Connection, current, decode, load
from gpurunbook.supply import strictjson

PAGE = "500"
"""Items per page: kubectl's chunk size; the memory of a read is one page and what is kept of it."""

RESTARTS = 3
"""How often a list is begun again when its continue token expires (410)."""

REHEARSAL = "gpurunbook.io/rehearsal"
"""Annotation or label of namespace kube-system: what is run here is no evidence for a live cluster."""

_REVIEWS = ("v1", "v1beta1", "v1alpha1")


@dataclass(frozen=True)
class Identity:
    """What the API server says it is, and whom it takes us for. operator: "" when it cannot say."""

    uid: str
    version: str
    operator: str
    rehearsal: tuple[str, ...]


def connect(name: str | None, *, home: Path | None = None, clusters: Path | None = None) -> Cluster:
    """Writes nothing to the cluster. Opens a kubeconfig context, `in-cluster`, `embedded:DIR`, or the current context.

    For `embedded:DIR` (relative to `parameters/` of home) the embedded server is started when it does not run
    yet, with its state under `clusters`. Raises InputError when there is no such cluster, and never falls back. What is
    opened stays the one: when credentials are loaded again, another current context changes nothing, and another
    server under the same name raises Drifted `wrong-cluster`.
    """
    wanted = name or current()
    if wanted.startswith("embedded:"):

        def serve() -> Any:
            return load("", str(embedded.serve(wanted.removeprefix("embedded:"), home=home, clusters=clusters)))

        return Cluster(wanted, Connection(serve(), serve, wakes=True))
    first = load(wanted)

    def reload() -> Any:
        fresh = load(wanted)
        if fresh.configuration.host != first.configuration.host:
            raise Drifted(
                f"its server was {first.configuration.host}, and is {fresh.configuration.host} now",
                subject=f"context {wanted!r}",
                remedy="Nothing was sent there. Find out who changed the kubeconfig, then start the kernel anew.",
                code="wrong-cluster",
            )
        return fresh

    return Cluster(wanted, Connection(first, reload))


class Cluster:
    """One cluster to read from. name: its context, `in-cluster` or `embedded:DIR`; "" where no kubeconfig names it."""

    def __init__(self, name: str, connection: Connection) -> None:
        self.name = name
        self.connection = connection
        self._system: _Named | None = None
        self._identity: Identity | None = None
        self._as: tuple[int, str] | None = None

    def identify(self) -> Identity:
        """Writes nothing. Server version, uid of namespace kube-system, operator and rehearsal marks.

        The uid is read first. Raises ClusterError when it cannot be read: a cluster without a name is no target.
        """
        uid = self.uid
        metadata = self._metadata()
        reasons = []
        if self.name.startswith("embedded:"):
            reasons.append("embedded cluster")
        if REHEARSAL in {**(metadata.annotations or {}), **(metadata.labels or {})}:
            reasons.append(f"namespace kube-system carries {REHEARSAL}")
        what = "GET /version"
        version = _told(decode(self.connection.read("/version"), what), _Version, what).git_version or ""
        self._identity = Identity(uid, version, self.operator(), tuple(reasons))
        return self._identity

    def operator(self) -> str:
        """Writes nothing. Whom the server takes us for, "" when it cannot say; asked again once credentials were loaded
        again."""
        renewed = self.connection.renewed
        if self._as is None or self._as[0] != renewed:
            self._as = renewed, self._operator()
        return self._as[1]

    @property
    def identity(self) -> Identity:
        """Writes nothing. What `identify` said, asked once."""
        return self._identity or self.identify()

    @property
    def uid(self) -> str:
        """Writes nothing. The uid of namespace kube-system, which names the cluster; one GET, no other call."""
        uid = self._metadata().uid
        if not uid:
            raise Garbled("namespace kube-system has no uid", subject=self.name or "cluster")
        return uid

    def _metadata(self) -> _Named:
        if self._system is None:
            path = "/api/v1/namespaces/kube-system"
            self._system = _told(self.object(path), _Object, f"GET {path}").metadata or _Named()
        return self._system

    @property
    def rehearsal(self) -> bool:
        """Writes nothing. Whether what is seen here can never be evidence for a live cluster."""
        return bool(self.identity.rehearsal)

    def _operator(self) -> str:
        for version in _REVIEWS:
            try:
                answer = self._ask(
                    f"/apis/authentication.k8s.io/{version}/selfsubjectreviews",
                    {"apiVersion": f"authentication.k8s.io/{version}", "kind": "SelfSubjectReview"},
                )
            except (NotFound, Denied):
                continue
            except ServerFault as wrong:
                if wrong.status == 501:
                    continue
                raise
            status = _told(answer, _Review, "SelfSubjectReview").status or _Answer()
            return (status.user_info and status.user_info.username) or ""
        return ""

    def _ask(self, path: str, review: dict[str, Any]) -> dict[str, Any]:
        """Writes nothing: review kinds are answered and never stored."""
        body = json.dumps(review, sort_keys=True).encode()
        answer: dict[str, Any] = decode(self.connection.ask(path, body), f"POST {path}")
        return answer

    def missing(self, permissions: Sequence[Permission]) -> list[Permission]:
        """Writes nothing. Which of the permissions the operator does not have (SelfSubjectAccessReview)."""
        return [p for p in permissions if not self._allowed(p)]

    def _allowed(self, permission: Permission) -> bool:
        attributes = {
            "verb": permission.verb,
            "group": permission.group,
            "resource": permission.resource,
            "subresource": permission.subresource,
            "namespace": permission.namespace,
            "name": permission.name,
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {k: v for k, v in attributes.items() if v}},
        }
        answer = self._ask("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
        status = _told(answer, _Review, "SelfSubjectAccessReview").status
        return status is not None and status.allowed is True

    def object(self, path: str) -> dict[str, Any]:
        """Writes nothing. One object as a raw dict."""
        found: dict[str, Any] = decode(self.connection.read(path), f"GET {path}")
        return found

    def listed(self, need: Pages) -> tuple[list[Any], str]:
        """Writes nothing. A whole collection as the need says, and the resourceVersion of the list.

        Begun again when the continue token expires (410).
        """
        for _ in range(RESTARTS - 1):
            try:
                return self._whole(need)
            except Gone:
                continue
        return self._whole(need)

    def _whole(self, need: Pages) -> tuple[list[Any], str]:
        what = f"GET {need.path}"
        found: list[Any] = []
        version = token = ""
        tokens: set[str] = set()
        while True:
            query = [*need.query, ("limit", PAGE)] + ([("continue", token)] if token else [])
            items, metadata = _page(self.connection.read(need.path, query), need.page, what)
            found += need.kept(items) if need.kept else items
            version = version or metadata.version or ""
            token = metadata.continue_ or ""
            if not token and metadata.remaining:
                raise Garbled(f"{metadata.remaining} items remain, and no token is given for them", subject=what)
            if not token:
                return found, version
            if token in tokens:
                raise Garbled("the server gave the same continue token twice", subject=what)
            tokens.add(token)

    def observe(self, need: Need) -> Observed:
        """Writes nothing. What the need asks of the cluster, or the problem that hid it. Never raises ClusterError."""
        try:
            match need:
                case Pages():
                    return Observed(need, self.listed(need)[0])
                case Object():
                    return Observed(need, self.object(need.path))
        except ClusterError as wrong:
            return Observed(need, problem=Problem(wrong.code, str(wrong)))
        raise TypeError(f"not a need of a cluster: {need!r}")


class _Named(msgspec.Struct, gc=False):
    uid: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Object(msgspec.Struct, gc=False):
    metadata: _Named | None = None


class _Version(msgspec.Struct, gc=False, rename="camel"):
    git_version: str | None = None


class _User(msgspec.Struct, gc=False):
    username: str | None = None


class _Answer(msgspec.Struct, gc=False, rename="camel"):
    user_info: _User | None = None
    allowed: bool | None = None


class _Review(msgspec.Struct, gc=False):
    status: _Answer | None = None


_Told = TypeVar("_Told")


def _told(answer: dict[str, Any], kind: type[_Told], what: str) -> _Told:
    """What is judged of an answer. Raises Garbled where a value is of another type than the API has."""
    try:
        return strictjson.typed(answer, kind)
    except InputError as wrong:
        raise Garbled(f"the answer is not the one that was due: {wrong}", subject=what) from None


class _Meta(msgspec.Struct, gc=False):
    continue_: str | None = msgspec.field(default=None, name="continue")
    version: str | None = msgspec.field(default=None, name="resourceVersion")
    remaining: int | None = msgspec.field(default=None, name="remainingItemCount")


class _Envelope(msgspec.Struct, gc=False):
    kind: str | None = None
    metadata: _Meta | None = None


@cache
def _typed(page: Any) -> Any:
    """The envelope with the items of a page type, so that a page is decoded once."""
    items = next(field for field in msgspec.structs.fields(page) if field.name == "items")
    return msgspec.defstruct(
        f"Whole{page.__name__}", [("items", items.type, items.default)], bases=(_Envelope,), gc=False
    )


def _page(raw: bytes, kind: Any, what: str) -> tuple[list[Any], _Meta]:
    try:
        envelope: Any = msgspec.json.decode(raw, type=_typed(kind) if kind else _Envelope)
        if not (envelope.kind or "").endswith("List") or envelope.metadata is None:
            raise Garbled(f"the answer is of kind {envelope.kind!r}, wanted a list", subject=what)
        items = envelope.items if kind else json.loads(raw).get("items")
    except (msgspec.DecodeError, ValueError, RecursionError) as wrong:
        raise Garbled(f"the answer is not the list that was due: {wrong}", subject=what) from None
    if items is not None and not isinstance(items, list):
        raise Garbled(f"items is a {type(items).__name__}, wanted a list", subject=what)
    if not kind and not all(isinstance(item, dict) for item in items or []):
        raise Garbled("an item of the list is no object", subject=what)
    return items or [], envelope.metadata
