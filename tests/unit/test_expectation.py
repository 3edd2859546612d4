"""What scenarios must come to.

Covered: the file's form, files and expectations that do not pair, the words of a run from its journal, and every
difference that the comparison tells. Not covered: running them (tests/notebooks/test_engine_batch.py).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpurunbook.errors import InputError
from gpurunbook.findings import Verdict
from gpurunbook.journal import Journal
from gpurunbook.runbook.expectation import Expectation, Seen, differences, scenarios, seen

GOOD = "main: one\none: {verdict: pass, code: all-steps-passed, cluster: true}\n"


def home(tmp_path: Path, expect: str, *names: str) -> Path:
    folder = tmp_path / "parameters" / "book"
    folder.mkdir(parents=True)
    (folder / "expect.yaml").write_text(expect)
    for name in names:
        (folder / f"{name}.yaml").write_text("")
    return tmp_path


def journal(tmp_path: Path) -> Journal:
    made = Journal(tmp_path / "journal.jsonl", lambda: datetime(2026, 1, 31, tzinfo=UTC))
    made.append("start", {"run": "r", "runbook": "book"})
    return made


def test_scenarios_come_by_name_with_their_expectation(tmp_path: Path) -> None:
    more = "two: {verdict: failed, code: timed-out, step: wait, mutations: 3, left_behind: [cordon], cluster: false}\n"
    one, two = scenarios(home(tmp_path, GOOD + more, "two", "one"), "book")
    assert (one.name, one.main, one.expected) == (
        "one",
        True,
        Expectation(verdict="pass", code="all-steps-passed", cluster=True),
    )
    assert (two.name, two.main, two.file.name) == ("two", False, "two.yaml")
    assert two.expected.left_behind == ("cordon",)
    assert two.expected.mutations == 3


@pytest.mark.parametrize(
    ("expect", "names", "says"),
    [
        (GOOD, ("one", "extra"), "'extra' has no expectation"),
        (GOOD, (), "no one.yaml beside it"),
        (GOOD.replace("main: one\n", ""), ("one",), "main: is None"),
        (GOOD.replace("main: one", "main: two"), ("one",), "main: is 'two'"),
        (GOOD.replace("pass,", "good,"), ("one",), "Invalid enum value 'good'"),
        (GOOD.replace("verdict: pass, ", ""), ("one",), "missing required field `verdict`"),
        (GOOD.replace("code: all-steps-passed, ", ""), ("one",), "missing required field `code`"),
        (GOOD.replace(", cluster: true", ""), ("one",), "missing required field `cluster`"),
        (GOOD.replace("cluster: true", "cluster: true, exit: 0"), ("one",), "unknown field `exit`"),
        (GOOD.replace("cluster: true", "cluster: 'true'"), ("one",), "Expected `bool`"),
        (GOOD.replace("cluster: true", "cluster: true, mutations: -1"), ("one",), "0 or more"),
        ("main: one\none: pass\n", ("one",), "wanted verdict, code and cluster"),
        ("main: Up\nUp: {verdict: pass, code: c, cluster: true}\n", ("Up",), "no name for a scenario"),
    ],
)
def test_a_file_that_does_not_hold_is_refused(tmp_path: Path, expect: str, names: tuple[str, ...], says: str) -> None:
    with pytest.raises(InputError, match=says):
        scenarios(home(tmp_path, expect, *names), "book")


def test_a_runbook_without_expectations_is_refused(tmp_path: Path) -> None:
    (tmp_path / "parameters" / "book").mkdir(parents=True)
    with pytest.raises(InputError, match=r"no expect\.yaml"):
        scenarios(tmp_path, "book")


def test_a_run_is_seen_by_its_last_closing_record(tmp_path: Path) -> None:
    written = journal(tmp_path)
    written.append("close", {"verdict": "pass", "code": "x", "step": "close", "left_behind": []})
    written.append("reopen", {"step": "set"})
    for name in ("a", "b"):
        written.append("intent", {"step": "set", "name": name})
        written.append("result", {"step": "set", "name": name})
    written.append("close", {"verdict": "failed", "code": "y", "step": "set", "left_behind": ["cordon on n1"]})
    assert seen(written.records) == Seen(Verdict.FAILED, "y", "set", 2, ("cordon on n1",))


def test_a_run_that_died_or_is_open_is_unknown(tmp_path: Path) -> None:
    written = journal(tmp_path)
    assert seen(written.records) == Seen(Verdict.UNKNOWN, "died", "", 0, ())
    written.append("died", {"reason": "killed", "step": "audit"})
    assert seen(written.records) == Seen(Verdict.UNKNOWN, "died", "audit", 0, ())
    assert seen([]).verdict is Verdict.UNKNOWN


EXPECTED = Expectation(
    verdict="failed", code="c", cluster=False, step="s", mutations=2, left_behind=("cordon", "n1 lease")
)
FOUND = Seen(Verdict.FAILED, "c", "s", 2, ("lease: n1 lease held", "node n1: cordon stands"))


def test_a_run_as_expected_has_no_difference() -> None:
    assert differences(EXPECTED, FOUND) == []


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (replace(FOUND, verdict=Verdict.PASS), "verdict: expected 'failed', seen 'pass'"),
        (replace(FOUND, code="d"), "code: expected 'c', seen 'd'"),
        (replace(FOUND, step="t"), "step: expected 's', seen 't'"),
        (replace(FOUND, mutations=3), "mutations: expected 2, seen 3"),
        (replace(FOUND, left_behind=()), "left_behind: expected ['cordon', 'n1 lease'], seen []"),
        (
            replace(FOUND, left_behind=("n1 lease", "a cordon", "pod")),
            "left_behind: expected ['cordon', 'n1 lease'], seen ['n1 lease', 'a cordon', 'pod']",
        ),
        (
            replace(FOUND, left_behind=("cordon and n1 lease",)),
            "left_behind: expected ['cordon', 'n1 lease'], seen ['cordon and n1 lease']",
        ),
    ],
)
def test_each_difference_says_what_was_expected_and_what_was_seen(found: Seen, line: str) -> None:
    assert differences(EXPECTED, found) == [line]


def test_nothing_may_be_sent_or_left_unless_it_is_expected() -> None:
    plain = Expectation(verdict="pass", code="c", cluster=False)
    assert differences(plain, Seen(Verdict.PASS, "c", "any", 1, ("cordon",))) == [
        "mutations: expected 0, seen 1",
        "left_behind: expected [], seen ['cordon']",
    ]
