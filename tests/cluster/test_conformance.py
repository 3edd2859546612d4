"""What runbooks and actors rely on in an API server, as one list for the embedded server and for a real one.

Covered: get and list (selectors, pages, an expired page, an absent namespace), create (generateName, conflicts,
validation), PUT, JSON, merge and strategic merge patch, dry run, status subresource, generations, deletion (grace,
finalizers, preconditions), eviction and disruption budgets, watch (replay, bookmarks, selectors, time-out, expiry),
RBAC and the access reviews, who am I, Leases, custom resources, the shapes of refusals.
Not covered: server-side apply, Table and protobuf, admission by policy or webhook, garbage collection, exec.

A real control plane writes too, at times of its own: the node lifecycle and the TTL controller write every node, the
root CA publisher puts kube-root-ca.crt into every namespace, the scheduler binds what it may. What is compared exactly
is compared on objects that nobody else writes, and a watch is read up to a last event of the test's own.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import ApiServer

from gpurunbook.embedded.actors.client import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from tests.eventually import eventually

Obj = dict[str, Any]


def maps(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps" + (f"/{name}" if name else "")


def pods(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/pods" + (f"/{name}" if name else "")


def leases(namespace: str, name: str = "") -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases" + (f"/{name}" if name else "")


def pod(name: str, node: str = "", **meta: Any) -> Obj:
    """A pod on the node, else one that no scheduler binds: other tests may have left nodes with room."""
    spec: Obj = {
        "containers": [{"name": "main", "image": "registry.example/main:1"}],
        "terminationGracePeriodSeconds": 20,
        "schedulerName": "nobody",
    }
    if node:
        spec |= {"nodeName": node, "tolerations": [{"operator": "Exists"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **meta}, "spec": spec}


def create(server: ApiServer, path: str, body: Obj) -> Obj:
    made = server.send("POST", path, body)
    assert made.code == 201, made.body
    return made.body


def refusal(reply: Any, code: int, reason: str) -> Obj:
    """The Status object of a refusal, with the shape that every one has."""
    assert reply.code == code, reply.body
    body = reply.body
    assert (body["kind"], body["apiVersion"], body["status"]) == ("Status", "v1", "Failure")
    assert (body["code"], body.get("reason", "")) == (code, reason)
    assert isinstance(body["metadata"], dict) and isinstance(body["message"], str)
    return body


@pytest.fixture
def node(apiserver: ApiServer) -> Iterator[Obj]:
    made = create(apiserver, "/api/v1/nodes", {"metadata": {"name": apiserver.name("node"), "labels": {"role": "gpu"}}})
    yield made
    apiserver.send("DELETE", f"/api/v1/nodes/{made['metadata']['name']}")


@pytest.fixture(scope="session")
def widgets(apiserver: ApiServer) -> str:
    """A custom resource with a schema and a status subresource; the path of the collection in `default`."""
    spec_schema = {
        "type": "object",
        "properties": {
            "mode": {"type": "string", "enum": ["on", "off", "devtools"]},
            "size": {"type": "integer", "minimum": 1},
            "items": {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        },
    }
    open_schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec_schema, "status": open_schema}}},
    }
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.conformance.example"},
        "spec": {"group": "conformance.example", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    made = apiserver.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    assert made.code in (201, 409), made.body
    path = "/apis/conformance.example/v1/namespaces/default/widgets"
    eventually(lambda: apiserver.send("GET", path).code == 200)
    # A watch is refused with 429 while the cache of a new resource fills.
    eventually(lambda: apiserver.send("GET", path, watch="true", resourceVersion=1, timeoutSeconds=1).code == 200)
    return path


def widget(server: ApiServer, path: str, **spec: Any) -> Obj:
    body = {
        "apiVersion": "conformance.example/v1",
        "kind": "Widget",
        "metadata": {"name": server.name("widget")},
        "spec": spec,
    }
    return create(server, path, body)


# --- reading


def test_the_version_and_the_health_are_told(apiserver: ApiServer) -> None:
    version = apiserver.send("GET", "/version").body
    assert re.fullmatch(r"v1\.[0-9]+\.[0-9]+.*", version["gitVersion"])
    assert version["major"] == "1" and version["minor"]
    assert apiserver.send("GET", "/readyz").body == "ok"


def test_the_groups_are_listed_with_their_versions(apiserver: ApiServer, widgets: str) -> None:
    listed = apiserver.send("GET", "/apis").body
    assert (listed["kind"], listed["apiVersion"]) == ("APIGroupList", "v1")
    groups = {group["name"]: group for group in listed["groups"]}
    assert {"apps", "batch", "coordination.k8s.io", "policy", "rbac.authorization.k8s.io", "resource.k8s.io"} <= set(
        groups
    )
    eventually(lambda: "conformance.example" in str(apiserver.send("GET", "/apis").body))
    assert groups["apps"]["preferredVersion"] == {"groupVersion": "apps/v1", "version": "v1"}
    assert groups["apps"]["versions"] == [{"groupVersion": "apps/v1", "version": "v1"}]


def test_get_gives_the_whole_object_and_404_without_it(apiserver: ApiServer, namespace: str) -> None:
    made = create(apiserver, maps(namespace), {"metadata": {"name": "a"}, "data": {"k": "v"}})
    got = apiserver.send("GET", maps(namespace, "a"))
    assert (got.code, got.body["kind"], got.body["apiVersion"]) == (200, "ConfigMap", "v1")
    assert got.body["data"] == {"k": "v"}
    assert got.body["metadata"]["uid"] == made["metadata"]["uid"]
    assert got.body["metadata"]["resourceVersion"].isdecimal()
    assert re.fullmatch(r"[0-9-]{10}T[0-9:]{8}Z", got.body["metadata"]["creationTimestamp"])
    body = refusal(apiserver.send("GET", maps(namespace, "b")), 404, "NotFound")
    assert body["message"] == 'configmaps "b" not found'
    assert body["details"] == {"name": "b", "kind": "configmaps"}


def test_a_missing_object_of_a_group_is_named_with_the_group(apiserver: ApiServer, namespace: str) -> None:
    body = refusal(apiserver.send("GET", leases(namespace, "b")), 404, "NotFound")
    assert body["message"] == 'leases.coordination.k8s.io "b" not found'
    assert body["details"] == {"name": "b", "group": "coordination.k8s.io", "kind": "leases"}


def test_an_unknown_resource_is_another_404(apiserver: ApiServer) -> None:
    for path in ("/apis/nowhere.example/v1/things", "/api/v1/things", "/api/v1/namespaces/default/pods/a/things"):
        assert apiserver.send("GET", path).code == 404, path


def test_the_items_of_a_list_have_no_kind_and_the_list_has_a_version(apiserver: ApiServer, namespace: str) -> None:
    create(apiserver, maps(namespace), {"metadata": {"name": "a"}})
    listed = apiserver.send("GET", maps(namespace)).body
    assert (listed["kind"], listed["apiVersion"]) == ("ConfigMapList", "v1")
    assert listed["metadata"]["resourceVersion"].isdecimal()
    assert all("kind" not in item and "apiVersion" not in item for item in listed["items"])


def test_the_items_of_a_custom_list_have_a_kind(apiserver: ApiServer, widgets: str) -> None:
    widget(apiserver, widgets, mode="on")
    listed = apiserver.send("GET", widgets).body
    assert listed["kind"] == "WidgetList"
    assert {item["kind"] for item in listed["items"]} == {"Widget"}


def test_a_list_in_an_absent_namespace_is_empty_not_404(apiserver: ApiServer) -> None:
    listed = apiserver.send("GET", pods("absent-namespace"))
    assert (listed.code, listed.body["items"]) == (200, [])


def test_label_selectors_choose(apiserver: ApiServer, namespace: str) -> None:
    for name, labels in (("a", {"app": "x", "tier": "1"}), ("b", {"app": "y"}), ("c", {})):
        create(apiserver, maps(namespace), {"metadata": {"name": name, "labels": labels}})

    def chosen(selector: str) -> str:
        items = apiserver.send("GET", maps(namespace), labelSelector=selector).body["items"]
        return "".join(item["metadata"]["name"] for item in items if item["metadata"]["name"] in "abc")

    assert chosen("app=x") == chosen("app==x") == chosen("app in (x, z)") == chosen("app=x,tier") == "a"
    assert chosen("app!=x") == chosen("app notin (x)") == "bc"
    assert chosen("app") == "ab"
    assert chosen("!app") == "c"
    assert chosen("app,!tier") == "b"
    assert chosen("tier>0") == "a"
    assert chosen("app=x,app=y") == ""
    refusal(apiserver.send("GET", maps(namespace), labelSelector="app in x"), 400, "BadRequest")
    refusal(apiserver.send("GET", maps(namespace), labelSelector="app=a b"), 400, "BadRequest")


def test_field_selectors_choose(apiserver: ApiServer, namespace: str, node: Obj) -> None:
    name = node["metadata"]["name"]
    create(apiserver, pods(namespace), pod("a", name))
    create(apiserver, pods(namespace), pod("b"))

    def chosen(selector: str) -> str:
        items = apiserver.send("GET", pods(namespace), fieldSelector=selector).body["items"]
        return "".join(item["metadata"]["name"] for item in items)

    assert chosen(f"spec.nodeName={name}") == chosen("metadata.name=a") == "a"
    assert chosen(f"spec.nodeName!={name}") == "b"
    assert chosen("status.phase=Pending,metadata.name!=b") == "a"
    assert chosen("status.phase=Running") == ""
    refusal(apiserver.send("GET", pods(namespace), fieldSelector="spec.color=red"), 400, "BadRequest")
    refusal(apiserver.send("GET", maps(namespace), fieldSelector="spec.nodeName=a"), 400, "BadRequest")


def test_nodes_are_chosen_by_being_unschedulable(apiserver: ApiServer, node: Obj) -> None:
    name = node["metadata"]["name"]
    path = f"/api/v1/nodes/{name}"
    assert apiserver.send("PATCH", path, {"spec": {"unschedulable": True}}, MERGE_PATCH).code == 200
    listed = apiserver.send("GET", "/api/v1/nodes", fieldSelector="spec.unschedulable=true").body["items"]
    assert name in [item["metadata"]["name"] for item in listed]
    listed = apiserver.send("GET", "/api/v1/nodes", fieldSelector="spec.unschedulable=false").body["items"]
    assert name not in [item["metadata"]["name"] for item in listed]


def test_pages_show_the_state_of_the_first_one(apiserver: ApiServer, namespace: str) -> None:
    for name in "abcde":
        create(apiserver, leases(namespace), {"metadata": {"name": name}})
    first = apiserver.send("GET", leases(namespace), limit=2).body
    assert [item["metadata"]["name"] for item in first["items"]] == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 3
    assert apiserver.send("DELETE", leases(namespace, "d")).code == 200
    create(apiserver, leases(namespace), {"metadata": {"name": "c1"}})
    names, page = ["a", "b"], first
    while page["metadata"].get("continue"):
        page = apiserver.send("GET", leases(namespace), limit=2, **{"continue": page["metadata"]["continue"]}).body
        assert page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        names += [item["metadata"]["name"] for item in page["items"]]
    assert names == ["a", "b", "c", "d", "e"]
    assert "remainingItemCount" not in page["metadata"]


def test_pages_with_a_selector_do_not_count_what_remains(apiserver: ApiServer, namespace: str) -> None:
    for name in "abcd":
        create(
            apiserver, leases(namespace), {"metadata": {"name": name, "labels": {"even": str(name in "bd").lower()}}}
        )
    first = apiserver.send("GET", leases(namespace), limit=1, labelSelector="even=true").body
    assert [item["metadata"]["name"] for item in first["items"]] == ["b"]
    assert "remainingItemCount" not in first["metadata"]
    query = {"continue": first["metadata"]["continue"]}
    second = apiserver.send("GET", leases(namespace), limit=5, labelSelector="even=true", **query).body
    assert [item["metadata"]["name"] for item in second["items"]] == ["d"]
    assert not second["metadata"].get("continue")


def of_version_one(token: str) -> str:
    data = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    return base64.urlsafe_b64encode(json.dumps(data | {"rv": 1}).encode()).decode().rstrip("=")


def test_a_page_whose_past_is_gone_is_expired_and_offers_an_inconsistent_rest(
    apiserver: ApiServer, widgets: str
) -> None:
    made = [widget(apiserver, widgets, mode="on") for _ in range(3)]
    names = [item["metadata"]["name"] for item in made]
    first = apiserver.send("GET", widgets, limit=1).body
    more = widget(apiserver, widgets, mode="off")["metadata"]["name"]
    apiserver.compact()
    token = first["metadata"]["continue"]
    if apiserver.kind == "envtest":  # its watch cache still knows the recent past: ask for an older one
        token = of_version_one(token)
    late = apiserver.send("GET", widgets, limit=1, **{"continue": token})
    body = refusal(late, 410, "Expired")
    assert body["message"].startswith("The provided continue parameter is too old")
    rest = apiserver.send("GET", widgets, **{"continue": body["metadata"]["continue"]}).body
    seen = [item["metadata"]["name"] for item in [*first["items"], *rest["items"]]]
    assert {*names, more} <= set(seen) and len(seen) == len(set(seen))


def test_a_continue_token_that_is_none_is_a_bad_request(apiserver: ApiServer, namespace: str) -> None:
    refusal(apiserver.send("GET", leases(namespace), limit=1, **{"continue": "nonsense"}), 400, "BadRequest")


def test_a_list_at_a_version_of_the_future_times_out(apiserver: ApiServer, namespace: str) -> None:
    version = int(apiserver.send("GET", leases(namespace)).body["metadata"]["resourceVersion"]) + 10**6
    late = apiserver.send("GET", leases(namespace), resourceVersion=version)
    refusal(late, 504, "Timeout")


# --- creating


def test_generate_name_makes_a_name(apiserver: ApiServer, namespace: str) -> None:
    made = [create(apiserver, maps(namespace), {"metadata": {"generateName": "run-"}}) for _ in range(3)]
    names = {item["metadata"]["name"] for item in made}
    assert len(names) == 3
    assert all(re.fullmatch(r"run-[a-z0-9]{5}", name) for name in names)
    assert all(item["metadata"]["generateName"] == "run-" for item in made)


def test_a_name_that_exists_is_a_conflict(apiserver: ApiServer, namespace: str) -> None:
    create(apiserver, leases(namespace), {"metadata": {"name": "a"}})
    body = refusal(apiserver.send("POST", leases(namespace), {"metadata": {"name": "a"}}), 409, "AlreadyExists")
    assert body["message"] == 'leases.coordination.k8s.io "a" already exists'


def test_what_cannot_be_created_is_refused(apiserver: ApiServer, namespace: str) -> None:
    send = apiserver.send
    body = refusal(send("POST", maps(namespace), {"metadata": {}}), 422, "Invalid")
    assert "name or generateName is required" in body["message"]
    assert body["details"]["causes"][0]["field"] == "metadata.name"
    refusal(send("POST", maps(namespace), {"metadata": {"name": "No_Good"}}), 422, "Invalid")
    refusal(send("POST", maps(namespace), {"metadata": {"name": "a", "namespace": "other"}}), 400, "BadRequest")
    refusal(
        send("POST", maps(namespace), {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}), 400, "BadRequest"
    )
    refusal(
        send("POST", maps(namespace), {"apiVersion": "v2", "metadata": {"name": "a"}, "kind": "ConfigMap"}),
        400,
        "BadRequest",
    )
    refusal(send("POST", maps(namespace), {"metadata": {"name": "a"}, "data": {"k": 1}}), 400, "BadRequest")
    refusal(send("POST", maps(namespace), b"{"), 400, "BadRequest")
    refusal(send("POST", maps(namespace), {"metadata": {"name": "a"}}, "text/html"), 415, "UnsupportedMediaType")
    refusal(send("POST", maps("absent-namespace"), {"metadata": {"name": "a"}}), 404, "NotFound")
    assert send("POST", maps(namespace, "a"), {"metadata": {"name": "a"}}).code == 405
    assert [
        item["metadata"]["name"]
        for item in send("GET", maps(namespace)).body["items"]
        if item["metadata"]["name"] == "a"
    ] == []


def test_what_the_server_owns_is_not_taken_from_the_body(apiserver: ApiServer, namespace: str) -> None:
    meta = {"name": "a", "uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 7}
    made = create(apiserver, pods(namespace), {**pod("a"), "metadata": meta, "status": {"phase": "Running"}})
    assert made["metadata"]["uid"] != "mine"
    assert not made["metadata"]["creationTimestamp"].startswith("2001")
    assert made["status"]["phase"] == "Pending"


# --- replacing


def test_put_needs_the_version_that_is_there(apiserver: ApiServer, namespace: str) -> None:
    made = create(apiserver, maps(namespace), {"metadata": {"name": "a"}, "data": {"k": "1"}})
    path = maps(namespace, "a")
    changed = apiserver.send("PUT", path, {**made, "data": {"k": "2"}})
    assert changed.code == 200 and changed.body["data"] == {"k": "2"}
    assert int(changed.body["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    body = refusal(apiserver.send("PUT", path, {**made, "data": {"k": "3"}}), 409, "Conflict")
    assert body["message"] == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert body["details"] == {"name": "a", "kind": "configmaps"}


def test_put_without_a_version_is_for_some_kinds_only(apiserver: ApiServer, namespace: str, widgets: str) -> None:
    create(apiserver, maps(namespace), {"metadata": {"name": "a"}})
    assert apiserver.send("PUT", maps(namespace, "a"), {"metadata": {"name": "a"}, "data": {"k": "1"}}).code == 200
    create(apiserver, leases(namespace), {"metadata": {"name": "a"}})
    late = apiserver.send("PUT", leases(namespace, "a"), {"metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}})
    assert "must be specified for an update" in refusal(late, 422, "Invalid")["message"]
    made = widget(apiserver, widgets, mode="on")
    del made["metadata"]["resourceVersion"]
    refusal(apiserver.send("PUT", f"{widgets}/{made['metadata']['name']}", made), 422, "Invalid")


def test_put_of_another_name_or_uid_is_refused(apiserver: ApiServer, namespace: str) -> None:
    made = create(apiserver, maps(namespace), {"metadata": {"name": "a"}})
    path = maps(namespace, "a")
    refusal(apiserver.send("PUT", path, {**made, "metadata": {**made["metadata"], "name": "b"}}), 400, "BadRequest")
    other = {**made, "metadata": {"name": "a", "uid": "00000000-0000-4000-8000-000000000000"}}
    assert "UID" in refusal(apiserver.send("PUT", path, other), 409, "Conflict")["message"]
    refusal(apiserver.send("PUT", maps(namespace, "b"), {"metadata": {"name": "b"}}), 404, "NotFound")


# --- patching


def test_json_patch_with_tests_is_all_or_nothing(apiserver: ApiServer, namespace: str) -> None:
    made = create(
        apiserver, maps(namespace), {"metadata": {"name": "a", "annotations": {"x/y": "1"}}, "data": {"k": "1"}}
    )
    path = maps(namespace, "a")
    good = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": made["metadata"]["resourceVersion"]},
        {"op": "test", "path": "/metadata/annotations/x~1y", "value": "1"},
        {"op": "test", "path": "/data/absent", "value": None},
        {"op": "replace", "path": "/data/k", "value": "2"},
        {"op": "copy", "from": "/data/k", "path": "/data/l"},
        {"op": "move", "from": "/data/l", "path": "/data/m"},
        {"op": "add", "path": "/metadata/labels", "value": {"app": "x"}},
        {"op": "remove", "path": "/metadata/annotations/x~1y"},
    ]
    changed = apiserver.send("PATCH", path, good, JSON_PATCH)
    assert changed.code == 200, changed.body
    assert changed.body["data"] == {"k": "2", "m": "2"}
    assert changed.body["metadata"]["labels"] == {"app": "x"} and not changed.body["metadata"].get("annotations")
    bad = [
        [{"op": "add", "path": "/data/n", "value": "3"}, {"op": "test", "path": "/data/k", "value": "1"}],
        [{"op": "test", "path": "/metadata/resourceVersion", "value": made["metadata"]["resourceVersion"]}],
        [{"op": "add", "path": "/metadata/finalizers/-", "value": "x/y"}],
        [{"op": "remove", "path": "/data/absent"}],
        [{"op": "test", "path": "/absent/deep", "value": None}],
    ]
    for operations in bad:
        body = refusal(apiserver.send("PATCH", path, operations, JSON_PATCH), 422, "Invalid")
        assert body["message"] == "the server rejected our request due to an error in our request"
    assert apiserver.send("GET", path).body["data"] == {"k": "2", "m": "2"}
    refusal(apiserver.send("PATCH", path, {"data": {}}, JSON_PATCH), 400, "BadRequest")


def test_json_patch_lists_go_by_index(apiserver: ApiServer, widgets: str) -> None:
    own = {"key": "example.com/a", "effect": "NoSchedule"}
    made = widget(apiserver, widgets, items=[own])
    path = f"{widgets}/{made['metadata']['name']}"
    more = [
        {"op": "test", "path": "/spec/items/0", "value": own},
        {"op": "add", "path": "/spec/items/-", "value": {"key": "example.com/b", "effect": "NoExecute", "value": "1"}},
        {"op": "add", "path": "/spec/items/0", "value": {"key": "example.com/c", "effect": "PreferNoSchedule"}},
        {"op": "remove", "path": "/spec/items/1"},
    ]
    changed = apiserver.send("PATCH", path, more, JSON_PATCH).body
    assert [item["key"] for item in changed["spec"]["items"]] == ["example.com/c", "example.com/b"]
    beyond = [{"op": "remove", "path": "/spec/items/9"}]
    refusal(apiserver.send("PATCH", path, beyond, JSON_PATCH), 422, "Invalid")


def test_json_patch_takes_a_taint_from_a_node_by_its_index(apiserver: ApiServer, node: Obj) -> None:
    path = f"/api/v1/nodes/{node['metadata']['name']}"

    def taken() -> bool:
        own = [{"key": f"example.com/{letter}", "effect": "NoSchedule"} for letter in "ab"]
        before = apiserver.client.merge(path, {"spec": {"taints": own}})
        patch = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": before["metadata"]["resourceVersion"]},
            {"op": "test", "path": "/spec/taints/0", "value": own[0]},
            {"op": "remove", "path": "/spec/taints/0"},
        ]
        reply = apiserver.send("PATCH", path, patch, JSON_PATCH)
        if reply.code == 422:  # a controller wrote the node between the two
            return False
        assert (reply.code, reply.body["spec"]["taints"]) == (200, own[1:])
        return True

    eventually(taken)


def test_json_patch_replace_adds_a_missing_key(apiserver: ApiServer, namespace: str) -> None:
    create(apiserver, maps(namespace), {"metadata": {"name": "a"}, "data": {"k": "1"}})
    patch = [{"op": "replace", "path": "/data/new", "value": "2"}]
    assert apiserver.send("PATCH", maps(namespace, "a"), patch, JSON_PATCH).body["data"] == {"k": "1", "new": "2"}
    patch = [{"op": "replace", "path": "/binaryData/new", "value": "2"}]
    refusal(apiserver.send("PATCH", maps(namespace, "a"), patch, JSON_PATCH), 422, "Invalid")


def test_merge_patch_merges_maps_replaces_lists_and_removes_nulls(apiserver: ApiServer, widgets: str) -> None:
    made = widget(apiserver, widgets, mode="on", size=2, items=[{"name": "a"}, {"name": "b"}])
    path = f"{widgets}/{made['metadata']['name']}"
    changed = apiserver.send("PATCH", path, {"spec": {"size": None, "items": [{"name": "c"}]}}, MERGE_PATCH).body
    assert changed["spec"] == {"mode": "on", "items": [{"name": "c"}]}


def test_merge_patch_with_a_stale_version_is_a_conflict(apiserver: ApiServer, namespace: str) -> None:
    made = create(apiserver, leases(namespace), {"metadata": {"name": "a"}})
    path = leases(namespace, "a")
    assert apiserver.send("PATCH", path, {"metadata": {"labels": {"a": "1"}}}, MERGE_PATCH).code == 200
    patch = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"], "labels": {"a": "2"}}}
    refusal(apiserver.send("PATCH", path, patch, MERGE_PATCH), 409, "Conflict")
    fresh = apiserver.send("GET", path).body["metadata"]
    assert fresh["labels"] == {"a": "1"}
    patch["metadata"]["resourceVersion"] = fresh["resourceVersion"]
    changed = apiserver.send("PATCH", path, patch, MERGE_PATCH)
    assert (changed.code, changed.body["metadata"]["labels"]) == (200, {"a": "2"})


def test_a_patch_that_changes_nothing_makes_no_version(apiserver: ApiServer, namespace: str, node: Obj) -> None:
    def twice(path: str, patch: Obj) -> bool:
        first, second = (apiserver.client.merge(path, patch)["metadata"]["resourceVersion"] for _ in range(2))
        return bool(first == second)

    create(apiserver, leases(namespace), {"metadata": {"name": "a"}})
    assert twice(leases(namespace, "a"), {"spec": {"holderIdentity": "me"}})
    cordon = {"spec": {"unschedulable": True}}
    eventually(lambda: twice(f"/api/v1/nodes/{node['metadata']['name']}", cordon))  # controllers write a node


def test_strategic_merge_merges_lists_by_their_keys(apiserver: ApiServer, namespace: str) -> None:
    create(apiserver, pods(namespace), pod("a", finalizers=["example.com/one"]))
    path = pods(namespace, "a")
    patch = {
        "metadata": {"finalizers": ["example.com/two"]},
        "spec": {"containers": [{"name": "main", "image": "registry.example/main:2"}]},
    }
    changed = apiserver.send("PATCH", path, patch, STRATEGIC_PATCH)
    assert changed.code == 200, changed.body
    assert sorted(changed.body["metadata"]["finalizers"]) == ["example.com/one", "example.com/two"]
    assert [(c["name"], c["image"]) for c in changed.body["spec"]["containers"]] == [
        ("main", "registry.example/main:2")
    ]
    condition = {"type": "Ready", "status": "False", "lastTransitionTime": None}
    for kind in ("Ready", "example.com/Extra", "Ready"):
        apiserver.send(
            "PATCH", path + "/status", {"status": {"conditions": [condition | {"type": kind}]}}, STRATEGIC_PATCH
        )
    seen = [c["type"] for c in apiserver.send("GET", path).body["status"]["conditions"]]
    assert seen.count("Ready") == seen.count("example.com/Extra") == 1
    patch = {"status": {"conditions": [{"type": "example.com/Extra", "$patch": "delete"}]}}
    apiserver.send("PATCH", path + "/status", patch, STRATEGIC_PATCH)
    assert "example.com/Extra" not in [c["type"] for c in apiserver.send("GET", path).body["status"]["conditions"]]
    apiserver.send("PATCH", path, {"metadata": {"finalizers": None}}, MERGE_PATCH)


def test_patch_formats_that_are_not_there_are_415(apiserver: ApiServer, widgets: str, namespace: str) -> None:
    made = widget(apiserver, widgets, mode="on")
    path = f"{widgets}/{made['metadata']['name']}"
    body = refusal(
        apiserver.send("PATCH", path, {"spec": {"mode": "off"}}, STRATEGIC_PATCH), 415, "UnsupportedMediaType"
    )
    assert body["message"].startswith(
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    )
    create(apiserver, maps(namespace), {"metadata": {"name": "a"}})
    refusal(apiserver.send("PATCH", maps(namespace, "a"), {}, "application/json"), 415, "UnsupportedMediaType")


def test_a_patch_cannot_change_what_is_fixed(apiserver: ApiServer, namespace: str, node: Obj) -> None:
    send = apiserver.send
    path = f"/api/v1/nodes/{node['metadata']['name']}"
    refusal(send("PATCH", path, {"metadata": {"name": "other"}}, MERGE_PATCH), 400, "BadRequest")
    body = refusal(send("PATCH", path, {"metadata": {"uid": "other"}}, MERGE_PATCH), 422, "Invalid")
    assert "field is immutable" in body["message"]
    assert send("PATCH", path, {"spec": {"providerID": "a://b"}}, MERGE_PATCH).code == 200
    refusal(send("PATCH", path, {"spec": {"providerID": "a://c"}}, MERGE_PATCH), 422, "Invalid")
    create(apiserver, pods(namespace), pod("a"))
    body = refusal(send("PATCH", pods(namespace, "a"), {"spec": {"hostPID": True}}, MERGE_PATCH), 422, "Invalid")
    assert "pod updates may not change fields other than" in body["message"]
    created = send(
        "PATCH", pods(namespace, "a"), {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z"}}, MERGE_PATCH
    )
    assert created.code == 200 and not created.body["metadata"]["creationTimestamp"].startswith("2001")
    refusal(send("PATCH", pods(namespace, "b"), {"metadata": {"labels": {}}}, MERGE_PATCH), 404, "NotFound")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"taints": [{"key": "a", "effect": "NoWay"}]}, "taints[0].effect"),
        ({"taints": [{"key": "a"}]}, "taints[0].effect"),
        ({"taints": [{"key": "", "effect": "NoSchedule"}]}, "taints[0].key"),
        (
            {"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule", "value": "x"}]},
            "taints[1]",
        ),
        ({"unschedulable": "yes"}, "patch"),
        ({"taints": {"key": "a"}}, "patch"),
    ],
)
def test_a_bad_value_in_a_node_is_422_and_named(apiserver: ApiServer, node: Obj, spec: Obj, field: str) -> None:
    path = f"/api/v1/nodes/{node['metadata']['name']}"
    body = refusal(apiserver.send("PATCH", path, {"spec": spec}, MERGE_PATCH), 422, "Invalid")
    assert field in [cause["field"].split(".", 1)[-1] for cause in body["details"]["causes"]]
    assert not apiserver.send("GET", path).body["spec"].get("unschedulable")


def test_the_refusal_of_an_effect_names_what_is_supported(apiserver: ApiServer, node: Obj) -> None:
    path = f"/api/v1/nodes/{node['metadata']['name']}"
    taints = {"spec": {"taints": [{"key": "a", "effect": "NoWay"}]}}
    message = refusal(apiserver.send("PATCH", path, taints, MERGE_PATCH), 422, "Invalid")["message"]
    assert message.startswith(
        f'Node "{node["metadata"]["name"]}" is invalid: metadata.taints[0].effect: Unsupported value: "NoWay"'
    )
    assert 'supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"' in message


@pytest.mark.parametrize(
    "labels",
    [{"a b": "x"}, {"a": "x y"}, {"a": "-x"}, {"a": "x" * 64}, {"/a": "x"}, {"a/b/c": "x"}, {"a": 1}, {"a": True}],
)
def test_labels_are_checked(apiserver: ApiServer, node: Obj, labels: Obj) -> None:
    path = f"/api/v1/nodes/{node['metadata']['name']}"
    refusal(apiserver.send("PATCH", path, {"metadata": {"labels": labels}}, MERGE_PATCH), 422, "Invalid")


def test_annotations_are_bounded(apiserver: ApiServer, node: Obj) -> None:
    path = f"/api/v1/nodes/{node['metadata']['name']}"
    patch = {"metadata": {"annotations": {"a": "x" * (256 * 1024)}}}
    body = refusal(apiserver.send("PATCH", path, patch, MERGE_PATCH), 422, "Invalid")
    assert "may not be more than 262144 bytes" in body["message"]


def test_a_custom_resource_is_held_to_its_schema(apiserver: ApiServer, widgets: str) -> None:
    made = widget(apiserver, widgets, mode="on", size=1)
    name = made["metadata"]["name"]
    path = f"{widgets}/{name}"
    body = refusal(apiserver.send("PATCH", path, {"spec": {"mode": "ppcie"}}, MERGE_PATCH), 422, "Invalid")
    assert body["message"] == (
        f'Widget.conformance.example "{name}" is invalid: spec.mode: Unsupported value: "ppcie": '
        'supported values: "on", "off", "devtools"'
    )
    assert body["details"]["causes"][0]["reason"] == "FieldValueNotSupported"
    assert (body["details"]["group"], body["details"]["kind"], body["details"]["name"]) == (
        "conformance.example",
        "Widget",
        name,
    )
    for spec in ({"size": 0}, {"size": "1"}, {"items": {}}):
        refusal(apiserver.send("PATCH", path, {"spec": spec}, MERGE_PATCH), 422, "Invalid")


# --- dry run


def test_a_dry_run_answers_and_persists_nothing(apiserver: ApiServer, namespace: str, node: Obj) -> None:
    send = apiserver.send
    made = create(apiserver, maps(namespace), {"metadata": {"name": "a"}, "data": {"k": "1"}})
    others = {"fieldSelector": "metadata.name!=kube-root-ca.crt"}
    before = send("GET", maps(namespace), **others).body
    tried = send("POST", maps(namespace), {"metadata": {"name": "b"}}, dryRun="All")
    assert tried.code == 201 and tried.body["metadata"]["uid"] and not tried.body["metadata"].get("resourceVersion")
    assert send("PUT", maps(namespace, "a"), {**made, "data": {"k": "2"}}, dryRun="All").body["data"] == {"k": "2"}
    patch = [{"op": "replace", "path": "/data/k", "value": "3"}]
    patched = send("PATCH", maps(namespace, "a"), patch, JSON_PATCH, dryRun="All").body
    assert patched["data"] == {"k": "3"}
    assert patched["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert send("DELETE", maps(namespace, "a"), dryRun="All").code == 200
    assert (
        send("DELETE", maps(namespace, "a"), {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]}).code
        == 200
    )
    assert send("DELETE", maps(namespace), dryRun="All").code == 200
    name = node["metadata"]["name"]
    create(apiserver, pods(namespace), pod("p", name))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": namespace}}
    assert send("POST", pods(namespace, "p") + "/eviction", eviction, dryRun="All").code == 201
    assert send("DELETE", pods(namespace, "p"), dryRun="All").code == 200
    assert "deletionTimestamp" not in send("GET", pods(namespace, "p")).body["metadata"]
    after = send("GET", maps(namespace), **others).body
    assert before["items"] == after["items"] and len(after["items"]) == 1
    send("DELETE", pods(namespace, "p"), gracePeriodSeconds=0)


def test_a_dry_run_is_refused_where_the_write_would_be(apiserver: ApiServer, namespace: str) -> None:
    made = create(apiserver, maps(namespace), {"metadata": {"name": "a"}, "data": {"k": "1"}})
    refusal(apiserver.send("POST", maps(namespace), {"metadata": {"name": "a"}}, dryRun="All"), 409, "AlreadyExists")
    patch = {"metadata": {"resourceVersion": "1"}}
    refusal(apiserver.send("PATCH", maps(namespace, "a"), patch, MERGE_PATCH, dryRun="All"), 409, "Conflict")
    patch = [{"op": "test", "path": "/data/k", "value": "2"}]
    refusal(apiserver.send("PATCH", maps(namespace, "a"), patch, JSON_PATCH, dryRun="All"), 422, "Invalid")
    assert apiserver.send("GET", maps(namespace, "a")).body == made


def test_an_unknown_dry_run_value_is_refused(apiserver: ApiServer, namespace: str) -> None:
    body = refusal(apiserver.send("POST", maps(namespace), {"metadata": {"name": "a"}}, dryRun="some"), 422, "Invalid")
    assert 'supported values: "All"' in body["message"]
    refusal(apiserver.send("GET", maps(namespace, "a")), 404, "NotFound")


# --- status and generations


def test_the_status_has_a_door_of_its_own(apiserver: ApiServer, widgets: str) -> None:
    made = widget(apiserver, widgets, mode="on")
    path = f"{widgets}/{made['metadata']['name']}"
    both = {"spec": {"mode": "off"}, "status": {"state": "ready"}}
    changed = apiserver.send("PATCH", path + "/status", both, MERGE_PATCH).body
    assert (changed["spec"]["mode"], changed["status"]) == ("on", {"state": "ready"})
    assert changed["metadata"]["generation"] == 1
    changed = apiserver.send("PATCH", path, {"spec": {"mode": "off"}, "status": {"state": "lost"}}, MERGE_PATCH).body
    assert (changed["spec"]["mode"], changed["status"]) == ("off", {"state": "ready"})
    assert changed["metadata"]["generation"] == 2
    changed = apiserver.send("PATCH", path, {"metadata": {"labels": {"a": "b"}}}, MERGE_PATCH).body
    assert changed["metadata"]["generation"] == 2
    assert apiserver.send("GET", path + "/status").body["status"] == {"state": "ready"}


def test_the_status_of_a_node_and_a_pod(apiserver: ApiServer, namespace: str, node: Obj) -> None:
    path = f"/api/v1/nodes/{node['metadata']['name']}"
    both = {"spec": {"unschedulable": True}, "status": {"capacity": {"nvidia.com/gpu": "8"}}}
    changed = apiserver.send("PATCH", path + "/status", both, MERGE_PATCH).body
    assert changed["status"]["capacity"] == {"nvidia.com/gpu": "8"} and not changed["spec"].get("unschedulable")
    changed = apiserver.send("PATCH", path, {"status": {"capacity": {"nvidia.com/gpu": "9"}}}, MERGE_PATCH).body
    assert changed["status"]["capacity"] == {"nvidia.com/gpu": "8"}
    create(apiserver, pods(namespace), pod("a"))
    changed = apiserver.send(
        "PATCH", pods(namespace, "a") + "/status", {"status": {"phase": "Running"}}, MERGE_PATCH
    ).body
    assert changed["status"]["phase"] == "Running"
    assert apiserver.send("GET", maps(namespace, "a") + "/status").code == 404


def test_a_daemonset_counts_generations_of_its_spec(apiserver: ApiServer, namespace: str) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/daemonsets"
    template = {
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "m", "image": "registry.example/m:1"}]},
    }
    spec = {"selector": {"matchLabels": {"app": "a"}}, "template": template, "updateStrategy": {"type": "OnDelete"}}
    spec["template"]["spec"]["nodeSelector"] = {"example.com/nowhere": "true"}
    made = create(apiserver, path, {"metadata": {"name": "a"}, "spec": spec})
    assert made["metadata"]["generation"] == 1
    image = {"spec": {"template": {"spec": {"containers": [{"name": "m", "image": "registry.example/m:2"}]}}}}
    changed = apiserver.send("PATCH", f"{path}/a", image, STRATEGIC_PATCH).body
    assert changed["metadata"]["generation"] == 2
    changed = apiserver.send("PATCH", f"{path}/a", {"metadata": {"labels": {"a": "b"}}}, MERGE_PATCH).body
    assert changed["metadata"]["generation"] == 2
    bad = {"spec": {"updateStrategy": {"type": "Sometimes"}}}
    refusal(apiserver.send("PATCH", f"{path}/a", bad, MERGE_PATCH), 422, "Invalid")
    other = {"spec": {"selector": {"matchLabels": {"app": "b"}}}}
    refusal(apiserver.send("PATCH", f"{path}/a", other, MERGE_PATCH), 422, "Invalid")
    assert apiserver.send("DELETE", f"{path}/a").code == 200


# --- deleting


def test_delete_says_what_it_deleted(apiserver: ApiServer, namespace: str) -> None:
    made = create(apiserver, leases(namespace), {"metadata": {"name": "a"}})
    gone = apiserver.send("DELETE", leases(namespace, "a"))
    assert gone.code == 200
    assert (gone.body["kind"], gone.body["status"]) == ("Status", "Success")
    details = {"name": "a", "group": "coordination.k8s.io", "kind": "leases", "uid": made["metadata"]["uid"]}
    assert gone.body["details"] == details
    refusal(apiserver.send("DELETE", leases(namespace, "a")), 404, "NotFound")
    again = create(apiserver, leases(namespace), {"metadata": {"name": "a"}})
    assert again["metadata"]["uid"] != made["metadata"]["uid"]


def test_delete_holds_its_preconditions(apiserver: ApiServer, namespace: str) -> None:
    made = create(apiserver, maps(namespace), {"metadata": {"name": "a"}})["metadata"]
    path = maps(namespace, "a")
    other = "00000000-0000-4000-8000-000000000000"
    refusal(apiserver.send("DELETE", path, {"preconditions": {"uid": other}}), 409, "Conflict")
    refusal(apiserver.send("DELETE", path, {"preconditions": {"resourceVersion": "1"}}), 409, "Conflict")
    wanted = {"uid": made["uid"], "resourceVersion": made["resourceVersion"]}
    assert apiserver.send("DELETE", path, {"preconditions": wanted}).code == 200


def test_a_pod_on_a_node_goes_gracefully(apiserver: ApiServer, namespace: str, node: Obj) -> None:
    create(apiserver, pods(namespace), pod("a", node["metadata"]["name"]))
    path = pods(namespace, "a")
    going = apiserver.send("DELETE", path)
    assert going.code == 200 and going.body["kind"] == "Pod"
    assert going.body["metadata"]["deletionGracePeriodSeconds"] == 20
    stamp = going.body["metadata"]["deletionTimestamp"]
    again = apiserver.send("DELETE", path)
    assert again.code == 200
    assert apiserver.send("GET", path).body["metadata"]["deletionTimestamp"] == stamp
    sooner = apiserver.send("DELETE", path, gracePeriodSeconds=5).body
    assert sooner["metadata"]["deletionGracePeriodSeconds"] == 5 and sooner["metadata"]["deletionTimestamp"] < stamp
    kept = apiserver.send("PATCH", path, {"metadata": {"deletionTimestamp": None}}, MERGE_PATCH)
    assert kept.body["metadata"]["deletionTimestamp"]
    assert apiserver.send("DELETE", path, {"gracePeriodSeconds": 0}).code == 200
    refusal(apiserver.send("GET", path), 404, "NotFound")


def test_a_pod_on_no_node_and_a_pod_that_ended_go_at_once(apiserver: ApiServer, namespace: str, node: Obj) -> None:
    create(apiserver, pods(namespace), pod("a"))
    assert apiserver.send("DELETE", pods(namespace, "a")).code == 200
    refusal(apiserver.send("GET", pods(namespace, "a")), 404, "NotFound")
    create(apiserver, pods(namespace), pod("b", node["metadata"]["name"]))
    apiserver.send("PATCH", pods(namespace, "b") + "/status", {"status": {"phase": "Succeeded"}}, MERGE_PATCH)
    assert apiserver.send("DELETE", pods(namespace, "b")).code == 200
    refusal(apiserver.send("GET", pods(namespace, "b")), 404, "NotFound")


def test_finalizers_hold_an_object_until_the_last_is_gone(apiserver: ApiServer, namespace: str) -> None:
    create(
        apiserver, maps(namespace), {"metadata": {"name": "a", "finalizers": ["example.com/one", "example.com/two"]}}
    )
    path = maps(namespace, "a")
    going = apiserver.send("DELETE", path)
    assert going.code == 200 and going.body["kind"] == "ConfigMap" and going.body["metadata"]["deletionTimestamp"]
    more = {"metadata": {"finalizers": ["example.com/one", "example.com/two", "example.com/three"]}}
    body = refusal(apiserver.send("PATCH", path, more, MERGE_PATCH), 422, "Invalid")
    assert "no new finalizers can be added if the object is being deleted" in body["message"]
    apiserver.send("PATCH", path, {"metadata": {"finalizers": ["example.com/two"]}}, MERGE_PATCH)
    assert apiserver.send("GET", path).code == 200
    assert apiserver.send("PATCH", path, {"metadata": {"finalizers": None}}, MERGE_PATCH).code == 200
    refusal(apiserver.send("GET", path), 404, "NotFound")


def test_a_collection_is_deleted_by_selector(apiserver: ApiServer, namespace: str) -> None:
    for name, label in (("a", "x"), ("b", "y"), ("c", "x")):
        create(apiserver, leases(namespace), {"metadata": {"name": name, "labels": {"app": label}}})
    assert apiserver.send("DELETE", leases(namespace), labelSelector="app=x").code == 200
    assert [item["metadata"]["name"] for item in apiserver.send("GET", leases(namespace)).body["items"]] == ["b"]


def test_an_eviction_is_a_deletion_that_a_budget_may_refuse(apiserver: ApiServer, namespace: str, node: Obj) -> None:
    create(apiserver, pods(namespace), pod("a", node["metadata"]["name"], labels={"app": "guarded"}))
    create(apiserver, pods(namespace), pod("b", node["metadata"]["name"]))
    running = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    for name in "ab":
        assert apiserver.send("PATCH", pods(namespace, name) + "/status", running, MERGE_PATCH).code == 200
    budget = {
        "metadata": {"name": "guard"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}},
    }
    create(apiserver, f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets", budget)

    def evict(name: str, **options: Any) -> Any:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options}
        return apiserver.send("POST", pods(namespace, name) + "/eviction", body)

    body = refusal(evict("a"), 429, "TooManyRequests")
    assert body["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    assert body["details"]["causes"][0]["reason"] == "DisruptionBudget"
    assert "deletionTimestamp" not in apiserver.send("GET", pods(namespace, "a")).body["metadata"]
    refusal(evict("b", preconditions={"uid": "00000000-0000-4000-8000-000000000000"}), 409, "Conflict")
    done = evict("b", gracePeriodSeconds=7)
    assert (done.code, done.body["status"]) == (201, "Success")
    assert apiserver.send("GET", pods(namespace, "b")).body["metadata"]["deletionGracePeriodSeconds"] == 7
    refusal(evict("c"), 404, "NotFound")
    for name in "ab":
        apiserver.send("DELETE", pods(namespace, name), gracePeriodSeconds=0)


def test_a_binding_places_a_pod_once(apiserver: ApiServer, namespace: str, node: Obj) -> None:
    create(apiserver, pods(namespace), pod("a"))
    name = node["metadata"]["name"]
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"kind": "Node", "name": name}}
    assert apiserver.send("POST", pods(namespace, "a") + "/binding", body).code == 201
    assert apiserver.send("GET", pods(namespace, "a")).body["spec"]["nodeName"] == name
    refusal(apiserver.send("POST", pods(namespace, "a") + "/binding", body), 409, "Conflict")
    apiserver.send("DELETE", pods(namespace, "a"), gracePeriodSeconds=0)


# --- watching


def watched(server: ApiServer, path: str, last: str, **query: Any) -> list[Obj]:
    """The events of a watch up to and with the one of the object `last`, which the test makes after all else."""
    events: list[Obj] = []
    for event in server.client.watch(path, timeoutSeconds=50, **query):
        if event["type"] != "BOOKMARK":
            events.append(event)
            if event["object"]["metadata"].get("name") == last:
                return events
    raise AssertionError(f"the watch ended without {last}: {shown(events)}")


def shown(events: list[Obj]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


def test_a_watch_replays_what_happened_after_a_version(apiserver: ApiServer, namespace: str) -> None:
    create(apiserver, leases(namespace), {"metadata": {"name": "old"}})
    start = apiserver.send("GET", leases(namespace)).body["metadata"]["resourceVersion"]
    create(apiserver, leases(namespace), {"metadata": {"name": "a"}})
    apiserver.send("PATCH", leases(namespace, "a"), {"spec": {"holderIdentity": "me"}}, MERGE_PATCH)
    apiserver.send("DELETE", leases(namespace, "a"))
    create(apiserver, leases(namespace), {"metadata": {"name": "last"}})
    events = watched(apiserver, leases(namespace), "last", resourceVersion=start)
    assert shown(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "last")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions)) and versions[0] > int(start)
    assert {event["object"]["kind"] for event in events} == {"Lease"}
    assert events[2]["object"]["spec"]["holderIdentity"] == "me"


def test_a_watch_ends_when_its_time_is_up(apiserver: ApiServer, namespace: str) -> None:
    start = apiserver.send("GET", leases(namespace)).body["metadata"]["resourceVersion"]
    assert list(apiserver.client.watch(leases(namespace), resourceVersion=start, timeoutSeconds=1)) == []


def test_a_watch_from_nowhere_begins_with_what_is_there(apiserver: ApiServer, namespace: str) -> None:
    create(apiserver, leases(namespace), {"metadata": {"name": "a"}})
    for last, query in (("b", {}), ("c", {"resourceVersion": "0"})):
        create(apiserver, leases(namespace), {"metadata": {"name": last}})
        there = [("ADDED", name) for name in "abc" if name <= last]
        assert shown(watched(apiserver, leases(namespace), last, **query)) == there


def test_a_watch_shows_what_happens_while_it_is_open(apiserver: ApiServer, namespace: str) -> None:
    start = apiserver.send("GET", leases(namespace)).body["metadata"]["resourceVersion"]
    other = apiserver.client.again()
    later = threading.Timer(0.3, lambda: other.call("POST", leases(namespace), {"metadata": {"name": "a"}}))
    later.start()
    assert shown(watched(apiserver, leases(namespace), "a", resourceVersion=start)) == [("ADDED", "a")]
    later.join()
    other.close()


def test_bookmarks_tell_a_version_to_go_on_from(apiserver: ApiServer, namespace: str) -> None:
    other = apiserver.client.again()

    def told() -> bool:
        start = apiserver.send("GET", leases(namespace)).body["metadata"]["resourceVersion"]
        body = {"metadata": {"name": apiserver.name("elsewhere")}}
        later = threading.Timer(0.5, lambda: other.call("POST", leases("default"), body))
        later.start()
        query = {"resourceVersion": start, "timeoutSeconds": 5, "allowWatchBookmarks": "true"}
        events = list(apiserver.client.watch(leases(namespace), **query))
        later.join()
        assert {(event["type"], event["object"]["kind"]) for event in events} <= {("BOOKMARK", "Lease")}
        return bool(events) and int(events[-1]["object"]["metadata"]["resourceVersion"]) > int(start)

    eventually(told)  # a slow server may send its bookmark before it has seen the other Lease
    other.close()


def test_a_selector_turns_changes_into_coming_and_going(apiserver: ApiServer, namespace: str) -> None:
    start = apiserver.send("GET", leases(namespace)).body["metadata"]["resourceVersion"]
    create(apiserver, leases(namespace), {"metadata": {"name": "a"}})
    for label in ("x", "y"):
        apiserver.send("PATCH", leases(namespace, "a"), {"metadata": {"labels": {"app": label}}}, MERGE_PATCH)
    create(apiserver, leases(namespace), {"metadata": {"name": "last", "labels": {"app": "x"}}})
    events = watched(apiserver, leases(namespace), "last", resourceVersion=start, labelSelector="app=x")
    assert shown(events) == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "last")]
    events = watched(apiserver, leases(namespace), "last", resourceVersion=start, fieldSelector="metadata.name=last")
    assert shown(events) == [("ADDED", "last")]


def test_a_watch_from_a_version_that_is_gone_is_an_expired_event(apiserver: ApiServer, widgets: str) -> None:
    events = list(apiserver.client.watch(widgets, resourceVersion=1, timeoutSeconds=5))
    assert [event["type"] for event in events] == ["ERROR"]
    status = events[0]["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")


# --- who may what


def allow(server: ApiServer, namespace: str, user: str, *rules: Obj) -> None:
    group = "rbac.authorization.k8s.io"
    path = f"/apis/{group}/v1/namespaces/{namespace}"
    create(server, f"{path}/roles", {"metadata": {"name": "given"}, "rules": list(rules)})
    binding = {
        "metadata": {"name": "given"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "given"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
    create(server, f"{path}/rolebindings", binding)


def test_a_wrong_token_is_unauthorized(apiserver: ApiServer) -> None:
    stranger = apiserver.client.again(Authorization="Bearer nonsense")
    if apiserver.kind == "envtest":  # its administrator has a client certificate, which wins over a token
        stranger = apiserver.client.without_certificate().again(Authorization="Bearer nonsense")
    body = refusal(stranger.send("GET", "/api/v1/nodes"), 401, "Unauthorized")
    assert body["message"] == "Unauthorized"


def test_a_forbidden_request_says_who_what_and_where(apiserver: ApiServer, namespace: str) -> None:
    user = apiserver.name("user")
    asker = apiserver.user(user)
    body = refusal(asker.send("GET", pods(namespace)), 403, "Forbidden")
    assert body["message"] == (
        f'pods is forbidden: User "{user}" cannot list resource "pods" in API group "" in the namespace "{namespace}"'
    )
    assert body["details"] == {"kind": "pods"}
    body = refusal(asker.send("PATCH", "/api/v1/nodes/n", {}, MERGE_PATCH), 403, "Forbidden")
    assert (
        body["message"]
        == f'nodes "n" is forbidden: User "{user}" cannot patch resource "nodes" in API group "" at the cluster scope'
    )
    assert body["details"] == {"name": "n", "kind": "nodes"}
    body = refusal(asker.send("GET", leases(namespace, "a")), 403, "Forbidden")
    assert body["message"].startswith(
        f'leases.coordination.k8s.io "a" is forbidden: User "{user}" cannot get resource "leases"'
    )
    body = refusal(asker.send("POST", pods(namespace, "a") + "/eviction", {}), 403, "Forbidden")
    assert 'cannot create resource "pods/eviction"' in body["message"]
    body = refusal(asker.send("GET", "/metrics"), 403, "Forbidden")
    assert body["message"] == f'forbidden: User "{user}" cannot get path "/metrics"'
    refusal(asker.send("GET", "/apis/nowhere.example/v1/things"), 403, "Forbidden")


def test_a_role_allows_exactly_what_it_names(apiserver: ApiServer, namespace: str) -> None:
    user = apiserver.name("user")
    allow(
        apiserver,
        namespace,
        user,
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create"], "resourceNames": ["one"]},
        {"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["list", "watch"]},
    )
    asker = apiserver.user(user)
    eventually(lambda: asker.send("GET", pods(namespace)).code == 200)
    create(apiserver, maps(namespace), {"metadata": {"name": "one"}})
    assert asker.send("GET", maps(namespace, "one")).code == 200
    assert asker.send("GET", maps(namespace, "two")).code == 403
    assert asker.send("POST", maps(namespace), {"metadata": {"name": "one"}}).code == 403
    assert asker.send("GET", maps(namespace)).code == 403
    assert asker.send("GET", "/api/v1/pods").code == 403
    assert asker.send("GET", pods("default")).code == 403
    assert asker.send("GET", pods(namespace, "a") + "/log").code == 403
    assert asker.send("GET", pods(namespace), watch="true", timeoutSeconds=1).code == 200


def test_access_reviews_answer_from_the_roles(apiserver: ApiServer, namespace: str) -> None:
    user = apiserver.name("user")
    allow(apiserver, namespace, user, {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]})
    asker = apiserver.user(user)
    path = "/apis/authorization.k8s.io/v1"

    def may(**attributes: str) -> bool:
        body = {
            "kind": "SelfSubjectAccessReview",
            "apiVersion": "authorization.k8s.io/v1",
            "spec": {"resourceAttributes": attributes},
        }
        answer = asker.send("POST", f"{path}/selfsubjectaccessreviews", body)
        assert answer.code == 201, answer.body
        return bool(answer.body["status"]["allowed"])

    eventually(lambda: may(verb="get", resource="pods", subresource="log", namespace=namespace))
    assert not may(verb="get", resource="pods", namespace=namespace)
    assert not may(verb="get", resource="pods", subresource="log", namespace="default")
    assert not may(verb="get", resource="pods", subresource="log")
    rules = asker.send("POST", f"{path}/selfsubjectrulesreviews", {"spec": {"namespace": namespace}})
    assert rules.code == 201
    assert {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]} in rules.body["status"]["resourceRules"]
    refusal(asker.send("POST", f"{path}/selfsubjectaccessreviews", {"spec": {}}), 422, "Invalid")


def test_the_server_says_who_asks(apiserver: ApiServer) -> None:
    user = apiserver.name("user")
    asker = apiserver.client.again(**{"Impersonate-User": user, "Impersonate-Group": "sre"})
    body = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
    answer = asker.send("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body)
    assert answer.code == 201
    assert answer.body["status"]["userInfo"]["username"] == user
    assert set(answer.body["status"]["userInfo"]["groups"]) == {"sre", "system:authenticated"}
    assert asker.send("POST", "/apis/authentication.k8s.io/v1alpha9/selfsubjectreviews", body).code in (403, 404)


def test_a_lease_is_taken_by_whoever_writes_first(apiserver: ApiServer, namespace: str) -> None:
    spec = {"holderIdentity": "one", "leaseDurationSeconds": 15, "renewTime": "2026-08-20T08:00:00.000000Z"}
    made = create(apiserver, leases(namespace), {"metadata": {"name": "a"}, "spec": spec})
    one = apiserver.send("PUT", leases(namespace, "a"), {**made, "spec": spec | {"holderIdentity": "two"}})
    assert one.code == 200
    refusal(
        apiserver.send("PUT", leases(namespace, "a"), {**made, "spec": spec | {"holderIdentity": "three"}}),
        409,
        "Conflict",
    )
    for bad in ({"leaseDurationSeconds": 0}, {"leaseDurationSeconds": "15"}):
        refusal(apiserver.send("PATCH", leases(namespace, "a"), {"spec": bad}, MERGE_PATCH), 422, "Invalid")
