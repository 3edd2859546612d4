"""What a run writes down: entering steps, what was judged, and how it closes when anything goes wrong.

Covered: gates from the journal alone, every class of error and its verdict, interrupts, a second writer at each point,
a disk that fills, large facts, and that the closing scrap shows the closing record. A runbook of three steps stands for
all; nothing here has a cluster. Not covered: whole runs (tests/cluster/test_runs.py), kernels (tests/notebooks).
"""

from __future__ import annotations

import json
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

from gpurunbook import errors
from gpurunbook.declared.book import Runbook, Step, described
from gpurunbook.declared.common import Common
from gpurunbook.findings import Finding, Status, Verdict
from gpurunbook.journal import Journal, digest, read, replay
from gpurunbook.runbook.ledger import Ledger
from gpurunbook.shown import scraps

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Parameters(Common, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pod_json: Annotated[str, described("a captured file")] = ""


BOOK = Runbook(
    "three",
    "Three steps",
    Parameters,
    (Step("one", "First"), Step("two", "Second", ("one",)), Step("three", "Third", ("two",))),
)
GOOD = [Finding("c", "s", Status.PASS, "fine", "it is")]


def ledger(folder: Path) -> Ledger:
    made = Ledger(BOOK, Parameters(), folder, folder, lambda: NOON)
    if not made.journal.records:
        made.journal.append("start", {"run": folder.name, "runbook": "three", "parameters": {}})
    return made


@pytest.fixture
def run(tmp_path: Path) -> Ledger:
    folder = tmp_path / "r1"
    folder.mkdir()
    return ledger(folder)


def events(run: Ledger) -> list[str]:
    return [r["event"] for r in read(run.journal.path)]


def state(run: Ledger) -> Any:
    return replay(read(run.journal.path))


def judge(run: Ledger, step: str, *findings: Finding, **more: Any) -> None:
    run.enter(step)
    run.judged(step, step, list(findings or GOOD), against=more.pop("against", Verdict.REJECTED), **more)


def finding(status: Status, code: str = "odd", remedy: str = "Do it.") -> Finding:
    return Finding("c", "s", status, code, f"it is {status}", remedy)


# -- order -----------------------------------------------------------------------------------------------------------


def test_a_step_whose_need_has_not_passed_is_refused_and_names_the_cell(run: Ledger) -> None:
    with pytest.raises(errors.OutOfOrder, match="one has not passed in this run") as refused:
        run.enter("two")
    assert refused.value.remedy == "Run the cell 'one' first."
    assert events(run) == ["start"]


def test_a_step_that_is_not_declared_is_refused_with_those_that_are(run: Ledger) -> None:
    with pytest.raises(errors.OutOfOrder, match="declares no such step") as refused:
        run.enter("four")
    assert refused.value.remedy == "It has: one, two, three."


@pytest.mark.parametrize("first", [["three"], ["two"], ["two", "three"], ["three", "one", "three"], ["one", "three"]])
def test_no_order_of_clicks_gets_past_a_gate(run: Ledger, first: list[str]) -> None:
    order = ["one", "two", "three"]
    for step in first:
        passed = state(run).steps
        if order.index(step) and order[order.index(step) - 1] not in passed:
            with pytest.raises(errors.OutOfOrder):
                judge(run, step)
        else:
            judge(run, step)
    for step in order:
        judge(run, step)
    assert list(state(run).steps) == sorted(state(run).steps, key=order.index)


def test_a_step_that_failed_when_run_again_closes_the_gate_behind_it(run: Ledger) -> None:
    judge(run, "one")
    judge(run, "two")
    with pytest.raises(errors.Stopped):
        judge(run, "one", finding(Status.FAIL))
    with pytest.raises(errors.OutOfOrder):
        run.enter("two")
    judge(run, "one")
    run.enter("two")


def test_another_kernel_sees_the_same_gates(run: Ledger) -> None:
    with pytest.raises(errors.OutOfOrder):
        ledger(run.folder).enter("two")
    judge(run, "one")
    again = ledger(run.folder)
    again.enter("two")
    with pytest.raises(errors.OutOfOrder):
        again.enter("three")


# -- judging ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statuses", "passed", "verdict"),
    [
        ([Status.PASS], True, None),
        ([Status.WARN, Status.PASS], True, None),
        ([Status.PASS, Status.FAIL, Status.WARN], False, "rejected"),
        ([Status.FAIL, Status.UNKNOWN, Status.PASS], False, "unknown"),
        ([], False, "unknown"),
    ],
)
def test_the_gravest_finding_decides(run: Ledger, statuses: list[Status], passed: bool, verdict: str | None) -> None:
    run.enter("one")
    found = [finding(s, f"code-{s}") for s in statuses]
    if passed:
        run.judged("one", "One", found, against=Verdict.REJECTED)
    else:
        with pytest.raises(errors.Stopped) as stopped:
            run.judged("one", "One", found, against=Verdict.REJECTED)
        wanted = f"code-{'unknown' if verdict == 'unknown' else 'fail'}" if found else "no-finding"
        assert stopped.value.code == wanted
        assert stopped.value.remedy == ("Do it." if found else "This is a defect.")
    assert state(run).passed("one") == passed
    closing = state(run).closing
    assert (closing["data"]["verdict"] if closing else None) == verdict


@pytest.mark.parametrize("against", [Verdict.REJECTED, Verdict.BLOCKED, Verdict.FAILED])
def test_a_failing_check_closes_with_the_verdict_that_it_declares(run: Ledger, against: Verdict) -> None:
    with pytest.raises(errors.Stopped):
        judge(run, "one", finding(Status.FAIL), against=against)
    data = state(run).closing["data"]
    assert (data["verdict"], data["code"], data["step"], data["message"]) == (against, "odd", "one", "s: it is fail")
    assert data["next"].startswith("Do it. Then run the cell again")
    assert data["left_behind"] == []


@pytest.mark.parametrize("against", [Verdict.REJECTED, Verdict.BLOCKED, Verdict.FAILED])
@pytest.mark.parametrize("answered", ["", "applied", "recovered", "refused"])
def test_a_check_that_fails_once_a_change_was_begun_is_a_failure(run: Ledger, against: Verdict, answered: str) -> None:
    judge(run, "one")
    target = {"kind": "Node", "name": "a"}
    run.journal.append("intent", {"step": "two", "name": "cordon", "target": target})
    if answered:
        run.journal.append("result", {"step": "two", "name": "cordon", "target": target, "how": answered})
    with pytest.raises(errors.Stopped):
        judge(run, "two", finding(Status.FAIL), against=against)
    # What was surely refused has changed nothing.
    assert state(run).verdict is (against if answered == "refused" else Verdict.FAILED)


def test_what_cannot_be_seen_is_unknown_also_once_a_change_was_begun(run: Ledger) -> None:
    judge(run, "one")
    run.journal.append("intent", {"step": "two", "name": "cordon", "target": {"kind": "Node", "name": "a"}})
    with pytest.raises(errors.Stopped):
        judge(run, "two", finding(Status.UNKNOWN), finding(Status.WARN))
    assert state(run).verdict is Verdict.UNKNOWN


def test_going_on_after_a_close_takes_its_verdict_back(run: Ledger) -> None:
    with pytest.raises(errors.Stopped):
        judge(run, "one", finding(Status.FAIL))
    assert state(run).verdict is Verdict.REJECTED
    judge(run, "one")
    assert state(run).closing is None
    assert state(run).verdict is Verdict.UNKNOWN
    assert events(run)[-4:] == ["close", "reopen", "step", "judged"]


def test_an_out_of_order_click_after_a_close_leaves_its_verdict(run: Ledger) -> None:
    with pytest.raises(errors.Stopped):
        judge(run, "one", finding(Status.FAIL))
    with pytest.raises(errors.OutOfOrder):
        run.enter("three")
    assert state(run).verdict is Verdict.REJECTED


def test_what_is_written_down_is_redacted(run: Ledger) -> None:
    token = "nvapi-" + "A" * 40
    with pytest.raises(errors.Stopped):
        judge(
            run,
            "one",
            Finding("c", "s", Status.FAIL, "leak", f"the env holds {token}", f"Take {token} out."),
            facts={"env": token},
        )
    assert token not in run.journal.path.read_text()


def test_facts_that_no_notebook_can_hold_are_kept_in_a_file(run: Ledger) -> None:
    facts = {"holders": [{"pod": f"tenant/train-{n}", "reasons": ["device-plugin"]} for n in range(1000)]}
    judge(run, "one", facts=facts, files={"after/x.json": "sha256:1"})
    data = state(run).steps["one"]
    assert data["facts"] == {"file": "after/one-facts.json"}
    raw = (run.folder / "after" / "one-facts.json").read_bytes()
    assert json.loads(raw) == facts
    assert data["files"] == {"after/x.json": "sha256:1", "after/one-facts.json": digest(raw)}


@pytest.mark.parametrize("facts", [{"n": float("inf")}, {"when": NOON.replace(tzinfo=None)}, {"raw": b"x"}, {1: 2}])
def test_facts_that_would_be_lost_stop_the_step_before_it_passes(run: Ledger, facts: dict[Any, Any]) -> None:
    run.enter("one")
    with pytest.raises(errors.InputError), run.closing_on_error("one"):
        run.judged("one", "One", GOOD, against=Verdict.REJECTED, facts=facts)
    assert not state(run).passed("one")
    assert state(run).verdict is Verdict.UNKNOWN


# -- errors ----------------------------------------------------------------------------------------------------------

PLAIN = [
    (errors.ParameterError("m"), "parameter", Verdict.UNKNOWN),
    (errors.InputError("m"), "input", Verdict.UNKNOWN),
    (errors.GateError("m", code="lease-held"), "lease-held", Verdict.BLOCKED),
    (errors.Drifted("m"), "drifted", Verdict.BLOCKED),
    (errors.NotApproved("m", code="no-approval"), "no-approval", Verdict.BLOCKED),
    (errors.RunInUse("m"), "run-in-use", Verdict.BLOCKED),
    (errors.Denied("m", code="permission-missing"), "permission-missing", Verdict.BLOCKED),
    (errors.Denied("m"), "forbidden", Verdict.UNKNOWN),
    (errors.Unauthorized("m"), "unauthorized", Verdict.UNKNOWN),
    (errors.Unreachable("m"), "unreachable", Verdict.UNKNOWN),
    (errors.Garbled("m"), "garbled", Verdict.UNKNOWN),
    (errors.Conflict("m"), "conflict", Verdict.UNKNOWN),
    (errors.JournalError("m"), "journal", Verdict.UNKNOWN),
    (errors.RunbookError("m", code="not-kept"), "not-kept", Verdict.UNKNOWN),
    (errors.DeadlineError("m"), "deadline", Verdict.FAILED),
    (KeyError("m"), "internal-error", Verdict.UNKNOWN),
    (ZeroDivisionError(), "internal-error", Verdict.UNKNOWN),
    (OSError(28, "No space left on device"), "internal-error", Verdict.UNKNOWN),
    (KeyboardInterrupt(), "interrupted", Verdict.UNKNOWN),
]


@pytest.mark.parametrize(("wrong", "code", "verdict"), PLAIN, ids=lambda v: type(v).__name__ + str(v))
@pytest.mark.parametrize("changed", [False, True])
def test_every_error_closes_the_run_and_goes_on_as_itself(
    run: Ledger, wrong: BaseException, code: str, verdict: Verdict, changed: bool
) -> None:
    run.enter("one")
    if changed:
        run.journal.append("intent", {"step": "one", "name": "cordon", "target": {"kind": "Node", "name": "a"}})
    with pytest.raises(type(wrong)) as raised, run.closing_on_error("one"):
        raise wrong
    assert raised.value is wrong
    data = state(run).closing["data"]
    assert data["code"] == code
    # Once a change was begun, whatever stops the run is a failure; a crash of ours is never an answer of policy.
    assert data["verdict"] == (Verdict.FAILED if changed else verdict)
    assert data["message"]
    assert f"un the cell again, or `gpurunbook run {run.book.name} --run-id {run.id}`" in data["next"]
    assert data["next"][0].isupper()
    assert state(run).open_step == ""


@pytest.mark.parametrize(
    ("records", "changed"),
    [
        ([("intent", "lease", "lease", "")], False),
        ([("intent", "lease", "lease", ""), ("result", "lease", "lease", "applied")], False),
        ([("intent", "one", "cordon", "")], True),
        ([("intent", "one", "cordon", ""), ("result", "one", "cordon", "refused")], False),
        ([("intent", "one", "a", ""), ("result", "one", "a", "applied"), ("intent", "one", "b", "")], True),
        (
            [("intent", "one", "a", ""), ("intent", "one", "b", ""), ("result", "one", "b", "refused")],
            True,
        ),
        ([("result", "one", "cordon", "already")], False),
    ],
)
def test_a_change_is_begun_by_an_intent_that_was_not_refused(
    run: Ledger, records: list[tuple[str, str, str, str]], changed: bool
) -> None:
    for event, step, name, how in records:
        run.journal.append(event, {"step": step, "name": name, "how": how})
    assert state(run).changed == changed


def test_an_error_keeps_its_object_message_and_remedy(run: Ledger) -> None:
    with pytest.raises(errors.GateError), run.closing_on_error("one"):
        raise errors.GateError("run r0 holds it", subject="lease a/b", remedy="Wait.", code="lease-held")
    data = state(run).closing["data"]
    assert data["message"] == "lease a/b: run r0 holds it"
    assert data["next"].startswith("Wait. Then run the cell again")


@pytest.mark.parametrize(
    ("subject", "remedy", "named"),
    [
        ("parameter 'node'", "It is empty.", " --set node=…"),
        ("Node/a", "Correct the parameter `node`: `kubectl get nodes` lists what there is.", " --set node=…"),
        ("site.yaml", "Correct parameter 'site'.", " --set site=…"),
        ("parameter 'of the site file lease_namespace'", "Correct the site file.", ""),
        ("lease a/b", "Wait.", ""),
    ],
)
def test_the_command_that_goes_on_names_the_parameter_to_correct_as_long_as_the_run_takes_another(
    run: Ledger, subject: str, remedy: str, named: str
) -> None:
    def stopped() -> str:
        with pytest.raises(errors.GateError), run.closing_on_error("one"):
            raise errors.GateError("so it is", subject=subject, remedy=remedy)
        return str(state(run).closing["data"]["next"])

    assert stopped() == f"{remedy} Then run the cell again, or `gpurunbook run three --run-id {run.id}{named}`."
    judge(run, "one")
    assert stopped().endswith(f"`gpurunbook run three --run-id {run.id}`.")


@pytest.mark.parametrize("wrong", [SystemExit(0), GeneratorExit()])
def test_what_ends_the_process_closes_nothing(run: Ledger, wrong: BaseException) -> None:
    run.enter("one")
    with pytest.raises(type(wrong)), run.closing_on_error("one"):
        raise wrong
    assert state(run).closing is None
    assert state(run).verdict is Verdict.UNKNOWN


def other(run: Ledger) -> None:
    """Another process extends the journal."""
    Journal.open(run.journal.path, lambda: NOON).append("resume", {"process": {}})


def test_a_race_closes_nothing_and_the_cell_can_be_run_again(run: Ledger) -> None:
    run.enter("one")
    other(run)
    with pytest.raises(errors.Raced), run.closing_on_error("one"):
        run.judged("one", "One", GOOD, against=Verdict.REJECTED)
    assert events(run) == ["start", "step", "resume"]
    judge(run, "one")
    assert state(run).passed("one")


def test_what_another_process_wrote_is_seen_before_each_gate(run: Ledger) -> None:
    judge(ledger(run.folder), "one")
    run.enter("two")


def test_an_error_beside_another_writer_closes_after_what_he_wrote(run: Ledger) -> None:
    run.enter("one")
    other(run)
    with pytest.raises(KeyError), run.closing_on_error("one"):
        raise KeyError("x")
    assert events(run) == ["start", "step", "resume", "close"]


@contextmanager
def full(path: Path, room: int = 0) -> Iterator[None]:
    """No file may grow beyond the size of this one and some room."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_disk_that_is_full_for_the_journal_leaves_it_whole(run: Ledger) -> None:
    run.enter("one")
    before = run.journal.path.read_bytes()
    with (
        full(run.journal.path, 10),
        pytest.raises(errors.JournalError, match="cannot be extended"),
        run.closing_on_error("one"),
    ):
        run.judged("one", "One", GOOD, against=Verdict.REJECTED)
    assert run.journal.path.read_bytes() == before
    assert state(run).verdict is Verdict.UNKNOWN
    judge(run, "one")


def test_a_disk_that_is_full_for_a_file_closes_with_what_to_do_and_leaves_no_part(run: Ledger) -> None:
    run.enter("one")
    with full(run.journal.path, 5000), pytest.raises(errors.RunbookError), run.closing_on_error("one"):
        run.keep_files({"inventory.json": b"x" * 100_000}, "after")
    data = state(run).closing["data"]
    assert (data["verdict"], data["code"]) == ("unknown", "not-kept")
    assert data["next"].startswith("Make room on the disk")
    assert list((run.folder / "after").iterdir()) == []


def test_files_are_kept_with_their_digests(run: Ledger) -> None:
    assert run.keep_files({"a.json": b"1", "b.json": b"2"}, "after") == {
        "after/a.json": digest(b"1"),
        "after/b.json": digest(b"2"),
    }


# -- what the notebook shows -----------------------------------------------------------------------------------------


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """The scraps that the cell shows, as a kernel displays them."""
    config = Config()
    config.HistoryManager.enabled = False
    InteractiveShell.instance(config=config)
    monkeypatch.setattr(scraps, "_written", set())
    try:
        with capture_output() as captured:

            def found() -> list[dict[str, Any]]:
                return [o.data[scraps.MIME] for o in captured.outputs if scraps.MIME in o.data]

            yield found
    finally:
        InteractiveShell.clear_instance()


def test_the_closing_scrap_is_the_closing_record(run: Ledger, shown: Callable[[], list[dict[str, Any]]]) -> None:
    with pytest.raises(errors.Stopped):
        judge(run, "one", finding(Status.FAIL))
    record = state(run).closing
    step, closing = shown()
    assert (step["name"], step["data"]) == (
        "gpurunbook.step.one",
        {"status": "fail", "passed": False, "facts": {}},
    )
    assert closing["data"] == {
        "run": "r1",
        "runbook": "three",
        "verdict": record["data"]["verdict"],
        "code": record["data"]["code"],
        "step": record["data"]["step"],
        "head": record["hash"],
        "rehearsal": True,
    }


def test_a_step_run_again_shows_its_scrap_again(run: Ledger, shown: Callable[[], list[dict[str, Any]]]) -> None:
    judge(run, "one", facts={"n": 1})
    judge(run, "one", facts={"n": 2})
    assert [s["data"]["facts"] for s in shown()] == [{"n": 1}, {"n": 2}]
    assert state(run).steps["one"]["facts"] == {"n": 2}


def test_without_a_closing_record_there_is_no_closing_scrap(
    run: Ledger, shown: Callable[[], list[dict[str, Any]]]
) -> None:
    run.enter("one")
    with full(run.journal.path), pytest.raises(errors.JournalError), run.closing_on_error("one"):
        raise KeyError("x")
    assert shown() == []


# -- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clock", "journal", "ticks", "wanted"),
    [
        (1, 0, 0, 1),  # the clock
        (-5, 0, 2, 2),  # it was set back: what has passed since
        (-5, 3, 2, 3),  # nor before what is written down
        (9, 3, 2, 9),  # it was set forward
    ],
)
def test_what_has_ended_is_judged_by_a_time_that_goes_never_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: int, journal: int, ticks: int, wanted: int
) -> None:
    steady = [100.0]
    monkeypatch.setattr("gpurunbook.runbook.ledger.time.monotonic", lambda: steady[0])
    (tmp_path / "r1").mkdir()
    run = ledger(tmp_path / "r1")
    Journal.open(run.journal.path, lambda: NOON + timedelta(hours=journal)).append("resume", {"process": {}})
    Journal.open(run.journal.path, lambda: NOON).append("resume", {"process": {}})
    run.journal.refresh()
    run.clock = lambda: NOON + timedelta(hours=clock)
    steady[0] += ticks * 3600
    assert run.latest() == NOON + timedelta(hours=wanted)
