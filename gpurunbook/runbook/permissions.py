"""The permissions of a runbook: what is asked of the API server before anything else, and as a Role to apply."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import yaml

from gpurunbook.declared.book import Permission, Runbook
from gpurunbook.errors import ParameterError
from gpurunbook.nodes.discovery import NAME
from gpurunbook.runbook.site import Site

IDENTITY = (Permission("get", "namespaces", name="kube-system"),)
"""Every run names its cluster by the uid of this namespace."""


def needed(book: Runbook, chosen: Any, site: Site) -> list[Permission]:
    """Writes nothing. The declared permissions with `{parameter}` and `{site.field}` filled in.

    A list parameter gives one permission for each of its entries. Raises ParameterError for one that is empty, since
    a permission for nothing in particular would be one for everything, and for what cannot be a name.
    """
    words = {**msgspec.structs.asdict(chosen), **{f"site.{k}": v for k, v in msgspec.structs.asdict(site).items()}}
    return [*IDENTITY, *(p for declared in book.permissions for p in _filled(declared, words))]


def _filled(permission: Permission, words: Mapping[str, Any]) -> list[Permission]:
    name = "".join(_values(permission.name, words))
    return [dataclasses.replace(permission, namespace=n, name=name) for n in _values(permission.namespace, words)]


def _values(text: str, words: Mapping[str, Any]) -> list[str]:
    if not text.startswith("{"):
        return [text]
    name = text.strip("{}")
    value = words[name]
    values = [value] if isinstance(value, str) else list(value)
    for found in values:
        if not NAME.fullmatch(found):
            odd = f"is {found!r:.80}, which cannot be a name: lower-case letters, digits, `-` and `.`"
            raise ParameterError(
                odd if found else "is empty, and names what the runbook works on",
                subject=f"parameter {name.replace('site.', 'of the site file ')!r}",
                remedy="Correct the site file." if name.startswith("site.") else f"Correct the parameter `{name}`.",
            )
    return values


def spell(permission: Permission) -> str:
    """Writes nothing. One permission in words: `list pods in namespace gpu-operator`."""
    resource = permission.resource + (f"/{permission.subresource}" if permission.subresource else "")
    group = f".{permission.group}" if permission.group else ""
    name = f" {permission.name}" if permission.name else ""
    where = f" in namespace {permission.namespace}" if permission.namespace else ""
    return f"{permission.verb} {resource}{group}{name}{where}"


def role(runbook: str, permissions: Iterable[Permission]) -> str:
    """Writes nothing. The permissions as Role and ClusterRole YAML, ready to review and apply."""
    by_namespace: dict[str, list[Permission]] = defaultdict(list)
    for permission in permissions:
        by_namespace[permission.namespace].append(permission)
    documents = []
    for namespace, wanted in sorted(by_namespace.items()):
        metadata = {"name": f"gpurunbook-{runbook.replace('_', '-')}"}
        if namespace:
            metadata["namespace"] = namespace
        documents.append(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "Role" if namespace else "ClusterRole",
                "metadata": metadata,
                "rules": _rules(wanted),
            }
        )
    return yaml.safe_dump_all(documents, sort_keys=False, default_flow_style=None)


def _rules(wanted: list[Permission]) -> list[dict[str, Any]]:
    verbs: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for p in wanted:
        resource = p.resource + (f"/{p.subresource}" if p.subresource else "")
        verbs[p.group, resource, p.name].append(p.verb)
    rules = []
    for (group, resource, name), names in sorted(verbs.items()):
        rule: dict[str, Any] = {"apiGroups": [group], "resources": [resource], "verbs": sorted(set(names))}
        if name:
            rule["resourceNames"] = [name]
        rules.append(rule)
    return rules
