"""`gpurunbook audit` of a live cluster, over HTTP, against the embedded API server.

Covered: a cluster that keeps to the policy, what is asked of the server, its name in the answer, baselines of this and
another cluster, and every fault of the server that a fixture cluster injects: none is ever a pass.
Not covered: the real control plane (the scenarios of the runbook run there), speed (tests/bench).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from embedded_server import Embedded, start, stop

from gpurunbook.cli import group
from gpurunbook.sources.embedded import state_folder

CLUSTERS = Path(__file__).parents[2] / "parameters" / "clusters"


@pytest.fixture
def fixture_cluster(request: pytest.FixtureRequest) -> str:
    """The fixture cluster that a test runs on."""
    return str(getattr(request, "param", "small"))


@pytest.fixture
def server(fixture_cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Embedded]:
    """A server of its own, which the command finds by the name of the fixture cluster."""
    for name in ("GPURUNBOOK_HOME", "GPURUNBOOK_OUT", "GPURUNBOOK_CLUSTERS"):
        monkeypatch.delenv(name, raising=False)
    for name in ("runbooks", "parameters", "deeper"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    state = state_folder(str(CLUSTERS / fixture_cluster), Path("outputs", ".clusters").absolute())
    state.mkdir(parents=True)
    yield start(state, CLUSTERS / fixture_cluster)
    stop(state)


def audit(*given: str, cluster: str = "small") -> tuple[int, dict[str, Any]]:
    line = ["audit", "-o", "json", "--cluster", f"embedded:{CLUSTERS / cluster}", *given]
    result = CliRunner().invoke(group, line, standalone_mode=False, catch_exceptions=False)
    return result.return_value, json.loads(result.stdout)


def test_from_deeper_in_the_home_the_same_server_is_asked(server: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("deeper")
    assert audit()[1]["verdict"] == "pass"
    assert not Path("outputs").exists()


def codes(answer: dict[str, Any]) -> list[str]:
    return sorted({f["code"] for f in answer["findings"]})


def test_a_cluster_that_keeps_to_the_policy_passes_and_is_named(server: Embedded) -> None:
    code, answer = audit()
    system = server.client().call("GET", "/api/v1/namespaces/kube-system")
    assert (code, answer["verdict"], codes(answer)) == (0, "pass", [])
    assert answer["cluster"] == system["metadata"]["uid"]
    assert answer["rehearsal"] is True
    assert {r["namespace"] for r in answer["records"]} == {"gpu-operator", "hami-system"}
    assert {r["kind"] for r in answer["records"]} == {"container", "init"}
    assert sum(d["records"] for d in answer["digests"]) == len(answer["records"])


def test_only_pods_of_the_namespaces_and_the_name_of_the_cluster_are_read(server: Embedded) -> None:
    before = len(server.log())
    audit("--namespace", "gpu-operator")
    asked = {(e["method"], e["path"]) for e in server.log()[before:] if not e["path"].startswith("/_gpurunbook")}
    assert asked == {
        ("GET", "/api/v1/namespaces/kube-system"),
        ("GET", "/version"),
        ("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews"),
        ("GET", "/api/v1/namespaces/gpu-operator/pods"),
    }


def test_a_namespace_that_has_no_pod_or_does_not_exist_is_an_error(server: Embedded) -> None:
    for name in ("default", "no-such-namespace"):
        code, answer = audit("--namespace", "gpu-operator", "--namespace", name)
        assert (code, answer["verdict"], codes(answer)) == (2, "error", ["empty-scope"])
        assert answer["records"]


def test_a_baseline_is_compared_and_must_be_of_this_cluster(server: Embedded, tmp_path: Path) -> None:
    _, answer = audit()
    tagged = next(r for r in answer["records"] if r["desired_class"] == "tag")["resolved"].partition("@")[2]
    repushed = json.loads(json.dumps(answer).replace(tagged, "sha256:" + "0" * 64))
    for changes, expected in (
        ({}, (0, [])),
        (repushed, (1, ["digest-changed"])),
        ({"cluster": "another"}, (2, ["foreign-baseline"])),
    ):
        (tmp_path / "baseline.json").write_text(json.dumps({**answer, **changes}))
        code, now = audit("--baseline", str(tmp_path / "baseline.json"))
        assert (code, codes(now)) == expected


@pytest.mark.parametrize(
    ("fixture_cluster", "verdict", "expected"),
    [
        ("audit-connection-reset", "pass", []),
        ("audit-throttled", "pass", []),
        ("audit-list-expired", "pass", []),
        ("audit-list-expired-for-good", "error", ["namespace-unreadable"]),
        ("audit-forbidden-later", "error", ["namespace-forbidden"]),
        ("audit-not-found", "error", ["namespace-unreadable"]),
        ("audit-garbled-body", "error", ["namespace-unreadable"]),
        ("audit-truncated-body", "error", ["namespace-unreadable"]),
        ("audit-token-expired", "error", ["namespace-unreadable"]),
        ("audit-unauthorized", "error", ["cluster-unreadable"]),
        ("audit-tag-divergence", "fail", ["tag-divergence"]),
    ],
    indirect=["fixture_cluster"],
)
def test_a_fault_of_the_server_is_survived_or_an_error_and_never_a_pass(
    fixture_cluster: str, server: Embedded, verdict: str, expected: list[str]
) -> None:
    code, answer = audit(cluster=fixture_cluster)
    assert (answer["verdict"], codes(answer)) == (verdict, expected)
    assert code == {"pass": 0, "fail": 1, "error": 2}[verdict]


def test_a_cluster_that_is_not_there_is_an_error_in_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, answer = audit(cluster="no-such-fixture")
    assert (code, answer["verdict"], codes(answer)) == (2, "error", ["cluster-unreadable"])
    assert answer["records"] == []
