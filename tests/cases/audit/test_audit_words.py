"""The words of the audit, row by row, beyond the cases of index.json.

Covered: every desired class, runtime class and record code with its neighbours on both sides of the line, the kinds of
records, what a terminal pod's state says, list codes alone and together, proofs by index and platform, digests,
evidence_ready.
Not covered: the shape of the file and of its items (test_audit_shapes.py), baselines (tests/unit).
"""

from __future__ import annotations

from typing import Any

import pytest
from pods import IMAGE, REPO, audited, codes, pod, podlist, running, sha

H = "6f14c65d8a7b9d9e01a6cbccd5998f2466e46a05c59ac699810c99c48c87f6c4"
GOOD = f"sha256:{H}"
RUN = f"{REPO}@{GOOD}"


def one(report: Any) -> Any:
    assert len(report.records) == 1
    return report.records[0]


DESIRED = [
    ("", "empty", ["empty-reference"]),
    (" ", "invalid", ["invalid-reference"]),
    (f"{REPO}:", "invalid", ["invalid-reference"]),
    (f"{REPO}:1.2+k3s1", "invalid", ["invalid-reference"]),
    (f"{REPO}:{'a' * 129}", "invalid", ["invalid-reference"]),
    (f"{REPO}:{'a' * 128}", "tag", []),
    (f"{REPO}:.a", "invalid", ["invalid-reference"]),
    ("registry.example/GPU/driver:1", "invalid", ["invalid-reference"]),
    ("Registry.Example/gpu/driver:1", "tag", []),
    ("GPU/driver:1", "invalid", ["invalid-reference"]),
    ("registry.example/gpu//driver:1", "invalid", ["invalid-reference"]),
    ("registry.example/gpu/driver-:1", "invalid", ["invalid-reference"]),
    ("registry.example/gpu/a___b:1", "invalid", ["invalid-reference"]),
    ("registry.example:port/gpu/driver:1", "invalid", ["invalid-reference"]),
    ("https://registry.example/gpu/driver:1", "invalid", ["invalid-reference"]),
    (f"{REPO}:1\n", "invalid", ["invalid-reference"]),
    (f"\t{REPO}:1", "invalid", ["invalid-reference"]),
    (f"{REPO}:1\u00a0", "invalid", ["invalid-reference"]),
    (f"{REPO}:1@{GOOD} ", "invalid", ["invalid-reference"]),
    (f"{REPO}:1@{GOOD}@{GOOD}", "invalid", ["invalid-reference"]),
    (f"@{GOOD}", "invalid", ["invalid-reference"]),
    (f"{REPO}:@{GOOD}", "invalid", ["invalid-reference"]),
    (f"{REPO}:latest", "explicit-latest", ["explicit-latest"]),
    ("localhost:5000/driver:latest", "explicit-latest", ["explicit-latest"]),
    (f"{REPO}:latest@{GOOD}", "explicit-latest", ["explicit-latest"]),
    (f"{REPO}:latest@sha512:{H}{H}", "explicit-latest", ["bad-digest", "explicit-latest"]),
    (f"{REPO}:latest@", "explicit-latest", ["bad-digest", "explicit-latest"]),
    (f"{REPO}@", "bad-digest", ["bad-digest"]),
    (f"{REPO}@{GOOD[:-1]}", "bad-digest", ["bad-digest"]),
    (f"{REPO}@{GOOD}0", "bad-digest", ["bad-digest"]),
    (f"{REPO}@sha256:{H.upper()}", "bad-digest", ["bad-digest"]),
    (f"{REPO}@{H}", "bad-digest", ["bad-digest"]),
    (f"{REPO}@sha512:{H}{H}", "bad-digest", ["bad-digest"]),
    (f"{REPO}:1@sha256:", "bad-digest", ["bad-digest"]),
    (f"{REPO}:main-latest@sha256:", "bad-digest", ["bad-digest"]),
    (f"{REPO}@{GOOD}", "digest", []),
    (f"{REPO}:1@{GOOD}", "tag+digest", []),
    (f"{REPO}:main-latest@{GOOD}", "tag+digest", []),
    (f"{REPO}:LATEST@{GOOD}", "tag+digest", []),
    (REPO, "implicit-latest", ["implicit-latest"]),
    ("registry.example:5000/driver", "implicit-latest", ["implicit-latest"]),
    ("busybox", "implicit-latest", ["implicit-latest"]),
    ("localhost/driver", "implicit-latest", ["implicit-latest"]),
    ("latest", "implicit-latest", ["implicit-latest"]),
    ("localhost:5000", "tag", []),
    (f"{REPO}:LATEST", "floating-alias", ["floating-alias"]),
    (f"{REPO}:main-latest", "floating-alias", ["floating-alias"]),
    (f"{REPO}:latest-ubuntu22.04", "floating-alias", ["floating-alias"]),
    (f"{REPO}:v1_Latest", "floating-alias", ["floating-alias"]),
    (f"{REPO}:v1.latest.2", "floating-alias", ["floating-alias"]),
    (f"{REPO}:v1-latestfix", "tag", []),
    (f"{REPO}:latest1", "tag", []),
    ("registry.example/latest/driver:1", "tag", []),
    ("registry.example/gpu/latest:1", "tag", []),
    *(
        (f"{REPO}:{t}", "floating-alias", ["floating-alias"])
        for t in ("main", "master", "edge", "nightly", "dev", "stable", "Main")
    ),
    (f"{REPO}:stable-1.2", "tag", []),
    (f"{REPO}:main-3f2c1a", "tag", []),
    ("registry.example:5000/driver:1", "tag", []),
    (f"{REPO}:580.126.20-ubuntu22.04", "tag", []),
    (f"{REPO}:580-6.8.0-135-generic-ubuntu22.04", "tag", ["branch-only-driver-tag"]),
    (f"{REPO}:580-5.14.0-427.el9.x86_64-rhel9.4", "tag", ["branch-only-driver-tag"]),
    (f"{REPO}:580-6.8.0-135-generic-ubuntu22.04@{GOOD}", "tag+digest", ["branch-only-driver-tag"]),
    (f"{REPO}:580-6.8-ubuntu22.04", "tag", []),
    (f"{REPO}:580.1-6.8.0-135-generic-ubuntu22.04", "tag", []),
    (f"{REPO}-manager:580-6.8.0-135-generic-ubuntu22.04", "tag", ["repository-alias"]),
]


@pytest.mark.parametrize(("image", "word", "reasons"), DESIRED, ids=[repr(d[0])[-60:] for d in DESIRED])
def test_a_desired_reference_has_its_class_and_codes(image: str, word: str, reasons: list[str]) -> None:
    report = audited(podlist(pod(image, RUN)))
    record = one(report)
    notes = {"branch-only-driver-tag", "repository-alias"}
    same = [r for r in record.reasons if r != "repository-alias" or r in reasons]
    assert (record.desired_class, same) == (word, reasons)
    assert record.audit == ("fail" if set(reasons) - notes else "pass")
    assert (record.desired, record.evidence, codes(report)) == (image, True, [])


def test_an_image_that_is_absent_or_null_is_empty() -> None:
    null = pod(None)
    null["spec"]["containers"][0]["image"] = None
    for given in (pod(None), null):
        record = one(audited(podlist(given)))
        assert (record.desired, record.desired_class, record.reasons) == ("", "empty", ("empty-reference",))


RUNTIME = [
    (f"{REPO}@{GOOD}", "manifest", []),
    (f"{REPO}:9@{GOOD}", "manifest", []),
    (f"docker-pullable://{REPO}@{GOOD}", "manifest", []),
    (f"docker-pullable://{REPO}:9@{GOOD}", "manifest", []),
    (f"registry.example/other/name@{GOOD}", "manifest", ["repository-alias"]),
    (f"registry.example/GPU/driver@{GOOD}", "malformed", ["malformed-runtime"]),
    (f"bad name@{GOOD}", "malformed", ["malformed-runtime"]),
    (f"@{GOOD}", "malformed", ["malformed-runtime"]),
    (f"{REPO}:@{GOOD}", "malformed", ["malformed-runtime"]),
    (f"docker.io/library/import-2026-08-20@{GOOD}", "local", ["local-import"]),
    (f"import-2026-08-20@{GOOD}", "local", ["local-import"]),
    (f"docker.io/library/import-2026-8-20@{GOOD}", "manifest", ["repository-alias"]),
    (f"docker.io/import-2026-08-20/driver@{GOOD}", "manifest", ["repository-alias"]),
    (GOOD, "config", ["config-digest-only"]),
    (f"containerd://{GOOD}", "config", ["config-digest-only"]),
    (f"docker://{GOOD}", "config", ["config-digest-only"]),
    (f"cri-o://{GOOD}", "malformed", ["malformed-runtime"]),
    (f"docker-pullable://{GOOD}", "malformed", ["malformed-runtime"]),
    (f"docker://{REPO}@{GOOD}", "malformed", ["malformed-runtime"]),
    (f"containerd://{REPO}@{GOOD}", "malformed", ["malformed-runtime"]),
    (H, "malformed", ["malformed-runtime"]),
    (H[:63], "malformed", ["malformed-runtime"]),
    (H.upper(), "malformed", ["malformed-runtime"]),
    (GOOD[:-1], "malformed", ["malformed-runtime"]),
    (f"sha256:{H.upper()}", "malformed", ["malformed-runtime"]),
    (f"sha512:{H}{H}", "malformed", ["malformed-runtime"]),
    (f"{REPO}@{GOOD[:-1]}", "malformed", ["malformed-runtime"]),
    (f"{REPO}@sha256:{H.upper()}", "malformed", ["malformed-runtime"]),
    (f"{REPO}@sha512:{H}{H}", "malformed", ["malformed-runtime"]),
    (f"{REPO}@{GOOD}\n", "malformed", ["malformed-runtime"]),
    (f" {REPO}@{GOOD}", "malformed", ["malformed-runtime"]),
    (f"{REPO}@{GOOD}@{GOOD}", "malformed", ["malformed-runtime"]),
    ("<none>@<none>", "malformed", ["malformed-runtime"]),
    (" ", "malformed", ["malformed-runtime"]),
    (f"{REPO}:1", "mutable", ["mutable-runtime"]),
    (REPO, "mutable", ["mutable-runtime"]),
    ("busybox", "mutable", ["mutable-runtime"]),
    (f"docker-pullable://{REPO}:1", "mutable", ["mutable-runtime"]),
    (f"docker://{REPO}:1", "malformed", ["malformed-runtime"]),
]


@pytest.mark.parametrize(("image_id", "word", "reasons"), RUNTIME, ids=[repr(r[0])[:70] for r in RUNTIME])
def test_an_image_id_has_its_class_and_codes(image_id: str, word: str, reasons: list[str]) -> None:
    report = audited(podlist(pod(IMAGE, image_id)))
    record = one(report)
    assert (record.runtime_class, list(record.reasons), record.resolved) == (word, reasons, image_id)
    assert record.audit == ("fail" if word in ("malformed", "mutable") else "pass")
    assert record.evidence is (word == "manifest")
    assert [d.digest for d in report.digests] == ([GOOD] if word == "manifest" else [])


@pytest.mark.parametrize(
    ("container_id", "word"),
    [
        ("cri-o://" + H, "config"),
        ("cri-o://", "config"),
        ("containerd://" + H, "malformed"),
        ("docker://" + H, "malformed"),
        ("", "malformed"),
        (None, "malformed"),
        ("x-cri-o://" + H, "malformed"),
    ],
)
def test_bare_hex_is_a_config_digest_only_under_cri_o(container_id: str | None, word: str) -> None:
    assert one(audited(podlist(pod(entry=running("driver", H, container_id))))).runtime_class == word  # type: ignore[arg-type]


def waiting(**more: Any) -> dict[str, Any]:
    state = {"waiting": {"reason": "ContainerCreating"}}
    return {"name": "driver", "imageID": "", "containerID": "", "state": state, "restartCount": 0, **more}


TERMINATED = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
@pytest.mark.parametrize(
    ("entry", "word"),
    [
        (None, "never-started"),
        (waiting(), "never-started"),
        (waiting(containerID=None, state=None, lastState=None), "never-started"),
        (waiting(state={}, lastState={}), "never-started"),
        (waiting(containerID="containerd://" + H), "unresolved"),
        (waiting(state={"running": {}}), "unresolved"),
        (waiting(state=TERMINATED), "unresolved"),
        (waiting(lastState=TERMINATED), "unresolved"),
        (waiting(restartCount=2), "unresolved"),
    ],
)
def test_in_an_ended_pod_only_what_never_ran_is_never_started(
    phase: str, entry: dict[str, Any] | None, word: str
) -> None:
    ended = podlist(pod(image_id=None, entry=entry, phase=phase))
    for tolerate in (False, True):
        record = one(audited(ended, tolerate=tolerate))
        assert (record.runtime_class, record.reasons, record.evidence) == (word, (word,), False)
        assert record.audit == ("pass" if tolerate and word == "never-started" else "fail")


@pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown", "", None])
def test_in_any_other_pod_a_missing_image_id_is_unresolved_and_never_tolerated(phase: str | None) -> None:
    for entry in (None, waiting(), waiting(state=TERMINATED)):
        record = one(audited(podlist(pod(image_id=None, entry=entry, phase=phase)), tolerate=True))  # type: ignore[arg-type]
        assert (record.runtime_class, record.audit) == ("unresolved", "fail")


def test_a_tolerated_leftover_is_still_judged_by_its_reference() -> None:
    left = podlist(pod(f"{REPO}:latest", None, phase="Failed"), pod(name="driver-y"))
    report = audited(left, tolerate=True)
    assert [r.audit for r in report.records] == ["fail", "pass"]
    assert report.records[0].reasons == ("explicit-latest", "never-started")


def test_evidence_is_ready_when_all_but_tolerated_leftovers_have_a_manifest() -> None:
    left = pod(image_id=None, phase="Failed", name="left")
    assert audited(podlist(left, pod()), tolerate=True).evidence_ready
    assert not audited(podlist(left, pod())).evidence_ready
    assert not audited(podlist(left), tolerate=True).evidence_ready
    assert not audited(podlist(left, pod(), pod(image_id=GOOD, name="imported")), tolerate=True).evidence_ready


def test_each_kind_is_paired_with_its_own_status_list_by_name() -> None:
    everything = pod(
        spec={
            "initContainers": [
                {"name": "wait", "image": IMAGE},
                {"name": "proxy", "image": IMAGE, "restartPolicy": "Always"},
            ],
            "containers": [{"name": "driver", "image": IMAGE}, {"name": "ctr", "image": IMAGE}],
            "ephemeralContainers": [{"name": "debug", "image": IMAGE, "targetContainerName": "driver"}],
            "volumes": [
                {"name": "run", "hostPath": {"path": "/run"}},
                {"name": "model", "image": {"reference": IMAGE}},
            ],
        },
        status={
            "initContainerStatuses": [running("proxy", f"{REPO}@{sha('p')}"), running("wait", f"{REPO}@{sha('w')}")],
            "containerStatuses": [running("ctr", f"{REPO}@{sha('c')}"), running("driver", f"{REPO}@{sha('d')}")],
            "ephemeralContainerStatuses": [running("debug", f"{REPO}@{sha('e')}")],
        },
    )
    records = audited(podlist(everything)).records
    assert [(r.kind, r.container, r.resolved.partition("@")[2]) for r in records] == [
        ("container", "ctr", sha("c")),
        ("container", "driver", sha("d")),
        ("ephemeral", "debug", sha("e")),
        ("imageVolume", "model", ""),
        ("init", "proxy", sha("p")),
        ("init", "wait", sha("w")),
    ]


def test_a_status_of_another_list_does_not_resolve_a_container() -> None:
    wrong = pod(image_id=None, status={"initContainerStatuses": [running("driver", RUN)]})
    assert one(audited(podlist(wrong))).runtime_class == "unresolved"


@pytest.mark.parametrize(
    ("reference", "reasons"),
    [
        (IMAGE, []),
        (f"{REPO}:latest", ["explicit-latest"]),
        (REPO, ["implicit-latest"]),
        (f"{REPO}@{GOOD}", []),
        ("", ["empty-reference"]),
        (None, ["empty-reference"]),
        (f"{REPO}@sha256:1", ["bad-digest"]),
    ],
)
def test_an_image_volume_is_judged_by_its_reference_alone(reference: str | None, reasons: list[str]) -> None:
    volumes = [{"name": "model", "image": {"reference": reference, "pullPolicy": "Always"}}]
    report = audited(podlist(pod(spec={"volumes": volumes})))
    record = next(r for r in report.records if r.kind == "imageVolume")
    assert (record.runtime_class, record.evidence, list(record.reasons)) == ("unresolved", False, reasons)
    assert (record.container, record.resolved) == ("model", "")
    assert report.verdict == ("fail" if reasons else "pass")
    assert not report.evidence_ready


def test_a_volume_of_another_source_is_no_record() -> None:
    volumes = [{"name": "image", "configMap": {"name": "image", "items": [{"key": "image", "path": "image"}]}}]
    volumes.append({"name": "null", "image": None})  # type: ignore[dict-item]
    assert len(audited(podlist(pod(spec={"volumes": volumes}))).records) == 1


INDEX, AMD, ARM, OTHER = sha("index"), sha("amd64"), sha("arm64"), sha("other")
CHILDREN = [{"digest": AMD, "platform": "linux/amd64"}, {"digest": ARM, "platform": "linux/arm64"}]
RELATIONS = {INDEX: CHILDREN}
NODES = {"gpu-a": "linux/amd64", "gpu-b": "linux/arm64", "gpu-c": "linux/amd64", "gpu-s": "linux/s390x"}
TWICE = {INDEX: [*CHILDREN, {"digest": OTHER, "platform": "linux/amd64"}]}
V8 = {INDEX: [{"digest": ARM, "platform": "linux/arm64/v8"}]}


@pytest.mark.parametrize(
    ("pinned", "runs", "node", "relations", "nodes", "proven"),
    [
        (AMD, AMD, "gpu-a", None, None, True),
        (AMD, INDEX, "gpu-a", RELATIONS, NODES, True),
        (INDEX, AMD, "gpu-a", RELATIONS, NODES, True),
        (INDEX, ARM, "gpu-b", RELATIONS, NODES, True),
        (INDEX, ARM, "gpu-b", V8, NODES, True),
        (INDEX, ARM, "gpu-a", RELATIONS, NODES, False),
        (ARM, INDEX, "gpu-a", RELATIONS, NODES, False),
        (AMD, ARM, "gpu-a", RELATIONS, NODES, False),
        (INDEX, OTHER, "gpu-a", RELATIONS, NODES, False),
        (INDEX, AMD, "gpu-a", RELATIONS, None, False),
        (INDEX, AMD, "gpu-a", None, NODES, False),
        (INDEX, AMD, "gpu-unknown", RELATIONS, NODES, False),
        (INDEX, AMD, "gpu-s", RELATIONS, NODES, False),
        (INDEX, AMD, "gpu-a", TWICE, NODES, False),
        (INDEX, ARM, "gpu-b", TWICE, NODES, True),
    ],
)
def test_another_digest_than_the_pinned_one_passes_only_when_proven_for_the_node(
    pinned: str, runs: str, node: str, relations: Any, nodes: Any, proven: bool
) -> None:
    for image in (f"{REPO}@{pinned}", f"{REPO}:1@{pinned}"):
        report = audited(podlist(pod(image, f"{REPO}@{runs}", node=node)), relations=relations, nodes=nodes)
        assert one(report).reasons == (() if proven else ("declared-digest-mismatch",))
        assert report.verdict == ("pass" if proven else "fail")


def test_a_pin_beside_latest_is_compared_and_a_bad_pin_is_not() -> None:
    assert one(audited(podlist(pod(f"{REPO}:latest@{GOOD}", f"{REPO}@{OTHER}")))).reasons == (
        "declared-digest-mismatch",
        "explicit-latest",
    )
    assert one(audited(podlist(pod(f"{REPO}@{GOOD[:-1]}", f"{REPO}@{OTHER}")))).reasons == ("bad-digest",)


@pytest.mark.parametrize("image_id", [OTHER, f"containerd://{OTHER}", f"docker.io/library/import-2026-08-20@{OTHER}"])
def test_only_manifests_are_compared_with_a_pin(image_id: str) -> None:
    assert "declared-digest-mismatch" not in one(audited(podlist(pod(f"{REPO}@{GOOD}", image_id)))).reasons


@pytest.mark.parametrize(
    ("desired", "reported", "alias"),
    [
        ("busybox:1", "docker.io/library/busybox", False),
        ("docker.io/busybox:1", "index.docker.io/library/busybox", False),
        ("library/busybox:1", "busybox", False),
        ("projecthami/hami:v2.9.0", "docker.io/projecthami/hami", False),
        ("Registry.Example/a:1", "registry.example/a", False),
        ("localhost/a:1", "docker.io/localhost/a", True),
        ("busybox:1", "docker.io/other/busybox", True),
        ("registry.example/a:1", "registry.example:5000/a", True),
        ("registry.example/a:1", "mirror.example/a", True),
    ],
)
def test_repositories_are_compared_in_their_long_form(desired: str, reported: str, alias: bool) -> None:
    record = one(audited(podlist(pod(desired, f"{reported}@{GOOD}"))))
    assert record.reasons == (("repository-alias",) if alias else ())
    assert record.audit == "pass"


def runs_on(*pairs: tuple[str, str], image: str = IMAGE) -> bytes:
    return podlist(*(pod(image, f"{REPO}@{d}", name=f"p{i}", node=n) for i, (d, n) in enumerate(pairs)))


@pytest.mark.parametrize(
    ("pairs", "relations", "nodes", "diverges"),
    [
        ([(AMD, "gpu-a"), (AMD, "gpu-c")], None, None, False),
        ([(AMD, "gpu-a"), (ARM, "gpu-b")], None, None, True),
        ([(AMD, "gpu-a"), (ARM, "gpu-b")], RELATIONS, NODES, False),
        ([(AMD, "gpu-a"), (ARM, "gpu-c")], RELATIONS, NODES, True),
        ([(AMD, "gpu-b"), (ARM, "gpu-a")], RELATIONS, NODES, True),
        ([(AMD, "gpu-a"), (ARM, "gpu-b")], RELATIONS, None, True),
        ([(AMD, "gpu-a"), (ARM, "gpu-b"), (OTHER, "gpu-c")], RELATIONS, NODES, True),
        ([(AMD, "gpu-a"), (INDEX, "gpu-b")], RELATIONS, NODES, False),
        ([(AMD, "gpu-a"), (INDEX, "gpu-c")], RELATIONS, NODES, False),
        ([(AMD, "gpu-a"), (INDEX, "gpu-s")], RELATIONS, NODES, True),
        ([(AMD, "gpu-a"), (OTHER, "gpu-c")], TWICE, NODES, True),
        ([(AMD, "gpu-a"), (INDEX, "gpu-unknown")], RELATIONS, NODES, True),
    ],
)
def test_one_tag_with_two_digests_diverges_unless_they_are_one_index(
    pairs: list[tuple[str, str]], relations: Any, nodes: Any, diverges: bool
) -> None:
    report = audited(runs_on(*pairs), relations=relations, nodes=nodes)
    assert codes(report) == (["tag-divergence"] if diverges else [])
    assert report.verdict == ("fail" if diverges else "pass")
    assert {r.audit for r in report.records} == {"pass"}
    assert report.evidence_ready is not diverges


def test_divergence_is_by_normalised_repository_and_tag_across_namespaces_and_kinds() -> None:
    def two(one: str, other: str, other_id: str = f"docker.io/library/a@{sha('2')}") -> list[str]:
        init = {"initContainers": [{"name": "i", "image": other}]}
        ran = {"initContainerStatuses": [running("i", other_id)], "containerStatuses": []}
        second = pod(namespace="hami-system", spec={**init, "containers": []}, status=ran)
        return codes(audited(podlist(pod(one, f"docker.io/library/a@{sha('1')}"), second)))

    assert two("a:1", "docker.io/library/a:1") == ["tag-divergence"]
    assert two("a", "index.docker.io/a:latest") == ["tag-divergence"]
    assert two("a:1", "a:2") == []
    assert two("a:1", "b:1") == []
    assert two(f"a:1@{sha('1')}", f"a:1@{sha('2')}") == []
    assert two("a:1", f"a:1@{sha('2')}") == []
    assert two("a:1", "a:1", sha("2")) == []
    assert two("a:1", "a:1", f"import-2026-08-20@{sha('2')}") == []


def test_a_demanded_namespace_must_have_a_pod_and_others_are_audited_too() -> None:
    both = podlist(pod(), pod(f"{REPO}:latest", namespace="other"))
    assert codes(audited(both, demanded=("gpu-operator",))) == []
    report = audited(both, demanded=("gpu-operator", "hami-system", "hami-system"))
    assert (report.verdict, codes(report), len(report.findings)) == ("error", ["empty-scope"], 1)
    assert [r.audit for r in report.records] == ["pass", "fail"]


def test_codes_that_hold_together_are_all_given() -> None:
    empty = audited(podlist(), demanded=("gpu-operator",))
    assert (empty.verdict, codes(empty)) == ("error", ["empty-scope", "no-containers"])
    part = audited(podlist(pod(), metadata={"continue": "abc"}), demanded=("hami-system",))
    assert (part.verdict, codes(part), len(part.records)) == ("error", ["empty-scope", "incomplete-list"], 1)
    assert codes(audited(b"", demanded=("gpu-operator",))) == ["not-json"]
    assert codes(audited(b"[]", demanded=("gpu-operator",))) == ["not-a-podlist"]


@pytest.mark.parametrize(("token", "complete"), [("", True), (None, True), ("x", False), (" ", False), (0, False)])
def test_a_list_is_complete_only_without_a_continue_token(token: object, complete: bool) -> None:
    report = audited(podlist(pod(), metadata={"resourceVersion": "1", "continue": token}))
    assert codes(report) == ([] if complete else ["incomplete-list"])
    assert len(report.records) == 1


def test_an_error_goes_before_a_failure() -> None:
    report = audited(podlist(pod(f"{REPO}:latest"), metadata={"continue": "abc"}))
    assert (report.verdict, [r.audit for r in report.records]) == ("error", ["fail"])


def test_terminating_and_mirror_pods_are_audited_like_others() -> None:
    leaving = pod(f"{REPO}:latest")
    leaving["metadata"]["deletionTimestamp"] = "2026-08-20T08:00:00Z"
    mirror = pod(name="static-gpu-a")
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    assert [r.audit for r in audited(podlist(leaving, mirror)).records] == ["fail", "pass"]


def test_digests_are_counted_once_with_every_repository_that_reported_them() -> None:
    report = audited(
        podlist(
            pod(image_id=f"{REPO}@{sha('b')}", name="a"),
            pod(image_id=f"mirror.example/driver@{sha('b')}", name="b"),
            pod("busybox:1", f"busybox@{sha('a')}", name="c"),
            pod(image_id=sha("c"), name="d"),
        )
    )
    assert [(d.digest, d.repositories, d.records) for d in report.digests] == sorted(
        [(sha("a"), ["docker.io/library/busybox"], 1), (sha("b"), ["mirror.example/driver", REPO], 2)]
    )
