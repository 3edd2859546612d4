"""What scenarios must come to.

Covered: the file's form, files and expectations that do not pair, chains that cannot be, the words of a run from its
journal, and every difference that the comparison tells. Not covered: running them (tests/notebooks/test_engine_batch.py
and test_chains.py).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from gpurunbook.errors import InputError
from gpurunbook.findings import Verdict
from gpurunbook.headless.expectation import Approve, Expectation, Seen, differences, scenarios, seen
from gpurunbook.journal import Journal

GOOD = "main: one\none: {verdict: pass, code: all-steps-passed, cluster: true}\n"


def home(tmp_path: Path, expect: str, *names: str) -> Path:
    folder = tmp_path / "parameters" / "book"
    folder.mkdir(parents=True)
    (folder / "expect.yaml").write_text(expect)
    for name in names:
        (folder / f"{name}.yaml").write_text("{}")
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


def chained(tmp_path: Path, expect: str, **files: str) -> Path:
    made = home(tmp_path, f"main: one\n{expect}", *files)
    for name, text in files.items():
        (made / "parameters" / "book" / f"{name}.yaml").write_text(text)
    return made


LINE = "{verdict: pass, code: c, cluster: false"


def test_a_scenario_knows_what_is_run_before_it_and_before_that(tmp_path: Path) -> None:
    expect = f"one: {LINE}}}\ntwo: {LINE}, after: one}}\nthree: {LINE}, after: two, again: true}}\n"
    found = {s.name: s for s in scenarios(chained(tmp_path, expect, one="{}", two="{}", three="apply: true\n"), "book")}
    assert found["one"].after is None
    three = found["three"]
    assert three.after is not None
    assert three.after.after == found["one"]
    assert found["two"] == three.after


def test_what_is_done_around_a_run_stands_in_the_expectation(tmp_path: Path) -> None:
    expect = (
        f"one: {LINE}, mutations: null, warns: [a], approve: {{by: lead, expired: true}}, "
        "meanwhile: [{path: /api/v1/nodes/n, merge: {spec: {}}}, {path: /api/v1/nodes, create: {kind: Node}}]}\n"
    )
    (one,) = scenarios(chained(tmp_path, expect, one="apply: true\n"), "book")
    assert one.expected.approve == Approve(by="lead", expired=True)
    assert [(deed.path, deed.merge, deed.create) for deed in one.expected.meanwhile] == [
        ("/api/v1/nodes/n", {"spec": {}}, None),
        ("/api/v1/nodes", None, {"kind": "Node"}),
    ]
    assert (one.expected.mutations, one.expected.warns) == (None, ("a",))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("after: three", "no scenario 'three'"),
        ("after: one", "'one' comes before itself"),
        ("after: two", "'two' comes before itself|'one' comes before itself"),
        ("after: other", "'other' is of cluster 'b', this one of 'a'"),
        ("again: true", "again: goes with an apply"),
        ("approve: {by: nobody}", "approve: goes with an apply"),
        ("meanwhile: [{path: /x, merge: {}}]", "meanwhile: goes with an apply"),
        ("meanwhile: [{path: /x}]", "needs one of merge and create"),
        ("meanwhile: [{path: /x, merge: {}, create: {}}]", "needs one of merge and create"),
        ("meanwhile: [{path: /x, delete: true}]", "unknown field `delete`"),
        ("approve: {by: nobody, expires: past}", "unknown field `expires`"),
        ("approve: {expired: 1}", "Expected `bool`"),
        ("again: once", "Expected `bool`"),
        ("after: [one]", "Expected `str`"),
        ("warns: code", "Expected `array"),
    ],
)
def test_a_chain_that_cannot_be_is_refused(tmp_path: Path, more: str, says: str) -> None:
    expect = f"one: {LINE}, {more}}}\ntwo: {LINE}, after: one}}\nother: {LINE}}}\n"
    files = {"one": "cluster: a\n", "two": "cluster: a\n", "other": "cluster: b\n"}
    with pytest.raises(InputError, match=says):
        scenarios(chained(tmp_path, expect, **files), "book")


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


def test_warnings_are_those_of_the_last_judgement_of_each_step(tmp_path: Path) -> None:
    written = journal(tmp_path)

    def judged(step: str, *findings: tuple[str, str]) -> None:
        told = [{"status": status, "code": code} for status, code in findings]
        written.append("judged", {"step": step, "passed": True, "findings": told})

    judged("a", ("warn", "gone-since"))
    judged("a", ("pass", "fine"), ("warn", "late"), ("warn", "late"))
    judged("b", ("fail", "bad"), ("warn", "early"))
    assert seen(written.records).warns == ("early", "late")


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


def test_warnings_are_compared_as_a_whole_and_only_where_they_are_given() -> None:
    found = replace(FOUND, warns=("a", "b"))
    assert differences(EXPECTED, found) == []
    for wanted in ((), ("a",), ("a", "b", "c")):
        (line,) = differences(msgspec.structs.replace(EXPECTED, warns=wanted), found)
        assert line == f"warns: expected {list(wanted)!r}, seen ['a', 'b']"
    assert differences(msgspec.structs.replace(EXPECTED, warns=("b", "a")), found) == []


def test_a_number_of_mutations_that_nobody_can_tell_is_not_compared() -> None:
    assert differences(msgspec.structs.replace(EXPECTED, mutations=None), replace(FOUND, mutations=17)) == []


def test_nothing_may_be_sent_or_left_unless_it_is_expected() -> None:
    plain = Expectation(verdict="pass", code="c", cluster=False)
    assert differences(plain, Seen(Verdict.PASS, "c", "any", 1, ("cordon",))) == [
        "mutations: expected 0, seen 1",
        "left_behind: expected [], seen ['cordon']",
    ]
