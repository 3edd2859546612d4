"""Answers that are never stored: access reviews, who am I, and the version."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable

from gpurunbook.embedded.access import Access, Action, User
from gpurunbook.embedded.resources import Resource
from gpurunbook.embedded.status import Obj, bad_request, invalid, invalid_value


def version(text: str) -> Obj:
    """The answer of /version for a version such as v1.35.3+rke2r3."""
    found = re.fullmatch(r"v([0-9]+)\.([0-9]+).*", text)
    major, minor = found.groups() if found else ("", "")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": text,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "",
        "goVersion": "",
        "compiler": "",
        "platform": f"linux/{'arm64' if platform.machine() == 'aarch64' else 'amd64'}",
    }


def review(kind: str, body: Obj, user: User, access: Access) -> Obj:
    """Fill in the status of a review that the user asks about himself."""
    if body.get("kind", kind) != kind:
        raise bad_request(f'{body.get("kind")} in version "v1" cannot be handled as a {kind}')
    spec: Obj = body.get("spec") or {}
    status: Obj
    if kind == "SelfSubjectReview":
        groups = [*user.groups, *(["system:authenticated"] if "system:authenticated" not in user.groups else [])]
        status = {"userInfo": {"username": user.name, "groups": groups}}
    elif kind == "SelfSubjectRulesReview":
        status = _rules(spec.get("namespace") or "", user, access)
    else:
        status = {"allowed": access.allows(user, _action(spec))}
    return {"kind": kind, "apiVersion": body.get("apiVersion", ""), "metadata": {}, "spec": spec, "status": status}


def _action(spec: Obj) -> Action:
    path: Obj = spec.get("nonResourceAttributes") or {}
    wanted: Obj = spec.get("resourceAttributes") or {}
    if bool(path) is bool(wanted):
        text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        cause = invalid_value("spec.resourceAttributes", "null", text)
        raise invalid("authorization.k8s.io", "SelfSubjectAccessReview", "", [cause])
    if path:
        return Action(path.get("verb", ""), path=path.get("path", ""))
    names = ("verb", "group", "resource", "subresource", "namespace", "name")
    return Action(**{name: wanted.get(name, "") for name in names})


def _rules(namespace: str, user: User, access: Access) -> Obj:
    rules = access.rules(user, namespace)
    resource = [{k: v for k, v in rule.items() if k != "nonResourceURLs"} for rule in rules if rule.get("resources")]
    names = ("verbs", "nonResourceURLs")
    paths = [{name: rule[name] for name in names} for rule in rules if rule.get("nonResourceURLs")]
    return {"resourceRules": resource, "nonResourceRules": paths, "incomplete": False}


def groups(served: Iterable[Resource]) -> Obj:
    """The APIGroupList of `/apis`: every served group with its versions, the stable one preferred."""
    versions: dict[str, set[str]] = {}
    for resource in served:
        if resource.group:
            versions.setdefault(resource.group, set()).add(resource.version)
    found = []
    for group, names in sorted(versions.items()):
        ordered = sorted(names, key=lambda name: ("alpha" in name, "beta" in name, name))
        listed = [{"groupVersion": f"{group}/{name}", "version": name} for name in ordered]
        found.append({"name": group, "versions": listed, "preferredVersion": listed[0]})
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": found}
