"""Every scenario marked `cluster: true` on the real control plane, under exactly the role that the project ships.

Covered: each comes to what is expected of it, as on the embedded server, and no request is answered 403; each
permission of each runbook, taken out of the role alone, is the one that its run reports.
Not covered: scenarios of a cluster that only the embedded server can play (faults, other runtimes, old versions).
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpurunbook.declared.book import Permission
from gpurunbook.declared.runbooks import declared
from gpurunbook.embedded.actors.client import Client
from gpurunbook.errors import Denied
from gpurunbook.folder import parameters
from gpurunbook.headless.batch import in_home
from gpurunbook.headless.chain import Chain
from gpurunbook.headless.expectation import Deed, Scenario
from gpurunbook.runbook import given, permissions
from gpurunbook.runbook.site import Site, load
from gpurunbook.runbook.start import open_run
from gpurunbook.sources.cluster import Cluster
from gpurunbook.sources.connection import Connection
from gpurunbook.sources.connection import load as configuration
from tests.envtest import controlplane as envtest
from tests.envtest import rivals
from tests.envtest.seed import Seeder, users
from tests.eventually import eventually

pytestmark = pytest.mark.envtest

ROOT = Path(__file__).parents[2]
MARKED = [scenario for scenario in in_home(ROOT) if scenario.expected.cluster]
RUNBOOKS = sorted(path.stem for path in (ROOT / "runbooks").glob("*.ipynb"))
CLUSTERS = ROOT / "parameters" / "clusters"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
GENEROUS = "sre"
"""The binding of the fixtures that lets on-call read everything; the shipped role takes its place."""


@dataclass
class Stage:
    """A control plane that shows a fixture, and its on-call as the operator.

    generous: the fixture let on-call do everything, which was taken away; else it says itself what is allowed.
    """

    plane: envtest.ControlPlane
    admin: Client
    operator: Path
    generous: bool
    fixture: Path
    grants: Iterator[int] = field(default_factory=itertools.count)

    def allow(self, runbook: str, wanted: Sequence[Permission]) -> None:
        """Gives the operator these permissions and no others.

        What was given before is taken away afterwards, and nothing has a name twice: the API server learns of each kind
        of object by itself, and what is in both must be allowed all the time.
        """
        number, old = next(self.grants), self.given()
        for role in filter(None, yaml.safe_load_all(permissions.role(runbook, wanted))):
            meta, kind = role["metadata"], role["kind"]
            meta |= {"name": f"{meta['name']}-{number}", "labels": {"shipped": "yes"}}
            place = ""
            if "namespace" in meta:
                place = f"/namespaces/{meta['namespace']}"
                self.admin.send("POST", "/api/v1/namespaces", {"metadata": {"name": meta["namespace"]}})
            self.admin.call("POST", f"{RBAC}{place}/{kind.lower()}s", role)
            subject = {"kind": "User", "name": self.name, "apiGroup": "rbac.authorization.k8s.io"}
            ref = {"kind": kind, "name": meta["name"], "apiGroup": "rbac.authorization.k8s.io"}
            binding = {"metadata": meta, "roleRef": ref, "subjects": [subject]}
            self.admin.call("POST", f"{RBAC}{place}/{kind.lower()}bindings", binding)

        for path in old:
            self.admin.call("DELETE", path)

    def given(self) -> list[str]:
        """The paths of all roles and bindings that were given."""
        found = []
        for kind in ("roles", "rolebindings", "clusterroles", "clusterrolebindings"):
            for obj in self.admin.call("GET", f"{RBAC}/{kind}", labelSelector="shipped=yes")["items"]:
                meta = obj["metadata"]
                place = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
                found.append(f"{RBAC}{place}/{kind}/{meta['name']}")
        return found

    @property
    def name(self) -> str:
        """The operator's name at the API server, and the context of the kubeconfig."""
        return str(yaml.safe_load(self.operator.read_text())["current-context"])

    def cluster(self) -> Cluster:
        return Cluster(self.name, Connection(configuration(self.name, str(self.operator))))

    def administer(self, deed: Deed) -> None:
        if deed.merge is not None:
            self.admin.merge(deed.path, deed.merge)
        else:
            self.admin.call("POST", deed.path, deed.create)


@pytest.fixture(scope="module")
def on_stage(fixtureplane: tuple[envtest.ControlPlane, Seeder]) -> Callable[[Path], Stage]:
    """Makes the control plane show a fixture, as it is before anything has run."""
    plane, seeder = fixtureplane
    admin = Client.of_kubeconfig(plane.kubeconfig)

    def show(fixture: Path) -> Stage:
        seeder.show(fixture)
        generous = admin.send("DELETE", f"{RBAC}/clusterrolebindings/{GENEROUS}").code == 200
        return Stage(plane, admin, users(plane, fixture)["oncall"], generous, fixture)

    return show


def fixture_of(scenario: Scenario) -> Path:
    values = given.gather(declared(scenario.runbook), [scenario.file])
    return ROOT / "parameters" / str(values["cluster"]).removeprefix("embedded:")


def wanted(scenario: Scenario, home: Path) -> list[Permission]:
    book = declared(scenario.runbook)
    values = given.gather(book, [scenario.file])
    return permissions.needed(book, parameters.load(book, values), load(home, str(values.get("site", ""))))


def named(scenario: Scenario) -> str:
    return f"{scenario.runbook}-{scenario.name}"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A copy of what a run reads, so that keys and runs of a scenario stay out of the checkout."""
    for name in ("runbooks", "parameters"):
        shutil.copytree(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("scenario", MARKED, ids=named)
def test_a_scenario_comes_to_the_same_on_a_real_control_plane(
    scenario: Scenario, home: Path, on_stage: Callable[[Path], Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = on_stage(fixture_of(scenario))
    monkeypatch.setenv("KUBECONFIG", str(stage.operator))
    if stage.generous:
        cluster, needed = stage.cluster(), wanted(scenario, home)
        eventually(lambda: cluster.missing(needed) == needed)  # until the server knows that all was taken away
        stage.allow(scenario.runbook, needed)
        eventually(lambda: not cluster.missing(needed))
    before = len(stage.plane.requests(stage.name))
    out = home / "outputs"
    chain = Chain(
        scenario,
        home=home,
        out=out,
        clusters=out / ".clusters",
        cell_seconds=240,
        cluster=stage.name,
        administer=stage.administer,
    )
    with rivals.at_work(stage.plane, stage.fixture):
        links = chain.run()
    assert [(link.what, link.missed, link.trouble) for link in links if link.missed or link.trouble] == []
    assert links
    sent = stage.plane.requests(stage.name)[before:]
    assert sent
    assert [told(event) for event in sent if event["responseStatus"]["code"] in (401, 403)] == []


def told(event: dict[str, Any]) -> str:
    return f"{event['responseStatus']['code']} {event['verb']} {event['requestURI']}"


@pytest.mark.parametrize("runbook", RUNBOOKS)
def test_each_permission_taken_away_is_the_one_that_a_run_reports(
    runbook: str, home: Path, on_stage: Callable[[Path], Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = on_stage(CLUSTERS / "small")
    for name, value in {
        "KUBECONFIG": stage.operator,
        "GPURUNBOOK_HOME": home,
        "GPURUNBOOK_OUT": home / "outputs",
    }.items():
        monkeypatch.setenv(name, str(value))
    book = declared(runbook)
    values = {"cluster": stage.name} | ({"node": "gpu-0000"} if runbook == "node_cordon" else {})
    needed = permissions.needed(book, parameters.load(book, values), Site())
    cluster = stage.cluster()
    for gone in needed:
        stage.allow(runbook, [permission for permission in needed if permission != gone])
        eventually(lambda gone=gone: cluster.missing(needed) == [gone])
        with pytest.raises(Denied) as refused:
            open_run(book, values)
        assert refused.value.code == "permission-missing"
        assert refused.value.message.endswith(f" may not: {permissions.spell(gone)}")
