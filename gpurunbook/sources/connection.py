"""One HTTP connection to an API server, configured by the official client: contexts, proxies, CAs, exec plugins.

Requests are raw bytes: the client's typed models drop fields that they do not know
(kubernetes-client/python 37 is a pydantic rewrite) and cost eight times the time of raw pages.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import urllib3

from gpurunbook.errors import (
    ClusterError,
    Conflict,
    Denied,
    Garbled,
    Gone,
    InputError,
    Invalid,
    NotFound,
    ServerFault,
    Throttled,
    Unauthorized,
    Unreachable,
)

CONNECT_SECONDS = 5.0
READ_SECONDS = 30.0
"""Without a byte for so long, an answer counts as lost."""

ANSWER_SECONDS = 60.0
"""For one whole answer, however steadily it drips."""

IDLE_SECONDS = 60.0
"""A connection that nobody used for so long is not used again. The API server ends it after 90 s and tells; firewalls
and load balancers forget it without a word, and then the first request after a pause would wait for nothing."""

ATTEMPTS = 4
"""Of a read that met 429, 5xx or a broken connection."""

PATIENCE_SECONDS = 30.0
"""The longest that one `Retry-After` is waited for: a proxy may ask for an hour, and somebody looks at the cell."""

_BY_STATUS: dict[int, type[ClusterError]] = {
    401: Unauthorized,
    403: Denied,
    404: NotFound,
    409: Conflict,
    410: Gone,
    415: Invalid,
    422: Invalid,
    429: Throttled,
}

_REMEDY = {
    401: "Renew the credentials of the kubeconfig context.",
    403: "Ask for the permission; `gpurunbook doctor` shows who you are.",
    410: "Try again: the list is then read from the start.",
    429: "The server asks for patience: try again later.",
}


def load(context: str, config_file: str | None = None) -> Any:
    """Writes nothing. An `ApiClient` for a kubeconfig context, `in-cluster`, or "" for the current context.

    Raises InputError when there is no such context or no configuration at all.
    """
    from kubernetes.client.api_client import ApiClient
    from kubernetes.client.configuration import Configuration
    from kubernetes.config import ConfigException, incluster_config, kube_config

    configuration = Configuration()
    # The client reads KUBECONFIG when it is imported (kubernetes/config/kube_config.py); a cell may set it later.
    config_file = config_file or os.environ.get("KUBECONFIG") or None
    try:
        if context == "in-cluster":
            incluster_config.load_incluster_config(client_configuration=configuration)
        else:
            kube_config.load_kube_config(
                config_file=config_file,
                context=context or None,
                client_configuration=configuration,
                persist_config=False,
            )
    except Exception as wrong:  # of a malformed file the client lets through whatever it stumbles over
        if isinstance(wrong, ConfigException) and not context and config_file is None:
            try:
                incluster_config.load_incluster_config(client_configuration=configuration)
                return ApiClient(configuration)
            except ConfigException:
                pass
        named = config_file or kube_config.KUBE_CONFIG_DEFAULT_LOCATION
        files = [path for path in named.split(os.pathsep) if path]
        said = f"no usable kubeconfig in {named}: {' '.join(str(wrong).split()):.300}"
        if context != "in-cluster" and not any(Path(path).expanduser().exists() for path in files):
            said = f"there is no kubeconfig: no file {', '.join(files)}"
        raise InputError(
            said,
            subject=f"cluster {context!r}" if context else "the current context",
            remedy="KUBECONFIG names the file; `kubectl config get-contexts` lists what is in it; "
            "`--cluster embedded:clusters/small` needs none.",
        ) from None
    return ApiClient(configuration)


def current() -> str:
    """Writes nothing. The name of the current context; "" where no kubeconfig names one, as inside of a cluster."""
    from kubernetes.config import kube_config

    try:
        _, active = kube_config.list_kube_config_contexts(os.environ.get("KUBECONFIG") or None)
        name = str(active["name"])
    except Exception:  # as above; `load` says what is wrong with it
        return ""
    return "" if name == "in-cluster" or name.startswith("embedded:") else name


def raise_for(status: int, body: bytes, headers: Mapping[str, str], what: str) -> None:
    """Writes nothing. Raises the error class of an HTTP status of 300 and above.

    Only a `kind: Status` payload is quoted, and cut to 300 characters: another body may hold anything.
    """
    if 200 <= status < 300:
        return
    message = ""
    try:
        payload = json.loads(body)
        if isinstance(payload, dict) and payload.get("kind") == "Status":
            message = str(payload.get("message") or payload.get("reason") or "")[:300]
    except (ValueError, RecursionError):
        pass
    kind = _BY_STATUS.get(status, ServerFault if status >= 500 else ClusterError)
    raise kind(
        f"HTTP {status}: {message or 'no Status in the answer'}",
        status=status,
        subject=what,
        remedy=_REMEDY.get(status, ""),
        retry_after=_seconds(headers.get("Retry-After")),
    )


def _seconds(value: str | None) -> float | None:
    return float(value) if value and value.isascii() and value.isdigit() else None


def pause(wrong: ClusterError, attempt: int) -> float:
    """Writes nothing. Seconds until the next attempt: what the server asked for, else longer each time."""
    backoff: float = 0.1 * 2**attempt
    return min(max(wrong.retry_after or 0.0, backoff), PATIENCE_SECONDS)


class Connection:
    """Sends requests and gives back bytes. Reads are retried; what changes something is sent once.

    The one exception is a 401: the server did not know us and carried nothing out. The credentials are loaded again
    and the request is sent once more, whatever it is: a token may expire at any moment of a run.

    reload: gives the client with fresh credentials; wakes: also after a pause, for a server that ends when it is idle.
    """

    def __init__(
        self,
        client: Any,
        reload: Callable[[], Any] | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        silence: float = READ_SECONDS,
        *,
        wakes: bool = False,
    ) -> None:
        self._client = client
        self._reload = reload
        self._wakes = wakes
        self._sleep = sleep
        self._clock = clock
        self._silence = silence
        self._used = clock()
        self._lock = threading.Lock()
        self.renewed = 0
        """How often credentials were loaded again: they may be another user's."""

    @property
    def host(self) -> str:
        """Writes nothing. The URL of the server."""
        return str(self._client.configuration.host)

    def read(self, path: str, query: Sequence[tuple[str, str]] = ()) -> bytes:
        """Writes nothing. GET, with retries that respect `Retry-After`. Raises the ClusterError of the last attempt."""
        return self._patiently("GET", path, query, None)

    def ask(self, path: str, review: bytes) -> bytes:
        """Writes nothing: POST of a review, which is answered and never stored. Retried and raises as `read`."""
        return self._patiently("POST", path, (), review)

    def _patiently(self, method: str, path: str, query: Sequence[tuple[str, str]], body: bytes | None) -> bytes:
        attempt = 0
        while True:
            attempt += 1
            try:
                return self.send(method, path, query, body)
            except (Throttled, ServerFault, Unreachable) as wrong:
                if attempt >= ATTEMPTS or wrong.status == 501:
                    raise
                self._sleep(pause(wrong, attempt))

    def renew(self) -> None:
        """Writes nothing. Loads the credentials again, as after a 401."""
        if self._reload is not None:
            self._client = self._reload()
            self.renewed += 1

    def stream(
        self, path: str, query: Sequence[tuple[str, str]], silence: float, what: str
    ) -> urllib3.BaseHTTPResponse:
        """Writes nothing. An open GET whose body the caller reads; it breaks after `silence` seconds without a byte."""
        return self._open("GET", path, query, None, "application/json", what, silence)

    def send(
        self,
        method: str,
        path: str,
        query: Sequence[tuple[str, str]] = (),
        body: bytes | None = None,
        content_type: str = "application/json",
        again: Callable[[], None] | None = None,
    ) -> bytes:
        """Sends one request. Raises the ClusterError of its status, or Unreachable without a whole answer.

        again: called before it is sent once more, with new credentials: a login may have taken long. May raise.
        """
        try:
            return self._once(method, path, query, body, content_type)
        except Unauthorized:
            if self._reload is None:
                raise
        self.renew()
        if again is not None:
            again()
        return self._once(method, path, query, body, content_type)

    def _once(
        self, method: str, path: str, query: Sequence[tuple[str, str]], body: bytes | None, content_type: str
    ) -> bytes:
        what = f"{method} {path}"
        response = self._open(method, path, query, body, content_type, what, self._silence)
        try:
            raw = self._drain(response, what)
        finally:
            response.close() if response.closed is False else response.release_conn()
        raise_for(response.status, raw, response.headers, what)
        return raw

    def _open(
        self,
        method: str,
        path: str,
        query: Sequence[tuple[str, str]],
        body: bytes | None,
        content_type: str,
        what: str,
        silence: float,
    ) -> urllib3.BaseHTTPResponse:
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = content_type
        client = self._fresh()
        method, url, headers, _, _ = client.param_serialize(
            method, path, query_params=list(query), header_params=headers, auth_settings=["BearerToken"]
        )
        pool: urllib3.PoolManager = client.rest_client.pool_manager
        try:
            return pool.request(
                method,
                url,
                body=body,
                headers=headers,
                preload_content=False,
                redirect=False,
                retries=False,
                timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=silence),
            )
        except urllib3.exceptions.HTTPError as wrong:
            raise self._lost(what, wrong) from None

    def _fresh(self) -> Any:
        """The client; after a pause with new connections. In a shorter one urllib3 sees what the server ended."""
        with self._lock:
            idle, self._used = self._clock() - self._used, self._clock()
            if idle > IDLE_SECONDS:
                self._client.rest_client.pool_manager.clear()
                if self._wakes:
                    self.renew()
            return self._client

    def _drain(self, response: urllib3.BaseHTTPResponse, what: str) -> bytes:
        end = self._clock() + ANSWER_SECONDS
        parts: list[bytes] = []
        try:
            while part := response.read1(1 << 18):
                parts.append(part)
                if self._clock() > end:
                    response.close()
                    raise Unreachable(f"the answer took more than {ANSWER_SECONDS:.0f} s", subject=what)
        except (urllib3.exceptions.HTTPError, OSError) as wrong:
            response.close()
            raise self._lost(what, wrong) from None
        return b"".join(parts)

    def _lost(self, what: str, wrong: Exception) -> Unreachable:
        kind = type(wrong).__name__
        return Unreachable(
            f"no whole answer from {self.host} ({kind})",
            subject=what,
            remedy="Check the network and the server.",
        )


def decode(raw: bytes, what: str) -> Any:
    """Writes nothing. JSON from an answer; raises Garbled when it is none, or no object."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as wrong:
        raise Garbled(f"the answer is not JSON: {wrong}", subject=what) from None
    if not isinstance(value, dict):
        raise Garbled(f"the answer is a JSON {type(value).__name__}, wanted an object", subject=what)
    return value
