"""The promotion's main scenario on the real control plane, under the shipped role, while the admission policy denies.

Covered: every pod of the GPU namespaces is made by the real controllers under the policy of the release, which refuses
any other image; the run passes with a bundle of a canary on this cluster, is answered no 403, and proposes the same
policy. Not covered: the other scenarios (embedded), kubelets.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpurunbook.declared.runbooks import declared
from gpurunbook.embedded.actors.client import Client
from gpurunbook.evidence.seal import manifest_digest
from gpurunbook.folder import parameters
from gpurunbook.headless import execute
from gpurunbook.runbook import given, permissions
from gpurunbook.runbook.site import Site
from gpurunbook.sources.cluster import Cluster
from gpurunbook.sources.connection import Connection, load
from gpurunbook.supply import admission
from tests.conftest import started
from tests.envtest.controlplane import ControlPlane
from tests.envtest.seed import Seeder
from tests.eventually import eventually
from tests.unit import promotion_fixtures as fixtures

pytestmark = pytest.mark.envtest

ROOT = Path(__file__).parents[2]
PROMOTION = ROOT / "parameters" / "promotion"
CLUSTER = ROOT / "parameters" / "clusters" / "promotion-upgraded"
OLD_DRIVER = "driver-9c3f76dd"
"""Evidence of the released driver, which no node runs here."""

OPERATOR = "oncall@example.com"
NAMESPACES = ["gpu-operator", "hami-system"]
VAP = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture(scope="module")
def controlplane() -> Iterator[ControlPlane]:
    """One of its own: the policy refuses the pods of every other test."""
    with started() as plane:
        yield plane


@pytest.fixture
def enforced(controlplane: ControlPlane) -> Iterator[Client]:
    """The plane with the release's policy in Deny, and then the workloads of the release on it."""
    admin = Client.of_kubeconfig(controlplane.kubeconfig)
    release = admission.Release(
        admission.images_of((PROMOTION / "canary" / "after" / "audit.json").read_bytes()),
        admission.images_of((ROOT / "parameters" / "provenance_audit" / "data" / "baseline.json").read_bytes()),
        {},
        {},
        NAMESPACES,
    )
    config, policy, binding = admission.manifests(release, enforcement="deny")
    for path, body in ((config_maps(), config), (VAP, policy), (f"{VAP.removesuffix('ies')}ybindings", binding)):
        admin.call("POST", path, body)
    for namespace in NAMESPACES:
        admin.send("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    eventually(lambda: strange(admin).code == 403)
    seeder = Seeder(admin)  # it leaves alone what is there already: the policy
    try:
        seeder.show(CLUSTER)
        yield admin
    finally:
        eventually(lambda: not list(seeder._superfluous({})))
        for path in (f"{VAP.removesuffix('ies')}ybindings", VAP, config_maps()):
            admin.send("DELETE", f"{path}/{admission.NAME}")


def config_maps() -> str:
    return "/api/v1/namespaces/kube-system/configmaps"


def strange(admin: Client) -> Any:
    spec = {"containers": [{"name": "c", "image": "docker.io/someone/miner:v1"}]}
    body = {"metadata": {"generateName": "strange-"}, "spec": spec}
    return admin.send("POST", "/api/v1/namespaces/gpu-operator/pods", body, dryRun="All")


def allow(admin: Client, operator: Cluster, wanted: list[Any]) -> None:
    """Gives the operator what the project's role says, and nothing else, and waits until the server knows both."""
    for binding in admin.call("GET", f"{RBAC}/clusterrolebindings")["items"]:
        if binding["metadata"]["name"] in ("sre", "sre-leads"):
            admin.call("DELETE", f"{RBAC}/clusterrolebindings/{binding['metadata']['name']}")
    eventually(lambda: operator.missing(wanted) == wanted)
    for role in yaml.safe_load_all(permissions.role("promotion", wanted)):
        kind, meta = role["kind"], role["metadata"]
        place = f"{RBAC}/namespaces/{meta['namespace']}" if "namespace" in meta else RBAC
        subject = {"kind": "User", "name": OPERATOR, "apiGroup": "rbac.authorization.k8s.io"}
        reference = {"kind": kind, "name": meta["name"], "apiGroup": "rbac.authorization.k8s.io"}
        admin.call("POST", f"{place}/{kind.lower()}s", role)
        admin.call(
            "POST", f"{place}/{kind.lower()}bindings", {"metadata": meta, "roleRef": reference, "subjects": [subject]}
        )
    eventually(lambda: not operator.missing(wanted))


def test_the_release_is_promoted_while_admission_denies_everything_else(
    controlplane: ControlPlane, enforced: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    for name in ("runbooks", "parameters"):
        shutil.copytree(ROOT / name, home / name)
    evidence = home / "parameters" / "promotion" / "evidence"
    shutil.rmtree(evidence / OLD_DRIVER)
    uid = enforced.call("GET", "/api/v1/namespaces/kube-system")["metadata"]["uid"]
    values = given.gather(declared("promotion"), [PROMOTION / "approve.yaml"], cluster=OPERATOR)
    values |= canary_of(uid, home) | {
        "rollback": str(of_cluster(uid, "baseline.json", tmp_path)),
        "evidence": str(evidence),
        "enforcement": "deny",
        "canary_nodes": ["gpu-0000", "gpu-0001", "gpu-0002"],
    }
    wanted = permissions.needed(declared("promotion"), parameters.load(declared("promotion"), values), Site())
    kubeconfig = controlplane.user(OPERATOR, "sre")
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    allow(enforced, Cluster("", Connection(load("", str(kubeconfig)))), wanted)
    before = len(controlplane.requests(OPERATOR))
    outcome = execute.run("promotion", values, home=home, out=home / "outputs", cell_seconds=600)
    assert (str(outcome.verdict), outcome.code, outcome.evidence) == ("pass", "all-steps-passed", "sealed"), outcome
    sent = controlplane.requests(OPERATOR)[before:]
    assert sent and {event["verb"] for event in sent} <= {"get", "list", "create"}
    assert all(event["objectRef"]["resource"].startswith("selfsubject") for event in sent if event["verb"] == "create")
    assert [event["requestURI"] for event in sent if event["responseStatus"]["code"] in (401, 403)] == []
    config, policy, binding = yaml.safe_load_all((outcome.run_dir / "after" / "admission.yaml").read_bytes())
    installed = enforced.call("GET", f"{VAP}/{admission.NAME}")["spec"]
    assert policy["spec"]["validations"] == installed["validations"]
    assert binding["spec"]["validationActions"] == ["Deny", "Audit"]
    enforced.call("PUT", f"{config_maps()}/{admission.NAME}", config)
    assert strange(enforced).code == 403
    running = enforced.call("GET", "/api/v1/namespaces/gpu-operator/pods")["items"]
    assert len(running) > 15 and all(pod["status"]["phase"] in ("Running", "Succeeded") for pod in running)


def of_cluster(uid: str, name: str, folder: Path) -> Path:
    """An audit of the fixtures as one of this cluster."""
    audit = json.loads((ROOT / "parameters" / "provenance_audit" / "data" / name).read_bytes())
    path = folder / name
    path.write_text(json.dumps({**audit, "cluster": uid}))
    return path


def canary_of(uid: str, home: Path) -> dict[str, str]:
    """The canary's bundle, with all nodes upgraded, as a run on this cluster."""
    files = {name: (PROMOTION / "canary" / "after" / name).read_bytes() for name in ("canary.json", "audit.json")}
    audit = json.loads(files["audit.json"])
    audit["records"] = [r for r in audit["records"] if "driver:580" not in r["desired"]]
    audit["digests"] = [d for d in audit["digests"] if not d["digest"].startswith("sha256:9c3f76dd")]
    files["audit.json"] = json.dumps({**audit, "cluster": uid}).encode()
    target = home / "parameters" / "promotion" / "canary"
    steps, when = {"upgrade": "done", "audit": "kept"}, datetime(2026, 8, 21, 10, tzinfo=UTC)
    fixtures.bundle(target, "20260821t081500z-canary_upgrade-c0de", "canary_upgrade", steps, files, uid, when)
    return {"canary": str(target), "canary_manifest": manifest_digest(target)}
