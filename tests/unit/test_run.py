"""A run as a cell sees it, without a cluster: starting, resuming, gates over restarts and processes, and closing.

Covered: parameters that may not change, other folders and runbooks, a second process, values that were computed
earlier, crashes and interrupts inside a rule, closing twice and too early. A captured file stands in for a cluster.
Not covered: clusters (tests/cluster/test_runs.py), kernels and what cells show (tests/notebooks).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import pytest

import gpurunbook as rb
from gpurunbook import errors
from gpurunbook.declared.book import Runbook, Step, described
from gpurunbook.declared.common import Common
from gpurunbook.findings import Finding, Status, Verdict
from gpurunbook.folder import keep, workspace
from gpurunbook.journal import Journal, read, replay
from gpurunbook.plan import Change, Check, Document, Judgement, Now, Planned, Progress, Recorded, Seen, Wait
from gpurunbook.runbook.run import Run, package_digest
from gpurunbook.runbook.start import open_run


class Parameters(Common, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pod_json: Annotated[str, described("a captured file")] = "pods.json"
    limit: Annotated[int, described("how many")] = 3


BOOK = Runbook("two", "Two steps", Parameters, (Step("first", "First"), Step("second", "Second", ("first",))))
OTHER = Runbook("other", "Another", Parameters, (Step("first", "First"),))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("runbooks", "parameters", "outputs"):
        (tmp_path / name).mkdir()
    (tmp_path / "pods.json").write_text("{}")
    monkeypatch.setenv("GPURUNBOOK_HOME", str(tmp_path))
    for name in ("GPURUNBOOK_OUT", "GPURUNBOOK_RUN_DIR", "GPURUNBOOK_CLUSTERS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def run(home: Path) -> Run:
    return open_run(BOOK, {"reason": "test"})


def again(run: Run, book: Runbook = BOOK, **values: Any) -> Run:
    """The kernel was restarted: another object on the same folder."""
    return open_run(book, {"reason": "test", "run_id": run.id, **values})


def judging(status: Status = Status.PASS, **needs: Any) -> Check:
    finding = Finding("c", "s", status, "looked", "it was looked at")
    return Check("Look", needs or {"now": Now()}, lambda _: Judgement((finding,)))


def events(run: Run) -> list[str]:
    return [r["event"] for r in read(run.folder / "journal.jsonl")]


def state(run: Run) -> Any:
    return replay(read(run.folder / "journal.jsonl"))


def verdict(run: Run) -> tuple[str, str]:
    data = state(run).closing["data"]
    return data["verdict"], data["code"]


# -- start -----------------------------------------------------------------------------------------------------------


def test_a_start_is_written_down_before_anything_is_looked_at(run: Run) -> None:
    start, cluster = read(run.folder / "journal.jsonl")
    assert (start["event"], cluster["event"]) == ("start", "cluster")
    assert start["data"]["parameters"]["reason"] == "test"
    assert start["data"]["parameters"]["limit"] == 3  # defaults too: the evidence says what was in force
    assert start["data"]["process"]["pid"] == os.getpid()
    assert start["data"]["package"]["digest"] == package_digest()
    assert cluster["data"]["rehearsal"] is True
    assert cluster["data"]["cluster"]["uid"] is None


@pytest.mark.parametrize("values", [{"limt": 4}, {"limit": "4"}, {"limit": True}, {"reason": 7}])
def test_a_wrong_parameter_makes_no_run(home: Path, values: dict[str, Any]) -> None:
    with pytest.raises(errors.ParameterError):
        open_run(BOOK, values)
    assert list((home / "outputs").iterdir()) == []


def test_a_captured_file_names_no_cluster_to_expect(home: Path) -> None:
    with pytest.raises(errors.ParameterError, match="a captured file names no cluster"):
        open_run(BOOK, {"expect_cluster": "uid"})


def test_a_site_file_that_is_none_closes_the_start(home: Path) -> None:
    (home / "parameters" / "site.yaml").write_text("approvals: [x]")
    with pytest.raises(errors.InputError, match=r"site\.yaml"):
        open_run(BOOK, {})
    (made,) = (home / "outputs").iterdir()
    closing = replay(read(made / "journal.jsonl")).closing
    assert closing is not None
    assert (closing["data"]["verdict"], closing["data"]["code"], closing["data"]["step"]) == (
        "unknown",
        "input",
        "start",
    )


def test_a_kernel_is_needed_for_start_only(home: Path) -> None:
    with pytest.raises(errors.GateError, match="no notebook kernel"):
        rb.start("provenance_audit")


# -- resume ----------------------------------------------------------------------------------------------------------


def test_a_restarted_kernel_goes_on_where_the_run_was(run: Run) -> None:
    run.check("first", judging())
    later = again(run)
    assert events(later)[-2:] == ["resume", "cluster"]
    later.check("second", judging())
    later.close()
    assert verdict(run) == ("pass", "all-steps-passed")


def test_gates_hold_after_a_restart(run: Run) -> None:
    later = again(run)
    with pytest.raises(errors.OutOfOrder):
        later.check("second", judging())
    with pytest.raises(errors.OutOfOrder):
        later.close()
    assert state(run).closing is None


def test_two_kernels_of_one_process_never_pass_what_the_other_undid(run: Run) -> None:
    later = again(run)
    run.check("first", judging())
    with pytest.raises(errors.Stopped):
        later.check("first", judging(Status.FAIL))
    with pytest.raises(errors.OutOfOrder):
        run.check("second", judging())


def test_a_run_in_which_a_step_passed_keeps_its_parameters_and_names_the_new_run(run: Run) -> None:
    run.check("first", judging())
    before = events(run)
    with pytest.raises(errors.RunBound, match="limit was 3, is 4") as refused:
        again(run, limit=4)
    assert "`gpurunbook new two --set limit=4 --set reason=test`" in refused.value.remedy
    with pytest.raises(errors.RunBound, match="reason was 'test', is 'else'"):
        again(run, reason="else")
    assert events(run) == before


def test_a_step_that_failed_later_still_binds(run: Run) -> None:
    run.check("first", judging())
    with pytest.raises(errors.Stopped):
        run.check("first", judging(Status.FAIL))
    with pytest.raises(errors.RunBound):
        again(run, limit=4)


@pytest.mark.parametrize("event", ["authorised", "intent"])
def test_what_was_authorised_or_announced_binds(run: Run, event: str) -> None:
    run.journal.append(event, {"step": "lease", "name": "x"})
    with pytest.raises(errors.RunBound):
        again(run, limit=4)


def test_before_anything_counted_corrected_parameters_are_taken_and_void_what_was_judged(run: Run) -> None:
    with pytest.raises(errors.Stopped):
        run.check("first", judging(Status.FAIL))
    later = again(run, limit=4)
    assert events(run) == ["start", "cluster", "step", "judged", "close", "start", "cluster"]
    found = state(run)
    assert (found.start["parameters"]["limit"], found.steps, found.closing) == (4, {}, None)
    later.check("first", judging())
    later.check("second", judging())
    later.close()
    assert verdict(later) == ("pass", "all-steps-passed")
    assert len(state(run).clusters) == 1  # that of the first start is void as well


def test_a_start_that_failed_by_a_parameter_is_put_right_in_the_same_run(home: Path) -> None:
    with pytest.raises(errors.ParameterError, match="names no cluster"):
        open_run(BOOK, {"expect_cluster": "x"})
    (folder,) = (home / "outputs").iterdir()
    run = open_run(BOOK, {"run_id": folder.name})
    assert events(run) == ["start", "close", "start", "cluster"]
    run.check("first", judging())
    run.check("second", judging())
    run.close()
    assert verdict(run) == ("pass", "all-steps-passed")


def test_a_passed_step_whose_cell_was_run_before_the_start_is_shown_again_before_the_end(run: Run) -> None:
    for step in ("first", "second"):
        run.check(step, judging())
    later = open_run(BOOK, {"reason": "test", "run_id": run.id}, {"second", "other"})
    with pytest.raises(errors.OutOfOrder, match="Run the cell 'second' first"):
        later.close()
    assert state(run).closing is None
    later.check("second", judging())
    later.close()
    assert verdict(run) == ("pass", "all-steps-passed")


def test_what_an_earlier_start_left_in_the_kernel_judges_nothing(run: Run) -> None:
    with pytest.raises(errors.ParameterError, match="names no cluster"):
        again(run, expect_cluster="x")  # the cell failed: the name `run` is still that of the first start
    before = events(run)
    with pytest.raises(errors.OutOfOrder, match="other parameters: expect_cluster"):
        run.check("first", judging())
    with pytest.raises(errors.OutOfOrder, match="other parameters"):
        run.close()
    assert events(run) == before


def test_a_start_with_other_parameters_after_a_step_passed_does_not_count(run: Run) -> None:
    run.check("first", judging())
    first = read(run.folder / "journal.jsonl")[0]["data"]
    run.journal.append("start", {**first, "parameters": {**first["parameters"], "limit": 4}})
    found = state(run)
    assert found.start["parameters"]["limit"] == 3
    assert found.passed("first")


def test_the_folder_of_another_runbook_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.ParameterError, match="this run is of two, not of other"):
        again(run, OTHER)
    monkeypatch.chdir(run.folder)
    with pytest.raises(errors.ParameterError, match="this run is of two, not of other"):
        open_run(OTHER, {})
    # a record that was exchanged does not help: the journal says whose run it is
    record = run.folder / workspace.RECORD
    record.write_bytes(record.read_bytes().replace(b'"two"', b'"other"'))
    with pytest.raises(errors.ParameterError, match="this run is of two, not of other"):
        open_run(OTHER, {"reason": "test"})
    assert events(run) == ["start", "cluster"]


def test_another_run_id_than_that_of_the_folder_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.folder)
    with pytest.raises(errors.ParameterError, match="is another run than the one of this folder"):
        open_run(BOOK, {"reason": "test", "run_id": "r9"})
    with pytest.raises(errors.InputError, match="this is no run folder"):
        monkeypatch.chdir(run.folder.parent)
        open_run(BOOK, {"reason": "test", "run_id": "r9"})


def test_a_run_that_died_is_gone_on_with(run: Run) -> None:
    run.check("first", judging())
    run.enter("second")
    Journal.open(run.folder / "journal.jsonl").append("died", {"reason": "killed", "step": "second"})
    later = again(run)
    later.check("second", judging())
    later.close()
    assert verdict(run) == ("pass", "all-steps-passed")
    assert "reopen" in events(run)


def test_a_last_line_cut_by_a_crash_is_dropped_and_the_step_is_judged_again(run: Run) -> None:
    run.check("first", judging())
    path = run.folder / "journal.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    later = again(run)
    with pytest.raises(errors.OutOfOrder):
        later.check("second", judging())
    later.check("first", judging())


def test_a_journal_that_was_altered_is_no_run_to_go_on_with(run: Run) -> None:
    path = run.folder / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"limit":3', b'"limit":4'))
    with pytest.raises(errors.JournalError, match="the hash chain is broken here"):
        again(run, limit=4)


def test_a_second_process_is_told_who_has_the_run(run: Run, home: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_run import BOOK; from gpurunbook.runbook.start import open_run\n"
        "open_run(BOOK, {'reason': 'test', 'run_id': sys.argv[2]})\n"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent), run.id]
    refused = subprocess.run(command, capture_output=True, text=True, check=False, cwd=home)
    assert f"RunInUse: {run.id}: another process works on this run: process {os.getpid()} on " in refused.stderr
    assert events(run) == ["start", "cluster"]
    keep.release(run.folder / workspace.KERNEL_LOCK)
    taken = subprocess.run(command, capture_output=True, text=True, check=False, cwd=home)
    assert taken.returncode == 0, taken.stderr
    assert events(run) == ["start", "cluster", "resume", "cluster"]


# -- what a cell may give --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [True, None, Judgement(()), {"status": "pass"}, "pass", Check, [judging()]])
def test_a_value_that_was_computed_earlier_is_refused(run: Run, value: Any) -> None:
    calls: list[Callable[[], None]] = [
        lambda: run.check("first", value),
        lambda: run.change("first", value),
        lambda: run.wait("first", value),
    ]
    for call in calls:
        with pytest.raises(TypeError, match=r"takes an unevaluated .* what is judged must be fresh"):
            call()
    assert events(run) == ["start", "cluster"]


def test_one_kind_is_not_taken_for_another(run: Run) -> None:
    change = Change("c", {}, lambda _: Planned(()))
    wait = Wait("w", {}, lambda _: Progress("done"), 1)
    for call in (
        lambda: run.check("first", change),  # type: ignore[arg-type]
        lambda: run.check("first", wait),  # type: ignore[arg-type]
        lambda: run.change("first", judging()),  # type: ignore[arg-type]
        lambda: run.wait("first", change),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError):
            call()


def test_what_is_judged_is_read_when_the_cell_runs(run: Run, home: Path) -> None:
    def judge(seen: Seen) -> Judgement:
        text = seen["file"].value.decode()
        return Judgement((Finding("c", "s", Status.PASS if text == "new" else Status.FAIL, "text", text),))

    check = Check("Read", {"file": Document(str(home / "pods.json"))}, judge)
    (home / "pods.json").write_text("new")
    run.check("first", check)
    (home / "pods.json").write_text("old")
    with pytest.raises(errors.Stopped):
        run.check("first", check)


def test_a_later_step_reads_what_an_earlier_one_recorded(run: Run) -> None:
    finding = Finding("c", "s", Status.PASS, "x", "x")
    run.check("first", Check("Keep", {}, lambda _: Judgement((finding,), files={"a.json": b"[1]"})))

    def judge(seen: Seen) -> Judgement:
        good = seen["it"].problem is None and seen["it"].value == b"[1]"
        return Judgement((Finding("c", "s", Status.PASS if good else Status.UNKNOWN, "x", "x"),))

    check = Check("Use", {"it": Recorded("first", "a.json")}, judge)
    later = again(run)
    later.check("second", check)
    (run.folder / "after" / "a.json").write_bytes(b"[2]")
    with pytest.raises(errors.Stopped):
        later.check("second", check)
    assert verdict(run)[0] == "unknown"


# -- crashes ---------------------------------------------------------------------------------------------------------


def crash(wrong: BaseException) -> Check:
    def judge(_: Seen) -> Judgement:
        raise wrong

    return Check("Crash", {}, judge)


@pytest.mark.parametrize("wrong", [KeyError("x"), RecursionError(), MemoryError(), AssertionError()])
def test_a_crash_in_a_rule_is_unknown_and_never_an_answer_of_policy(run: Run, wrong: Exception) -> None:
    with pytest.raises(type(wrong)):
        run.check("first", crash(wrong))
    assert verdict(run) == ("unknown", "internal-error")
    assert not state(run).passed("first")


def test_a_crash_after_the_first_needs_is_unknown(run: Run) -> None:
    def follow(_: Seen) -> Any:
        raise KeyError("x")

    with pytest.raises(KeyError):
        run.check("first", Check("c", {}, lambda _: Judgement(()), follow=follow))
    assert verdict(run) == ("unknown", "internal-error")


def test_an_interrupt_closes_and_the_cell_can_be_run_again(run: Run) -> None:
    with pytest.raises(KeyboardInterrupt):
        run.check("first", crash(KeyboardInterrupt()))
    assert verdict(run) == ("unknown", "interrupted")
    run.check("first", judging())
    run.check("second", judging())
    run.close()
    assert verdict(run) == ("pass", "all-steps-passed")


def test_a_rule_that_concludes_nothing_is_unknown(run: Run) -> None:
    with pytest.raises(errors.Stopped):
        run.check("first", Check("c", {}, lambda _: Judgement(())))
    assert verdict(run) == ("unknown", "no-finding")


def test_a_file_that_cannot_be_kept_closes_with_what_to_do(run: Run) -> None:
    (run.folder / "after").write_text("in the way")
    finding = Finding("c", "s", Status.PASS, "x", "x")
    with pytest.raises(errors.RunbookError, match="cannot be kept"):
        run.check("first", Check("c", {}, lambda _: Judgement((finding,), files={"a.json": b"1"})))
    assert verdict(run) == ("unknown", "not-kept")
    assert not state(run).passed("first")


# -- close -----------------------------------------------------------------------------------------------------------


def test_closing_too_early_names_the_cell_and_closes_nothing(run: Run) -> None:
    with pytest.raises(errors.OutOfOrder, match="first, second have not passed"):
        run.close()
    run.check("first", judging())
    with pytest.raises(errors.OutOfOrder, match="second has not passed"):
        run.close()
    assert state(run).closing is None


def test_a_second_close_shows_the_first_and_writes_nothing(run: Run) -> None:
    run.check("first", judging())
    run.check("second", judging())
    run.close()
    before = (run.folder / "journal.jsonl").read_bytes()
    run.close()
    again(run).close()  # the same holds in another kernel, which resumes first
    assert (run.folder / "journal.jsonl").read_bytes().startswith(before)
    assert events(run).count("close") == 1
    assert verdict(run) == ("pass", "all-steps-passed")


def test_a_step_run_again_after_the_close_takes_the_verdict_back_until_it_is_closed_again(run: Run) -> None:
    run.check("first", judging())
    run.check("second", judging())
    run.close()
    run.check("second", judging())
    assert state(run).verdict is Verdict.UNKNOWN
    run.close()
    assert verdict(run) == ("pass", "all-steps-passed")
    with pytest.raises(errors.Stopped):
        run.check("first", judging(Status.FAIL))
    assert verdict(run) == ("rejected", "looked")
    with pytest.raises(errors.OutOfOrder):
        run.close()
    assert verdict(run) == ("rejected", "looked")


def test_a_good_close_does_not_hide_that_the_run_died_after_it(run: Run) -> None:
    run.check("first", judging())
    run.check("second", judging())
    run.close()
    Journal.open(run.folder / "journal.jsonl").append("died", {"reason": "a later cell failed"})
    assert state(run).verdict is Verdict.UNKNOWN
    run.close()
    assert verdict(run) == ("pass", "all-steps-passed")
    assert events(run).count("close") == 2


# -- how long a step counts ------------------------------------------------------------------------------------------


def test_a_step_that_passed_long_ago_is_judged_again_before_anything_stands_on_it(home: Path) -> None:
    """An approval may take days; meanwhile what was judged before it may have changed."""
    book = replace(BOOK, lasts=4.0)
    run = open_run(book, {"reason": "test"})
    begun = datetime.now(UTC)
    run.check("first", judging())
    run.clock = lambda: begun + timedelta(hours=3, minutes=59)
    run.check("second", judging())
    run.clock = lambda: begun + timedelta(hours=4, minutes=1)
    for goes_on in (lambda: run.check("second", judging()), run.close):
        with pytest.raises(errors.OutOfOrder, match=r"first passed 4\.0 h ago, and counts for 4 h"):
            goes_on()
    run.clock = lambda: datetime.now(UTC)  # the journal's own
    run.check("first", judging())
    run.check("second", judging())
    run.close()
    assert verdict(run) == ("pass", "all-steps-passed")


def test_a_step_of_a_time_to_come_does_not_count(home: Path) -> None:
    run = open_run(replace(BOOK, lasts=4.0), {"reason": "test"})
    begun = datetime.now(UTC)
    run.check("first", judging())
    run.clock = lambda: begun - timedelta(days=1)
    with pytest.raises(errors.OutOfOrder, match=r"first passed 24\.0 h from now"):
        run.check("second", judging())


def test_what_a_step_needs_must_count_as_well_however_far_back(home: Path) -> None:
    third = Step("third", "Third", ("second",))
    run = open_run(replace(BOOK, lasts=4.0, steps=(*BOOK.steps, third)), {"reason": "test"})
    begun = datetime.now(UTC)
    run.check("first", judging())
    late = begun + timedelta(hours=5)
    run.journal._clock = run.clock = lambda: late - timedelta(hours=2)
    run.check("second", judging())
    run.clock = lambda: late
    with pytest.raises(errors.OutOfOrder, match="first passed"):
        run.check("third", judging())


def test_what_stands_on_a_step_is_judged_again_after_it(home: Path) -> None:
    """A cell that is run once more judges, and keeps, something else than what later cells were told."""
    run = open_run(replace(BOOK, lasts=4.0), {"reason": "test"})
    run.check("first", judging())
    run.check("second", judging())
    run.check("first", judging())
    with pytest.raises(errors.OutOfOrder, match="first was judged again after second"):
        run.close()
    run.check("second", judging())
    run.close()
    assert verdict(run) == ("pass", "all-steps-passed")


def test_by_itself_a_step_counts_as_long_as_the_run(run: Run) -> None:
    run.check("first", judging())
    run.clock = lambda: datetime.now(UTC) + timedelta(days=30)
    run.check("second", judging())
    run.close()
    assert verdict(run) == ("pass", "all-steps-passed")
