"""Where runs live.

Covered: ids, the home, making a run folder, both locks from another process, and how a kernel finds its run.
Not covered: two drivers that really drive (tests/notebooks/test_engine_two.py).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from gpurunbook.errors import InputError, ParameterError, RunInUse
from gpurunbook.folder import workspace

NOW = datetime(2026, 1, 31, 12, 0, 5, tzinfo=UTC)
BAD_IDS = ["..", ".", ".hidden", "a/b", "../x", "/etc", "a b", "a\n", "ä", "-x", "x" * 101, "a\\b", "a\x00", "%2e"]


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GPURUNBOOK_HOME", "GPURUNBOOK_OUT", "GPURUNBOOK_RUN_DIR", "GPURUNBOOK_CLUSTERS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "home"
    (made / "parameters").mkdir(parents=True)
    (made / "runbooks").mkdir()
    (made / "runbooks" / "book.ipynb").write_bytes(b"{}\n")
    monkeypatch.chdir(made)
    return made


@contextmanager
def holder(path: Path) -> Iterator[None]:
    """Another process that holds the lock at `path`."""
    code = (
        "import sys, pathlib; from gpurunbook.folder import keep; keep.hold(pathlib.Path(sys.argv[1])); "
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield
        process.communicate("")


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_run_id_names_time_and_runbook_and_sorts_by_time() -> None:
    first = workspace.run_id("book", NOW, lambda n: "ff" * n)
    later = workspace.run_id("book", NOW + timedelta(seconds=1), lambda n: "00" * n)
    assert first == "20260131t120005z-book-ffff"
    assert sorted([later, first]) == [first, later]
    assert workspace.run_id("book", NOW.astimezone(timezone(timedelta(hours=9))), lambda n: "ff" * n) == first
    assert workspace.checked_run_id(workspace.run_id("book", NOW)) != first


@pytest.mark.parametrize("bad", BAD_IDS)
def test_what_is_no_plain_folder_name_is_no_run_id(home: Path, bad: str) -> None:
    with pytest.raises(ParameterError, match="no run id"):
        workspace.checked_run_id(bad)
    with pytest.raises(ParameterError, match="no run id"):
        workspace.new_run("book", home=home, out=home / "outputs", run_id=bad)
    with pytest.raises(ParameterError, match="no run id"):
        workspace.locate("book", bad)
    assert not (home / "outputs").exists()


def test_a_new_run_has_its_record_and_an_equal_copy_of_the_source(home: Path) -> None:
    run_dir = workspace.new_run(
        "book", home=home, out=home / "outputs", run_id="r1", scenario="one", values={"cluster": "a"}
    )
    assert run_dir == home / "outputs" / "r1"
    assert (run_dir / "book.ipynb").read_bytes() == (home / "runbooks" / "book.ipynb").read_bytes()
    record = json.loads((run_dir / "run.json").read_bytes())
    assert set(record) == {"run", "runbook", "created", "home", "scenario", "parameters"}
    assert workspace.given(run_dir) == {"cluster": "a"}
    assert (record["run"], record["runbook"], record["home"]) == ("r1", "book", str(home))
    assert workspace.notebook(run_dir) == run_dir / "book.ipynb"
    with workspace.driver(run_dir):
        assert not workspace.kernel_alive(run_dir)


def test_a_run_id_that_is_taken_is_refused_and_left_alone(home: Path) -> None:
    run_dir = workspace.new_run("book", home=home, out=home / "outputs", run_id="r1")
    (run_dir / "book.ipynb").write_bytes(b"edited")
    with pytest.raises(ParameterError, match="of this id already") as wrong:
        workspace.new_run("book", home=home, out=home / "outputs", run_id="r1")
    assert "gpurunbook run book --run-id r1" in wrong.value.remedy
    assert (run_dir / "book.ipynb").read_bytes() == b"edited"


def test_two_runs_of_one_second_with_one_token_get_folders_of_their_own(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = iter(["-0ccf", "-0ccf", "-0ccf", "-1d2e"])
    monkeypatch.setattr(workspace, "run_id", lambda runbook, now: f"20260131t120000z-{runbook}{next(tokens)}")
    first = workspace.new_run("book", home=home, out=home / "outputs")
    second = workspace.new_run("book", home=home, out=home / "outputs")
    assert (first.name[-4:], second.name[-4:]) == ("0ccf", "1d2e")


def test_without_a_source_nothing_is_made(home: Path) -> None:
    with pytest.raises(InputError, match="no such notebook"):
        workspace.new_run("other", home=home, out=home / "outputs")
    assert not (home / "outputs").exists()


def test_a_folder_that_cannot_be_made_is_named(home: Path) -> None:
    (home / "file").write_text("")
    with pytest.raises(Exception, match="cannot be made") as wrong:
        workspace.new_run("book", home=home, out=home / "file")
    assert wrong.value.code == "no-run-folder"


@pytest.mark.parametrize("lock", [workspace.DRIVER_LOCK, workspace.KERNEL_LOCK])
def test_a_run_that_another_process_has_is_refused_untouched(home: Path, lock: str) -> None:
    run_dir = workspace.new_run("book", home=home, out=home / "outputs", run_id="r1")
    with holder(run_dir / lock):
        before = snapshot(run_dir)
        with pytest.raises(RunInUse), workspace.driven("book", home=home, out=home / "outputs", run_id="r1"):
            pytest.fail("was let in")
        assert snapshot(run_dir) == before
        assert workspace.kernel_alive(run_dir) is (lock == workspace.KERNEL_LOCK)
    with workspace.driven("book", home=home, out=home / "outputs", run_id="r1") as again:
        assert again == run_dir


def test_a_driver_lock_may_be_taken_again_in_its_own_process_and_is_given_back_once(home: Path) -> None:
    run_dir = workspace.new_run("book", home=home, out=home / "outputs", run_id="r1")
    with workspace.driver(run_dir):
        with workspace.driver(run_dir):
            pass
        code = (
            "import sys, pathlib; from gpurunbook.folder import workspace\n"
            "with workspace.driver(pathlib.Path(sys.argv[1])): print('in')"
        )
        ask = [sys.executable, "-c", code, str(run_dir)]
        refused = subprocess.run(ask, capture_output=True, text=True, check=False)
        assert "RunInUse" in refused.stderr
    assert subprocess.run(ask, capture_output=True, text=True, check=True).stdout == "in\n"


def test_a_run_of_another_runbook_is_refused(home: Path) -> None:
    (home / "runbooks" / "other.ipynb").write_bytes(b"{}\n")
    workspace.new_run("book", home=home, out=home / "outputs", run_id="r1")
    with (
        pytest.raises(ParameterError, match="of book, not of other"),
        workspace.driven("other", home=home, out=home / "outputs", run_id="r1"),
    ):
        pytest.fail("was let in")


def test_the_home_is_found_upwards_or_by_name(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert workspace.find_home() == home
    assert workspace.find_home(home / "runbooks") == home
    with pytest.raises(InputError, match="GPURUNBOOK_HOME"):
        workspace.find_home(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPURUNBOOK_HOME", str(home))
    assert workspace.find_home() == home
    monkeypatch.setenv("GPURUNBOOK_HOME", str(tmp_path))
    with pytest.raises(InputError, match="holds no runbooks/"):
        workspace.find_home()


def test_folders_can_be_named_by_variables(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert workspace.runs_folder(home) == home / "outputs"
    assert workspace.clusters(home / "outputs" / "r1") == home / "outputs" / ".clusters"
    monkeypatch.setenv("GPURUNBOOK_OUT", str(tmp_path / "o"))
    monkeypatch.setenv("GPURUNBOOK_CLUSTERS", str(tmp_path / "c"))
    assert workspace.runs_folder(home) == tmp_path / "o"
    assert workspace.clusters(home / "outputs" / "r1") == tmp_path / "c"


def test_a_kernel_takes_the_run_of_its_folder_first(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = workspace.new_run("book", home=home, out=home / "outputs", run_id="one")
    two = workspace.new_run("book", home=home, out=home / "outputs", run_id="two")
    monkeypatch.setenv("GPURUNBOOK_RUN_DIR", str(two))
    assert workspace.locate("book") == (two, home)
    monkeypatch.chdir(one)
    assert workspace.locate("book") == (one, home)
    assert workspace.locate("book", "one") == (one, home)
    with pytest.raises(ParameterError, match="another run than the one of this folder, one"):
        workspace.locate("book", "two")
    with pytest.raises(ParameterError, match="of book, not of other"):
        workspace.locate("other")


def test_a_kernel_without_a_run_makes_one_without_a_copy(home: Path) -> None:
    run_dir, found = workspace.locate("book")
    assert found == home
    assert run_dir.parent == home / "outputs"
    assert [p.name for p in run_dir.iterdir()] == ["run.json"]
    assert workspace.locate("book", run_dir.name) == (run_dir, home)
    with pytest.raises(InputError, match="no run folder"):
        workspace.locate("book", "unknown-run")


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"run": 1, "runbook": "b", "home": "h"}', b"\xff"])
def test_a_record_that_is_none_is_refused(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "run.json").write_bytes(raw)
    with pytest.raises(InputError):
        workspace.record(tmp_path)


def test_a_run_is_named_by_its_folder_or_its_id(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = workspace.new_run("book", home=home, out=home / "outputs", run_id="r1")
    monkeypatch.chdir(home)
    assert workspace.located(Path("outputs/r1")).resolve() == run_dir
    assert workspace.located(Path("r1")) == run_dir
    assert workspace.located(Path("r1"), home / "outputs") == run_dir
    for absent in ("r2", "outputs/r2"):
        with pytest.raises(InputError, match="no run of this id"):
            workspace.located(Path(absent))


def test_what_is_given_later_is_kept_beside_what_was_given_before(home: Path) -> None:
    run_dir = workspace.new_run("book", home=home, out=home / "outputs", values={"cluster": "a", "reason": "r"})
    workspace.give(run_dir, {"cluster": "b"})
    assert workspace.given(run_dir) == {"cluster": "b", "reason": "r"}
    before = (run_dir / "run.json").read_bytes()
    workspace.give(run_dir, {"cluster": "b"})
    assert (run_dir / "run.json").read_bytes() == before
