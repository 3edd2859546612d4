"""`gpurunbook audit` as a person or a machine calls it, on captured files.

Covered: files that cannot be opened, standard input and pipes, wrong usage, the table and the CSV with hostile text,
what goes to which stream, exit codes as the process gives them, inputs that are wrong, a baseline made by the command.
Not covered: live clusters (tests/cluster/test_audit_live.py).
"""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pods import IMAGE, REPO, pod, podlist, sha

from gpurunbook.cli import group
from gpurunbook.sources.files import read

GOOD = podlist(pod())


def call(*given: str, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(group, ["audit", *given], input=stdin, standalone_mode=False, catch_exceptions=False)


def answer(result: Result) -> tuple[int, str, list[str]]:
    got = json.loads(result.stdout)
    return result.return_value, got["verdict"], sorted({f["code"] for f in got["findings"]})


def process(*given: str, stdin: bytes = b"", **options: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", "from gpurunbook.cli import main; main()", "audit", *given]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False, **options)


@pytest.fixture
def good(tmp_path: Path) -> str:
    (tmp_path / "good.json").write_bytes(GOOD)
    return str(tmp_path / "good.json")


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    for path in (str(tmp_path / "none.json"), str(tmp_path), "\x00"):
        assert answer(call("--pod-json", path, "-o", "json")) == (2, "error", ["unreadable"])


@pytest.mark.parametrize("option", ["--baseline", "--relations", "--platforms"])
def test_another_input_that_cannot_be_read_is_an_error(option: str, good: str, tmp_path: Path) -> None:
    assert answer(call("--pod-json", good, option, "none.json", "-o", "json")) == (2, "error", ["unreadable"])
    (tmp_path / "wrong.json").write_text('{"a": [5]}')
    wrong = call("--pod-json", good, option, str(tmp_path / "wrong.json"), "-o", "json")
    assert answer(wrong) == (2, "error", [f"malformed-{option[2:]}"])
    assert len(json.loads(wrong.stdout)["records"]) == 1


@pytest.mark.parametrize("option", ["--baseline", "--relations", "--platforms"])
@pytest.mark.parametrize("text", [r'{"\ud800": 1}', r'{"verdict": ["\ud800"]}', r'"\ud800"', r'["\ud800"]'])
def test_another_input_with_what_is_no_character_is_an_error(option: str, text: str, good: str, tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_text(text)
    done = call("--pod-json", good, option, str(tmp_path / "odd.json"), "-o", "json")
    assert answer(done) == (2, "error", [f"malformed-{option[2:]}"])


@pytest.mark.parametrize("output", ["json", "csv", "table"])
def test_a_name_of_other_bytes_than_utf_8_is_told_with_escapes(output: str) -> None:
    done = process("--pod-json", b"\xff.json", "-o", output)  # type: ignore[arg-type]
    assert done.returncode == 2
    assert b"udcff.json" in done.stdout + done.stderr
    assert b"Traceback" not in done.stderr


def test_a_file_longer_than_the_limit_is_unreadable(good: str) -> None:
    with pytest.raises(ValueError, match="larger than 10 bytes"):
        read(good, limit=10)


def test_what_has_no_end_or_no_room_is_read_no_further_than_the_limit(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    for path in ("/dev/zero", str(tmp_path / "sparse")):
        with pytest.raises(ValueError, match="larger than 10 bytes"):
            read(path, limit=10)


def test_standard_input_and_a_pipe_are_read_like_a_file(tmp_path: Path) -> None:
    assert process("--pod-json", "-", "-o", "json", stdin=GOOD).returncode == 0
    os.mkfifo(tmp_path / "pipe")
    writer = subprocess.Popen([sys.executable, "-c", f"open({str(tmp_path / 'pipe')!r}, 'wb').write({GOOD!r})"])
    assert answer(call("--pod-json", str(tmp_path / "pipe"), "-o", "json")) == (0, "pass", [])
    assert writer.wait(timeout=60) == 0


@pytest.mark.parametrize(
    "given",
    [
        ["--pod-json", "x", "--cluster", "y"],
        ["--pod-json", ""],
        ["--pod-json"],
        ["--pod-json", "x", "-o", "yaml"],
        ["--pod-json", "x", "--namespace", "Not A Namespace"],
        ["--pod-json", "x", "--namespace", ""],
        ["--no-such-option"],
        ["x"],
    ],
)
def test_wrong_usage_ends_with_2_and_nothing_on_stdout(given: list[str]) -> None:
    done = process(*given)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr
    assert b"Traceback" not in done.stderr


def test_the_process_exits_with_0_1_and_2(good: str) -> None:
    failing = podlist(pod(f"{REPO}:latest"))
    assert process("--pod-json", good).returncode == 0
    assert process("--pod-json", "-", stdin=failing).returncode == 1
    assert process("--pod-json", "-", stdin=GOOD[:-5]).returncode == 2


@pytest.mark.parametrize("output", ["json", "csv", "table"])
def test_a_reader_that_has_gone_gets_no_answer_of_the_policy(good: str, output: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    words = ["audit", "--pod-json", good, "-o", output]
    command = [sys.executable, "-c", "from gpurunbook.cli import main; main()", *words]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(writing)
    assert ended.returncode == 2
    assert b"Traceback" not in ended.stderr


def test_json_goes_to_stdout_and_one_line_to_stderr(good: str) -> None:
    result = call("--pod-json", good, "-o", "json")
    assert json.loads(result.stdout)["verdict"] == "pass"
    assert result.stdout.count("\n") == 1
    assert result.stderr == "pass: 1 records, 0 fail; 1 digests; usable as evidence of a rehearsal\n"


def test_a_demanded_namespace_is_checked_in_a_file(good: str) -> None:
    scope = ["--namespace", "gpu-operator", "--namespace", "hami-system"]
    assert answer(call("--pod-json", good, *scope, "-o", "json")) == (2, "error", ["empty-scope"])
    assert answer(call("--pod-json", good, *scope[:2], "-o", "json")) == (0, "pass", [])


HOSTILE = podlist(
    pod("\x1b]0;owned\x07<img src=x>\u202e", "=HYPERLINK(1)", name="+evil\r\nnext", namespace="@sum"),
    pod("-" + "A" * 5000, "\t=1", name="\u200b\x9b31m"),
)


def test_the_table_shows_hostile_text_harmlessly_and_the_verdict_last() -> None:
    result = call("--pod-json", "-", stdin=HOSTILE)
    lines = result.stdout.splitlines()
    assert result.stderr == ""
    assert lines[0].split() == [
        "audit",
        "evidence",
        "namespace",
        "pod",
        "kind",
        "container",
        "desired",
        "resolved",
        "reasons",
    ]
    assert lines[-1].startswith("fail: 2 records, 2 fail")
    assert "\\x1b]0;owned\\x07<img src=x>\\u202e" in result.stdout
    assert all(c == "\n" or c.isprintable() for c in result.stdout)
    assert max(map(len, lines)) < 1000
    assert "invalid-reference (fail): 2 records" in result.stdout


def test_a_list_finding_is_told_with_what_to_do() -> None:
    result = call("--pod-json", "-", stdin=podlist(pod(), metadata={"continue": "x"}))
    assert result.return_value == 2
    assert "incomplete-list: -: metadata.continue is set" in result.stdout
    assert "Capture the list again" in result.stdout


def test_the_csv_cannot_run_as_a_formula_and_holds_one_row_per_record() -> None:
    result = call("--pod-json", "-", "-o", "csv", stdin=HOSTILE)
    rows = list(csv.reader(io.StringIO(result.stdout)))
    assert len(rows) == 3
    assert {len(row) for row in rows} == {9}
    assert not [cell for row in rows for cell in row if cell[:1] in "=+-@\t\r" and cell[:1]]
    assert all(c == "\n" or c.isprintable() for c in result.stdout)
    assert rows[1][3] == "'+evil\\r\\nnext"
    assert "fail: 2 records" in result.stderr


def test_no_colour_goes_into_a_pipe(good: str) -> None:
    assert b"\x1b" not in process("--pod-json", good, env={**os.environ, "FORCE_COLOR": "1"}).stdout


def test_the_answer_of_the_command_is_a_baseline_for_the_next(good: str, tmp_path: Path) -> None:
    (tmp_path / "baseline.json").write_bytes(call("--pod-json", good, "-o", "json").stdout_bytes)
    baseline = ["--baseline", str(tmp_path / "baseline.json"), "-o", "json"]
    assert answer(call("--pod-json", good, *baseline)) == (0, "pass", [])
    pushed = podlist(pod(IMAGE, f"{REPO}@{sha('two')}", name="another"))
    assert answer(call("--pod-json", "-", *baseline, stdin=pushed)) == (1, "fail", ["digest-changed"])


def test_the_help_names_every_option() -> None:
    shown = process("--help").stdout.decode()
    for option in ("--pod-json", "--cluster", "--namespace", "--baseline", "--relations", "--platforms", "-o"):
        assert option in shown


@pytest.mark.parametrize("output", ["table", "csv"])
def test_people_are_told_of_a_rehearsal_and_of_no_empty_subject(output: str, tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_bytes(podlist())
    done = call("--pod-json", str(tmp_path / "empty.json"), "-o", output)
    told = done.stdout + done.stderr
    assert "\nrehearsal: not evidence for a live cluster\n" in f"\n{told}"
    assert "no-containers: the list holds" in told
    assert told.rstrip().endswith("not usable as evidence of a rehearsal")
