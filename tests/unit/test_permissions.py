"""Permissions of a runbook: filled from its parameters and the site, spelled, and as Role YAML.

Covered: both runbooks' declarations, the roles that the project ships against them, the YAML's shape.
Not covered: asking the API server (tests/cluster/test_runs.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpurunbook.declared.book import Permission, Runbook
from gpurunbook.declared.runbooks import declared, names
from gpurunbook.errors import ParameterError
from gpurunbook.folder.parameters import load
from gpurunbook.runbook import permissions
from gpurunbook.runbook.site import Site

ROLES = Path(__file__).parents[2] / "runbooks" / "roles"


def needed(book: str, site: Site | None = None, **values: Any) -> list[Permission]:
    runbook = declared(book)
    if "node" in runbook.parameters.__struct_fields__:
        values.setdefault("node", "gpu-a")
    return permissions.needed(runbook, load(runbook, values), site or Site())


def test_the_name_of_the_cluster_is_always_asked_for_first() -> None:
    for name in names():
        assert needed(name)[0] == Permission("get", "namespaces", name="kube-system")


def test_a_list_parameter_gives_one_permission_each() -> None:
    found = needed("provenance_audit", namespaces=["a", "b"])
    assert [p.namespace for p in found if p.resource == "pods"] == ["a", "b"]


@pytest.mark.parametrize(
    ("book", "values", "site", "named"),
    [
        ("node_cordon", {"node": ""}, Site(), "parameter 'node'"),
        ("provenance_audit", {"namespaces": ["a", ""]}, Site(), "parameter 'namespaces'"),
        ("node_cordon", {}, Site(lease_namespace=""), "parameter 'of the site file lease_namespace'"),
    ],
)
def test_an_empty_name_asks_for_no_permission_on_everything(
    book: str, values: dict[str, Any], site: Site, named: str
) -> None:
    with pytest.raises(ParameterError, match="is empty") as refused:
        needed(book, site, **values)
    assert refused.value.subject == named


def test_a_text_parameter_and_a_site_field_are_filled_in() -> None:
    found = needed("node_cordon", Site(lease_namespace="leases"), node="gpu-a")
    assert Permission("patch", "nodes", name="gpu-a") in found
    assert {p.namespace for p in found if p.resource == "leases"} == {"leases"}
    assert not [p for p in found if "{" in f"{p.namespace}{p.name}"]


@pytest.mark.parametrize(
    ("permission", "text"),
    [
        (Permission("list", "pods"), "list pods"),
        (Permission("list", "pods", namespace="a"), "list pods in namespace a"),
        (Permission("patch", "nodes", name="gpu-a"), "patch nodes gpu-a"),
        (Permission("create", "pods", subresource="eviction", namespace="a"), "create pods/eviction in namespace a"),
        (
            Permission("get", "leases", group="coordination.k8s.io", namespace="a", name="x"),
            "get leases.coordination.k8s.io x in namespace a",
        ),
    ],
)
def test_a_permission_in_words(permission: Permission, text: str) -> None:
    assert permissions.spell(permission) == text


def documents(text: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text))


def granted(rules: list[dict[str, Any]], namespace: str) -> set[Permission]:
    return {
        Permission(verb, resource.partition("/")[0], group, namespace, name, resource.partition("/")[2])
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


@pytest.mark.parametrize("book", names())
def test_the_snippet_grants_what_is_missing_and_nothing_else(book: str) -> None:
    missing = needed(book)
    found: set[Permission] = set()
    for document in documents(permissions.role(book, missing)):
        namespace = document["metadata"].get("namespace", "")
        assert document["kind"] == ("Role" if namespace else "ClusterRole")
        assert document["apiVersion"] == "rbac.authorization.k8s.io/v1"
        assert document["metadata"]["name"] == f"gpurunbook-{book.replace('_', '-')}"
        found |= granted(document["rules"], namespace)
    assert found == set(missing)


def test_one_missing_permission_is_one_rule() -> None:
    (document,) = documents(permissions.role("node_cordon", [Permission("create", "pods", subresource="eviction")]))
    assert document["rules"] == [{"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]}]


def allows(rules: list[tuple[str, dict[str, Any]]], wanted: Permission) -> bool:
    resource = wanted.resource + (f"/{wanted.subresource}" if wanted.subresource else "")
    return any(
        wanted.verb in rule["verbs"]
        and resource in rule["resources"]
        and wanted.group in rule["apiGroups"]
        and namespace in ("", wanted.namespace)
        and ("resourceNames" not in rule or wanted.name in rule["resourceNames"])
        for namespace, rule in rules
    )


@pytest.mark.parametrize("book", names())
def test_the_shipped_role_grants_what_is_declared_and_no_verb_more(book: str) -> None:
    shipped = documents((ROLES / f"{book}.yaml").read_text())
    rules = [(d["metadata"].get("namespace", ""), rule) for d in shipped for rule in d["rules"]]
    wanted = needed(book)
    assert [permissions.spell(p) for p in wanted if not allows(rules, p)] == []
    given = {
        (verb, res, group, ns)
        for ns, r in rules
        for verb, res, group in [(p.verb, p.resource, p.group) for p in granted([r], ns)]
    }
    asked = {(p.verb, p.resource, p.group, p.namespace) for p in wanted}
    assert given == asked


def test_a_placeholder_of_no_parameter_is_a_defect() -> None:
    book = declared("provenance_audit")
    odd = Runbook("odd", "", book.parameters, (), (Permission("list", "pods", namespace="{nothing}"),))
    with pytest.raises(KeyError, match="nothing"):
        permissions.needed(odd, load(book, {}), Site())
