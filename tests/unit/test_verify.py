"""Verifying a bundle.

Covered: the strengths; one digit changed in every kind of place, each with and without the manifest made to agree;
files and cells removed and added; a forger who recomputes more and more; hostile folders and manifests; the command.
Not covered: cosign (tests/tools/test_cosigned_real.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import evidence_run as made
import pytest
from click.testing import CliRunner
from evidence_run import RUN, RUNBOOK, Run
from test_signing import make_key

from gpurunbook.cli import evidence, main
from gpurunbook.errors import InputError, RunbookError
from gpurunbook.evidence import bundle, index
from gpurunbook.evidence.seal import manifest_digest, seal
from gpurunbook.evidence.verify import Answer, verify
from gpurunbook.journal import ZERO, Journal, canonical, digest

NOTEBOOK = f"{RUNBOOK}.ipynb"


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A sealed and signed run; tests work on copies."""
    run = made.passed(tmp_path_factory.mktemp("sealed"))
    key = make_key(run.home, "alice")
    (run.home / "signers").write_text(f"alice@example.com {(run.home / 'alice.pub').read_text()}")
    seal(run.folder, sign_key=key)
    return run


@pytest.fixture
def folder(sealed: Run, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sealed.folder, tmp_path / "bundle"))


def named(answer: Answer) -> set[tuple[str, str]]:
    return {(difference.kind, difference.name) for difference in answer.differences}


def swap(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text and len(old) == len(new)
    path.write_text(text.replace(old, new, 1))


def agree(folder: Path, *names: str) -> None:
    """Makes the manifest agree with the files: what a careless forger does."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_bytes())
    for name in names:
        manifest["files"][name] = digest((folder / name).read_bytes())
    path.write_bytes(bundle.dump(manifest))


def rechain(folder: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Changes the journal's records and makes its chain whole again."""
    path = folder / "journal.jsonl"
    records = [json.loads(line) for line in path.read_bytes().splitlines()]
    change(records)
    head = ZERO
    for seq, record in enumerate(records):
        record |= {"seq": seq, "prev": head}
        head = record["hash"] = digest(canonical({k: v for k, v in record.items() if k != "hash"}))
    path.write_bytes(b"".join(canonical(record) + b"\n" for record in records))


# -- strengths -----------------------------------------------------------------------------------------------------


def test_an_untouched_bundle_is_as_strong_as_what_was_asked_and_given(sealed: Run, folder: Path) -> None:
    anchor = manifest_digest(folder)
    signers = sealed.home / "signers"
    assert verify(folder).verdict == "consistent"
    assert verify(folder, manifest_digest=anchor).verdict == "anchored"
    assert verify(folder, manifest_digest=anchor.removeprefix("sha256:").upper()).verdict == "anchored"
    signed = verify(folder, anchor, signers)
    assert (signed.verdict, signed.signer) == ("signed", "alice@example.com")
    assert (signed.run, signed.run_verdict, signed.rehearsal) == (made.RUN, "pass", False)


def test_another_anchor_another_signer_and_no_signature_are_altered(sealed: Run, folder: Path, tmp_path: Path) -> None:
    assert named(verify(folder, "sha256:" + "0" * 64)) == {("anchor", "manifest.json")}
    make_key(tmp_path, "mallory")
    (tmp_path / "signers").write_text(f"mallory@example.com {(tmp_path / 'mallory.pub').read_text()}")
    assert named(verify(folder, signers=tmp_path / "signers")) == {("signature", "manifest.json.sig")}
    (folder / "manifest.json.sig").unlink()
    answer = verify(folder, signers=sealed.home / "signers")
    assert (answer.verdict, named(answer)) == ("altered", {("signature", "manifest.json.sig")})
    assert verify(folder).verdict == "consistent"


def test_a_run_without_a_manifest_is_unsealed(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    assert verify(folder).verdict == "unsealed"


def test_a_missing_file_of_signers_is_named_whatever_lies_in_the_folder(folder: Path, tmp_path: Path) -> None:
    (folder / bundle.SIGNATURE).unlink(missing_ok=True)
    done = CliRunner().invoke(evidence.verify, [str(folder), "--signers", str(tmp_path / "none")])
    assert isinstance(done.exception, InputError)
    assert done.exception.subject == str(tmp_path / "none")


def test_what_cannot_be_asked_is_an_input_error(folder: Path, tmp_path: Path) -> None:
    for ask in ({"cosign_key": tmp_path}, {"manifest_digest": "sha256:12"}, {"signers": tmp_path / "none"}):
        with pytest.raises(InputError):
            verify(folder, **ask)  # type: ignore[arg-type]
    with pytest.raises(InputError):
        verify(tmp_path / "none")


def test_locks_approvals_and_checkpoints_may_come_after_the_seal(folder: Path) -> None:
    for name in ("lock", "driver.lock", "approval.json", "approval.json.sig", "approval.json.sigstore.json"):
        (folder / name).write_text("x")
    (folder / ".ipynb_checkpoints").mkdir()
    (folder / ".ipynb_checkpoints" / NOTEBOOK).write_text("x")
    assert verify(folder).verdict == "consistent"
    (folder / "after" / "lock").write_text("x")
    assert named(verify(folder)) == {("file", "after/lock")}


# -- one digit -----------------------------------------------------------------------------------------------------

DIGITS = {
    "an output cell": (NOTEBOOK, "17 records in 0.25 s", "18 records in 0.25 s", ("cell", "audit")),
    "a source cell": (NOTEBOOK, "tolerate = 3", "tolerate = 4", ("cell", "parameters")),
    "a prose cell": (NOTEBOOK, "Reads pods", "Reads nods", ("cell", "header")),
    "an execution count": (NOTEBOOK, '"execution_count": 3', '"execution_count": 7', ("notebook", NOTEBOOK)),
    "the closing scrap": (NOTEBOOK, '"verdict": "pass"', '"verdict": "Pass"', ("cell", "close")),
    "a journal line": ("journal.jsonl", '"records":17', '"records":18', ("journal", "journal.jsonl line 4")),
    "a parameter in the journal": (
        "journal.jsonl",
        '"tolerate":3',
        '"tolerate":4',
        ("journal", "journal.jsonl line 1"),
    ),
    "a finding": ("findings.json", "580.65.06", "580.65.07", ("finding", "audit: pinned gpu-operator/pod/driver-7")),
    "the verdict": ("verdict.json", '\n "verdict": "pass"', '\n "verdict": "fail"', ("verdict", "verdict")),
    "the exit code": ("verdict.json", '"exit": 0', '"exit": 1', ("verdict", "exit")),
    "a parameter": ("verdict.json", '"tolerate": 3', '"tolerate": 4', ("parameter", "tolerate")),
    "the change id": ("verdict.json", '"change_id": "CHG-4711"', '"change_id": "CHG-4712"', ("verdict", "change_id")),
    "a file that was judged": ("after/audit.json", "580.65.06", "580.65.07", ("file", "after/audit.json")),
    "the page": (f"{RUNBOOK}.html", "17 records", "18 records", ("file", f"{RUNBOOK}.html")),
    "the run record": ("run.json", RUNBOOK, "gpu_audix", ("file", "run.json")),
}


@pytest.mark.parametrize("place", DIGITS)
def test_one_changed_digit_is_named(folder: Path, place: str) -> None:
    name, old, new, wanted = DIGITS[place]
    swap(folder / name, old, new)
    answer = verify(folder)
    assert answer.verdict == "altered"
    assert {wanted, ("file", name)} <= named(answer)


@pytest.mark.parametrize("place", [place for place in DIGITS if place not in {"the run record", "an execution count"}])
def test_one_changed_digit_is_named_even_when_the_manifest_was_made_to_agree(folder: Path, place: str) -> None:
    name, old, new, wanted = DIGITS[place]
    swap(folder / name, old, new)
    agree(folder, name)
    answer = verify(folder)
    assert answer.verdict == "altered"
    assert ("html" if place == "the page" else wanted[0], wanted[1]) in named(answer)


MANIFEST = {
    "the verdict": ('"verdict": "pass"', '"verdict": "fail"', ("verdict", "verdict")),
    "a parameter": ('"tolerate": 3', '"tolerate": 4', ("parameter", "tolerate")),
    "the operator": ("alice@example", "alicf@example", ("manifest", "operator")),
    "the cluster": ("0b6ad2e2", "0b6ad2e3", ("manifest", "cluster")),
    "the end": ("12:00:07", "12:00:08", ("manifest", "end")),
    "the package": ("sha256:abab", "sha256:abac", ("manifest", "package")),
    "rehearsal": ('"rehearsal": false', '"rehearsal":  true', ("manifest", "rehearsal")),
}


@pytest.mark.parametrize("place", MANIFEST)
def test_a_field_of_the_manifest_that_the_journal_does_not_bear_out_is_named(folder: Path, place: str) -> None:
    old, new, wanted = MANIFEST[place]
    path = folder / "manifest.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    answer = verify(folder)
    assert answer.verdict == "altered"
    assert wanted in named(answer)


# -- files and cells -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [NOTEBOOK, f"{RUNBOOK}.html", "journal.jsonl", "verdict.json", "findings.json", "run.json", "after/audit.json"],
)
def test_a_removed_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    answer = verify(folder)
    assert answer.verdict == "altered"
    assert ("file", name) in named(answer)


def test_a_removed_file_is_named_even_when_the_manifest_was_made_to_agree(folder: Path) -> None:
    path = folder / "manifest.json"
    for name in ("findings.json", "after/audit.json"):
        (folder / name).unlink()
        manifest = json.loads(path.read_bytes())
        del manifest["files"][name]
        path.write_bytes(bundle.dump(manifest))
        answer = verify(folder)
        assert answer.verdict == "altered"
        assert any(name in difference.message for difference in answer.differences)


def test_an_added_file_is_named(folder: Path) -> None:
    (folder / "after" / "more.json").write_text("{}")
    assert named(verify(folder)) == {("file", "after/more.json")}


def edit_notebook(folder: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    path = folder / NOTEBOOK
    notebook = json.loads(path.read_bytes())
    change(notebook["cells"])
    path.write_text(json.dumps(notebook, indent=1, sort_keys=True) + "\n")


def test_a_removed_added_and_moved_cell_is_named(folder: Path) -> None:
    edit_notebook(folder, lambda cells: cells.pop(5))
    assert ("cell", "audit") in named(verify(folder))
    edit_notebook(folder, lambda cells: cells.append(made.code("more", "x = 1")))
    assert {("cell", "audit"), ("cell", "more")} <= named(verify(folder))


def test_cells_in_another_order_and_other_metadata_are_told_apart(sealed: Run, folder: Path) -> None:
    edit_notebook(folder, lambda cells: cells.reverse())
    assert "another order" in str(verify(folder).differences)
    notebook = json.loads((sealed.folder / NOTEBOOK).read_bytes())
    notebook["metadata"]["note"] = "x"
    (folder / NOTEBOOK).write_text(json.dumps(notebook, indent=1, sort_keys=True) + "\n")
    answer = verify(folder)
    assert "its metadata is not" in str(answer.differences)
    assert named(answer) == {("file", NOTEBOOK), ("notebook", NOTEBOOK)}


# -- the forger ----------------------------------------------------------------------------------------------------


def soften(records: list[dict[str, Any]]) -> None:
    records[3]["data"]["findings"][1]["status"] = "pass"


def test_a_journal_chained_anew_is_named_by_its_line(folder: Path) -> None:
    rechain(folder, soften)
    answer = verify(folder)
    assert ("journal", "journal.jsonl line 4") in named(answer)
    assert ("finding", "audit: tag-only gpu-operator/pod/<b>dcgm</b>") in named(answer)


def test_a_journal_chained_anew_with_an_agreeing_manifest_is_given_away_by_the_notebook(folder: Path) -> None:
    rechain(folder, soften)
    path = folder / "manifest.json"
    manifest = json.loads(path.read_bytes())
    manifest["journal"] = [json.loads(line)["hash"] for line in (folder / "journal.jsonl").read_bytes().splitlines()]
    path.write_bytes(bundle.dump(manifest))
    agree(folder, "journal.jsonl")
    answer = verify(folder)
    assert answer.verdict == "altered"
    assert ("run", "cell close") in named(answer)


def test_lines_added_to_and_cut_from_the_journal_are_named(folder: Path) -> None:
    path = folder / "journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    assert ("journal", "journal.jsonl line 7") in named(verify(folder))
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    answer = verify(folder)
    assert ("journal", "journal.jsonl") in named(answer)
    assert "has 6 lines, 7 were sealed" in str(answer.differences)
    path.write_bytes(whole)
    rechain(folder, lambda records: records.append({"time": "x", "event": "note", "data": {}}))
    assert "has 8 lines, 7 were sealed" in str(verify(folder).differences)


def test_a_bundle_recomputed_as_a_whole_fails_the_anchor_and_the_signature(sealed: Run, tmp_path: Path) -> None:
    anchor, signers = manifest_digest(sealed.folder), sealed.home / "signers"
    forged = made.begun(tmp_path)
    forged.judge("audit", 3, made.FINDINGS[:1], "pass")
    forged.judge("ready", 4)
    forged.close("close", 5)
    forged.save()
    seal(forged.folder)
    shutil.copy(sealed.folder / "manifest.json.sig", forged.folder)
    assert verify(forged.folder).verdict == "consistent"
    assert named(verify(forged.folder, anchor)) == {("anchor", "manifest.json")}
    assert named(verify(forged.folder, signers=signers)) == {("signature", "manifest.json.sig")}


def test_a_verdict_cannot_be_raised_by_dropping_what_lowered_it(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    run.cell("audit")["source"] = ["pass"]
    run.save()
    seal(run.folder)
    path = run.folder / "manifest.json"
    manifest = json.loads(path.read_bytes())
    manifest |= {"verdict": "pass", "exit": 0, "lowered": [], "anomalies": []}
    path.write_bytes(bundle.dump(manifest))
    told = json.loads((run.folder / "verdict.json").read_bytes())
    (run.folder / "verdict.json").write_text(
        json.dumps({**told, "verdict": "pass", "exit": 0, "lowered": [], "anomalies": []})
    )
    agree(run.folder, "verdict.json")
    answer = verify(run.folder)
    assert answer.verdict == "altered"
    assert {("verdict", "verdict"), ("cell", "audit")} <= named(answer)


# -- hostile -------------------------------------------------------------------------------------------------------


def outside(folder: Path) -> Path:
    target = folder.parent / "outside.json"
    target.write_text("{}")
    return target


def test_links_are_named_and_not_followed(folder: Path) -> None:
    target = outside(folder)
    (folder / "after" / "audit.json").unlink()
    (folder / "after" / "audit.json").symlink_to(target)
    (folder / "more").symlink_to(folder.parent)
    target.chmod(0)
    assert {("file", "after/audit.json"), ("file", "more")} <= named(verify(folder))


@pytest.mark.parametrize("name", ["manifest.json", NOTEBOOK, "journal.jsonl", "verdict.json", "findings.json"])
@pytest.mark.parametrize("kind", ["link", "loop", "pipe", "folder"])
def test_a_file_that_is_none_is_named(folder: Path, name: str, kind: str) -> None:
    path = folder / name
    (path.rename(folder.parent / "real") if kind == "link" else path.unlink())
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(folder.parent / "real" if kind == "link" else path)
    answer = verify(folder)
    assert answer.verdict == "altered"
    assert name in {difference.name for difference in answer.differences}


@pytest.mark.parametrize("name", ["../outside.json", "/etc/passwd", "after/../../outside.json", "", "\0", "a" * 5000])
def test_a_path_in_the_manifest_is_only_a_name(folder: Path, name: str) -> None:
    outside(folder)
    path = folder / "manifest.json"
    manifest = json.loads(path.read_bytes())
    manifest["files"][name] = digest(b"{}")
    manifest["notebook"]["path"] = name
    path.write_bytes(bundle.dump(manifest))
    assert ("file", name) in named(verify(folder))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"format": NaN}',
        b'{"format": "x", "format": "y"}',
        b"1" * 10_000,
        b'{"format": "gpurunbook.manifest/v1"}',
        b" " * ((32 << 20) + 1),
    ],
    ids=lambda raw: raw[:12].hex(),
)
@pytest.mark.parametrize("name", ["manifest.json", "verdict.json", "findings.json", NOTEBOOK, "journal.jsonl"])
def test_any_content_is_an_answer(folder: Path, name: str, raw: bytes) -> None:
    (folder / name).write_bytes(raw)
    answer = verify(folder)
    assert answer.verdict == "altered"
    assert any(name in difference.name for difference in answer.differences)


def test_the_same_key_twice_in_the_manifest_is_refused(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"verdict": "pass"', '"verdict": "pass", "verdict": "pass"'))
    assert named(verify(folder)) == {("manifest", "manifest.json")}


@pytest.mark.parametrize(
    "field", ["files", "notebook", "journal", "source", "anomalies", "cluster", "exit", "withheld"]
)
@pytest.mark.parametrize("value", [None, [], {}, "x", 7, [[]], {"a": {"b": []}}, [{"kind": "edited"}], True])
def test_any_value_of_a_field_is_an_answer(folder: Path, field: str, value: Any) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_bytes())
    same = manifest[field] == value
    manifest[field] = value
    path.write_bytes(bundle.dump(manifest))
    assert verify(folder).verdict == ("consistent" if same else "altered")


@pytest.mark.parametrize(
    "name", ["manifest.json", "verdict.json", "findings.json", "journal.jsonl", "run.json", NOTEBOOK]
)
def test_no_byte_can_be_changed(folder: Path, name: str) -> None:
    path = folder / name
    whole = path.read_bytes()
    for at in range(0, len(whole), max(1, len(whole) // 150)):
        other = b"1" if whole[at : at + 1] != b"1" else b"2"
        path.write_bytes(whole[:at] + other + whole[at + 1 :])
        assert verify(folder).verdict == "altered", whole[max(0, at - 40) : at + 20]


def test_a_manifest_of_another_spelling_is_altered(folder: Path) -> None:
    path = folder / "manifest.json"
    whole = path.read_bytes()
    for other in (whole[:-1], whole + b"\n", json.dumps(json.loads(whole)).encode()):
        path.write_bytes(other)
        assert named(verify(folder)) == {("manifest", "manifest.json")}


@pytest.mark.parametrize("field", ["versions", "renderer", "source"])
def test_what_stands_in_the_manifest_alone_is_bound_by_the_verdict(folder: Path, field: str) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_bytes())
    at = next(i for i, cell in enumerate(manifest["source"]["cells"]) if cell["parameters"])
    cells = [{**c, "sha256": digest(b"")} if i == at else c for i, c in enumerate(manifest["source"]["cells"])]
    other = {
        "versions": {**manifest["versions"], "python": "3.9.9"},
        "renderer": digest(b""),
        "source": {**manifest["source"], "cells": cells},
    }
    path.write_bytes(bundle.dump(manifest | {field: other[field]}))
    assert named(verify(folder)) == {("verdict", "bound")}


def test_a_verdict_of_the_first_seals_that_binds_nothing_holds(folder: Path) -> None:
    told = json.loads((folder / "verdict.json").read_bytes())
    (folder / "verdict.json").write_bytes(bundle.dump({k: told[k] for k in told.keys() - {"bound"}}))
    assert verify(folder).verdict == "altered"
    agree(folder, "verdict.json")
    assert verify(folder).verdict == "consistent"


@pytest.mark.parametrize("field", ["files", "source", "exit", "anomalies", "versions", "withheld", "run", "runbook"])
@pytest.mark.parametrize("value", ["\ud800", ["\ud800"], {"\ud800": "\ud800"}, [{"\ud800": 1}]])
def test_what_is_no_character_is_an_answer(folder: Path, field: str, value: Any) -> None:
    path = folder / "manifest.json"
    path.write_bytes(bundle.dump({**json.loads(path.read_bytes()), field: value}))
    answer = verify(folder)
    assert answer.verdict == "altered"
    assert json.dumps(answer.as_json(), ensure_ascii=False).encode()
    with contextlib.suppress(RunbookError):
        assert call(evidence.report, folder, "--out", folder.parent / "page.html")[0] in (1, 2)


@pytest.mark.parametrize("name", ["../outside", "a/b", "/tmp/x", "..", "", "\ud800", "a b"])
def test_a_run_whose_name_leads_out_of_its_folder_is_altered(folder: Path, name: str) -> None:
    def change(records: list[dict[str, Any]]) -> None:
        records[0]["data"]["run"] = name

    forge(folder, change)
    old, new = json.dumps(made.RUN), json.dumps(name)
    for file in (NOTEBOOK, "verdict.json", "manifest.json"):
        (folder / file).write_text((folder / file).read_text().replace(old, new))
    agree(folder, NOTEBOOK, "verdict.json")
    answer = verify(folder)
    assert answer.verdict == "altered"
    assert any("no name of a run" in difference.message for difference in answer.differences)


JUNK = [None, [], {}, "x", 7, {"a": []}, [None]]


def forge(folder: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Rechains the journal, and makes notebook and manifest agree with its new head as far as they name it."""
    before = json.loads((folder / "journal.jsonl").read_bytes().splitlines()[-1])["hash"]
    rechain(folder, change)
    hashes = [json.loads(line)["hash"] for line in (folder / "journal.jsonl").read_bytes().splitlines()]
    for name in (NOTEBOOK, "verdict.json", "manifest.json"):
        (folder / name).write_text((folder / name).read_text().replace(before, hashes[-1]))
    manifest = json.loads((folder / "manifest.json").read_bytes())
    (folder / "manifest.json").write_bytes(bundle.dump({**manifest, "journal": hashes}))
    agree(folder, NOTEBOOK, "journal.jsonl", "verdict.json")


@pytest.mark.parametrize("event", ["start", "cluster", "judged", "close"])
def test_a_whole_chain_of_nonsense_is_an_answer(sealed: Run, tmp_path: Path, event: str) -> None:
    record = next(record for record in sealed.journal.records if record["event"] == event)
    for at, (key, value) in enumerate((key, value) for key in record["data"] for value in JUNK):
        if record["data"][key] == value:
            continue
        folder = Path(shutil.copytree(sealed.folder, tmp_path / str(at)))

        def change(records: list[dict[str, Any]], key: str = key, value: Any = value) -> None:
            records[record["seq"]]["data"][key] = value

        forge(folder, change)
        assert verify(folder).verdict == "altered", (key, value)


def test_a_journal_with_nan_is_an_answer(folder: Path) -> None:
    swap(folder / "journal.jsonl", '"share":0.25', '"share": NaN')
    assert "journal" in {kind for kind, _ in named(verify(folder))}


@pytest.mark.parametrize("value", JUNK)
@pytest.mark.parametrize("field", ["id", "cell_type", "source", "outputs", "execution_count", "metadata"])
def test_any_cell_is_an_answer(folder: Path, field: str, value: Any) -> None:
    def change(cells: list[dict[str, Any]]) -> None:
        cells[5][field] = value

    edit_notebook(folder, change)
    assert verify(folder).verdict == "altered"


def test_many_differences_are_told_in_part(folder: Path) -> None:
    for at in range(700):
        (folder / f"more{at}").touch()
    answer = verify(folder)
    assert len(answer.differences) == 700
    assert len(answer.as_json()["differences"]) == 500


# -- the commands --------------------------------------------------------------------------------------------------


def call(command: Any, *argv: object) -> tuple[int, str]:
    result = CliRunner().invoke(command, [str(word) for word in argv], standalone_mode=False)
    if result.exception:
        raise result.exception
    return result.return_value, result.output


def test_the_commands_answer_in_json_and_by_exit_code(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    code, out = call(evidence.seal, run.folder)
    answer = json.loads(out)
    assert (code, answer["evidence"], answer["verdict"], answer["manifest"]) == (
        *(0, "sealed", "pass"),
        manifest_digest(run.folder),
    )
    code, out = call(evidence.verify, run.folder, "-o", "json", "--manifest-digest", answer["manifest"])
    assert (code, json.loads(out)["verdict"], json.loads(out)["differences"]) == (0, "anchored", [])
    swap(run.folder / "verdict.json", '"exit": 0', '"exit": 1')
    code, out = call(evidence.verify, run.folder, "-o", "table")
    assert (code, out.splitlines()[0]) == (1, "altered")
    assert "verdict exit: verdict.json has 1" in out
    (run.folder / "manifest.json").unlink()
    assert call(evidence.verify, run.folder)[0] == 2


def test_a_withheld_seal_exits_1(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    (run.folder / "note").write_text("hf_" + "aBcDeFgHiJ" * 3 + "kLmN")
    code, out = call(evidence.seal, run.folder, "-o", "table")
    assert code == 1
    assert "withheld" in out and "hugging-face-token" in out


def test_hostile_names_are_harmless_on_the_terminal(folder: Path) -> None:
    (folder / "\x1b[31mred\u202e").touch()
    code, out = call(evidence.verify, folder, "-o", "table")
    assert code == 1
    assert "\x1b" not in out and "\u202e" not in out
    assert "\\x1b[31mred" in out


def test_the_report_and_the_page_of_runs_are_written_beside_the_folder(folder: Path) -> None:
    before = verify(folder).verdict
    _, out = call(evidence.report, folder)
    assert json.loads(out)["path"] == str(folder.resolve().parent / f"{RUN}.html")
    page = folder.parent / "index.html"
    page.write_text("old")
    assert call(evidence.seal, folder)[0] == 0
    assert folder.name in page.read_text()
    assert verify(folder).verdict == before


def test_the_report_says_what_verify_says(folder: Path, tmp_path: Path) -> None:
    code, out = call(evidence.report, folder, "--out", tmp_path / "page.html")
    assert (code, json.loads(out)["verdict"]) == (0, "consistent")
    swap(folder / NOTEBOOK, "17 records in", "18 records in")
    code, _ = call(evidence.report, folder, "--out", tmp_path / "page.html")
    assert code == 1
    assert 'id="evidence" class="bad">altered' in (tmp_path / "page.html").read_text()
    with pytest.raises(RunbookError, match="cannot be kept"):
        call(evidence.report, folder, "--out", tmp_path / "page.html" / "page.html")


def test_what_stops_a_command_is_told_harmlessly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["verify", str(tmp_path / "\x1b[31mred")])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "no such folder" in told
    assert "\x1b" not in told


def test_the_page_of_runs_names_the_cluster_that_was_typed_where_none_was_reached(tmp_path: Path) -> None:
    folder = tmp_path / "r1"
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"run": "r1", "runbook": "node_cordon", "home": str(tmp_path)}))
    told = {"run": "r1", "runbook": "node_cordon", "parameters": {"cluster": "prod <eu>"}}
    Journal.open(folder / "journal.jsonl").append("start", told)
    assert "prod &lt;eu&gt;" in index.write(tmp_path).read_text()
