"""The journal: its chain, its lock, and what its records add up to.

Covered: appending and reading back, every way to break a line, a line cut off by a crash, a full disk, two writers,
and replay. Left out: power loss between write and fsync, which no test can make.
"""

import json
import os
import resource
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpurunbook import journal
from gpurunbook.errors import JournalError, Raced
from gpurunbook.findings import Verdict
from gpurunbook.journal import Journal, parse, read, replay
from tests.eventually import eventually

NAN = b'{"data":{"x":NaN},"event":"e","hash":"h","prev":"p","seq":0,"time":"t"}'
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def opened(folder):
    return Journal.open(folder / "journal.jsonl", lambda: NOON)


def filled(folder, count=3):
    made = opened(folder)
    for number in range(count):
        made.append("step", {"step": f"s{number}"})
    return made


def test_an_empty_journal_has_the_zero_head(tmp_path):
    assert opened(tmp_path).head == journal.ZERO
    assert not (tmp_path / "journal.jsonl").exists()


def test_records_are_chained_and_read_back(tmp_path):
    made = filled(tmp_path)
    found = read(tmp_path / "journal.jsonl")
    assert [r["seq"] for r in found] == [0, 1, 2]
    assert [r["prev"] for r in found] == [journal.ZERO, found[0]["hash"], found[1]["hash"]]
    assert made.head == found[2]["hash"]
    assert found[0]["time"] == "2026-01-31T12:00:00.000000Z"


@pytest.mark.parametrize("line", [0, 1, 2])
@pytest.mark.parametrize(
    ("old", "new"), [(b'"s', b'"t'), (b'"seq":', b'"seq": '), (b"12:00", b"12:01"), (b'"prev"', b'"Prev"')]
)
def test_a_changed_line_is_named(tmp_path, line, old, new):
    filled(tmp_path)
    raw = (tmp_path / "journal.jsonl").read_bytes().split(b"\n")
    raw[line] = raw[line].replace(old, new, 1)
    with pytest.raises(JournalError, match=f"line {line + 1}"):
        parse(b"\n".join(raw))


def test_a_removed_line_and_a_doubled_line_are_named(tmp_path):
    filled(tmp_path)
    raw = (tmp_path / "journal.jsonl").read_bytes().splitlines(keepends=True)
    with pytest.raises(JournalError, match="line 2"):
        parse(raw[0] + raw[2])
    with pytest.raises(JournalError, match="line 2"):
        parse(raw[0] + raw[0] + raw[1])


def test_a_chain_cut_at_its_end_is_whole_and_has_another_head(tmp_path):
    made = filled(tmp_path)
    raw = (tmp_path / "journal.jsonl").read_bytes().splitlines(keepends=True)
    assert parse(b"".join(raw[:2]))[-1]["hash"] != made.head


@pytest.mark.parametrize(
    "bad", [b"[]", b"1", b"{}", b'{"a":1,"a":2}', b"\xff\xfe", b"[" * 5000, b'{"seq":NaN}', b"", NAN]
)
def test_what_is_no_record_is_refused(bad):
    with pytest.raises(JournalError, match="line 1"):
        parse(bad + b"\n")


def test_a_last_line_cut_off_by_a_crash_is_refused_by_read_and_dropped_by_open(tmp_path):
    filled(tmp_path)
    path = tmp_path / "journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"seq":3,"ti')
    with pytest.raises(JournalError, match="line 4"):
        read(path)
    again = opened(tmp_path)
    assert len(again.records) == 3
    assert path.read_bytes() == whole
    again.append("step", {"step": "s3"})
    assert len(read(path)) == 4


def test_a_journal_that_is_cut_at_any_byte_is_its_whole_lines_or_cut(tmp_path):
    filled(tmp_path)
    path = tmp_path / "journal.jsonl"
    raw = path.read_bytes()
    records = read(path)
    for end in range(len(raw) + 1):
        path.write_bytes(raw[:end])
        whole = raw[:end].count(b"\n")
        assert read(path, cut=True) == records[:whole]
        assert path.read_bytes() == raw[:end], "reading writes nothing"
        if raw[:end].endswith(b"\n") or not end:
            assert read(path) == records[:whole]
        else:
            with pytest.raises(JournalError) as refused:
                read(path)
            assert refused.value.code == "journal-cut"
        again = opened(tmp_path)
        assert again.records == records[:whole]
        again.append("step", {"step": "later"})
        assert [record["seq"] for record in read(path)] == list(range(whole + 1))


@pytest.mark.parametrize("behind", ["whole", "another", "nothing", "/dev/null"])
def test_a_link_in_the_place_of_a_journal_is_neither_read_nor_extended(tmp_path, behind):
    made = filled(tmp_path)
    path = tmp_path / "journal.jsonl"
    path.rename(tmp_path / "whole")
    (tmp_path / "another").mkdir()
    filled(tmp_path / "another").path.rename(tmp_path / "another.jsonl")
    kept = {file: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()}
    path.symlink_to("another.jsonl" if behind == "another" else behind)
    for touched in (lambda: read(path), lambda: opened(tmp_path), made.refresh, lambda: made.append("step", {})):
        with pytest.raises(JournalError, match="is a symbolic link"):
            touched()
    assert {file: file.read_bytes() for file in tmp_path.iterdir() if file.is_file() and file != path} == kept


def test_a_reader_in_the_middle_of_an_append_waits_for_its_end(tmp_path):
    filled(tmp_path)
    path = tmp_path / "journal.jsonl"
    whole = path.read_bytes()
    half = whole.rindex(b"\n", 0, -1) + 20
    path.write_bytes(whole[:half])
    with ThreadPoolExecutor() as thread:
        with journal.locked(path) as descriptor:
            reader = thread.submit(read, path)
            eventually(lambda: reader.done() or awaited(path))
            os.pwrite(descriptor, whole[half:], half)
        assert len(reader.result()) == 3


def awaited(path):
    """Whether somebody waits for the lock of the file."""
    waiting = [line.split() for line in Path("/proc/locks").read_text().splitlines() if "->" in line]
    return f":{path.stat().st_ino}" in {line[6][line[6].rindex(":") :] for line in waiting}


def test_a_second_writer_is_noticed_before_anything_is_written(tmp_path):
    first, second = filled(tmp_path), opened(tmp_path)
    first.append("step", {"step": "mine"})
    with pytest.raises(Raced, match="another process"):
        second.append("step", {"step": "theirs"})
    assert [r["data"]["step"] for r in read(tmp_path / "journal.jsonl")] == ["s0", "s1", "s2", "mine"]
    second.append("step", {"step": "after reading again"})
    assert len(read(tmp_path / "journal.jsonl")) == 5


def test_append_refuses_a_head_that_is_not_the_one_judged_by(tmp_path):
    made = filled(tmp_path)
    with pytest.raises(Raced):
        made.append("close", {}, expect=journal.ZERO)


def test_many_processes_append_one_whole_chain(tmp_path):
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from gpurunbook.errors import Raced\n"
        "from gpurunbook.journal import Journal\n"
        "j = Journal.open(Path(sys.argv[1]))\n"
        "for n in range(20):\n"
        "    while True:\n"
        "        try:\n"
        "            j.append('step', {'step': sys.argv[2]})\n"
        "            break\n"
        "        except Raced:\n"
        "            pass\n"
    )
    path = tmp_path / "journal.jsonl"
    started = [subprocess.Popen([sys.executable, "-c", code, str(path), str(n)]) for n in range(4)]
    assert [process.wait(timeout=300) for process in started] == [0] * 4
    assert len(read(path)) == 80


def test_a_full_disk_leaves_the_journal_as_it_was(tmp_path):
    made = filled(tmp_path)
    path = tmp_path / "journal.jsonl"
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 50, hard))
    try:
        with pytest.raises(JournalError, match="cannot be extended"):
            made.append("step", {"step": "x" * 500})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, old)
    assert path.read_bytes() == before
    made.append("step", {"step": "room again"})
    assert len(read(path)) == 4


def test_an_unreadable_journal_is_an_error_not_an_empty_one(tmp_path):
    (tmp_path / "journal.jsonl").mkdir()
    with pytest.raises(JournalError, match="cannot be read"):
        read(tmp_path / "journal.jsonl")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object()])
def test_what_json_cannot_hold_is_refused_before_writing(tmp_path, value):
    made = filled(tmp_path)
    with pytest.raises((ValueError, TypeError)):
        made.append("judged", {"value": value})
    assert len(read(tmp_path / "journal.jsonl")) == 3


def test_hostile_text_is_kept_and_read_back(tmp_path):
    text = "\ud800\x1b[31m<script>\u202e\n"
    opened(tmp_path).append("judged", {"text": text})
    assert read(tmp_path / "journal.jsonl")[0]["data"]["text"] == text
    assert (tmp_path / "journal.jsonl").read_bytes().isascii()


TIME = "2026-08-22T12:00:00.000000Z"


def records(*events):
    return [{"seq": n, "time": TIME, "event": event, "data": data} for n, (event, data) in enumerate(events)]


START = ("start", {"run": "r1", "runbook": "b"})


@pytest.mark.parametrize(
    ("events", "verdict"),
    [
        ([], Verdict.UNKNOWN),
        ([START], Verdict.UNKNOWN),
        ([START, ("close", {"verdict": "pass"})], Verdict.PASS),
        ([START, ("close", {"verdict": "rejected"}), ("close", {"verdict": "pass"})], Verdict.PASS),
        ([START, ("close", {"verdict": "pass"}), ("reopen", {})], Verdict.UNKNOWN),
        ([START, ("close", {"verdict": "pass"}), ("died", {"reason": "x"})], Verdict.UNKNOWN),
        ([START, ("died", {"reason": "x"}), ("reopen", {}), ("close", {"verdict": "planned"})], Verdict.PLANNED),
    ],
)
def test_the_last_closing_record_that_was_not_taken_back_is_the_verdict(events, verdict):
    assert replay(records(*events)).verdict is verdict


def test_a_journal_whose_folder_is_gone_or_that_is_no_file_is_told(tmp_path):
    opened = Journal.open(tmp_path / "run" / "journal.jsonl")
    with pytest.raises(JournalError, match="cannot be opened for writing: No such file"):
        opened.append("start", {})
    (tmp_path / "journal.jsonl").mkdir()
    with pytest.raises(JournalError, match="cannot be read"):
        Journal.open(tmp_path / "journal.jsonl")


@pytest.mark.parametrize("left", [0, 1])
def test_a_journal_that_lost_what_this_process_knows_is_not_gone_on_with(tmp_path, left):
    path = tmp_path / "journal.jsonl"
    opened = Journal.open(path)
    for event in ("start", "step"):
        opened.append(event, {})
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:left]))
    for go_on in (opened.refresh, lambda: opened.append("judged", {})):
        with pytest.raises(JournalError, match="had 2 lines that are not there any more") as raised:
            go_on()
        assert (type(raised.value), raised.value.code) == (JournalError, "journal-broken")
    assert len(read(path)) == left


def test_another_journal_in_its_place_is_not_gone_on_with(tmp_path):
    path, other = tmp_path / "journal.jsonl", Journal.open(tmp_path / "other.jsonl")
    opened = Journal.open(path)
    opened.append("start", {"run": "r1"})
    for event in ("start", "step"):
        other.append(event, {"run": "r2"})
    path.write_bytes((tmp_path / "other.jsonl").read_bytes())
    with pytest.raises(JournalError, match="not there any more"):
        opened.refresh()


def test_the_last_judgement_of_a_step_counts():
    judged = [("judged", {"step": "a", "passed": True}), ("judged", {"step": "a", "passed": False})]
    assert not replay(records(START, *judged)).passed("a")
    assert replay(records(START, *reversed(judged))).passed("a")
    assert not replay(records(START)).passed("a")


def test_a_run_has_changed_something_from_its_first_intent_on():
    assert not replay(records(START)).changed
    assert replay(records(START, ("intent", {}))).changed


def test_cluster_and_operator_are_told_with_the_start():
    state = replay(records(START, ("cluster", {"cluster": {"uid": "u"}, "operator": {"name": "o"}})))
    assert (state.start["run"], state.start["cluster"]["uid"]) == ("r1", "u")


def test_canonical_json_is_sorted_and_without_blanks():
    assert (
        journal.canonical({"b": [1, "ü"], "a": None})
        == json.dumps({"a": None, "b": [1, "ü"]}, separators=(",", ":")).encode()
    )
