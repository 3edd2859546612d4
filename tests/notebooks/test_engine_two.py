"""Two drivers of one run.

Covered: the second is refused with exit 1, `blocked`, and touches nothing, whether it is gpurunbook or papermill;
two that start together with the same new id; a run whose kernel is open elsewhere.
Not covered: the locks themselves (tests/unit/test_workspace.py).
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import tiny
from test_engine_faults import SECONDS, wait_for

from gpurunbook.evidence.verify import verify
from tests.eventually import eventually


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture
def driven(tmp_path: Path):
    """A home with a run `one` in the middle of a long cell."""
    home = tiny.lay(tmp_path, "sleep")
    process = tiny.gpurunbook(home, "run", "provenance_audit", "--run-id", "one")
    wait_for((home / "started").exists, process)
    yield home
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=SECONDS)
    assert process.returncode == 2


def test_a_second_run_of_the_same_id_is_blocked_and_touches_nothing(driven: Path) -> None:
    run_dir = driven / "outputs" / "one"
    before = snapshot(run_dir)
    second = tiny.gpurunbook(driven, "run", "provenance_audit", "--run-id", "one", "-o", "json")
    answer, _ = second.communicate(timeout=SECONDS)
    assert second.returncode == 1
    said = json.loads(answer)
    assert (said["verdict"], said["code"], said["run"]) == ("blocked", "run-in-use", "one")
    assert said["next"]
    assert snapshot(run_dir) == before


def test_the_card_of_a_run_in_use_is_that_of_any_run(driven: Path) -> None:
    second = tiny.gpurunbook(driven, "run", "provenance_audit", "--run-id", "one")
    card, _ = second.communicate(timeout=SECONDS)
    lines = card.splitlines()
    assert lines[0].endswith("blocked")
    assert [line.split()[0] for line in lines[1:]] == ["code", "what", "next", "run"]
    assert "run-in-use" in lines[1]


def test_papermill_on_a_run_in_use_is_refused_and_touches_nothing(driven: Path) -> None:
    run_dir = driven / "outputs" / "one"
    before = snapshot(run_dir)
    second = tiny.papermill(driven, "-p", "run_id", "one")
    _, told = second.communicate(timeout=SECONDS)
    assert second.returncode not in (0, None)
    assert "RunInUse" in told
    assert snapshot(run_dir) == before
    assert not (driven / "out.ipynb").exists()


def test_of_two_that_start_together_one_runs_and_one_is_blocked(tmp_path: Path) -> None:
    home = tiny.lay(tmp_path, "closes_when_told")
    both = [tiny.gpurunbook(home, "run", "provenance_audit", "--run-id", "same", "-o", "json") for _ in range(2)]
    eventually(lambda: any(process.poll() is not None for process in both))  # the one that has come too late
    (home / "go").touch()
    answers = [process.communicate(timeout=SECONDS) for process in both]
    said = sorted((json.loads(out) for out, _ in answers), key=lambda s: s["verdict"])
    assert [s["verdict"] for s in said] == ["blocked", "pass"], answers
    assert said[0]["code"] == "run-in-use"
    assert sorted(process.returncode for process in both) == [0, 1]
    run_dir = home / "outputs" / "same"
    assert tiny.events(run_dir).count("start") == 1
    assert verify(run_dir).run_verdict == "pass"
    assert tiny.half_written(home) == []


def test_a_run_whose_kernel_is_open_elsewhere_is_blocked(tmp_path: Path) -> None:
    import subprocess
    import sys

    home = tiny.lay(tmp_path, "closes")
    made = tiny.gpurunbook(home, "new", "provenance_audit", "--run-id", "one")
    made.communicate(timeout=SECONDS)
    run_dir = home / "outputs" / "one"
    code = "from gpurunbook.folder import keep; import pathlib, sys; keep.hold(pathlib.Path('lock')); input()"
    with subprocess.Popen([sys.executable, "-c", code], cwd=run_dir, stdin=subprocess.PIPE, text=True) as kernel:
        eventually(lambda: (run_dir / "lock").is_file() and (run_dir / "lock").read_bytes())
        before = snapshot(run_dir)
        second = tiny.gpurunbook(home, "run", "provenance_audit", "--run-id", "one")
        card, _ = second.communicate(timeout=SECONDS)
        assert second.returncode == 1
        assert "blocked" in card
        assert snapshot(run_dir) == before
        kernel.communicate("\n")
