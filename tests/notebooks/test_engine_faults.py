"""Faults from outside, done to real processes of papermill and gpurunbook.

Covered: SIGTERM, SIGINT and SIGHUP to the driver, each in a cell that cleans up; SIGHUP that was ignored; SIGKILL of
the driver and of the kernel from outside; a full disk (a small file system where the tests may mount one, else a
limit on the size of files) before and while the notebook is saved.
Not covered: ends that a notebook brings about itself (test_engine.py); two drivers (test_engine_two.py).
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tiny

from gpurunbook.evidence.seal import seal
from gpurunbook.evidence.verify import verify
from gpurunbook.folder import workspace
from gpurunbook.journal import read, replay

SECONDS = 300


def wait_for(what: Callable[[], object], process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + SECONDS
    while not what():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


def kernel_of(run_dir: Path) -> int:
    return int(read(run_dir / "journal.jsonl")[0]["data"]["process"]["pid"])


def gone(pid: int) -> bool:
    """Ended; a container whose first process does not reap leaves a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_papermill_ends_the_cell_in_order_and_is_told(tmp_path: Path, number: signal.Signals) -> None:
    home = tiny.lay(tmp_path, "sleep")
    process = tiny.papermill(home)
    wait_for((home / "started").exists, process)
    run_dir = tiny.the_run(home)
    kernel = kernel_of(run_dir)
    process.send_signal(number)
    _, told = process.communicate(timeout=SECONDS)
    assert process.returncode not in (0, None)
    saved = home / "out.ipynb"
    assert tiny.statuses(saved)["culprit"] == "failed"
    assert tiny.statuses(saved)["never"] == tiny.statuses(saved)["never2"] == "pending"
    assert tiny.excepted(saved) is True
    assert "cleaned up" in tiny.outputs(saved, "culprit")
    assert f"the driver was stopped by {number.name}" in tiny.outputs(saved, "culprit")
    assert f"the driver was stopped by {number.name}" in told
    assert f"gpurunbook run provenance_audit --run-id {run_dir.name}" in told
    assert "without encryption" not in told
    assert gone(kernel)
    answer = verify(run_dir)
    assert (answer.verdict, answer.run_verdict) == ("consistent", "unknown")
    assert tiny.half_written(home) == []


def test_a_signal_that_the_caller_ignores_stays_ignored(tmp_path: Path) -> None:
    home = tiny.lay(tmp_path, "sleep")
    process = tiny.gpurunbook(
        home,
        "run",
        "provenance_audit",
        "--cell-timeout",
        "8",
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    wait_for((home / "started").exists, process)
    process.send_signal(signal.SIGHUP)
    card, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 2
    assert "CellTimeout" in card
    assert "SIGHUP" not in card


def test_a_run_told_to_stop_answers_with_its_card(tmp_path: Path) -> None:
    home = tiny.lay(tmp_path, "sleep")
    process = tiny.gpurunbook(home, "run", "provenance_audit", "-o", "json")
    wait_for((home / "started").exists, process)
    process.send_signal(signal.SIGTERM)
    answer, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 2
    said = json.loads(answer)
    assert (said["verdict"], said["evidence"]) == ("unknown", "sealed")
    assert "SIGTERM" in said["closed"]["message"]


def test_a_run_stopped_before_its_kernel_starts_is_named_and_keeps_what_it_was_given(tmp_path: Path) -> None:
    home = tiny.lay(tmp_path, "closes")
    process = tiny.gpurunbook(home, "run", "provenance_audit", "--set", "reason=given", "--set", "pod_json=pods.json")
    wait_for(lambda: list((home / "outputs").glob("*/run.json")), process)
    process.send_signal(signal.SIGINT)
    card, told = process.communicate(timeout=SECONDS)
    run_dir = tiny.the_run(home)
    assert process.returncode == 2, told
    assert f"--run-id {run_dir.name}" in card
    assert f"outputs/{run_dir.name}" in card
    on = tiny.gpurunbook(home, "resume", f"outputs/{run_dir.name}")
    card, told = on.communicate(timeout=SECONDS)
    assert on.returncode == 0, (card, told)
    given = replay(read(run_dir / "journal.jsonl")).start["parameters"]
    assert given["reason"] == "given"


@pytest.mark.parametrize("journal", [None, b"", b'{"data":{"run":"o'])
@pytest.mark.parametrize(
    "words",
    [
        ("resume", "one"),
        ("run", tiny.RUNBOOK, "--run-id", "one"),
        ("run", tiny.RUNBOOK, "--run-id", "one", "--set", "reason=given"),  # and what else was it given?
        ("run", tiny.RUNBOOK, "--set", "run_id=one"),
    ],
    ids=" ".join,
)
def test_a_run_whose_parameters_nobody_knows_is_not_gone_on_with(
    tmp_path: Path, words: tuple[str, ...], journal: bytes | None
) -> None:
    home = tiny.lay(tmp_path, "closes")
    run_dir = home / "outputs" / "one"
    run_dir.mkdir(parents=True)
    record = json.dumps({"run": "one", "runbook": tiny.RUNBOOK, "home": str(home)})
    (run_dir / "run.json").write_text(record)
    if journal is not None:
        (run_dir / "journal.jsonl").write_bytes(journal)
    process = tiny.gpurunbook(home, *words)
    _, told = process.communicate(timeout=SECONDS)
    assert process.returncode == 2
    assert "does not say what it was given" in told
    assert (run_dir / "run.json").read_text() == record
    assert {path.name for path in run_dir.iterdir()} <= {"run.json", "journal.jsonl", "driver.lock"}
    left = run_dir / "journal.jsonl"
    assert (left.read_bytes() if left.exists() else None) == journal


@pytest.mark.parametrize("words", [("resume",), ("run", tiny.RUNBOOK, "--run-id")], ids=" ".join)
def test_a_run_whose_last_line_a_crash_has_cut_goes_on_with_its_own_parameters(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    home = tiny.lay(tmp_path, "closes")
    run_dir = home / "outputs" / "one"
    given = ("--set", "reason=given", "--set", "pod_json=pods.json")
    begun = tiny.gpurunbook(home, "run", tiny.RUNBOOK, "--run-id", "one", *given)
    assert begun.communicate(timeout=SECONDS) and begun.returncode == 0
    record = json.loads((run_dir / "run.json").read_text())
    del record["parameters"]  # as an earlier version wrote it
    (run_dir / "run.json").write_text(json.dumps(record))
    for name in ("manifest.json", f"{tiny.RUNBOOK}.ipynb"):
        (run_dir / name).unlink()
    lines = (run_dir / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (run_dir / "journal.jsonl").write_bytes(b"".join(lines[:2]) + lines[2][:20])
    on = tiny.gpurunbook(home, *words, "one")
    card, told = on.communicate(timeout=SECONDS)
    assert on.returncode == 0, (card, told)
    starts = [record["data"]["parameters"]["reason"] for record in read(run_dir / "journal.jsonl")[:1]]
    assert starts == ["given"]
    assert tiny.events(run_dir).count("start") == 1


def test_a_killed_driver_leaves_a_whole_file_that_claims_nothing(tmp_path: Path) -> None:
    home = tiny.lay(tmp_path, "sleep")
    process = tiny.papermill(home)
    wait_for((home / "started").exists, process)
    run_dir = tiny.the_run(home)
    kernel = kernel_of(run_dir)
    process.kill()
    process.communicate(timeout=SECONDS)
    assert process.returncode == -signal.SIGKILL
    end = time.monotonic() + SECONDS
    while not gone(kernel):  # ipykernel looks for its parent once a second
        assert time.monotonic() < end
        time.sleep(0.05)
    assert not workspace.kernel_alive(run_dir)
    saved = home / "out.ipynb"
    assert tiny.statuses(saved)["start"] == "completed"
    assert tiny.statuses(saved)["culprit"] == "running"
    assert tiny.statuses(saved)["never"] == "pending"
    assert tiny.half_written(home) == []
    assert verify(run_dir).verdict == "unsealed"
    assert seal(run_dir, saved)["verdict"] == "unknown"
    assert tiny.closing(run_dir)["event"] == "died"
    assert verify(run_dir).verdict == "consistent"


def test_a_kernel_killed_from_outside_is_told(tmp_path: Path) -> None:
    home = tiny.lay(tmp_path, "sleep")
    process = tiny.papermill(home)
    wait_for((home / "started").exists, process)
    os.kill(kernel_of(tiny.the_run(home)), signal.SIGKILL)
    _, told = process.communicate(timeout=SECONDS)
    assert process.returncode not in (0, None)
    assert "the kernel was killed by SIGKILL" in told
    assert tiny.statuses(home / "out.ipynb")["culprit"] == "failed"
    assert tiny.statuses(home / "out.ipynb")["never"] == "pending"
    assert verify(tiny.the_run(home)).run_verdict == "unknown"


def fill(path: Path) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        with pytest.raises(OSError, match="No space left"):
            while True:
                os.write(handle, b"x" * 4096)
    finally:
        os.close(handle)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[tuple[Path, Callable[[], None] | None]]:
    """A folder of one megabyte, and what must be done in the process for it: nothing when it could be mounted."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = shutil.which("mount")
    asked = [mount or "false", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    mounted = subprocess.run(asked, capture_output=True, check=False)
    if mounted.returncode:
        yield folder, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        return
    try:
        yield folder, None
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_fills_up_stops_the_run_and_leaves_the_file_whole(tmp_path: Path, small_disk) -> None:
    folder, limit = small_disk
    home = tiny.lay(tmp_path, "big_output")
    process = tiny.gpurunbook(home, "run", "provenance_audit", "--out", str(folder), preexec_fn=limit)
    card, told = process.communicate(timeout=SECONDS)
    assert process.returncode == 2, told
    (run_dir,) = [path.parent for path in folder.glob("*/run.json")]
    saved = run_dir / "provenance_audit.ipynb"
    assert tiny.statuses(saved)["culprit"] == "running"
    assert tiny.statuses(saved)["never"] == "pending"
    assert tiny.half_written(folder) == []
    assert "cannot be saved: " in card
    assert f"--run-id {run_dir.name}" in card
    answer = verify(run_dir)
    assert (answer.verdict, answer.run_verdict) in {("unsealed", None), ("consistent", "unknown")}


def test_papermill_on_a_full_disk_keeps_the_old_output_and_fails(tmp_path: Path, small_disk) -> None:
    folder, limit = small_disk
    home = tiny.lay(tmp_path, "closes")
    old = folder / "out.ipynb"
    old.write_text('{"old": true}\n')
    if limit is None:
        fill(folder / "filler")
    else:
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))  # noqa: E731
    process = tiny.papermill(home, output=str(old), preexec_fn=limit)
    _, told = process.communicate(timeout=SECONDS)
    assert process.returncode not in (0, None)
    assert old.read_text() == '{"old": true}\n'
    assert tiny.half_written(folder) == []
    assert "unsealed" in told
