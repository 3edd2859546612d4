"""The audit as checks of a runbook: what they need, and what they conclude from what was observed.

Covered: needs live and of a file; live pages; problems with a namespace, an input, or the cluster's name; findings per
record and beyond many; views, facts and the file; the check on evidence.
Not covered: how needs are fetched (tests/unit of runbook and sources), the words of the audit (test_audit_words.py).
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from pods import IMAGE, REPO, pod, podlist, sha

import gpurunbook
from gpurunbook.errors import ParameterError
from gpurunbook.findings import Status, worst
from gpurunbook.plan import Check, Document, Figure, Judgement, Object, Observed, Pages, Problem, Recorded, Table
from gpurunbook.supply.audit import FINDINGS, evidence_ready, provenance
from gpurunbook.supply.pods import PodList
from gpurunbook.supply.records import page

SYSTEM = {"metadata": {"name": "kube-system", "uid": "u1"}}


def judged(check: Check, values: dict[str, Any], system: Any = SYSTEM) -> Judgement:
    """values: by name of the need: pods, the bytes of a file, or a Problem."""
    seen = {}
    for name, need in check.needs.items():
        value = system if name == "cluster" else values[name]
        if isinstance(value, Problem):
            seen[name] = Observed(need, problem=value)
        elif isinstance(need, Pages):
            # A page each of at most two pods: what is kept of a page knows nothing of the others.
            parts = [podlist(*value[start : start + 2]) for start in range(0, len(value), 2)]
            pages = [msgspec.json.decode(part, type=need.page).items for part in parts]
            seen[name] = Observed(need, [item for items in pages for item in need.kept(items)])
        else:
            seen[name] = Observed(need, value)
    return check.judge(seen)


def live(gpu: Any, hami: Any = (), system: Any = SYSTEM, **options: Any) -> Judgement:
    check = provenance(["gpu-operator", "hami-system"], **options)
    return judged(check, {"pods gpu-operator": gpu, "pods hami-system": hami}, system)


HAMI = pod(namespace="hami-system", name="hami")


def found(judgement: Judgement) -> list[str]:
    return sorted({f.code for f in judgement.findings if f.status in (Status.FAIL, Status.UNKNOWN)})


def kept(judgement: Judgement) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(judgement.files["audit.json"])
    return read


def test_live_needs_are_pages_of_each_namespace_and_the_name_of_the_cluster() -> None:
    check = provenance(["gpu-operator", "x", "x"], baseline="b.json", relations="r.json", platforms="p.json")
    assert check.needs == {
        "cluster": Object("/api/v1/namespaces/kube-system"),
        "pods gpu-operator": Pages("/api/v1/namespaces/gpu-operator/pods", PodList, kept=page),
        "pods x": Pages("/api/v1/namespaces/x/pods", PodList, kept=page),
        "baseline": Document("b.json"),
        "relations": Document("r.json"),
        "platforms": Document("p.json"),
    }


def test_without_namespaces_the_default_scope_is_read() -> None:
    assert [n for n in provenance([]).needs if n != "cluster"] == ["pods gpu-operator", "pods hami-system"]


def test_a_captured_file_needs_nothing_of_a_cluster() -> None:
    assert provenance(["gpu-operator"], pod_json="pods.json").needs == {"pods": Document("pods.json")}


@pytest.mark.parametrize(
    "name", ["", "../kube-system", "a/b", "A", "a b", "a" * 64, "-a", "gpu-operator\n", "a?b", "a.b", 5]
)
def test_a_name_that_no_namespace_can_have_is_refused_before_anything_is_read(name: Any) -> None:
    with pytest.raises(ParameterError):
        provenance([name])


def test_the_notebook_finds_both_checks_by_name() -> None:
    assert gpurunbook.supply.provenance is provenance
    assert gpurunbook.supply.evidence_ready is evidence_ready
    with pytest.raises(AttributeError, match="provenance"):
        _ = gpurunbook.supply.no_such_check


def test_live_pods_that_keep_to_the_policy_pass() -> None:
    judgement = live([pod()], [HAMI])
    assert worst(judgement.findings) is Status.PASS
    assert [f.code for f in judgement.findings] == ["provenance-kept"]
    assert (kept(judgement)["cluster"], kept(judgement)["rehearsal"]) == ("u1", False)


@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_a_marked_cluster_is_a_rehearsal(where: str) -> None:
    marked = {"metadata": {"uid": "u1", where: {"gpurunbook.io/rehearsal": "true"}}}
    assert kept(live([pod()], [HAMI], marked))["rehearsal"] is True


def test_a_captured_file_is_of_no_cluster_and_a_rehearsal() -> None:
    judgement = judged(provenance([], pod_json="p"), {"pods": podlist(pod())})
    assert (kept(judgement)["cluster"], kept(judgement)["rehearsal"]) == (None, True)
    assert worst(judgement.findings) is Status.PASS


@pytest.mark.parametrize(
    ("code", "expected"),
    [("forbidden", "namespace-forbidden")]
    + [
        (c, "namespace-unreadable")
        for c in ("not-found", "gone", "garbled", "unauthorized", "throttled", "unreachable")
    ],
)
def test_a_namespace_that_was_not_read_in_full_is_unknown_and_never_a_pass(code: str, expected: str) -> None:
    judgement = live([pod()], Problem(code, "the server said so"))
    assert (worst(judgement.findings), found(judgement)) == (Status.UNKNOWN, [expected])
    finding = next(f for f in judgement.findings if f.status is Status.UNKNOWN)
    assert finding.subject == "Namespace/hami-system"
    assert "the server said so" in finding.message
    assert kept(judgement)["verdict"] == "error"
    assert len(kept(judgement)["records"]) == 1


def test_a_namespace_without_pods_is_unknown() -> None:
    judgement = live([pod()], [])
    assert (worst(judgement.findings), found(judgement)) == (Status.UNKNOWN, ["empty-scope"])
    assert found(live([], [])) == ["empty-scope", "no-containers"]
    assert found(live(Problem("forbidden", ""), Problem("gone", ""))) == ["namespace-forbidden", "namespace-unreadable"]


def test_a_pod_without_what_the_server_always_writes_is_unknown() -> None:
    broken = pod()
    del broken["spec"]["containers"]
    judgement = live([pod(), pod(name="second"), pod(name="third"), broken], [HAMI])
    assert found(judgement) == ["malformed-pod"]
    assert [f.message for f in judgement.findings if f.code == "malformed-pod"] == [
        "items[3] (gpu-operator/driver-x): it has no spec.containers"
    ]


def test_an_item_list_of_null_is_an_empty_page() -> None:
    assert msgspec.json.decode(b'{"kind":"PodList","items":null}', type=PodList).items is None


@pytest.mark.parametrize("name", ["baseline", "relations", "platforms"])
def test_an_input_that_cannot_be_read_is_unknown(name: str) -> None:
    check = provenance([], pod_json="pods.json", **{name: f"{name}.json"})
    for value, code in ((Problem("unreadable", "no such file"), "unreadable"), (b"[5]", f"malformed-{name}")):
        judgement = judged(check, {"pods": podlist(pod()), name: value})
        assert (worst(judgement.findings), found(judgement)) == (Status.UNKNOWN, [code])
        assert judgement.findings[0].subject == f"{name}.json"


def test_a_captured_file_that_cannot_be_read_is_unknown() -> None:
    judgement = judged(provenance([], pod_json="p"), {"pods": Problem("unreadable", "no such file")})
    assert (worst(judgement.findings), found(judgement)) == (Status.UNKNOWN, ["unreadable"])
    assert kept(judgement)["records"] == []


NAMELESS = [{"metadata": {}}, {"metadata": None}, {}, Problem("forbidden", "no")]


@pytest.mark.parametrize("system", NAMELESS)
def test_pods_of_a_cluster_without_a_name_are_unknown_and_never_a_pass(system: Any) -> None:
    judgement = live([pod()], [HAMI], system)
    assert found(judgement) == ["cluster-unreadable"]
    assert worst(judgement.findings) is Status.UNKNOWN
    assert kept(judgement)["verdict"] == "error"
    assert not kept(judgement)["evidence_ready"]


def test_a_baseline_of_another_cluster_or_for_a_cluster_without_a_name_is_unknown() -> None:
    check = provenance(["gpu-operator"], baseline="b")
    earlier = {"pods gpu-operator": [pod()], "baseline": live([pod()], [HAMI]).files["audit.json"]}
    assert found(judged(check, earlier)) == []
    assert found(judged(check, earlier, {"metadata": {"uid": "u2"}})) == ["foreign-baseline"]
    for system in NAMELESS:
        assert found(judged(check, earlier, system)) == ["cluster-unreadable", "foreign-baseline"]


def test_each_failing_record_is_a_finding_per_code_that_names_the_container() -> None:
    bad = pod(f"{REPO}:latest@sha256:cut", f"{REPO}@{sha('one')}", name="a")
    judgement = live([bad, pod(image_id=None, name="b")], [HAMI])
    failures = [f for f in judgement.findings if f.status is Status.FAIL]
    assert [(f.subject, f.code) for f in failures] == [
        ("gpu-operator/Pod/a", "bad-digest"),
        ("gpu-operator/Pod/a", "explicit-latest"),
        ("gpu-operator/Pod/b", "unresolved"),
    ]
    for failure in failures:
        assert "container 'driver'" in failure.message
        assert failure.remedy
        assert failure.source


def test_past_many_failures_one_finding_per_code_counts_the_rest() -> None:
    judgement = live([pod(REPO, name=f"p{n:05}") for n in range(FINDINGS + 7)], [HAMI])
    assert [f.message for f in judgement.findings if f.message.startswith("7 more records")]
    assert sum(f.code == "implicit-latest" for f in judgement.findings) == FINDINGS + 1
    assert len(kept(judgement)["records"]) == FINDINGS + 8


def test_notes_are_one_warning_each_and_no_failure() -> None:
    judgement = live([pod(image_id=sha("c"), name="a"), pod(image_id=sha("d"), name="b")], [HAMI])
    warnings = [f for f in judgement.findings if f.status is Status.WARN]
    assert [(f.code, f.message[:9]) for f in warnings] == [("config-digest-only", "2 records")]
    assert worst(judgement.findings) is Status.WARN


def test_the_first_finding_of_the_gravest_status_is_about_the_list() -> None:
    judgement = live([pod(f"{REPO}:latest")], Problem("forbidden", ""))
    assert judgement.findings[0].code == "namespace-forbidden"


def test_views_are_a_table_of_the_first_failures_and_a_figure_by_class() -> None:
    table, figure = live([pod(REPO, name=f"p{n:03}") for n in range(60)], [HAMI]).views
    assert isinstance(table, Table)
    assert (len(table.rows), table.total, table.status) == (50, 60, "audit")
    assert all(len(row) == len(table.columns) for row in table.rows)
    assert isinstance(figure, Figure)
    assert figure.labels[0] == "manifest"
    assert {name: values[0] for name, values in figure.series.items()} == {"implicit-latest": 1, "tag": 1}
    assert all(len(values) == len(figure.labels) for values in figure.series.values())


def test_facts_are_small_and_the_inventory_follows_the_digests_alone() -> None:
    one, more = live([pod()], [HAMI]), live([pod(name="a"), pod(name="b")], [HAMI])
    assert one.facts["inventory"] == more.facts["inventory"]
    assert one.facts["inventory"] != live([pod(image_id=f"{REPO}@{sha('x')}")], [HAMI]).facts["inventory"]
    assert {k: v for k, v in more.facts.items() if k != "inventory"} == {
        "verdict": "pass",
        "evidence_ready": True,
        "records": 3,
        "failing": 0,
        "digests": 1,
        "desired": {"tag": 3},
        "runtime": {"manifest": 3},
    }


def ready(value: Any) -> Judgement:
    check = evidence_ready()
    assert check.needs == {"audit": Recorded("audit", "audit.json")}
    return judged(check, {"audit": value})


@pytest.mark.parametrize(
    ("pods", "status", "code"),
    [
        ([pod()], Status.PASS, "evidence-ready"),
        ([pod(), pod(image_id=sha("c"), name="b")], Status.WARN, "evidence-not-ready"),
        ([pod(image_id=None, phase="Failed")], Status.WARN, "evidence-not-ready"),
        ([pod(f"{REPO}:latest")], Status.FAIL, "audit-failed"),
        ([], Status.UNKNOWN, "audit-unknown"),
    ],
)
def test_evidence_is_ready_only_when_every_image_has_a_registry_digest(
    pods: list[Any], status: Status, code: str
) -> None:
    audited = judged(provenance(["gpu-operator"], tolerate_never_started=True), {"pods gpu-operator": pods}).files[
        "audit.json"
    ]
    (finding,) = ready(audited).findings
    assert (finding.status, finding.code) == (status, code)


@pytest.mark.parametrize("value", [Problem("unreadable", "step audit recorded no audit.json"), b"", b"{}", b"[]"])
def test_evidence_without_an_audit_is_unknown(value: Any) -> None:
    assert worst(ready(value).findings) is Status.UNKNOWN


def test_hostile_text_is_escaped_in_messages_and_kept_in_the_file() -> None:
    evil = "<script>\x1b[31m\u202e"
    judgement = live([pod(evil, name=evil)], [HAMI])
    failure = next(f for f in judgement.findings if f.status is Status.FAIL)
    assert "\x1b" not in failure.message
    assert "\u202e" not in failure.message
    assert kept(judgement)["records"][0]["desired"] == evil
    assert len(live([pod("A" * 1_000_000)], [HAMI]).findings[0].message) < 1000
    assert IMAGE in kept(judgement)["records"][1]["desired"]
