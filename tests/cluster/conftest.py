"""The API servers that the conformance list runs against.

`apiserver` is parametrised: `embedded`, and `envtest`, the real control plane of tests/envtest.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from embedded_server import Embedded, start, stop
from runs import Lab

from gpurunbook.embedded.actors.client import Client, Reply
from tests.envtest.controlplane import ControlPlane

_NAMES = itertools.count()


@dataclass
class ApiServer:
    """One API server under test. `compact` makes it forget the past."""

    kind: str
    client: Client
    compact: Callable[[], None]

    def send(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", **query: Any
    ) -> Reply:
        return self.client.send(method, path, body, content_type, **query)

    def user(self, name: str) -> Client:
        """A client that acts as another user."""
        return self.client.again(**{"Impersonate-User": name})

    def name(self, stem: str) -> str:
        """A name that no other test uses, in this run or an earlier one."""
        return f"{stem}-{os.getpid()}-{next(_NAMES)}-{time.time_ns() % 10**6}"


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """An embedded server with the small fixture, shared; for tests that leave other tests' objects alone."""
    state = tmp_path_factory.mktemp("embedded")
    yield start(state)
    stop(state)


@pytest.fixture(scope="session", params=["embedded", pytest.param("envtest", marks=pytest.mark.envtest)])
def apiserver(request: pytest.FixtureRequest) -> ApiServer:
    """The API server that a behaviour is tried on."""
    if request.param == "embedded":
        server: Embedded = request.getfixturevalue("embedded")
        return ApiServer("embedded", server.client(), lambda: server.control("POST", "compact"))
    plane: ControlPlane = request.getfixturevalue("controlplane")
    return ApiServer("envtest", Client.of_kubeconfig(plane.kubeconfig), plane.compact)


@pytest.fixture
def namespace(apiserver: ApiServer) -> str:
    """A namespace for one test. It is left behind: only a real control plane can end one."""
    name = apiserver.name("conformance")
    made = apiserver.send("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    assert made.code == 201, made.body
    return name


@pytest.fixture
def entered(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The test works as the home of the module's lab does; no fault outlives it."""
    lab.enter(monkeypatch)
    yield
    lab.disarm()
