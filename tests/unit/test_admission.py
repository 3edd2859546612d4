"""What a release admits, and how it is written down for the API server.

Covered: reading an audit, what it releases and when nothing; the ConfigMap, policy and binding; the same answer in
Python; the YAML. Not covered: what the API server makes of it (tests/envtest/test_admission_policy.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpurunbook.errors import InputError
from gpurunbook.supply import admission
from gpurunbook.supply.admission import Release, admits, images_of, manifests

AUDIT = Path(__file__).parents[2] / "parameters" / "provenance_audit" / "data" / "baseline.json"
A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64
RELEASE = Release(
    {A: ["nvcr.io/nvidia/driver:2", f"nvcr.io/nvidia/cuda@{A}"], B: ["repo:1"]},
    {A: ["nvcr.io/nvidia/driver:1"]},
    {"driver": "2"},
    {"driver": "1"},
    ["hami-system", "gpu-operator", "gpu-operator"],
)


def audit(*changes: dict[str, Any], verdict: str = "pass") -> bytes:
    good = {"audit": "pass", "desired": "repo:1", "resolved": f"repo@{A}", "runtime_class": "manifest"}
    return json.dumps({"verdict": verdict, "records": [{**good, **change} for change in changes]}).encode()


def code(data: bytes) -> str:
    with pytest.raises(InputError) as caught:
        images_of(data)
    return caught.value.code


def test_an_audit_releases_each_digest_with_its_references() -> None:
    both = audit({}, {"desired": "mirror/repo:1"}, {}, {"resolved": f"docker-pullable://x@{B}", "desired": "x:2"})
    assert images_of(both) == {A: ["mirror/repo:1", "repo:1"], B: ["x:2"]}


def test_the_audit_of_the_fixture_releases_every_record() -> None:
    records = json.loads(AUDIT.read_bytes())["records"]
    images = images_of(AUDIT.read_bytes())
    assert {r["desired"] for r in records} == {r for references in images.values() for r in references}
    assert list(images) == sorted({r["resolved"].rpartition("@")[2] for r in records})


@pytest.mark.parametrize("word", ["config", "local", "never-started"])
def test_an_image_without_a_registry_digest_is_not_released(word: str) -> None:
    assert images_of(audit({}, {"runtime_class": word, "desired": "y:1", "resolved": B})) == {A: ["repo:1"]}


def test_what_is_no_passed_audit_releases_nothing() -> None:
    assert code(audit({}, verdict="fail")) == code(audit({}, verdict="error")) == "audit-not-passed"
    assert code(audit({}, {"audit": "fail"})) == "audit-not-passed"
    assert code(audit()) == code(audit({"runtime_class": "config"})) == "no-digests"
    assert code(b"{}") == code(b"[") == code(b'{"verdict":"pass","records":[{}]}') == "unreadable"


@pytest.mark.parametrize(
    ("image", "wanted"),
    [
        ("nvcr.io/nvidia/driver:2", True),
        ("nvcr.io/nvidia/driver:1", True),
        ("nvcr.io/nvidia/driver:3", False),
        ("nvcr.io/nvidia/driver", False),
        ("nvidia/driver:2", False),
        (f"any@{A}", True),
        (f"any:latest@{A}", True),
        (f"any@{A[:-1]}", False),
        (f"repo:1@sha256:{'c' * 64}", False),
        ("", False),
    ],
)
def test_an_image_is_admitted_by_digest_or_exact_reference(image: str, wanted: bool) -> None:
    assert admits(RELEASE, image) is wanted


def test_the_parameters_are_keyed_by_digest_so_that_one_key_revokes_an_image() -> None:
    config = admission.config_map(RELEASE)
    key = admission.key_of(A)
    assert config["data"] == {
        key: f"current nvcr.io/nvidia/cuda@{A}\ncurrent nvcr.io/nvidia/driver:2\nrollback nvcr.io/nvidia/driver:1",
        admission.key_of(B): "current repo:1",
    }
    assert config["metadata"]["namespace"] == "kube-system"
    assert json.loads(config["metadata"]["annotations"]["gpurunbook.io/current-tuple"]) == {"driver": "2"}
    assert json.loads(config["metadata"]["annotations"]["gpurunbook.io/rollback-tuple"]) == {"driver": "1"}


def test_it_starts_with_a_warning_and_denies_by_parameter() -> None:
    warns, denies = (manifests(RELEASE, enforcement=word)[2]["spec"] for word in ("warn", "deny"))
    assert manifests(RELEASE)[2]["spec"] == warns
    assert (warns["validationActions"], denies["validationActions"]) == (["Warn", "Audit"], ["Deny", "Audit"])
    assert manifests(RELEASE)[:2] == manifests(RELEASE, enforcement="deny")[:2]


def test_it_fails_closed_and_reaches_every_way_an_image_gets_into_a_pod() -> None:
    _, policy, binding = manifests(RELEASE, namespace="vault")
    assert policy["spec"]["failurePolicy"] == "Fail"
    reference = binding["spec"]["paramRef"]
    assert (reference["namespace"], reference["parameterNotFoundAction"]) == ("vault", "Deny")
    ways = {
        (r, o)
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]
        for r in rule["resources"]
        for o in rule["operations"]
    }
    assert ways == {("pods", "CREATE"), ("pods", "UPDATE"), ("pods/ephemeralcontainers", "UPDATE")}
    (chosen,) = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
    assert chosen == {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["gpu-operator", "hami-system"]}


def test_the_yaml_says_what_the_objects_say_without_aliases() -> None:
    text = admission.as_yaml(manifests(RELEASE))
    assert list(yaml.safe_load_all(text)) == manifests(RELEASE)
    assert b"&id" not in text
