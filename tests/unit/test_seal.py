"""Sealing a run into evidence.

Covered: what stands in the bundle; the same seal twice; notebooks that are refused; runs that died or are in use; a
verdict that is lowered and never raised; every way in which a notebook differs from its source; papermill's own
cells; notebooks saved elsewhere; leaks; a full disk; a run that goes on meanwhile; signing.
Not covered here: what verify finds (test_verify.py), how the page looks (test_report.py), real kernels.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import evidence_run as made
import pytest
from evidence_run import RUNBOOK, Run
from test_signing import make_key

from gpurunbook.errors import EvidenceError, InputError, JournalError, RunInUse
from gpurunbook.evidence import seal as module
from gpurunbook.evidence.seal import current, manifest_digest, seal
from gpurunbook.evidence.verify import verify
from gpurunbook.findings import Finding, Status
from gpurunbook.journal import Journal, digest, read
from gpurunbook.leaks import scan

NGC = "nvapi-" + "aB3_-xYz" * 8


def on_disk(run: Run, name: str) -> Any:
    return json.loads((run.folder / name).read_bytes())


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def kinds(manifest: dict[str, Any]) -> list[tuple[str, str]]:
    return [(entry["kind"], entry["cell"]) for entry in manifest["anomalies"]]


def refusal(run: Run, notebook: Path | None = None) -> str:
    before = content(run.folder)
    with pytest.raises(EvidenceError) as refused:
        seal(run.folder, notebook)
    assert content(run.folder) == before
    return refused.value.code


def test_a_sealed_run_says_what_when_where_and_by_whom(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    manifest = seal(run.folder)
    assert manifest == on_disk(run, "manifest.json")
    wanted = {
        "format": "gpurunbook.manifest/v1",
        "run": made.RUN,
        "runbook": RUNBOOK,
        "verdict": "pass",
        "exit": 0,
        "evidence": "sealed",
        "withheld": {},
        "lowered": [],
        "anomalies": [],
        "not_run": [],
        "rehearsal": False,
        "change_id": "CHG-4711",
        "reason": "monthly audit",
        "approver": "",
        "overrides": [],
        "break_glass": False,
        "left_behind": [],
        "parameters": made.PARAMETERS,
        "operator": {"name": "alice@example.com"},
        "package": {"version": "0.1.0", "digest": "sha256:" + "ab" * 32},
        "head": run.journal.head,
        "start": "2026-01-31T12:00:01.000000Z",
    }
    assert {key: manifest[key] for key in wanted} == wanted
    assert manifest["cluster"]["uid"] == "0b6ad2e2-43a5-4c1f-9f36-0d7e1f2a3b4c"
    assert manifest["source"]["sha256"] == digest((run.home / "runbooks" / f"{RUNBOOK}.ipynb").read_bytes())
    assert set(manifest["versions"]) >= {"python", "gpurunbook", "nbclient", "papermill", "kubernetes", "jupyterlab"}
    assert [cell["id"] for cell in manifest["notebook"]["cells"]] == [c["id"] for c in run.notebook["cells"]]


def test_the_manifest_has_the_digest_of_every_other_file(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    manifest = seal(run.folder)
    files = content(run.folder)
    del files["manifest.json"]
    assert manifest["files"] == {name: digest(data) for name, data in files.items()}
    assert set(files) >= {f"{RUNBOOK}.ipynb", f"{RUNBOOK}.html", "verdict.json", "findings.json", "journal.jsonl"}
    assert set(files) >= {"run.json", "after/audit.json"}


@pytest.mark.parametrize(
    ("granted", "approver", "glass"),
    [
        ([("a", "lead", False), ("a", "deputy", False), ("a", "lead", False)], "lead, deputy", False),
        ([("a", "", False), ("a", "lead", False)], "lead", False),
        ([("a", "lead", False), ("b", "deputy", False)], "deputy", False),  # the proposal was another one by then
        ([("a", "", True), ("a", "lead", False)], "lead", True),
    ],
)
def test_whoever_approved_what_was_done_is_named_and_broken_glass_stays_broken(
    tmp_path: Path, granted: list[tuple[str, str, bool]], approver: str, glass: bool
) -> None:
    run = made.begun(tmp_path)
    for plan, name, broken in granted:
        run.journal.append("authorised", {"plan": plan, "approver": name, "break_glass": broken})
    run.judge("audit", 3)
    run.judge("ready", 4)
    run.close("close", 5)
    run.save()
    manifest = seal(run.folder)
    assert (manifest["approver"], manifest["break_glass"]) == (approver, glass)


def test_verdict_and_findings_are_those_of_the_journal(tmp_path: Path) -> None:
    run = made.rejected(tmp_path)
    seal(run.folder)
    verdict, findings = on_disk(run, "verdict.json"), on_disk(run, "findings.json")
    assert (verdict["verdict"], verdict["exit"]) == ("rejected", 1)
    assert verdict["closed"]["code"] == "latest"
    assert [(f["step"], f["code"], f["status"]) for f in findings["findings"]] == [("audit", "latest", "fail")]
    assert verdict["steps"][0]["findings"] == {"pass": 0, "warn": 0, "fail": 1, "unknown": 0}


def test_sealing_again_changes_nothing(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    seal(run.folder)
    first, times = content(run.folder), {p: p.stat().st_mtime_ns for p in run.folder.iterdir()}
    seal(run.folder)
    assert content(run.folder) == first
    assert {p: p.stat().st_mtime_ns for p in run.folder.iterdir()} == times


def test_a_seal_is_current_until_its_run_goes_on(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    assert not current(run.folder)
    seal(run.folder)
    assert current(run.folder)
    Journal.open(run.folder / "journal.jsonl").append("resume", {"process": {"host": "desk", "pid": 1}})
    assert not current(run.folder)


@pytest.mark.parametrize("name", ["manifest.json", "journal.jsonl"])
def test_a_seal_that_cannot_be_read_counts_as_current(tmp_path: Path, name: str) -> None:
    run = made.passed(tmp_path)
    seal(run.folder)
    (run.folder / name).write_bytes(b"{")
    assert current(run.folder)


def test_two_equal_runs_have_equal_manifests(tmp_path: Path) -> None:
    one, two = made.passed(tmp_path / "a"), made.passed(tmp_path / "b")
    (two.folder / "run.json").write_bytes((one.folder / "run.json").read_bytes())
    assert seal(one.folder) == seal(two.folder)


def test_the_working_copy_is_never_written(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    run.path.chmod(0o400)
    before = run.path.stat()
    seal(run.folder)
    after = run.path.stat()
    assert (before.st_ino, before.st_mtime_ns, before.st_mode) == (after.st_ino, after.st_mtime_ns, after.st_mode)


# -- what is refused -----------------------------------------------------------------------------------------------


def test_a_notebook_that_was_not_saved_after_the_end_is_refused(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    run.cell("close")["outputs"] = []
    run.save()
    assert refusal(run) == "closing-absent"


def test_a_notebook_of_another_run_is_refused(tmp_path: Path) -> None:
    run, other = made.passed(tmp_path / "a"), made.rejected(tmp_path / "b")
    assert refusal(run, other.path) == "closing-foreign"


def test_a_notebook_that_shows_an_end_that_was_taken_back_is_refused(tmp_path: Path) -> None:
    run = made.rejected(tmp_path)
    run.journal.append("reopen", {"step": "audit"})
    run.journal.append("close", {**run.journal.records[-2]["data"], "verdict": "blocked"})
    assert refusal(run) == "closing-absent"


def test_a_start_that_failed_is_sealed_as_unknown_when_its_cell_was_run_again(tmp_path: Path) -> None:
    run = made.rejected(tmp_path)
    run.journal.append("reopen", {"step": "start"})
    closing = {"verdict": "blocked", "code": "wrong-cluster", "step": "start", "message": "m", "next": "n"}
    run.journal.append("close", {**closing, "left_behind": []})
    manifest = seal(run.folder)
    assert (manifest["verdict"], manifest["evidence"]) == ("unknown", "sealed")
    assert [entry["kind"] for entry in manifest["lowered"]] == ["closing"]
    assert verify(run.folder).verdict == "consistent"


def test_a_step_whose_cell_shows_an_error_since_is_named_with_what_to_do(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    run.cell("audit")["outputs"] = [made.error("NameError", "name 'run' is not defined")]
    run.save()
    manifest = seal(run.folder)
    assert manifest["verdict"] == "unknown"
    (told,) = [entry["detail"] for entry in manifest["lowered"] if entry["cell"] == "audit"]
    assert "shows NameError; run it again, then the last cell; save, and seal again" in told


def test_a_copy_that_was_run_as_another_run_names_that_run(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    copy = run.folder.with_name("copy")
    copy.mkdir()
    (copy / "run.json").write_bytes((run.folder / "run.json").read_bytes().replace(made.RUN.encode(), b"copy"))
    (copy / run.path.name).write_bytes(run.path.read_bytes())
    with pytest.raises(EvidenceError, match=f"gpurunbook seal {made.RUN} --notebook") as refused:
        seal(copy)
    assert refused.value.code == "not-started"


@pytest.mark.parametrize(
    ("field", "value"), [("verdict", "pass"), ("run", "x"), ("step", "close"), ("rehearsal", True), ("extra", 1)]
)
def test_a_closing_scrap_that_says_something_else_is_refused(tmp_path: Path, field: str, value: Any) -> None:
    run = made.rejected(tmp_path)
    for output in run.cell("audit")["outputs"]:
        payload = output.get("data", {}).get(made.MIME, {})
        if payload.get("name") == made.CLOSING:
            payload["data"][field] = value
    run.save()
    assert refusal(run) == "closing-differs"


@pytest.mark.parametrize(
    "saved", [b"", b'{"cells": [', b"[]", b'{"nbformat": 3, "cells": []}', b"\xff\xfe", b"[" * 5000]
)
def test_a_notebook_that_was_cut_or_is_none_is_refused(tmp_path: Path, saved: bytes) -> None:
    run = made.passed(tmp_path)
    run.path.write_bytes(saved)
    with pytest.raises(InputError, match="not a"):
        seal(run.folder)


def test_a_missing_notebook_names_the_way_to_give_it(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    run.path.unlink()
    with pytest.raises(EvidenceError, match="--notebook FILE"):
        seal(run.folder)


def test_a_run_that_never_started_and_a_broken_journal_are_refused(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    raw = (run.folder / "journal.jsonl").read_bytes()
    (run.folder / "journal.jsonl").write_bytes(raw.replace(b'"tolerate":3', b'"tolerate":4'))
    with pytest.raises(JournalError, match="line 1"):
        seal(run.folder)
    (run.folder / "journal.jsonl").unlink()
    with pytest.raises(EvidenceError, match="never started"):
        seal(run.folder)


def test_a_link_in_the_run_folder_is_refused(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    (run.folder / "inputs").symlink_to("/etc")
    assert refusal(run) == "odd-file"


@pytest.mark.parametrize("home", ["a\0b", "\ud800", "x" * 5000])
def test_a_home_that_no_folder_can_be_is_a_source_that_is_not_there(tmp_path: Path, home: str) -> None:
    run = made.passed(tmp_path)
    record = json.loads((run.folder / "run.json").read_bytes())
    (run.folder / "run.json").write_text(json.dumps(record | {"home": home}))
    manifest = seal(run.folder)
    assert (manifest["verdict"], kinds(manifest)) == ("unknown", [("source", "")])


def test_a_step_that_another_cell_shows_otherwise_is_told(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    data = next(r["data"] for r in run.journal.records if r["event"] == "judged" and r["data"]["step"] == "audit")
    same = {key: data[key] for key in ("status", "passed", "facts")}
    for name, step, value in (
        ("same", "audit", same),
        ("other", "audit", same | {"status": "fail", "passed": False}),
        ("unknown", "nope", same),
    ):
        cell = {**made.code(name, "1"), "execution_count": 90 + len(name)}
        cell["outputs"].append(made.scrap(f"gpurunbook.step.{step}", value))
        run.notebook["cells"].append(cell)
    run.save()
    manifest = seal(run.folder)
    assert [cell for kind, cell in kinds(manifest) if kind == "stale"] == ["other", "unknown"]
    assert manifest["verdict"] == "pass"


def test_a_step_whose_scrap_says_1_for_true_is_not_what_was_judged(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    (shown,) = [o for o in run.cell("audit")["outputs"] if "scrapbook" in json.dumps(o.get("metadata", {}))]
    (content,) = shown["data"].values()
    content["data"]["passed"] = 1
    run.save()
    manifest = seal(run.folder)
    assert (manifest["verdict"], kinds(manifest)) == ("unknown", [("step", "audit")])


# -- runs that died ------------------------------------------------------------------------------------------------


def test_a_run_that_died_is_unknown_and_shows_which_cells_did_not_run(tmp_path: Path) -> None:
    run = made.died(tmp_path)
    manifest = seal(run.folder)
    last = read(run.folder / "journal.jsonl")[-1]
    assert (last["event"], last["data"]["step"]) == ("died", "ready")
    assert (manifest["verdict"], manifest["exit"], manifest["closed"]["code"]) == ("unknown", 2, "died")
    assert manifest["not_run"] == ["ready", "close"]
    assert seal(run.folder) == manifest
    assert verify(run.folder).verdict == "consistent"


def test_a_run_whose_last_record_was_cut_by_the_crash_is_sealed_without_it(tmp_path: Path) -> None:
    run = made.died(tmp_path)
    path = run.folder / "journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"data":{"step":"re')
    assert seal(run.folder)["closed"]["code"] == "died"
    assert path.read_bytes().startswith(whole)
    assert verify(run.folder).verdict == "consistent"


def test_a_journal_that_is_cut_after_the_seal_or_while_a_kernel_works_is_left_as_it_is(tmp_path: Path) -> None:
    run = made.passed(tmp_path / "a")
    seal(run.folder)
    path = run.folder / "journal.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    before = content(run.folder)
    with pytest.raises(JournalError, match="cut off"):
        seal(run.folder)
    assert content(run.folder) == before
    busy = made.died(tmp_path / "b")
    path = busy.folder / "journal.jsonl"
    path.write_bytes(path.read_bytes() + b"{")
    with (busy.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(JournalError, match="cut off"):
            seal(busy.folder)


def test_a_run_that_died_after_a_change_was_begun_says_what_to_look_at(tmp_path: Path) -> None:
    run = made.died(tmp_path)
    run.journal.append("intent", {"step": "ready", "name": "cordon", "target": {"kind": "Node", "name": "gpu-7"}})
    assert seal(run.folder)["left_behind"] == ["Node gpu-7: cordon was begun; look at it"]


def test_papermill_statuses_are_not_believed(tmp_path: Path) -> None:
    run = made.died(tmp_path)
    for cell in run.notebook["cells"]:
        cell["metadata"]["papermill"] = {"status": "completed", "exception": False}
    run.save()
    assert seal(run.folder)["not_run"] == ["ready", "close"]


def hold(path: Path) -> int:
    handle = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    os.write(handle, b'{"host": "desk", "pid": 4711, "since": "2026-01-31T12:00:00Z"}')
    return handle


def test_a_run_that_is_not_closed_and_in_use_is_refused_and_names_who(tmp_path: Path, monkeypatch: Any) -> None:
    run = made.died(tmp_path)
    monkeypatch.setattr(module, "DYING_SECONDS", 0.1)
    handle = hold(run.folder / "lock")
    with pytest.raises(RunInUse, match="process 4711 on desk"):
        seal(run.folder)
    os.close(handle)
    assert read(run.folder / "journal.jsonl")[-1]["event"] != "died"


def test_a_kernel_that_is_just_ending_is_waited_for(tmp_path: Path, monkeypatch: Any) -> None:
    run = made.died(tmp_path)
    monkeypatch.setattr(module, "DYING_SECONDS", 60.0)
    handle = hold(run.folder / "lock")
    threading.Timer(0.2, os.close, [handle]).start()
    begun = time.monotonic()
    assert seal(run.folder)["verdict"] == "unknown"
    assert 0.1 < time.monotonic() - begun < 50


def test_a_closed_run_is_sealed_while_its_kernel_is_still_open_in_lab(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    handle = hold(run.folder / "lock")
    manifest = seal(run.folder)
    os.close(handle)
    assert manifest["verdict"] == "pass"
    assert "lock" not in manifest["files"]
    assert verify(run.folder).verdict == "consistent"


# -- lowered, never raised -----------------------------------------------------------------------------------------


def edit(run: Run) -> None:
    run.cell("audit")["source"] = ["pass"]


def delete(run: Run) -> None:
    del run.notebook["cells"][run.at("audit")]


def skip(run: Run) -> None:
    run.cell("audit")["execution_count"] = None


def clear(run: Run) -> None:
    run.cell("audit")["outputs"] = []


def forge(run: Run) -> None:
    run.cell("audit")["outputs"][0]["data"][made.MIME]["data"]["facts"]["records"] = 18


def fail(run: Run) -> None:
    run.cell("audit")["outputs"].append(made.error("ValueError", "x"))


def reparameter(run: Run) -> None:
    run.cell("parameters")["source"] = ["# parameters of gpu_audit\n", "tolerate = 4\n"]


def repapermill(run: Run) -> None:
    run.notebook["metadata"]["papermill"] = {"parameters": {"namespaces": ["other"]}}


def refile(run: Run) -> None:
    (run.folder / "after" / "audit.json").write_bytes(b"{}")


def unfile(run: Run) -> None:
    (run.folder / "after" / "audit.json").unlink()


def resource_(run: Run) -> None:
    path = run.home / "runbooks" / f"{RUNBOOK}.ipynb"
    path.write_bytes(path.read_bytes() + b"\n")


def unsource(run: Run) -> None:
    (run.home / "runbooks" / f"{RUNBOOK}.ipynb").unlink()


LOWERING = {
    "edited": edit,
    "deleted": delete,
    "skipped": skip,
    "step": forge,
    "parameter": reparameter,
    "file": refile,
    "source": unsource,
}


@pytest.mark.parametrize("kind", LOWERING)
def test_a_pass_that_the_notebook_does_not_bear_out_becomes_unknown(tmp_path: Path, kind: str) -> None:
    run = made.passed(tmp_path)
    LOWERING[kind](run)
    run.save()
    manifest = seal(run.folder)
    assert (manifest["verdict"], manifest["exit"], manifest["closed"]["verdict"]) == ("unknown", 2, "pass")
    assert kind in {entry["kind"] for entry in manifest["lowered"]}
    assert verify(run.folder).verdict == "consistent"


@pytest.mark.parametrize("change", [clear, fail, repapermill, unfile, resource_])
def test_other_ways_to_differ_lower_a_pass_as_well(tmp_path: Path, change: Callable[[Run], None]) -> None:
    run = made.passed(tmp_path)
    change(run)
    run.save()
    assert seal(run.folder)["verdict"] == "unknown"


@pytest.mark.parametrize("change", [edit, delete, skip, reparameter, refile, unsource, None])
def test_no_verdict_is_raised(tmp_path: Path, change: Callable[[Run], None] | None) -> None:
    run = made.begun(tmp_path)
    run.judge("audit", 3)
    bad = Finding("supply.ready", "x", Status.UNKNOWN, "gone", "410")
    run.judge("ready", 4, (bad,), "unknown")
    run.close("ready", 4, "unknown", "gone")
    if change:
        change(run)
    run.save()
    manifest = seal(run.folder)
    assert (manifest["verdict"], manifest["lowered"]) == ("unknown", [])


def test_what_the_user_added_is_listed_and_lowers_nothing(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    scratch = made.code("scratch", "x = 1")
    scratch["execution_count"] = 6
    run.notebook["cells"].append(scratch)
    run.cell("about-audit")["source"] = ["## Other words"]
    run.save()
    manifest = seal(run.folder)
    assert manifest["verdict"] == "pass"
    assert kinds(manifest) == [("edited", "about-audit"), ("added", "scratch")]


def test_an_empty_cell_at_the_end_is_no_difference_unless_it_shows_something(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    empty = made.code("5f3a", " \n")
    run.notebook["cells"].append(empty)
    run.save()
    assert kinds(seal(run.folder)) == []
    empty["outputs"] = [made.shows({"text/html": "<b>pass</b>", "text/plain": "pass"})]
    run.save()
    assert kinds(seal(run.folder)) == [("added", "5f3a")]


# -- the ways in which a notebook differs --------------------------------------------------------------------------


def test_every_kind_of_difference_names_its_cell(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    cells = run.notebook["cells"]
    cells.append(cells.pop(run.at("about-start")))
    del cells[run.at("header")]
    run.cell("close")["execution_count"] = 2
    cells.append({**made.code("start", "run = 1"), "execution_count": 9})
    cells.append({**made.code("", "y"), "execution_count": None})
    del cells[-1]["id"]
    run.cell("start")["source"].append(" # looked at")
    run.save()
    assert kinds(seal(run.folder)) == [
        ("edited", "start"),
        ("added", "start (again, cell 8)"),
        ("added", "cell 9"),
        ("deleted", "header"),
        ("moved", "about-start"),
        ("skipped", "cell 9"),
        ("out-of-order", "close"),
    ]


def test_cells_run_in_the_order_of_clicks_are_listed(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    run.cell("audit")["execution_count"] = 4
    run.cell("ready")["execution_count"] = 3
    run.save()
    manifest = seal(run.folder)
    assert kinds(manifest) == [("out-of-order", "ready")]
    assert manifest["verdict"] == "pass"


def test_a_code_cell_turned_into_prose_counts_as_edited(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    cell = run.cell("ready")
    run.notebook["cells"][run.at("ready")] = made.markdown("ready", "".join(cell["source"]))
    run.save()
    manifest = seal(run.folder)
    assert kinds(manifest)[0] == ("edited", "ready")
    assert manifest["verdict"] == "unknown"


def test_what_papermill_adds_is_no_difference(tmp_path: Path) -> None:
    run = made.rejected(tmp_path)
    made.by_papermill(run, {"tolerate": 3, "namespaces": ["gpu-operator"]})
    style = 'style="color:red; font-family:Helvetica Neue, Helvetica, Arial, sans-serif; font-size:2em;"'
    told = f"<span {style}>An Exception was encountered at '<a href=\"#papermill-error-cell\">In [4]</a>'.</span>"
    text = "Execution using papermill encountered an exception here and stopped:"
    here = f'<span id="papermill-error-cell" {style}>{text}</span>'
    for at, text in ((run.at("audit"), here), (0, told)):
        cell = made.markdown(f"random{at}", text)
        cell["metadata"]["tags"] = ["papermill-error-cell-tag"]
        run.notebook["cells"].insert(at, cell)
    run.save()
    assert {kind for kind, _ in kinds(seal(run.folder))} == {"skipped"}


@pytest.mark.parametrize(
    ("tag", "kind", "text"),
    [
        ("injected-parameters", "code", "# Parameters\ntolerate = 3\nimport os"),
        ("injected-parameters", "code", "# Parameters\ntolerate = __import__('os').getpid()"),
        ("injected-parameters", "code", "tolerate = 3"),
        ("papermill-error-cell-tag", "markdown", "Everything is fine."),
        ("papermill-error-cell-tag", "code", "x = 1"),
    ],
)
def test_a_tag_of_papermill_alone_hides_nothing(tmp_path: Path, tag: str, kind: str, text: str) -> None:
    run = made.passed(tmp_path)
    cell = made.code("x", text, (tag,)) if kind == "code" else made.markdown("x", text)
    cell["metadata"]["tags"] = [tag]
    if kind == "code":
        cell["execution_count"] = 9
    run.notebook["cells"].append(cell)
    run.save()
    assert ("added", "x") in kinds(seal(run.folder))


def test_values_set_in_the_parameters_cell_are_no_difference_and_code_in_it_is(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    run.cell("parameters")["source"] = ["# parameters of gpu_audit\n", "tolerate: int = 3  # three\n"]
    run.save()
    assert kinds(seal(run.folder)) == []
    run.cell("parameters")["source"] += ["import os\n"]
    run.save()
    assert kinds(seal(run.folder)) == [("edited", "parameters")]


# -- saved elsewhere -----------------------------------------------------------------------------------------------


def test_a_notebook_saved_elsewhere_is_copied_and_stays_as_it_is(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    out = tmp_path / "out.ipynb"
    run.path.rename(out)
    out.chmod(0o444)
    before = out.stat()
    seal(run.folder, out)
    assert run.path.read_bytes() == out.read_bytes()
    assert (out.stat().st_ino, out.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert seal(run.folder, out) == seal(run.folder)


def test_only_an_untouched_copy_or_a_sealed_one_gives_way_to_a_notebook_from_elsewhere(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    out = run.save(tmp_path / "out.ipynb")
    run.path.write_bytes((run.home / "runbooks" / f"{RUNBOOK}.ipynb").read_bytes())
    seal(run.folder, out)
    run.cell("close")["outputs"].append(shown := made.shows({"text/plain": "later"}))
    run.save(out)
    seal(run.folder, out)
    assert shown["data"]["text/plain"].encode() in run.path.read_bytes()
    run.path.write_bytes(run.path.read_bytes() + b"\n")
    assert refusal(run, out) == "two-notebooks"


# -- leaks ---------------------------------------------------------------------------------------------------------


def leak_in_output(run: Run) -> str:
    run.cell("start")["outputs"].append({"output_type": "stream", "name": "stdout", "text": [f"key {NGC}\n"]})
    run.save()
    return f"{RUNBOOK}.ipynb"


def leak_in_two_lines(run: Run) -> str:
    text = [f"key {NGC[:9]}", f"{NGC[9:]}\n"]
    run.cell("start")["outputs"].append({"output_type": "stream", "name": "stdout", "text": text})
    run.save()
    return f"{RUNBOOK}.ipynb"


def leak_in_input(run: Run) -> str:
    (run.folder / "inputs").mkdir()
    (run.folder / "inputs" / "pods.json").write_text(json.dumps({"env": [{"name": "K", "value": NGC}]}))
    return "withheld/inputs/pods.json"


def leak_in_checkpoint(run: Run) -> str:
    (run.folder / ".ipynb_checkpoints").mkdir()
    (run.folder / ".ipynb_checkpoints" / "x.ipynb").write_text(NGC)
    return ".ipynb_checkpoints/x.ipynb"


@pytest.mark.parametrize("leak", [leak_in_output, leak_in_two_lines, leak_in_input, leak_in_checkpoint])
def test_a_leak_withholds_the_evidence_and_leaves_the_verdict(tmp_path: Path, leak: Callable[[Run], str]) -> None:
    run = made.passed(tmp_path)
    seal(run.folder)
    where = run.folder / leak(run)
    manifest = seal(run.folder)
    assert (manifest["evidence"], manifest["verdict"]) == ("withheld", "pass")
    assert "ngc-key" in str(manifest["withheld"])
    assert ("cell start, line 1: " in str(manifest["withheld"])) == (where == run.path)
    assert NGC[10:] not in json.dumps(manifest)
    assert stat.S_IMODE(where.stat().st_mode) == 0o600
    assert not (run.folder / f"{RUNBOOK}.html").exists()
    assert on_disk(run, "verdict.json")["evidence"] == "withheld"
    answer = verify(run.folder)
    assert (answer.verdict, answer.evidence) == ("unsealed", "withheld")
    assert seal(run.folder)["evidence"] == "withheld"
    others = [p for p in run.folder.iterdir() if p.is_file() and p not in {where, run.path}]
    assert not [p for p in others if scan(p.read_bytes())]


def test_a_leak_is_put_aside_beside_an_earlier_one_of_its_name(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    (run.folder / "inputs").mkdir()
    texts = {f"{NGC}{more}".encode() for more in ("", " again", " and again")}
    for text in sorted(texts):
        (run.folder / "inputs" / "x").write_bytes(text)
        assert seal(run.folder)["evidence"] == "withheld"
    aside = [path for path in (run.folder / "withheld").rglob("*") if path.is_file()]
    assert {path.read_bytes() for path in aside} == texts
    manifest = on_disk(run, "manifest.json")
    for path in aside:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert manifest["files"][path.relative_to(run.folder).as_posix()] == digest(path.read_bytes())


def test_a_leak_in_the_journal_reaches_no_file_that_the_seal_writes(tmp_path: Path) -> None:
    run = made.begun(tmp_path)
    leaking = Finding("supply.audit", f"gpu-operator/pod/{NGC}", Status.WARN, "tag-only", "x")
    run.judge("audit", 3, (leaking,))
    run.judge("ready", 4)
    run.close("close", 5)
    run.save()
    manifest = seal(run.folder)
    assert set(manifest["withheld"]) == {"journal.jsonl"}  # what is displayed was redacted
    for name in ("verdict.json", "findings.json", "manifest.json"):
        assert scan((run.folder / name).read_bytes()) == []
        assert stat.S_IMODE((run.folder / name).stat().st_mode) == 0o600


def test_once_the_leak_is_gone_the_evidence_is_sealed(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    leak_in_output(run)
    seal(run.folder)
    run.cell("start")["outputs"].pop()
    run.save()
    assert seal(run.folder)["evidence"] == "sealed"
    assert verify(run.folder).verdict == "consistent"


def test_a_leak_behind_the_first_piece_of_a_long_file_is_found_with_its_line(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    (run.folder / "inputs").mkdir()
    line = b"x" * 1023 + b"\n"
    (run.folder / "inputs" / "log").write_bytes(line * (17 << 10) + NGC.encode() + b"\n" + line)
    told = str(seal(run.folder)["withheld"]["inputs/log"])
    assert f"line {(17 << 10) + 1}: ngc-key" in told


# -- whole or not at all -------------------------------------------------------------------------------------------


def limited(size: int, action: Callable[[], Any]) -> None:
    """Lets no file of this process grow over `size` meanwhile, as a full disk would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        action()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [0, 500, 4_000])
def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, size: int) -> None:
    run = made.passed(tmp_path)
    before = content(run.folder)
    with pytest.raises(EvidenceError, match="cannot be written"):
        limited(size, lambda: seal(run.folder))
    assert content(run.folder) == before
    assert verify(run.folder).verdict == "unsealed"


def test_a_full_disk_leaves_the_seal_that_was_there(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    seal(run.folder)
    run.cell("close")["outputs"].append(made.shows({"text/plain": "later"}))
    run.save()
    before = content(run.folder)
    with pytest.raises(EvidenceError):
        limited(500, lambda: seal(run.folder))
    assert content(run.folder) == before


def test_what_a_killed_writer_left_is_swept_up(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    (run.folder / ".manifest.json.0f0f0f0f.part").write_text("{")
    assert ".manifest.json.0f0f0f0f.part" not in seal(run.folder)["files"]
    assert not (run.folder / ".manifest.json.0f0f0f0f.part").exists()


def test_a_deleted_file_of_the_seal_is_made_again(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    seal(run.folder)
    before = content(run.folder)
    for name in ("verdict.json", f"{RUNBOOK}.html"):
        (run.folder / name).unlink()
        seal(run.folder)
        assert content(run.folder) == before


# -- signing -------------------------------------------------------------------------------------------------------


def test_a_signature_lies_beside_the_manifest_and_goes_with_it(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    key = make_key(tmp_path, "alice")
    seal(run.folder, sign_key=key)
    signed = content(run.folder)
    assert signed["manifest.json.sig"].startswith(b"-----BEGIN SSH SIGNATURE-----")
    seal(run.folder)
    assert content(run.folder) == signed
    run.cell("close")["outputs"].append(made.shows({"text/plain": "later"}))
    run.save()
    seal(run.folder)
    assert not (run.folder / "manifest.json.sig").exists()


def test_the_manifest_digest_is_that_of_its_bytes(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    seal(run.folder)
    assert manifest_digest(run.folder) == digest((run.folder / "manifest.json").read_bytes())


def test_a_rehearsal_stays_one(tmp_path: Path) -> None:
    run = made.begun(tmp_path, rehearsal=True)
    run.journal.append("cluster", {**run.journal.records[-1]["data"], "rehearsal": False, "rehearsal_reasons": []})
    run.judge("audit", 3)
    run.judge("ready", 4)
    run.close("close", 5)
    run.save()
    manifest = seal(run.folder)
    assert manifest["rehearsal"] is True
    assert manifest["rehearsal_reasons"] == ["the cluster says that it is a fixture"]
