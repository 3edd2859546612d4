"""`gpurunbook holders` on captured files: each signal alone, each broken, and files that cannot be trusted.

Covered: every case of tests/cases/holders (through the command, as JSON), bad files, exit codes, the table.
Not covered: what only a live cluster shows (test_holders_cluster.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from holder_samples import claim, pod

from gpurunbook.cli.holders import holders
from gpurunbook.errors import ParameterError

CASES = Path(__file__).parents[1] / "cases" / "holders"
SIGNALS = yaml.safe_load((CASES / "signals.yaml").read_text())
EXIT = {"none": 0, "held": 1, "unknown": 2}


def run(*args: str) -> tuple[Result, int]:
    """The command's result and the exit code that `main` would make of it."""
    result = CliRunner().invoke(holders, args, standalone_mode=False)
    assert result.exception is None, result.exception
    return result, result.return_value


def answer(tmp_path: Path, pods: Any, claims: Any = None, node: str = "n1") -> tuple[dict[str, Any], int]:
    """The JSON answer for these lists, and the exit code."""
    (tmp_path / "pods.json").write_text(pods if isinstance(pods, str) else json.dumps(pods))
    args = ["--node", node, "--pod-json", str(tmp_path / "pods.json"), "-o", "json"]
    if claims is not None:
        (tmp_path / "claims.json").write_text(claims if isinstance(claims, str) else json.dumps(claims))
        args += ["--claims", str(tmp_path / "claims.json")]
    result, code = run(*args)
    return json.loads(result.stdout), code


@pytest.mark.parametrize("case", SIGNALS, ids=[c["case"] for c in SIGNALS])
def test_signal(tmp_path: Path, case: dict[str, Any]) -> None:
    pods = {"kind": "PodList", "items": [pod(p) for p in case["pods"]]}
    claims = {"kind": "ResourceClaimList", "items": [claim(c) for c in case["claims"]]} if "claims" in case else None
    seen, code = answer(tmp_path, pods, claims)
    expected = case["expected"]
    reasons = expected.get("reasons", {})
    assert seen["verdict"] == expected["verdict"]
    assert code == EXIT[expected["verdict"]]
    assert {h["pod"]: h["reasons"] for h in seen["holders"]} == reasons
    assert seen["blocking"] == expected.get("blocking", sorted(reasons))
    assert seen["operator_owned"] == expected.get("operator_owned", [])
    assert seen["operands"] == expected.get("operands", [])
    if "doubts" in expected:
        assert sorted(seen["doubts"]) == expected["doubts"]


def test_case_names_are_unique_and_both_answers_occur() -> None:
    assert len({c["case"] for c in SIGNALS}) == len(SIGNALS)
    assert {c["expected"]["verdict"] for c in SIGNALS} == set(EXIT)


def test_captured_node_with_a_bit_of_everything() -> None:
    result, code = run("--node", "gpu-w2", "--pod-json", str(CASES / "pods-01-on-node.json"), "-o", "json")
    seen = json.loads(result.stdout)
    assert (code, seen["verdict"]) == (1, "held")
    assert seen["blocking"] == [
        "default/train-a",
        "team-b/init-holder",
        "team-b/sidecar-holder",
        "team-c/dra-user",
        "team-c/leaving",
        "team-d/starting",
    ]
    assert seen["operator_owned"] == ["gpu-operator/gfd-gpu-w2"]


def test_gfd_of_another_node_is_a_tenant_there(tmp_path: Path) -> None:
    whole = json.loads((CASES / "pods-01-on-node.json").read_text())
    for item in whole["items"]:
        item["spec"]["nodeName"] = "gpu-w9"
    seen, _ = answer(tmp_path, whole, node="gpu-w9")
    assert "gpu-operator/gfd-gpu-w2" in seen["blocking"]


GPU = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '"pods"',
        "{}",
        '{"kind": "PodList"}',
        '{"kind": "PodList", "items": null}',
        '{"kind": "PodList", "items": {}}',
        '{"kind": "PodList", "items": [null]}',
        '{"kind": "PodList", "items": [{"metadata": {"name": "a"}}]}',
        '{"kind": "PodList", "items": [{"spec": {"containers": []}}]}',
        '{"kind": "PodList", "items": [{"metadata": {"name": "a"}, "spec": {"nodeName": "n1"}}]}',
        '{"items": []}',
        '{"kind": "", "items": []}',
        '{"kind": "NodeList", "items": []}',
        '{"kind": "Status", "status": "Failure", "items": []}',
        '{"kind": "List", "items": [{"kind": "Node", "metadata": {"name": "n1"}, "spec": {}}]}',
        '{"kind": "List", "items": [{"kind": "Deployment", "metadata": {"name": "n1"}, "spec": {"containers": []}}]}',
        '{"kind": "PodList", "metadata": {"continue": "abc"}, "items": []}',
        '{"kind": "PodList", "metadata": {"remainingItemCount": 7}, "items": []}',
        '{"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": []}}',
        '{"kind": "PodList", "items": ' + "[" * 100_000,
    ],
)
def test_what_is_no_whole_list_of_pods_is_unknown(tmp_path: Path, text: str) -> None:
    seen, code = answer(tmp_path, text)
    assert (seen["verdict"], code) == ("unknown", 2)
    assert seen["problems"]
    assert seen["blocking"] == []


def test_a_page_that_shows_a_holder_is_held_all_the_same(tmp_path: Path) -> None:
    seen, code = answer(tmp_path, {"kind": "List", "metadata": {"continue": "x"}, "items": [pod({"name": "a", **GPU})]})
    assert (seen["verdict"], code, seen["blocking"]) == ("held", 1, ["t/a"])
    assert seen["problems"]


@pytest.mark.parametrize(
    "claims",
    [
        "",
        "[]",
        '{"kind": "List", "items": null}',
        '{"kind": "List", "metadata": {"continue": "x"}, "items": []}',
        '{"kind": "PodList", "items": []}',
        '{"items": []}',
    ],
)
def test_claims_that_cannot_be_read_whole_are_unknown(tmp_path: Path, claims: str) -> None:
    seen, code = answer(tmp_path, {"kind": "PodList", "items": [pod({"name": "a"})]}, claims)
    assert (seen["verdict"], code) == ("unknown", 2)


@pytest.mark.parametrize("place", ["list", "pod"])
def test_a_key_that_stands_twice_hides_no_holder(tmp_path: Path, place: str) -> None:
    held = json.dumps(pod({"name": "a", **GPU}))
    bare = json.dumps(pod({"name": "a"})).removeprefix("{")
    twice = {
        "list": f'{{"kind": "List", "items": [{held}], "items": []}}',
        "pod": f'{{"kind": "List", "items": [{held[:-1]}, {bare}]}}',
    }[place]
    assert json.loads(twice)["items"] != [json.loads(held)], "plain JSON shows no holder"
    seen, code = answer(tmp_path, twice)
    assert (seen["verdict"], code) == ("unknown", 2)
    assert "stands twice" in seen["problems"][0]


@pytest.mark.parametrize("missing", ["pods", "claims", "folder"])
def test_a_file_that_is_not_there_is_unknown(tmp_path: Path, missing: str) -> None:
    (tmp_path / "pods.json").write_text('{"kind": "PodList", "items": []}')
    pods = {"pods": tmp_path / "absent.json", "claims": tmp_path / "pods.json", "folder": tmp_path}[missing]
    args = ["--node", "n1", "--pod-json", str(pods), "-o", "json"]
    args += ["--claims", str(tmp_path / "absent.json")] if missing == "claims" else []
    result, code = run(*args)
    assert (json.loads(result.stdout)["verdict"], code) == ("unknown", 2)


def test_a_list_of_kubectl_with_kinds_is_read(tmp_path: Path) -> None:
    items = [{"kind": "Pod", "apiVersion": "v1", **pod({"name": "a", **GPU})}]
    seen, _ = answer(tmp_path, {"kind": "List", "metadata": {"resourceVersion": ""}, "items": items})
    assert seen["blocking"] == ["t/a"]


def test_claims_need_a_list_of_pods(tmp_path: Path) -> None:
    result = CliRunner().invoke(holders, ["--node", "n1", "--claims", str(tmp_path / "c.json")])
    assert result.exit_code == 2
    assert "--pod-json" in result.stderr


@pytest.mark.parametrize("name", ["", "n1 ", "a/b"])
def test_what_cannot_be_a_node_name_is_no_answer(tmp_path: Path, name: str) -> None:
    (tmp_path / "p.json").write_text('{"kind": "PodList", "items": []}')
    args = ["--node", name, "--pod-json", str(tmp_path / "p.json"), "-o", "json"]
    result = CliRunner().invoke(holders, args, standalone_mode=False)
    assert isinstance(result.exception, ParameterError)
    assert result.stdout == ""


def test_a_list_without_any_pod_of_the_node_is_remarked(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps({"kind": "PodList", "items": [pod({"name": "a", "nodeName": "n2"})]}))
    result, code = run("--node", "n1", "--pod-json", str(tmp_path / "p.json"), "-o", "json")
    assert code == 0
    assert "none of them is on n1" in result.stderr


def test_the_answer_is_sorted_and_without_repeats(tmp_path: Path) -> None:
    pods = [pod({"name": n, "namespace": s, **GPU}) for s, n in (("z", "a"), ("a", "z"), ("a", "a"))]
    claims = {"kind": "ResourceClaimList", "items": [claim({"name": "c", "results": [{"driver": "x", "pool": "n1"}]})]}
    seen, _ = answer(tmp_path, {"kind": "PodList", "items": pods}, claims)
    assert seen["blocking"] == sorted(seen["blocking"]) == ["a/a", "a/z", "t/c", "z/a"]
    assert [h["pod"] for h in seen["holders"]] == seen["blocking"]
    again, _ = answer(tmp_path, {"kind": "PodList", "items": list(reversed(pods))}, claims)
    assert again == seen


def test_the_table_makes_hostile_names_harmless(tmp_path: Path) -> None:
    bad = pod({"name": "a\x1b[2Jb", "annotations": {"nvidia.cdi.k8s.io/container.x": "[red]\x1b]0;t\x07"}})
    (tmp_path / "p.json").write_text(json.dumps({"kind": "PodList", "items": [bad]}))
    result, code = run("--node", "n1", "--pod-json", str(tmp_path / "p.json"), "-o", "table")
    assert code == 1
    assert "\x1b" not in result.stdout + result.stderr
    assert "cdi-annotation" in result.stdout


def test_the_table_says_what_could_not_be_read(tmp_path: Path) -> None:
    result, code = run("--node", "n1", "--pod-json", str(tmp_path / "absent.json"), "-o", "table")
    assert code == 2
    assert "unknown" in result.stdout
    assert "cannot be read" in result.stderr
