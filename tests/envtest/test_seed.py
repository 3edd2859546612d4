"""Fixture clusters on the real control plane look as they do on the embedded server.

Covered: the images that run, by workload, node and container; nodes, cordons and their taints; what one fixture had and
the next has not is gone; pods of the fixture's own with their status; what cannot be shown is refused.
Not covered: what a runbook says of them (tests/cluster/test_scenarios.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpurunbook.embedded import fixture
from gpurunbook.embedded.actors.client import Client
from gpurunbook.embedded.resources import Catalog
from gpurunbook.embedded.seed import fill
from gpurunbook.embedded.store import Store
from tests.envtest.controlplane import ControlPlane
from tests.envtest.seed import Seeder, Unseedable

pytestmark = pytest.mark.envtest

CLUSTERS = Path(__file__).parents[2] / "parameters" / "clusters"
Obj = dict[str, Any]
Running = set[tuple[str, str, str, str, str]]


@pytest.fixture(scope="module")
def admin(fixtureplane: tuple[ControlPlane, Seeder]) -> Client:
    return Client.of_kubeconfig(fixtureplane[0].kubeconfig)


@pytest.fixture(scope="module")
def seeder(fixtureplane: tuple[ControlPlane, Seeder]) -> Seeder:
    return fixtureplane[1]


def embedded(folder: Path) -> Store:
    store = Store()
    fill(store, Catalog(), fixture.load(folder))
    return store


def running(pods: list[Obj]) -> Running:
    """Of every container: namespace, node (unless a scheduler chose it), name, image and image id."""
    found: Running = set()
    for pod in pods:
        bound = [owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences", ())]
        node = pod["spec"]["nodeName"] if all(bound) else ""
        status = pod["status"]
        for said in [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]:
            found.add((pod["metadata"]["namespace"], node, said["name"], said["image"], said["imageID"]))
    return found


def on_plane(admin: Client, store: Store) -> Running:
    namespaces = {entry.name[0] for entry in store.all(("", "pods"))}
    pods = admin.call("GET", "/api/v1/pods")["items"]
    return running([pod for pod in pods if pod["metadata"]["namespace"] in namespaces])


@pytest.mark.parametrize("name", ["audit-latest", "small", "audit-never-started", "cordon-tolerated"])
def test_the_same_images_run_as_on_the_embedded_server(admin: Client, seeder: Seeder, name: str) -> None:
    store = embedded(CLUSTERS / name)
    seeder.show(CLUSTERS / name)
    assert on_plane(admin, store) == running([entry.object() for entry in store.all(("", "pods"))])


def test_nodes_are_marked_as_in_the_fixture_and_as_controllers_mark_them(admin: Client, seeder: Seeder) -> None:
    seeder.show(CLUSTERS / "cordon-another")
    store = embedded(CLUSTERS / "cordon-another")
    wanted = {e.name[1]: e.object()["spec"] for e in store.all(("", "nodes"))}
    seen = {node["metadata"]["name"]: node["spec"] for node in admin.call("GET", "/api/v1/nodes")["items"]}
    assert any(spec.get("unschedulable") for spec in wanted.values())
    for name, spec in wanted.items():
        taints = {(t["key"], t["effect"]) for t in spec.get("taints", ())}
        if spec.get("unschedulable"):
            taints.add(("node.kubernetes.io/unschedulable", "NoSchedule"))
        assert bool(seen[name].get("unschedulable")) == bool(spec.get("unschedulable")), name
        assert {(t["key"], t["effect"]) for t in seen[name].get("taints", ())} == taints, name


def test_what_the_next_fixture_has_not_is_gone(admin: Client, seeder: Seeder) -> None:
    seeder.show(CLUSTERS / "cordon-autoscaler")
    status = "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status"
    assert admin.send("GET", status).code == 200
    seeder.show(CLUSTERS / "audit-empty-namespace")
    assert admin.send("GET", status).code == 404
    assert admin.send("GET", "/api/v1/namespaces/gpu-extra").code == 200
    lease = "/apis/coordination.k8s.io/v1/namespaces/gpu-operator/leases"
    admin.call("POST", lease, {"metadata": {"name": "left-behind", "finalizers": ["example.org/held"]}})
    place = "/api/v1/namespaces/gpu-operator/pods"
    spec = {"containers": [{"name": "main", "image": "x:1"}], "nodeName": "gpu-0001"}
    admin.call("POST", place, {"metadata": {"name": "stranger"}, "spec": spec})
    admin.merge("/api/v1/nodes/gpu-0001", {"spec": {"unschedulable": True}, "metadata": {"labels": {"odd": "yes"}}})
    seeder.show(CLUSTERS / "small")
    assert admin.send("GET", "/api/v1/namespaces/gpu-extra").code == 404
    assert admin.send("GET", f"{place}/stranger").code == 404
    assert admin.call("GET", lease)["items"] == []
    node = admin.call("GET", "/api/v1/nodes/gpu-0001")
    assert "unschedulable" not in node["spec"]
    assert "odd" not in node["metadata"]["labels"]


@pytest.mark.parametrize(("name", "why"), [("audit-throttled", "faults"), ("promotion-gate-opened", "editor reads")])
def test_what_only_the_embedded_server_can_show_is_refused(seeder: Seeder, name: str, why: str) -> None:
    with pytest.raises(Unseedable, match=why):
        seeder.show(CLUSTERS / name)
