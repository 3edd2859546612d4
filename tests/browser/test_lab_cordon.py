"""A node is cordoned in JupyterLab as on-call does it: dry run, approval, apply, a kernel that is restarted in a wait.

The cluster is one where a manager is busy with the node, and the driver manager takes the cordon away once: the wait
goes on until the manager has settled, which is when the test says so.
Covered: parameters typed into a working copy; the lines to copy at the end of the dry run; another person's signature;
what the wait says; that the run goes on, sends nothing twice and comes to pass; its evidence; text as it stands.
Not covered: kernels killed without an interrupt (tests/sweep), other ways to lose a cordon (test_runs_standing.py).
"""

from __future__ import annotations

import ast
import contextlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from gpurunbook.headless import throwaway
from gpurunbook.journal import read
from gpurunbook.runbook import site
from tests.browser.notebook_page import Lab, Notebook, events, picture

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

CLUSTER = "cordon-busy"
PAUSED = "nvidia.com/gpu.deploy.dcgm-exporter"
FIXTURE = f"""\
base: ../cordon-tolerated
patches:
  - target: Node/gpu-0000
    merge: {{metadata: {{labels: {{{PAUSED}: paused-for-driver-upgrade}}}}}}
actors:
  - {{name: fights-cordon, parameters: {{node: gpu-0000, times: 1, delay: 0.3}}}}
"""
TYPED = f"""\
cluster = "embedded:clusters/{CLUSTER}"
change_id = "CHG-2041"
reason = "XID 79 on GPU 3, the vendor swaps the board"
site = "parameters/site-approval.yaml"
node = "gpu-0000"
"""
NODE = "/api/v1/nodes/gpu-0000"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/gpu-operator/leases"
CHECKS = ("whose", "holders", "capacity", "daemonsets", "hands")


@dataclass(frozen=True)
class Planned:
    """A dry run in JupyterLab. verdict, lines: as its last cell shows them; asked: how many requests there were."""

    folder: Path
    verdict: str
    lines: str
    mark: str
    asked: int


@dataclass(frozen=True)
class Applied:
    """The apply. waited, again: what its wait said before and after the kernel was restarted; resumed: its new head."""

    folder: Path
    notebook: Notebook
    waited: str
    resumed: str
    again: str
    verdict: str


@pytest.fixture(scope="module")
def planned(workbench: Page, lab: Lab) -> Planned:
    """Types the parameters into a new working copy and runs every cell."""
    cluster = lab.home / "parameters" / "clusters" / CLUSTER
    cluster.mkdir()
    (cluster / "cluster.yaml").write_text(FIXTURE)
    folder = lab.new("cordon-dry", runbook="node_cordon")
    notebook = Notebook(workbench, lab, folder / "node_cordon.ipynb")
    notebook.append("parameters", TYPED)
    notebook.run("parameters", "start", *CHECKS, "mark", "settled", "again")
    cell = notebook.run("close")
    picture(workbench, "lab-cordon.png", 1000, notebook.cell("again"))
    mark = notebook.cell("mark").locator(".jp-OutputArea").inner_text()
    lines = cell.locator(".rb-value-paste").inner_text()
    verdict = cell.locator(".rb-value-verdict .rb-word").inner_text()
    return Planned(folder, verdict, lines, mark, len(lab.requests(CLUSTER)))


@pytest.fixture(scope="module")
def applied(workbench: Page, lab: Lab, planned: Planned) -> Applied:
    """Has the plan signed, pastes the lines into another working copy, and restarts the kernel while it waits."""
    with contextlib.chdir(lab.home):
        key = throwaway.key(lab.home, site.load(lab.home, "parameters/site-approval.yaml"), "approver")
    words = ("--key", str(key), "--change-id", "CHG-2041", "--expires", "1h")
    signed = lab.gpurunbook("approve", f"outputs/{planned.folder.name}", *words)
    assert signed.returncode == 0, signed.stderr
    folder = lab.new("cordon-apply", runbook="node_cordon")
    notebook = Notebook(workbench, lab, folder / "node_cordon.ipynb")
    notebook.append("parameters", planned.lines)
    notebook.run("parameters", "start", *CHECKS, "mark")
    waited = waiting(notebook)
    notebook.restart()
    head = notebook.run("parameters", "start")
    resumed = head.locator(".rb-value-resumed").inner_text()
    again = waiting(notebook)
    lab.ask(CLUSTER, NODE, merge={"metadata": {"labels": {PAUSED: "true"}}})
    notebook.end()
    notebook.run("again")
    verdict = notebook.run("close").locator(".rb-value-verdict .rb-word").inner_text()
    notebook.save()
    return Applied(folder, notebook, waited, resumed, again, verdict)


def waiting(notebook: Notebook) -> str:
    """Begins the wait. Its line, once it has been replaced in its place."""
    line = notebook.begin("settled").locator(".rb-line")
    expect(line).to_contain_text(re.compile(r"made again when it has settled \(since [1-9][0-9]* s\)"))
    expect(line).to_have_count(1)
    return line.inner_text()


def intents(folder: Path) -> list[str]:
    """The mutations that a run was about to send, by name and in order."""
    return [r["data"]["name"] for r in read(folder / "journal.jsonl") if r["event"] == "intent"]


def written(requests: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """The requests of people that the server has carried out."""
    people = [r for r in requests if r["persisted"] and r["user"] == "oncall@example.com"]
    return [(r["method"], r["path"]) for r in people]


def test_a_dry_run_writes_nothing_and_ends_with_every_line_that_its_apply_needs(planned: Planned, lab: Lab) -> None:
    assert planned.verdict == "planned"
    requests = lab.requests(CLUSTER)[: planned.asked]
    assert written(requests) == []
    assert [r["path"] for r in requests if r["method"] == "PATCH"] == [NODE]  # validated by the server
    plan = read(planned.folder / "journal.jsonl")[-1]["data"]["plan"]
    uid = lab.ask(CLUSTER, "/api/v1/namespaces/kube-system")["metadata"]["uid"]
    needed = {"apply": True, "plan": plan, "expect_cluster": uid}
    assert assigned(planned.lines) == {**assigned(TYPED), **needed}


def assigned(lines: str) -> dict[str, Any]:
    """What a cell of plain assignments sets."""
    pairs = [line.split(" = ", 1) for line in lines.strip().splitlines()]
    return {name: ast.literal_eval(value) for name, value in pairs}


def test_what_is_to_be_written_is_shown_as_it_stands(planned: Planned) -> None:
    """JupyterLab typesets `$…$` in the HTML of outputs, where ours has `${run}`."""
    assert '"run": "${run}"' in planned.mark


def test_the_wait_says_what_is_missing_and_since_when(applied: Applied) -> None:
    for said in (applied.waited, applied.again):
        assert re.fullmatch(
            r"cordon of gpu-0000 to settle: waiting [0-9]+ of 123 s for all marks of this run: spec\.unschedulable is "
            r"gone, our taint still stands; a manager is changing the node, and the cordon is made again when it has "
            r"settled \(since [0-9]+ s\)",
            said,
        )


def test_the_apply_goes_on_after_its_kernel_was_restarted_in_the_wait(applied: Applied) -> None:
    assert applied.resumed == f"passed already: {', '.join(CHECKS)}, mark"
    assert applied.verdict == "pass"
    told = [entry for entry in events(applied.folder) if entry[0] in ("start", "step", "resume", "close")]
    before, after = told[: told.index(("resume", ""))], told[told.index(("resume", "")) :]
    steps = [("step", step) for step in (*CHECKS, "mark", "settled")]
    assert [entry for entry in before if entry[0] != "close"] == [("start", ""), *steps]
    assert after == [("resume", ""), ("step", "settled"), ("step", "again"), ("close", "close")]


def test_every_mutation_was_sent_once(applied: Applied, planned: Planned, lab: Lab) -> None:
    assert intents(applied.folder) == ["lease", "cordon", "cordon-again-1", "lease-back"]
    assert written(lab.requests(CLUSTER)[planned.asked :]) == [
        ("POST", LEASES),
        ("PATCH", NODE),
        ("PATCH", NODE),
        ("DELETE", f"{LEASES}/gpurunbook-node-gpu-0000"),
    ]


def test_the_node_is_cordoned_and_says_by_which_run(applied: Applied, lab: Lab) -> None:
    node = lab.ask(CLUSTER, NODE)
    assert node["spec"]["unschedulable"] is True
    assert {"key": "gpurunbook.io/cordon", "effect": "NoSchedule"} in node["spec"]["taints"]
    owner = json.loads(node["metadata"]["annotations"]["gpurunbook.io/cordon"])
    assert (owner["run"], owner["change"], owner["step"]) == (applied.folder.name, "CHG-2041", "mark")
    granted = next(r["data"] for r in read(applied.folder / "journal.jsonl") if r["event"] == "authorised")
    assert (owner["plan"], granted["approver"]) == (granted["plan"], "approver")


def test_the_run_is_sealed_verifies_and_is_not_saved_again(applied: Applied, lab: Lab) -> None:
    sealed = lab.seal(applied.folder)
    assert (sealed["verdict"], sealed["evidence"], sealed["lowered"]) == ("pass", "sealed", [])
    assert {entry["cell"] for entry in sealed["anomalies"]} == {"settled"}  # it was run by the second kernel
    assert lab.verified(applied.folder) == ("consistent", [])
    applied.notebook.append("close", "# read again")
    assert f"run {applied.folder.name} is sealed" in applied.notebook.refused()
    assert lab.verified(applied.folder) == ("consistent", [])
