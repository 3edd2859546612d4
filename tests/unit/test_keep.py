"""Files of a run folder: whole or not at all; and the lock that one process holds.

Covered: a full disk, an unwritable folder, a crash while writing, modes, the lock from another process and again from
this one. Not covered: power loss between rename and fsync of the folder.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpurunbook.errors import RunbookError, RunInUse
from gpurunbook.folder import keep


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_file_is_written_with_its_folder_and_mode(tmp_path: Path) -> None:
    path = tmp_path / "after" / "deep" / "a.json"
    keep.write(path, b"1", 0o600)
    assert path.read_bytes() == b"1"
    assert path.stat().st_mode & 0o777 == 0o600
    keep.write(path, b"2")
    assert path.read_bytes() == b"2"
    assert names(path.parent) == ["a.json"]


def test_a_full_disk_leaves_the_old_content_and_no_part(tmp_path: Path) -> None:
    path = tmp_path / "a"
    keep.write(path, b"old")
    code = (
        "import sys, resource, signal; from pathlib import Path; from gpurunbook.folder import keep\n"
        "from gpurunbook.errors import RunbookError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try: keep.kept(Path(sys.argv[1]), b'x' * 100_000)\n"
        "except RunbookError as wrong: print(wrong.code, wrong)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"not-kept {path}: cannot be kept: File too large. Make room")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 1000  # of this process: untouched


def test_a_device_or_pipe_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "null"
    os.mkfifo(pipe)
    link.symlink_to(os.devnull)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE)
    keep.write(pipe, b"answer")
    assert reader.communicate(timeout=60)[0] == b"answer"
    keep.write(link, b"answer")
    assert pipe.is_fifo()
    assert link.is_symlink()
    (tmp_path / "full").symlink_to("/dev/full")
    with pytest.raises(RunbookError, match="No space left"):
        keep.kept(tmp_path / "full", b"answer")
    assert names(tmp_path) == ["full", "null", "pipe"]


def test_a_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "after").write_text("a file")
    with pytest.raises(RunbookError, match="cannot be kept") as raised:
        keep.kept(tmp_path / "after" / "a.json", b"1")
    assert raised.value.code == "not-kept"


def test_a_process_that_is_killed_while_writing_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "a"
    keep.write(path, b"old")
    code = (
        "import sys, os, signal; from pathlib import Path; from gpurunbook.folder import keep\n"
        "os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        "keep.write(Path(sys.argv[1]), b'new')\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"


def other(path: Path) -> subprocess.Popen[str]:
    """Another process that holds the lock until its input ends."""
    code = (
        "import sys, pathlib; from gpurunbook.folder import keep; keep.hold(pathlib.Path(sys.argv[1])); "
        "print('held', flush=True); sys.stdin.read()"
    )
    made = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert made.stdout is not None
    assert made.stdout.readline() == "held\n"
    return made


def test_a_lock_that_another_process_has_names_it_and_is_free_when_it_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with other(path) as holder:
        with pytest.raises(RunInUse, match=f"process {holder.pid} on ") as raised:
            keep.hold(path)
        assert raised.value.code == "run-in-use"
        holder.kill()
    keep.hold(path)
    assert json.loads(path.read_bytes())["pid"] == os.getpid()
    keep.release(path)


def test_a_lock_on_a_full_disk_holds_without_a_name_in_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = (
        "import sys, resource, signal; from pathlib import Path; from gpurunbook.folder import keep\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "keep.hold(Path(sys.argv[1])); keep.hold(Path(sys.argv[1]))\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunInUse, match="unknown process"):
            keep.hold(path)


def test_a_place_that_takes_no_lock_is_told(tmp_path: Path) -> None:
    for path in (tmp_path / "gone" / "lock", tmp_path):
        with pytest.raises(RunbookError, match="cannot be locked") as raised:
            keep.hold(path)
        assert raised.value.code == "not-kept"


def test_one_process_may_take_its_own_lock_again_by_any_name_of_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    keep.hold(path)
    keep.hold(tmp_path / "." / "lock")
    (tmp_path / "link").symlink_to(tmp_path)
    keep.hold(tmp_path / "link" / "lock")
    keep.release(path)
    with other(path):
        pass
    keep.release(path)  # not held: nothing happens


def test_a_lock_whose_holder_cannot_be_read_is_held_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with other(path):
        path.write_text("not JSON")
        with pytest.raises(RunInUse, match="unknown process"):
            keep.hold(path)
