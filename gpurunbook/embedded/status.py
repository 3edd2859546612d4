"""The Status objects with which an API server says no."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Obj = dict[str, Any]


@dataclass(frozen=True)
class Cause:
    """One field of an object that is not valid. `kind` is the cause's type, such as FieldValueInvalid."""

    field: str
    kind: str
    message: str


def required(field: str, detail: str = "") -> Cause:
    """A field that must have a value."""
    return Cause(field, "FieldValueRequired", f"Required value{': ' + detail if detail else ''}")


def invalid_value(field: str, value: str, detail: str) -> Cause:
    """A field whose value (as Go prints it) is refused."""
    return Cause(field, "FieldValueInvalid", f"Invalid value: {value}: {detail}")


def unsupported(field: str, value: str, supported: Iterable[str]) -> Cause:
    """A field whose value is not in its enumeration."""
    names = ", ".join(f'"{name}"' for name in supported)
    return Cause(field, "FieldValueNotSupported", f"Unsupported value: {value}: supported values: {names}")


def forbidden_field(field: str, detail: str) -> Cause:
    """A field that may not be set or changed."""
    return Cause(field, "FieldValueForbidden", f"Forbidden: {detail}")


class ApiError(Exception):
    """An answer other than 2xx. `unsupported` marks what this server does not implement (501)."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        *,
        retry_after: int | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = None if details is None else {key: value for key, value in details.items() if value}
        self.retry_after = retry_after
        self.meta = dict(meta or {})

    def body(self) -> Obj:
        """The Status object."""
        body: Obj = {"kind": "Status", "apiVersion": "v1", "metadata": self.meta, "status": "Failure"}
        body["message"] = self.message
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        return body | {"code": self.code}


def qualified(group: str, name: str) -> str:
    """`pods`, or `daemonsets.apps` with a group."""
    return f"{name}.{group}" if group else name


def _about(group: str, kind: str, name: str) -> Obj:
    return {"name": name, "group": group, "kind": kind}


def not_found(group: str, plural: str, name: str) -> ApiError:
    """404 for an object."""
    return ApiError(404, "NotFound", f'{qualified(group, plural)} "{name}" not found', _about(group, plural, name))


def no_such_resource() -> ApiError:
    """404 for a path that no resource serves."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(group: str, plural: str, name: str) -> ApiError:
    """409 for a create."""
    text = f'{qualified(group, plural)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", text, _about(group, plural, name))


def conflict(group: str, plural: str, name: str, why: str) -> ApiError:
    """409 for a write."""
    text = f'Operation cannot be fulfilled on {qualified(group, plural)} "{name}": {why}'
    return ApiError(409, "Conflict", text, _about(group, plural, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def invalid(group: str, kind: str, name: str, causes: Iterable[Cause]) -> ApiError:
    """422 with one cause per field."""
    found = list(causes)
    texts = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in found))
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    listed = [{"reason": cause.kind, "message": cause.message, "field": cause.field} for cause in found]
    message = f'{qualified(group, kind)} "{name}" is invalid: {text}'
    return ApiError(422, "Invalid", message, _about(group, kind, name) | {"causes": listed})


def unprocessable() -> ApiError:
    """422 for a JSON patch that does not apply; the server does not say which operation."""
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def bad_request(message: str) -> ApiError:
    """400."""
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    """401."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(group: str, plural: str, name: str, why: str) -> ApiError:
    """403. With neither group nor plural it is about a path."""
    about = qualified(group, plural) + (f' "{name}"' if name else "") + " is " if plural else ""
    return ApiError(403, "Forbidden", f"{about}forbidden: {why}", _about(group, plural, name))


def expired(message: str, meta: Mapping[str, Any] | None = None) -> ApiError:
    """410."""
    return ApiError(410, "Expired", message, meta=meta)


def unsupported_media(accepted: Iterable[str]) -> ApiError:
    """415."""
    text = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted)
    return ApiError(415, "UnsupportedMediaType", text)


def method_not_allowed() -> ApiError:
    """405."""
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def not_implemented(what: str) -> ApiError:
    """501: a real API server answers here, this one does not. Tests fail on it."""
    return ApiError(501, "NotImplemented", f"the embedded API server does not implement {what}")


def success(details: Mapping[str, Any] | None = None) -> Obj:
    """The Status object of a deletion or an eviction that went through."""
    body: Obj = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return body | {"details": dict(details)} if details else body
