"""Whole runs of both runbooks against the embedded server, without a kernel: start, dry run, plan, approval, apply.

Covered: the cluster and the operator that a start finds, each declared permission taken away in turn and zero 403 under
the roles that the project ships, a dry run that writes nothing, every refusal of an apply, drift before it, and
the cordon, release and adoption themselves. Not covered: approvals (test_runs_approved.py), what must stand, leases
and leftovers (test_runs_standing.py), crashes (test_runs_resume.py), kernels (tests/notebooks), the real control plane
(envtest).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import runs
import yaml
from embedded_server import Embedded, stop
from runs import Lab, closing, ended, finish, marks, owner, records, rest, step, verdict

import gpurunbook as rb
from gpurunbook import errors
from gpurunbook.declared.book import Permission
from gpurunbook.declared.runbooks import declared
from gpurunbook.folder.parameters import load
from gpurunbook.journal import Journal, canonical, digest
from gpurunbook.runbook import authority, permissions, plans
from gpurunbook.runbook.run import Run
from gpurunbook.runbook.site import Site

ROLES = Path(__file__).parents[2] / "runbooks" / "roles"
SYSTEM = "/api/v1/namespaces/kube-system"
NODE = "gpu-0002"
BOOKS = sorted(path.stem for path in ROLES.glob("*.yaml"))


pytestmark = pytest.mark.usefixtures("entered")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    versions = ["v1", "v1beta1", "v1alpha1"]
    with runs.lab(tmp_path_factory.mktemp("runs"), nodes=70, self_subject_review=versions) as made:
        yield made


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """Another cluster of the same shape: other names, another uid."""
    running = runs.seeded(tmp_path_factory.mktemp("elsewhere"), 3, name="elsewhere", uid="9" * 36)
    yield running
    stop(running.state)


def audit(lab: Lab, **values: Any) -> Run:
    return lab.open("provenance_audit", **values)


def audited(run: Run) -> None:
    """The cells of provenance_audit."""
    p = run.parameters
    run.check(
        "audit",
        rb.supply.provenance(
            namespaces=p.namespaces,
            pod_json=p.pod_json,
            baseline=p.baseline,
            relations=p.relations,
            platforms=p.platforms,
            tolerate_never_started=p.tolerate_never_started,
        ),
    )
    run.check("evidence", rb.supply.evidence_ready())
    run.close()


# -- which cluster ---------------------------------------------------------------------------------------------------


def test_a_start_names_cluster_server_and_operator(lab: Lab) -> None:
    run = audit(lab, expect_cluster=lab.uid)
    told = runs.state(run).start
    assert told["cluster"] == {"name": "oncall@many", "uid": lab.uid, "version": "v1.35.3+rke2r3"}
    assert told["operator"] == {"name": "oncall@example.com"}
    assert told["rehearsal"] is True
    assert told["rehearsal_reasons"] == ["namespace kube-system carries gpurunbook.io/rehearsal"]


def test_a_run_goes_on_where_it_started_whatever_the_current_context_is_by_then(
    lab: Lab, elsewhere: Embedded, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = audit(lab)
    monkeypatch.setenv("KUBECONFIG", runs.merged(tmp_path / "both", elsewhere, lab.server))
    assert audit(lab).cluster.uid == "9" * 36  # a new one goes there
    later = audit(lab, run_id=run.id)
    audited(later)
    assert verdict(later) == ("pass", "all-steps-passed")
    assert {data["uid"] for r in records(run) if r["event"] == "cluster" and (data := r["data"]["cluster"])} == {
        lab.uid
    }


def test_a_run_whose_context_is_gone_is_refused_on_another_cluster_with_both_named(
    lab: Lab, elsewhere: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = audit(lab)
    monkeypatch.setenv("KUBECONFIG", str(elsewhere.state / "kubeconfig"))
    with pytest.raises(errors.Drifted) as refused:
        audit(lab, run_id=run.id)
    assert refused.value.code == "wrong-cluster"
    assert refused.value.subject == "cluster oncall@elsewhere"
    wanted = f"wanted {lab.uid} (the start of this run, in context 'oncall@many')"
    assert refused.value.message == f"namespace kube-system has uid {'9' * 36}, {wanted}"
    assert verdict(run) == ("blocked", "wrong-cluster")


@pytest.mark.parametrize("how", ["renamed", "copied"])
@pytest.mark.parametrize("until", ["hands", "close"])
def test_a_run_whose_folder_has_another_name_is_not_gone_on_with(lab: Lab, how: str, until: str) -> None:
    node = lab.node()
    values = lab.planned(node)
    run = lab.cordon(node, **values)
    finish(run, until=until)
    other = run.folder.with_name(f"{how}-{node}")
    shutil.copytree(run.folder, other)
    if how == "renamed":
        shutil.rmtree(run.folder)
    before = (other / "journal.jsonl").read_bytes()
    with lab.requests() as seen, pytest.raises(errors.InputError, match=f"its journal is of run {run.id}") as refused:
        lab.cordon(node, **values, run_id=other.name)
    assert refused.value.code == "run-renamed"
    assert (seen, (other / "journal.jsonl").read_bytes()) == ([], before)


def test_a_whole_audit_passes(lab: Lab) -> None:
    run = audit(lab)
    audited(run)
    assert verdict(run) == ("pass", "all-steps-passed")


@pytest.mark.parametrize("start", [audit, lambda lab, **v: lab.cordon(NODE, **v)])
@pytest.mark.parametrize("expected", ["0" * 36, "prod-b", "staging"])
def test_the_wrong_cluster_is_told_after_one_request(lab: Lab, start: Callable[..., Run], expected: str) -> None:
    site = lab.home / "parameters" / "site-clusters.yaml"
    site.write_text(f"clusters: {{prod-a: {lab.uid}, staging: '{'1' * 36}'}}\n")
    with lab.requests() as seen, pytest.raises(errors.Drifted) as refused:
        start(lab, expect_cluster=expected, site="parameters/site-clusters.yaml")
    assert refused.value.code == "wrong-cluster"
    assert [(e["method"], e["path"], e["query"]) for e in seen] == [("GET", SYSTEM, "")]
    found = ended(lab.out)
    assert (found["verdict"], found["code"], found["step"]) == ("blocked", "wrong-cluster", "start")


def test_a_node_without_a_name_is_told_before_anything_is_asked(lab: Lab) -> None:
    with lab.requests() as seen, pytest.raises(errors.ParameterError, match="parameter 'node': is empty"):
        lab.cordon("")
    assert seen == []
    assert (ended(lab.out)["verdict"], ended(lab.out)["code"]) == ("unknown", "parameter")


@pytest.mark.parametrize(
    "name", ["GPU-0001", "gpu_0001", "gpu-0001/status", "../pods", "gpu-0001?watch=1", "-", "a" * 254]
)
def test_what_cannot_be_a_name_is_told_before_anything_is_asked(lab: Lab, name: str) -> None:
    with lab.requests() as seen:
        with pytest.raises(errors.ParameterError, match=r"parameter 'node': is .*cannot be a name"):
            lab.cordon(name)
        assert (ended(lab.out)["verdict"], ended(lab.out)["code"]) == ("unknown", "parameter")
        with pytest.raises(errors.ParameterError, match=r"parameter 'namespaces': is .*cannot be a name"):
            audit(lab, namespaces=["gpu-operator", name])
    assert seen == []


@pytest.mark.parametrize("expected", ["prod-a", ""])
def test_the_right_cluster_by_its_alias_or_by_none_goes_on(lab: Lab, expected: str) -> None:
    (lab.home / "parameters" / "site-alias.yaml").write_text(f"clusters: {{prod-a: {lab.uid}}}\n")
    run = audit(lab, expect_cluster=expected, site="parameters/site-alias.yaml")
    assert runs.state(run).closing is None


@pytest.mark.parametrize("start", [audit, lambda lab, **v: lab.cordon(NODE, **v)])
def test_a_cluster_that_is_another_after_a_restart_is_told_after_one_request(
    lab: Lab, elsewhere: Embedded, start: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start(lab)
    monkeypatch.setenv("KUBECONFIG", str(elsewhere.state / "kubeconfig"))
    before = len(elsewhere.log())
    with pytest.raises(errors.Drifted, match="the start of this run") as refused:
        start(lab, run_id=run.id)
    assert refused.value.code == "wrong-cluster"
    assert [(e["method"], e["path"]) for e in elsewhere.log()[before:]] == [("GET", SYSTEM)]
    assert verdict(run) == ("blocked", "wrong-cluster")


@pytest.mark.parametrize(
    ("refused", "known"),
    [
        ([], True),
        (["v1"], True),
        (["v1", "v1beta1"], True),
        (["v1", "v1beta1", "v1alpha1"], False),
    ],
)
def test_the_operator_is_asked_for_in_each_version_of_the_api(lab: Lab, refused: list[str], known: bool) -> None:
    for version in refused:
        path = f"/apis/authentication.k8s.io/{version}/selfsubjectreviews"
        lab.arm({"path": path}, {"status": 404}, times=0)
    run = audit(lab)
    assert runs.state(run).start["operator"]["name"] == ("oncall@example.com" if known else "")
    audited(run)  # who reads need not be known


def test_an_unknown_operator_may_plan_and_not_apply(lab: Lab) -> None:
    node = lab.node()
    lab.arm({"path": "/apis/authentication.k8s.io/.*"}, {"status": 404}, times=0)
    values = lab.planned(node)
    runs.refuses(lab, node, values, "operator-unknown")


@pytest.mark.parametrize(
    ("action", "code"),
    [
        ({"status": 500}, "server-error"),
        ({"status": 429, "retry_after": 0}, "throttled"),
        ({"reset": "before"}, "unreachable"),
        ({"garble": True}, "garbled"),
        ({"status": 401}, "unauthorized"),
    ],
)
@pytest.mark.parametrize("path", [SYSTEM, "/version", "/apis/auth.*"])
def test_a_start_that_cannot_identify_or_ask_is_unknown(
    lab: Lab, action: dict[str, Any], code: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpurunbook.sources.connection.PATIENCE_SECONDS", 0.01)
    lab.arm({"path": path}, action, times=0)
    with pytest.raises(errors.ClusterError):
        audit(lab)
    found = ended(lab.out)
    assert (found["verdict"], found["code"], found["step"]) == ("unknown", code, "start")


# -- permissions -----------------------------------------------------------------------------------------------------


def needed(book: str) -> list[Permission]:
    values = {"node": NODE} if book == "node_cordon" else {}
    return permissions.needed(declared(book), load(declared(book), values), Site())


def cases() -> list[tuple[str, int]]:
    return [(book, number) for book in BOOKS for number in range(len(needed(book)))]


def bound(user: str, roles: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The roles under a name of their own, and what binds them to the user."""
    made = []
    for role in roles:
        name, namespace = f"{user}-role", role["metadata"].get("namespace")
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        api = "rbac.authorization.k8s.io"
        made.append({**role, "metadata": metadata})
        made.append(
            {
                "apiVersion": f"{api}/v1",
                "kind": f"{role['kind']}Binding",
                "metadata": metadata,
                "roleRef": {"apiGroup": api, "kind": role["kind"], "name": name},
                "subjects": [{"apiGroup": api, "kind": "User", "name": f"{user}@example.com"}],
            }
        )
    return made


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A cluster with a user per declared permission, who has all the others; and one per shipped role."""
    documents: list[dict[str, Any]] = []
    users = []
    for book, number in cases():
        user = f"without-{book.replace('_', '-')}-{number}"
        users.append({"name": user, "username": f"{user}@example.com", "groups": []})
        rest = [p for at, p in enumerate(needed(book)) if at != number]
        documents += bound(user, list(yaml.safe_load_all(permissions.role(book, rest))))
    for book in BOOKS:
        user = f"exactly-{book.replace('_', '-')}"
        users.append({"name": user, "username": f"{user}@example.com", "groups": []})
        documents += bound(user, list(yaml.safe_load_all((ROLES / f"{book}.yaml").read_text())))
    namespaces = {d["metadata"].get("namespace") for d in documents} - {
        None,
        "gpu-operator",
        "hami-system",
        "kube-system",
    }
    documents += [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n}} for n in sorted(map(str, namespaces))
    ]
    seed = {"nodes": 9, "users": users, "documents": {"roles-of-users": documents}}
    with runs.lab(tmp_path_factory.mktemp("narrow"), **seed) as made:
        yield made


@pytest.fixture
def under(narrow: Lab, entered: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Lab]:
    """The narrow cluster, seen as one of its users."""
    narrow.enter(monkeypatch)

    def enter(user: str) -> Lab:
        narrow.context = f"{user}@many"
        return narrow

    return enter


@pytest.mark.parametrize(("book", "number"), cases())
def test_each_missing_permission_is_named_alone_and_blocks_the_start(
    under: Callable[[str], Lab], book: str, number: int
) -> None:
    lab = under(f"without-{book.replace('_', '-')}-{number}")
    with lab.requests() as seen, pytest.raises(errors.Denied) as refused:
        lab.cordon(NODE) if book == "node_cordon" else lab.open(book)
    missing = needed(book)[number]
    snippet = refused.value.remedy.split("\n", 1)[1]
    assert list(yaml.safe_load_all(snippet)) == list(yaml.safe_load_all(permissions.role(book, [missing])))
    assert refused.value.message.endswith(f"may not: {permissions.spell(missing)}")
    found = ended(lab.out)
    assert (found["verdict"], found["code"], found["step"]) == ("blocked", "permission-missing", "start")
    assert runs.changed(seen) == []
    # What was refused was asked for, and not tried; only the cluster's own name must be tried.
    assert [e["path"] for e in seen if e["status"] == 403] == ([SYSTEM] if number == 0 else [])


@pytest.mark.parametrize("book", ["node_cordon", "provenance_audit"])  # promotion: tests/envtest/test_promotion_live.py
def test_under_exactly_the_shipped_role_nothing_is_refused(under: Callable[[str], Lab], book: str) -> None:
    lab = under(f"exactly-{book.replace('_', '-')}")
    with lab.requests() as seen:
        if book == "provenance_audit":
            audited(audit(lab))
        else:
            node = "gpu-0003"
            assert verdict(lab.applied(node)) == ("pass", "all-steps-passed")
            assert verdict(lab.applied(node, action="adopt")) == ("pass", "all-steps-passed")
            assert verdict(lab.applied(node, action="release")) == ("pass", "all-steps-passed")
    assert [(e["method"], e["path"]) for e in seen if e["status"] == 403] == []
    assert [e["unsupported"] for e in seen if "unsupported" in e] == []


# -- dry run ---------------------------------------------------------------------------------------------------------


def everything(lab: Lab) -> Any:
    """The version of the whole store: it grows with every write."""
    return lab.admin.call("GET", "/api/v1/nodes")["metadata"]["resourceVersion"]


@pytest.mark.parametrize("action", ["cordon", "release", "adopt"])
def test_a_dry_run_proves_and_writes_nothing(lab: Lab, action: str) -> None:
    node = lab.node()
    if action != "cordon":
        lab.applied(node)
    before = everything(lab), lab.seen(node)
    with lab.requests() as seen:
        run = lab.cordon(node, action=action)
        finish(run)
    assert (everything(lab), lab.seen(node)) == before
    assert verdict(run) == ("planned", "planned")
    assert [e["path"] for e in seen if e["persisted"]] == []
    sent = [e for e in seen if e["method"] != "GET"]
    assert [e["path"] for e in sent if not e["dryRun"] and "reviews" not in e["path"]] == []
    assert [e["path"] for e in sent if e["dryRun"]] == [runs.LEASES, f"/api/v1/nodes/{node}"]
    assert not [r for r in records(run) if r["event"] in ("intent", "result")]


def test_the_plan_of_two_dry_runs_is_one_and_of_other_intents_another(lab: Lab) -> None:
    node = lab.node()
    one = lab.planned(node)["plan"]
    two = lab.planned(node, reason="another reason", change_id="CHG-8", wait_seconds=9)["plan"]
    assert one == two
    weaker = lab.planned(node, taint=False)["plan"]
    other = lab.planned(lab.node())["plan"]
    assert len({one, weaker, other}) == 3
    lab.applied(node)
    assert lab.planned(node, action="release")["plan"] not in {one, weaker, other}


def test_a_dry_run_ends_with_the_parameters_of_its_apply(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    node = lab.node()
    run = lab.cordon(node, change_id="", reason="")
    finish(run)
    plan = closing(run)["plan"]
    pasted = capsys.readouterr().out
    for line in ("apply = True", f'plan = "{plan}"', f'expect_cluster = "{lab.uid}"', 'change_id = "…"'):
        assert line in pasted
    document = json.loads((run.folder / plans.NAME).read_bytes())
    assert digest(canonical(document)) == plan
    # What is still to be given is told wherever a command or a file for the apply is.
    assert "The apply needs change_id and reason, which this dry run was not given" in closing(run)["message"]
    assert "/apply.yaml --set change_id=… --set reason=…`" in closing(run)["next"]
    assert (
        "change_id: ''  # the apply needs it\nreason: ''  # the apply needs it\n"
        in (run.folder / "apply.yaml").read_text()
    )
    given = yaml.safe_load((run.folder / "apply.yaml").read_text())
    for blank in ({"change_id": "…", "reason": "fan"}, {"change_id": "CHG-7", "reason": " … "}):
        with pytest.raises(errors.GateError, match="is empty, and apply needs it"):
            lab.open("node_cordon", **{**given, **blank})
    later = lab.open("node_cordon", **{**given, "change_id": "CHG-7", "reason": "fan"})
    finish(later)
    assert verdict(later) == ("pass", "all-steps-passed")


@pytest.mark.parametrize(
    "action", [{"status": 403}, {"status": 400, "message": "admission webhook x does not support dry run"}]
)
def test_a_dry_run_that_the_server_did_not_validate_is_unknown_and_has_no_plan(
    lab: Lab, action: dict[str, Any]
) -> None:
    node = lab.node()
    lab.arm({"method": "PATCH"}, action)
    run = lab.cordon(node)
    with pytest.raises(errors.Stopped):
        finish(run)
    assert verdict(run) == ("unknown", "dry-run-not-validated")
    assert not (run.folder / plans.NAME).exists()


def test_a_dry_run_that_is_blocked_has_no_plan(lab: Lab) -> None:
    node = lab.node()
    lab.holder(node)
    run = lab.cordon(node)
    with pytest.raises(errors.Stopped):
        finish(run)
    assert verdict(run) == ("blocked", "gpu-held")
    assert not (run.folder / plans.NAME).exists()


def test_a_dry_run_whose_plan_cannot_be_kept_is_not_planned(lab: Lab) -> None:
    node = lab.node()
    run = lab.cordon(node)
    finish(run, until="again")
    (run.folder / plans.NAME).mkdir()
    with pytest.raises(errors.RunbookError, match="cannot be kept"):
        run.close()
    assert verdict(run) == ("unknown", "not-kept")
    assert sorted(p.name for p in run.folder.iterdir() if p.name.endswith(".part")) == []


# -- apply -----------------------------------------------------------------------------------------------------------


def test_an_apply_makes_all_three_marks_in_one_patch_under_a_lease(lab: Lab) -> None:
    node = lab.node()
    values = lab.planned(node)
    with lab.requests() as seen:
        run = lab.cordon(node, **values)
        finish(run)
    assert verdict(run) == ("pass", "all-steps-passed")
    assert marks(lab.seen(node)) == (True, True, True)
    lease = f"{runs.LEASES}/gpurunbook-node-{node}"
    assert runs.changed(seen) == [("POST", runs.LEASES), ("PATCH", f"/api/v1/nodes/{node}"), ("DELETE", lease)]
    told = json.loads(lab.seen(node)["metadata"]["annotations"][runs.ANNOTATION])
    intent = next(r for r in records(run) if r["event"] == "intent" and r["data"]["name"] == "cordon")
    assert told == {
        "run": run.id,
        "runbook": "node_cordon",
        "step": "mark",
        "change": "CHG-7",
        "plan": values["plan"],
        "head": intent["data"]["words"]["head"],
        "time": intent["data"]["words"]["time"],
        "tainted": True,
    }
    assert told["head"] in {r["hash"] for r in records(run)}
    left = closing(run)["left_behind"]
    undo = f"gpurunbook release {node} --set change_id=CHG-7 --set reason=…"
    assert left == [f"Node {node}: cordon by run {run.id}; `{undo}` undoes it"]
    for folder in ("before", "after"):
        kept = json.loads((run.folder / folder / "mark-cordon.json").read_bytes())
        assert marks(kept) == ((True,) * 3 if folder == "after" else (False,) * 3)
    assert (sum(e["persisted"] for e in seen), lab.lease(node)) == (3, None)


def test_a_release_of_a_node_that_nobody_has_marked_says_that_its_plan_is_empty(lab: Lab) -> None:
    node = lab.node()
    empty = lab.cordon(node, action="release")
    finish(empty)
    assert verdict(empty) == ("planned", "planned")
    assert "There is nothing to change: the plan in plan.json is empty." in closing(empty)["message"]
    lab.applied(node)
    full = lab.cordon(node, action="release")
    finish(full)
    assert "and nothing was written. The plan is in plan.json." in closing(full)["message"]


def test_a_plan_that_another_run_has_applied_is_told_and_can_be_applied_again_after_a_release(lab: Lab) -> None:
    node = lab.node()
    values = lab.planned(node)
    first = lab.cordon(node, **values)
    finish(first)
    second = lab.cordon(node, **values)
    with pytest.raises(errors.Stopped, match=f"run {first.id} has applied this plan already, at 20"):
        finish(second)
    assert verdict(second) == ("blocked", "plan-applied")
    assert f"A release gives {node} back" in closing(second)["next"]
    other = lab.cordon(node)  # a plan of its own has not been applied, and the node is another's
    with pytest.raises(errors.Stopped, match=f"run {first.id} of node_cordon owns the cordon"):
        finish(other)
    assert verdict(other) == ("blocked", "cordon-of-another")
    lab.applied(node, action="release")
    third = lab.cordon(node, **lab.planned(node))
    finish(third)
    assert verdict(third) == ("pass", "all-steps-passed")


def test_a_release_gives_the_node_back_as_it_was_and_leaves_nothing(lab: Lab) -> None:
    node = lab.node()
    foreign = [{"key": "maintenance", "effect": "NoSchedule"}]
    lab.change(node, {"spec": {"taints": foreign}, "metadata": {"annotations": {"team": "gpu"}}})
    before = lab.seen(node)
    lab.applied(node)
    run = lab.applied(node, action="release")
    assert verdict(run) == ("pass", "all-steps-passed")
    after = lab.seen(node)
    assert (after["spec"], after["metadata"]["annotations"]) == (before["spec"], before["metadata"]["annotations"])
    assert closing(run)["left_behind"] == []


def test_an_adoption_makes_another_run_the_owner_and_never_opens_the_node(lab: Lab) -> None:
    node = lab.node()
    first = lab.applied(node)
    with lab.requests() as seen:
        second = lab.applied(node, action="adopt")
    assert (owner(lab.seen(node)), marks(lab.seen(node))) == (second.id, (True, True, True))
    assert first.id != second.id
    assert [c for c in runs.changed(seen) if "nodes" in c[1]] == [("PATCH", f"/api/v1/nodes/{node}")]


@pytest.mark.parametrize("action", ["cordon", "release", "adopt"])
def test_anothers_cordon_is_respected_by_every_action(lab: Lab, action: str) -> None:
    node = lab.node()
    lab.change(node, {"spec": {"unschedulable": True}})
    before = lab.seen(node)
    run = lab.cordon(node, action=action)
    with pytest.raises(errors.Stopped):
        finish(run)
    assert verdict(run) == ("blocked", "cordon-of-another")
    assert lab.seen(node) == before


@pytest.mark.parametrize(("ready", "code"), [("False", "node-not-ready"), ("Unknown", "node-not-ready")])
def test_a_node_that_is_not_ready_is_not_given_back(lab: Lab, ready: str, code: str) -> None:
    node = lab.node()
    lab.applied(node)
    conditions = [{"type": "Ready", "status": ready}]
    lab.admin.call("PATCH", f"/api/v1/nodes/{node}/status", {"status": {"conditions": conditions}}, runs.JSON_MERGE)
    run = lab.cordon(node, action="release")
    with pytest.raises(errors.Stopped):
        finish(run)
    assert verdict(run) == ("blocked" if ready == "False" else "unknown", code)
    assert marks(lab.seen(node)) == (True, True, True)


def test_without_the_taint_the_cordon_is_weaker_and_says_so(lab: Lab) -> None:
    node = lab.node()
    run = lab.applied(node, taint=False)
    assert marks(lab.seen(node)) == (True, False, True)
    told = [f for r in records(run) if r["event"] == "judged" for f in r["data"]["findings"]]
    assert "taint-off" in {f["code"] for f in told if f["status"] == "warn"}


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("plan", "", "plan-missing"),
        ("expect_cluster", "", "expect-cluster-missing"),
        ("change_id", "", "change-id-missing"),
        ("reason", "", "reason-missing"),
        ("reason", "   ", "reason-missing"),
        ("change_id", "CHG 7", "change-id-malformed"),
        ("change_id", '"}', "change-id-malformed"),
        ("change_id", "-x", "change-id-malformed"),
        ("change_id", "x" * 65, "change-id-malformed"),
        ("change_id", "ÄNG-1", "change-id-malformed"),
    ],
)
def test_an_apply_without_what_it_needs_asks_the_cluster_nothing(lab: Lab, field: str, value: str, code: str) -> None:
    values = {"apply": True, "plan": "sha256:" + "0" * 64, "expect_cluster": lab.uid, field: value}
    with lab.requests() as seen:
        pass
    runs.refuses(lab, NODE, values, code, at="start")
    with lab.requests() as seen, pytest.raises(errors.GateError):
        lab.cordon(NODE, **values)
    assert seen == []


def test_an_apply_with_a_plan_that_nobody_made_is_refused(lab: Lab) -> None:
    node = lab.node()
    runs.refuses(lab, node, {**lab.planned(node), "plan": "sha256:" + "0" * 64}, "plan-not-found")


def test_an_altered_plan_is_not_the_plan(lab: Lab) -> None:
    node = lab.node()
    values = lab.planned(node)
    path = runs.only(lab.out) / plans.NAME
    path.write_text(path.read_text().replace("NoSchedule", "NoExecute"))
    runs.refuses(lab, node, values, "plan-not-found")


def test_a_dry_run_that_was_gone_on_with_has_no_plan_any_more(lab: Lab) -> None:
    node = lab.node()
    run = lab.cordon(node)
    finish(run)
    values = {"apply": True, "plan": closing(run)["plan"], "expect_cluster": lab.uid}
    step(run, "whose")
    runs.refuses(lab, node, values, "plan-not-passed")


def foreign_plan(lab: Lab, **other: str) -> str:
    """A run folder whose closed plan is for another runbook or cluster."""
    values = lab.planned(lab.node())
    folder = runs.only(lab.out)
    assert plans.find(lab.out, values["plan"]).folder == folder
    document = {**json.loads((folder / plans.NAME).read_bytes()), **other}
    plan = plans.write(folder, document)
    Journal.open(folder / "journal.jsonl").append(
        "close", {"verdict": "planned", "code": "planned", "step": "close", "plan": plan, "left_behind": []}
    )
    return plan


@pytest.mark.parametrize(
    ("other", "code"), [({"cluster": "0" * 36}, "plan-other-cluster"), ({"runbook": "x"}, "plan-other-runbook")]
)
def test_a_plan_for_elsewhere_is_refused(lab: Lab, other: dict[str, str], code: str) -> None:
    values = {"apply": True, "expect_cluster": lab.uid, "plan": foreign_plan(lab, **other)}
    runs.refuses(lab, lab.node(), values, code)


def test_a_plan_for_another_node_is_no_plan_for_this_one(lab: Lab) -> None:
    runs.refuses(lab, lab.node(), lab.planned(lab.node()), "plan-changed")


# -- drift -----------------------------------------------------------------------------------------------------------


def test_a_heartbeat_and_a_label_are_no_drift(lab: Lab) -> None:
    node = lab.node()
    values = lab.planned(node)
    lab.change(node, {"metadata": {"labels": {"beat": "1"}, "annotations": {"other": "x"}}})
    finish(lab.cordon(node, **values))
    assert owner(lab.seen(node))


def test_a_change_of_what_the_plan_writes_beside_is_told_field_by_field(lab: Lab) -> None:
    node = lab.node()
    values = lab.planned(node)
    lab.change(node, {"spec": {"taints": [{"key": "new", "effect": "NoSchedule"}]}})
    runs.refuses(lab, node, values, "plan-changed")
    message = ended(lab.out)["message"]
    assert "the plan made now is not the one of the dry run" in message
    assert "/spec/taints" in message


def test_another_hand_that_cordons_meanwhile_is_respected(lab: Lab) -> None:
    node = lab.node()
    values = lab.planned(node)
    lab.change(node, {"spec": {"unschedulable": True}})
    runs.refuses(lab, node, values, "cordon-of-another", at="whose")


@pytest.mark.parametrize("between", ["cordon", "holder", "taint", "replaced"])
def test_what_changes_between_the_checks_and_the_change_is_seen(lab: Lab, between: str) -> None:
    node = lab.node()
    run = lab.cordon(node, **lab.planned(node))
    finish(run, until="hands")
    if between == "cordon":
        lab.change(node, {"spec": {"unschedulable": True}})
    elif between == "holder":
        lab.holder(node)
    elif between == "taint":
        lab.change(node, {"spec": {"taints": [{"key": "new", "effect": "NoSchedule"}]}})
    else:
        found = lab.seen(node)
        lab.admin.call("DELETE", f"/api/v1/nodes/{node}")
        body = {"metadata": {"name": node, "labels": found["metadata"]["labels"]}, "status": found["status"]}
        lab.admin.call("POST", "/api/v1/nodes", body)
    before = lab.seen(node)
    with lab.requests() as seen, pytest.raises(errors.GateError) as refused:
        step(run, "mark")
    wanted = {
        "cordon": "cordon-of-another",
        "holder": "gpu-held",
        "taint": "plan-changed",
        "replaced": "plan-changed",
    }[between]
    assert refused.value.code == wanted
    assert verdict(run) == ("blocked", wanted)
    assert [c for c in runs.changed(seen) if "nodes" in c[1]] == []
    assert (lab.seen(node), lab.lease(node)) == (before, None)


def test_a_blocked_apply_goes_on_once_the_reason_is_gone(lab: Lab) -> None:
    node = lab.node()
    run = lab.cordon(node, **lab.planned(node))
    finish(run, until="hands")
    lab.holder(node)
    with pytest.raises(errors.Stopped):
        step(run, "mark")
    assert lab.lease(node) is None
    lab.admin.call("DELETE", f"/api/v1/namespaces/default/pods/trainer-{node}", None, gracePeriodSeconds=0)
    rest(run, after="hands")
    assert verdict(run) == ("pass", "all-steps-passed")
    assert marks(lab.seen(node)) == (True, True, True)


def test_a_refusal_by_the_server_is_blocked_nowhere_and_leaves_nothing(lab: Lab) -> None:
    node = lab.node()
    run = lab.cordon(node, **lab.planned(node))
    finish(run, until="hands")
    lab.arm({"method": "PATCH"}, {"status": 403}, times=0)
    with pytest.raises(errors.Denied):
        step(run, "mark")
    assert verdict(run) == ("unknown", "forbidden")
    assert closing(run)["left_behind"] == []
    assert lab.lease(node) is None
    lab.disarm()
    rest(run, after="hands")
    assert verdict(run) == ("pass", "all-steps-passed")


def test_the_budget_blocks_before_anything(lab: Lab) -> None:
    lab.applied(lab.node())
    node = lab.node()
    run = lab.cordon(node, max_out=1)
    with pytest.raises(errors.Stopped):
        finish(run)
    assert verdict(run) == ("blocked", "budget-exceeded")
    assert "GPU nodes are out already" in closing(run)["message"]


def test_what_may_be_a_change_id_is_safe_inside_the_annotation() -> None:
    for text in ("CHG-7", "INC:1/2#3", "a.b_c", "x" * 64):
        assert authority.CHANGE_ID.fullmatch(text)
    for text in ("", "a b", 'a"', "a\\", "${run}", "a\n", "٣"):
        assert not authority.CHANGE_ID.fullmatch(text)
