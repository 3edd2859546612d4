"""Approvals of whole runs, with real keys: what an apply is refused without, and what ends in the middle of one.

Covered: every refusal of an approval, break-glass, an approval that ends, changes or goes between two changes, clocks
that are set back, what needs none any more, and going on with another one. Not covered: each way in which a file is no
approval (tests/unit/test_approval.py), one that ends between two tries of a change (test_door.py).
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import runs
import yaml
from runs import Lab, closing, finish, marks, owner, records, rest, step, verdict

from gpurunbook import errors
from gpurunbook.findings import Finding, Status
from gpurunbook.journal import Journal
from gpurunbook.plan import Change, Mutation, Planned, Seen, Target
from gpurunbook.runbook import approval, plans
from gpurunbook.runbook.run import Run

pytestmark = pytest.mark.usefixtures("entered")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with runs.lab(tmp_path_factory.mktemp("approved"), nodes=60) as made:
        yield made


@pytest.fixture(scope="module")
def keys(lab: Lab) -> Path:
    """Keys of a lead, a deputy and the operator, all allowed to sign, and site files that name them."""
    folder = lab.home / "keys"
    folder.mkdir()
    for name in ("lead", "deputy", "oncall"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(folder / name)], check=True)
    signers = "".join(f"{name} {(folder / f'{name}.pub').read_text()}" for name in ("lead", "deputy", "oncall"))
    (folder / "signers").write_text(signers)
    common = {"signers": "keys/signers", "principals": {"oncall@example.com": "oncall"}, "approval": ["node_cordon"]}
    for name, more in {
        "approval": {},
        "glass": {"break_glass": True},
        "unmapped": {"principals": {}},
        "unsigned": {"signers": "keys/no-such-file"},
        "others": {"approval": ["canary_upgrade"]},
    }.items():
        (lab.home / "parameters" / f"{name}.yaml").write_text(yaml.safe_dump({**common, **more}))
    return folder


def approved(keys: Path, folder: Path, plan: str, key: str = "lead", **more: Any) -> Path:
    given: dict[str, Any] = {"change_id": "CHG-7", "expires": datetime.now(UTC) + timedelta(hours=1), **more}
    return approval.approve(folder, plan=plan, key=keys / key, **given)


def site(name: str) -> str:
    return f"parameters/{name}.yaml"


def test_an_approved_plan_is_applied_and_the_approver_written_down(lab: Lab, keys: Path) -> None:
    node = lab.node()
    values = lab.planned(node, site=site("approval"))
    approved(keys, runs.only(lab.out), values["plan"])
    run = lab.cordon(node, **values)
    finish(run)
    assert verdict(run) == ("pass", "all-steps-passed")
    granted = next(r["data"] for r in records(run) if r["event"] == "authorised")
    assert (granted["approver"], granted["plan"], granted["break_glass"]) == ("lead", values["plan"], False)


def test_an_approval_elsewhere_is_named_by_a_parameter(lab: Lab, keys: Path, tmp_path: Path) -> None:
    node = lab.node()
    values = lab.planned(node, site=site("approval"))
    path = approved(keys, tmp_path, values["plan"])
    run = lab.cordon(node, **values, approval=str(path))
    finish(run)
    assert verdict(run) == ("pass", "all-steps-passed")


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (None, "no-approval"),
        ({"key": "oncall"}, "approved-by-operator"),
        ({"plan": "sha256:" + "0" * 64}, "approval-other-plan"),
        ({"change_id": "CHG-8"}, "approval-other-change"),
        ({"expires": datetime.now(UTC) - timedelta(seconds=1)}, "approval-expired"),
    ],
)
def test_an_apply_without_its_approval_is_blocked(
    lab: Lab, keys: Path, given: dict[str, Any] | None, code: str
) -> None:
    node = lab.node()
    values = lab.planned(node, site=site("approval"))
    if given is not None:
        approved(keys, runs.only(lab.out), **{"plan": values["plan"], **given})
    runs.refuses(lab, node, values, code)


def test_an_operator_that_the_site_does_not_know_cannot_be_approved(lab: Lab, keys: Path) -> None:
    node = lab.node()
    values = lab.planned(node, site=site("unmapped"))
    approved(keys, runs.only(lab.out), values["plan"])
    runs.refuses(lab, node, values, "operator-unmapped")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("approval", "Another person signs it first: `gpurunbook approve "),
        ("unmapped", "No approval would count yet: the site file maps API user 'oncall@example.com' to no signer"),
        ("unsigned", "No approval would count yet: no such file of a signer: keys/no-such-file. Put it there"),
        ("others", "`gpurunbook run node_cordon --parameters "),
    ],
)
def test_a_dry_run_says_how_it_is_approved_and_what_of_the_site_keeps_any_approval_from_counting(
    lab: Lab, keys: Path, name: str, told: str
) -> None:
    run = lab.cordon(lab.node(), site=site(name))
    finish(run)
    assert verdict(run) == ("planned", "planned")
    assert closing(run)["next"].startswith(told)


def test_a_runbook_that_the_site_does_not_list_needs_none(lab: Lab, keys: Path) -> None:
    run = lab.applied(lab.node(), site=site("others"))
    assert verdict(run) == ("pass", "all-steps-passed")


def test_glass_is_broken_only_where_the_site_allows_it_and_it_is_written_down(lab: Lab, keys: Path) -> None:
    node = lab.node()
    runs.refuses(lab, node, lab.planned(node, site=site("approval"), break_glass=True), "break-glass-forbidden")
    run = lab.applied(node, site=site("glass"), break_glass=True)
    granted = next(r["data"] for r in records(run) if r["event"] == "authorised")
    assert (granted["break_glass"], granted["approver"]) == (True, "")


def test_glass_that_was_not_broken_still_needs_the_approval(lab: Lab, keys: Path) -> None:
    node = lab.node()
    runs.refuses(lab, node, lab.planned(node, site=site("glass")), "no-approval")


def test_a_kernel_asks_for_the_approval_again(lab: Lab, keys: Path) -> None:
    node = lab.node()
    values = lab.planned(node, site=site("approval"))
    folder = runs.only(lab.out)
    approved(keys, folder, values["plan"])
    run = lab.cordon(node, **values)
    finish(run, until="hands")
    (folder / approval.NAME).unlink()
    with pytest.raises(errors.NotApproved):
        step(lab.cordon(node, **values, run_id=run.id), "mark")
    assert marks(lab.seen(node)) == (False, False, False)


# -- in the middle of a run ------------------------------------------------------------------------------------------

AN_HOUR = timedelta(hours=1)
FIRST, SECOND = "first", "second"


class Clock:
    """A wall clock that somebody sets."""

    def __init__(self) -> None:
        self.hours = 0.0

    def __call__(self) -> datetime:
        return datetime.now(UTC) + timedelta(hours=self.hours)


def by(run: Run, clock: Callable[[], datetime]) -> Run:
    run.clock = clock
    run.journal = Journal.open(run.journal.path, clock)
    return run


def two(run: Run) -> None:
    """The cell `mark` with two changes in it: a Lease each, which an operator may write."""

    def made(name: str) -> Mutation:
        full = f"{name}-{run.parameters.node}"
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": full}}
        body |= {"spec": {"holderIdentity": "${run}"}}
        target = Target("Lease", full, runs.LEASES, "gpu-operator")
        return Mutation(name, "create", target, body, goal={"/spec/holderIdentity": "${run}"})

    def plan(_: Seen) -> Planned:
        return Planned((Finding("two", "", Status.PASS, "planned", "both"),), (made(FIRST), made(SECOND)))

    run.change("mark", Change("Two changes", {}, plan))


def of_two(lab: Lab, keys: Path, node: str) -> tuple[dict[str, Any], Path]:
    """The parameters of an approved apply with two changes, and the folder of its dry run."""
    run = lab.cordon(node, site=site("approval"))
    finish(run, until="hands")
    two(run)
    rest(run, after="mark")
    plan = closing(run)["plan"]
    approved(keys, run.folder, plan)
    return {"site": site("approval"), "apply": True, "plan": plan, "expect_cluster": lab.uid}, run.folder


def there(lab: Lab, node: str) -> list[str]:
    """Which of the two changes were carried out."""
    found = (lab.admin.send("GET", f"{runs.LEASES}/{name}-{node}").code for name in (FIRST, SECOND))
    return [name for name, code in zip((FIRST, SECOND), found, strict=True) if code == 200]


def between(lab: Lab, node: str, deed: Callable[[], None]) -> Callable[[], datetime]:
    """A clock that does something once the first change is carried out."""
    done: list[bool] = []

    def clock() -> datetime:
        if not done and there(lab, node) == [FIRST]:
            done.append(True)
            deed()
        return datetime.now(UTC)

    return clock


def refused_between(lab: Lab, run: Run, code: str) -> errors.RunbookError:
    """The second change is not sent, what the first one did stays, and the run says so."""
    node = run.parameters.node
    with lab.requests() as seen, pytest.raises(errors.NotApproved) as refused:
        two(run)
    assert refused.value.code == code
    assert verdict(run) == ("failed", code)
    assert runs.changed(seen) == [("POST", runs.LEASES), ("POST", runs.LEASES)]
    assert there(lab, node) == [FIRST]
    left = closing(run)["left_behind"]
    assert [line.split(" by ")[0] for line in left] == [
        f"Lease {FIRST}-{node}: {FIRST}",
        f"Lease gpurunbook-node-{node}: lease",
    ]
    assert f"--run-id {run.id}" in closing(run)["next"]
    return refused.value


def test_an_approval_that_ends_between_two_changes_stops_the_second(lab: Lab, keys: Path) -> None:
    node = lab.node()
    values, folder = of_two(lab, keys, node)
    clock = Clock()
    run = by(lab.cordon(node, **values), clock)
    finish(run, until="hands")
    ticking = between(lab, node, lambda: setattr(clock, "hours", 2))

    def leaping() -> datetime:
        ticking()
        return clock()

    by(run, leaping)
    wrong = refused_between(lab, run, "approval-expired")
    until = next(r["data"]["expires"] for r in records(run) if r["event"] == "authorised")
    name = f"outputs/{folder.name}"
    assert wrong.subject == f"approval {name}/approval.json of plan {values['plan'][:19]}…"
    assert wrong.message.startswith(f"it expired at {until}, and it is 20")
    asked = f"`gpurunbook approve {name} --key KEY --change-id CHG-7 --replace`"
    assert wrong.remedy == f"Nothing more is sent. Ask for another one of this plan: {asked}."
    assert until in closing(run)["message"]
    assert asked in closing(run)["next"]


@pytest.mark.parametrize("kernel", ["the same", "another"])
def test_with_another_approval_of_the_same_plan_the_run_goes_on_and_does_nothing_twice(
    lab: Lab, keys: Path, kernel: str
) -> None:
    node = lab.node()
    values, folder = of_two(lab, keys, node)
    run = by(lab.cordon(node, **values), between(lab, node, lambda: (folder / approval.NAME).unlink()))
    finish(run, until="hands")
    refused_between(lab, run, "no-approval")
    approved(keys, folder, values["plan"], "deputy")
    run = lab.cordon(node, **values, run_id=run.id) if kernel == "another" else run
    with lab.requests() as seen:
        two(run)
    assert runs.changed(seen) == [("POST", runs.LEASES)]
    assert there(lab, node) == [FIRST, SECOND]
    assert runs.state(run).passed("mark")
    granted = [r["data"]["approver"] for r in records(run) if r["event"] == "authorised"]
    assert granted == ["lead", "deputy"]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("gone", "no-approval"),
        ("a folder", "no-approval"),
        ("altered", "approval-untrusted"),
        ("of another plan", "approval-other-plan"),
        ("of another change", "approval-other-change"),
        ("of the operator", "approved-by-operator"),
        ("cut", "approval-unreadable"),
        ("without its signature", "approval-unreadable"),
        ("by nobody who may", "approval-untrusted"),
    ],
)
def test_an_approval_that_is_another_one_between_two_changes_stops_the_second(
    lab: Lab, keys: Path, name: str, code: str
) -> None:
    node = lab.node()
    values, folder = of_two(lab, keys, node)
    path, signers = folder / approval.NAME, keys / "signers"
    kept = signers.read_bytes()

    def remade() -> None:
        path.unlink()
        path.mkdir()

    deeds: dict[str, Callable[[], object]] = {
        "gone": path.unlink,
        "a folder": remade,
        "altered": lambda: path.write_bytes(path.read_bytes().replace(b'"expires":"2', b'"expires":"3')),
        "of another plan": lambda: approved(keys, folder, "sha256:" + "0" * 64),
        "of another change": lambda: approved(keys, folder, values["plan"], change_id="CHG-8"),
        "of the operator": lambda: approved(keys, folder, values["plan"], "oncall"),
        "cut": lambda: path.write_bytes(path.read_bytes()[:-1]),
        "without its signature": (folder / f"{approval.NAME}.sig").unlink,
        "by nobody who may": lambda: signers.write_bytes(kept[kept.index(b"\n") + 1 :]),
    }

    def deed() -> None:
        deeds[name]()

    run = by(lab.cordon(node, **values), between(lab, node, deed))
    finish(run, until="hands")
    try:
        refused_between(lab, run, code)
    finally:
        signers.write_bytes(kept)


def test_an_approval_that_a_parameter_names_is_asked_for_at_its_place(lab: Lab, keys: Path, tmp_path: Path) -> None:
    node = lab.node()
    values, folder = of_two(lab, keys, node)
    path = approved(keys, tmp_path, values["plan"])
    run = by(lab.cordon(node, **values, approval=str(path)), between(lab, node, path.unlink))
    finish(run, until="hands")
    wrong = refused_between(lab, run, "no-approval")
    assert wrong.subject.startswith(f"approval {path} of plan")
    assert wrong.remedy.endswith(f"--replace`, and put it and its signature in the place of {path}.")
    assert f"`gpurunbook approve outputs/{folder.name} " in wrong.remedy


def test_an_approval_that_ends_before_the_target_is_touched_gives_the_lease_back(lab: Lab, keys: Path) -> None:
    node = lab.node()
    values = lab.planned(node, site=site("approval"))
    approved(keys, runs.only(lab.out), values["plan"])
    run = lab.cordon(node, **values)
    finish(run, until="hands")
    by(run, lambda: datetime.now(UTC) + timedelta(hours=2 if lab.lease(node) else 0))
    with pytest.raises(errors.NotApproved):
        step(run, "mark")
    assert verdict(run) == ("blocked", "approval-expired")
    assert (lab.lease(node), marks(lab.seen(node)), closing(run)["left_behind"]) == (None, (False,) * 3, [])


def test_a_clock_that_is_set_back_makes_no_approval_valid_again(lab: Lab, keys: Path) -> None:
    node = lab.node()
    values = lab.planned(node, site=site("approval"))
    approved(keys, runs.only(lab.out), values["plan"])
    clock = Clock()
    clock.hours = 2
    run = by(lab.cordon(node, **values), clock)
    finish(run, until="hands")
    for hours in (2, 0, -48):
        clock.hours = hours
        for later in (run, lab.cordon(node, **values, run_id=run.id)):
            with pytest.raises(errors.NotApproved) as refused:
                step(later, "mark")
            assert refused.value.code == "approval-expired"
            assert ("this machine's clock says 20" in refused.value.message) == (later.clock() < run.latest() - AN_HOUR)
            run.journal.refresh()
    assert (lab.lease(node), marks(lab.seen(node))) == (None, (False,) * 3)


def marked(lab: Lab, keys: Path, node: str) -> tuple[Run, dict[str, Any]]:
    """An approved apply that has made its cordon, by a clock after the end of its approval."""
    values = lab.planned(node, site=site("approval"))
    approved(keys, runs.only(lab.out), values["plan"])
    run = lab.cordon(node, **values)
    finish(run, until="mark")
    clock = Clock()
    clock.hours = 2
    return by(run, clock), values


def test_what_was_approved_in_time_stands_to_the_end_and_the_lease_is_given_back(lab: Lab, keys: Path) -> None:
    node = lab.node()
    run, _ = marked(lab, keys, node)
    lab.change(node, {"spec": {"unschedulable": False}})  # other hands: the guard makes it again
    rest(run, after="mark")
    assert verdict(run) == ("pass", "all-steps-passed")
    assert (marks(lab.seen(node)), lab.lease(node)) == ((True,) * 3, None)


@pytest.mark.parametrize("kernel", ["the same", "another"])
def test_a_step_with_nothing_left_to_send_needs_no_approval_in_force(lab: Lab, keys: Path, kernel: str) -> None:
    node = lab.node()
    run, values = marked(lab, keys, node)
    if kernel == "another":
        run = by(lab.cordon(node, **values, run_id=run.id), run.clock)
    with lab.requests() as seen:
        finish(run)
    assert [method for method, _ in runs.changed(seen)] == ["DELETE"]  # of the lease
    assert verdict(run) == ("pass", "all-steps-passed")


def test_a_change_whose_answer_was_lost_is_settled_though_its_approval_has_ended(lab: Lab, keys: Path) -> None:
    node = lab.node()
    run, values = marked(lab, keys, node)
    lines = run.journal.path.read_bytes().splitlines(keepends=True)
    cut = next(n for n, r in enumerate(records(run)) if r["event"] == "result" and r["data"]["name"] == "cordon")
    run.journal.path.write_bytes(b"".join(lines[:cut]))
    later = by(lab.cordon(node, **values, run_id=run.id), run.clock)
    with lab.requests() as seen:
        finish(later)
    assert [method for method, _ in runs.changed(seen)] == ["DELETE"]
    assert [r["data"]["how"] for r in records(run) if r["event"] == "result" and r["data"]["name"] == "cordon"] == [
        "recovered"
    ]
    assert verdict(later) == ("pass", "all-steps-passed")


def test_a_release_stands_on_its_own_approval_and_not_on_that_of_the_run_that_it_undoes(lab: Lab, keys: Path) -> None:
    node = lab.node()
    dead, _ = marked(lab, keys, node)
    values = lab.planned(node, action="release", take_over=dead.id, site=site("approval"))
    with pytest.raises(errors.NotApproved):
        finish(lab.cordon(node, **values))
    assert marks(lab.seen(node)) == (True,) * 3
    approved(keys, plans.find(lab.out, values["plan"]).folder, values["plan"])
    run = lab.cordon(node, **values)
    finish(run)
    assert verdict(run) == ("pass", "all-steps-passed")
    assert (marks(lab.seen(node)), owner(lab.seen(node)), lab.lease(node)) == ((False,) * 3, "", None)


@pytest.mark.parametrize("needed", [True, False])
def test_credentials_of_somebody_else_in_the_middle_of_a_run_change_nothing(
    lab: Lab, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needed: bool
) -> None:
    node = lab.node()
    values = lab.planned(node, **({"site": site("approval")} if needed else {}))
    approved(keys, runs.only(lab.out), values["plan"])
    text = (lab.server.state / "kubeconfig").read_text()
    config = tmp_path / "config"
    config.write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(config))
    run = lab.cordon(node, **values)
    finish(run, until="hands")
    tokens = {user["name"]: user["user"]["token"] for user in yaml.safe_load(text)["users"]}
    config.write_text(text.replace(tokens["oncall"], tokens["approver"]))  # a login as the approver
    lab.arm({"method": "POST", "path": runs.LEASES}, {"status": 401})
    with pytest.raises(errors.GateError) as refused:
        step(run, "mark")
    assert refused.value.message.endswith("are of approver@example.com, the run was started by oncall@example.com")
    assert refused.value.code == "operator-changed"
    assert verdict(run) == ("blocked", "operator-changed")
    assert (lab.lease(node), marks(lab.seen(node))) == (None, (False,) * 3)
