"""One HTTP connection: every way in which an answer fails to come, what is tried again, how credentials are renewed.

Covered against the embedded server: each status, Retry-After, resets, truncated, garbled and dripping answers, lists
whose token expires, credentials that expire, from an exec plugin too. Against small servers of this file: redirects,
answers cut off without a reset, a continue token that comes again, a proxy. Left out: TLS and client certificates,
which are the official client's; the watch (test_watch.py); writes (test_door.py).
"""

from __future__ import annotations

import itertools
import json
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from embedded_server import SMALL, Embedded, stop
from runs import seeded

from gpurunbook import errors
from gpurunbook.declared.book import Permission
from gpurunbook.plan import Pages
from gpurunbook.sources import connection as module
from gpurunbook.sources.cluster import Cluster, Identity, connect
from gpurunbook.sources.connection import ATTEMPTS, PATIENCE_SECONDS, Connection, load
from tests.eventually import eventually

GPU_NODES = 1200
NODES = Pages("/api/v1/nodes")
POOR = {"name": "poor", "username": "poor@example.com", "groups": [], "token": "poor-token"}
BRIEF = {"name": "brief", "groups": ["sre"], "token": "brief-token", "expires": {"after_requests": 0}}
LATER = {"name": "later", "groups": ["sre"], "token": "later-token", "expires": {"after_requests": 1}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    running = seeded(tmp_path_factory.mktemp("connection"), GPU_NODES, [POOR, BRIEF, LATER])
    yield running
    stop(running.state)


@pytest.fixture(autouse=True)
def _unfaulted(server: Embedded) -> Iterator[None]:
    yield
    server.control("DELETE", "faults")


@pytest.fixture
def slept() -> list[float]:
    return []


@pytest.fixture
def reading(server: Embedded, slept: list[float]) -> Cluster:
    return cluster(server, slept)


def cluster(server: Embedded, slept: list[float], context: str = "", **more: Any) -> Cluster:
    config = str(server.state / "kubeconfig")
    return Cluster("test", Connection(load(context, config), sleep=slept.append, **more))


def arm(server: Embedded, action: dict[str, Any], nth: int = 1, times: int = 1, **match: str) -> None:
    wanted = match or {"path": "/api/v1/nodes"}
    server.control("POST", "faults", [{"match": wanted, "action": action, "nth": nth, "times": times}])


def whole(items: list[Any]) -> None:
    """Every node is there, each once."""
    assert len({i["metadata"]["uid"] for i in items}) == len(items)
    assert sum(i["metadata"]["name"].startswith("gpu-") for i in items) == GPU_NODES


@contextmanager
def asked(server: Embedded) -> Iterator[list[dict[str, Any]]]:
    entries = server.log()
    server.since = entries[-1]["n"] if entries else 0
    found: list[dict[str, Any]] = []
    yield found
    found += server.log()


@pytest.mark.parametrize(
    ("status", "error", "code", "tries"),
    [
        (400, errors.ClusterError, "cluster", 1),
        (401, errors.Unauthorized, "unauthorized", 1),
        (403, errors.Denied, "forbidden", 1),
        (404, errors.NotFound, "not-found", 1),
        (409, errors.Conflict, "conflict", 1),
        (415, errors.Invalid, "invalid", 1),
        (422, errors.Invalid, "invalid", 1),
        (429, errors.Throttled, "throttled", ATTEMPTS),
        (500, errors.ServerFault, "server-error", ATTEMPTS),
        (501, errors.ServerFault, "server-error", 1),
        (503, errors.ServerFault, "server-error", ATTEMPTS),
        (504, errors.ServerFault, "server-error", ATTEMPTS),
    ],
)
def test_a_status_for_good_becomes_its_error_after_a_bounded_number_of_tries(
    server: Embedded, reading: Cluster, status: int, error: type[errors.ClusterError], code: str, tries: int
) -> None:
    arm(server, {"status": status, "message": "because"}, times=0)
    with asked(server) as seen, pytest.raises(error, match=f"GET /api/v1/nodes: HTTP {status}: because") as raised:
        reading.listed(NODES)
    assert (raised.value.code, raised.value.status, len(seen)) == (code, status, tries)


@pytest.mark.parametrize("action", [{"status": 429}, {"status": 500}, {"reset": "before"}, {"truncate": 40}])
def test_what_passes_is_asked_again_with_growing_patience(
    server: Embedded, reading: Cluster, slept: list[float], action: dict[str, Any]
) -> None:
    arm(server, action, times=3)
    items, _ = reading.listed(NODES)
    whole(items)
    assert slept == [0.2, 0.4, 0.8]


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("retry_after", "waited"), [(0, 0.2), (1, 1.0), (7, 7.0), (30, 30.0), (31, 30.0), (86400, 30.0)]
)
def test_retry_after_is_respected_up_to_the_patience_of_somebody_who_looks(
    server: Embedded, reading: Cluster, slept: list[float], status: int, retry_after: int, waited: float
) -> None:
    arm(server, {"status": status, "retry_after": retry_after})
    reading.object("/api/v1/nodes/gpu-0001")  # another path: not met
    assert slept == []
    reading.connection.read("/api/v1/nodes", [("limit", "1")])
    assert slept == [min(waited, PATIENCE_SECONDS)]


@pytest.mark.parametrize("text", ["", "soon", "-1", "1.5", "٣", "Wed, 21 Oct 2026 07:28:00 GMT", "9" * 400])
def test_a_retry_after_that_is_no_number_of_seconds_is_no_crash(text: str) -> None:
    with pytest.raises(errors.Throttled) as raised:
        module.raise_for(429, b"", {"Retry-After": text}, "GET /")
    assert 0 < module.pause(raised.value, 1) <= PATIENCE_SECONDS


@pytest.mark.parametrize("action", [{"truncate": 0}, {"truncate": 40}, {"truncate": 5000}, {"reset": "before"}])
def test_an_answer_that_never_comes_whole_is_unreachable(
    server: Embedded, reading: Cluster, action: dict[str, Any]
) -> None:
    arm(server, action, times=0)
    with asked(server) as seen, pytest.raises(errors.Unreachable, match="no whole answer from http"):
        reading.listed(NODES)
    assert len(seen) == ATTEMPTS


def test_an_answer_that_drips_longer_than_the_limit_is_given_up(server: Embedded) -> None:
    # The clock runs a thousand times faster than the server drips.
    ticks = itertools.count()
    source = cluster(server, [], clock=lambda: 20.0 * next(ticks))
    arm(server, {"drip": {"bytes": 4, "seconds": 0.005}}, times=0, path="/version")
    with pytest.raises(errors.Unreachable, match="the answer took more than 60 s"):
        source.connection.read("/version")


def test_an_answer_that_drips_in_time_is_whole(server: Embedded, reading: Cluster) -> None:
    arm(server, {"drip": {"bytes": 16, "seconds": 0.001}}, path="/version")
    assert json.loads(reading.connection.read("/version"))["gitVersion"].startswith("v1.")


def test_a_silent_server_is_given_up(server: Embedded) -> None:
    source = cluster(server, [], silence=0.05)
    arm(server, {"delay": 0.3}, times=0, path="/version")
    before = len(server.log(path="/version"))
    with pytest.raises(errors.Unreachable, match="ReadTimeoutError"):
        source.connection.read("/version")
    eventually(lambda: len(server.log(path="/version")) == before + ATTEMPTS)  # the next test counts requests too


@pytest.mark.parametrize("path", ["/api/v1/nodes", "/api/v1/nodes/gpu-0001"])
def test_an_answer_that_is_no_json_is_garbled_and_not_asked_again(
    server: Embedded, reading: Cluster, path: str
) -> None:
    arm(server, {"garble": True}, times=0, path=path)
    with asked(server) as seen, pytest.raises(errors.Garbled):
        reading.listed(NODES) if path.endswith("nodes") else reading.object(path)
    assert [entry["path"] for entry in seen] == [path]


def test_a_list_whose_token_expired_is_begun_again(server: Embedded, reading: Cluster) -> None:
    arm(server, {"status": 410}, nth=2, times=2)
    items, version = reading.listed(NODES)
    whole(items)
    assert version.isdigit()


def test_a_list_whose_token_expires_for_good_is_gone(server: Embedded, reading: Cluster) -> None:
    arm(server, {"status": 410}, times=0, path="/api/v1/nodes", query=".*continue=.*")
    with asked(server) as seen, pytest.raises(errors.Gone):
        reading.listed(NODES)
    assert len(seen) == 6


def test_a_page_that_is_forbidden_in_the_middle_is_no_short_list(server: Embedded, reading: Cluster) -> None:
    arm(server, {"status": 403}, nth=3)
    seen = reading.observe(NODES)
    assert seen.value is None
    assert seen.problem is not None
    assert seen.problem.code == "forbidden"


def test_reviews_are_retried_like_reads(server: Embedded, reading: Cluster) -> None:
    for action in ({"status": 429, "retry_after": 0}, {"status": 500}, {"reset": "after"}):
        arm(server, action, method="POST")
    assert reading.missing([Permission("list", "nodes"), Permission("delete", "nodes")]) == [
        Permission("delete", "nodes")
    ]
    assert reading.identify().operator == "oncall@example.com"


def test_no_credentials_are_in_any_message(server: Embedded) -> None:
    source = cluster(server, [], "poor@many")
    with pytest.raises(errors.Denied) as raised:
        source.listed(NODES)
    arm(server, {"reset": "before"}, times=0)
    with pytest.raises(errors.Unreachable) as lost:
        source.listed(NODES)
    assert "poor-token" not in f"{raised.value}{lost.value}"


# -- credentials -----------------------------------------------------------------------------------------------------


def plugin(folder: Path, tokens: list[str]) -> Path:
    """An exec plugin that prints one token after the other, the last one for ever."""
    left = folder / "tokens"
    left.write_text("\n".join(tokens))
    script = folder / "credentials"
    script.write_text(
        f"#!{sys.executable}\n"
        "import json, pathlib\n"
        f"left = pathlib.Path({str(left)!r})\n"
        "first, *rest = left.read_text().split()\n"
        "left.write_text(' '.join(rest or [first]))\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',\n"
        "    'status': {'token': first}}))\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


def kubeconfig(server: Embedded, folder: Path, user: dict[str, Any]) -> str:
    document = yaml.safe_load((server.state / "kubeconfig").read_text())
    document["users"] = [{"name": "me", "user": user}]
    document["contexts"] = [{"name": "c", "context": {"cluster": "many", "user": "me"}}]
    document["current-context"] = "c"
    path = folder / "config"
    path.write_text(yaml.safe_dump(document))
    return str(path)


def by_plugin(server: Embedded, folder: Path, tokens: list[str]) -> Cluster:
    command = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": str(plugin(folder, tokens)),
        "interactiveMode": "Never",
    }
    config = kubeconfig(server, folder, {"exec": command})

    def reload() -> Any:
        return load("", config)

    return Cluster("", Connection(reload(), reload, sleep=lambda _: None))


def good(server: Embedded) -> str:
    users = yaml.safe_load((server.state / "kubeconfig").read_text())["users"]
    return str(next(u["user"]["token"] for u in users if u["name"] == "oncall"))


def test_an_expired_token_is_renewed_once_from_the_exec_plugin(server: Embedded, tmp_path: Path) -> None:
    source = by_plugin(server, tmp_path, ["expired", good(server)])
    with asked(server) as seen:
        whole(source.listed(NODES)[0])
    assert [e["status"] for e in seen] == [401, 200, 200, 200]


def test_a_token_that_expires_in_the_middle_of_a_list_costs_nothing_of_it(server: Embedded, tmp_path: Path) -> None:
    source = by_plugin(server, tmp_path, ["later-token", good(server)])
    with asked(server) as seen:
        items, _ = source.listed(NODES)
    assert [e["status"] for e in seen] == [200, 401, 200, 200]
    whole(items)


def test_a_review_and_a_write_are_sent_again_with_the_new_token(server: Embedded, tmp_path: Path) -> None:
    source = by_plugin(server, tmp_path, ["expired", good(server)])
    assert source.missing([Permission("list", "nodes")]) == []
    source = by_plugin(server, tmp_path, ["expired", good(server)])
    patch = json.dumps({"metadata": {"labels": {"renewed": "yes"}}}).encode()
    with asked(server) as seen:
        source.connection.send("PATCH", "/api/v1/nodes/gpu-0007", (), patch, "application/merge-patch+json")
    assert [(e["status"], e["persisted"]) for e in seen] == [(401, False), (200, True)]


def test_credentials_that_stay_expired_are_not_asked_for_ever(server: Embedded, tmp_path: Path) -> None:
    source = by_plugin(server, tmp_path, ["expired"])
    with asked(server) as seen, pytest.raises(errors.Unauthorized, match="Renew the credentials"):
        source.listed(NODES)
    assert len(seen) == 2


def test_a_plugin_that_fails_is_unauthorized_and_no_crash(server: Embedded, tmp_path: Path) -> None:
    script = tmp_path / "broken"
    script.write_text("#!/bin/sh\necho no login >&2\nexit 3\n")
    script.chmod(0o755)
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(script), "interactiveMode": "Never"}
    config = kubeconfig(server, tmp_path, {"exec": command})
    source = Cluster("", Connection(load("", config), lambda: load("", config), sleep=lambda _: None))
    with pytest.raises(errors.Unauthorized):
        source.listed(NODES)


@pytest.mark.parametrize("text", ["", "{", "[]", "kind: Config", "a: 1"])
def test_a_kubeconfig_that_is_none_is_an_input_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(errors.InputError, match="kubeconfig"):
        load("", str(path))


def test_a_context_that_is_not_there_is_named(server: Embedded) -> None:
    with pytest.raises(errors.InputError, match="cluster 'prod'"):
        load("prod", str(server.state / "kubeconfig"))


def test_the_kubeconfig_of_the_moment_counts(server: Embedded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The client's own reading of KUBECONFIG is that of its import.
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(errors.InputError):
        load("")
    monkeypatch.setenv("KUBECONFIG", kubeconfig(server, tmp_path, {"token": good(server)}))
    assert Connection(load("")).host == server.info["url"]


def test_another_current_context_changes_nothing_when_credentials_are_loaded_again(
    server: Embedded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(kubeconfig(server, tmp_path, {"token": "expired"}))
    monkeypatch.setenv("KUBECONFIG", str(path))
    source = connect("")
    assert source.name == "c"
    document = yaml.safe_load(path.read_text())
    document["users"] = [{"name": "me", "user": {"token": good(server)}}]
    document["clusters"].append({"name": "other", "cluster": {"server": "http://127.0.0.1:9"}})
    document["contexts"].append({"name": "other", "context": {"cluster": "other", "user": "me"}})
    document["current-context"] = "other"
    path.write_text(yaml.safe_dump(document))
    whole(source.listed(NODES)[0])
    assert connect("").connection.host == "http://127.0.0.1:9"


@pytest.mark.parametrize("named", ["c", ""])
def test_a_context_that_leads_to_another_server_meanwhile_is_refused_and_nothing_is_sent_there(
    server: Embedded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    path = Path(kubeconfig(server, tmp_path, {"token": "expired"}))
    monkeypatch.setenv("KUBECONFIG", str(path))
    source = connect(named)
    document = yaml.safe_load(path.read_text())
    for one in document["clusters"]:
        one["cluster"]["server"] = "http://127.0.0.1:9"  # there it would be unreachable
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(
        errors.Drifted, match=f"its server was {server.info['url']}, and is http://127.0.0.1:9 now"
    ) as no:
        source.listed(NODES)
    assert (no.value.code, no.value.subject) == ("wrong-cluster", "context 'c'")


# -- servers of this file --------------------------------------------------------------------------------------------


@contextmanager
def odd(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[tuple[Cluster, list[str], list[float]]]:
    """A loopback server that answers as it is told; the paths that were asked, and what was slept."""
    paths: list[str] = []
    slept: list[float] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            answer(self)

        do_POST = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        client = load_url(f"http://127.0.0.1:{server.server_port}")
        yield Cluster("odd", Connection(client, sleep=slept.append)), paths, slept
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def load_url(url: str) -> Any:
    from kubernetes.client.api_client import ApiClient
    from kubernetes.client.configuration import Configuration

    configuration = Configuration()
    configuration.host = url
    return ApiClient(configuration)


def says(body: bytes, status: int = 200, length: int | None = None, **headers: str) -> Callable[[Any], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body) if length is None else length))
        handler.end_headers()
        handler.wfile.write(body)
        handler.close_connection = True

    return answer


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    with (
        odd(says(b"", status, Location="/api/v1/nodes/other")) as (source, paths, _),
        pytest.raises(errors.ClusterError, match=f"HTTP {status}"),
    ):
        source.object("/api/v1/nodes/gpu-a")
    assert paths == ["/api/v1/nodes/gpu-a"]


@pytest.mark.parametrize("length", [100, 18])
def test_an_answer_that_ends_early_without_a_reset_is_not_taken_for_whole(length: int) -> None:
    with (
        odd(says(b'{"kind":"A"}', length=length)) as (source, paths, _),
        pytest.raises(errors.Unreachable, match="ProtocolError"),
    ):
        source.object("/api/v1/nodes/gpu-a")
    assert len(paths) == ATTEMPTS


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>login</html>",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe",
        b'{"kind":"NodeList"}',
        b'{"kind":"Node","metadata":{}}',
        b'{"kind":"NodeList","metadata":{},"items":{}}',
        b'{"kind":"NodeList","metadata":{"continue":7},"items":[]}',
        b'{"kind":"NodeList","metadata":{},"items":[{"metadata":{"name":"a"}},null]}',
        b'{"kind":"NodeList","metadata":{},"items":[5]}',
        b'{"kind":"NodeList","metadata":{"remainingItemCount":3},"items":[]}',
        b"[" * 100_000,
    ],
)
def test_a_200_that_is_no_list_is_garbled(body: bytes) -> None:
    with odd(says(body)) as (source, paths, _), pytest.raises(errors.Garbled):
        source.listed(NODES)
    assert len(paths) == 1


SYSTEM = {"metadata": {"uid": "u1"}}
REVIEW = {"status": {"userInfo": {"username": "oncall"}, "allowed": True}}


def answers(system: object, version: object, review: object) -> Callable[[BaseHTTPRequestHandler], None]:
    """A server of which each answer has the shape that is given."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        told = version if handler.path == "/version" else review if "reviews" in handler.path else system
        says(json.dumps(told).encode())(handler)

    return answer


ODD = [5, "text", [], True, {"a": 1}]


@pytest.mark.parametrize(
    "told",
    [
        *(({"metadata": odd}, {}, REVIEW) for odd in [*ODD[:4], None, {}, {"uid": 5}, {"uid": ""}, {"uid": {}}]),
        *(({"metadata": {"uid": "u1", "labels": odd}}, {}, REVIEW) for odd in ODD),
        *(({"metadata": {"uid": "u1", "annotations": odd}}, {}, REVIEW) for odd in ODD),
        *((SYSTEM, {"gitVersion": odd}, REVIEW) for odd in [5, [], True, {}]),
        *((SYSTEM, {}, {"status": odd}) for odd in ODD[:4]),
        *((SYSTEM, {}, {"status": {"userInfo": odd}}) for odd in ODD[:4]),
        *((SYSTEM, {}, {"status": {"userInfo": {"username": odd}}}) for odd in [5, [], True, {}]),
    ],
    ids=json.dumps,
)
def test_a_cluster_that_names_itself_in_another_shape_is_garbled(told: tuple[object, object, object]) -> None:
    with odd(answers(*told)) as (source, _, _), pytest.raises(errors.Garbled):
        source.identify()


@pytest.mark.parametrize("allowed", [1, "true", None, [True], {}])
def test_a_permission_that_is_not_plainly_allowed_is_none(allowed: object) -> None:
    with odd(answers(SYSTEM, {}, {"status": {"allowed": allowed}})) as (source, _, _):
        wanted = Permission("list", "pods")
        try:
            assert source.missing([wanted]) == [wanted]
        except errors.Garbled:
            assert allowed is not None


def test_a_cluster_that_says_no_more_than_its_uid_is_known_by_it() -> None:
    with odd(answers({"metadata": {"uid": "u1", "labels": None}}, {}, {})) as (source, _, _):
        assert source.identify() == Identity("u1", "", "", ())


def test_a_proxy_page_with_an_error_status_is_not_quoted() -> None:
    with odd(says(b"<script>alert(1)</script>", 403)) as (source, _, _), pytest.raises(errors.Denied) as raised:
        source.object("/api/v1/nodes/gpu-a")
    assert "script" not in str(raised.value)


def test_a_message_of_the_server_is_cut() -> None:
    body = json.dumps({"kind": "Status", "message": "x" * 10_000}).encode()
    with odd(says(body, 403)) as (source, _, _), pytest.raises(errors.Denied) as raised:
        source.object("/api/v1/nodes/gpu-a")
    assert len(str(raised.value)) < 600


def test_a_continue_token_that_comes_again_ends_the_list() -> None:
    tokens = itertools.cycle(["a", "b"])

    def answer(handler: BaseHTTPRequestHandler) -> None:
        page = {"kind": "NodeList", "metadata": {"continue": next(tokens), "resourceVersion": "1"}, "items": []}
        says(json.dumps(page).encode())(handler)

    with odd(answer) as (source, paths, _), pytest.raises(errors.Garbled, match="same continue token twice"):
        source.listed(NODES)
    assert len(paths) == 3


def test_an_embedded_server_that_ended_in_a_pause_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = connect(f"embedded:{SMALL}", clusters=tmp_path)
    node = source.object("/api/v1/nodes/gpu-0000")
    (state,) = tmp_path.iterdir()
    stop(state)
    monkeypatch.setattr(module, "IDLE_SECONDS", -1.0)
    assert source.object("/api/v1/nodes/gpu-0000") == node
    stop(state)


def test_nobody_at_the_port_is_unreachable() -> None:
    slept: list[float] = []
    source = Cluster("", Connection(load_url("http://127.0.0.1:9"), sleep=slept.append))
    with pytest.raises(errors.Unreachable, match=r"no whole answer from http://127\.0\.0\.1:9"):
        source.object("/api/v1/nodes/gpu-a")
    assert len(slept) == ATTEMPTS - 1


def test_the_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with odd(says(b'{"kind":"Node","metadata":{"name":"gpu-a"}}')) as (source, paths, _):
        monkeypatch.setenv("http_proxy", source.connection.host)
        for name in ("HTTP_PROXY", "no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        through = Cluster("", Connection(load_url("http://cluster.example:6443")))
        assert through.object("/api/v1/nodes/gpu-a")["kind"] == "Node"
    assert paths == ["http://cluster.example:6443/api/v1/nodes/gpu-a"]
