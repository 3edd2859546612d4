"""The actors, each on the embedded server and on a real control plane where one is given.

On a real one with its own controllers the DaemonSet controller is not tried: it has a better one.
Not covered: GPU operands.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ApiServer
from embedded_server import SMALL, Embedded, fixture, start, stop

from gpurunbook.embedded.actors.client import MERGE_PATCH, STRATEGIC_PATCH, Client
from gpurunbook.embedded.workloads import tolerates, wanted_on
from tests.eventually import eventually

Play = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def play(apiserver: ApiServer, request: pytest.FixtureRequest) -> Iterator[Play]:
    """Run an actor as a process against the API server under test."""
    if apiserver.kind == "embedded":
        server: Embedded = request.getfixturevalue("embedded")
        access = ["--kubeconfig", server.info["kubeconfig"], "--context", "admin@small"]
    else:
        access = ["--kubeconfig", str(request.getfixturevalue("controlplane").kubeconfig)]
    running = []

    def begin(name: str, **parameters: Any) -> subprocess.Popen[str]:
        line = [
            sys.executable,
            "-m",
            "gpurunbook.embedded.actors",
            name,
            *access,
            "--parameters",
            json.dumps(parameters),
        ]
        running.append(subprocess.Popen(line, stderr=subprocess.PIPE, text=True))
        return running[-1]

    yield begin
    for process in running:
        process.terminate()
        process.communicate(timeout=180)


@pytest.fixture
def node(apiserver: ApiServer) -> Iterator[str]:
    name = apiserver.name("node")
    assert apiserver.send("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": {"gpu": "yes"}}}).code == 201
    yield name
    apiserver.send("DELETE", f"/api/v1/nodes/{name}")


def path_of(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/pods" + (f"/{name}" if name else "")


def place(server: ApiServer, namespace: str, node: str, name: str, **spec: Any) -> str:
    container = {"name": "main", "image": "registry.example/main:1"}
    body = {"metadata": {"name": name}, "spec": {"containers": [container], "nodeName": node, **spec}}
    body["spec"]["tolerations"] = [{"operator": "Exists"}]
    assert server.send("POST", path_of(namespace), body).code == 201
    return path_of(namespace, name)


def cordon(server: ApiServer, node: str, value: bool = True) -> None:
    patch = {"spec": {"unschedulable": value, "taints": [{"key": "example.com/ours", "effect": "NoSchedule"}]}}
    assert server.send("PATCH", f"/api/v1/nodes/{node}", patch, MERGE_PATCH).code == 200


def node_of(server: ApiServer, name: str) -> Any:
    return server.send("GET", f"/api/v1/nodes/{name}").body


def test_kubelets_start_pods_and_let_them_go(apiserver: ApiServer, namespace: str, node: str, play: Play) -> None:
    play("kubelet", nodes=node, stuck=f"{namespace}/stuck", finishing=0)
    path = place(apiserver, namespace, node, "a")
    stuck = place(apiserver, namespace, node, "stuck")
    once = place(apiserver, namespace, node, "once", restartPolicy="Never")
    running = eventually(lambda: (pod := apiserver.send("GET", path).body)["status"]["phase"] == "Running" and pod)
    (container,) = running["status"]["containerStatuses"]
    assert container["imageID"].startswith("registry.example/main@sha256:") and container["ready"] is True
    assert {c["type"]: c["status"] for c in running["status"]["conditions"]}["Ready"] == "True"
    eventually(lambda: apiserver.send("GET", once).body["status"]["phase"] == "Succeeded")
    for target in (path, stuck):
        assert apiserver.send("DELETE", target).code == 200
    eventually(lambda: apiserver.send("GET", path).code == 404)
    assert apiserver.send("GET", stuck).body["status"]["phase"] == "Pending"
    assert "deletionTimestamp" in apiserver.send("GET", stuck).body["metadata"]
    apiserver.send("DELETE", stuck, gracePeriodSeconds=0)


def test_a_cordon_is_fought_as_often_as_was_said(apiserver: ApiServer, node: str, play: Play) -> None:
    fighter = play("fights-cordon", node=node, times=2, delay=0.05)
    for _ in range(2):
        cordon(apiserver, node)
        eventually(lambda: not node_of(apiserver, node)["spec"].get("unschedulable"))
        assert "example.com/ours" in [taint["key"] for taint in node_of(apiserver, node)["spec"]["taints"]]
    assert fighter.wait(timeout=180) == 0
    cordon(apiserver, node)
    assert node_of(apiserver, node)["spec"]["unschedulable"] is True


def test_a_fighter_can_take_the_taints_too(apiserver: ApiServer, node: str, play: Play) -> None:
    cordon(apiserver, node)
    play("fights-cordon", node=node, taints="remove", delay=0).wait(timeout=180)
    spec = node_of(apiserver, node)["spec"]
    assert not spec.get("unschedulable") and "example.com/ours" not in [t["key"] for t in spec.get("taints", ())]


def test_another_operator_cordons_when_something_appears(
    apiserver: ApiServer, namespace: str, node: str, play: Play
) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    when = {"path": leases, "name": "run-.*", "field": "spec.holderIdentity", "equals": "me", "after": 0.05}
    other = play("cordoner", node=node, when=when)
    for name, holder in (("other", "me"), ("run-1", "you")):
        apiserver.send("POST", leases, {"metadata": {"name": name}, "spec": {"holderIdentity": holder}})
    with pytest.raises(subprocess.TimeoutExpired):
        other.wait(timeout=1)
    assert not node_of(apiserver, node)["spec"].get("unschedulable")
    apiserver.send("PATCH", f"{leases}/run-1", {"spec": {"holderIdentity": "me"}}, MERGE_PATCH)
    assert other.wait(timeout=180) == 0
    assert node_of(apiserver, node)["spec"]["unschedulable"] is True


def test_a_pod_lands_as_soon_as_the_node_is_schedulable(
    apiserver: ApiServer, namespace: str, node: str, play: Play
) -> None:
    cordon(apiserver, node)
    lander = play("lands-pods", node=node, namespace=namespace, times=2)
    with pytest.raises(subprocess.TimeoutExpired):
        lander.wait(timeout=1)
    assert apiserver.send("GET", path_of(namespace)).body["items"] == []
    cordon(apiserver, node, value=False)
    assert lander.wait(timeout=180) == 0
    landed = apiserver.send("GET", path_of(namespace)).body["items"]
    assert [pod["spec"]["nodeName"] for pod in landed] == [node, node]
    assert landed[0]["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    for pod in landed:
        apiserver.send("DELETE", path_of(namespace, pod["metadata"]["name"]), gracePeriodSeconds=0)


def test_a_node_leaves_and_joins_as_another_one(apiserver: ApiServer, node: str, play: Play) -> None:
    before = node_of(apiserver, node)
    cordon(apiserver, node)
    apiserver.send("PATCH", f"/api/v1/nodes/{node}", {"metadata": {"annotations": {"ours": "yes"}}}, MERGE_PATCH)
    assert play("node-rejoin", node=node, away=0.1).wait(timeout=180) == 0
    after = node_of(apiserver, node)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["metadata"]["labels"]["gpu"] == "yes" and "ours" not in after["metadata"].get("annotations", {})
    assert not after["spec"].get("unschedulable")


def test_a_wrong_parameter_is_named(apiserver: ApiServer, play: Play) -> None:
    process = play("cordoner", nod="x")
    assert process.wait(timeout=180) == 2
    assert process.stderr is not None and "nod" in process.stderr.read()


# --- beside the server, from cluster.yaml


@pytest.fixture
def controlled(tmp_path: Path) -> Iterator[Client]:
    """The small cluster with kubelets and the DaemonSet controller."""
    text = f"base: {SMALL}\nactors: [{{name: kubelet}}, {{name: daemonset-controller}}]\n"
    server = start(tmp_path / "s", fixture(tmp_path / "fixture", text))
    yield server.client()
    stop(tmp_path / "s")


APPS = "/apis/apps/v1/namespaces/gpu-operator/daemonsets"


def pods_of(client: Client, app: str, **more: str) -> dict[str, Any]:
    """The pods of a DaemonSet by node."""
    items = client.call("GET", path_of("gpu-operator"), labelSelector=f"app={app}", **more)["items"]
    return {pod["spec"]["nodeName"]: pod for pod in items}


def image_of(pod: Any) -> str:
    return str(pod["status"].get("containerStatuses", [{}])[0].get("image", ""))


def update_image(client: Client, name: str, container: str, image: str) -> None:
    patch = {"spec": {"template": {"spec": {"containers": [{"name": container, "image": image}]}}}}
    client.call("PATCH", f"{APPS}/{name}", patch, STRATEGIC_PATCH)


def test_what_is_as_wanted_is_left_alone(controlled: Client) -> None:
    before = controlled.call("GET", path_of("gpu-operator"))["items"]
    look = ("system:gpurunbook:actor:daemonset-controller", "/api/v1/nodes", "")

    def looked() -> int:
        entries = controlled.call("GET", "/_gpurunbook/requests?since=0")
        return sum((entry["user"], entry["path"], entry["query"]) == look for entry in entries)

    for touched in ("once", "twice"):  # the second look begins when the first one is over
        begun = looked()
        patch = {"metadata": {"labels": {"touched": touched}}}
        controlled.call("PATCH", "/api/v1/nodes/gpu-0000", patch, MERGE_PATCH)
        eventually(lambda begun=begun: looked() > begun)
    assert controlled.call("GET", path_of("gpu-operator"))["items"] == before


def test_on_delete_replaces_only_what_was_deleted(controlled: Client) -> None:
    before = pods_of(controlled, "nvidia-driver-daemonset")
    update_image(
        controlled, "nvidia-driver-daemonset", "nvidia-driver-ctr", "nvcr.io/nvidia/driver:590.48.01-ubuntu22.04"
    )
    daemonset = eventually(
        lambda: (
            (d := controlled.call("GET", f"{APPS}/nvidia-driver-daemonset"))["status"]["observedGeneration"] == 2 and d
        )
    )
    assert (daemonset["status"]["updatedNumberScheduled"], daemonset["status"]["numberReady"]) == (0, 3)
    assert pods_of(controlled, "nvidia-driver-daemonset") == before
    controlled.call("DELETE", path_of("gpu-operator", before["gpu-0001"]["metadata"]["name"]))
    eventually(
        lambda: "590.48.01" in image_of(pods_of(controlled, "nvidia-driver-daemonset").get("gpu-0001", {"status": {}}))
    )
    after = pods_of(controlled, "nvidia-driver-daemonset")
    assert {node: pod["metadata"]["uid"] == before[node]["metadata"]["uid"] for node, pod in after.items()} == {
        "gpu-0000": True,
        "gpu-0001": False,
        "gpu-0002": True,
    }
    status = eventually(
        lambda: (s := controlled.call("GET", f"{APPS}/nvidia-driver-daemonset")["status"])["numberReady"] == 3 and s
    )
    assert status["updatedNumberScheduled"] == 1


def test_rolling_update_replaces_one_at_a_time(controlled: Client) -> None:
    name = "nvidia-dcgm-exporter"
    version = controlled.call("GET", path_of("gpu-operator"))["metadata"]["resourceVersion"]
    update_image(controlled, name, "nvidia-dcgm-exporter", "nvcr.io/nvidia/k8s/dcgm-exporter:4.5.0-4.7.0-ubuntu22.04")
    done = eventually(
        lambda: (
            len(pods := pods_of(controlled, name)) == 3
            and all("4.5.0" in image_of(pod) for pod in pods.values())
            and pods.values()
        )
    )
    last = max(int(pod["metadata"]["resourceVersion"]) for pod in done)
    query = {"resourceVersion": version, "timeoutSeconds": 50, "labelSelector": f"app={name}"}
    events = controlled.watch(path_of("gpu-operator"), **query)
    going, most, seen = set(), 0, 0
    while seen < last:
        event = next(events)
        seen = int(event["object"]["metadata"]["resourceVersion"])
        pod = event["object"]
        conditions = {c["type"]: c["status"] for c in pod["status"].get("conditions", ())}
        up = (
            event["type"] != "DELETED"
            and conditions.get("Ready") == "True"
            and "deletionTimestamp" not in pod["metadata"]
        )
        going = going - {pod["spec"]["nodeName"]} if up else going | {pod["spec"]["nodeName"]}
        most = max(most, len(going))
    assert (most, going) == (1, set())


def test_a_new_node_gets_its_pods_and_a_tainted_one_gets_none(controlled: Client) -> None:
    for name, taints in (("gpu-0009", []), ("gpu-0010", [{"key": "example.com/foreign", "effect": "NoSchedule"}])):
        labels = {"nvidia.com/gpu.present": "true", "kubernetes.io/os": "linux"}
        controlled.call(
            "POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}}
        )
    eventually(lambda: "gpu-0009" in pods_of(controlled, "nvidia-driver-daemonset"))

    def canal() -> set[str]:
        items = controlled.call("GET", path_of("kube-system"), labelSelector="k8s-app=canal")["items"]
        return {pod["spec"]["nodeName"] for pod in items}

    eventually(lambda: {"gpu-0009", "gpu-0010"} <= canal())
    assert "gpu-0010" not in pods_of(controlled, "nvidia-driver-daemonset")
    controlled.call("DELETE", "/api/v1/nodes/gpu-0009")
    eventually(lambda: "gpu-0009" not in pods_of(controlled, "nvidia-driver-daemonset"))


def test_the_pods_of_a_daemonset_that_is_gone_go_too(controlled: Client) -> None:
    controlled.call("DELETE", f"{APPS}/gpu-feature-discovery")
    eventually(lambda: not pods_of(controlled, "gpu-feature-discovery"))


def test_an_actor_that_is_done_does_not_act_again_after_a_restart(tmp_path: Path) -> None:
    text = f"base: {SMALL}\nactors: [{{name: cordoner, parameters: {{node: gpu-0001}}}}]\n"
    path = "/api/v1/nodes/gpu-0001"
    server = start(tmp_path / "s", fixture(tmp_path / "fixture", text))
    eventually(lambda: server.client().call("GET", path)["spec"].get("unschedulable"))
    eventually(lambda: (tmp_path / "s" / "actor-0.done").exists())
    server.client().call("PATCH", path, {"spec": {"unschedulable": False}}, MERGE_PATCH)
    assert [entry["user"] for entry in server.log(actor=True, method="PATCH")] == ["system:gpurunbook:actor:cordoner"]
    stop(tmp_path / "s")
    again = start(tmp_path / "s", seed=None)
    assert again.client().call("GET", path)["spec"]["unschedulable"] is False
    assert again.log(actor=True, method="PATCH") == server_log(tmp_path)
    stop(tmp_path / "s")


def server_log(tmp_path: Path) -> list[Any]:
    lines = (tmp_path / "s" / "requests.jsonl").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry["actor"] and entry["method"] == "PATCH"]


def test_actors_meet_faults_and_go_on(tmp_path: Path) -> None:
    text = f"""
base: {SMALL}
actors: [{{name: cordoner, parameters: {{node: gpu-0001}}}}]
faults:
  - {{match: {{method: PATCH}}, action: {{status: 500}}}}
  - {{match: {{method: PATCH}}, action: {{reset: before}}, nth: 2}}
"""
    server = start(tmp_path / "s", fixture(tmp_path / "fixture", text))
    eventually(lambda: server.client().call("GET", "/api/v1/nodes/gpu-0001")["spec"].get("unschedulable"))
    # The node is seen before the answer to its change is logged.
    assert eventually(lambda: len(log := server.log(method="PATCH")) == 3 and [e["status"] for e in log]) == [
        500,
        0,
        200,
    ]
    stop(tmp_path / "s")


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "a", "operator": "Exists"}, True),
        ({"key": "a", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "a", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "a", "value": "1"}, True),
        ({"key": "a", "operator": "Equal", "value": "2"}, False),
        ({"key": "a"}, False),
        ({"key": "b", "operator": "Exists"}, False),
    ],
)
def test_tolerations(toleration: Any, tolerated: bool) -> None:
    assert tolerates([toleration], {"key": "a", "value": "1", "effect": "NoSchedule"}) is tolerated


def test_where_a_daemonset_wants_pods() -> None:
    template = {"spec": {"nodeSelector": {"gpu": "yes"}, "tolerations": [{"key": "own", "operator": "Exists"}]}}
    daemonset = {"kind": "DaemonSet", "spec": {"template": template}}

    def seen(labels: dict[str, str], *taints: tuple[str, str]) -> tuple[bool, bool]:
        listed = [{"key": key, "effect": effect} for key, effect in taints]
        return wanted_on(daemonset, {"metadata": {"labels": labels}, "spec": {"taints": listed}})

    assert seen({"gpu": "yes"}) == (True, True)
    assert seen({}) == (False, False)
    assert seen({"gpu": "yes"}, ("own", "NoExecute"), ("node.kubernetes.io/unschedulable", "NoSchedule")) == (
        True,
        True,
    )
    assert seen({"gpu": "yes"}, ("foreign", "NoSchedule")) == (False, True)
    assert seen({"gpu": "yes"}, ("foreign", "NoExecute")) == (False, False)
    assert seen({"gpu": "yes"}, ("foreign", "PreferNoSchedule")) == (True, True)


def test_the_fixture_and_the_controller_agree_on_the_revision(controlled: Client) -> None:
    for daemonset in controlled.call("GET", "/apis/apps/v1/daemonsets")["items"]:
        status = daemonset["status"]
        assert status["updatedNumberScheduled"] == status["desiredNumberScheduled"] >= 3, daemonset["metadata"]["name"]
