"""The HTTP side: connections, faults on the wire, the request log, and the end when nobody asks any more."""

from __future__ import annotations

import contextlib
import io
import os
import socket
import struct
import threading
import time
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from gpurunbook.embedded import faults as wire
from gpurunbook.embedded.access import User
from gpurunbook.embedded.api import Answer, Api, refused
from gpurunbook.embedded.faults import Deed, Fault, Faults
from gpurunbook.embedded.journal import RequestLog
from gpurunbook.embedded.requests import Request, split_target
from gpurunbook.embedded.status import ApiError, bad_request, no_such_resource, unauthorized

CONTROL = "/_gpurunbook/"
_MAX_BODY = 3 << 20


class Server(ThreadingHTTPServer):
    """One API server on a loopback port. Ends by itself after `idle` seconds without requests of others than actors."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, api: Api, faults: Faults, log: RequestLog, token: str, idle: float) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.api, self.faults, self.log, self.token, self.idle = api, faults, log, token, idle
        self._busy = 0
        self._last = time.monotonic()
        self._lock = threading.Lock()

    def server_bind(self) -> None:
        """Without the reverse lookup of the host name that the base class does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error; anything else is printed to the server's log."""
        import sys

        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    def begin(self) -> None:
        """A request has come in that keeps the server alive."""
        with self._lock:
            self._busy += 1

    def end(self) -> None:
        """It is answered."""
        with self._lock:
            self._busy -= 1
            self._last = time.monotonic()

    def drain(self, seconds: float = 1.0) -> None:
        """Let the answers under way leave."""
        end = time.monotonic() + seconds
        while self._busy and time.monotonic() < end:
            time.sleep(0.005)

    def watch_idle(self) -> None:
        """Shut down when the time is over. Runs in a thread of its own."""
        while True:
            with self._lock:
                left = self.idle if self._busy else self._last + self.idle - time.monotonic()
            if left <= 0:
                self.shutdown()
                return
            time.sleep(min(left, 1.0) + 0.01)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: Server

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the request log says it better."""

    def finish(self) -> None:
        """Flush what can still be flushed."""
        with contextlib.suppress(OSError, ValueError):
            super().finish()

    def serve(self) -> None:
        """One request."""
        path, query = split_target(self.path)
        length = self.headers.get("Content-Length", "0")
        if self.headers.get("Transfer-Encoding") or not length.isdecimal() or int(length) > _MAX_BODY:
            self.close_connection = True
            error = ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {_MAX_BODY}")
            return self._send(refused(error))
        body = self.rfile.read(int(length))
        user = self._user()
        if user and user.actor:
            if path.startswith(CONTROL):
                return self._send(self._control(path, query, body, actor=True))
            return self._answer(path, query, body, user)
        self.server.begin()
        try:
            if path.startswith(CONTROL):
                self._send(self._control(path, query, body))
            else:
                self._answer(path, query, body, user)
            return self.wfile.flush()
        finally:
            self.server.end()

    def _user(self) -> User | None:
        """Who asks, or as whom an administrator asks; None for nobody that is known."""
        try:
            user = self.server.api.users.authenticate(self.headers.get("Authorization", ""))
        except ApiError:
            return None
        acted = self.headers.get("Impersonate-User")
        if acted and "system:masters" in user.groups:
            groups = (*self.headers.get_all("Impersonate-Group", []), "system:authenticated")
            return User(acted, groups, "", actor=user.actor)
        return user

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = serve

    def _answer(self, path: str, query: dict[str, list[str]], body: bytes, user: User | None) -> None:
        number, started = self.server.log.number(), time.time()
        raw_query = self.path.partition("?")[2]
        deed = self.server.faults.take(self.command, path, raw_query, user) or Deed()
        if deed.delay:
            time.sleep(deed.delay)
        if deed.expire_token and user:
            user.expired, user = True, None
        asker = user or User("", (), "")
        request = Request(self.command, path, query, self.headers.get("Content-Type", ""), body, asker, number)
        if deed.reset == "before":
            answer = Answer(0)
        elif deed.status:
            answer = refused(wire.answer(deed))
        elif user is None:
            answer = refused(unauthorized())
        else:
            answer = self.server.api.answer(request)
        self._record(request, raw_query, answer, started, deed)
        if deed.reset:
            return self._reset()
        if answer.watch is not None:
            return self._stream(answer, deed)
        return self._send(answer, deed)

    def _record(self, request: Request, raw_query: str, answer: Answer, started: float, deed: Deed) -> None:
        entry: dict[str, Any] = {
            "n": request.n,
            "time": started,
            "user": request.user.name,
            "actor": request.user.actor,
            "verb": answer.verb,
            "method": request.method,
            "path": request.path,
            "query": raw_query,
            "dryRun": "All" in request.query.get("dryRun", []),
            "status": answer.code,
            "persisted": answer.persisted,
            "agent": self.headers.get("User-Agent", ""),
        }
        if request.method not in ("GET", "HEAD"):
            try:
                entry["body"] = msgspec.json.decode(request.body) if request.body else None
            except msgspec.DecodeError:
                entry["body"] = request.body.decode(errors="replace")
            entry["contentType"] = request.content_type
        if deed != Deed():
            entry["fault"] = msgspec.to_builtins(deed)
        if answer.code == 501:
            entry["unsupported"] = msgspec.json.decode(answer.body)["message"]
        self.server.log.append(entry)

    def _reset(self) -> None:
        """Drop the connection so that the client sees a reset, not an end."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.wfile.flush()
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            os.close(self.connection.detach())
            self.wfile = io.BytesIO()

    def _head(self, answer: Answer, length: int | None) -> None:
        self.send_response_only(answer.code)
        self.send_header("Content-Type", answer.content_type)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if length is None:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def _send(self, answer: Answer, deed: Deed = Deed()) -> None:  # noqa: B008 - frozen
        body = answer.body
        if deed.garble:
            body = body[: len(body) // 2]
        self._head(answer, len(body))
        if self.command == "HEAD":
            return
        if deed.truncate is not None:
            self.wfile.write(body[: deed.truncate])
            self._reset()
            return
        for piece in self._pieces(body, deed):
            self.wfile.write(piece)
            self.wfile.flush()

    @staticmethod
    def _pieces(body: bytes, deed: Deed) -> Iterable[bytes]:
        if not deed.drip:
            yield body
            return
        for start in range(0, len(body), deed.drip.bytes):
            yield body[start : start + deed.drip.bytes]
            time.sleep(deed.drip.seconds)

    def _stream(self, answer: Answer, deed: Deed) -> None:
        assert answer.watch is not None
        self._head(answer, None)
        self.wfile.flush()
        left = deed.truncate
        for line in answer.watch.lines():
            if not line:  # nothing to tell: look whether the reader is still there
                self.connection.settimeout(0)
                with contextlib.suppress(BlockingIOError):
                    if self.connection.recv(1, socket.MSG_PEEK) == b"":
                        self.close_connection = True
                        return
                self.connection.settimeout(None)
                continue
            data = line[: len(line) // 2] + b"\n" if deed.garble else line
            if left is not None:
                data, left = data[:left], left - len(data)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data) if data else b"")
            self.wfile.flush()
            if left is not None and left <= 0:
                self._reset()
                return
        self.wfile.write(b"0\r\n\r\n")

    def _control(self, path: str, query: dict[str, list[str]], body: bytes, *, actor: bool = False) -> Answer:
        """What is not Kubernetes: the request log, faults, forgetting the past, the end. An actor may only look."""
        server = self.server
        if not (actor and self.command == "GET") and self.headers.get("Authorization", "") != f"Bearer {server.token}":
            return refused(unauthorized())
        what = (self.command, path.removeprefix(CONTROL))
        found: Any = {}
        if what == ("GET", "requests"):
            found = server.log.read(int(query.get("since", ["0"])[0]))
        elif what == ("GET", "faults"):
            found = server.faults.listed()
        elif what == ("DELETE", "faults"):
            server.faults.clear()
        elif what == ("POST", "faults"):
            try:
                server.faults.add(msgspec.json.decode(body, type=list[Fault]))
            except msgspec.DecodeError as error:
                return refused(bad_request(f"faults: {error}"))
        elif what == ("POST", "compact"):
            server.api.store.compact()
        elif what == ("POST", "stop"):
            threading.Thread(target=server.shutdown, daemon=True).start()
        else:
            return refused(no_such_resource())
        return Answer(200, msgspec.json.encode(found))
