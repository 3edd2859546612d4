"""`gpurunbook run`, `run --all`, `new` and the page of runs, by the commands themselves.

Covered: the card and the JSON of one run, `--require pass`, parameters that are refused before anything is made,
`new` with parameters and going on with it; a batch as expected, with one made wrong, with one that cannot be run,
with expectations missing; a worker that dies; servers that end with the batch; SIGTERM to a batch; the page.
Not covered: the provenance audit's own scenarios (`make run`), the look of the page in a browser.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import signal
from html.parser import HTMLParser
from pathlib import Path

import pytest
import tiny
from test_engine_faults import SECONDS, wait_for

from gpurunbook.cli import main
from gpurunbook.errors import InputError
from gpurunbook.evidence import index
from gpurunbook.evidence.seal import manifest_digest
from gpurunbook.evidence.verify import verify
from gpurunbook.findings import Verdict
from gpurunbook.folder import workspace
from gpurunbook.headless import batch
from gpurunbook.headless.execute import Outcome
from gpurunbook.journal import Journal, read

CLUSTERS = Path(__file__).parents[2] / "parameters" / "clusters"
PASS = "{verdict: pass, code: all-steps-passed, step: close, cluster: false}"


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GPURUNBOOK_HOME", "GPURUNBOOK_OUT", "GPURUNBOOK_RUN_DIR", "GPURUNBOOK_CLUSTERS"):
        monkeypatch.delenv(name, raising=False)


def command(home: Path, *words: str, code: int) -> tuple[str, str]:
    """A command in this process, from the home, and what it wrote to standard output and error."""
    said, told = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(home),
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(told),
        pytest.raises(SystemExit) as left,
    ):
        main(list(words))
    assert left.value.code == code, said.getvalue() + told.getvalue()
    return said.getvalue(), told.getvalue()


def scenarios(home: Path, expect: str, **files: str) -> None:
    folder = home / "parameters" / tiny.RUNBOOK
    (folder / "expect.yaml").write_text(expect)
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)


def test_one_run_answers_with_a_card_and_leaves_a_page_of_runs(tmp_path: Path) -> None:
    home = tiny.lay(tmp_path, "closes")
    card, told = command(home, "run", "provenance_audit", "--set", "reason=drill", code=0)
    run_dir = tiny.the_run(home)
    assert card.startswith("✓ pass\n")
    for part in ("all-steps-passed", "sealed", f"outputs/{run_dir.name}", "provenance_audit.html", "gpurunbook verify"):
        assert part in card
    assert f"\n  manifest {manifest_digest(run_dir)}\n" in card
    assert "\n  rehearsal: not evidence for a live cluster\n" in card
    assert "\x1b" not in card
    assert told == ""
    assert read(run_dir / "journal.jsonl")[0]["data"]["parameters"]["reason"] == "drill"
    assert run_dir.name in (home / "outputs" / "index.html").read_text()


def test_one_run_answers_with_its_verdict_as_json(tmp_path: Path) -> None:
    home = tiny.lay(tmp_path, "closes")
    said, _ = command(home, "run", "provenance_audit", "-o", "json", "--require", "pass", code=0)
    answer, run_dir = json.loads(said), tiny.the_run(home)
    assert answer.pop("manifest") == manifest_digest(run_dir)
    assert answer == json.loads((run_dir / "verdict.json").read_bytes())


@pytest.mark.parametrize(
    ("verdict", "evidence", "plain", "required"),
    [
        ("pass", "sealed", 0, 0),
        ("planned", "sealed", 0, 1),
        ("rejected", "sealed", 1, 1),
        ("blocked", "sealed", 1, 1),
        ("failed", "sealed", 1, 1),
        ("unknown", "sealed", 2, 2),
        ("pass", "withheld", 1, 1),
        ("planned", "withheld", 1, 1),
        ("unknown", "withheld", 2, 2),
        ("pass", "unsealed", 2, 2),
        ("planned", "unsealed", 2, 1),
        ("rejected", "unsealed", 1, 1),
    ],
)
def test_the_exit_code_is_of_the_verdict_and_never_0_without_evidence(verdict, evidence, plain, required) -> None:
    outcome = Outcome(Path("r"), "book", Verdict(verdict), "c", "s", "m", "n", evidence)
    assert outcome.exit == plain
    assert outcome.exit_for("pass") == required


def test_a_run_that_never_started_says_why_and_has_no_evidence(tmp_path: Path) -> None:
    home = tiny.lay(tmp_path, "no_run")
    said, _ = command(home, "run", "provenance_audit", "-o", "json", code=2)
    answer = json.loads(said)
    assert (answer["verdict"], answer["code"], answer["evidence"]) == ("unknown", "not-started", "unsealed")
    assert "without closing" in answer["message"]
    assert answer["next"].startswith("gpurunbook run provenance_audit --run-id ")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--set", "tolerate_never_started=no"), "Was false meant"),
        (("--set", "namespace=x"), "Did you mean 'namespaces'"),
        (("--parameters", "absent.yaml"), "cannot be read"),
        (("--run-id", "../x"), "no run id"),
        (("--set", "run_id=a", "--run-id", "b"), "run_id"),
        (("--jobs", "2"), "--all"),
    ],
)
def test_what_is_refused_makes_nothing(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    home = tiny.lay(tmp_path, "closes")
    _, told = command(home, "run", "provenance_audit", *words, code=2)
    assert says in told
    assert "Traceback" not in told
    assert not (home / "outputs").exists()


def test_an_unknown_runbook_is_named_with_the_nearest(tmp_path: Path) -> None:
    home = tiny.lay(tmp_path, "closes")
    _, told = command(home, "run", "provenance_audits", code=2)
    assert "Did you mean 'provenance_audit'" in told


def test_outside_of_a_home_it_says_what_to_do(tmp_path: Path) -> None:
    _, told = command(tmp_path, "run", "provenance_audit", code=2)
    assert "GPURUNBOOK_HOME" in told


def test_a_new_copy_with_parameters_can_be_run_by_its_id(tmp_path: Path) -> None:
    home = tiny.lay(tmp_path, "closes")
    said, _ = command(home, "new", "provenance_audit", "--set", "reason=drill", "--set", "change_id=1.10", code=0)
    copy = Path(said.strip())
    assert copy == tiny.the_run(home) / "provenance_audit.ipynb"
    cells = {c["id"]: "".join(c["source"]) for c in json.loads(copy.read_bytes())["cells"]}
    (injected,) = [text for text in cells.values() if text.startswith("# Parameters")]
    assert 'change_id = "1.10"' in injected
    assert not (copy.parent / "journal.jsonl").exists()
    command(home, "run", "provenance_audit", "--run-id", str(copy.parent), "--set", "change_id=2", code=0)
    given = read(copy.parent / "journal.jsonl")[0]["data"]["parameters"]
    assert (given["reason"], given["change_id"]) == ("drill", "2")


def test_a_new_copy_without_parameters_is_the_source(tmp_path: Path) -> None:
    home = tiny.lay(tmp_path, "closes")
    said, _ = command(home, "new", "provenance_audit", "--run-id", "mine", code=0)
    assert Path(said.strip()).read_bytes() == Path(tiny.source(home)).read_bytes()
    _, told = command(home, "new", "provenance_audit", "--run-id", "mine", code=2)
    assert "of this id already" in told


def test_a_batch_in_which_each_is_as_expected_exits_0(tmp_path: Path) -> None:
    home = tiny.lay(tmp_path, "closes")
    scenarios(home, f"main: one\none: {PASS}\ntwo: {PASS}\n", one="reason: first\n", two="reason: second\n")
    table, told = command(home, "run", "--all", code=0)
    assert told == ""
    assert table.count("as expected") == 2
    rows = {r.scenario: r for r in map(index.row, [p.parent for p in (home / "outputs").glob("*/run.json")])}
    assert set(rows) == {"one", "two"}
    assert {r.evidence for r in rows.values()} == {"sealed"}


def test_a_batch_of_the_main_scenarios_runs_no_others(tmp_path: Path) -> None:
    home = tiny.lay(tmp_path, "closes")
    scenarios(home, f"main: one\none: {PASS}\ntwo: {PASS}\n", one="{}", two="reason: second\n")
    said, _ = command(home, "run", "--all", "--main", "-o", "json", code=0)
    assert [run["scenario"] for run in json.loads(said)["runs"]] == ["one"]


def test_a_batch_with_one_made_wrong_exits_1_and_says_which_and_how(tmp_path: Path) -> None:
    home = tiny.lay(tmp_path, "closes")
    wrong = PASS.replace("pass", "rejected", 1).replace("all-steps-passed", "explicit-latest")
    scenarios(home, f"main: good\ngood: {PASS}\nwrong: {wrong}\n", good="{}", wrong="{}")
    table, told = command(home, "run", "--all", code=1)
    assert "not as expected" in table
    assert "provenance_audit/wrong is not as expected: verdict: expected 'rejected', seen 'pass'" in told
    assert (
        "provenance_audit/wrong is not as expected: code: expected 'explicit-latest', seen 'all-steps-passed'" in told
    )
    assert "provenance_audit/good" not in told


def test_a_batch_with_one_that_cannot_be_run_exits_2_and_says_why(tmp_path: Path) -> None:
    home = tiny.lay(tmp_path, "closes")
    scenarios(home, f"main: good\ngood: {PASS}\nbad: {PASS}\n", good="{}", bad="reson: typo\n")
    said, told = command(home, "run", "--all", "-o", "json", code=2)
    answer = json.loads(said)
    assert answer["verdict"] == "error"
    held = {run["scenario"]: run["held"] for run in answer["runs"]}
    assert held == {"good": True, "bad": False}
    assert "Did you mean 'reason'" in told


@pytest.mark.parametrize(
    ("expect", "files", "says"),
    [
        (f"main: one\none: {PASS}\n", {"one": "", "extra": ""}, "'extra' has no expectation"),
        (f"main: one\none: {PASS}\nlost: {PASS}\n", {"one": ""}, "no lost.yaml beside it"),
        (f"one: {PASS}\n", {"one": ""}, "main: is None"),
    ],
)
def test_files_and_expectations_that_do_not_pair_run_nothing(tmp_path: Path, expect: str, files, says: str) -> None:
    home = tiny.lay(tmp_path, "closes")
    scenarios(home, expect, **files)
    _, told = command(home, "run", "--all", code=2)
    assert says in told
    assert not (home / "outputs").exists()


def test_a_scenario_whose_kernel_dies_is_not_taken_for_an_expected_unknown(tmp_path: Path) -> None:
    home = tiny.lay(tmp_path, "autokill")
    unknown = "{verdict: unknown, code: unreadable, cluster: false}"
    scenarios(home, f"main: one\none: {unknown}\n", one="{}")
    _, told = command(home, "run", "--all", code=1)
    assert "code: expected 'unreadable', seen 'died'" in told


def test_a_batch_told_to_stop_ends_its_runs_in_order(tmp_path: Path) -> None:
    home = tiny.lay(tmp_path, "sleep")
    scenarios(home, f"main: one\none: {PASS}\ntwo: {PASS}\n", one="{}", two="{}")
    process = tiny.gpurunbook(home, "run", "--all", "--jobs", "1", "-o", "json")
    wait_for((home / "started").exists, process)
    process.send_signal(signal.SIGTERM)
    said, told = process.communicate(timeout=SECONDS)
    assert process.returncode == 2
    first, second = json.loads(said)["runs"]
    assert (first["seen"]["verdict"], first["seen"]["code"]) == ("unknown", "died")
    assert first["evidence"] == "sealed"
    assert second["run"] is None
    assert "provenance_audit/two could not be run: not run: the driver was stopped by SIGTERM" in told
    assert verify(tiny.the_run(home)).run_verdict == "unknown"


def test_a_worker_that_dies_is_trouble_of_its_scenario_alone(tmp_path: Path, monkeypatch) -> None:
    home = tiny.lay(tmp_path, "closes")
    scenarios(home, f"main: good\ngood: {PASS}\nbad: {PASS}\n", good="{}", bad="{}")

    def dying(scenario, *rest):
        import os

        if scenario.name == "bad":
            print("last words", flush=True)
            os._exit(7)
        return work(scenario, *rest)

    work = batch._work
    monkeypatch.setattr(batch, "_work", dying)
    monkeypatch.chdir(home)
    bad, good = batch.run_all(batch.in_home(home), home=home, out=home / "outputs")
    assert (bad.exit, good.exit) == (2, 0)
    assert "its process ended with 7" in bad.trouble


def serving(folder: Path) -> list[int]:
    """Processes whose command line names the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if os.fsencode(folder) in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def test_embedded_servers_end_with_the_batch_and_leave_nothing(tmp_path: Path) -> None:
    home = tiny.lay(tmp_path, "closes")
    shutil.copytree(CLUSTERS / "small", home / "parameters" / "clusters" / "small")
    live = 'pod_json: ""\ncluster: "embedded:clusters/small"\n'
    scenarios(home, f"main: one\none: {PASS}\ntwo: {PASS}\n", one=live, two=live)
    command(home, "run", "--all", code=0)
    assert list((home / "outputs" / ".clusters").iterdir()) == []
    assert serving(home / "outputs") == []
    rows = [index.row(path.parent) for path in (home / "outputs").glob("*/run.json")]
    assert [row.cluster for row in rows] == ["embedded:clusters/small"] * 2


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.add(tag)
        self.links += [value for name, value in attrs if name in {"href", "src"}]


def test_the_page_has_no_script_and_only_links_that_are_there(tmp_path: Path) -> None:
    home = tiny.lay(tmp_path, "closes")
    command(home, "run", "provenance_audit", "--run-id", "sealed-one", code=0)
    command(home, "new", "provenance_audit", "--run-id", "open-one", code=0)
    path = index.write(home / "outputs")
    page = _Page()
    page.feed(path.read_text())
    assert "script" not in page.tags
    assert page.links
    for link in page.links:
        assert not re.match(r"[a-z]+:|/", link)
        assert (path.parent / link).is_file(), link
    rows = {row.run: row for row in map(index.row, [home / "outputs" / "sealed-one", home / "outputs" / "open-one"])}
    assert (rows["sealed-one"].verdict, rows["sealed-one"].evidence) == ("pass", "sealed")
    assert rows["sealed-one"].rehearsal
    assert rows["sealed-one"].seconds is not None
    assert (rows["open-one"].verdict, rows["open-one"].code, rows["open-one"].evidence) == (
        "unknown",
        "not-started",
        "unsealed",
    )


@pytest.mark.parametrize("name", ["journal.jsonl", "verdict.json"])
def test_the_page_does_not_call_a_run_sealed_that_went_on_or_was_changed(tmp_path: Path, name: str) -> None:
    home = tiny.lay(tmp_path, "closes")
    command(home, "run", "provenance_audit", "--run-id", "one", code=0)
    path = home / "outputs" / "one" / name
    path.write_bytes(path.read_bytes().replace(b'"pass"', b'"planned"'))
    row = index.row(path.parent)
    assert row.evidence == "unsealed"
    if name == "journal.jsonl":
        assert (row.verdict, row.code) == ("unknown", "journal-broken")


def test_the_page_does_not_take_the_verdict_from_a_manifest_that_was_changed(tmp_path: Path) -> None:
    home = tiny.lay(tmp_path, "closes")
    (home / "pods.json").write_text("{}")
    command(home, "run", "provenance_audit", "--run-id", "one", code=2)
    assert (index.row(home / "outputs" / "one").verdict, index.row(home / "outputs" / "one").evidence) == (
        "unknown",
        "sealed",
    )
    path = home / "outputs" / "one" / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"verdict": "unknown"', b'"verdict": "pass"'))
    row = index.row(path.parent)
    assert (row.verdict, row.evidence) == ("unknown", "unsealed")


def test_a_folder_that_is_odd_and_a_page_that_cannot_be_written_leave_a_run_its_answer(tmp_path: Path) -> None:
    home = tiny.lay(tmp_path, "closes")
    odd = home / "outputs" / "odd"
    odd.mkdir(parents=True)
    (odd / "run.json").write_text(json.dumps({"run": "odd", "runbook": "x", "home": str(home)}))
    journal = Journal.open(odd / "journal.jsonl")
    journal.append("start", {"run": "odd", "runbook": "x", "cluster": "prod"})
    journal.append("close", {"verdict": "deferred", "code": "x"})
    command(home, "run", "provenance_audit", "--run-id", "one", code=0)
    row = index.row(odd)
    assert (row.verdict, row.code, row.evidence) == ("unknown", "journal", "unsealed")
    (home / "outputs" / "index.html").unlink()
    (home / "outputs" / "index.html").mkdir()
    out, told = command(home, "run", "provenance_audit", "--run-id", "two", code=0)
    assert "pass" in out
    assert "cannot be written" in told


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"null", b"[]", b"{}", b"[" * 100_000, b'{"a":' * 50_000, b"9" * 5000, b"\xff"),
        *(
            json.dumps({"run": "one", "home": "/", "runbook": name}).encode()
            for name in ("../../x", "a/b", "", "x" * 500, "\0", "\ud800", ".hidden")
        ),
    ],
    ids=lambda raw: raw[:60].decode(errors="replace"),
)
def test_a_record_that_is_none_or_leads_out_of_its_folder_is_left_out(tmp_path: Path, content: bytes) -> None:
    for name in ("odd", "good"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_bytes(json.dumps({"run": name, "home": "/", "runbook": "x"}).encode())
    (tmp_path / "odd" / "run.json").write_bytes(content)
    with pytest.raises(InputError):
        workspace.record(tmp_path / "odd")
    assert "<small>good</small>" in index.write(tmp_path).read_text()
    (tmp_path / "good" / "manifest.json").write_bytes(content)
    assert index.row(tmp_path / "good").evidence == "unsealed"


def test_a_run_whose_cluster_was_not_identified_is_marked_as_a_rehearsal(tmp_path: Path) -> None:
    home = tiny.lay(tmp_path, "closes")
    command(home, "new", "provenance_audit", "--run-id", "open-one", code=0)
    assert index.row(home / "outputs" / "open-one").rehearsal


def test_hostile_text_is_harmless_on_the_page(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>\x1b[31m\"'"
    row = index.Row(hostile, hostile, hostile, hostile, hostile, hostile, False, hostile, 1.0, hostile, ("a.html",))
    page = index.page([row])
    assert "<script" not in page
    assert "\x1b" not in page
