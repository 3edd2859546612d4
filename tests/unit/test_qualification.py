"""The qualification record, its checks, and `gpurunbook qualify`.

Covered: every case of tests/cases/qualification through the command line, every code of the record and of the
request, the edges of times and durations, the optional `from` and `rollback`, and that each code is documented.
Not covered: YAML faults in detail (test_strictyaml).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpurunbook.cli import main
from gpurunbook.errors import InputError
from gpurunbook.supply import strictyaml, times
from gpurunbook.supply.qualification import COMPONENTS, MAX_AGE, judge, read_record, read_request

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests/cases/qualification"
INDEX = json.loads((CASES / "index.json").read_text())["cases"]
EXIT = {"pass": 0, "blocked": 1, "load-error": 2}

GOOD = (CASES / "01-good.yaml").read_text()
REQUEST = next(case for case in INDEX if case["id"] == "good")["request"]
NOW = times.instant(REQUEST["now"]) or 0


def qualify(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    with pytest.raises(SystemExit) as ended:
        main(["qualify", "-o", "json", *arguments])
    out = capsys.readouterr().out
    assert isinstance(ended.value.code, int)
    return ended.value.code, json.loads(out) if out else {}


@pytest.mark.parametrize("case", INDEX, ids=lambda case: case["id"])
def test_each_case_gets_its_answer(case: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = tmp_path / "request.json"
    request.write_text(json.dumps(case["request"]))
    code, answer = qualify(capsys, "--record", str(CASES / case["file"]), "--request", str(request))
    assert (answer["verdict"], answer["problems"], code) == (case["expect"], case["problems"], EXIT[case["expect"]])


def problems(record: str = GOOD, now: int = NOW, **request: Any) -> list[str]:
    merged = {**REQUEST, **request}
    for side in ("current", "target"):
        merged[side] = {**REQUEST[side], **request.get(side, {})}
    try:
        found = judge(read_record(record.encode()), read_request(merged), now)
    except InputError as wrong:
        return [f"load-error {wrong.code}"]
    return [one.code for one in found if one.code != "qualified"]


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) == 1
    return GOOD.replace(old, new)


def without(line: str) -> str:
    return re.sub(rf"(?m)^ *{line}:.*\n(?:  - .*\n)*", "", GOOD, count=1)


RECORDS = [
    (changed("apiVersion: kube-dc.io/v1alpha1", "apiVersion: kube-dc.io/v1beta1"), ["api-version"]),
    (without("apiVersion"), ["api-version"]),
    (without("apiVersion").replace("kind: GPUUpgradeQualification", "kind:"), ["api-version"]),
    (changed("GPUUpgradeQualification", "gpuupgradequalification"), ["api-version"]),
    (without("id"), ["id"]),
    (changed("h100-wave-7\nstate", "h100_wave\nstate"), ["id"]),
    (changed("id: h100-wave-7", "id: .h100"), ["id"]),
    (changed("id: h100-wave-7", 'id: "h100\\n"'), ["id"]),
    (changed("id: h100-wave-7", "id: h１00"), ["id"]),
    (changed("id: h100-wave-7", "id: 7"), []),
    (changed("id: h100-wave-7", "id: h..-100"), []),
    (without("state"), ["state"]),
    (changed("state: qualified", "state: Qualified"), ["state"]),
    (changed("state: qualified", "state: 'qualified '"), ["state"]),
    (changed("approvedBy: sre-second-operator", "approvedBy: '  '"), ["approved-by"]),
    (changed("approvedBy: sre-second-operator", "approvedBy: ~"), ["approved-by"]),
    (changed("approvedBy: sre-second-operator", "approvedBy: 'null'"), []),
    (changed("sourceRevision: 0f3c", "sourceRevision: 0f3"), ["source-revision"]),
    (changed("sourceRevision: 0f3c", "sourceRevision: ٠f3c"), ["source-revision"]),
    (without("sourceRevision"), ["source-revision"]),
    (changed("  - 10de:2330/10de:16c1", "  - ' 10DE:2330/10DE:16C1 '"), []),
    (changed("  - 10de:2330/10de:16c1", "  - 10de:2330/10de:16c1\n  - nonsense"), ["hardware-format"]),
    (changed("  - 10de:2330/10de:16c1", "  - 10de:2330/10de:16c1\n  -"), ["hardware-format"]),
    (changed("- 10de:2330", "- 0x10de:2330"), ["hardware-empty", "hardware-format", "hardware-mismatch"]),
    (without("hardware"), ["hardware-empty", "hardware-mismatch"]),
    (changed("\n  - 10de:2330/10de:16c1", " []"), ["hardware-empty", "hardware-mismatch"]),
    (changed("\n  - 10de:2330/10de:16c1", " null"), ["hardware-empty", "hardware-mismatch"]),
    (changed("10de:2330/10de:16c1", "10de:2331/10de:16c1"), ["hardware-mismatch"]),
    (without("  dcgmExporter"), ["dcgmExporter-not-qualified"]),
    (changed("driver: 595.91.07", "driver: ~"), ["driver-not-qualified"]),
    (changed("rke2: v1.36.2+rke2r1", "rke2: v1.36.2"), ["rke2-not-qualified"]),
    (without("completedAt"), ["completed-at-format"]),
    (changed("2026-08-18T09:30:00Z", "2026-08-18 09:30:00Z"), ["completed-at-format"]),
    (changed("2026-08-18T09:30:00Z", "2026-08-18t09:30:00z"), ["completed-at-format"]),
    (changed("2026-08-18T09:30:00Z", "2026-08-18T09:30:60Z"), ["completed-at-format"]),
    (changed("2026-08-18T09:30:00Z", "2026-02-30T09:30:00Z"), ["completed-at-format"]),
    (changed("2026-08-18T09:30:00Z", "2026-08-18T09:30:00.123456789012+02:00"), []),
    (changed("2026-08-18T09:30:00Z", "2026-08-20T17:35:00+05:30"), []),
    (changed("2026-08-18T09:30:00Z", "2026-08-20T12:05:00.000000001Z"), ["completed-at-future"]),
    (changed("2026-08-18T09:30:00Z", "2026-07-21T11:59:59.999999999Z"), ["completed-at-stale"]),
    (changed("2026-08-18T09:30:00Z", "0000-01-01T00:00:00Z"), ["completed-at-stale"]),
    (changed("2026-08-18T09:30:00Z", "9999-12-31T23:59:59-23:59"), ["completed-at-future"]),
    (changed("allocationPassed: true", "allocationPassed:"), ["canary-incomplete"]),
    (GOOD.replace("Passed: true", "Passed: false"), ["canary-incomplete"]),
    (without("  evidence"), ["evidence-missing"]),
    (GOOD[: GOOD.index("canary:")], ["canary-incomplete", "completed-at-format", "evidence-missing"]),
    (GOOD[: GOOD.index("canary:")] + "canary: ~\n", ["canary-incomplete", "completed-at-format", "evidence-missing"]),
    (changed("state: qualified", "State: qualified"), ["load-error unknown-field"]),
    (changed("state: qualified", "state: qualified\nstatus: x"), ["load-error unknown-field"]),
    (changed("  kernel: 6", "  hami: 2.9.0\n  kernel: 6"), ["load-error unknown-field"]),
    (changed("  - 10de:2330/10de:16c1", "  - {id: 10de:2330/10de:16c1}"), ["load-error type"]),
    (changed("state: qualified", "state: [qualified]"), ["load-error type"]),
    (changed("canary:\n", "canary: []\nextra:\n"), ["load-error unknown-field"]),
    (re.sub(r"(?s)target:.*(?=canary)", "target: text\n", GOOD), ["load-error type"]),
    (changed("rollbackPassed: true", "rollbackPassed: True"), ["load-error type"]),
    (changed("rollbackPassed: true", "rollbackPassed: 1"), ["load-error type"]),
    (changed("rollbackPassed: true", "rollbackPassed: {}"), ["load-error type"]),
    ("[1, 2]\n", ["load-error type"]),
    ("---\n", ["load-error type"]),
    ("", ["load-error empty"]),
    ("# a comment\n", ["load-error empty"]),
    (GOOD + "---\n: : :\n", ["load-error multi-document"]),
    (GOOD + "...\n", []),
    (GOOD + "state: draft\n", ["load-error duplicate-key"]),
    (changed("state: qualified", "state: !!str qualified"), ["load-error tag"]),
    (changed("state: qualified", "state: &s qualified"), ["load-error alias"]),
    (GOOD + "a: [", ["load-error syntax"]),
    (GOOD + "#" * 65_536, ["load-error too-large"]),
    ("{}\n", sorted({"api-version", "id", "state", "approved-by", "source-revision", "hardware-empty",
                     "hardware-mismatch", *(f"{part}-not-qualified" for part in COMPONENTS), "completed-at-format",
                     "canary-incomplete", "evidence-missing"})),
]  # fmt: skip


@pytest.mark.parametrize(("record", "expected"), RECORDS)
def test_each_rule_on_the_record_has_its_problem(record: str, expected: list[str]) -> None:
    assert problems(record) == expected


REQUESTS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    ({"hardware": []}, ["hardware-empty"]),
    ({"hardware": [""]}, ["hardware-empty", "hardware-format"]),
    ({"hardware": ["10de:2330/10de:16c1", "10DE:2330/10DE:16C1"]}, ["hardware-duplicate"]),
    ({"hardware": ["10de:2330/10de:16c1", "10de:1db6/10de:124a"]}, ["hardware-mismatch"]),
    ({"hardware": ["10de:2330/10de:16c1\n"]}, []),
    ({"current": {"kernel": ""}}, ["kernel-missing"]),
    ({"current": {"gpuOperator": " \t"}}, ["gpuOperator-missing"]),
    ({"target": {"dcgmExporter": ""}}, ["dcgmExporter-missing", "dcgmExporter-not-qualified"]),
    ({"target": {"rke2": " "}}, ["rke2-format", "rke2-missing", "rke2-not-qualified"]),
    ({"current": {"rke2": ""}}, ["rke2-format", "rke2-missing"]),
    ({"current": {"rke2": "1.35.3+rke2r3"}}, []),
    ({"current": {"rke2": "v1.35.3"}}, ["rke2-format"]),
    ({"current": {"rke2": "v1.35.3+k3s1"}}, ["rke2-format"]),
    ({"current": {"rke2": "v2.35.3+rke2r1"}}, ["rke2-format"]),
    ({"current": {"rke2": "v1.35.3+rke2r1\n"}}, ["rke2-format"]),
    ({"current": {"rke2": "v1.3٥.3+rke2r1"}}, ["rke2-format"]),
    ({"current": {"rke2": "v1." + "9" * 5000 + ".3+rke2r1"}}, ["rke2-format"]),
    ({"current": {"rke2": "v1.36.2+rke2r1"}}, []),
    ({"current": {"rke2": "v1.34.9+rke2r9"}}, ["rke2-minor-skip"]),
    ({"current": {"rke2": "v1.37.0+rke2r1"}}, ["rke2-downgrade"]),
    ({"current": {"rke2": "v1.36.10+rke2r1"}}, ["rke2-downgrade"]),
    ({"current": {"rke2": "v1.36.2+rke2r10"}}, ["rke2-downgrade"]),
    ({"current": {"driver": "999"}}, []),
    ({"current": REQUEST["target"]}, ["no-change"]),
    ({"target": REQUEST["current"]}, ["no-change", *(f"{part}-not-qualified" for part in COMPONENTS)]),
    ({"max_age": "1h"}, ["completed-at-stale"]),
    ({"max_age": "50h30m"}, []),
    ({"max_age": "50h29m59.999999999s"}, ["completed-at-stale"]),
    ({"max_age": "0"}, []),
    ({"max_age": "-5m"}, []),
]


@pytest.mark.parametrize(("request_", "expected"), REQUESTS)
def test_each_rule_on_the_request_has_its_problem(request_: dict[str, Any], expected: list[str]) -> None:
    assert problems(**request_) == sorted(expected)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {**REQUEST, "extra": 1},
        {**REQUEST, "now": "yesterday"},
        {**REQUEST, "now": None},
        {**REQUEST, "max_age": "30d"},
        {**REQUEST, "max_age": 720},
        {**REQUEST, "max_age": None},
        {**REQUEST, "hardware": "10de:2330/10de:16c1"},
        {**REQUEST, "hardware": [1]},
        {**REQUEST, "current": []},
        {**REQUEST, "current": {"kernel": 6}},
        {**REQUEST, "current": {"kernel": None}},
        {**REQUEST, "target": {**REQUEST["target"], "hami": "2.9.0"}},
        {key: value for key, value in REQUEST.items() if key != "hardware"},
        {key: value for key, value in REQUEST.items() if key != "current"},
    ],
)
def test_a_request_of_another_shape_is_refused(document: Any) -> None:
    with pytest.raises(InputError) as caught:
        read_request(document)
    assert caught.value.code == "request"


FROM = "from:\n" + "".join(f"  {part}: {value}\n" for part, value in REQUEST["current"].items())


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (FROM, []),
        ("from: ~\n", []),
        (FROM.replace("580.126.20", "580.126.21"), ["driver-from-mismatch"]),
        (FROM.replace("  driver: 580.126.20\n", ""), ["driver-from-mismatch"]),
        (FROM.replace("from", "rollback"), []),
        (FROM.replace("from", "rollback").replace("v1.35.3+rke2r3", "v1.36.2+rke2r1"), []),
        (FROM.replace("from", "rollback").replace("v1.35.3+rke2r3", "v1.34.1+rke2r1"), ["rke2-rollback-mismatch"]),
        (FROM.replace("from", "rollback").replace("6.8.0-134", "6.8.0-136"), ["kernel-rollback-mismatch"]),
        ("from: {hami: 2.9.0}\n", ["load-error unknown-field"]),
        ("from: [a]\n", ["load-error type"]),
    ],
)
def test_from_and_rollback_are_compared_where_a_record_names_them(more: str, expected: list[str]) -> None:
    assert problems(GOOD + more) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("48h", 48 * times.HOUR),
        ("1h30m", 90 * times.MINUTE),
        ("1m30.5s", 90_500_000_000),
        ("-1.5h", -90 * times.MINUTE),
        ("+2ms", 2_000_000),
        ("3us", 3_000),
        ("3µs", 3_000),
        ("3μs", 3_000),
        ("7ns", 7),
        (".5s", 500_000_000),
        ("1.s", times.SECOND),
        ("0", 0),
        ("-0", 0),
        ("9223372036854775807ns", 9_223_372_036_854_775_807),
        ("9223372036854775808ns", None),
        ("9" * 5000 + "h", None),
        ("", None),
        ("1", None),
        ("h", None),
        (".", None),
        (".h", None),
        ("1d", None),
        ("1 h", None),
        ("1h ", None),
        ("1h\n", None),
        ("1H", None),
        ("1e3s", None),
        ("--1h", None),
        ("١h", None),
    ],
)
def test_durations_are_read_as_go_reads_them(text: str, expected: int | None) -> None:
    assert times.duration(text) == expected


def test_a_fraction_of_an_empty_max_age_is_the_default() -> None:
    assert read_request({**REQUEST, "max_age": ""}).max_age == MAX_AGE == 720 * times.HOUR


def test_a_pass_names_id_approver_revision_completion_and_the_next_step() -> None:
    record = read_record(
        changed("0f3c5a9e8b7d6c5b4a392817065f4e3d2c1b0a99", "0F3C5A9E8B7D6C5B4A392817065F4E3D2C1B0A99").encode()
    )
    (said,) = judge(record, read_request(REQUEST), NOW)
    for word in (
        "h100-wave-7",
        "sre-second-operator",
        "0f3c5a9e8b7d6c5b4a392817065f4e3d2c1b0a99",
        "2026-08-18T09:30:00Z",
    ):
        assert word in said.message
    assert said.remedy


def written(folder: Path, record: str = GOOD, request: Any = REQUEST) -> list[str]:
    (folder / "record.yaml").write_text(record)
    (folder / "request.json").write_text(request if isinstance(request, str) else json.dumps(request))
    return ["--record", str(folder / "record.yaml"), "--request", str(folder / "request.json")]


def test_now_on_the_command_line_goes_before_the_now_of_the_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, answer = qualify(capsys, *written(tmp_path), "--now", "2026-12-01T00:00:00Z")
    assert (code, answer["problems"], answer["rehearsal"]) == (1, ["completed-at-stale"], True)


def test_without_any_now_the_clock_counts_and_the_answer_is_no_rehearsal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = {key: value for key, value in REQUEST.items() if key != "now"}
    code, answer = qualify(capsys, *written(tmp_path, changed("2026-08-18", "2001-01-01"), request))
    assert (code, answer["problems"], answer["rehearsal"]) == (1, ["completed-at-stale"], False)


@pytest.mark.parametrize(
    "request_", ["", "{", "[]", '{"current": {}, "current": {}}', "[" * 100_000, '{"a": NaN}', "\x00", "1" * 5000]
)
def test_a_request_that_is_no_json_is_a_load_error(
    request_: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, answer = qualify(capsys, *written(tmp_path, request=request_))
    assert (code, answer["verdict"], answer["problems"]) == (2, "load-error", ["request"])


def test_a_request_that_is_too_large_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, answer = qualify(capsys, *written(tmp_path, request=json.dumps(REQUEST) + " " * (1 << 20)))
    assert (code, answer["problems"]) == (2, ["request"])


@pytest.mark.parametrize("kind", ["missing", "folder", "link", "pipe"])
def test_only_a_regular_file_is_read_as_a_record(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = written(tmp_path)
    path = tmp_path / "other"
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(tmp_path / "record.yaml")
    elif kind == "pipe":
        os.mkfifo(path)
    code, answer = qualify(capsys, "--record", str(path), *arguments[2:])
    assert (code, answer["verdict"], answer["problems"]) == (2, "load-error", ["unreadable"])


def test_a_missing_request_is_a_load_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, answer = qualify(capsys, *written(tmp_path)[:3], str(tmp_path / "none.json"))
    assert (code, answer["problems"]) == (2, ["request"])


def test_a_now_that_is_no_time_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert qualify(capsys, *written(tmp_path), "--now", "2026-08-20")[0] == 2


def test_people_get_a_table_in_which_hostile_text_is_harmless(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = written(tmp_path, changed("state: qualified", r'state: "\e[2Jqualified"'))
    with pytest.raises(SystemExit) as ended:
        main(["qualify", *arguments, "-o", "table"])
    out = capsys.readouterr().out
    assert ended.value.code == 1
    assert out.startswith("blocked\nGPU upgrade blocked: state: ")
    assert "\x1b" not in out


def test_the_process_ends_with_the_code_and_json_goes_to_a_pipe(tmp_path: Path) -> None:
    arguments = written(tmp_path, changed("state: qualified", "state: draft"))
    done = subprocess.run(
        [sys.executable, "-c", "from gpurunbook.cli import main; main()", "qualify", *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, json.loads(done.stdout)["problems"]) == (1, ["state"])
    assert done.stderr.startswith("GPU upgrade blocked: state: ")


def test_every_code_is_documented() -> None:
    section = (ROOT / "docs/codes.md").read_text().split("## Qualification\n")[1].split("\n## ")[0]
    documented = set(re.findall(r"`([A-Za-z0-9-]+)`", "".join(re.findall(r"(?m)^\|[^|]*\|", section))))
    documented = {code.replace("FIELD", part) for code in documented for part in COMPONENTS}
    provoked = {code.removeprefix("load-error ") for _, codes in (*RECORDS, *REQUESTS) for code in codes}
    provoked |= {code for case in INDEX for code in case["problems"]}
    provoked |= {f"{part}-{code}" for part in COMPONENTS for code in ("from-mismatch", "rollback-mismatch", "missing")}
    provoked |= {*strictyaml.ORDER, "request", "unreadable", "qualified"}
    assert documented == provoked


@pytest.mark.parametrize(
    ("given", "spelled"),
    [
        ("2026-01-31T12:00:00.9Z", "2026-01-31T12:00:00Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59Z"),
    ],
)
def test_a_time_of_any_year_is_spelled_and_no_crash(given: str, spelled: str) -> None:
    moment = times.instant(given)
    assert moment is not None
    assert times.spelled(moment) == spelled
