"""The one door, against the embedded API server: what is sent, what is proven first, and what a lost answer means.

Covered: dry run writes nothing, every refusal before sending, conflicts, lost answers, throttling, a permit that ends
between two tries, a crash between intent and result, create and delete. Left out: killing the
process at every point, which the sweep does.
"""

from __future__ import annotations

import pytest
from embedded_server import SMALL, start, stop

from gpurunbook.errors import ClusterError, Denied, Drifted, InputError, NotApproved, Unreachable
from gpurunbook.journal import Journal, read
from gpurunbook.plan import Mutation, Target
from gpurunbook.sources.cluster import Cluster
from gpurunbook.sources.connection import Connection, load
from gpurunbook.sources.door import Door

NODE = "gpu-0001"
PATH = f"/api/v1/nodes/{NODE}"
WORDS = {"run": "r1", "time": "2026-01-31T12:00:00Z", "head": "sha256:0", "reason": "fan", "change_id": "CHG-1"}
MARK = "/metadata/annotations/gpurunbook.io~1test"


@pytest.fixture
def server(tmp_path):
    running = start(tmp_path / "state", SMALL)
    yield running
    stop(running.state)


@pytest.fixture
def cluster(server):
    return Cluster("test", Connection(load("", str(server.state / "kubeconfig")), sleep=lambda _: None))


@pytest.fixture
def journal(tmp_path):
    return Journal.open(tmp_path / "journal.jsonl")


def mark(cluster, value="${run}"):
    node = cluster.object(PATH)
    return Mutation(
        name="mark",
        verb="patch",
        target=Target("Node", NODE, PATH, uid=node["metadata"]["uid"]),
        body=[{"op": "add", "path": MARK, "value": value}],
        patch="json",
        judged={"/spec/unschedulable": node["spec"].get("unschedulable"), MARK: None},
        goal={MARK: value},
    )


def door(cluster, journal, apply=True):
    return Door(cluster, journal, apply=apply, sleep=lambda _: None)


def persisted(server):
    return [entry for entry in server.log(persisted=True) if not entry["user"].startswith("gpurunbook-admin")]


def annotation(cluster):
    return cluster.object(PATH)["metadata"]["annotations"].get("gpurunbook.io/test")


def events(journal):
    return [(r["event"], r["data"].get("how")) for r in read(journal.path)]


def arm(server, match, action, nth=1, times=1):
    server.control("POST", "faults", [{"match": match, "action": action, "nth": nth, "times": times}])


def test_an_apply_is_announced_sent_and_recorded(server, cluster, journal):
    outcome = door(cluster, journal).send("mark", mark(cluster), WORDS)
    assert (outcome.how, annotation(cluster)) == ("applied", "r1")
    assert events(journal) == [("intent", None), ("result", "applied")]
    assert len(persisted(server)) == 1
    assert "gpurunbook.io/test" not in outcome.before["metadata"]["annotations"]


def test_a_dry_run_is_validated_by_the_server_and_writes_nothing(server, cluster, journal):
    before = cluster.object(PATH)
    outcome = door(cluster, journal, apply=False).send("mark", mark(cluster), WORDS)
    assert outcome.how == "validated"
    assert cluster.object(PATH) == before
    assert events(journal) == []
    patches = server.log(method="PATCH")
    assert patches
    assert all(p["dryRun"] for p in patches)
    assert persisted(server) == []


def test_a_dry_run_without_the_permission_is_not_validated(server, journal, cluster):
    arm(server, {"method": "PATCH"}, {"status": 403})
    outcome = door(cluster, journal, apply=False).send("mark", mark(cluster), WORDS)
    assert (outcome.how, bool(outcome.why)) == ("not-validated", True)


def test_a_dry_run_that_a_webhook_cannot_do_is_not_validated(server, journal, cluster):
    arm(server, {"method": "PATCH"}, {"status": 400, "message": "admission webhook w does not support dry run"})
    assert door(cluster, journal, apply=False).send("mark", mark(cluster), WORDS).how == "not-validated"


def test_what_is_so_already_is_not_sent_again(server, cluster, journal):
    wanted = mark(cluster)
    door(cluster, journal).send("mark", wanted, WORDS)
    assert door(cluster, journal).send("mark", wanted, WORDS).how == "already"
    assert len(persisted(server)) == 1


def test_a_judged_field_that_changed_stops_before_anything_is_announced(server, cluster, journal):
    wanted = mark(cluster)
    server.client().call("PATCH", PATH, {"spec": {"unschedulable": True}}, "application/merge-patch+json")
    with pytest.raises(Drifted, match="/spec/unschedulable: wanted None, is True"):
        door(cluster, journal).send("mark", wanted, WORDS)
    assert events(journal) == []


def test_an_object_that_was_replaced_or_is_gone_stops(server, cluster, journal):
    wanted = mark(cluster)
    node = cluster.object(PATH)
    server.client().call("DELETE", PATH)
    with pytest.raises(Drifted, match="gone"):
        door(cluster, journal).send("mark", wanted, WORDS)
    metadata = {k: node["metadata"][k] for k in ("name", "labels")}
    server.client().call("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    with pytest.raises(Drifted, match="replaced"):
        door(cluster, journal).send("mark", wanted, WORDS)


def test_a_conflict_with_equal_judged_fields_is_retried(server, cluster, journal):
    # Somebody else's heartbeat between our reading and our writing.
    original = cluster.connection.send

    def meddle(method, *args, **more):
        if method == "PATCH" and not meddled:
            meddled.append(1)
            server.client().call("PATCH", PATH, {"metadata": {"labels": {"beat": "1"}}}, "application/merge-patch+json")
        return original(method, *args, **more)

    meddled = []
    cluster.connection.send = meddle
    outcome = door(cluster, journal).send("mark", mark(cluster), WORDS)
    assert (outcome.how, annotation(cluster)) == ("applied", "r1")


def test_a_conflict_that_nothing_explains_is_not_retried_for_ever(server, cluster, journal):
    arm(server, {"method": "PATCH"}, {"status": 409}, times=0)
    with pytest.raises(ClusterError, match="409"):
        door(cluster, journal).send("mark", mark(cluster), WORDS)
    assert len(server.log(method="PATCH")) == 1


@pytest.mark.parametrize(
    "action", [{"status": 500}, {"status": 503}, {"status": 429, "retry_after": 0}, {"reset": "before"}]
)
def test_a_request_that_was_not_carried_out_is_sent_again(server, cluster, journal, action):
    arm(server, {"method": "PATCH"}, action)
    outcome = door(cluster, journal).send("mark", mark(cluster), WORDS)
    assert (outcome.how, annotation(cluster)) == ("applied", "r1")
    assert len(persisted(server)) == 1


def test_a_lost_answer_is_settled_by_reading(server, cluster, journal):
    arm(server, {"method": "PATCH"}, {"reset": "after"})
    outcome = door(cluster, journal).send("mark", mark(cluster), WORDS)
    assert (outcome.how, annotation(cluster)) == ("recovered", "r1")
    assert len(persisted(server)) == 1


def test_a_server_that_never_answers_leaves_an_intent_without_result(server, cluster, journal):
    arm(server, {"method": "PATCH"}, {"reset": "before"}, times=0)
    with pytest.raises(Unreachable):
        door(cluster, journal).send("mark", mark(cluster), WORDS)
    assert events(journal) == [("intent", None)]


def test_a_refusal_is_raised_and_nothing_is_persisted(server, cluster, journal):
    arm(server, {"method": "PATCH"}, {"status": 403}, times=0)
    with pytest.raises(Denied):
        door(cluster, journal).send("mark", mark(cluster), WORDS)
    assert persisted(server) == []


def test_after_a_crash_between_intent_and_result_the_same_words_are_recognised(server, cluster, journal):
    wanted = mark(cluster, "${run} at ${time} after ${head}")
    words = {**WORDS, "time": "2026-01-31T12:00:00Z", "head": "sha256:1"}
    with pytest.raises(Unreachable):
        arm(server, {"method": "PATCH"}, {"reset": "after"})
        arm(server, {"method": "GET", "path": PATH}, {"reset": "before"}, nth=2, times=0)
        door(cluster, journal).send("mark", wanted, words)
    server.control("DELETE", "faults")
    later = {**WORDS, "time": "2026-01-31T12:05:00Z", "head": "sha256:2"}
    outcome = door(cluster, journal).send("mark", wanted, later)
    assert outcome.how == "recovered"
    assert annotation(cluster) == "r1 at 2026-01-31T12:00:00Z after sha256:1"
    assert len(persisted(server)) == 1


def test_a_field_that_a_webhook_rewrites_is_told(server, cluster, journal):
    wanted = mark(cluster)
    body = [*wanted.body, {"op": "replace", "path": MARK, "value": "rewritten"}]
    with pytest.raises(Drifted, match="other fields than were sent"):
        door(cluster, journal).send("mark", Mutation(**{**vars(wanted), "body": body}), WORDS)


LEASES = "/apis/coordination.k8s.io/v1/namespaces/gpu-operator/leases"


def lease(name="gpurunbook-test"):
    return Mutation(
        name="lease",
        verb="create",
        target=Target("Lease", name, LEASES, "gpu-operator"),
        body={
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": "gpu-operator"},
            "spec": {"holderIdentity": "${run}"},
        },
        goal={"/spec/holderIdentity": "${run}"},
    )


def test_a_create_whose_answer_was_lost_is_ours(server, cluster, journal):
    arm(server, {"method": "POST", "path": LEASES}, {"reset": "after"})
    assert door(cluster, journal).send("lease", lease(), WORDS).how == "recovered"


def test_a_create_of_what_another_made_is_refused(server, cluster, journal):
    door(cluster, journal).send("lease", lease(), {**WORDS, "run": "r0"})
    with pytest.raises(Drifted) as refused:
        door(cluster, journal).send("lease", lease(), WORDS)
    assert refused.value.code == "exists-already"
    assert cluster.object(f"{LEASES}/gpurunbook-test")["spec"]["holderIdentity"] == "r0"


def test_a_delete_takes_this_object_and_no_other(server, cluster, journal):
    made = door(cluster, journal).send("lease", lease(), WORDS).after
    path = f"{LEASES}/gpurunbook-test"
    gone = Mutation("back", "delete", Target("Lease", "gpurunbook-test", path, "gpu-operator", made["metadata"]["uid"]))
    arm(server, {"method": "DELETE"}, {"reset": "after"})
    assert door(cluster, journal).send("lease", gone, WORDS).how == "recovered"
    other = door(cluster, journal).send("lease", Mutation(**{**vars(lease()), "name": "again"}), WORDS).after
    assert door(cluster, journal).send("lease", gone, WORDS).how == "already"
    assert cluster.object(path)["metadata"]["uid"] == other["metadata"]["uid"]


# -- permits -----------------------------------------------------------------------------------------------------------


class Permit:
    """Good until something was asked of the server that changes it."""

    def __init__(self, server):
        self.server, self.ended = server, False

    def __call__(self):
        if self.ended or self.server.log(method="PATCH"):
            raise NotApproved("it expired", code="approval-expired")


def test_without_a_permit_nothing_is_announced_and_nothing_sent(server, cluster, journal):
    permit = Permit(server)
    permit.ended = True
    with pytest.raises(NotApproved):
        Door(cluster, journal, apply=True, permit=permit).send("mark", mark(cluster), WORDS)
    assert (events(journal), server.log(method="PATCH"), annotation(cluster)) == ([], [], None)


@pytest.mark.parametrize(
    ("action", "done", "how"),
    [
        ({"status": 429, "retry_after": 1}, False, "refused"),
        ({"status": 401}, False, "refused"),
        ({"status": 409}, False, None),  # nothing moved, so that nothing is sent again
        ({"status": 500}, False, "unknown"),
        ({"reset": "before"}, False, "unknown"),
        ({"reset": "after"}, True, "recovered"),
    ],
    ids=lambda value: str(value),
)
def test_a_permit_that_ends_between_two_tries_ends_them_and_tells_what_is_known(server, journal, action, done, how):
    config = str(server.state / "kubeconfig")
    cluster = Cluster("test", Connection(load("", config), lambda: load("", config), sleep=lambda _: None))
    wanted = mark(cluster)
    arm(server, {"method": "PATCH"}, action)
    sending = Door(cluster, journal, apply=True, sleep=lambda _: None, permit=Permit(server))
    if how == "recovered":
        assert sending.send("mark", wanted, WORDS).how == how
    else:
        with pytest.raises(NotApproved if how else ClusterError):
            sending.send("mark", wanted, WORDS)
    assert len(server.log(method="PATCH")) == 1
    assert (annotation(cluster) == "r1") == done
    noted = [] if how == "unknown" else [("result", how or "refused")]
    assert events(journal) == [("intent", None), *noted]


@pytest.mark.parametrize("wrong", [InputError("no kubeconfig"), Drifted("another server", code="wrong-cluster")])
def test_credentials_that_cannot_be_loaded_again_leave_nothing_in_doubt(server, journal, wrong):
    config = str(server.state / "kubeconfig")

    def reload():
        raise wrong

    cluster = Cluster("test", Connection(load("", config), reload, sleep=lambda _: None))
    wanted = mark(cluster)
    arm(server, {"method": "PATCH"}, {"status": 401})
    with pytest.raises(type(wrong)):
        door(cluster, journal).send("mark", wanted, WORDS)
    assert events(journal) == [("intent", None), ("result", "refused")]
    assert annotation(Cluster("test", Connection(load("", config)))) is None


def test_what_needs_no_request_needs_no_permit(server, cluster, journal):
    wanted = mark(cluster)
    door(cluster, journal).send("mark", wanted, WORDS)
    permit = Permit(server)
    permit.ended = True
    sending = Door(cluster, journal, apply=True, permit=permit)
    assert sending.send("mark", wanted, WORDS).how == "already"
    assert sending.holds("mark", wanted, WORDS)


def test_a_dry_run_needs_no_permit(server, cluster, journal):
    permit = Permit(server)
    permit.ended = True
    assert Door(cluster, journal, apply=False, permit=permit).send("mark", mark(cluster), WORDS).how == "validated"
