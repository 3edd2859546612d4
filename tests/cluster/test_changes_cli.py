"""The commands around changes: approve, leftovers, release, adopt, abort, resume.

Covered: what each prints and answers, hostile text, what they refuse before a kernel starts; and one chain on real
notebooks: a run dies, its leftovers are found, `resume` goes on with it, `release` and `abort` undo it.
Not covered: what a release or an adoption judges (test_runs.py, test_runs_standing.py), the commands in Lab.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import runs
from click.testing import CliRunner, Result
from embedded_server import Embedded, stop
from runs import Lab, finish, marks, owner

from gpurunbook.cli import group
from gpurunbook.errors import InputError, ParameterError
from gpurunbook.folder import keep, workspace
from gpurunbook.journal import Journal, read, replay
from gpurunbook.nodes import cordon
from gpurunbook.pointers import fill
from gpurunbook.runbook import approval, lease, plans
from gpurunbook.runbook.site import Site

NOTEBOOKS = Path(__file__).parents[2] / "runbooks"
NEEDED = "--set change_id=… --set reason=…"
WHOLE, NONE = (True, True, True), (False, False, False)


pytestmark = pytest.mark.usefixtures("entered")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with runs.lab(tmp_path_factory.mktemp("commands"), nodes=60) as made:
        for notebook in NOTEBOOKS.glob("*.ipynb"):
            shutil.copy(notebook, made.home / "runbooks")
        yield made


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(folder / "lead")], check=True)
    public = (folder / "lead.pub").read_text()
    (folder / "signers").write_text(f"lead {public}oncall cert-authority {public}")
    return folder


def command(*given: str) -> Result:
    return CliRunner().invoke(group, list(given), standalone_mode=False, catch_exceptions=False)


def answer(*given: str) -> tuple[int, dict[str, Any]]:
    result = command(*given, "-o", "json")
    return int(result.return_value), json.loads(result.stdout)


# -- approve ---------------------------------------------------------------------------------------------------------


def dry_run(lab: Lab) -> tuple[Path, str]:
    values = lab.planned(lab.node())
    return runs.only(lab.out), values["plan"]


@pytest.mark.parametrize("named", ["folder", "file", "id"])
def test_a_plan_is_told_and_signed_beside_it(lab: Lab, keys: Path, named: str) -> None:
    folder, plan = dry_run(lab)
    given = {"folder": folder, "file": folder / plans.NAME, "id": folder.name}[named]
    result = command("approve", str(given), "--key", str(keys / "lead"), "--change-id", "CHG-7")
    assert result.return_value == 0
    node = json.loads((folder / plans.NAME).read_bytes())["steps"][0]["mutations"][0]["target"]["name"]
    for line in (
        f"plan {plan}",
        f"cluster {lab.uid}",
        f"mark: patch Node {node}",
        "  add /spec/unschedulable = true",
        "change CHG-7",
        "reason a fan is broken",
        str(folder / approval.NAME),
    ):
        assert line in result.output.splitlines()
    site = Site(signers=str(keys / "signers"), principals={"o": "oncall"})
    approver, until = approval.judge(
        folder / approval.NAME,
        site=site,
        home=lab.home,
        operator="o",
        change_id="CHG-7",
        plan=plan,
        now=datetime.now(UTC),
    )
    assert approver == "lead"
    left = datetime.strptime(until, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC) - datetime.now(UTC)
    assert timedelta(hours=3, minutes=30) < left <= timedelta(hours=4)


@pytest.mark.parametrize("reason", ["", "…"])
def test_a_reason_that_is_still_to_be_filled_in_is_told_as_not_given(lab: Lab, keys: Path, reason: str) -> None:
    lab.planned(lab.node(), reason=reason)
    given = ("--key", str(keys / "lead"), "--change-id", "CHG-7")
    assert "reason not given yet" in command("approve", str(runs.only(lab.out)), *given).output.splitlines()


def test_an_approval_of_another_change_than_the_runs_own_is_not_signed(lab: Lab, keys: Path) -> None:
    folder, _ = dry_run(lab)
    with pytest.raises(InputError, match="made for change 'CHG-7', and you approve 'CHG-8'"):
        command("approve", str(folder), "--key", str(keys / "lead"), "--change-id", "CHG-8")
    assert not (folder / approval.NAME).exists()


def test_an_approval_that_is_there_is_replaced_only_when_that_is_asked_for(lab: Lab, keys: Path) -> None:
    folder, _ = dry_run(lab)
    given = ["approve", str(folder), "--key", str(keys / "lead"), "--change-id", "CHG-7"]
    command(*given)
    first = (folder / approval.NAME).read_bytes()
    with pytest.raises(InputError, match="an approval is there already, and nothing was signed"):
        command(*given, "--expires=2d")
    assert (folder / approval.NAME).read_bytes() == first
    assert command(*given, "--expires=2d", "--replace").return_value == 0
    assert (folder / approval.NAME).read_bytes() != first


def test_a_plan_without_its_run_is_not_signed(lab: Lab, keys: Path, tmp_path: Path) -> None:
    folder, _ = dry_run(lab)
    shutil.copy(folder / plans.NAME, tmp_path)
    with pytest.raises(InputError, match="no journal of its run lies beside it"):
        command("approve", str(tmp_path / plans.NAME), "--key", str(keys / "lead"), "--change-id", "CHG-7")
    assert not (tmp_path / approval.NAME).exists()


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b"7", b'{"steps":7}', b'{"steps":[{}]}', b"[" * 100_000])
def test_what_is_no_plan_is_not_signed(keys: Path, tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / plans.NAME
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError):
        command("approve", str(tmp_path), "--key", str(keys / "lead"), "--change-id", "CHG-7")
    assert not (tmp_path / approval.NAME).exists()


@pytest.mark.parametrize(
    "expires", ["soon", "4", "-4h", "4w", "2026-01-31", "2020-01-01T00:00:00Z", "0m", "99999d", "٤h"]
)
def test_an_expiry_that_is_none_or_over_is_not_signed(lab: Lab, keys: Path, expires: str) -> None:
    folder, _ = dry_run(lab)
    with pytest.raises(Exception, match="wanted 30m, 4h, 2d") as refused:
        command("approve", str(folder), "--key", str(keys / "lead"), "--change-id", "CHG-7", f"--expires={expires}")
    assert type(refused.value).__name__ == "BadParameter"
    assert not (folder / approval.NAME).exists()


@pytest.mark.parametrize("change_id", ["", " ", "CHG 7", '"}', "x" * 65])
def test_a_change_id_that_no_apply_can_have_is_not_signed(lab: Lab, keys: Path, change_id: str) -> None:
    folder, _ = dry_run(lab)
    with pytest.raises(Exception, match="change id"):
        command("approve", str(folder), "--key", str(keys / "lead"), f"--change-id={change_id}")
    assert not (folder / approval.NAME).exists()


def test_hostile_names_in_a_plan_are_harmless_on_the_terminal(lab: Lab, keys: Path) -> None:
    folder, _ = dry_run(lab)
    path = folder / plans.NAME
    document = json.loads(path.read_bytes())
    document["cluster"] = "\x1b]0;title\x07"
    document["steps"][0]["step"] = "mark\r\x1b[2Knothing"
    path.write_text(json.dumps(document))
    result = command("approve", str(folder), "--key", str(keys / "lead"), "--change-id", "CHG-7")
    assert not set("\x1b\x07\r") & set(result.output)


# -- leftovers -------------------------------------------------------------------------------------------------------


def test_leftovers_lists_cordons_and_leases_with_their_runs(lab: Lab) -> None:
    node, free = lab.node(), lab.node()
    run = lab.cordon(node, **lab.planned(node))
    finish(run, until="mark")
    code, said = answer("leftovers")
    assert (code, said["verdict"], said["problems"]) == (0, "pass", [])
    mine = [left for left in said["leftovers"] if left["target"] == f"node/{node}"]
    assert [(left["kind"], left["run"], left["state"]) for left in mine] == [
        ("cordon", run.id, "unschedulable and taint"),
        ("lease", run.id, "held"),
    ]
    assert not [left for left in said["leftovers"] if left["target"] == f"node/{free}"]
    text = command("leftovers").output
    taken = f"--set take_over={run.id}"  # its lease is still held, so that whoever goes on must name it
    assert f"gpurunbook release {node} {taken} {NEEDED}, or gpurunbook adopt {node} {taken} {NEEDED}" in text
    assert f"gpurunbook abort {run.id} {NEEDED}" in text


def test_leftovers_that_cannot_be_listed_are_never_nothing(lab: Lab) -> None:
    lab.arm({"path": "/api/v1/nodes"}, {"status": 403}, times=0)
    code, said = answer("leftovers")
    assert (code, said["verdict"]) == (2, "unknown")
    assert "HTTP 403" in said["problems"][0]
    result = CliRunner().invoke(group, ["leftovers"], standalone_mode=False, catch_exceptions=False)
    assert "could not be listed: GET /api/v1/nodes: HTTP 403" in result.stderr
    assert "nothing is left" not in result.stdout


def test_hostile_marks_are_harmless_on_the_terminal(lab: Lab) -> None:
    node = lab.node()
    value = cordon.ownership(
        run="\x1b[31m$(reboot)", runbook="x", step="x", change="x", plan="x", head="x", time="\x1b]0;x\x07"
    )
    lab.change(node, {"metadata": {"annotations": {cordon.ANNOTATION: value}}})
    text = command("leftovers").output
    assert "look at the node by hand" in text
    assert not set("\x1b\x07") & set(text)
    lab.change(node, {"metadata": {"annotations": {cordon.ANNOTATION: None}}})


# -- what needs no kernel ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_id", [True, False])
def test_abort_of_a_run_that_left_nothing_says_so(lab: Lab, by_id: bool) -> None:
    folder, _ = dry_run(lab)
    result = command("abort", folder.name if by_id else f"{folder}/")
    assert (result.return_value, result.output) == (0, f"run {folder.name} left nothing in cluster oncall@many\n")


def test_abort_of_a_run_that_nobody_knows_is_no_success(lab: Lab) -> None:
    with pytest.raises(InputError, match="no run of this id is known here, and nothing in cluster oncall@many is its"):
        command("abort", "r-unknown")


def test_abort_of_a_run_of_another_cluster_is_no_success(lab: Lab, tmp_path: Path) -> None:
    folder, _ = dry_run(lab)
    (tmp_path / folder.name).mkdir()
    shutil.copy(folder / "run.json", tmp_path / folder.name)
    journal = Journal.open(tmp_path / folder.name / "journal.jsonl")
    journal.append("cluster", {"cluster": {"name": "prod", "uid": "other", "version": None}})
    told = f"it worked on cluster prod with uid other, and oncall@many has {lab.uid}"
    with pytest.raises(InputError, match=told):
        command("abort", folder.name, "--out", str(tmp_path))


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    running = runs.seeded(tmp_path_factory.mktemp("elsewhere"), 3, name="elsewhere", uid="9" * 36)
    yield running
    stop(running.state)


def switched(lab: Lab, elsewhere: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another context is the current one; the run's own is there too."""
    monkeypatch.setenv("KUBECONFIG", runs.merged(lab.home / "both", elsewhere, lab.server))


@pytest.mark.parametrize("cut", [False, True])
def test_abort_goes_to_the_cluster_where_the_run_worked(
    lab: Lab, elsewhere: Embedded, monkeypatch: pytest.MonkeyPatch, cut: bool
) -> None:
    folder, _ = dry_run(lab)
    if cut:  # by the crash for which it is aborted
        (folder / "journal.jsonl").write_bytes((folder / "journal.jsonl").read_bytes()[:-1])
    switched(lab, elsewhere, monkeypatch)
    result = command("abort", folder.name)
    assert (result.return_value, result.output) == (0, f"run {folder.name} left nothing in cluster oncall@many\n")


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize(
    "words",
    [
        ("abort", "RUN"),
        ("release", "NODE", "--set=take_over=RUN"),
        ("adopt", "NODE", "--set=take_over=RUN"),
        ("abort", "RUN", "--parameters=FILE"),
        ("release", "NODE", "--parameters=FILE", "--set=take_over=RUN"),
    ],
    ids=" ".join,
)
def test_nothing_is_undone_or_taken_over_from_a_run_on_another_cluster_than_its_own(
    lab: Lab, elsewhere: Embedded, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...], gone: bool
) -> None:
    node = lab.node()
    run = lab.cordon(node, **lab.planned(node))
    finish(run, until="mark")
    file = tmp_path / "parameters.yaml"
    file.write_text(f"cluster: {'' if gone else 'oncall@elsewhere'}\n".replace(": \n", ": ''\n"))
    given = [w.replace("RUN", run.id).replace("NODE", node).replace("FILE", str(file)) for w in words]
    if gone:  # its context is in the kubeconfig no more
        monkeypatch.setenv("KUBECONFIG", str(elsewhere.state / "kubeconfig"))
    else:
        switched(lab, elsewhere, monkeypatch)
        given += [] if "--parameters=FILE" in words else ["--cluster=oncall@elsewhere"]
    before = set(lab.out.iterdir())
    told = f"it worked on cluster oncall@many with uid {lab.uid}, and oncall@elsewhere has {'9' * 36}"
    with pytest.raises(InputError, match=told):
        command(*given)
    assert set(lab.out.iterdir()) == before
    assert (owner(lab.seen(node)), marks(lab.seen(node))) == (run.id, WHOLE)


def test_abort_does_nothing_while_not_everything_could_be_listed(lab: Lab) -> None:
    lab.arm({"path": "/apis/coordination.k8s.io/v1/leases"}, {"status": 500}, times=0)
    with pytest.raises(InputError, match="not everything could be listed"):
        command("abort", "r1")


def test_abort_names_a_lease_that_it_cannot_undo(lab: Lab) -> None:
    body = {
        "metadata": {
            "name": "gpurunbook-cluster",
            "labels": {"gpurunbook.io/lease": "true"},
            "annotations": {"gpurunbook.io/target": "cluster"},
        },
        "spec": {"holderIdentity": "r-upgrade"},
    }
    lab.admin.call("POST", runs.LEASES, body)
    result = command("abort", "r-upgrade")
    assert result.return_value == 1
    assert "gpu-operator/gpurunbook-cluster" in result.output
    lab.admin.call("DELETE", f"{runs.LEASES}/gpurunbook-cluster")


def test_abort_lifts_no_cordon_of_another_run_for_a_lease_of_this_one(lab: Lab) -> None:
    node = lab.node()
    run = lab.applied(node)
    mutation = lease.acquire("gpu-operator", f"node/{node}")
    body = fill(mutation.body, {"run": "r-late", "reason": "x", "time": "2026-01-31T12:00:00.000000Z"})
    lab.admin.call("POST", mutation.target.path, body)
    before = set(lab.out.iterdir())
    result = command("abort", "r-late", "--set=max_out=999")
    assert (result.return_value, set(lab.out.iterdir())) == (1, before)
    assert f"not undone by this command: lease gpu-operator/gpurunbook-node-{node}" in result.output
    go_on = f"gpurunbook adopt {node} --set take_over=r-late"
    assert f"{go_on} {NEEDED}, which keeps the cordon" in command("leftovers").output
    assert f"{go_on} --cluster oncall@many {NEEDED}, which keeps the cordon" in result.stderr
    assert (owner(lab.seen(node)), marks(lab.seen(node))) == (run.id, WHOLE)
    lab.admin.call("DELETE", f"{mutation.target.path}/{mutation.target.name}")


@pytest.mark.parametrize("name", ["release", "adopt"])
@pytest.mark.parametrize("given", ["--set=nodes=a", "--set=apply=maybe", "--set=max_out=x", "--run-id=../x"])
def test_a_wrong_parameter_is_refused_before_a_kernel_starts(lab: Lab, name: str, given: str) -> None:
    before = set(lab.out.iterdir())
    with pytest.raises(ParameterError):
        command(name, "gpu-0002", given)
    assert set(lab.out.iterdir()) == before


@pytest.mark.parametrize("run", ["../x", "", "no such"])
def test_resume_of_what_is_no_run_id_is_refused(lab: Lab, run: str) -> None:
    with pytest.raises(InputError, match=r"no such folder, and no run of this id|this is no run folder"):
        command("resume", run)


def test_resume_of_a_run_that_closed_planned_is_refused_and_leaves_it_alone(lab: Lab) -> None:
    folder, _ = dry_run(lab)
    before = (folder / "journal.jsonl").read_bytes()
    with pytest.raises(InputError, match="nothing to go on with") as refused:
        command("resume", folder.name)
    assert f"`gpurunbook run node_cordon --parameters {folder / 'apply.yaml'}`" in refused.value.remedy
    assert (folder / "journal.jsonl").read_bytes() == before


def test_abort_of_what_is_no_run_id_is_refused() -> None:
    with pytest.raises(ParameterError, match="no run id"):
        command("abort", "no such")


def test_resume_of_a_run_that_is_not_here_is_told(lab: Lab) -> None:
    with pytest.raises(InputError, match="no such folder, and no run of this id"):
        command("resume", "r-unknown")


# -- with kernels ----------------------------------------------------------------------------------------------------


def closing(run_dir: Path) -> tuple[str, str]:
    found = replay(read(run_dir / "journal.jsonl")).closing
    assert found is not None
    return found["data"]["verdict"], found["data"]["code"]


def test_a_run_of_a_notebook_that_was_stopped_is_resumed_with_its_own_parameters(lab: Lab) -> None:
    node = lab.node()
    values = lab.planned(node)
    lab.holder(node)
    given = [f"--set={name}={value}".replace("=True", "=true") for name, value in {**runs.GIVEN, **values}.items()]
    result = command(
        "run", "node_cordon", "--run-id", f"stopped-{node}", "--set=max_out=999", f"--set=node={node}", *given
    )
    run_dir = lab.out / f"stopped-{node}"
    assert (result.return_value, closing(run_dir)) == (1, ("blocked", "gpu-held"))
    lab.admin.call("DELETE", f"/api/v1/namespaces/default/pods/trainer-{node}", None, gracePeriodSeconds=0)
    result = command("resume", str(run_dir))
    assert (result.return_value, closing(run_dir)) == (0, ("pass", "all-steps-passed"))
    assert owner(lab.seen(node)) == run_dir.name


def test_abort_plans_the_release_of_a_dead_run_and_release_with_the_plan_gives_the_node_back(
    lab: Lab, elsewhere: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = lab.node()
    run = lab.cordon(node, **lab.planned(node))
    finish(run, until="mark")
    switched(lab, elsewhere, monkeypatch)
    keep.release(run.folder / workspace.KERNEL_LOCK)
    before = set(lab.out.iterdir())
    result = command("abort", run.id, "--set=max_out=999")
    assert result.return_value == 0, (result.output, result.stderr)
    (made,) = [p for p in set(lab.out.iterdir()) - before if (p / "run.json").exists()]
    assert closing(made) == ("planned", "planned")
    assert marks(lab.seen(node)) == WHOLE
    parameters = made / "apply.yaml"
    given = [f"--set={name}={value}" for name, value in {"change_id": "CHG-8", "reason": "give it back"}.items()]
    result = command("release", node, f"--parameters={parameters}", *given)
    assert result.return_value == 0, result.output
    assert marks(lab.seen(node)) == NONE
    assert lab.lease(node) is None
