"""Faults on purpose: which requests they meet, and what happens to them."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from gpurunbook.embedded.access import User
from gpurunbook.embedded.status import ApiError


class Match(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """All that is given must hold. path and query are regular expressions for the whole text."""

    method: str = ""
    path: str = ""
    query: str = ""
    user: str = ""

    def meets(self, method: str, path: str, query: str, user: User | None) -> bool:
        """Whether a request is meant. `user` is its username or its name in the fixture."""
        return (
            (not self.method or method in self.method.split(","))
            and (not self.path or re.fullmatch(self.path, path) is not None)
            and (not self.query or re.fullmatch(self.query, query) is not None)
            and (not self.user or (user is not None and self.user in (user.name, user.label)))
        )


class Drip(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The body in pieces of `bytes`, one every `seconds`."""

    bytes: int = 16
    seconds: float = 0.05


class Deed(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What happens. Several may be combined; `reset: after` loses the answer of a request that was carried out.

    truncate: bytes of the body that are sent before the connection is reset (for a watch: of the stream);
    garble: the body is cut in the middle of its JSON, with a Content-Length that says it is whole.
    """

    status: int = 0
    retry_after: int | None = None
    message: str = ""
    delay: float = 0
    reset: Literal["", "before", "after"] = ""
    truncate: int | None = None
    garble: bool = False
    drip: Drip | None = None
    expire_token: bool = False


class Fault(msgspec.Struct, forbid_unknown_fields=True):
    """Meets the `nth` request that matches, and the ones after it until it was met `times` times (0: all)."""

    action: Deed
    match: Match = Match()
    nth: int = 1
    times: int = 1
    seen: int = 0
    hits: int = 0


_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
_MESSAGES = {
    401: "Unauthorized",
    404: "the server could not find the requested resource",
    409: "Operation cannot be fulfilled: the object has been modified; please apply your changes to the latest "
    "version and try again",
    410: "The resourceVersion for the provided list is too old.",
    429: "Too many requests, please try again later.",
    500: "Internal error occurred: etcdserver: request timed out",
    503: "the server is currently unable to handle the request",
}


def answer(deed: Deed) -> ApiError:
    """The refusal that stands for the status of a fault."""
    code = deed.status
    message = deed.message or _MESSAGES.get(code, "injected fault")
    return ApiError(code, _REASONS.get(code, ""), message, retry_after=deed.retry_after)


class Faults:
    """The faults that are armed, in order; a request meets the first one that wants it."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._faults = list(faults)
        self._lock = threading.Lock()

    def add(self, faults: Iterable[Fault]) -> None:
        """Arm more."""
        with self._lock:
            self._faults.extend(faults)

    def clear(self) -> None:
        """Disarm all."""
        with self._lock:
            self._faults.clear()

    def listed(self) -> list[Any]:
        """All of them with how often they matched and hit."""
        with self._lock:
            return [msgspec.to_builtins(fault) for fault in self._faults]

    def take(self, method: str, path: str, query: str, user: User | None) -> Deed | None:
        """What happens to this request."""
        with self._lock:
            chosen: Fault | None = None
            for fault in self._faults:
                if not fault.match.meets(method, path, query, user):
                    continue
                fault.seen += 1
                due = fault.seen >= fault.nth and (fault.times == 0 or fault.hits < fault.times)
                if due and chosen is None:
                    chosen = fault
            if chosen is None:
                return None
            chosen.hits += 1
            return chosen.action
