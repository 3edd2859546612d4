"""Having needs fetched: files copied and counted, recorded files proven, and every failure a problem.

Covered: documents (relative, absolute, too large, missing, unreadable, a disk that takes no copy), recorded files
(altered, missing, never recorded), the clock, needs of a cluster. Not covered: the cluster itself (tests/cluster).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpurunbook.errors import Denied
from gpurunbook.journal import digest
from gpurunbook.plan import Document, Need, Now, Object, Observed, Pages, Recorded
from gpurunbook.runbook.observe import Observer

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Source:
    """A cluster that gives what it is asked."""

    def observe(self, need: Need) -> Observed:
        return Observed(need, "seen")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "home"


def observer(home: Path, recorded: Any = None, cluster: Any = Source) -> Observer:
    return Observer(home.parent / "run", home, cluster, lambda: NOON, recorded or {})


def problem(seen: Observed) -> str:
    assert seen.value is None
    assert seen.problem is not None
    return f"{seen.problem.code}: {seen.problem.message}"


def test_each_need_goes_to_its_source(home: Path) -> None:
    (home / "pods.json").write_bytes(b"{}")
    seen = observer(home)({"now": Now(), "object": Object("/a"), "pages": Pages("/b"), "file": Document("pods.json")})
    assert {name: o.value for name, o in seen.items()} == {
        "now": NOON,
        "object": "seen",
        "pages": "seen",
        "file": b"{}",
    }


def test_a_document_is_copied_under_its_digest_and_told(home: Path) -> None:
    (home / "pods.json").write_bytes(b"of home")
    (Path.cwd() / "pods.json").write_bytes(b"of here")
    look = observer(home)
    seen = look({"near": Document("pods.json"), "far": Document(str(home / "pods.json"))})
    assert (seen["near"].value, seen["far"].value) == (b"of here", b"of home")  # the working directory comes first
    assert set(look.inputs.values()) == {digest(b"of here"), digest(b"of home")}
    for name, wanted in look.inputs.items():
        assert digest((home.parent / "run" / name).read_bytes()) == wanted
        assert name.startswith("inputs/")


def test_two_documents_of_one_name_do_not_overwrite_each_other(home: Path) -> None:
    (home / "a").mkdir()
    (home / "a" / "x.json").write_bytes(b"1")
    (home / "x.json").write_bytes(b"2")
    look = observer(home)
    look({"a": Document("a/x.json"), "b": Document("x.json")})
    assert len(look.inputs) == 2


def test_a_document_that_cannot_be_read_is_a_problem_with_its_reason(home: Path) -> None:
    (home / "big").write_bytes(b"x" * 11)
    (home / "folder").mkdir()
    look = observer(home)
    seen = look({"big": Document("big", limit=10), "none": Document("none"), "folder": Document("folder")})
    assert problem(seen["big"]) == "unreadable: cannot be read: big is larger than 10 bytes"
    assert problem(seen["none"]) == "unreadable: cannot be read: no file none"
    assert problem(seen["folder"]) == "unreadable: cannot be read: no file folder"
    assert look.inputs == {}
    (home / "big").write_bytes(b"x" * 10)
    assert look({"big": Document("big", limit=10)})["big"].value == b"x" * 10


def test_a_document_that_cannot_be_kept_is_not_judged(home: Path) -> None:
    (home / "pods.json").write_bytes(b"{}")
    (home.parent / "run").mkdir()
    (home.parent / "run" / "inputs").write_text("in the way")
    look = observer(home)
    assert problem(look({"file": Document("pods.json")})["file"]).startswith("not-kept: ")
    assert look.inputs == {}


def test_a_recorded_file_counts_only_as_it_was_recorded(home: Path) -> None:
    after = home.parent / "run" / "after"
    after.mkdir(parents=True)
    (after / "audit.json").write_bytes(b"judged")
    recorded = {"audit": {"after/audit.json": digest(b"judged"), "after/gone.json": digest(b"")}}
    look = observer(home, recorded)
    need = Recorded("audit", "audit.json")
    assert look({"it": need})["it"].value == b"judged"
    (after / "audit.json").write_bytes(b"altered")
    assert "is not what step audit recorded" in problem(look({"it": need})["it"])
    assert "recorded no other.json" in problem(look({"it": Recorded("audit", "other.json")})["it"])
    assert "recorded no audit.json" in problem(look({"it": Recorded("elsewhere", "audit.json")})["it"])
    assert problem(look({"it": Recorded("audit", "gone.json")})["it"]).startswith("unreadable")


def test_a_cluster_that_cannot_be_reached_at_all_is_a_problem(home: Path) -> None:
    def cluster() -> Any:
        raise Denied("HTTP 403: no", subject="GET /a")

    assert problem(observer(home, cluster=cluster)({"it": Object("/a")})["it"]) == "forbidden: GET /a: HTTP 403: no"


def test_a_need_without_a_source_is_a_defect_and_no_answer(home: Path) -> None:
    @dataclass(frozen=True)
    class Odd(Need):
        pass

    with pytest.raises(TypeError, match="no source for Odd"):
        observer(home)({"it": Odd()})
