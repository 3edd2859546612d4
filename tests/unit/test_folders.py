"""Folders of the user's as a need: every file is seen or is a problem, and what was seen is copied and told.

Covered: files below, hidden ones, links, pipes, folders that cannot be entered, names that are no UTF-8, both limits,
copies under `inputs/`. Not covered: what the files mean (test_gate.py).
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpurunbook.errors import InputError
from gpurunbook.journal import digest
from gpurunbook.plan import Folder, Problem
from gpurunbook.runbook.observe import Observer
from gpurunbook.sources import files


def made(top: Path, *names: str) -> Path:
    for name in names:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(name)
    return top


def test_every_file_below_is_seen_by_its_path(tmp_path: Path) -> None:
    made(tmp_path / "e", "b.json", "a/x.json", "a/b/.trivyignore.yaml", ".hidden/y")
    assert dict(files.folder(str(tmp_path / "e"), 10, 1000)) == {
        name: name.encode() for name in ("b.json", "a/x.json", "a/b/.trivyignore.yaml", ".hidden/y")
    }


def test_what_is_no_regular_file_is_a_problem_and_is_not_followed(tmp_path: Path) -> None:
    top = made(tmp_path / "e", "a/x.json")
    (top / "file").symlink_to(top / "a" / "x.json")
    (top / "folder").symlink_to(tmp_path)
    (top / "broken").symlink_to(tmp_path / "nothing")
    os.mkfifo(top / "pipe")
    seen = dict(files.folder(str(top), 10, 1000))
    assert seen.pop("a/x.json") == b"a/x.json"
    link, pipe = Problem("unreadable", "a symbolic link"), Problem("unreadable", "not a regular file")
    assert seen == {"file": link, "folder": link, "broken": link, "pipe": pipe}


def test_a_name_that_is_no_utf_8_can_stand_in_json(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9.json")).write_text("{}")
    ((name, _),) = files.folder(str(tmp_path), 10, 1000)
    assert name == "caf\\xe9.json"


def test_a_folder_that_cannot_be_entered_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(21):  # a path that is too long is refused to root as well
        Path("d" * 200).mkdir()
        monkeypatch.chdir("d" * 200)
    Path("x").touch()
    seen = dict(files.folder(str(tmp_path), 10, 1000))
    monkeypatch.chdir(tmp_path)
    shutil.rmtree("d" * 200)
    assert [type(found) for found in seen.values()] == [Problem]


@pytest.mark.parametrize(("count", "size", "says"), [(1, 1000, "more than 1 files"), (10, 2, "more than 2 bytes")])
def test_a_folder_beyond_its_limits_is_refused(tmp_path: Path, count: int, size: int, says: str) -> None:
    made(tmp_path, "a", "b", "c")
    with pytest.raises(InputError, match=says):
        list(files.folder(str(tmp_path), count, size))
    assert len(list(files.folder(str(tmp_path), 3, 3))) == 3


@pytest.mark.parametrize("path", ["none", "file", "a\0b"])
def test_what_is_no_folder_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is not a folder"):
        list(files.folder(str(tmp_path / path), 10, 1000))


def test_what_was_seen_is_copied_and_told(tmp_path: Path) -> None:
    made(tmp_path / "home" / "evidence", "a/x.json", "y.json")
    (tmp_path / "home" / "evidence" / "link").symlink_to(tmp_path)
    look = Observer(tmp_path / "run", tmp_path / "home", lambda: pytest.fail("no"), lambda: datetime.now(UTC), {})
    seen = look({"evidence": Folder("evidence"), "none": Folder("none"), "small": Folder("evidence", limit=1)})
    assert isinstance(seen["evidence"].value.pop("link"), Problem)
    assert seen["evidence"].value == {"a/x.json": b"a/x.json", "y.json": b"y.json"}
    assert [seen[name].problem is not None for name in ("none", "small")] == [True, True]
    assert set(look.inputs.values()) == {digest(b"a/x.json"), digest(b"y.json")}
    for name, wanted in look.inputs.items():
        assert name.startswith("inputs/")
        assert digest((tmp_path / "run" / name).read_bytes()) == wanted


def test_of_a_file_that_may_not_be_kept_only_its_digest_is(tmp_path: Path) -> None:
    home = made(tmp_path, "given/a.yaml", "given/b.yaml")
    look = Observer(tmp_path / "run", home, lambda: pytest.fail("no"), lambda: datetime.now(UTC), {})
    seen = look({"given": Folder("given", withhold=lambda name, data: "why" if name == "a.yaml" else "")})
    assert set(seen["given"].value) == {"a.yaml", "b.yaml"}, "it is judged all the same"
    kept, withheld = sorted(look.inputs)
    assert kept.endswith("/b.yaml")
    assert withheld == kept.replace("inputs/", "inputs/withheld/").replace("b.yaml", "a.yaml")
    told = (tmp_path / "run" / withheld).read_bytes()
    data = b"given/a.yaml"
    assert json.loads(told) == {"bytes": len(data), "sha256": digest(data), "withheld": "why"}
    assert look.inputs[withheld] == digest(told)
    assert not [path for path in (tmp_path / "run").rglob("*") if path.is_file() and path.read_bytes() == data]


NAMES = ("x", "x.withheld", "x.withheld/y", "x.withheld.withheld", "withheld", "withheld/x", "inputs/withheld/x")
BOTH = [
    (one, other)
    for one, other in itertools.permutations(NAMES, 2)
    if not f"{one}/".startswith(f"{other}/") and not f"{other}/".startswith(f"{one}/")
]


@pytest.mark.parametrize(("withheld", "other"), BOTH)
@pytest.mark.parametrize("folder", ["given", "withheld", "given.withheld"])
def test_no_name_of_a_file_leads_to_the_note_of_another(tmp_path: Path, withheld: str, other: str, folder: str) -> None:
    home = made(tmp_path, f"{folder}/{withheld}", f"{folder}/{other}")
    look = Observer(tmp_path / "run", home, lambda: pytest.fail("no"), lambda: datetime.now(UTC), {})
    look({"given": Folder(folder, withhold=lambda name, data: "why" if name == withheld else "")})
    written = {name: (tmp_path / "run" / name).read_bytes() for name in look.inputs}
    assert {name: digest(raw) for name, raw in written.items()} == look.inputs
    (copy,) = [raw for name, raw in written.items() if not name.startswith("inputs/withheld/")]
    assert copy == f"{folder}/{other}".encode()
    (note,) = [json.loads(raw) for name, raw in written.items() if name.startswith("inputs/withheld/")]
    assert note["sha256"] == digest(f"{folder}/{withheld}".encode())


def test_another_content_of_the_same_folder_is_kept_beside_it(tmp_path: Path) -> None:
    home = made(tmp_path, "evidence/x")
    look = Observer(tmp_path / "run", home, lambda: pytest.fail("no"), lambda: datetime.now(UTC), {})
    look({"evidence": Folder("evidence")})
    (home / "evidence" / "x").write_text("other")
    look({"evidence": Folder("evidence")})
    assert len(look.inputs) == 2
