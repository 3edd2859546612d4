"""The engine in this process: what file, journal and evidence say after each way in which a notebook can end.

Covered: kernel death (SIGKILL, os._exit), SystemExit, an exception, a cell time-out with a kernel that obeys and one
that does not, a kernel that does not start, a run that is not closed, closed otherwise than its cells look, or hurt
after its close, a leak, refused tags, a notebook elsewhere or nowhere, resuming by run id, equal bytes.
Not covered: signals to the driver, real processes of papermill, full disks (test_engine_faults.py); two drivers
(test_engine_two.py).
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import nbformat
import papermill
import pytest
import tiny
from papermill.exceptions import PapermillExecutionError

from gpurunbook.errors import EvidenceError, GateError, InputError, ParameterError, RunBound, Stopped
from gpurunbook.evidence.seal import manifest_digest
from gpurunbook.evidence.verify import verify
from gpurunbook.folder import workspace
from gpurunbook.headless import drive


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GPURUNBOOK_HOME", "GPURUNBOOK_OUT", "GPURUNBOOK_RUN_DIR", "GPURUNBOOK_CLUSTERS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def lay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def laid(name: str) -> Path:
        home = tiny.lay(tmp_path, name)
        monkeypatch.chdir(home)
        return home

    return laid


def execute(home: Path, output: str | None = "out.ipynb", **more):
    return papermill.execute_notebook(tiny.source(home), output, engine_name="gpurunbook", progress_bar=False, **more)


@pytest.mark.parametrize(
    ("name", "error", "reason"),
    [
        ("autokill", "KernelDied", "the kernel was killed by SIGKILL (out of memory?) while this cell ran"),
        ("os_exit0", "KernelDied", "the kernel ended itself with exit code 0 while this cell ran"),
        ("sys_exit0", "SystemExit", "the cell called sys.exit(0)"),
        ("raise", "ValueError", "no such thing"),
    ],
)
def test_a_notebook_that_dies_says_where_and_why_and_nothing_after_it_ran(lay, capsys, name, error, reason) -> None:
    home = lay(name)
    with pytest.raises(PapermillExecutionError):
        execute(home)
    saved = home / "out.ipynb"
    assert tiny.statuses(saved) == {
        "parameters": "completed",
        "start": "completed",
        "about": "completed",
        "culprit": "failed",
        "never": "pending",
        "never2": "pending",
    }
    assert tiny.excepted(saved) is True
    assert "before" in tiny.outputs(saved, "culprit")
    assert error in tiny.outputs(saved, "culprit")
    assert tiny.outputs(saved, "never") == ""
    run_dir = tiny.the_run(home)
    assert tiny.events(run_dir) == ["start", "cluster", "died"]
    assert tiny.closing(run_dir)["step"] == "culprit"
    assert reason in tiny.closing(run_dir)["reason"]
    answer = verify(run_dir)
    assert (answer.verdict, answer.run_verdict, answer.evidence) == ("consistent", "unknown", "sealed")
    verdict = json.loads((run_dir / "verdict.json").read_bytes())
    assert verdict["not_run"] == ["never", "never2"]
    assert tiny.half_written(home) == []
    told = capsys.readouterr().err
    assert f"run {run_dir.name}: unknown" in told
    assert f"manifest: {answer.manifest_digest}" in told
    assert reason in told
    assert f"gpurunbook run provenance_audit --run-id {run_dir.name}" in told


def test_a_cell_that_takes_too_long_is_interrupted_and_its_clean_up_is_kept(lay) -> None:
    home = lay("sleep")
    with pytest.raises(PapermillExecutionError):
        execute(home, execution_timeout=8)
    saved = home / "out.ipynb"
    assert tiny.statuses(saved)["culprit"] == "failed"
    assert tiny.statuses(saved)["never"] == "pending"
    assert "cleaned up" in tiny.outputs(saved, "culprit")
    assert "the cell took longer than 8 s and was interrupted" in tiny.outputs(saved, "culprit")
    assert "CellTimeout" in tiny.closing(tiny.the_run(home))["reason"]
    assert verify(tiny.the_run(home)).verdict == "consistent"


def test_a_kernel_that_does_not_obey_is_killed_within_the_grace(lay, monkeypatch) -> None:
    monkeypatch.setattr(drive, "GRACE_SECONDS", 0.5)
    home = lay("deaf")
    began = time.monotonic()
    with pytest.raises(PapermillExecutionError):
        execute(home, execution_timeout=8)
    assert time.monotonic() - began < 300  # the cell would sleep for 600
    assert tiny.statuses(home / "out.ipynb")["culprit"] == "failed"
    assert tiny.statuses(home / "out.ipynb")["never"] == "pending"
    assert verify(tiny.the_run(home)).run_verdict == "unknown"


def test_a_kernel_that_does_not_start_leaves_no_cell_completed(lay) -> None:
    home = lay("closes")
    with pytest.raises(PapermillExecutionError):
        execute(home, kernel_name="no-such-kernel")
    assert set(tiny.statuses(home / "out.ipynb").values()) == {"failed", "pending"}
    assert "the kernel did not start" in tiny.outputs(home / "out.ipynb", "parameters")
    run_dir = tiny.the_run(home)
    assert not (run_dir / "manifest.json").exists()
    assert tiny.half_written(home) == []


def test_a_run_that_no_cell_closed_is_unknown_although_every_cell_ran(lay) -> None:
    home = lay("not_closed")
    with pytest.raises(PapermillExecutionError, match="RunNotClosed"):
        execute(home)
    assert tiny.statuses(home / "out.ipynb")["never2"] == "failed"
    assert tiny.closing(tiny.the_run(home))["event"] == "died"
    assert verify(tiny.the_run(home)).run_verdict == "unknown"


def test_a_notebook_that_is_no_runbook_does_not_end_well(lay, capsys) -> None:
    home = lay("no_run")
    with pytest.raises(PapermillExecutionError, match="RunNotClosed"):
        execute(home)
    assert "unsealed" in capsys.readouterr().err
    assert verify(tiny.the_run(home)).verdict == "unsealed"


def test_a_verdict_that_a_cell_swallows_still_counts(lay) -> None:
    home = lay("swallows")
    with pytest.raises(Stopped, match="closed unknown"):
        execute(home)
    assert set(tiny.statuses(home / "out.ipynb").values()) == {"completed"}
    assert tiny.closing(tiny.the_run(home))["verdict"] == "unknown"
    assert verify(tiny.the_run(home)).run_verdict == "unknown"


@pytest.mark.parametrize("name", ["dies_after_close", "raises_after_close"])
def test_a_good_close_does_not_outlive_a_failure_after_it(lay, name: str) -> None:
    home = lay(name)
    with pytest.raises(PapermillExecutionError):
        execute(home)
    run_dir = tiny.the_run(home)
    assert tiny.events(run_dir)[-2:] == ["close", "died"]
    assert verify(run_dir).run_verdict == "unknown"


def test_a_leak_withholds_the_evidence_and_ends_badly(lay) -> None:
    home = lay("leaks")
    with pytest.raises(EvidenceError, match="withheld") as wrong:
        execute(home)
    assert wrong.value.code == "withheld"
    manifest = json.loads((tiny.the_run(home) / "manifest.json").read_bytes())
    assert (manifest["evidence"], manifest["verdict"]) == ("withheld", "pass")


@pytest.mark.parametrize("name", ["skip_tag", "allowed_error"])
def test_tags_that_hide_what_a_cell_does_are_refused_before_anything_is_made(lay, name: str) -> None:
    home = lay(name)
    with pytest.raises(InputError, match="would hide what a cell does"):
        execute(home)
    assert not (home / "outputs").exists()
    assert not (home / "out.ipynb").exists()


def test_a_run_that_passes_is_sealed_and_papermill_leaves_it_as_it_is(lay) -> None:
    home = lay("closes")
    made = execute(home)
    run_dir = tiny.the_run(home)
    answer = verify(run_dir)
    assert (answer.verdict, answer.run_verdict) == ("consistent", "pass")
    assert run_dir.name in (home / "outputs" / "index.html").read_text()
    saved = (home / "out.ipynb").read_bytes()
    assert saved == nbformat.writes(made).encode()
    assert saved == (run_dir / "provenance_audit.ipynb").read_bytes()
    about = json.loads(saved)["metadata"]["papermill"]
    assert (about["input_path"], about["output_path"]) == ("runbooks/provenance_audit.ipynb", "out.ipynb")


def test_without_an_output_the_run_folder_holds_the_notebook(lay) -> None:
    home = lay("closes")
    execute(home, output=None)
    assert verify(tiny.the_run(home)).run_verdict == "pass"


def test_an_output_that_is_a_device_stays_one_and_the_run_is_sealed(lay) -> None:
    home = lay("closes")
    (home / "null.ipynb").symlink_to("/dev/null")
    execute(home, "null.ipynb")
    assert (home / "null.ipynb").is_symlink()
    assert Path("/dev/null").is_char_device()
    assert verify(tiny.the_run(home)).verdict == "consistent"


def test_without_an_output_a_death_is_told_all_the_same(lay) -> None:
    home = lay("autokill")
    with pytest.raises(PapermillExecutionError, match="KernelDied"):
        execute(home, output=None)
    run_dir = tiny.the_run(home)
    assert tiny.statuses(run_dir / "provenance_audit.ipynb")["culprit"] == "failed"
    assert verify(run_dir).run_verdict == "unknown"


def test_a_run_that_died_is_gone_on_with_by_its_id(lay) -> None:
    home = lay("dies_once")
    with pytest.raises(PapermillExecutionError, match="KernelDied"):
        execute(home)
    run_dir = tiny.the_run(home)
    assert verify(run_dir).run_verdict == "unknown"
    execute(home, parameters={"run_id": run_dir.name})
    assert tiny.the_run(home) == run_dir
    assert "died" in tiny.events(run_dir)
    assert "resume" in tiny.events(run_dir)
    assert verify(run_dir).run_verdict == "pass"


def test_a_run_that_nothing_has_counted_in_takes_corrected_parameters_and_tells_so(lay) -> None:
    home = lay("closes")
    with pytest.raises(PapermillExecutionError):
        execute(home, parameters={"pod_json": "none.json"})
    run_dir = tiny.the_run(home)
    assert tiny.closing(run_dir)["code"] == "unreadable"
    execute(home, parameters={"run_id": run_dir.name, "pod_json": "pods.json"})
    assert tiny.closing(run_dir)["verdict"] == "pass"
    found = verify(run_dir)
    assert (found.verdict, found.run_verdict) == ("consistent", "pass")
    manifest = json.loads((run_dir / "manifest.json").read_bytes())
    assert manifest["parameters"]["pod_json"] == "pods.json"
    (told,) = [entry["detail"] for entry in manifest["anomalies"] if entry["kind"] == "begun-anew"]
    assert "pod_json was 'none.json', is 'pods.json'" in told


def test_a_run_in_which_a_step_passed_refuses_other_parameters_and_is_left_as_it_is(lay) -> None:
    home = lay("dies_after_close")
    with pytest.raises(PapermillExecutionError):
        execute(home)
    run_dir = tiny.the_run(home)
    before = {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file() and "lock" not in path.name}
    with pytest.raises(RunBound, match=r"gpurunbook new provenance_audit --set pod_json=other\.json"):
        execute(home, parameters={"run_id": run_dir.name, "pod_json": "other.json"})
    assert {path: path.read_bytes() for path in before} == before
    assert tiny.closing(run_dir)["event"] == "died"


def test_a_working_copy_that_is_run_by_its_path_is_its_folders_run(lay) -> None:
    home = lay("closes")
    run_dir = workspace.new_run("provenance_audit", home=home, out=home / "outputs", run_id="one")
    copy = str(workspace.notebook(run_dir))
    papermill.execute_notebook(copy, copy, engine_name="gpurunbook", progress_bar=False)
    assert tiny.the_run(home) == run_dir
    assert (tiny.closing(run_dir)["verdict"], verify(run_dir).run_verdict) == ("pass", "pass")


def test_a_run_that_closed_well_and_is_sealed_is_left_as_it_is(lay) -> None:
    home = lay("closes")
    execute(home)
    run_dir = tiny.the_run(home)
    before = {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file() and "lock" not in path.name}
    with pytest.raises(GateError, match=manifest_digest(run_dir)) as refused:
        execute(home, parameters={"run_id": run_dir.name})
    assert refused.value.code == "run-closed"
    assert {path: path.read_bytes() for path in before} == before


def test_a_bad_run_id_makes_nothing(lay) -> None:
    home = lay("closes")
    with pytest.raises(ParameterError, match="no run id"):
        execute(home, parameters={"run_id": "../../escape"})
    assert not (home / "outputs").exists()


def test_another_runs_folder_as_working_directory_is_not_taken_for_this_run(lay, monkeypatch) -> None:
    from gpurunbook.headless import execute as headless

    home = lay("closes")
    other = workspace.new_run("provenance_audit", home=home, out=home / "outputs", run_id="other")
    monkeypatch.chdir(other)
    outcome = headless.run("provenance_audit", {}, home=home, out=home / "outputs", run_id="mine")
    assert outcome.verdict == "pass"
    assert not (other / "journal.jsonl").exists()


def test_a_large_output_is_kept_whole(lay) -> None:
    home = lay("big_output")
    with pytest.raises(PapermillExecutionError, match="RunNotClosed"):
        execute(home)
    assert len(tiny.outputs(home / "out.ipynb", "culprit")) > 2_000_000
    assert (home / "out.ipynb").read_bytes() == (tiny.the_run(home) / "provenance_audit.ipynb").read_bytes()


def test_outputs_without_end_are_cut_off_and_the_run_is_sealed(lay, monkeypatch) -> None:
    monkeypatch.setattr(drive, "OUTPUT_BYTES", 300_000)
    home = lay("endless_output")
    with pytest.raises(PapermillExecutionError):
        execute(home, execution_timeout=600)
    run_dir = tiny.the_run(home)
    died = tiny.closing(run_dir)
    assert (died["event"], died["step"]) == ("died", "culprit")
    assert died["reason"].startswith("OutputTooLarge")
    assert 100_000 < (home / "out.ipynb").stat().st_size < 1_000_000
    assert tiny.statuses(home / "out.ipynb")["never"] == "pending"
    assert verify(run_dir).verdict == "consistent"


def test_an_engine_can_be_called_from_a_running_event_loop(lay) -> None:
    import asyncio

    home = lay("closes")

    async def inside() -> None:
        execute(home)

    asyncio.run(inside())
    assert verify(tiny.the_run(home)).run_verdict == "pass"
