"""From a request to its answer: who, may he, what is it about, and the module that does it."""

from __future__ import annotations

import datetime as dt
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from gpurunbook.embedded import deletion, pods, reads, reviews
from gpurunbook.embedded.access import Access, User, Users
from gpurunbook.embedded.fixture import Config
from gpurunbook.embedded.requests import Request, Target, check_parameters, resolve
from gpurunbook.embedded.resources import Catalog, Resource
from gpurunbook.embedded.status import ApiError, method_not_allowed, no_such_resource, not_implemented
from gpurunbook.embedded.store import Store
from gpurunbook.embedded.writes import Done, Writes

# subresources that a real server has, and this one has not
_REAL = ("attach", "ephemeralcontainers", "exec", "finalize", "log", "portforward", "proxy", "resize", "scale", "token")


@dataclass
class Answer:
    """What goes back. `verb` and `persisted` are for the request log; a watch streams instead of having a body."""

    code: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    verb: str = ""
    persisted: bool = False
    watch: reads.Watch | None = None


def refused(error: ApiError, verb: str = "") -> Answer:
    """The answer that an ApiError stands for."""
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    return Answer(error.code, msgspec.json.encode(error.body()), headers=headers, verb=verb)


def _written(done: Done) -> Answer:
    code, body, persisted = done
    return Answer(code, body, persisted=persisted)


def utcnow() -> dt.datetime:
    """Now, to the second, as object timestamps are."""
    return dt.datetime.now(dt.UTC).replace(microsecond=0)


class Api:
    """One API server over one store."""

    def __init__(
        self, config: Config, store: Store, catalog: Catalog, users: Users, now: Callable[[], dt.datetime] = utcnow
    ) -> None:
        self.config, self.store, self.catalog, self.users = config, store, catalog, users
        self.access = Access(store)
        self.writes = Writes(store, catalog, now)

    def answer(self, request: Request) -> Answer:
        """The answer to an authenticated request. Never raises ApiError."""
        verb = ""
        try:
            action, target = resolve(request, self.catalog)
            verb = action.verb
            self.access.require(request.user, action)
            made = self._serve(request, check_parameters(request, target))
        except ApiError as error:
            return refused(error, verb)
        except Exception as error:
            traceback.print_exc()  # into server.log: this is a defect of the server
            return refused(ApiError(500, "InternalError", f"Internal error occurred: {error!r}"), verb)
        made.verb = verb
        return made

    def _serve(self, request: Request, target: Target) -> Answer:
        if target.review:
            return self._review(request, target)
        if target.resource is None:
            return self._path(request)
        resource = target.resource
        if target.subresource:
            return self._subresource(request, target, resource)
        if target.verb == "list":
            return Answer(200, reads.listing(self.store, request, target, resource))
        if target.verb == "watch":
            return Answer(200, watch=reads.watch(self.store, request, target, resource))
        if target.verb == "get":
            return Answer(200, reads.get(self.store, target, resource))
        return self._write(request, target, resource)

    def _write(self, request: Request, target: Target, resource: Resource) -> Answer:
        if (target.verb == "create") is bool(target.name) and target.verb != "deletecollection":
            raise method_not_allowed()
        if target.verb in ("delete", "deletecollection"):
            return _written(getattr(deletion, target.verb)(self.writes, request, target, resource))
        return _written(getattr(self.writes, target.verb)(request, target, resource))

    def _subresource(self, request: Request, target: Target, resource: Resource) -> Answer:
        sub = target.subresource
        if sub == "status":
            if not resource.status:
                raise no_such_resource()
            if target.verb == "get":
                return Answer(200, reads.get(self.store, target, resource))
            if target.verb in ("update", "patch"):
                return self._write(request, target, resource)
            raise method_not_allowed()
        if resource.table == ("", "pods"):
            if sub == "log" and target.verb == "get":
                pod = self.writes.existing(target, resource).object()
                return Answer(200, pods.log(self.config.logs, request, target, pod), "text/plain")
            if sub in ("eviction", "binding") and target.verb == "create":
                return _written(
                    (pods.evict if sub == "eviction" else pods.bind)(self.writes, request, target, resource)
                )
        if sub.split("/")[0] not in _REAL:
            raise no_such_resource()
        raise not_implemented(f"{target.verb} of {resource.plural}/{sub}")

    def _review(self, request: Request, target: Target) -> Answer:
        if target.verb != "create" or target.name:
            raise method_not_allowed()
        body = request.object()
        version = request.path.split("/")[3]
        if target.review == "SelfSubjectReview" and version not in self.config.self_subject_review:
            raise no_such_resource()
        body.setdefault("apiVersion", "/".join(request.path.split("/")[2:4]))
        made = reviews.review(target.review, body, request.user, self.access)
        return Answer(201, msgspec.json.encode(made))

    def _path(self, request: Request) -> Answer:
        path = request.path.rstrip("/")
        if request.method != "GET":
            raise method_not_allowed()
        if path == "/version":
            return Answer(200, msgspec.json.encode(reviews.version(self.config.version)))
        if path in ("/healthz", "/livez", "/readyz"):
            return Answer(200, b"ok", "text/plain")
        if path == "/apis":
            return Answer(200, msgspec.json.encode(reviews.groups(self.catalog.all())))
        if path.startswith(("/api", "/openapi")):
            raise not_implemented(f"discovery ({path})")
        raise no_such_resource()


def admin(token: str) -> User:
    """The user of the token in server.json."""
    return User("gpurunbook-admin", ("system:masters",), token, label="admin")
