"""The real control plane starts, knows its users, plays kubelets, and leaves nothing behind.

Covered: pinned versions, rehearsal mark, users by certificate and token, RBAC, the request log, DaemonSets with
OnDelete, Jobs, garbage collection, the taint of a cordon, imageIDs as the embedded kubelet writes them, held pods,
compaction; the end by stop, by death of the test process, and by death of the supervisor; what is said when programs
are missing. Not covered: behaviour of the API itself (tests/cluster), node failure.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpurunbook.embedded.actors.client import Client
from gpurunbook.embedded.workloads import image_id
from tests.envtest import controlplane as envtest
from tests.envtest.controlplane import ControlPlane
from tests.eventually import eventually
from tests.tools.build import GROUPS

pytestmark = pytest.mark.envtest

Obj = dict[str, Any]
PINNED = "sha256:" + "0123456789abcdef" * 4
NAMES = itertools.count()


@pytest.fixture(scope="module")
def admin(controlplane: ControlPlane) -> Client:
    return Client.of_kubeconfig(controlplane.kubeconfig)


@pytest.fixture
def namespace(admin: Client) -> str:
    name = f"controlplane-{next(NAMES)}"
    admin.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return name


@pytest.fixture
def node(admin: Client) -> Iterator[str]:
    with played(admin) as name:
        yield name


@contextmanager
def played(admin: Client) -> Iterator[str]:
    """A node that kwok plays, once it is usable."""
    name = f"played-{next(NAMES)}"
    labels, mark = {"role": name}, {"kwok.x-k8s.io/node": "fake"}
    admin.call("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels, "annotations": mark}})
    eventually(lambda: ready(admin, name) and taints(admin, name) == [])
    yield name
    admin.call("DELETE", f"/api/v1/nodes/{name}")


def ready(admin: Client, node: str) -> bool:
    conditions = admin.call("GET", f"/api/v1/nodes/{node}")["status"].get("conditions", [])
    return {"Ready": "True"}.items() <= {c["type"]: c["status"] for c in conditions}.items()


def taints(admin: Client, node: str) -> list[tuple[str, str]]:
    return [(t["key"], t["effect"]) for t in admin.call("GET", f"/api/v1/nodes/{node}")["spec"].get("taints", [])]


def template(*images: str, **spec: Any) -> Obj:
    containers = [{"name": f"c{number}", "image": image} for number, image in enumerate(images)]
    return {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": containers, **spec}}


def pods(admin: Client, namespace: str) -> list[Obj]:
    found: list[Obj] = admin.call("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    return found


def running(admin: Client, namespace: str) -> list[Obj]:
    return [p for p in pods(admin, namespace) if p["status"]["phase"] == "Running"]


@pytest.mark.parametrize("program", envtest.COMPONENTS)
def test_the_programs_are_the_pinned_ones(program: str) -> None:
    module = next(m for m in GROUPS["envtest"] if program in m.programs)
    said = subprocess.run([envtest.assets() / program, "--version"], capture_output=True, text=True, check=True)
    assert module.version.removeprefix("v") in said.stdout.replace("\n", " ").replace("v", " ").split()


def test_it_serves_the_pinned_version_and_says_it_is_a_rehearsal(admin: Client) -> None:
    kubernetes = next(m for m in GROUPS["envtest"] if "kube-apiserver" in m.programs)
    version = admin.call("GET", "/version")
    assert version["gitVersion"] == kubernetes.version
    assert f"v{version['major']}.{version['minor']}." == kubernetes.version[: len("v1.35.")]
    marked = admin.call("GET", "/api/v1/namespaces/kube-system")["metadata"]
    assert envtest.REHEARSAL in marked["annotations"]


@pytest.mark.parametrize(
    ("name", "groups"), [("jane@example.com", ("sre",)), ("a/b+c=d\\e", ("x/y", "sre+leads")), ("zoë", ())]
)
def test_a_certificate_makes_any_user(controlplane: ControlPlane, name: str, groups: tuple[str, ...]) -> None:
    user = Client.of_kubeconfig(controlplane.user(name, *groups))
    review = user.call("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})["status"]["userInfo"]
    assert review["username"] == name
    assert set(review["groups"]) == {*groups, "system:authenticated"}


@pytest.mark.parametrize(("name", "group"), [("oncall", "sre"), ("approver", "sre-leads")])
def test_a_token_makes_the_two_known_users(controlplane: ControlPlane, name: str, group: str) -> None:
    user = Client.of_kubeconfig(controlplane.token(name))
    review = user.call("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})["status"]["userInfo"]
    assert (review["username"], review["groups"][0]) == (f"{name}@example.com", group)


def test_a_user_may_do_what_roles_say_and_every_request_is_known(
    controlplane: ControlPlane, admin: Client, namespace: str
) -> None:
    user = Client.of_kubeconfig(controlplane.user("reader", "readers"))
    place = f"/api/v1/namespaces/{namespace}/configmaps"
    assert user.send("GET", place).code == 403
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]
    admin.call("POST", f"{rbac}/roles", {"metadata": {"name": "r"}, "rules": rules})
    subject = {"kind": "Group", "name": "readers", "apiGroup": "rbac.authorization.k8s.io"}
    role = {"kind": "Role", "name": "r", "apiGroup": "rbac.authorization.k8s.io"}
    admin.call("POST", f"{rbac}/rolebindings", {"metadata": {"name": "r"}, "roleRef": role, "subjects": [subject]})
    eventually(lambda: user.send("GET", place).code == 200)
    assert user.send("GET", f"{place}/a").code == 403
    known = [(e["verb"], e["requestURI"], e["responseStatus"]["code"]) for e in controlplane.requests("reader")]
    assert known[0] == ("list", place, 403)
    assert known[-2:] == [("list", place, 200), ("get", f"{place}/a", 403)]
    assert not controlplane.requests("system:kube-scheduler")


def test_a_daemonset_with_ondelete_makes_a_pod_anew_and_takes_its_pods_along(
    admin: Client, namespace: str, node: str
) -> None:
    place = f"/apis/apps/v1/namespaces/{namespace}/daemonsets"
    spec = {
        "selector": {"matchLabels": {"app": "a"}},
        "updateStrategy": {"type": "OnDelete"},
        "template": template("registry.example/driver:1", nodeSelector={"role": node}),
    }
    admin.call("POST", place, {"metadata": {"name": "d"}, "spec": spec})
    (old,) = eventually(lambda: running(admin, namespace))
    assert old["spec"]["nodeName"] == node
    admin.merge(f"{place}/d", {"spec": {"template": template("registry.example/driver:2")}})
    eventually(lambda: admin.call("GET", f"{place}/d")["status"]["observedGeneration"] == 2)
    assert [p["metadata"]["uid"] for p in pods(admin, namespace)] == [old["metadata"]["uid"]]
    admin.call("DELETE", f"/api/v1/namespaces/{namespace}/pods/{old['metadata']['name']}")
    (new,) = eventually(
        lambda: [p for p in running(admin, namespace) if p["metadata"]["uid"] != old["metadata"]["uid"]]
    )
    assert new["spec"]["containers"][0]["image"] == "registry.example/driver:2"
    admin.call("DELETE", f"{place}/d")
    eventually(lambda: pods(admin, namespace) == [])


def test_a_job_completes(admin: Client, namespace: str, node: str) -> None:
    spec = {"template": template("registry.example/canary:1", restartPolicy="Never", nodeSelector={"role": node})}
    place = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    admin.call("POST", place, {"metadata": {"name": "j"}, "spec": spec})
    status = eventually(lambda: (s := admin.call("GET", f"{place}/j")["status"]).get("completionTime") and s)
    assert status["succeeded"] == 1
    (ended,) = pods(admin, namespace)[0]["status"]["containerStatuses"]
    assert ended["imageID"] == image_id("registry.example/canary:1", "containerd")
    assert ended["state"]["terminated"]["exitCode"] == 0


def test_containers_get_the_image_ids_that_the_embedded_kubelet_writes(
    admin: Client, namespace: str, node: str
) -> None:
    images = [
        "registry.example/a:1",
        "registry.example:5000/team/b",
        f"registry.example:5000/team/c:v1@{PINNED}",
        f"d@{PINNED}",
        "e:latest",
    ]
    starts = [
        {"name": "once", "image": "registry.example/init:1"},
        {"name": "stays", "image": "registry.example/sidecar:1", "restartPolicy": "Always"},
    ]
    body = {"metadata": {"name": "p"}, "spec": template(*images, nodeName=node, initContainers=starts)["spec"]}
    admin.call("POST", f"/api/v1/namespaces/{namespace}/pods", body)
    status = eventually(lambda: running(admin, namespace))[0]["status"]
    assert [c["imageID"] for c in status["containerStatuses"]] == [image_id(i, "containerd") for i in images]
    once, stays = status["initContainerStatuses"]
    assert "terminated" in once["state"]
    assert "running" in stays["state"]
    assert once["imageID"] == image_id("registry.example/init:1", "containerd")
    assert {c["type"]: c["status"] for c in status["conditions"]}["Ready"] == "True"


def test_a_held_pod_stays_as_it_is(admin: Client, namespace: str, node: str) -> None:
    place = f"/api/v1/namespaces/{namespace}/pods"
    held = {"envtest.gpurunbook.io/hold": "true"}
    for name, mark in (("held", held), ("free", {})):
        body = {"metadata": {"name": name, "annotations": mark}}
        admin.call("POST", place, body | {"spec": template("registry.example/a:1", nodeName=node)["spec"]})
    eventually(lambda: running(admin, namespace))
    admin.call("DELETE", f"{place}/held")
    admin.call("DELETE", f"{place}/free")
    eventually(lambda: len(pods(admin, namespace)) == 1)
    (left,) = pods(admin, namespace)
    assert (left["metadata"]["name"], left["status"]["phase"]) == ("held", "Pending")
    admin.merge(f"{place}/held", {"metadata": {"annotations": {"envtest.gpurunbook.io/hold": None}}})
    eventually(lambda: pods(admin, namespace) == [])


def test_a_node_is_kept_alive_by_a_lease(admin: Client, node: str) -> None:
    place = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}"
    lease = eventually(lambda: (reply := admin.send("GET", place)).code == 200 and reply.body)
    renewed = lease["spec"]["renewTime"]
    eventually(lambda: admin.call("GET", place)["spec"]["renewTime"] != renewed)


def test_a_cordon_brings_the_controllers_taint(admin: Client, node: str) -> None:
    admin.merge(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
    eventually(lambda: taints(admin, node) == [("node.kubernetes.io/unschedulable", "NoSchedule")])


def test_a_node_without_the_annotation_has_no_kubelet(admin: Client) -> None:
    admin.call("POST", "/api/v1/nodes", {"metadata": {"name": "unplayed"}})
    with played(admin):  # kwok has dealt with a later node than this one
        status = admin.call("GET", "/api/v1/nodes/unplayed")["status"]
    # Of a node whose kubelet never spoke the node lifecycle controller says after a minute that nothing is known.
    assert {c["status"] for c in status.get("conditions", [])} <= {"Unknown"}
    assert not status["nodeInfo"]["kubeletVersion"]
    admin.call("DELETE", "/api/v1/nodes/unplayed")


def test_compaction_forgets_the_past(controlplane: ControlPlane, admin: Client, namespace: str) -> None:
    place = f"/api/v1/namespaces/{namespace}/configmaps"
    for name in "abc":
        admin.call("POST", place, {"metadata": {"name": name}})
    version = admin.call("GET", place)["metadata"]["resourceVersion"]
    admin.call("POST", place, {"metadata": {"name": "d"}})
    exact = {"resourceVersion": version, "resourceVersionMatch": "Exact", "limit": 500}
    controlplane.compact()
    eventually(lambda: admin.send("GET", place, **exact).code == 410)


# --- the end


def gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_stopping_ends_the_processes_and_removes_the_folder() -> None:
    plane = envtest.start()
    assert not gone(list(plane.pids.values()))
    plane.stop()
    assert gone(list(plane.pids.values()))
    assert not plane.folder.exists()
    plane.stop()


ORPHAN = """
import json, signal
from tests.envtest import controlplane
plane = controlplane.start()
print(json.dumps([str(plane.folder), plane._supervisor.pid, list(plane.pids.values())]), flush=True)
signal.pause()
"""


def orphan() -> tuple[subprocess.Popen[str], Path, int, list[int]]:
    root = Path(envtest.__file__).parents[2]
    parent = subprocess.Popen([sys.executable, "-c", ORPHAN], cwd=root, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    folder, supervisor, pids = json.loads(parent.stdout.readline())
    parent.stdout.close()
    return parent, Path(folder), supervisor, pids


def test_the_death_of_the_test_process_ends_everything() -> None:
    parent, folder, supervisor, pids = orphan()
    assert not gone(pids)
    parent.kill()
    parent.wait()
    eventually(lambda: gone([supervisor, *pids]) and not folder.exists())


def test_the_death_of_the_supervisor_ends_the_processes() -> None:
    parent, folder, supervisor, pids = orphan()
    os.kill(supervisor, signal.SIGKILL)
    eventually(lambda: gone(pids))
    parent.kill()
    parent.wait()
    subprocess.run(["rm", "-r", folder], check=True)


def test_the_death_of_one_process_ends_the_others() -> None:
    with envtest.start() as plane:
        os.kill(plane.pids["etcd"], signal.SIGKILL)
        eventually(lambda: gone(list(plane.pids.values())))


# --- missing programs


@pytest.mark.parametrize(("ci", "outcome"), [("true", "1 error"), ("", "1 skipped")])
def test_missing_programs_fail_in_ci_and_are_a_skip_elsewhere(tmp_path: Path, ci: str, outcome: str) -> None:
    root = Path(envtest.__file__).parents[2]
    this = f"{Path(__file__)}::test_it_serves_the_pinned_version_and_says_it_is_a_rehearsal"
    env = {**os.environ, "KUBEBUILDER_ASSETS": str(tmp_path), "CI": ci}
    line = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", this]
    done = subprocess.run(line, cwd=root, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert "make envtest" in done.stdout
    assert outcome in done.stdout
    assert done.returncode == (1 if ci else 0)
