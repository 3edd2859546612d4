"""The pure parts of the embedded server: selectors, patches, RBAC rules, validation, workloads.

What of it a real server shows as well is in test_conformance.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurunbook.embedded.access import Access, Action, User, Users, bootstrap, rule_allows
from gpurunbook.embedded.patches import json_patch, merge, same, strategic
from gpurunbook.embedded.resources import Catalog, plural_of
from gpurunbook.embedded.selection import fields, labels, requirement
from gpurunbook.embedded.status import ApiError
from gpurunbook.embedded.store import Store
from gpurunbook.embedded.validation import by_schema
from gpurunbook.embedded.workloads import image_id

Obj = dict[str, Any]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab~/", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab~/", max_size=2), inner, max_size=3),
    max_leaves=8,
)


# --- selectors


@pytest.mark.parametrize(
    ("text", "seen", "matches"),
    [
        ("a=1", {"a": "1"}, True),
        ("a == 1 , b", {"a": "1", "b": ""}, True),
        ("a=", {"a": ""}, True),
        ("a=", {}, False),
        ("a!=1", {}, True),
        ("a in (1,2)", {"a": "2"}, True),
        ("a in (1,2),b notin (x,y)", {"a": "2", "b": "z"}, True),
        ("a in ()", {"a": ""}, True),
        ("!a", {"a": ""}, False),
        ("!a", {}, True),
        ("example.com/a-b=c.d_e", {"example.com/a-b": "c.d_e"}, True),
        ("a>3", {"a": "4"}, True),
        ("a<3", {"a": "4"}, False),
        ("a>3", {"a": "x"}, False),
    ],
)
def test_label_selectors(text: str, seen: dict[str, str], matches: bool) -> None:
    test = labels(text)
    assert test is not None and test(seen) is matches


@pytest.mark.parametrize(
    "text", ["a b", "a=b c", "a in 1", "a in (1", "=a", "!a=b", "a>x", "a=/", ",", "a,,b", "!a in (b)"]
)
def test_what_is_no_label_selector_is_refused(text: str) -> None:
    with pytest.raises(ApiError) as caught:
        labels(text)
    assert caught.value.code == 400


def test_an_empty_selector_matches_everything() -> None:
    assert labels("") is None and labels("  ") is None
    assert fields("", frozenset()) == (None, {})
    assert requirement({})({"a": "b"})


def test_a_selector_object() -> None:
    expressions = [
        {"key": "a", "operator": "In", "values": ["1", "2"]},
        {"key": "b", "operator": "NotIn", "values": ["x"]},
        {"key": "c", "operator": "Exists"},
        {"key": "d", "operator": "DoesNotExist"},
    ]
    test = requirement({"matchLabels": {"e": "f"}, "matchExpressions": expressions})
    good = {"a": "1", "c": "", "e": "f"}
    assert test(good)
    for change in ({"a": "3"}, {"b": "x"}, {"d": ""}, {"e": "g"}):
        assert not test({**good, **change})


def test_field_selectors_tell_what_they_demand() -> None:
    test, equal = fields("spec.nodeName=a,status.phase!=Failed", frozenset(["spec.nodeName", "status.phase"]))
    assert test is not None and equal == {"spec.nodeName": "a"}
    assert test({"spec.nodeName": "a", "status.phase": "Running"})
    assert not test({"spec.nodeName": "a", "status.phase": "Failed"})
    for text in ("spec.color=red", "spec.nodeName", "=a"):
        with pytest.raises(ApiError):
            fields(text, frozenset(["spec.nodeName"]))


# --- patches


def test_true_is_not_one() -> None:
    assert (
        not same(True, 1) and not same({"a": [0]}, {"a": [False]}) and not same(1, 1.0) and same({"a": [1]}, {"a": [1]})
    )


@given(JSON)
def test_what_a_json_patch_adds_it_can_test_move_and_remove(value: Any) -> None:
    doc: Obj = {"a": {"b/c": 1}, "l": [1, 2]}
    added = json_patch(doc, [{"op": "add", "path": "/a/x~1~0y", "value": value}])
    assert same(added["a"]["x/~y"], value) and doc == {"a": {"b/c": 1}, "l": [1, 2]}
    back = [
        {"op": "test", "path": "/a/x~1~0y", "value": value},
        {"op": "move", "from": "/a/x~1~0y", "path": "/l/1"},
        {"op": "test", "path": "/l/1", "value": value},
        {"op": "copy", "from": "/l/1", "path": "/z"},
        {"op": "remove", "path": "/l/1"},
        {"op": "remove", "path": "/z"},
    ]
    assert same(json_patch(added, back), doc)


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/n", "value": True},
        {"op": "test", "path": "/n"},
        {"op": "test", "path": "/l/5", "value": None},
        {"op": "test", "path": "/x/y", "value": None},
        {"op": "remove", "path": "/x"},
        {"op": "remove", "path": "/l/2"},
        {"op": "remove", "path": "/l/-"},
        {"op": "remove", "path": "/l/x"},
        {"op": "replace", "path": "/l/2", "value": 1},
        {"op": "replace", "path": "/x/y", "value": 1},
        {"op": "add", "path": "/x/y", "value": 1},
        {"op": "add", "path": "/l/3", "value": 1},
        {"op": "add", "path": "n", "value": 1},
        {"op": "add", "path": "", "value": 1},
        {"op": "add", "value": 1},
        {"op": "copy", "from": "/l/9", "path": "/y"},
        {"op": "move", "from": "/x", "path": "/y"},
        {"op": "swap", "path": "/n"},
    ],
)
def test_a_json_patch_that_does_not_apply_is_422(operation: Obj) -> None:
    with pytest.raises(ApiError) as caught:
        json_patch({"n": 1, "l": [1, 2]}, [{"op": "replace", "path": "/n", "value": 1}, operation])
    assert caught.value.code == 422


@given(
    st.dictionaries(st.text("ab", max_size=2), JSON, max_size=3),
    st.dictionaries(st.text("ab", max_size=2), JSON, max_size=3),
)
def test_a_merge_patch_twice_is_a_merge_patch_once(obj: Obj, patch: Obj) -> None:
    once = merge(obj, patch)
    assert same(merge(once, patch), once)
    for key, value in patch.items():
        assert (key not in once) if value is None else (isinstance(value, dict) or same(once[key], value))


def test_a_strategic_merge_patch_knows_the_lists_of_pods() -> None:
    spec = {
        "containers": [{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}],
        "tolerations": [{"key": "k"}],
    }
    patch = {
        "containers": [
            {"name": "a", "env": [{"name": "Y", "value": "2"}]},
            {"name": "b", "$patch": "delete"},
            {"name": "c"},
        ],
        "tolerations": [],
        "$setElementOrder/containers": [{"name": "a"}, {"name": "c"}],
    }
    assert strategic({"spec": spec}, {"spec": patch})["spec"] == {
        "containers": [
            {"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
            {"name": "c"},
        ],
        "tolerations": [],
    }
    assert strategic({"a": {"b": 1, "c": 2}}, {"a": {"$patch": "replace", "d": 3}}) == {"a": {"d": 3}}
    ports = {"ports": [{"port": 80, "targetPort": 1}]}
    assert strategic(ports, {"ports": [{"port": 80, "targetPort": 2}, {"port": 81}]}) == {
        "ports": [{"port": 80, "targetPort": 2}, {"port": 81}]
    }
    with pytest.raises(ApiError) as caught:
        strategic({"spec": spec}, {"spec": {"containers": [{"image": "x"}]}})
    assert caught.value.code == 400
    with pytest.raises(ApiError) as caught:
        strategic({}, {"$retainKeys": ["a"]})
    assert caught.value.code == 501


# --- who may what


@pytest.mark.parametrize(
    ("rule", "action", "allowed"),
    [
        ({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}, Action("get", "", "pods"), True),
        ({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}, Action("get", "", "pods", "log"), False),
        ({"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]}, Action("get", "", "pods", "log"), True),
        ({"apiGroups": [""], "resources": ["*/status"], "verbs": ["*"]}, Action("patch", "", "nodes", "status"), True),
        ({"apiGroups": [""], "resources": ["*"], "verbs": ["get"]}, Action("get", "", "pods", "exec"), True),
        ({"apiGroups": ["apps"], "resources": ["pods"], "verbs": ["get"]}, Action("get", "", "pods"), False),
        ({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, Action("x", "y", "z", "s"), True),
        (
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["a"]},
            Action("get", "", "pods", name="a"),
            True,
        ),
        (
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["a"]},
            Action("get", "", "pods", name="b"),
            False,
        ),
        (
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"], "resourceNames": ["a"]},
            Action("list", "", "pods"),
            False,
        ),
        ({"nonResourceURLs": ["/healthz", "/api/*"], "verbs": ["get"]}, Action("get", path="/api/v1"), True),
        ({"nonResourceURLs": ["/healthz"], "verbs": ["get"]}, Action("get", path="/healthz/etcd"), False),
        ({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, Action("get", path="/healthz"), False),
    ],
)
def test_rules(rule: Obj, action: Action, allowed: bool) -> None:
    assert rule_allows(rule, action) is allowed


def test_bindings_reach_users_groups_and_service_accounts_in_their_namespace() -> None:
    store = Store()
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    group = "rbac.authorization.k8s.io"
    store.write((group, "clusterroles"), ("", "readers"), {"metadata": {"name": "readers"}, "rules": rules})
    subjects = [
        {"kind": "User", "name": "one"},
        {"kind": "Group", "name": "team"},
        {"kind": "ServiceAccount", "name": "sa", "namespace": "a"},
    ]
    binding = {"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "readers"}, "subjects": subjects}
    store.write((group, "rolebindings"), ("a", "b"), binding)
    access = Access(store)

    def may(name: str, groups: tuple[str, ...], namespace: str) -> bool:
        return access.allows(User(name, groups, "t"), Action("get", "", "pods", namespace=namespace))

    assert may("one", (), "a") and may("x", ("team",), "a") and may("system:serviceaccount:a:sa", (), "a")
    assert not may("two", (), "a") and not may("one", (), "b") and not may("one", (), "")
    assert not may("system:serviceaccount:b:sa", (), "a")
    assert may("root", ("system:masters",), "b")
    store.write((group, "rolebindings"), ("a", "b"), None)
    assert not may("one", (), "a")


def test_everybody_known_may_review_himself() -> None:
    store = Store()
    for obj in bootstrap():
        store.write(("rbac.authorization.k8s.io", plural_of(obj["kind"])), ("", obj["metadata"]["name"]), obj)
    access, user = Access(store), User("x", ("system:authenticated",), "t")
    assert access.allows(user, Action("create", "authentication.k8s.io", "selfsubjectreviews"))
    assert access.allows(user, Action("get", path="/version"))
    assert not access.allows(user, Action("get", path="/metrics"))
    assert not access.allows(user, Action("list", "", "pods"))


def test_tokens_expire_by_the_clock_that_was_given() -> None:
    now = 0.0
    users = Users([User("a", (), "secret", after_seconds=10)], clock=lambda: now)
    assert users.authenticate("Bearer secret").name == "a"
    assert users.authenticate("bearer secret").name == "a"
    now = 11.0
    for header in ("Bearer secret", "Bearer other", "Basic secret", "Bearer", ""):
        with pytest.raises(ApiError) as caught:
            users.authenticate(header)
        assert caught.value.code == 401


# --- the store


def test_the_past_can_be_read_until_it_is_forgotten() -> None:
    store, table = Store(history=4), ("", "configmaps")
    for name in "abc":
        store.write(table, ("n", name), {"metadata": {"name": name}})
    then = store.rv
    store.write(table, ("n", "b"), None)
    store.write(table, ("n", "d"), {"metadata": {"name": "d"}})
    store.write(table, ("n", "a"), {"metadata": {"name": "a", "labels": {"new": "yes"}}})

    def names(rv: int) -> list[str]:
        return [entry.name[1] for entry in store.page(table, "n", rv)]

    assert (names(store.rv), names(then)) == (["a", "c", "d"], ["a", "b", "c"])
    assert next(iter(store.page(table, "n", then))).labels == {}
    assert [(event.rv, event.deleted) for event in store.since(then, table)] == [
        (then + 1, True),
        (then + 2, False),
        (then + 3, False),
    ]
    for name in "ef":
        store.write(table, ("n", name), {"metadata": {"name": name}})
    with pytest.raises(ApiError) as caught:
        names(then)
    assert caught.value.code == 410


# --- shapes


@pytest.mark.parametrize(
    ("schema", "value", "kind"),
    [
        ({"type": "string", "enum": ["a"]}, "b", "FieldValueNotSupported"),
        ({"type": "string"}, 1, "FieldValueTypeInvalid"),
        ({"type": "integer"}, True, "FieldValueTypeInvalid"),
        ({"type": "integer", "maximum": 3}, 4, "FieldValueInvalid"),
        ({"type": "string", "pattern": "^a"}, "b", "FieldValueInvalid"),
        ({"type": "object", "required": ["a"]}, {}, "FieldValueRequired"),
        ({"type": "array", "items": {"type": "string"}}, ["a", 1], "FieldValueTypeInvalid"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": "x"}, "FieldValueTypeInvalid"),
        ({"x-kubernetes-int-or-string": True}, [], "FieldValueTypeInvalid"),
        ({"x-kubernetes-int-or-string": True}, "1", ""),
        ({"type": "string", "nullable": True}, None, ""),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, {"b": 1}, ""),
    ],
)
def test_schemas(schema: Obj, value: Any, kind: str) -> None:
    assert [cause.kind for cause in by_schema(schema, value, "spec.x")] == ([kind] if kind else [])


def test_plurals_are_those_of_kubernetes() -> None:
    known = {
        "pods",
        "networkpolicies",
        "ingresses",
        "endpoints",
        "endpointslices",
        "storageclasses",
        "runtimeclasses",
        "csidrivers",
    }
    assert known <= {resource.plural for resource in Catalog().all()}


@pytest.mark.parametrize(
    ("image", "runtime", "start"),
    [
        ("registry.example:5000/a/b:1", "containerd", "registry.example:5000/a/b@sha256:"),
        ("registry.example:5000/a/b", "crio", "registry.example:5000/a/b@sha256:"),
        ("a/b@sha256:" + "0" * 64, "containerd", "a/b@sha256:" + "0" * 64),
        ("a/b:1", "docker", "docker-pullable://a/b@sha256:"),
    ],
)
def test_image_ids(image: str, runtime: Any, start: str) -> None:
    assert image_id(image, runtime).startswith(start)
