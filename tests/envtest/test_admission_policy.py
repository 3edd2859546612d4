"""The admission policy on a real API server: what it admits and refuses, in the four places where a pod names an image.

Covered: the policy compiles and type-checks without a warning; every operand of the released tuple by reference and by
digest, rollback images, other repositories; refusals in containers, init and ephemeral containers and image volumes;
updates of pods with old images; Warn and Deny; a missing or empty parameter; revocation of a digest; other namespaces;
mirror pods; a large pod against a large release. Not covered: what kubelets do with what was admitted.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpurunbook.embedded.actors.client import JSON_PATCH, STRATEGIC_PATCH, Client, Reply
from gpurunbook.supply import admission
from tests.envtest.controlplane import ControlPlane
from tests.eventually import eventually

pytestmark = pytest.mark.envtest

Obj = dict[str, Any]
AUDIT = Path(__file__).parents[2] / "parameters" / "provenance_audit" / "data" / "baseline.json"
CURRENT = admission.images_of(AUDIT.read_bytes())
REFERENCES = sorted({reference for references in CURRENT.values() for reference in references})
ROLLBACK = {"sha256:" + "ab" * 32: ["nvcr.io/nvidia/driver:570.86.15-ubuntu22.04"]}
RELEASED = "nvcr.io/nvidia/gpu-operator:v26.3.3"
STRANGE = "docker.io/someone/miner:v1"
NAMES = itertools.count()
VAP = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
CONFIG = f"/api/v1/namespaces/kube-system/configmaps/{admission.NAME}"
FAILURE = "validation.policy.admission.k8s.io/validation_failure"
REFUSED = "not of the released or the rollback set"


def release(*namespaces: str, current: admission.Images = CURRENT) -> admission.Release:
    return admission.Release(current, ROLLBACK, {"driver": "580.126.20"}, {"driver": "570.86.15"}, namespaces)


@pytest.fixture(scope="module")
def admin(controlplane: ControlPlane) -> Client:
    return Client.of_kubeconfig(controlplane.kubeconfig)


@pytest.fixture(scope="module")
def namespaces(admin: Client) -> tuple[str, str]:
    """One that the policy is bound to, and one that it is not."""
    made = tuple(f"admission-{next(NAMES)}-{time.time_ns() % 10**6}" for _ in range(2))
    for name in made:
        admin.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return made[0], made[1]


@pytest.fixture(scope="module")
def gpu(namespaces: tuple[str, str]) -> str:
    return namespaces[0]


@pytest.fixture(scope="module")
def old(admin: Client, gpu: str) -> str:
    """A pod that was there before the policy, with an image of no release."""
    admin.call("POST", f"/api/v1/namespaces/{gpu}/pods", pod(name="old", containers=[STRANGE, RELEASED]))
    return "old"


@pytest.fixture(scope="module")
def installed(admin: Client, gpu: str, old: str) -> Iterator[None]:
    """The policy in Deny, enforced."""
    config, policy, bound = admission.manifests(release(gpu), enforcement="deny")
    admin.call("POST", CONFIG.rpartition("/")[0], config)
    admin.call("POST", VAP, policy)
    admin.call("POST", BINDINGS, bound)
    eventually(lambda: create(admin, gpu, containers=[STRANGE]).code == 403)
    eventually(lambda: create(admin, gpu, containers=[RELEASED]).code == 201)
    yield
    admin.send("DELETE", f"{BINDINGS}/{admission.NAME}")
    admin.send("DELETE", f"{VAP}/{admission.NAME}")
    admin.send("DELETE", CONFIG)


def pod(name: str = "", containers: Any = (RELEASED,), **lists: Any) -> Obj:
    spec: Obj = {"schedulerName": "nobody", "containers": named("c", containers)}
    if "init" in lists:
        spec["initContainers"] = named("i", lists["init"])
    if "volumes" in lists:
        spec["volumes"] = [{"name": f"v{n}", "image": {"reference": r}} for n, r in enumerate(lists["volumes"])]
    metadata = {"name": name} if name else {"generateName": "p-"}
    return {"metadata": {**metadata, **lists.get("metadata", {})}, "spec": spec}


def named(stem: str, images: Any) -> list[Obj]:
    return [{"name": f"{stem}{number}", "image": image} for number, image in enumerate(images)]


def create(client: Client, namespace: str, **lists: Any) -> Reply:
    """A dry run, so that nothing is left behind."""
    return client.send("POST", f"/api/v1/namespaces/{namespace}/pods", pod(**lists), dryRun="All")


def said(reply: Reply) -> str:
    return str(reply.body["message"])


def test_it_type_checks_without_a_warning(admin: Client, installed: None) -> None:
    def checked() -> Any:
        status = admin.call("GET", f"{VAP}/{admission.NAME}").get("status", {})
        return status.get("typeChecking") is not None and status

    assert eventually(checked)["typeChecking"].get("expressionWarnings", []) == []


@pytest.mark.parametrize("reference", REFERENCES)
def test_every_operand_of_the_released_tuple_is_admitted_by_its_reference(
    admin: Client, gpu: str, installed: None, reference: str
) -> None:
    made = create(admin, gpu, containers=[reference], init=[reference], volumes=[reference])
    assert made.code == 201, made.body
    assert admission.admits(release(gpu), reference)


@pytest.mark.parametrize("digest", sorted(CURRENT))
@pytest.mark.parametrize("repository", ["nvcr.io/nvidia/x", "mirror.example:5000/a/b:v1"])
def test_a_released_digest_is_admitted_from_any_repository(
    admin: Client, gpu: str, installed: None, repository: str, digest: str
) -> None:
    made = create(admin, gpu, containers=[f"{repository}@{digest}"])
    assert made.code == 201, made.body
    assert admission.admits(release(gpu), f"{repository}@{digest}")


def test_the_rollback_set_is_admitted(admin: Client, gpu: str, installed: None) -> None:
    for digest, (reference,) in ROLLBACK.items():
        assert create(admin, gpu, containers=[reference, f"nvcr.io/nvidia/driver@{digest}"]).code == 201


@pytest.mark.parametrize(
    "image",
    [
        STRANGE,
        "nvcr.io/nvidia/gpu-operator",
        "nvcr.io/nvidia/gpu-operator:latest",
        "nvcr.io/nvidia/gpu-operator:v26.3.30",
        "gpu-operator:v26.3.3",
        "nvcr.io/nvidia/gpu-operator@sha256:" + "0" * 64,
        f"{RELEASED}@sha256:" + "0" * 64,
        f"{RELEASED}@sha512:" + "0" * 64 + min(CURRENT)[7:],
        f"x@{min(CURRENT).upper()}",
        f"x@{min(CURRENT)[:-1]}",
        min(CURRENT),
        min(CURRENT)[7:],
        "current " + RELEASED,
        "current",
    ],
)
@pytest.mark.parametrize("place", ["containers", "init", "volumes"])
def test_any_other_image_is_refused_where_a_pod_is_created(
    admin: Client, gpu: str, installed: None, place: str, image: str
) -> None:
    assert not admission.admits(release(gpu), image)
    refused = create(admin, gpu, **{place: [RELEASED, image]})
    word = {"containers": "container c1", "init": "init container i1", "volumes": "image volume v1"}[place]
    assert refused.code == 403, refused.body
    assert f"{REFUSED}: {word} {image}" in said(refused)
    assert RELEASED + "," not in said(refused)


def test_every_refused_place_is_named(admin: Client, gpu: str, installed: None) -> None:
    text = said(create(admin, gpu, containers=[STRANGE], init=[STRANGE], volumes=[STRANGE]))
    for place in ("container c0", "init container i0", "image volume v0"):
        assert f"{place} {STRANGE}" in text


@pytest.mark.parametrize(("image", "code"), [(STRANGE, 403), (RELEASED, 200)])
def test_an_ephemeral_container_is_judged(admin: Client, gpu: str, installed: None, image: str, code: int) -> None:
    name = f"debugged-{next(NAMES)}"
    admin.call("POST", f"/api/v1/namespaces/{gpu}/pods", pod(name=name))
    body = {"spec": {"ephemeralContainers": [{"name": "debug", "image": image}]}}
    place = f"/api/v1/namespaces/{gpu}/pods/{name}/ephemeralcontainers"
    answer = admin.send("PATCH", place, body, STRATEGIC_PATCH)
    assert answer.code == code, answer.body
    if code != 200:
        assert f"{REFUSED}: ephemeral container debug {image}" in said(answer)


def test_a_pod_with_an_old_image_can_be_labelled_and_given_a_released_image(
    admin: Client, gpu: str, old: str, installed: None
) -> None:
    place = f"/api/v1/namespaces/{gpu}/pods/{old}"
    assert admin.send("PATCH", place, {"metadata": {"labels": {"a": "b"}}}, STRATEGIC_PATCH).code == 200
    swap = [
        {"op": "replace", "path": "/spec/containers/1/image", "value": "nvcr.io/nvidia/driver:580.126.20-ubuntu22.04"}
    ]
    assert admin.send("PATCH", place, swap, JSON_PATCH).code == 200
    ephemeral = {"spec": {"ephemeralContainers": [{"name": f"d{next(NAMES)}", "image": RELEASED}]}}
    assert admin.send("PATCH", f"{place}/ephemeralcontainers", ephemeral, STRATEGIC_PATCH).code == 200


def test_an_image_that_changes_is_judged_even_when_it_stands_elsewhere_in_the_pod(
    admin: Client, gpu: str, old: str, installed: None
) -> None:
    place = f"/api/v1/namespaces/{gpu}/pods/{old}"
    spread = [{"op": "replace", "path": "/spec/containers/1/image", "value": STRANGE}]
    refused = admin.send("PATCH", place, spread, JSON_PATCH)
    assert refused.code == 403, refused.body
    assert f"{REFUSED}: container c1 {STRANGE}" in said(refused)
    assert f"c0 {STRANGE}" not in said(refused)


def test_other_namespaces_are_left_alone(admin: Client, namespaces: tuple[str, str], installed: None) -> None:
    assert create(admin, namespaces[1], containers=[STRANGE]).code == 201


def test_a_pod_of_a_workload_is_refused_and_its_template_is_not_judged(
    admin: Client, gpu: str, installed: None
) -> None:
    template = {
        "metadata": {"labels": {"app": "j"}},
        "spec": {"restartPolicy": "Never", **pod(containers=[STRANGE])["spec"]},
    }
    made = admin.send(
        "POST", f"/apis/batch/v1/namespaces/{gpu}/jobs", {"metadata": {"name": "j"}, "spec": {"template": template}}
    )
    assert made.code == 201, made.body

    def told() -> list[str]:
        events = admin.call("GET", f"/api/v1/namespaces/{gpu}/events")["items"]
        return [e["message"] for e in events if e["involvedObject"]["name"] == "j" and REFUSED in e["message"]]

    assert f"container c0 {STRANGE}" in eventually(told)[0]
    assert admin.call("GET", f"/api/v1/namespaces/{gpu}/pods", labelSelector="app=j")["items"] == []


def test_only_a_kubelets_mirror_of_a_static_pod_is_let_through(
    controlplane: ControlPlane, admin: Client, gpu: str, installed: None
) -> None:
    mark = {"annotations": {admission.MIRROR: "x"}}
    body = pod(name="mirror", containers=[STRANGE], metadata=mark)
    body["spec"]["nodeName"] = "nowhere"
    place = f"/api/v1/namespaces/{gpu}/pods"
    assert REFUSED in said(admin.send("POST", place, body, dryRun="All"))
    kubelet = Client.of_kubeconfig(controlplane.user("system:node:nowhere", "system:nodes", "system:masters"))
    assert kubelet.send("POST", place, body, dryRun="All").code == 201
    assert kubelet.send("POST", place, pod(containers=[STRANGE]), dryRun="All").code == 403


def test_a_large_pod_against_a_large_release_stays_within_the_cost_limit(
    admin: Client, gpu: str, installed: None
) -> None:
    repository = "registry.example/" + "a-long-path/" * 12 + "operand"
    many = {f"sha256:{n:064x}": [f"{repository}-{n}:v1.2.3-ubuntu22.04"] for n in range(5000)}
    with changed(admin, gpu, admission.config_map(release(gpu, current=many))):
        fitting = [references[0] for references in list(many.values())[-40:]]
        eventually(lambda: create(admin, gpu, containers=fitting[:1]).code == 201)
        made = create(admin, gpu, containers=fitting, init=fitting)
        assert made.code == 201, made.body
        assert create(admin, gpu, containers=[*fitting, STRANGE]).code == 403
        huge = create(admin, gpu, containers=[f"{STRANGE}-{n}" for n in range(3000)])
        assert huge.code in {403, 422}, huge.body  # refused by name or by the cost limit, and never admitted


def test_a_revoked_digest_takes_its_references_with_it(admin: Client, gpu: str, installed: None) -> None:
    digest = next(digest for digest, references in CURRENT.items() if RELEASED in references)
    key = admission.key_of(digest)
    left = admission.config_map(release(gpu))
    gone = {**left, "data": {k: v for k, v in left["data"].items() if k != key}}
    with changed(admin, gpu, gone):
        eventually(lambda: create(admin, gpu, containers=[RELEASED]).code == 403)
        assert create(admin, gpu, containers=[f"any@{digest}"]).code == 403
        assert create(admin, gpu, containers=[REFERENCES[0]]).code == 201


def test_an_empty_parameter_refuses_everything(admin: Client, gpu: str, installed: None) -> None:
    empty = {k: v for k, v in admission.config_map(release(gpu)).items() if k != "data"}
    with changed(admin, gpu, empty):
        eventually(lambda: create(admin, gpu, containers=[RELEASED]).code == 403)


@pytest.mark.parametrize("enforcement", ["deny", "warn"])
def test_a_missing_parameter_denies_in_both_enforcements(
    admin: Client, gpu: str, installed: None, enforcement: str
) -> None:
    with enforced(admin, gpu, enforcement):
        admin.call("DELETE", CONFIG)
        try:
            denied = eventually(lambda: (r := create(admin, gpu, containers=[RELEASED])).code != 201 and r)
            assert denied.code == 422, denied.body
            assert "no params found" in said(denied)
        finally:
            admin.call("POST", CONFIG.rpartition("/")[0], admission.config_map(release(gpu)))
            eventually(lambda: create(admin, gpu, containers=[RELEASED]).code == 201)


def test_warn_admits_with_a_warning_and_an_audit_annotation(
    controlplane: ControlPlane, admin: Client, gpu: str, installed: None
) -> None:
    image = "docker.io/someone/warned:v1"
    deployer = Client.of_kubeconfig(controlplane.user("deployer", "system:masters"))  # whom the audit log follows
    with enforced(admin, gpu, "warn"):
        made = create(deployer, gpu, containers=[image])
        assert made.code == 201, made.body
        assert f"container c0 {image}" in made.headers["Warning"]
        assert "Warning" not in create(admin, gpu, containers=[RELEASED]).headers
    marks = [event.get("annotations", {}).get(FAILURE, "") for event in controlplane.requests("deployer")]
    assert any(image in text for text in marks)


class changed:
    """The ConfigMap as given, and as it was afterwards: the next test must not meet what the server still knows."""

    def __init__(self, admin: Client, gpu: str, config: Obj) -> None:
        self.admin, self.gpu, self.config = admin, gpu, config

    def __enter__(self) -> None:
        self.before = self.admin.call("GET", CONFIG)
        self.admin.call("PUT", CONFIG, self.config)

    def __exit__(self, *_: object) -> None:
        self.before["metadata"].pop("resourceVersion")
        self.admin.call("PUT", CONFIG, self.before)
        eventually(lambda: create(self.admin, self.gpu, containers=[RELEASED]).code == 201)


class enforced:
    """The binding with another enforcement."""

    def __init__(self, admin: Client, gpu: str, enforcement: str) -> None:
        self.admin, self.gpu, self.wanted = admin, gpu, enforcement

    def _put(self, enforcement: str) -> None:
        body = admission.binding([self.gpu], enforcement)
        self.admin.merge(
            f"{BINDINGS}/{admission.NAME}", {"spec": {"validationActions": body["spec"]["validationActions"]}}
        )
        code = 403 if enforcement == "deny" else 201
        eventually(lambda: create(self.admin, self.gpu, containers=[STRANGE]).code == code)

    def __enter__(self) -> None:
        self._put(self.wanted)

    def __exit__(self, *_: object) -> None:
        self._put("deny")
