"""The evidence gate as a command, and as the check of a runbook.

Covered: every case of tests/cases/gate, exit codes, JSON and table, hostile text, options that are malformed, platforms
from options, files and nodes, a foreign audit, what cannot be read, the example of docs/gate.md.
Not covered: the rules (test_gate.py), collecting.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpurunbook import supply
from gpurunbook.cli import main
from gpurunbook.errors import ParameterError
from gpurunbook.findings import Status, worst
from gpurunbook.plan import Check, Document, Folder, Observed, Pages, Problem, Recorded
from tests.unit.gate_evidence import NOW, PLATFORMS, Evidence, decisions, exception, signer, text, vulnerability

PLATFORM = [word for platform in PLATFORMS for word in ("--platform", platform)]


def lay(evidence: Evidence, folder: Path) -> list[str]:
    """Writes everything as files; gives the words of the command."""
    for name, data in evidence.files().items():
        path = folder / "evidence" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(data, bytes):
            path.write_bytes(data)
        else:
            path.symlink_to("/nowhere")
    (folder / "audit.json").write_bytes(text(evidence.audit))
    said = evidence.exceptions
    (folder / "exceptions.yaml").write_bytes(said if isinstance(said, bytes) else text(said))
    words = ["--images", folder / "audit.json", "--evidence", folder / "evidence"]
    return [*map(str, words), "--exceptions", str(folder / "exceptions.yaml")]


@pytest.fixture
def gate(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["gate", *words])
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    return call


CASES = Path(__file__).parents[1] / "cases/gate"
INDEX = json.loads((CASES / "index.json").read_text())


@pytest.mark.parametrize("case", INDEX["cases"], ids=lambda case: case["why"])
def test_each_case_gets_its_answer(gate: Any, case: dict[str, Any]) -> None:
    paths = [str(CASES / name) for name in (INDEX["images"], INDEX["evidence"], case["exceptions"])]
    words = [word for pair in zip(("--images", "--evidence", "--exceptions"), paths, strict=True) for word in pair]
    words += [word for platform in case.get("platforms", INDEX["platforms"]) for word in ("--platform", platform)]
    code, out, _ = gate(*words, "--now", case.get("now", INDEX["now"]), "-o", "json")
    answer = json.loads(out)
    against = sorted({f["code"] for f in answer["findings"] if f["status"] in ("fail", "unknown")})
    assert (answer["verdict"], against) == (case["expect"], case["codes"])
    assert code == {"pass": 0, "fail": 1, "error": 2}[case["expect"]]


def test_the_example_of_the_documentation_is_a_case() -> None:
    written = (CASES.parents[2] / "docs/gate.md").read_text()
    for name in ("exceptions.yaml", "evidence/*/linux-amd64/trivy.call.json"):
        (file,) = CASES.glob(name)
        assert file.read_text().strip() in written


def sick() -> Evidence:
    evidence = Evidence()
    evidence.vulnerabilities(vulnerability("CVE-2026-0001", "openssl", "CRITICAL"))
    return evidence


@pytest.mark.parametrize(
    ("evidence", "platforms", "code", "verdict"),
    [(Evidence(), PLATFORM, 0, "pass"), (sick(), PLATFORM, 1, "fail"), (Evidence(("linux/amd64",)), [], 0, "pass")],
)
def test_the_answer_is_json_and_the_exit_code_says_the_same(
    gate: Any, tmp_path: Path, evidence: Evidence, platforms: list[str], code: int, verdict: str
) -> None:
    ended, out, _ = gate(*lay(evidence, tmp_path), *platforms, "--now", NOW, "-o", "json")
    answer = json.loads(out)
    assert (ended, answer["verdict"]) == (code, verdict)
    assert all(found["code"] and found["subject"] for found in answer["findings"])
    assert answer["rehearsal"] is True  # the clock was given
    assert out == json.dumps(answer, sort_keys=True, indent=1) + "\n"


def test_the_table_has_a_row_per_digest_and_platform(gate: Any, tmp_path: Path) -> None:
    evidence = sick()
    evidence.exceptions = decisions(exceptions=[exception()], signatures=[signer()])
    code, out, _ = gate(*lay(evidence, tmp_path), *PLATFORM, "--now", NOW, "-o", "table")
    assert (code, out.splitlines()[0]) == (0, "pass")
    for word in ("linux/amd64", "linux/arm64", "verified", "SEC-1"):
        assert word in out


def test_hostile_text_reaches_no_terminal(gate: Any, tmp_path: Path) -> None:
    evidence = Evidence()
    evidence.vulnerabilities(vulnerability("CVE-2026-0001", "open\x1b[31mssl\u202e", "CRITICAL"))
    evidence.raw["\x1b]0;name"] = b"nothing"
    for form in ("table", "json"):
        _, out, err = gate(*lay(evidence, tmp_path / form), *PLATFORM, "--now", NOW, "-o", form)
        assert "\x1b" not in out + err
        assert "\u202e" not in out + err


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda folder: (folder / "audit.json").unlink(), "unreadable"),
        (lambda folder: (folder / "audit.json").write_text("[]"), "audit-malformed"),
        (lambda folder: (folder / "exceptions.yaml").unlink(), "unreadable"),
        (lambda folder: (folder / "exceptions.yaml").write_text("- a\n"), "exceptions-malformed"),
        (lambda folder: (folder / "evidence").rename(folder / "other"), "unreadable"),
        (lambda folder: (folder / "evidence" / "link").symlink_to(folder / "audit.json"), "unreadable"),
        (lambda folder: (folder / "evidence" / "notes.txt").write_text("hello"), "unknown-file"),
    ],
)
def test_what_cannot_be_read_ends_with_2_and_its_name(gate: Any, tmp_path: Path, change: Any, code: str) -> None:
    words = lay(Evidence(), tmp_path)
    change(tmp_path)
    ended, out, _ = gate(*words, *PLATFORM, "--now", NOW, "-o", "json")
    answer = json.loads(out)
    assert (ended, answer["verdict"]) == (2, "error")
    (told,) = (f for f in answer["findings"] if f["status"] == "unknown")
    assert told["code"] == code
    assert re.search(r"(json|yaml|evidence|link|txt)", told["subject"])


@pytest.mark.parametrize("name", ["audit.json", "exceptions.yaml"])
def test_a_file_that_an_option_names_is_not_looked_for_in_the_folder_of_evidence(
    gate: Any, tmp_path: Path, name: str
) -> None:
    words = lay(Evidence(), tmp_path)
    (tmp_path / name).unlink()
    _, out, _ = gate(*words, *PLATFORM, "--now", NOW, "-o", "json")
    (told,) = (f for f in json.loads(out)["findings"] if f["status"] == "unknown")
    assert told["remedy"] == "Correct the path or its permissions."


@pytest.mark.parametrize(
    "words",
    [
        ["--platform", "amd64"],
        ["--platform", "linux/"],
        ["--now", "today"],
        ["--max-database-age", "2 days"],
        ["--stabilisation", "0"],
        ["--evidence", ""],
        ["--images", ""],
    ],
)
def test_a_malformed_option_ends_with_2(gate: Any, tmp_path: Path, words: list[str]) -> None:
    assert gate(*lay(Evidence(), tmp_path), *words)[0] == 2


def test_without_images_and_evidence_the_command_says_what_it_needs(gate: Any, tmp_path: Path) -> None:
    code, _, err = gate()
    assert (code, "--images FILE and --evidence DIR" in err) == (2, True)
    code, _, err = gate(*lay(Evidence(), tmp_path), "check-file", "x", "--kind", "trivy")
    assert (code, "check-file" in err) == (2, True)


def test_platforms_may_come_from_the_file_that_the_audit_takes(gate: Any, tmp_path: Path) -> None:
    evidence = Evidence(("linux/amd64",))
    for name in ("index", "manifest-amd64", "config-amd64"):
        evidence.docs.pop(name)
    words = [*lay(evidence, tmp_path), "--now", NOW, "-o", "json"]
    assert gate(*words)[0] == 2
    (tmp_path / "nodes.json").write_text('{"node-1": "linux/amd64", "node-2": "linux/amd64"}')
    assert gate(*words, "--platforms", str(tmp_path / "nodes.json"))[0] == 0
    (tmp_path / "nodes.json").write_text('["linux/amd64"]')
    code, out, _ = gate(*words, "--platforms", str(tmp_path / "nodes.json"))
    assert (code, {"malformed-platforms"} <= {f["code"] for f in json.loads(out)["findings"]}) == (2, True)


def test_a_database_may_be_of_any_age_that_is_asked_for(gate: Any, tmp_path: Path) -> None:
    words = [*lay(Evidence(), tmp_path), *PLATFORM, "--now", "2026-08-30T12:00:00Z", "-o", "json"]
    assert gate(*words)[0] == 1
    assert gate(*words, "--max-database-age", "300h")[0] == 0


# --- the check of a runbook

LATER = datetime(2026, 8, 20, 12, tzinfo=UTC)
SYSTEM = {"metadata": {"uid": "uid-1", "labels": {}}}


def node(system: str = "linux", machine: str = "amd64") -> dict[str, Any]:
    info = {"operatingSystem": system, "architecture": machine}
    return {"metadata": {"name": "node-1"}, "status": {"nodeInfo": {k: v for k, v in info.items() if v}}}


def observed(check: Check, made: Evidence, /, **more: Any) -> dict[str, Observed]:
    said = made.exceptions
    values = {
        "now": LATER,
        "cluster": SYSTEM,
        "evidence": made.files(),
        "audit": text(made.audit),
        "exceptions": said if isinstance(said, bytes) else text(said),
        "nodes": [node(), node(machine="arm64")],
        **more,
    }
    seen = {}
    for name, need in check.needs.items():
        value = values[name]
        problem = value if isinstance(value, Problem) else None
        seen[name] = Observed(need, None if problem else value, problem)
    return seen


def judged(evidence: Evidence, /, *, audit: str = "", platforms: tuple[str, ...] = (), **more: Any) -> Any:
    check = supply.evidence_gate("evidence", exceptions="exceptions.yaml", audit=audit, platforms=platforms)
    return check.judge(observed(check, evidence, **more))


def codes(judgement: Any) -> set[str]:
    return {f.code for f in judgement.findings if f.status in (Status.FAIL, Status.UNKNOWN)}


def test_the_check_judges_what_the_step_before_it_audited() -> None:
    check = supply.evidence_gate("evidence")
    assert check.needs["audit"] == Recorded("audit", "audit.json")
    assert isinstance(check.needs["evidence"], Folder)
    assert isinstance(check.needs["nodes"], Pages)
    assert "exceptions" not in check.needs
    other = supply.evidence_gate("evidence", audit="audit.json", platforms=["linux/amd64"], relations="r.json")
    assert isinstance(other.needs["audit"], Document)
    assert isinstance(other.needs["nodes"], Pages)


def test_platforms_that_are_named_leave_out_none_of_the_nodes() -> None:
    assert codes(judged(Evidence(), platforms=("linux/amd64",))) == {"platform-left-out"}
    assert codes(judged(Evidence(), platforms=("linux/amd64",), nodes=[node()])) == set()
    assert codes(judged(Evidence(), platforms=("linux/amd64", "linux/arm64/v8"))) == set()
    assert "platforms-unknown" in codes(judged(Evidence(), platforms=PLATFORMS, nodes=Problem("forbidden", "403")))


def test_the_check_passes_whole_evidence_and_keeps_the_answer() -> None:
    judgement = judged(Evidence())
    assert worst(judgement.findings) is Status.PASS
    answer = json.loads(judgement.files["gate.json"])
    assert (answer["verdict"], answer["now"]) == ("pass", NOW)
    assert judgement.facts["platforms"] == list(PLATFORMS)
    (table,) = judgement.views
    assert [row[0] for row in table.rows] == ["pass", "pass"]
    assert all(len(row) == len(table.columns) for row in table.rows)


def test_the_check_refuses_what_the_command_refuses() -> None:
    judgement = judged(sick())
    assert codes(judgement) == {"critical"}
    assert [row[0] for row in judgement.views[0].rows] == ["fail", "pass"]


def test_thousands_of_findings_are_counted_and_none_is_lost() -> None:
    evidence = Evidence()
    evidence.vulnerabilities(*(vulnerability(f"CVE-2026-{n}", "curl", "HIGH") for n in range(1000, 3000)))
    judgement = judged(evidence)
    assert len(judgement.findings) == 501
    assert judgement.findings[-1].message.startswith("1500 more")
    assert worst(judgement.findings) is Status.FAIL
    assert len(json.loads(judgement.files["gate.json"])["findings"]) == 2000


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([node()], set()),
        ([], {"platforms-unknown"}),
        ([node(machine="")], {"platforms-unknown"}),
        ([node(), {"metadata": {"name": "x"}}], {"platforms-unknown"}),
        (Problem("forbidden", "nodes is forbidden"), {"platforms-unknown"}),
    ],
)
def test_platforms_in_use_are_those_of_all_nodes(nodes: Any, expected: set[str]) -> None:
    evidence = Evidence(("linux/amd64",))
    for name in ("index", "manifest-amd64", "config-amd64"):
        evidence.docs.pop(name)
    assert codes(judged(evidence, nodes=nodes)) == expected


@pytest.mark.parametrize("name", ["evidence", "audit", "exceptions"])
def test_a_need_that_could_not_be_observed_is_unknown(name: str) -> None:
    check = supply.evidence_gate("evidence", exceptions="exceptions.yaml")
    judgement = check.judge(observed(check, Evidence(), **{name: Problem("unreadable", "gone")}))
    assert worst(judgement.findings) is Status.UNKNOWN
    assert "unreadable" in codes(judgement)


@pytest.mark.parametrize(
    ("audited", "rehearsal", "system", "expected"),
    [
        ("uid-1", False, SYSTEM, set()),
        ("uid-1", True, SYSTEM, {"foreign-audit"}),
        ("uid-1", True, {"metadata": {"uid": "uid-1", "labels": {"gpurunbook.io/rehearsal": "true"}}}, set()),
        ("uid-2", False, SYSTEM, {"foreign-audit"}),
        (None, True, SYSTEM, {"foreign-audit"}),
        ("uid-1", False, Problem("forbidden", "no"), {"foreign-audit"}),
        (None, False, Problem("forbidden", "no"), {"foreign-audit"}),
    ],
)
def test_an_audit_from_a_file_must_be_of_this_cluster(
    audited: str | None, rehearsal: bool, system: Any, expected: set[str]
) -> None:
    evidence = Evidence()
    evidence.audit |= {"cluster": audited, "rehearsal": rehearsal}
    assert codes(judged(evidence, audit="audit.json", cluster=system)) == expected
    assert codes(judged(evidence, cluster=system)) == set()  # the step's own audit is of this run


@pytest.mark.parametrize(
    "wrong",
    [
        {"platforms": ["amd64"]},
        {"platforms": [7]},
        {"max_database_age": "2 days"},
        {"stabilisation": ""},
        {"stabilisation": "-1h"},
    ],
)
def test_a_malformed_parameter_is_refused_before_anything_is_observed(wrong: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        supply.evidence_gate("evidence", **wrong)


def test_relations_that_are_malformed_or_gone_are_unknown() -> None:
    check = supply.evidence_gate("evidence", relations="r.json", exceptions="exceptions.yaml")
    for value, code in ((b"[]", "malformed-relations"), (Problem("unreadable", "gone"), "unreadable")):
        judgement = check.judge(observed(check, Evidence(), relations=value))
        assert code in codes(judgement)
    assert worst(check.judge(observed(check, Evidence(), relations=b"{}")).findings) is Status.PASS


def test_a_missing_folder_is_one_cause_and_not_all_that_follows(gate: Any, tmp_path: Path) -> None:
    words = lay(sick(), tmp_path)
    words[words.index("--evidence") + 1] = str(tmp_path / "nowhere")
    code, out, _ = gate(*words, "-o", "json")
    (finding,) = json.loads(out)["findings"]
    assert (code, finding["code"], finding["subject"]) == (2, "unreadable", str(tmp_path / "nowhere"))
    assert "gate collect" in finding["remedy"]
