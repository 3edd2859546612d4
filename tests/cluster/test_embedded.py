"""The embedded server as a process: start, state, end, users, faults, request log, what it does not implement.

Not covered here: what it answers (test_conformance.py), its actors (test_actors.py).
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from embedded_server import SMALL, Embedded, command, fixture, start, stop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpurunbook.embedded.actors.client import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Client
from tests.eventually import eventually

NODE = "/api/v1/nodes/gpu-0001"
CORDON = {"spec": {"unschedulable": True}}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    state = tmp_path_factory.mktemp("shared") / "state"
    yield start(state)
    stop(state)


@pytest.fixture
def server(shared: Embedded) -> Embedded:
    """A server without faults, with no node cordoned, whose log begins with the test."""
    shared.control("DELETE", "faults")
    shared.client().call("PATCH", NODE, {"spec": {"unschedulable": None}}, MERGE_PATCH)
    shared.since = max((entry["n"] for entry in shared.log()), default=shared.since)
    return shared


def cluster(tmp_path: Path, text: str, **files: str) -> Path:
    return fixture(tmp_path / "fixture", text, **files)


# --- the process


def test_a_second_start_finds_the_first(server: Embedded) -> None:
    again = json.loads(command(server.state, "--seed", SMALL).stdout)
    assert again == server.info
    assert json.loads(command(server.state).stdout) == server.info


def test_starts_at_the_same_time_make_one_server(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "gpurunbook.embedded", "--state", str(tmp_path / "s"), "--seed", str(SMALL)]
    running = [subprocess.Popen(line, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    told = {process.communicate(timeout=300)[0] for process in running}
    assert [process.returncode for process in running] == [0, 0, 0, 0]
    assert len(told) == 1 and json.loads(told.pop())["url"].startswith("http://127.0.0.1:")
    stop(tmp_path / "s")


def test_the_server_has_a_session_of_its_own_and_keeps_its_secrets(server: Embedded) -> None:
    assert os.getsid(server.info["pid"]) == server.info["pid"] != os.getsid(0)
    for name in ("server.json", "kubeconfig", "tokens.json"):
        assert stat.S_IMODE((server.state / name).stat().st_mode) == 0o600, name
    assert stat.S_IMODE(server.state.stat().st_mode) == 0o700


def test_the_kubeconfig_has_a_context_for_each_user(server: Embedded) -> None:
    config = yaml.safe_load(Path(server.info["kubeconfig"]).read_text())
    assert config["current-context"] == "oncall@small"
    assert {context["name"] for context in config["contexts"]} == {"oncall@small", "approver@small", "admin@small"}
    me = server.client("approver@small").call("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert me["status"]["userInfo"] == {
        "username": "approver@example.com",
        "groups": ["sre-leads", "system:authenticated"],
    }


def test_state_outlives_a_stop_with_address_tokens_and_past(tmp_path: Path) -> None:
    first = start(tmp_path / "s")
    version = first.client().call("GET", "/api/v1/nodes")["metadata"]["resourceVersion"]
    node = first.client().call("PATCH", NODE, CORDON, MERGE_PATCH)
    made = first.client().call("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"generateName": "a-"}})
    first.client().call("DELETE", "/api/v1/nodes/gpu-0002")
    stop(tmp_path / "s")
    assert not (tmp_path / "s" / "server.json").exists()
    second = start(tmp_path / "s", seed=None)
    assert second.info | {"pid": 0} == first.info | {"pid": 0}
    assert second.client().call("GET", NODE) == node
    assert second.client().call("GET", f"/api/v1/namespaces/default/configmaps/{made['metadata']['name']}") == made
    assert second.client().send("GET", "/api/v1/nodes/gpu-0002").code == 404
    events = second.client().watch("/api/v1/nodes", resourceVersion=version, timeoutSeconds=1)
    assert [(e["type"], e["object"]["metadata"]["name"]) for e in events] == [
        ("MODIFIED", "gpu-0001"),
        ("DELETED", "gpu-0002"),
    ]
    numbers = [entry["n"] for entry in second.log()]
    assert numbers == sorted(set(numbers)) and len(second.log(method="PATCH")) == 1
    stop(tmp_path / "s")


def test_state_outlives_a_kill_also_in_the_middle_of_a_write(tmp_path: Path) -> None:
    first = start(tmp_path / "s")
    first.client().call("PATCH", NODE, CORDON, MERGE_PATCH)
    os.kill(first.info["pid"], signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{first.info['pid']}").exists())
    with (tmp_path / "s" / "objects.log").open("ab") as log:
        log.write(b'[1100,["","nodes"],["","gpu-0002"],{"meta')
    second = start(tmp_path / "s")
    assert second.info["pid"] != first.info["pid"]
    assert second.client().call("GET", NODE)["spec"]["unschedulable"] is True
    second.client().call("PATCH", "/api/v1/nodes/gpu-0002", CORDON, MERGE_PATCH)
    stop(tmp_path / "s")
    third = start(tmp_path / "s")
    for name in ("gpu-0001", "gpu-0002"):
        assert third.client().call("GET", f"/api/v1/nodes/{name}")["spec"]["unschedulable"] is True
    stop(tmp_path / "s")


def test_the_server_ends_when_nobody_asks(tmp_path: Path) -> None:
    server = start(tmp_path / "s", idle=3)
    client = server.client()
    watch = client.watch("/api/v1/nodes", resourceVersion="0", timeoutSeconds=4)
    for _ in watch:  # an open watch is somebody
        pass
    assert client.send("GET", "/version").code == 200
    eventually(lambda: not Path(f"/proc/{server.info['pid']}").exists())
    assert not (tmp_path / "s" / "server.json").exists()


def test_a_watch_whose_reader_left_does_not_keep_the_server(tmp_path: Path) -> None:
    server = start(tmp_path / "s", idle=2)
    watch = server.client().watch("/api/v1/nodes", timeoutSeconds=600)
    next(watch)
    watch.close()
    eventually(lambda: not Path(f"/proc/{server.info['pid']}").exists())


def test_an_open_watch_costs_nothing(tmp_path: Path) -> None:
    server = start(tmp_path / "s")
    path, seen = "/api/v1/namespaces/absent/pods", []

    def read(**query: str) -> None:
        seen.extend(server.client().watch(path, timeoutSeconds=7, **query))

    threads = [threading.Thread(target=read, kwargs=query) for query in ({}, {"allowWatchBookmarks": "true"})]
    before = spent(server.info["pid"])
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {event["type"] for event in seen} == {"BOOKMARK"}
    assert spent(server.info["pid"]) - before < 0.5
    stop(tmp_path / "s")


def spent(pid: int) -> float:
    """Seconds of processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_actors_do_not_keep_the_server(tmp_path: Path) -> None:
    seed = cluster(tmp_path, "actors: [{name: kubelet}]")
    server = start(tmp_path / "s", seed, idle=2)
    eventually(lambda: not Path(f"/proc/{server.info['pid']}").exists())


def test_another_fixture_is_refused_for_a_state_folder(tmp_path: Path) -> None:
    start(tmp_path / "s")
    stop(tmp_path / "s")
    done = command(tmp_path / "s", "--seed", cluster(tmp_path, "name: other"), check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "was seeded from another fixture" in done.stderr and "remove the state folder" in done.stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nme: x", "nme"),
        ("users: [{token: a}]", "name"),
        ("base: ../absent", "absent"),
        ("objects: [absent.yaml]", "absent.yaml"),
        ("remove: [Pod/default/absent]", "Pod/default/absent"),
        ("patches: [{target: Node/absent, merge: {}}]", "Node/absent"),
        ("actors: [{name: nobody}]", "no actor 'nobody'"),
        ("actors: [{name: cordoner, parameters: {nod: a}}]", "nod"),
        ("faults: [{action: {status: slow}}]", "status"),
        ("{", "cluster.yaml"),
    ],
)
def test_a_fixture_that_cannot_be_used_is_named(tmp_path: Path, text: str, told: str) -> None:
    done = command(tmp_path / "s", "--seed", cluster(tmp_path, text), check=False)
    assert done.returncode == 2
    assert told in done.stderr and "Traceback" not in done.stderr


def test_an_object_of_an_unknown_kind_is_named(tmp_path: Path) -> None:
    seed = cluster(tmp_path, "name: x", objects="apiVersion: a.example/v1\nkind: Thing\nmetadata: {name: a}\n")
    done = command(tmp_path / "s", "--seed", seed, check=False)
    assert done.returncode == 2
    assert "Thing/a: a.example/v1 Thing is not served" in done.stderr


# --- fixtures


def test_the_small_fixture_is_a_gpu_cluster(embedded: Embedded) -> None:
    client = embedded.client()
    nodes = client.call("GET", "/api/v1/nodes", labelSelector="nvidia.com/gpu.present=true")["items"]
    assert [node["metadata"]["name"] for node in nodes] == ["gpu-0000", "gpu-0001", "gpu-0002"]
    for namespace in ("gpu-operator", "hami-system"):
        pods = client.call("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        assert pods
        for pod in pods:
            records = [*pod["status"].get("initContainerStatuses", ()), *pod["status"]["containerStatuses"]]
            assert len(records) == len(pod["spec"].get("initContainers", ())) + len(pod["spec"]["containers"])
            assert all("@sha256:" in record["imageID"] for record in records)
    daemonsets = client.call("GET", "/apis/apps/v1/daemonsets")["items"]
    pods = client.call("GET", "/api/v1/pods")["items"]
    for daemonset in daemonsets:
        owned = [
            p
            for p in pods
            if any(o["uid"] == daemonset["metadata"]["uid"] for o in p["metadata"].get("ownerReferences", ()))
        ]
        assert len(owned) == daemonset["status"]["desiredNumberScheduled"] >= 3


def test_a_fixture_builds_on_another(tmp_path: Path) -> None:
    pod = yaml.safe_dump({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "extra", "namespace": "gpu-operator"},
        "spec": {"containers": [{"name": "a", "image": "registry.example/a:latest"}]},
    })  # fmt: skip
    text = f"""
base: {os.path.relpath(SMALL, tmp_path / "fixture")}
name: derived
remove: [ClusterPolicy/cluster-policy, Pod/gpu-operator/allocation-canary-bd04a]
patches:
  - target: Node/gpu-0002
    merge: {{spec: {{unschedulable: true}}}}
  - target: DaemonSet/gpu-operator/nvidia-driver-daemonset
    merge: {{metadata: {{labels: {{patched: "yes"}}}}}}
"""
    server = start(tmp_path / "s", cluster(tmp_path, text, extra=pod))
    client = server.client()
    assert client.call("GET", "/api/v1/nodes/gpu-0002")["spec"]["unschedulable"] is True
    assert client.call("GET", "/api/v1/namespaces/gpu-operator/pods/extra")["spec"]["containers"][0]["name"] == "a"
    assert client.send("GET", "/apis/nvidia.com/v1/clusterpolicies/cluster-policy").code == 404
    assert client.send("GET", "/api/v1/namespaces/gpu-operator/pods/allocation-canary-bd04a").code == 404
    driver = client.call("GET", "/apis/apps/v1/namespaces/gpu-operator/daemonsets/nvidia-driver-daemonset")
    assert driver["metadata"]["labels"]["patched"] == "yes"
    stop(tmp_path / "s")


def test_the_cluster_is_a_rehearsal_unless_it_poses(tmp_path: Path) -> None:
    seen = {}
    for name, text in (
        ("a", "name: one"),
        ("b", "name: two"),
        ("c", "{name: two, poses_as: live}"),
        ("d", "{name: x, uid: given}"),
    ):
        seed = fixture(tmp_path / f"fixture-{name}", text)
        server = start(tmp_path / name, seed)
        meta = server.client().call("GET", "/api/v1/namespaces/kube-system")["metadata"]
        seen[name] = (meta["uid"], (meta.get("annotations") or {}).get("gpurunbook.io/rehearsal"))
        stop(tmp_path / name)
    assert [mark for _, mark in seen.values()] == ["embedded", "embedded", None, "embedded"]
    assert seen["a"][0] != seen["b"][0] == seen["c"][0]
    assert seen["d"][0] == "given"


def test_uids_versions_and_names_are_the_same_in_every_folder(tmp_path: Path) -> None:
    told = []
    for name in "ab":
        server = start(tmp_path / name)
        told.append(server.client().call("GET", "/api/v1/pods"))
        stop(tmp_path / name)
    assert told[0] == told[1]


def test_many_pods_come_in_pages(tmp_path: Path) -> None:
    node = "{apiVersion: v1, kind: Node, metadata: {name: '@NAME@'}}"
    text = f"generate: {{nodes: 40, pods: 2000, runtime: mixed, weight: real, node: {node}}}"
    server = start(tmp_path / "s", cluster(tmp_path, text))
    client, names, token = server.client(), [], ""
    while True:
        page = client.call("GET", "/api/v1/pods", limit=500, **({"continue": token} if token else {}))
        names += [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in page["items"]]
        token = page["metadata"].get("continue", "")
        if not token:
            break
    assert len(names) == len(set(names)) == 2000 and names == sorted(names)
    on = client.call("GET", "/api/v1/pods", fieldSelector="spec.nodeName=gpu-0007")["items"]
    assert len(on) == 50 and {pod["spec"]["nodeName"] for pod in on} == {"gpu-0007"}
    assert (
        len(
            {container["imageID"].partition("://")[0] for pod in on for container in pod["status"]["containerStatuses"]}
        )
        == 1
    )
    stop(tmp_path / "s")


# --- users


def test_a_token_ends_after_its_requests_or_its_time(tmp_path: Path) -> None:
    text = """
users:
  - {name: few, expires: {after_requests: 2}, groups: [system:masters]}
  - {name: brief, expires: {after_seconds: 0}, groups: [system:masters]}
"""
    server = start(tmp_path / "s", cluster(tmp_path, f"name: x\n{text}"))
    few = server.client("few@x")
    assert [few.send("GET", "/api/v1/nodes").code for _ in range(4)] == [200, 200, 401, 401]
    assert server.client("brief@x").send("GET", "/api/v1/nodes").code == 401
    stop(tmp_path / "s")


def test_the_review_of_oneself_can_be_of_an_older_server(tmp_path: Path) -> None:
    server = start(tmp_path / "s", cluster(tmp_path, "self_subject_review: [v1beta1]"))
    path = "/apis/authentication.k8s.io/{}/selfsubjectreviews"
    codes = {v: server.client().send("POST", path.format(v), {}).code for v in ("v1", "v1beta1", "v1alpha1")}
    assert codes == {"v1": 404, "v1beta1": 201, "v1alpha1": 404}
    stop(tmp_path / "s")


def test_only_the_administrator_reaches_the_controls(server: Embedded) -> None:
    for what in ("requests", "faults"):
        assert server.client("oncall@small").send("GET", f"/_gpurunbook/{what}").code == 401
    assert server.client().send("GET", "/_gpurunbook/else").code == 404


def test_impersonation_is_for_administrators(server: Embedded) -> None:
    other = {"Impersonate-User": "somebody"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    assert server.client().again(**other).call("POST", path, {})["status"]["userInfo"]["username"] == "somebody"
    seen = server.client("oncall@small").again(**other).call("POST", path, {})
    assert seen["status"]["userInfo"]["username"] == "oncall@example.com"


# --- faults


def arm(server: Embedded, action: Any, nth: int = 1, times: int = 1, **match: str) -> None:
    server.control("POST", "faults", [{"match": match, "action": action, "nth": nth, "times": times}])


@pytest.mark.parametrize("code", [401, 403, 404, 409, 410, 429, 500, 503])
def test_a_status_is_answered_in_the_place_of_the_request(server: Embedded, code: int) -> None:
    arm(server, {"status": code, "retry_after": 3}, method="PATCH", path=NODE)
    reply = server.client().send("PATCH", NODE, CORDON, MERGE_PATCH)
    assert reply.code == reply.body["code"] == code
    assert reply.body["kind"] == "Status" and reply.body["reason"] and reply.headers["Retry-After"] == "3"
    assert not server.client().call("GET", NODE)["spec"].get("unschedulable")
    assert server.client().send("PATCH", NODE, CORDON, MERGE_PATCH).code == 200
    first, second = server.log(method="PATCH")
    assert (first["status"], first["persisted"], first["fault"]["status"]) == (code, False, code)
    assert (second["status"], second["persisted"]) == (200, True) and "fault" not in second


def test_faults_are_chosen_by_user_path_query_and_count(server: Embedded) -> None:
    arm(server, {"status": 500}, nth=2, times=2, user="oncall", path="/api/v1/(nodes|pods)", query=".*limit=1.*")
    oncall, admin = server.client("oncall@small"), server.client()
    assert [admin.send("GET", "/api/v1/nodes", limit=1).code for _ in range(3)] == [200] * 3
    assert oncall.send("GET", "/api/v1/nodes").code == 200
    seen = [oncall.send("GET", f"/api/v1/{what}", limit=1).code for what in ("nodes", "pods", "nodes", "pods", "nodes")]
    assert seen == [200, 500, 500, 200, 200]
    armed = server.control("GET", "faults")
    assert [(fault["seen"], fault["hits"]) for fault in armed] == [(5, 2)]
    arm(server, {"status": 503}, times=0, path="/version")
    assert {admin.send("GET", "/version").code for _ in range(5)} == {503}
    server.control("DELETE", "faults")
    assert admin.send("GET", "/version").code == 200
    refused = admin.send("POST", "/_gpurunbook/faults", [{"match": {"pth": "x"}, "action": {}}])
    assert refused.code == 400 and "pth" in refused.body["message"]


def test_a_reset_before_loses_the_request_and_a_reset_after_the_answer(server: Embedded) -> None:
    arm(server, {"reset": "before"}, method="PATCH")
    with pytest.raises(ConnectionResetError):
        server.client().send("PATCH", NODE, CORDON, MERGE_PATCH)
    assert not server.client().call("GET", NODE)["spec"].get("unschedulable")
    arm(server, {"reset": "after"}, method="PATCH")
    with pytest.raises(ConnectionResetError):
        server.client().send("PATCH", NODE, CORDON, MERGE_PATCH)
    assert server.client().call("GET", NODE)["spec"]["unschedulable"] is True
    assert [(entry["status"], entry["persisted"]) for entry in server.log(method="PATCH")] == [(0, False), (200, True)]


def test_a_body_can_be_cut_garbled_late_and_slow(server: Embedded) -> None:
    client = server.client()
    arm(server, {"truncate": 100}, path="/api/v1/pods")
    with pytest.raises((ConnectionResetError, http.client.IncompleteRead)):
        client.send("GET", "/api/v1/pods")
    arm(server, {"garble": True}, path="/api/v1/pods")
    with pytest.raises(json.JSONDecodeError):
        client.send("GET", "/api/v1/pods")
    arm(server, {"delay": 0.3}, path="/version")
    arm(server, {"drip": {"bytes": 40, "seconds": 0.05}}, path="/version", nth=2)
    for _ in range(2):
        began = time.monotonic()
        assert client.send("GET", "/version").body["major"] == "1"
        assert time.monotonic() - began > 0.2
    assert client.send("GET", "/api/v1/pods").code == 200


def test_a_watch_can_break_in_the_middle_of_an_event(server: Embedded) -> None:
    arm(server, {"truncate": 500}, query=".*watch=.*")
    with pytest.raises((ConnectionResetError, http.client.IncompleteRead, json.JSONDecodeError)):
        list(server.client().watch("/api/v1/nodes", timeoutSeconds=5))


def test_a_token_can_be_made_to_expire_at_a_request(tmp_path: Path) -> None:
    server = start(tmp_path / "s")
    arm(server, {"expire_token": True}, nth=2, user="oncall")
    oncall = server.client("oncall@small")
    assert [oncall.send("GET", "/api/v1/nodes").code for _ in range(4)] == [200, 401, 401, 401]
    assert server.client("approver@small").send("GET", "/api/v1/nodes").code == 200
    stop(tmp_path / "s")


def test_faults_stand_in_the_fixture_too(tmp_path: Path) -> None:
    seed = cluster(tmp_path, "faults: [{match: {path: /api/v1/nodes}, action: {status: 503, retry_after: 1}}]")
    server = start(tmp_path / "s", seed)
    assert [server.client().send("GET", "/api/v1/nodes").code for _ in range(2)] == [503, 200]
    stop(tmp_path / "s")


# --- the request log and the unimplemented


def test_every_request_is_logged_before_it_is_answered(server: Embedded) -> None:
    oncall = server.client("oncall@small")
    oncall.send("PATCH", NODE, CORDON, MERGE_PATCH, dryRun="All", fieldManager="me")
    oncall.send("PATCH", NODE, CORDON, MERGE_PATCH)
    oncall.send("DELETE", "/api/v1/namespaces/gpu-operator/pods/absent")
    oncall.again(Authorization="Bearer wrong").send("GET", "/api/v1/nodes")
    dry, real, gone, stranger = server.log()
    assert (dry["user"], dry["verb"], dry["method"], dry["path"]) == ("oncall@example.com", "patch", "PATCH", NODE)
    assert (dry["dryRun"], dry["persisted"], dry["query"]) == (True, False, "dryRun=All&fieldManager=me")
    assert (dry["body"], dry["contentType"]) == (CORDON, MERGE_PATCH)
    assert (real["dryRun"], real["persisted"], real["status"]) == (False, True, 200)
    assert (gone["status"], gone["persisted"]) == (404, False)
    assert (stranger["status"], stranger["user"]) == (401, "")
    assert [entry["n"] for entry in server.control("GET", f"requests?since={real['n']}")] == [gone["n"], stranger["n"]]


def test_what_changes_nothing_is_not_persisted(server: Embedded) -> None:
    client = server.client()
    for _ in range(2):
        client.call("PATCH", NODE, CORDON, MERGE_PATCH)
    path = "/api/v1/namespaces/default/configmaps"
    client.send("DELETE", path, labelSelector="of=nobody")
    client.call("POST", path, {"metadata": {"name": "a"}})
    client.send("DELETE", f"{path}/a", {"dryRun": ["All"]})
    client.send("DELETE", f"{path}/a")
    seen = [(entry["method"], entry["persisted"]) for entry in server.log()]
    assert seen == [
        ("PATCH", True),
        ("PATCH", False),
        ("DELETE", False),
        ("POST", True),
        ("DELETE", False),
        ("DELETE", True),
    ]


@pytest.mark.parametrize(
    ("method", "target", "content_type"),
    [
        ("GET", "/api/v1/nodes?labelSelectr=a", ""),
        ("GET", "/api/v1/nodes?sendInitialEvents=true", ""),
        ("GET", "/apis/apps/v1", ""),
        ("GET", "/openapi/v3", ""),
        ("PATCH", NODE, "application/apply-patch+yaml"),
        ("POST", "/api/v1/namespaces/gpu-operator/pods/a/exec", "application/json"),
        ("DELETE", "/api/v1/namespaces/gpu-operator", "application/json"),
        ("DELETE", f"{NODE}?propagationPolicy=Foreground", "application/json"),
    ],
)
def test_what_is_not_implemented_is_501_and_marked(
    server: Embedded, method: str, target: str, content_type: str
) -> None:
    reply = server.client().send(method, target, None if method == "GET" else {}, content_type or "application/json")
    assert (reply.code, reply.body["reason"]) == (501, "NotImplemented")
    (entry,) = server.log()
    assert entry["unsupported"] == reply.body["message"] and not entry["persisted"]


def test_the_log_of_a_container_comes_from_the_fixture(tmp_path: Path) -> None:
    text = f"""
base: {os.path.relpath(SMALL, tmp_path / "fixture")}
logs:
  gpu-operator/nvidia-driver-daemonset-df594/k8s-driver-manager: |
    one
    two
    three
"""
    server = start(tmp_path / "s", cluster(tmp_path, text))
    path = "/api/v1/namespaces/gpu-operator/pods/nvidia-driver-daemonset-df594/log"
    client = server.client()
    assert client.send("GET", path, container="k8s-driver-manager").body == "one\ntwo\nthree\n"
    assert client.send("GET", path, container="k8s-driver-manager", tailLines=2).body == "two\nthree\n"
    assert client.send("GET", path, container="nvidia-driver-ctr").body == ""
    several = client.send("GET", path)
    assert several.code == 400 and "choose one of: [k8s-driver-manager nvidia-driver-ctr]" in several.body["message"]
    assert client.send("GET", path, container="absent").code == 400
    assert client.send("GET", path.replace("df594", "absent")).code == 404
    stop(tmp_path / "s")


def test_requests_at_the_same_time_do_not_lose_a_write(server: Embedded) -> None:
    path = "/api/v1/namespaces/default/configmaps/count"
    server.client().call("POST", path.rpartition("/")[0], {"metadata": {"name": "count"}, "data": {"n": "0"}})

    def count(client: Client) -> None:
        for _ in range(20):
            while True:
                seen = client.call("GET", path)
                seen["data"]["n"] = str(int(seen["data"]["n"]) + 1)
                if client.send("PUT", path, seen).code == 200:
                    break

    threads = [threading.Thread(target=count, args=(server.client(),)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.client().call("GET", path)["data"]["n"] == "100"


WILD = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("a/1", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["metadata", "spec", "status", "name", "labels", "finalizers", "taints", "containers", "data", "key"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=WILD,
    kind=st.sampled_from(["application/json", MERGE_PATCH, STRATEGIC_PATCH, JSON_PATCH]),
    target=st.sampled_from([
        ("PATCH", NODE), ("PATCH", f"{NODE}/status"), ("PUT", NODE), ("POST", "/api/v1/nodes"),
        ("POST", "/api/v1/namespaces/default/pods"), ("POST", "/api/v1/namespaces/default/configmaps"),
        ("POST", "/api/v1/namespaces/gpu-operator/pods/nvidia-driver-daemonset-df594/eviction"),
        ("PATCH", "/api/v1/namespaces/gpu-operator/pods/nvidia-driver-daemonset-df594"),
        ("POST", "/apis/apps/v1/namespaces/default/daemonsets"), ("DELETE", "/api/v1/namespaces/default/pods"),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
        ("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
        ("PATCH", "/apis/nvidia.com/v1/clusterpolicies/cluster-policy"),
    ]),
)  # fmt: skip
def test_no_body_makes_the_server_fall_over(shared: Embedded, body: Any, kind: str, target: tuple[str, str]) -> None:
    reply = shared.client().send(*target, body, kind if target[0] == "PATCH" else "application/json", dryRun="All")
    assert reply.code < 500 or reply.code == 501, reply.body
