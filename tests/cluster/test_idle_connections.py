"""What is sent after a pause: a kept connection may be gone by then, with a word or without one.

Covered: both clients, that of runs (sources/connection.py) and that of actors and tests (embedded/actors/client.py),
against a small server that ends or forgets idle connections. Not covered: TLS; proxies.
"""

from __future__ import annotations

import http.client
import itertools
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

import pytest
from test_connection import load_url

from gpurunbook.embedded.actors.client import Client
from gpurunbook.sources.connection import IDLE_SECONDS, Connection

BODY = b'{"kind":"Lease"}'


class Lossy(ThreadingHTTPServer):
    """Answers every request on a connection that is there, but for what it is told to do to connections."""

    daemon_threads = True
    idle: float | None = None
    """Seconds after which it ends a connection that nothing is asked on."""
    answers = 1000
    """Requests that are answered on each connection; then it does what `later` says."""
    later = "cut"
    """To `cut` the connection without a byte, or to keep `silent`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.seen: list[tuple[str, int]] = []
        self.ended = threading.Event()
        self.over = threading.Event()
        self.numbers = itertools.count()


class Answer(BaseHTTPRequestHandler):
    """One connection. `seen` gets the method and the number of the connection of each request."""

    server: Lossy
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        self.timeout = self.server.idle
        self.number, self.asked = next(self.server.numbers), 0
        super().setup()

    def finish(self) -> None:
        super().finish()
        self.connection.close()
        self.server.ended.set()

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.server.seen.append((self.command, self.number))
        self.asked += 1
        if self.asked > self.server.answers:
            if self.server.later == "silent":
                self.server.over.wait()
            self.close_connection = True
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    do_GET = do_POST = do_PATCH = answer


@pytest.fixture
def server() -> Iterator[Lossy]:
    made = Lossy()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield made
    made.over.set()
    made.shutdown()
    thread.join()
    made.server_close()


class Send(Protocol):
    def __call__(self, method: str) -> object: ...


def of_runs(server: Lossy, **more: Any) -> Send:
    connection = Connection(load_url(f"http://127.0.0.1:{server.server_port}"), sleep=lambda _: None, **more)

    def send(method: str) -> object:
        return connection.read("/x") if method == "GET" else connection.send(method, "/x", (), b"{}")

    return send


def of_actors(server: Lossy) -> Send:
    client = Client(f"http://127.0.0.1:{server.server_port}", {})
    return lambda method: client.call(method, "/x", None if method == "GET" else {})


@pytest.mark.parametrize("client", [of_runs, of_actors])
@pytest.mark.parametrize("method", ["GET", "POST", "PATCH"])
def test_what_follows_a_pause_in_which_the_server_hung_up_is_sent_once(
    server: Lossy, client: Callable[[Lossy], Send], method: str
) -> None:
    server.idle = 1.0
    send = client(server)
    send("GET")
    assert server.ended.wait(180)
    send(method)
    assert server.seen == [("GET", 0), (method, 1)]


@pytest.mark.parametrize("client", [of_runs, of_actors])
def test_a_connection_that_is_still_there_is_used_again(server: Lossy, client: Callable[[Lossy], Send]) -> None:
    send = client(server)
    send("GET")
    send("PATCH")
    assert server.seen == [("GET", 0), ("PATCH", 0)]


@pytest.mark.parametrize("client", [of_runs, of_actors])
def test_a_read_that_met_the_end_of_its_connection_is_sent_again(
    server: Lossy, client: Callable[[Lossy], Send]
) -> None:
    server.answers = 1
    send = client(server)
    send("GET")
    send("GET")
    assert server.seen == [("GET", 0), ("GET", 0), ("GET", 1)]


@pytest.mark.parametrize("client", [of_runs, of_actors])
def test_a_change_that_met_the_end_of_its_connection_is_not_sent_again(
    server: Lossy, client: Callable[[Lossy], Send]
) -> None:
    server.answers = 1
    send = client(server)
    send("GET")
    with pytest.raises(Exception, match=r"no whole answer|closed connection"):
        send("POST")
    assert server.seen == [("GET", 0), ("POST", 0)]


def test_a_read_of_an_actor_on_a_new_connection_is_sent_once(server: Lossy) -> None:
    server.answers = 0
    with pytest.raises(http.client.RemoteDisconnected):
        of_actors(server)("GET")
    assert server.seen == [("GET", 0)]


@pytest.mark.parametrize("method", ["GET", "PATCH"])
def test_a_run_after_a_pause_sends_nothing_into_a_connection_that_may_be_forgotten(server: Lossy, method: str) -> None:
    server.answers, server.later = 1, "silent"
    time = [0.0]
    send = of_runs(server, clock=lambda: time[0], silence=30.0)
    send("GET")
    time[0] += IDLE_SECONDS + 1
    send(method)
    assert server.seen == [("GET", 0), (method, 1)]
