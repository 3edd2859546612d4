"""Following collections and objects: what is seen when, what a broken watch does to it, that nothing is left behind.

Covered: changes, deletion, typed items, bookmarks, a forgotten past (410), cut and garbled streams, watches that never
work, a server that goes away and comes back, credentials that expire, deadlines on a monotonic clock, interrupts.
Left out: the reaction time (tests/bench), watches on the real control plane (test_conformance.py).
"""

from __future__ import annotations

import itertools
import json
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
from embedded_server import Embedded, start, stop
from runs import seeded

from gpurunbook import errors
from gpurunbook.nodes.shapes import PodPage
from gpurunbook.plan import Now, Object, Observed, Pages, Progress, Seen, Wait
from gpurunbook.runbook import waiting
from gpurunbook.sources import watch
from gpurunbook.sources.cluster import Cluster
from gpurunbook.sources.connection import Connection, load
from gpurunbook.sources.watch import follow
from tests.eventually import eventually

NODES = Pages("/api/v1/nodes")
LEASES = "/apis/coordination.k8s.io/v1/namespaces/gpu-operator/leases"
MERGE = "application/merge-patch+json"
BRIEF = {"name": "brief", "groups": ["sre"], "token": "brief-token", "expires": {"after_requests": 2}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    running = seeded(tmp_path_factory.mktemp("watch"), 4, [BRIEF])
    yield running
    stop(running.state)


@pytest.fixture(autouse=True)
def _unfaulted(server: Embedded) -> Iterator[None]:
    yield
    server.control("DELETE", "faults")
    eventually(unwatched)


def unwatched() -> bool:
    """No thread follows anything any more."""
    return not [t for t in threading.enumerate() if t.name.startswith("watch-")]


@pytest.fixture
def cluster(server: Embedded) -> Cluster:
    def reload() -> Any:
        return load("", str(server.state / "kubeconfig"))

    return Cluster("test", Connection(reload(), reload, sleep=lambda _: None))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PAUSE_SECONDS", 0.1)


def arm(server: Embedded, action: dict[str, Any], nth: int = 1, times: int = 1, **match: str) -> None:
    server.control("POST", "faults", [{"match": match, "action": action, "nth": nth, "times": times}])


def label(server: Embedded, node: str, value: str) -> None:
    server.client().call("PATCH", f"/api/v1/nodes/{node}", {"metadata": {"labels": {"test": value}}}, MERGE)


def labelled(value: str, name: str = "gpu-0001") -> Callable[[dict[str, Observed]], bool]:
    def test(seen: dict[str, Observed]) -> bool:
        found = seen["it"].value
        nodes = found if isinstance(found, list) else [found] if found else []
        return any(n["metadata"]["name"] == name and n["metadata"]["labels"].get("test") == value for n in nodes)

    return test


def until(after: Callable[[float], dict[str, Observed]], test: Callable[[dict[str, Observed]], Any]) -> Any:
    """What was seen when the test first held."""
    end = time.monotonic() + 180
    while True:
        seen = after(0.2)
        if test(seen):
            return seen
        assert time.monotonic() < end, seen


def read(seen: dict[str, Observed]) -> bool:
    return all(o.problem is None for o in seen.values())


WATCH = ".*watch=1.*"
VALUES = (f"v{n}" for n in itertools.count())


def watches(server: Embedded) -> list[dict[str, Any]]:
    return [e for e in server.log(path="/api/v1/nodes") if "watch=1" in e["query"]]


def lists(server: Embedded) -> list[dict[str, Any]]:
    return [e for e in server.log(path="/api/v1/nodes") if "watch=1" not in e["query"]]


# -- what is seen ----------------------------------------------------------------------------------------------------


def test_nothing_read_yet_is_a_problem_and_no_empty_list(server: Embedded, cluster: Cluster) -> None:
    arm(server, {"delay": 0.5}, path="/api/v1/nodes")
    with follow(cluster, {"it": NODES}) as after:
        seen = after(0)
        assert seen["it"].value is None
        assert seen["it"].problem is not None
        assert seen["it"].problem.code == "not-read"
        assert len(until(after, read)["it"].value) >= 4


@pytest.mark.parametrize("need", [NODES, Object("/api/v1/nodes/gpu-0001")])
def test_a_change_is_told_by_the_watch_and_not_by_another_list(server: Embedded, cluster: Cluster, need: Any) -> None:
    value = next(VALUES)
    before = len(lists(server))
    with follow(cluster, {"it": need}) as after:
        until(after, read)
        label(server, "gpu-0001", value)
        until(after, labelled(value))
    assert len(lists(server)) == before + 1


def test_an_object_that_is_not_there_appears_and_goes(server: Embedded, cluster: Cluster) -> None:
    path = f"{LEASES}/watched"
    with follow(cluster, {"it": Object(path)}) as after:
        seen = until(after, lambda s: s["it"].problem and s["it"].problem.code == "not-found")
        assert seen["it"].value is None
        server.client().call("POST", LEASES, {"metadata": {"name": "watched"}, "spec": {"holderIdentity": "a"}})
        assert until(after, read)["it"].value["spec"]["holderIdentity"] == "a"
        server.client().call("DELETE", path)
        until(after, lambda s: s["it"].problem and s["it"].problem.code == "not-found")


def test_an_item_that_is_deleted_leaves_the_list_and_a_new_one_of_the_name_is_another(
    server: Embedded, cluster: Cluster
) -> None:
    need = Pages(LEASES)
    body = {"metadata": {"name": "twice"}, "spec": {"holderIdentity": "a"}}
    with follow(cluster, {"it": need}) as after:
        until(after, read)
        first = server.client().call("POST", LEASES, body)["metadata"]["uid"]
        until(after, lambda s: [i["metadata"]["uid"] for i in s["it"].value] == [first])
        server.client().call("DELETE", f"{LEASES}/twice")
        until(after, lambda s: s["it"].value == [])
        second = server.client().call("POST", LEASES, body)["metadata"]["uid"]
        until(after, lambda s: [i["metadata"]["uid"] for i in s["it"].value] == [second])
    server.client().call("DELETE", f"{LEASES}/twice")


def test_items_are_typed_as_the_need_says(server: Embedded, cluster: Cluster) -> None:
    need = Pages("/api/v1/pods", PodPage, (("fieldSelector", "spec.nodeName=gpu-0002"),))
    with follow(cluster, {"it": need}) as after:
        before = {pod.metadata.key for pod in until(after, read)["it"].value}
        body = {
            "metadata": {"name": "typed"},
            "spec": {"nodeName": "gpu-0002", "containers": [{"name": "c", "image": "registry.example/a:1"}]},
        }
        server.client().call("POST", "/api/v1/namespaces/default/pods", body)
        seen = until(after, lambda s: len(s["it"].value) > len(before))
        assert {pod.metadata.key for pod in seen["it"].value} - before == {"default/typed"}


def test_several_needs_are_followed_at_once_and_one_that_is_forbidden_hides_no_other(
    server: Embedded, cluster: Cluster
) -> None:
    arm(server, {"status": 403}, times=0, path=LEASES)
    with follow(cluster, {"it": NODES, "leases": Pages(LEASES)}) as after:
        seen = until(after, lambda s: s["it"].problem is None and s["leases"].problem.code == "forbidden")
        assert seen["leases"].value is None


def test_what_cannot_be_followed_is_refused_before_anything_is_opened(cluster: Cluster) -> None:
    with pytest.raises(TypeError, match="cannot be followed"), follow(cluster, {"now": Now()}):
        pass


# -- broken watches --------------------------------------------------------------------------------------------------


def test_a_forgotten_past_is_listed_again_at_once(server: Embedded, cluster: Cluster) -> None:
    value = next(VALUES)
    # The first watch is cut at its first event; the next one asks for a version that is forgotten.
    arm(server, {"truncate": 0}, path="/api/v1/nodes", query=WATCH)
    arm(server, {"status": 410}, nth=2, path="/api/v1/nodes", query=WATCH)
    with follow(cluster, {"it": NODES}) as after:
        until(after, read)
        label(server, "gpu-0001", value)
        until(after, labelled(value))
    assert [e["status"] for e in watches(server)[-3:]] == [200, 410, 200]


def test_a_watch_whose_past_is_always_forgotten_falls_back_to_lists_with_a_pause(
    server: Embedded, cluster: Cluster
) -> None:
    arm(server, {"status": 410}, times=0, path="/api/v1/nodes", query=WATCH)
    value = next(VALUES)
    with follow(cluster, {"it": NODES}) as after:
        until(after, read)
        label(server, "gpu-0001", value)
        until(after, labelled(value))
        begin, begun = time.monotonic(), len(lists(server))
        until(after, lambda _: len(lists(server)) >= begun + 4)
        assert time.monotonic() - begin > 2 * watch.PAUSE_SECONDS
        assert read(after(0))


def test_an_error_event_of_410_lists_again(server: Embedded, cluster: Cluster) -> None:
    value = next(VALUES)
    arm(server, {"delay": 0.3}, path="/api/v1/nodes", query=WATCH)
    with follow(cluster, {"it": NODES}) as after:
        until(after, read)
        # While the watch is on its way, its version is forgotten.
        label(server, "gpu-0001", "between")
        server.control("POST", "compact")
        label(server, "gpu-0001", value)
        until(after, labelled(value))


def test_a_list_that_is_gone_for_good_is_told_and_never_stale(server: Embedded, cluster: Cluster) -> None:
    arm(server, {"truncate": 0}, path="/api/v1/nodes", query=WATCH)
    with follow(cluster, {"it": NODES}) as after:
        until(after, read)
        arm(server, {"status": 410}, times=0, path="/api/v1/nodes")
        label(server, "gpu-0001", next(VALUES))
        until(after, lambda s: s["it"].problem and s["it"].problem.code == "gone")
        server.control("DELETE", "faults")
        until(after, read)


@pytest.mark.parametrize("where", [0, 1, 40, 400])
def test_a_stream_that_is_reset_in_the_middle_goes_on_without_a_gap(
    server: Embedded, cluster: Cluster, where: int
) -> None:
    arm(server, {"truncate": where}, times=2, path="/api/v1/nodes", query=WATCH)
    with follow(cluster, {"it": NODES}) as after:
        until(after, read)
        for value in (next(VALUES), next(VALUES), next(VALUES)):
            label(server, "gpu-0001", value)
            until(after, labelled(value))


@pytest.mark.parametrize("action", [{"truncate": 0}, {"truncate": 30}, {"garble": True}])
def test_a_watch_that_never_works_falls_back_to_lists_with_a_pause(
    server: Embedded, cluster: Cluster, action: dict[str, Any]
) -> None:
    arm(server, action, times=0, path="/api/v1/nodes", query=WATCH)
    with follow(cluster, {"it": NODES}) as after:
        until(after, read)
        for value in (next(VALUES), next(VALUES)):
            label(server, "gpu-0001", value)
            until(after, labelled(value))
        assert read(after(0))


def test_a_server_that_went_away_is_a_problem_until_it_is_back(server: Embedded, cluster: Cluster) -> None:
    value = next(VALUES)
    with follow(cluster, {"it": NODES}) as after:
        until(after, read)
        fixture = server.state.parent / "fixture"
        stop(server.state)
        seen = until(after, lambda s: s["it"].problem)
        assert (seen["it"].problem.code, seen["it"].value) == ("unreachable", None)
        server.info = start(server.state, fixture).info
        label(server, "gpu-0001", value)
        until(after, labelled(value))


def test_a_token_that_expires_is_renewed_without_a_word(server: Embedded) -> None:
    config = str(server.state / "kubeconfig")
    contexts = iter(["brief@many", "oncall@many"])

    def reload() -> Any:
        return load(next(contexts), config)

    source = Cluster("", Connection(reload(), reload, sleep=lambda _: None))
    value = next(VALUES)
    arm(server, {"truncate": 0}, path="/api/v1/nodes", query=WATCH)
    with follow(source, {"it": NODES}) as after:
        until(after, read)
        label(server, "gpu-0001", value)
        until(after, labelled(value))
    assert 401 in {e["status"] for e in watches(server)}


def test_credentials_that_stay_expired_are_told(server: Embedded) -> None:
    config = str(server.state / "kubeconfig")
    source = Cluster("", Connection(load("brief@many", config), sleep=lambda _: None))
    arm(server, {"truncate": 0}, path="/api/v1/nodes", query=WATCH)  # an open watch outlives its token
    with follow(source, {"it": NODES}) as after:
        until(after, lambda s: s["it"].problem and s["it"].problem.code == "unauthorized")


# -- odd servers -----------------------------------------------------------------------------------------------------


class Odd(BaseHTTPRequestHandler):
    """Lists one node at version 10, and answers each watch with the next of the given streams; then it stays silent.

    Every list but the first waits until it is allowed.
    """

    streams: ClassVar[list[list[dict[str, Any]]]] = []
    asked: ClassVar[list[str]] = []
    again: ClassVar[threading.Event]
    over: ClassVar[threading.Event]

    def do_GET(self) -> Any:
        self.asked.append(self.path)
        if "watch=1" not in self.path:
            if len(self.asked) > 1:
                self.again.wait()
            listed = {"kind": "NodeList", "metadata": {"resourceVersion": "10"}, "items": [node("gpu-a", "10")]}
            return self.say([listed])
        if not self.streams:
            self.say([], silent=True)
            return self.over.wait()
        return self.say(self.streams.pop(0))

    def say(self, lines: list[dict[str, Any]], *, silent: bool = False) -> None:
        body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        self.send_response(200)
        self.send_header("Content-Length", "999" if silent else str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def node(name: str, version: str, uid: str | None = "u1", **labels: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "resourceVersion": version, "labels": labels}
    return {"metadata": metadata | ({"uid": uid} if uid else {})}


def event(kind: str, item: Any) -> dict[str, Any]:
    return {"type": kind, "object": item}


@contextmanager
def odd(*streams: list[dict[str, Any]], again: threading.Event | None = None) -> Iterator[tuple[Cluster, list[str]]]:
    from kubernetes.client.api_client import ApiClient
    from kubernetes.client.configuration import Configuration

    over, allowed = threading.Event(), threading.Event()
    allowed.set()
    more = {"over": over, "again": again or allowed}
    handler = type("Handler", (Odd,), {"streams": list(streams), "asked": [], **more})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    configuration = Configuration()
    configuration.host = f"http://127.0.0.1:{server.server_port}"
    try:
        yield Cluster("", Connection(ApiClient(configuration), sleep=lambda _: None)), handler.asked
    finally:
        over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def versions(asked: list[str]) -> list[str]:
    return [re.findall("resourceVersion=([0-9]+)", path)[0] for path in asked if "watch=1" in path]


def test_a_watch_goes_on_from_its_last_bookmark() -> None:
    bookmark = event("BOOKMARK", {"metadata": {"resourceVersion": "77"}})
    with (
        odd([event("MODIFIED", node("gpu-a", "12", test="new")), bookmark], []) as (source, asked),
        follow(source, {"it": NODES}) as after,
    ):
        until(after, labelled("new", "gpu-a"))
        until(after, lambda _: len(versions(asked)) >= 3)
        assert len(after(0)["it"].value) == 1
    assert versions(asked)[:3] == ["10", "77", "77"]
    assert len([path for path in asked if "watch" not in path]) == 1


@pytest.mark.parametrize(
    "strange",
    [
        event("UPSET", node("gpu-a", "12")),
        event("MODIFIED", node("gpu-a", "12", uid=None)),
        event("MODIFIED", {"metadata": {"name": "gpu-a", "uid": "u1"}}),
        event("MODIFIED", None),
        event("MODIFIED", [1]),
        {"object": node("gpu-a", "12")},
        {"type": "MODIFIED"},
    ],
)
def test_an_event_that_is_none_is_told_and_listed_over(strange: dict[str, Any]) -> None:
    again = threading.Event()
    with odd([strange], again=again) as (source, asked), follow(source, {"it": NODES}) as after:
        until(after, lambda seen: seen["it"].problem and seen["it"].problem.code == "garbled")
        again.set()
        until(after, read)
        assert [n["metadata"]["name"] for n in after(0)["it"].value] == ["gpu-a"]
    assert len([path for path in asked if "watch" not in path]) == 2


@pytest.mark.parametrize(("code", "problem"), [(500, "server-error"), (403, "forbidden"), (429, "throttled")])
def test_an_error_event_is_told_and_listed_over(code: int, problem: str) -> None:
    again = threading.Event()
    status = {"kind": "Status", "code": code, "message": "no"}
    with odd([event("ERROR", status)], again=again) as (source, _), follow(source, {"it": NODES}) as after:
        until(after, lambda seen: seen["it"].problem and seen["it"].problem.code == problem)
        again.set()
        until(after, read)


def test_a_silent_watch_is_opened_again_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SILENCE_SECONDS", 1.0)
    first = event("MODIFIED", node("gpu-a", "12", test="new"))
    with odd([first]) as (source, asked), follow(source, {"it": NODES}) as after:
        until(after, lambda _: len(versions(asked)) >= 4)
        assert read(after(0))
    assert versions(asked)[:4] == ["10", "12", "12", "12"]


# -- waits -----------------------------------------------------------------------------------------------------------


def wait(progress: Callable[[Seen], Progress], seconds: float = 5.0) -> Wait:
    return Wait("node to be labelled", {"it": Object("/api/v1/nodes/gpu-0003")}, progress, seconds)


def never(seen: Seen) -> Progress:
    return Progress("waiting", ("the label test", "a second thing"))


def test_a_deadline_says_what_is_missing(cluster: Cluster) -> None:
    ticks = itertools.count()
    with pytest.raises(errors.DeadlineError) as raised:
        waiting.until(cluster, wait(never, 0.3), standing=lambda _: None, clock=lambda: next(ticks) / 20)
    assert str(raised.value).startswith(
        "node to be labelled: after 0.3 s still missing: the label test (since 0 s); a second thing (since 0 s)"
    )
    assert "goes on waiting" in raised.value.remedy


def test_what_is_missing_is_told_with_its_own_time(cluster: Cluster) -> None:
    ticks = itertools.count(0, 10)
    looks = itertools.count()

    def progress(seen: Seen) -> Progress:
        return Progress("waiting", ("the first",) if next(looks) < 3 else ("the first", "the second"))

    with pytest.raises(errors.DeadlineError) as raised:
        waiting.until(cluster, wait(progress, 100.0), standing=lambda _: None, clock=lambda: float(next(ticks)))
    first, second = raised.value.message.split("still missing: ")[1].split("; ")
    assert first.startswith("the first (since ")
    assert second.startswith("the second (since ")
    assert int(first.split()[-2]) > int(second.split()[-2])


def test_a_jump_of_the_wall_clock_moves_no_deadline(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whatever asks for the time of day gets a day that jumps by years.
    jumps = itertools.cycle([0.0, 4e9])
    monkeypatch.setattr(time, "time", lambda: next(jumps))
    begin = time.monotonic()
    with pytest.raises(errors.DeadlineError):
        waiting.until(cluster, wait(never, 0.4), standing=lambda _: None)
    assert 0.3 < time.monotonic() - begin < 60


def test_a_wait_ends_as_soon_as_it_is_done_and_looks_at_what_must_stand(server: Embedded, cluster: Cluster) -> None:
    value = next(VALUES)
    looked: list[Any] = []

    def progress(seen: Seen) -> Progress:
        node = seen["it"].value
        done = bool(node) and node["metadata"]["labels"].get("test") == value
        return Progress("done" if done else "waiting", () if done else ("the label",))

    threading.Timer(0.3, label, (server, "gpu-0003", value)).start()
    found = waiting.until(cluster, wait(progress, 180.0), standing=looked.append)
    assert found.state == "done"
    assert looked
    assert all(set(seen) == {"it"} for seen in looked)


def test_a_failure_ends_the_wait_at_once(cluster: Cluster) -> None:
    begin = time.monotonic()
    found = waiting.until(cluster, wait(lambda _: Progress("failed"), 3600.0), standing=lambda _: None)
    assert (found.state, time.monotonic() - begin < 60) == ("failed", True)


def test_what_must_stand_may_end_the_wait(cluster: Cluster) -> None:
    def look(seen: Seen) -> None:
        raise errors.GateError("it is another's")

    with pytest.raises(errors.GateError, match="another's"):
        waiting.until(cluster, wait(never, 60.0), standing=look)


def test_an_interrupt_while_it_begins_leaves_no_thread(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = threading.Thread.start

    def start(stream: Any) -> None:
        if stream.key == "second":
            raise KeyboardInterrupt
        begin(stream)

    monkeypatch.setattr(watch._Stream, "start", start)
    with pytest.raises(KeyboardInterrupt), follow(cluster, {"first": NODES, "second": Pages(LEASES)}):
        pass
    eventually(unwatched)


def test_an_interrupt_leaves_no_thread_and_no_request(server: Embedded, cluster: Cluster) -> None:
    def interrupt(_: Any, __: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        begin = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            waiting.until(cluster, wait(never, 3600.0), standing=lambda _: None)
        assert time.monotonic() - begin < 60
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    eventually(unwatched)
    begun = len(server.log())
    cluster.object("/api/v1/nodes/gpu-0003")
    assert [e["path"] for e in server.log()[begun:]] == ["/api/v1/nodes/gpu-0003"]
