"""What needs programs that are built or installed first: the real control plane, the supply-chain tools, a registry.

Where one is missing a test skips and says which command brings it; with `CI=true` it fails.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import hypothesis
import pytest

from gpurunbook.embedded.actors.client import Client
from tests.envtest import controlplane as envtest
from tests.envtest.seed import Seeder
from tests.tools import build
from tests.tools.registry import Registry, RegistryError

# How busy the machine is decides nothing, and CI tries the same inputs every time.
hypothesis.settings.register_profile(
    "suite",
    deadline=None,
    derandomize=os.environ.get("CI") == "true",
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("suite")


def absent(reason: str) -> NoReturn:
    """Ends the test: as a failure with CI=true, else as a skip."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps the tests of each real control plane on one worker, so that only one of either is started."""
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            if item.get_closest_marker("envtest") and not item.get_closest_marker("xdist_group"):
                fixtures: tuple[str, ...] = getattr(item, "fixturenames", ())
                item.add_marker(pytest.mark.xdist_group("fixtureplane" if "fixtureplane" in fixtures else "envtest"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tells how many points the sweep has tried."""
    points: dict[str, int] = {}
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        tried = [name for name, _ in getattr(report, "user_properties", ()) if name == "sweep point"]
        if tried:
            points[report.nodeid] = max(len(tried), points.get(report.nodeid, 0))
    if points:
        terminalreporter.write_line(f"sweep: {sum(points.values())} points")


def started() -> envtest.ControlPlane:
    """A control plane, or the end of the test where its programs are missing."""
    try:
        return envtest.start()
    except build.BuildError as error:
        absent(str(error))


@pytest.fixture(scope="session")
def controlplane() -> Iterator[envtest.ControlPlane]:
    """The real control plane, one for all tests: leave other tests' objects alone."""
    with started() as plane:
        yield plane


@pytest.fixture(scope="session")
def fixtureplane() -> Iterator[tuple[envtest.ControlPlane, Seeder]]:
    """Another real control plane, and what makes it show one fixture cluster after the other: nothing else is on it."""
    with started() as plane:
        yield plane, Seeder(Client.of_kubeconfig(plane.kubeconfig))


@pytest.fixture(scope="session")
def tool() -> Callable[[str], Path]:
    """Where one of cosign, syft, trivy, crane, helm, trivydb is."""

    def find(name: str) -> Path:
        try:
            return build.program("tools", name)
        except build.BuildError as error:
            absent(str(error))

    return find


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory, tool: Callable[[str], Path]) -> Iterator[Registry]:
    """A registry on loopback, one for all tests: take a repository name of your own."""
    try:
        server = Registry(tmp_path_factory.mktemp("registry"), tool("crane"))
    except RegistryError as error:
        absent(str(error))
    with server:
        yield server
