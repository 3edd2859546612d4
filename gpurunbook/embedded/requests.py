"""What a request asks for: method, path and query as Kubernetes reads them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec
import yaml

from gpurunbook.embedded.access import Action, User
from gpurunbook.embedded.resources import REVIEWS, Catalog, Resource
from gpurunbook.embedded.status import (
    Cause,
    Obj,
    bad_request,
    invalid,
    method_not_allowed,
    no_such_resource,
    not_implemented,
    unsupported_media,
)

# read by real servers and without effect here, or handled where the verb is
_PARAMETERS = frozenset(
    re.split(
        r"\s+",
        "allowWatchBookmarks container continue dryRun fieldManager fieldSelector fieldValidation gracePeriodSeconds "
        "labelSelector limit orphanDependents pretty propagationPolicy resourceVersion resourceVersionMatch tailLines "
        "timeout timeoutSeconds watch",
    )
)
_RESOURCE = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/[^/]))?/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>.+))?)?"
)
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


@dataclass
class Request:
    """One HTTP request after parsing; `target` and `action` are set once it is known what it is about."""

    method: str
    path: str
    query: dict[str, list[str]]
    content_type: str
    body: bytes
    user: User
    n: int = 0

    def get(self, name: str, default: str = "") -> str:
        """The first value of a query parameter."""
        return self.query.get(name, [default])[0]

    def truth(self, name: str) -> bool:
        """A boolean query parameter, as Go parses it."""
        return self.get(name, "false").lower() not in ("false", "0")

    def number(self, name: str) -> int | None:
        """An integer query parameter; 400 for anything else."""
        value = self.get(name)
        if not value:
            return None
        if not re.fullmatch(r"-?[0-9]+", value):
            raise bad_request(f'strconv.ParseInt: parsing "{value}": invalid syntax')
        return int(value)

    def dry_run(self, kind: str) -> bool:
        """Whether nothing may be persisted; 422 for a value that is not All."""
        values = self.query.get("dryRun", [])
        if any(value != "All" for value in values):
            listed = ",".join(f'"{value}"' for value in values)
            cause = Cause("dryRun", "FieldValueNotSupported", f'Unsupported value: [{listed}]: supported values: "All"')
            raise invalid("meta.k8s.io", kind, "", [cause])
        return bool(values)

    def object(self, accepted: tuple[str, ...] = ("application/json", "application/yaml")) -> Obj:
        """The body as an object; 415 for another content type, 400 for what does not parse."""
        content = self.content_type.partition(";")[0].strip() or "application/json"
        if content not in accepted:
            raise unsupported_media(accepted)
        try:
            decoded = yaml.safe_load(self.body) if content == "application/yaml" else msgspec.json.decode(self.body)
        except (msgspec.DecodeError, yaml.YAMLError) as error:
            raise bad_request(f"the object provided is unrecognized: {error}") from error
        if not isinstance(decoded, dict):
            raise bad_request("couldn't get version/kind; json parse error: the body is not an object")
        _check_options(decoded, _MEMBERS)
        _check_options(decoded.get("deleteOptions") or {}, _MEMBERS)
        _check_options(decoded.get("spec") or {}, _REVIEWED)
        return decoded


# of bodies that are no stored objects: options, evictions, bindings, reviews
_MEMBERS: dict[str, type[Any]] = {
    "deleteOptions": dict,
    "dryRun": list,
    "gracePeriodSeconds": int,
    "metadata": dict,
    "preconditions": dict,
    "propagationPolicy": str,
    "spec": dict,
    "target": dict,
}
_REVIEWED: dict[str, type[Any]] = {"nonResourceAttributes": dict, "resourceAttributes": dict}


def _check_options(body: Obj, types: dict[str, type[Any]]) -> None:
    """400 for a member of the wrong type."""
    for name, kind in types.items():
        value = body.get(name)
        if value is not None and type(value) is not kind:
            raise bad_request(f"json: cannot unmarshal {value!r} into Go struct field {name}")


def split_target(target: str) -> tuple[str, dict[str, list[str]]]:
    """Path and query of a request line's target."""
    parts = urlsplit(target)
    return unquote(parts.path), parse_qs(parts.query, keep_blank_values=True)


@dataclass(frozen=True)
class Target:
    """The resource that a path names. resource is None for reviews and for paths that are no resource."""

    verb: str
    resource: Resource | None = None
    review: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def resolve(request: Request, catalog: Catalog) -> tuple[Action, Target | None]:
    """What the request does, for authorization, and its target; no target where no resource is served."""
    found = _RESOURCE.fullmatch(request.path)
    if not found:
        verb = request.method.lower()
        return Action(verb, path=request.path), Target(verb)
    group, version, plural = found["group"] or "", found["version"], found["plural"]
    namespace, name, sub = found["namespace"] or "", found["name"] or "", found["sub"] or ""
    if not group and namespace and not name and plural in ("status", "finalize"):
        namespace, plural, name, sub = "", "namespaces", namespace, plural
    if plural == "namespaces" and not group:
        namespace = name  # the object's own name is the scope that RBAC looks at
    verb = _VERBS.get(request.method, "")
    if request.method == "GET":
        verb = ("get" if name else "list") if not request.truth("watch") else "watch"
    elif request.method == "DELETE":
        verb = "delete" if name else "deletecollection"
    wanted = name or _exact_name(request)
    action = Action(verb, group, plural, sub, namespace, wanted)
    review = REVIEWS.get((group, plural))
    if review and version in review[1]:
        return action, Target(verb, review=review[0])
    resource = catalog.find(group, version, plural)
    if resource is None or (plural != "namespaces" and bool(namespace) < (resource.namespaced and bool(name))):
        return action, None
    if namespace and not resource.namespaced and plural != "namespaces":
        return action, None
    place = namespace if resource.namespaced else ""
    return action, Target(verb, resource, "", place, name, sub)


def _exact_name(request: Request) -> str:
    found = re.search(r"(?:^|,)\s*metadata\.name\s*==?\s*([^,]+)", request.get("fieldSelector"))
    return found[1].strip() if found else ""


def check_parameters(request: Request, target: Target | None) -> Target:
    """404, 405 and 501 for what is not served here. Unknown parameters are refused: they hide typing mistakes."""
    if target is None:
        raise no_such_resource()
    if not target.verb:
        raise method_not_allowed()
    unknown = sorted(set(request.query) - _PARAMETERS)
    if unknown:
        raise not_implemented(f"the query parameters {', '.join(unknown)}")
    return target
