"""Who asks, and what they may do: bearer tokens, and the RBAC objects in the store."""

from __future__ import annotations

import hmac
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from gpurunbook.embedded.status import ApiError, Obj, forbidden, unauthorized
from gpurunbook.embedded.store import Store

RBAC = "rbac.authorization.k8s.io"
_TABLES = [(RBAC, plural) for plural in ("roles", "rolebindings", "clusterroles", "clusterrolebindings")]


@dataclass
class User:
    """One credential. It expires after a number of requests, after seconds, or when a fault says so."""

    name: str
    groups: tuple[str, ...]
    token: str
    label: str = ""
    after_requests: int | None = None
    after_seconds: float | None = None
    actor: bool = False
    requests: int = 0
    expired: bool = False


class Users:
    """The credentials that the server knows."""

    def __init__(self, users: Iterable[User], clock: Callable[[], float] = time.monotonic) -> None:
        self._users = list(users)
        self._clock = clock
        self._start = clock()
        self._lock = threading.Lock()

    def add(self, user: User) -> None:
        """Accept one more credential."""
        self._users.append(user)

    def authenticate(self, header: str) -> User:
        """The user of an Authorization header; 401 for a missing, wrong or expired token."""
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise unauthorized()
        sent = token.strip().encode()
        for user in self._users:
            if hmac.compare_digest(user.token.encode(), sent):
                with self._lock:
                    user.requests += 1
                late = user.after_seconds is not None and self._clock() - self._start > user.after_seconds
                spent = user.after_requests is not None and user.requests > user.after_requests
                if user.expired or late or spent:
                    raise unauthorized()
                return user
        raise unauthorized()


@dataclass(frozen=True)
class Action:
    """What a request wants to do. Either a resource with a verb, or `path` alone."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


def _has(values: Iterable[str] | None, wanted: str) -> bool:
    found = values or ()
    return wanted in found or "*" in found


def _path_matches(pattern: str, path: str) -> bool:
    return pattern == path or (pattern.endswith("*") and path.startswith(pattern[:-1]))


def rule_allows(rule: Obj, action: Action) -> bool:
    """Whether one PolicyRule allows the action."""
    if not _has(rule.get("verbs"), action.verb):
        return False
    if action.path:
        return any(_path_matches(pattern, action.path) for pattern in rule.get("nonResourceURLs") or ())
    wanted = {action.resource}
    if action.subresource:
        wanted = {f"{action.resource}/{action.subresource}", f"*/{action.subresource}"}
    resources = set(rule.get("resources") or ())
    if "*" not in resources and not wanted & resources:
        return False
    names = rule.get("resourceNames")
    return _has(rule.get("apiGroups"), action.group) and (not names or action.name in names)


def _is(subject: Obj, user: User, namespace: str) -> bool:
    kind, name = subject.get("kind"), subject.get("name", "")
    if kind == "ServiceAccount":
        return user.name == f"system:serviceaccount:{subject.get('namespace') or namespace}:{name}"
    return name == user.name if kind == "User" else kind == "Group" and name in user.groups


class Access:
    """Answers from the Role, ClusterRole and binding objects in the store, as they are at that moment."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def rules(self, user: User, namespace: str) -> list[Obj]:
        """The rules that hold for the user in the namespace; cluster-wide ones when it is empty."""
        with self._store.lock:
            roles, bindings, cluster_roles, cluster_bindings = (
                {entry.name: entry.object() for entry in self._store.all(table)} for table in _TABLES
            )
        granted: list[Any] = []
        for (place, _), binding in [*cluster_bindings.items(), *bindings.items()]:
            if place not in ("", namespace):
                continue
            if any(_is(subject, user, place) for subject in binding.get("subjects") or ()):
                ref = binding["roleRef"]
                name = ref["name"]
                role = cluster_roles.get(("", name)) if ref["kind"] == "ClusterRole" else roles.get((place, name))
                granted += (role or {}).get("rules") or ()
        return granted

    def allows(self, user: User, action: Action) -> bool:
        """Whether the user may do that."""
        if "system:masters" in user.groups:
            return True
        return any(rule_allows(rule, action) for rule in self.rules(user, action.namespace))

    def require(self, user: User, action: Action) -> None:
        """403 unless the user may do that."""
        if not self.allows(user, action):
            raise refusal(user, action)


def refusal(user: User, action: Action) -> ApiError:
    """The 403 of an API server with RBAC."""
    if action.path:
        return forbidden("", "", "", f'User "{user.name}" cannot {action.verb} path "{action.path}"')
    resource = f"{action.resource}/{action.subresource}" if action.subresource else action.resource
    scope = f'in the namespace "{action.namespace}"' if action.namespace else "at the cluster scope"
    why = f'User "{user.name}" cannot {action.verb} resource "{resource}" in API group "{action.group}" {scope}'
    return forbidden(action.group, action.resource, action.name, why)


def _rule(groups: str, resources: str, verbs: str) -> Obj:
    return {"apiGroups": [groups], "resources": resources.split(), "verbs": [verbs]}


def bootstrap() -> list[Obj]:
    """The roles that every API server creates for itself, as far as runbooks meet them."""
    paths = "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/".split()  # noqa: SIM905
    rules = {
        "cluster-admin": ("system:masters", [_rule("*", "*", "*"), {"nonResourceURLs": ["*"], "verbs": ["*"]}]),
        "system:discovery": ("system:authenticated", [{"nonResourceURLs": paths, "verbs": ["get"]}]),
        "system:basic-user": (
            "system:authenticated",
            [
                _rule("authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews", "create"),
                _rule("authentication.k8s.io", "selfsubjectreviews", "create"),
            ],
        ),
    }
    made: list[Obj] = []
    for name, (group, listed) in rules.items():
        common = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": name}}
        ref = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}
        subjects = [{"apiGroup": RBAC, "kind": "Group", "name": group}]
        made.append({**common, "kind": "ClusterRole", "rules": listed})
        made.append({**common, "kind": "ClusterRoleBinding", "roleRef": ref, "subjects": subjects})
    return made
