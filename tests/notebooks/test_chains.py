"""Scenarios that change a cluster: the runs of a chain, and what `run --all` makes of them.

Covered: dry run, approval and apply of one scenario; an earlier scenario on the same cluster; a second time; what
others do meanwhile; a chain that ends where a run is not as expected; that a dry run which writes, and a request that
the embedded server does not know, are told; throw-away keys; the exit code and words of `run --all`; the page of runs;
what an on-call reads of a dry run and of a cordon lost.
Not covered: each scenario by itself (test_scenario_runs.py), the real control plane (tests/cluster/test_scenarios.py).
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_engine_batch import command

from gpurunbook.errors import InputError
from gpurunbook.evidence import index
from gpurunbook.evidence.verify import verify
from gpurunbook.findings import Verdict
from gpurunbook.headless import chain, fixture, throwaway
from gpurunbook.headless.chain import Chain, Link
from gpurunbook.headless.execute import Outcome
from gpurunbook.headless.expectation import Deed, scenarios
from gpurunbook.journal import read
from gpurunbook.runbook.site import Site, load
from gpurunbook.sources import embedded

ROOT = Path(__file__).parents[2]
CORDON = {"node": "gpu-0000", "change_id": "CHG-1", "reason": "drill", "hold_seconds": 0, "apply": True}
OK = {"verdict": "pass", "code": "all-steps-passed", "step": "close", "mutations": 3, "cluster": False}
LEFT = {"left_behind": ["Node gpu-0000: cordon"]}
APPROVAL = "parameters/site-approval.yaml"


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GPURUNBOOK_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home with the runbook node_cordon and its clusters, and no scenario yet."""
    made = tmp_path / "home"
    (made / "runbooks").mkdir(parents=True)
    (made / "parameters" / "node_cordon").mkdir(parents=True)
    shutil.copy(ROOT / "runbooks" / "node_cordon.ipynb", made / "runbooks")
    shutil.copy(ROOT / APPROVAL, made / "parameters")
    for name in ("small", "cordon-tolerated", "cordon-held", "cordon-landed"):
        shutil.copytree(ROOT / "parameters" / "clusters" / name, made / "parameters" / "clusters" / name)
    clusters = made / "outputs" / ".clusters"
    monkeypatch.setenv("GPURUNBOOK_CLUSTERS", str(clusters))
    yield made
    fixture.stop(clusters)


def lay(home: Path, **given: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Scenarios: name (`_` for `-`), parameters and expectation; the first is the main one."""
    folder = home / "parameters" / "node_cordon"
    names = {name: name.replace("_", "-") for name in given}
    for name, (values, _) in given.items():
        text = {"cluster": "embedded:clusters/cordon-tolerated", **CORDON, **values}
        (folder / f"{names[name]}.yaml").write_text(yaml.safe_dump(text))
    table = {"main": next(iter(names.values())), **{names[name]: wanted for name, (_, wanted) in given.items()}}
    (folder / "expect.yaml").write_text(json.dumps(table))


def run(home: Path, name: str) -> list[Link]:
    (one,) = [s for s in scenarios(home, "node_cordon") if s.name == name]
    out = home / "outputs"
    return Chain(one, home=home, out=out, clusters=out / ".clusters", cell_seconds=300).run()


def records(link: Link, event: str) -> list[dict[str, Any]]:
    return [r["data"] for r in read(link.outcome.run_dir / "journal.jsonl") if r["event"] == event]


def test_an_apply_stands_on_its_own_dry_run_and_its_own_approval(home: Path) -> None:
    lay(home, one=({"site": APPROVAL}, OK | LEFT))
    dry, last = run(home, "one")
    assert (dry.what, last.what) == ("dry run", "")
    assert (*dry.missed, *last.missed) == ()
    (authorised,) = records(last, "authorised")
    assert (authorised["dry_run"], authorised["approver"]) == (dry.outcome.run_dir.name, "approver")
    (started,) = records(last, "start")
    assert started["parameters"]["plan"] == records(dry, "close")[-1]["plan"]
    assert started["parameters"]["expect_cluster"] == records(dry, "cluster")[-1]["cluster"]["uid"]
    pages = [(link.outcome.run_dir / "node_cordon.html").read_text() for link in (dry, last)]
    assert ["<div>Next:" in page for page in pages] == [True, False], "a sealed pass needs nothing more"
    for link in (dry, last):
        assert verify(link.outcome.run_dir).verdict == "consistent"
        assert not link.outcome.run_dir.joinpath("approval.json").exists() or link is dry


def test_runs_of_an_earlier_scenario_come_first_on_the_same_cluster(home: Path) -> None:
    lay(home, cordon=({}, OK | LEFT), release=({"action": "release"}, OK | {"after": "cordon"}))
    links = run(home, "release")
    assert [link.what for link in links] == ["cordon, dry run", "cordon", "dry run", ""]
    assert [line for link in links for line in link.missed] == []
    cordon, release = links[1], links[3]
    (done,) = [r for r in records(release, "judged") if r["step"] == "mark"]
    assert cordon.outcome.run_dir.name in json.dumps(done["findings"])
    rows = [index.row(link.outcome.run_dir).scenario for link in links]
    assert rows == ["release: cordon, dry run", "release: cordon", "release: dry run", "release"]


def test_a_second_time_goes_on_with_the_same_run_and_sends_nothing(home: Path) -> None:
    lay(home, one=({}, OK | LEFT | {"again": True}))
    _, first, last = run(home, "one")
    assert first.outcome.run_dir == last.outcome.run_dir
    assert (first.what, *first.missed, *last.missed) == ("first time",)
    assert len(records(last, "start")) == len(records(last, "resume")) == 1
    names = [intent["name"] for intent in records(last, "intent")]
    assert names == ["lease", "cordon", "lease-back"]


def test_what_others_do_comes_between_dry_run_and_apply(home: Path) -> None:
    taken = {"path": "/api/v1/nodes/gpu-0000", "merge": {"spec": {"unschedulable": True}}}
    wanted = {"verdict": "blocked", "code": "cordon-of-another", "step": "whose", "cluster": False}
    lay(home, one=({}, wanted | {"meanwhile": [taken]}))
    dry, last = run(home, "one")
    assert (*dry.missed, *last.missed) == ()
    assert (dry.outcome.verdict, last.outcome.code) == ("planned", "cordon-of-another")


def test_what_others_cannot_do_is_no_answer_of_the_scenario(home: Path) -> None:
    wrong = {"path": "/api/v1/nodes/gpu-0815", "merge": {"spec": {"unschedulable": True}}}
    lay(home, one=({}, OK | LEFT | {"meanwhile": [wrong]}))
    with pytest.raises(InputError, match=r"meanwhile: .*gpu-0815.* refused: 404"):
        run(home, "one")


def test_a_dry_run_that_is_not_as_expected_ends_the_chain(home: Path) -> None:
    held = {"cluster": "embedded:clusters/cordon-held", "node": "gpu-resource"}
    wanted = {"verdict": "blocked", "code": "gpu-held", "step": "holders", "cluster": False}
    lay(home, one=(held, wanted), later=({**held, "action": "release"}, OK | {"after": "one"}))
    (only,) = run(home, "one")
    assert only.missed == (
        "dry run: verdict: expected 'planned', seen 'blocked'",
        "dry run: code: expected 'planned', seen 'gpu-held'",
        "dry run: step: expected 'close', seen 'holders'",
    )
    (first,) = run(home, "later")
    assert first.missed[0].startswith("one, dry run: verdict")


def test_a_run_that_came_to_nothing_and_says_no_word_is_trouble(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = Outcome(home, "node_cordon", Verdict.UNKNOWN, "not-closed", "", "", "", "unsealed")
    monkeypatch.setattr(chain.execute, "run", lambda *_, **__: silent)
    lay(home, one=({"apply": False}, OK))
    (only,) = run(home, "one")
    assert (only.missed, only.trouble) == ((), "not-closed")


def test_what_the_scenario_gives_wins_over_the_dry_run(home: Path) -> None:
    blocked = {"verdict": "blocked", "step": "start", "cluster": False}
    lay(home, one=({"expect_cluster": "00000000-0000-4000-8000-000000000000"}, blocked | {"code": "wrong-cluster"}))
    dry, last = run(home, "one")
    assert (*dry.missed, *last.missed) == ()
    assert records(dry, "start")[0]["parameters"]["expect_cluster"] == ""


@pytest.mark.parametrize(
    ("requests", "applied", "told"),
    [
        ([{"method": "PATCH", "path": "/n", "persisted": True}], False, ["a dry run wrote: PATCH /n"]),
        ([{"method": "PATCH", "path": "/n", "persisted": True}], True, []),
        ([{"method": "PATCH", "path": "/n", "persisted": False}], False, []),
        (
            [{"method": "GET", "path": "/n", "persisted": False, "unsupported": "GET of a Table"}],
            True,
            ["the embedded server does not know: GET of a Table"],
        ),
    ],
)
def test_what_a_run_must_never_send_is_told(requests: list[dict[str, Any]], applied: bool, told: list[str]) -> None:
    assert chain._against(requests, applied=applied) == told


def test_the_servers_own_log_tells_what_was_written_and_by_whom(home: Path) -> None:
    clusters = home / "outputs" / ".clusters"
    server = fixture.Fixture(clusters)
    assert server.news() == []
    embedded.serve("clusters/cordon-landed", home=home, clusters=clusters)
    server.news()
    server.do(Deed(path="/api/v1/nodes/gpu-0000", merge={"metadata": {"labels": {"a": "b"}}}))
    (written,) = [r for r in server.news() if r["persisted"]]
    assert (written["method"], written["path"], written["actor"]) == ("PATCH", "/api/v1/nodes/gpu-0000", False)
    server.do(Deed(path="/api/v1/nodes/gpu-0000", merge={"spec": {"unschedulable": True}}))
    ours = [r["user"] for r in server.news() if r["persisted"]]
    assert len(ours) == 1, "what the actors of this cluster do is not a run's"


def test_keys_are_made_once_and_beside_no_real_signers(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "parameters", tmp_path / "parameters", ignore=lambda _, names: {"clusters"} & {*names})
    site = load(tmp_path, APPROVAL)
    made = throwaway.key(tmp_path, site, "approver")
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    before, signers = made.read_bytes(), (tmp_path / site.signers).read_text()
    assert throwaway.key(tmp_path, site, "approver").read_bytes() == before
    stranger = throwaway.key(tmp_path, site, "stranger")
    assert (tmp_path / site.signers).read_text() == signers
    assert [line.split()[0] for line in signers.splitlines()] == ["approver", "operator"]
    assert stranger.with_suffix(".pub").read_text().split()[1] not in signers
    with pytest.raises(InputError, match="no principal"):
        throwaway.key(tmp_path, site, "somebody")
    real = Site(signers="parameters/allowed_signers", principals={"a": "approver"})
    with pytest.raises(InputError, match="throw-away keys"):
        throwaway.key(tmp_path, real, "approver")
    assert not (tmp_path / "parameters" / "approver").exists()


def test_a_batch_says_which_expectation_of_a_chain_does_not_hold(home: Path) -> None:
    lay(
        home,
        good=({}, OK | LEFT),
        wrong=({}, OK | LEFT | {"mutations": 4}),
        early=({"node": "gpu-0815"}, {"verdict": "unknown", "code": "node-unreadable", "cluster": False}),
    )
    said, told = command(home, "run", "--all", "-o", "json", code=1)
    runs = {entry["scenario"]: entry for entry in json.loads(said)["runs"]}
    assert {name: entry["held"] for name, entry in runs.items()} == {"good": True, "wrong": False, "early": False}
    assert "node_cordon/wrong is not as expected: mutations: expected 4, seen 3" in told
    assert "node_cordon/early is not as expected: dry run: verdict: expected 'planned', seen 'unknown'" in told
    assert "good" not in told
    assert [link["what"] for link in runs["good"]["chain"]] == ["dry run", ""]
    assert runs["good"]["run"] == runs["good"]["chain"][-1]["run"]
    page = (home / "outputs" / "index.html").read_text()
    for entry in runs.values():
        assert all(link["run"] in page for link in entry["chain"])


def test_a_batch_whose_expectations_all_hold_exits_0(home: Path) -> None:
    lay(home, one=({}, OK | LEFT))
    table, told = command(home, "run", "--all", code=0)
    assert told == ""
    (row,) = [line.split() for line in table.splitlines() if line.split()[:1] == ["node_cordon"]]
    assert row[:8] == ["node_cordon", "one", "pass", "✓", "pass", "all-steps-passed", "sealed", "2"]


def test_an_on_call_reads_what_will_be_written_and_what_came_while_the_cordon_was_lost(home: Path) -> None:
    landed = {"cluster": "embedded:clusters/cordon-landed", "hold_seconds": 3}
    left = ["Lease gpurunbook-node-gpu-0000", "Node gpu-0000: cordon by"]
    wanted = {"verdict": "failed", "code": "gpu-held", "step": "settled", "mutations": 3, "cluster": False}
    lay(home, one=(landed, wanted | {"left_behind": left}))
    dry, last = run(home, "one")
    assert (*dry.missed, *last.missed) == ()
    page = (dry.outcome.run_dir / "node_cordon.html").read_text()
    for line in ("add /spec/unschedulable = true", "only while 4 fields are as judged", "To apply this plan"):
        assert line in page
    page = (last.outcome.run_dir / "node_cordon.html").read_text()
    for word in ("cordon-lost", "spec.unschedulable is gone", "Pod/landed-", "there is nothing to undo"):
        assert word in page
    (told,) = [r for r in records(last, "judged") if r["step"] == "settled"]
    assert (told["passed"], told["status"]) == (False, "fail")
    assert [f["code"] for f in told["findings"]] == ["cordon-lost", "gpu-held"]
