"""A small client of a Kubernetes API server, on http.client alone: raw dicts, explicit patch types, watches."""

from __future__ import annotations

import base64
import http.client
import json
import select
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import yaml

Obj = dict[str, Any]
JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"


class Refused(Exception):
    """An answer other than 2xx; `code`, and the Status object as `status`."""

    def __init__(self, code: int, status: Any) -> None:
        super().__init__(f"{code} {status.get('message') if isinstance(status, dict) else status}")
        self.code, self.status = code, status


@dataclass(frozen=True)
class Reply:
    """One answer. `body` is decoded where it is JSON."""

    code: int
    headers: Mapping[str, str]
    body: Any


def _material(place: Mapping[str, Any], name: str) -> str | None:
    """The path of a file that a kubeconfig names or holds."""
    if place.get(name):
        return str(place[name])
    if not place.get(f"{name}-data"):
        return None
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(base64.b64decode(place[f"{name}-data"]))
    return file.name


class Client:
    """One user of one API server. Not for several threads at once: `again()` gives each its own connection."""

    def __init__(self, url: str, headers: Mapping[str, str], context: ssl.SSLContext | None = None) -> None:
        self.url, self.headers, self._context = url, dict(headers), context
        self._connection: http.client.HTTPConnection | None = None

    def __del__(self) -> None:
        self.close()

    @classmethod
    def of_kubeconfig(cls, path: Path, context: str = "") -> Client:
        """The user and cluster of a context of a kubeconfig: tokens and client certificates."""
        config = yaml.safe_load(path.read_text())
        chosen = _named(config, "contexts", context or config["current-context"])["context"]
        cluster = _named(config, "clusters", chosen["cluster"])["cluster"]
        user = _named(config, "users", chosen["user"]).get("user") or {}
        headers = {"Authorization": f"Bearer {user['token']}"} if user.get("token") else {}
        secure = None
        if cluster["server"].startswith("https:"):
            secure = ssl.create_default_context(cafile=_material(cluster, "certificate-authority"))
            if cluster.get("insecure-skip-tls-verify"):
                secure.check_hostname, secure.verify_mode = False, ssl.CERT_NONE
            certificate = _material(user, "client-certificate")
            if certificate:
                secure.load_cert_chain(certificate, _material(user, "client-key"))
        return cls(cluster["server"], headers, secure)

    def again(self, **headers: str) -> Client:
        """The same user on a connection of its own, with more headers (impersonation, say)."""
        return Client(self.url, self.headers | headers, self._context)

    def without_certificate(self) -> Client:
        """The same server, and nobody in particular: no client certificate, no headers."""
        secure = None
        if self._context:
            secure = ssl.create_default_context()
            secure.check_hostname, secure.verify_mode = False, ssl.CERT_NONE
        return Client(self.url, {}, secure)

    def _open(self, timeout: float) -> http.client.HTTPConnection:
        host = urlsplit(self.url).netloc
        if self._context:
            return http.client.HTTPSConnection(host, timeout=timeout, context=self._context)
        return http.client.HTTPConnection(host, timeout=timeout)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection:
            self._connection.close()
            self._connection = None

    def send(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", **query: Any
    ) -> Reply:
        """One request; any answer is returned. A body that is bytes is sent as it is."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        target = path + ("?" + urlencode(query, doseq=True) if query else "")
        try:
            answer = self._answer(method, target, data, self.headers | {"Content-Type": content_type})
            raw = answer.read()
        except (OSError, http.client.HTTPException):
            self.close()
            raise
        decoded = json.loads(raw) if "json" in answer.headers.get("Content-Type", "") and raw else raw.decode()
        return Reply(answer.status, dict(answer.headers), decoded)

    def _answer(
        self, method: str, target: str, data: bytes | None, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        """The beginning of an answer. A server ends connections that were idle for long (the API server after 90 s):
        one that it has ended is not used again, and a GET that met the end on its way is sent once more."""
        if self._connection and _ended(self._connection):
            self.close()
        kept = self._connection is not None
        while True:
            self._connection = self._connection or self._open(30)
            try:
                self._connection.request(method, target, data, headers)
                return self._connection.getresponse()
            except (ConnectionError, ssl.SSLEOFError):
                if not kept or method != "GET":
                    raise
                kept = False
                self.close()

    def call(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", **query: Any
    ) -> Any:
        """The body of a 2xx answer; raises Refused for any other."""
        reply = self.send(method, path, body, content_type, **query)
        if not 200 <= reply.code < 300:
            raise Refused(reply.code, reply.body)
        return reply.body

    def merge(self, path: str, patch: Obj) -> Any:
        """A merge patch."""
        return self.call("PATCH", path, patch, MERGE_PATCH)

    def watch(self, path: str, timeout: float = 60, **query: Any) -> Iterator[Obj]:
        """The events of a watch until the server ends it, on a connection of its own."""
        connection = self._open(timeout)
        try:
            connection.request("GET", f"{path}?{urlencode({'watch': 'true', **query})}", headers=self.headers)
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                raise Refused(answer.status, json.loads(answer.read()))
            for line in answer:
                if line.strip():
                    yield json.loads(line)
        finally:
            connection.close()

    def follow(self, path: str, **query: Any) -> Iterator[Obj]:
        """ADDED, MODIFIED and DELETED events from a list on, for ever: watches again, and lists again after a 410."""
        while True:
            listed = self.call("GET", path, **query)
            for item in listed["items"]:
                yield {"type": "ADDED", "object": item}
            version = listed["metadata"]["resourceVersion"]
            while version:
                for event in self.watch(
                    path, resourceVersion=version, timeoutSeconds=30, allowWatchBookmarks="true", **query
                ):
                    if event["type"] == "ERROR":
                        version = ""
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        yield event


def _ended(connection: http.client.HTTPConnection) -> bool:
    """Whether the server has ended a connection on which nothing is asked: then there is something to read."""
    if connection.sock is None:
        return True
    look = select.poll()
    look.register(connection.sock, select.POLLIN)
    return bool(look.poll(0))


def _named(config: Obj, kind: str, name: str) -> Any:
    return next(entry for entry in config[kind] if entry["name"] == name)
