"""What becomes of a command whose standard streams are full, closed or left.

Covered: output that cannot be written, that is closed, whose reader leaves in the middle, and a standard error that
is full or closed; each with Python's own buffering and without (PYTHONUNBUFFERED, common in containers).
Not covered: the words themselves (the tests of each command).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DIGEST = "sha256:" + "a" * 64
POD = (
    '{"metadata":{"namespace":"n","name":"p%d"},"spec":{"containers":[{"name":"c","image":"r.example/a:1"}]},'
    f'"status":{{"containerStatuses":[{{"name":"c","imageID":"r.example/a@{DIGEST}"}}]}}}}'
)
COMMANDS = [
    ["--help"],
    ["--version"],
    ["run", "--help"],
    ["audit", "--pod-json", "pods.json", "-o", "table"],
    ["audit", "--pod-json", "pods.json", "-o", "json"],
    ["audit", "--pod-json", "pods.json", "-o", "csv"],
    ["lint", str(ROOT / "runbooks" / "provenance_audit.ipynb")],
]


@pytest.fixture(params=["", "1"], ids=["buffered", "unbuffered"])
def environment(request: pytest.FixtureRequest) -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": request.param}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    pods = ",".join(POD % number for number in range(3000))
    (tmp_path / "pods.json").write_text(f'{{"kind":"PodList","items":[{pods}]}}')
    return tmp_path


def command(words: list[str], closed: int | None = None) -> list[str]:
    shut = f"import os; os.close({closed}); os.execv(sys.executable, [sys.executable, '-c', call, *sys.argv[1:]])"
    call = "from gpurunbook.cli import main; main()"
    return [sys.executable, "-c", call if closed is None else f"import sys; call = {call!r}; {shut}", *words]


def ran(given: list[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(given, timeout=60, check=False, **options)
    assert b"Traceback" not in (done.stderr or b"")
    return done


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_an_answer_that_cannot_be_written_is_told_and_ends_with_2(
    words: list[str], here: Path, environment: dict[str, str]
) -> None:
    with open("/dev/full", "wb") as full:
        done = ran(command(words), stdout=full, stderr=subprocess.PIPE, cwd=here, env=environment)
    assert done.returncode == 2
    assert b"unwritten: standard output" in done.stderr


def test_a_closed_output_is_told_and_ends_with_2(here: Path, environment: dict[str, str]) -> None:
    done = ran(command(COMMANDS[4], closed=1), stderr=subprocess.PIPE, cwd=here, env=environment)
    assert done.returncode == 2
    assert b"unwritten: standard output: it is closed" in done.stderr


@pytest.mark.parametrize("output", ["table", "json", "csv"])
def test_a_reader_that_leaves_in_the_middle_has_no_whole_answer(
    output: str, here: Path, environment: dict[str, str]
) -> None:
    words = ["audit", "--pod-json", "pods.json", "-o", output]
    writer = subprocess.Popen(command(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=here, env=environment)
    assert writer.stdout is not None
    assert writer.stdout.read(10)
    writer.stdout.close()
    assert writer.stderr is not None
    assert b"Traceback" not in writer.stderr.read()
    writer.stderr.close()
    assert writer.wait(timeout=60) == 2


@pytest.mark.parametrize("output", ["table", "json", "csv"])
def test_an_answer_stands_without_its_words_on_standard_error(
    output: str, here: Path, environment: dict[str, str]
) -> None:
    words = ["audit", "--pod-json", "pods.json", "-o", output]
    wanted = ran(command(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=here, env=environment)
    with open("/dev/full", "wb") as full:
        done = ran(command(words), stdout=subprocess.PIPE, stderr=full, cwd=here, env=environment)
    closed = ran(command(words, closed=2), stdout=subprocess.PIPE, cwd=here, env=environment)
    for other in (done, closed):
        assert (other.returncode, other.stdout) == (0, wanted.stdout)


def test_full_pipes_that_may_not_block_are_told_or_left_out(here: Path) -> None:
    ends = {}
    for descriptor in (1, 2):
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writing, b"x" * 65536)
        words = ["audit", "--pod-json", "pods.json", "-o", "json"]
        streams = {1: {"stdout": writing, "stderr": subprocess.PIPE}, 2: {"stdout": subprocess.PIPE, "stderr": writing}}
        ends[descriptor] = ran(command(words), cwd=here, **streams[descriptor])
        os.close(reading)
        os.close(writing)
    assert ends[1].returncode == 2
    assert b"unwritten: standard output" in ends[1].stderr
    assert ends[2].returncode == 0
    assert ends[2].stdout.endswith(b"}\n")


def test_a_crash_of_ours_ends_with_2_also_where_it_cannot_be_told(here: Path) -> None:
    crash = "import gpurunbook.cli as c; c._ran = lambda _: 1 / 0; c.main()"
    with open("/dev/full", "wb") as full:
        assert ran([sys.executable, "-c", crash], stdout=full, stderr=full, cwd=here).returncode == 2


def test_what_the_file_system_refuses_is_told_without_a_traceback(here: Path) -> None:
    (here / "file").write_text("")
    home = {**os.environ, "GPURUNBOOK_HOME": str(ROOT)}
    refused = "import errno, gpurunbook.cli as c\ndef no(**_): raise OSError(errno.EROFS, 'Read-only', '/x')\n"
    for given, says in (
        (command(["run", "provenance_audit", "--out", "file/x"]), b"Not a directory"),
        (command(["new", "provenance_audit", "--out", "file/x"]), b"Not a directory"),
        (
            [sys.executable, "-c", f"{refused}c.group.main = no; c.main()"],
            b"not-kept: /x: the file system refused: Read",
        ),
    ):
        done = ran(given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=here, env=home)
        assert (done.returncode, done.stdout) == (2, b"")
        assert says in done.stderr


def test_closed_input_is_an_empty_list_and_no_crash(here: Path) -> None:
    words = ["audit", "--pod-json", "-", "-o", "json"]
    done = ran(command(words, closed=0), stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=here)
    assert done.returncode == 2
    assert b'"not-json"' in done.stdout
