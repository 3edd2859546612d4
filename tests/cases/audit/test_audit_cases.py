"""Every case of index.json gives exactly its answer, and so does every injection of the generator.

Covered: verdict, exit code, list codes, evidence_ready, each record's classes, audit, evidence and reasons, through
the command line in-process; some as a process of their own; the tolerant variants; the contract of the JSON; the same
records from small, large and very large files, which are read in three ways.
Not covered: rules that no case decides (test_audit_words.py), live clusters (tests/unit/test_audit_checks.py).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gen_podlist
import pytest
from click.testing import CliRunner
from pods import WAYS

from gpurunbook.cli import group
from gpurunbook.supply import podlist

HERE = Path(__file__).parent
INDEX = json.loads((HERE / "index.json").read_text())["cases"]
BY_ID = {case["id"]: case for case in INDEX}


def arguments(case: dict[str, Any], folder: Path) -> list[str]:
    given = ["audit", "--pod-json", str(HERE / case["file"]), "-o", "json"]
    for namespace in case.get("namespaces", []):
        given += ["--namespace", namespace]
    for name, option in (("relations", "--relations"), ("nodes", "--platforms")):
        if name in case:
            (folder / name).write_text(json.dumps(case[name]))
            given += [option, str(folder / name)]
    return given


def run(given: list[str]) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(group, given, standalone_mode=False, catch_exceptions=False)
    return result.return_value, json.loads(result.stdout)


def compare(case: dict[str, Any], code: int, got: dict[str, Any]) -> None:
    expected = case["expect"]
    assert (got["verdict"], code) == (expected["audit"], expected["exit"])
    assert sorted({f["code"] for f in got["findings"]}) == expected["reasons"]
    assert got["evidence_ready"] is expected["evidence_ready"]
    names = ("namespace", "pod", "kind", "container", "audit", "evidence", "reasons")
    want = [[*(r[n] for n in names), r["desired"], r["runtime"]] for r in case["records"]]
    have = [[*(r[n] for n in names), r["desired_class"], r["runtime_class"]] for r in got["records"]]
    assert sorted(have, key=str) == sorted(want, key=str)


@pytest.mark.parametrize("case", INDEX, ids=lambda case: case["id"])
def test_a_case_gives_its_answer(case: dict[str, Any], tmp_path: Path) -> None:
    compare(case, *run(arguments(case, tmp_path)))


@pytest.mark.parametrize("case", [c for c in INDEX if "tolerant" in c], ids=lambda case: case["id"])
def test_a_tolerant_case_gives_its_other_answer(case: dict[str, Any], tmp_path: Path) -> None:
    code, got = run([*arguments(case, tmp_path), case["tolerant"]["switch"]])
    assert (got["verdict"], code) == (case["tolerant"]["audit"], case["tolerant"]["exit"])
    left = [r for r in got["records"] if r["runtime_class"] == "never-started"]
    assert left
    assert all(r["audit"] == "pass" and "never-started" in r["reasons"] and not r["evidence"] for r in left)


@pytest.mark.parametrize("name", ["contract-good", "tag-divergence", "index-proves-platform", "not-json"])
def test_a_process_of_its_own_gives_the_same_exit_and_json(name: str, tmp_path: Path) -> None:
    given = arguments(BY_ID[name], tmp_path)
    command = [sys.executable, "-c", "from gpurunbook.cli import main; main()", *given]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    compare(BY_ID[name], done.returncode, json.loads(done.stdout))


def test_the_json_keeps_to_the_contract_and_to_sorted_keys() -> None:
    result = CliRunner().invoke(
        group, ["audit", "--pod-json", str(HERE / BY_ID["tag-divergence"]["file"]), "-o", "json"], standalone_mode=False
    )
    got = json.loads(result.stdout)
    assert set(got) == {"cluster", "digests", "evidence_ready", "findings", "records", "rehearsal", "verdict"}
    assert got["cluster"] is None
    assert got["rehearsal"] is True
    assert result.stdout.strip() == json.dumps(got, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    names = "audit,container,desired,desired_class,evidence,kind,namespace,pod,reasons,resolved,runtime_class"
    keys = names.split(",")
    assert [list(r) for r in got["records"]] == [keys, keys]
    place = [(r["namespace"], r["pod"], r["kind"], r["container"]) for r in got["records"]]
    assert place == sorted(place)
    assert [d["records"] for d in got["digests"]] == [1, 1]
    assert [d["digest"] for d in got["digests"]] == sorted(r["resolved"].partition("@")[2] for r in got["records"])
    assert {r for d in got["digests"] for r in d["repositories"]} == {"registry.example/gpu/driver"}


@pytest.mark.parametrize("injection", sorted(gen_podlist.INJECTIONS))
@pytest.mark.parametrize("limits", WAYS.values(), ids=WAYS)
def test_every_injected_fault_is_found_and_nothing_else(
    injection: str, limits: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(podlist, "WHOLE", limits[0])
    monkeypatch.setattr(podlist, "AT_ONCE", limits[1])
    pods, truth = tmp_path / "pods.json", tmp_path / "truth.json"
    size = ["--containers", "60", "--weight", "real", "--runtime", "mixed", "--inject", f"{injection}=2"]
    gen_podlist.main([*size, "--out", str(pods), "--truth", str(truth)])
    told = json.loads(truth.read_text())
    scope = ["--namespace", "gpu-operator", "--namespace", "hami-system"]
    code, got = run(["audit", "--pod-json", str(pods), "-o", "json", *scope])
    assert (got["verdict"], code) == (told["expect"]["audit"], told["expect"]["exit"])
    found = {
        (r["namespace"], r["pod"], r["kind"], r["container"], reason)
        for r in got["records"]
        for reason in r["reasons"]
        if reason != "repository-alias"
    }
    listed = {f["code"] for f in got["findings"]}
    of_records = [t for t in told["findings"] if "pod" in t and t["reason"] != "tag-divergence"]
    want = {(t["namespace"], t["pod"], t["kind"], t["container"], t["reason"]) for t in of_records}
    assert found == want
    assert listed == {t["reason"] for t in told["findings"]} - {t["reason"] for t in of_records}
