"""Digests that changed under an unchanged reference, against the JSON of an earlier audit.

Covered: a changed digest in both directions of time, renamed pods, new containers and namespaces, several digests at
once, what is never compared, proofs by index, what the message names; baselines that may not be used: malformed,
altered, without an answer, of another cluster, of a rehearsal.
Not covered: how files are opened (tests/unit/test_audit_cli.py).
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from pods import IMAGE, REPO, audited, codes, pod, podlist, sha

from gpurunbook.errors import InputError
from gpurunbook.supply import baseline

ONE, TWO, INDEX, ARM = sha("one"), sha("two"), sha("index"), sha("arm64")
LISTED = [{"digest": ONE, "platform": "linux/amd64"}, {"digest": ARM, "platform": "linux/arm64"}]


def at(*digests: str, image: str = IMAGE, **more: Any) -> bytes:
    """A list in which one reference runs with these digests, one pod each."""
    return podlist(*(pod(image, f"{REPO}@{d}", name=f"driver-{d[7:12]}", **more) for d in digests))


def earlier(data: bytes) -> bytes:
    return audited(data).as_json()


def test_the_same_digests_are_no_change() -> None:
    report = audited(at(ONE), baseline=earlier(at(ONE)))
    assert (report.verdict, codes(report)) == ("pass", [])


@pytest.mark.parametrize(("before", "now"), [(ONE, TWO), (TWO, ONE)])
def test_another_digest_under_an_unchanged_tag_is_a_supply_chain_event(before: str, now: str) -> None:
    report = audited(at(now), baseline=earlier(at(before)))
    assert (report.verdict, codes(report)) == ("fail", ["digest-changed"])
    (finding,) = report.findings
    assert finding.subject == f"gpu-operator/driver-{now[7:12]}/driver"
    for named in (before, now, IMAGE, "'driver'", "'gpu-operator'", "supply-chain event"):
        assert named in finding.message
    assert "supply-chain event" in finding.remedy
    assert [r.audit for r in report.records] == ["pass"]
    assert not report.evidence_ready


def test_pods_are_compared_whatever_they_are_called() -> None:
    def named(name: str, digest: str) -> bytes:
        return podlist(pod(image_id=f"{REPO}@{digest}", name=name))

    assert codes(audited(named("driver-new", ONE), baseline=earlier(named("driver-old", ONE)))) == []
    assert codes(audited(named("driver-new", TWO), baseline=earlier(named("driver-old", ONE)))) == ["digest-changed"]


def test_two_pods_that_swap_their_digests_are_no_change_of_the_reference() -> None:
    def two(first: str, second: str) -> bytes:
        return podlist(pod(image_id=f"{REPO}@{first}", name="a"), pod(image_id=f"{REPO}@{second}", name="b"))

    assert codes(audited(two(TWO, ONE), baseline=earlier(two(ONE, TWO)))) == ["tag-divergence"]


@pytest.mark.parametrize(("before", "now"), [((ONE,), (ONE, TWO)), ((ONE, TWO), (ONE,)), ((ONE, TWO), (TWO, INDEX))])
def test_a_digest_that_came_or_went_is_a_change(before: tuple[str, ...], now: tuple[str, ...]) -> None:
    report = audited(at(*now), baseline=earlier(at(*before)))
    assert "digest-changed" in codes(report)
    message = next(f.message for f in report.findings if f.code == "digest-changed")
    assert all(digest in message for digest in (*before, *now))


def test_an_unchanged_reference_counts_in_a_new_container_and_a_new_namespace() -> None:
    before = earlier(at(ONE))
    assert codes(audited(at(ONE, namespace="hami-system"), baseline=before)) == []
    assert codes(audited(at(TWO, namespace="hami-system"), baseline=before)) == ["digest-changed"]
    renamed = pod(
        spec={"containers": [{"name": "ctr", "image": IMAGE}]}, entry={"name": "ctr", "imageID": f"{REPO}@{TWO}"}
    )
    assert codes(audited(podlist(renamed), baseline=before)) == ["digest-changed"]


def test_the_same_tag_spelled_in_another_way_is_unchanged() -> None:
    before = earlier(podlist(pod("busybox:1", f"docker.io/library/busybox@{ONE}")))
    after = podlist(pod("index.docker.io/library/busybox:1", f"docker.io/library/busybox@{TWO}"))
    assert codes(audited(after, baseline=before)) == ["digest-changed"]


def test_no_tag_and_latest_are_the_same_reference() -> None:
    report = audited(at(TWO, image=f"{REPO}:latest"), baseline=earlier(at(ONE, image=REPO)))
    assert codes(report) == ["digest-changed"]


@pytest.mark.parametrize("image", [f"{REPO}:580.126.21", f"{REPO}@{TWO}", "registry.example/gpu/other:580.126.20"])
def test_another_reference_is_no_change_under_an_unchanged_one(image: str) -> None:
    assert codes(audited(at(TWO, image=image), baseline=earlier(at(ONE)))) == []


def test_a_pinned_reference_that_runs_something_else_than_before_is_a_change_too() -> None:
    report = audited(at(TWO, image=f"{REPO}@{ONE}"), baseline=earlier(at(ONE, image=f"{REPO}@{ONE}")))
    assert codes(report) == ["digest-changed"]
    assert report.records[0].reasons == ("declared-digest-mismatch",)


@pytest.mark.parametrize(
    "image_id", [TWO, f"docker://{TWO}", f"docker.io/library/import-2026-08-20@{TWO}", f"{REPO}:1", ""]
)
def test_what_is_no_manifest_is_never_compared_in_either_direction(image_id: str) -> None:
    other = podlist(pod(image_id=image_id), pod("busybox:1", f"busybox@{ONE}", name="b"))
    assert codes(audited(other, baseline=earlier(at(ONE)))) == []
    assert codes(audited(at(ONE), baseline=earlier(other))) == []


def test_digests_of_one_index_are_the_same_image() -> None:
    given = {"relations": {INDEX: LISTED}, "nodes": {"gpu-a": "linux/amd64"}}
    assert codes(audited(at(INDEX), baseline=earlier(at(ONE)), **given)) == []
    assert codes(audited(at(ONE), baseline=earlier(at(INDEX)), **given)) == []
    assert codes(audited(at(ARM), baseline=earlier(at(ONE)), **given)) == []
    assert codes(audited(at(ONE), baseline=earlier(at(ONE, ARM)), **given)) == []
    assert codes(audited(at(TWO), baseline=earlier(at(ONE)), **given)) == ["digest-changed"]
    assert codes(audited(at(INDEX), baseline=earlier(at(TWO)), **given)) == ["digest-changed"]


def test_one_finding_names_a_few_pods_and_counts_the_rest() -> None:
    many = podlist(*(pod(image_id=f"{REPO}@{TWO}", name=f"driver-{n:02}") for n in range(12)))
    (finding,) = audited(many, baseline=earlier(at(ONE))).findings
    assert "driver-04 and 7 more" in finding.message


def altered(**changes: Any) -> bytes:
    return json.dumps({**json.loads(earlier(at(ONE))), **changes}).encode()


RECORD = json.loads(earlier(at(ONE)))["records"][0]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"not json",
        earlier(at(ONE))[:-20],
        earlier(at(ONE)) * 2,
        at(ONE),
        altered(verdict="good"),
        altered(verdict=None),
        altered(records=None),
        altered(records=[{k: v for k, v in RECORD.items() if k != "resolved"}]),
        altered(records=[{**RECORD, "resolved": None}]),
        altered(records=[{**RECORD, "resolved": f"{REPO}@sha256:cut"}]),
        altered(records=[{**RECORD, "runtime_class": "config"}]),
        altered(cluster=5),
        altered(rehearsal="no"),
        earlier(at(ONE)).replace(b'"verdict":', b'"verdict":"error","verdict":'),
    ],
    ids=lambda data: repr(data)[:40],
)
def test_what_is_not_the_json_of_an_audit_is_an_error_and_never_ignored(data: bytes) -> None:
    report = audited(at(ONE), baseline=data)
    assert (report.verdict, codes(report)) == ("error", ["malformed-baseline"])
    assert len(report.records) == 1


@pytest.mark.parametrize(
    "data",
    [
        earlier(podlist(pod(), metadata={"continue": "abc"})),
        earlier(b"cut off"),
        earlier(podlist()),
        earlier(podlist(pod(image_id=ONE))),
        earlier(podlist(pod("", f"{REPO}@{ONE}"))),
    ],
    ids=["incomplete", "not JSON", "empty", "config digests only", "no reference"],
)
def test_a_baseline_without_an_answer_or_a_digest_is_an_error(data: bytes) -> None:
    report = audited(at(ONE), baseline=data)
    assert (report.verdict, codes(report)) == ("error", ["incomplete-baseline"])


def test_a_baseline_that_failed_is_still_a_baseline() -> None:
    failed = earlier(at(ONE, image=f"{REPO}:latest"))
    assert json.loads(failed)["verdict"] == "fail"
    assert codes(audited(at(TWO, image=f"{REPO}:latest"), baseline=failed)) == ["digest-changed"]


@pytest.mark.parametrize(
    ("cluster", "rehearsal", "live", "of", "rehearsed", "usable"),
    [
        ("u1", False, True, "u1", False, True),
        ("u1", False, True, "u2", False, False),
        ("u1", True, True, "u2", True, False),
        ("u1", True, True, "u1", True, True),
        ("u1", True, True, "u1", False, True),
        ("u1", False, True, "u1", True, False),
        ("u1", False, True, None, False, True),
        ("u1", False, True, None, True, False),
        (None, False, True, "u1", False, False),
        (None, True, False, "u1", False, True),
        (None, True, False, None, True, True),
    ],
)
def test_a_baseline_is_of_this_cluster_and_no_rehearsal_for_a_live_one(
    cluster: str | None, rehearsal: bool, live: bool, of: str | None, rehearsed: bool, usable: bool
) -> None:
    data = altered(cluster=of, rehearsal=rehearsed)
    if usable:
        assert baseline.read(data, cluster, rehearsal, live).references
    else:
        with pytest.raises(InputError) as wrong:
            baseline.read(data, cluster, rehearsal, live)
        assert wrong.value.code == "foreign-baseline"
