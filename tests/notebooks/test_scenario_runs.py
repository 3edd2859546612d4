"""Every scenario of every runbook, on the embedded cluster: it comes to what is expected of it.

Covered: what `gpurunbook run --all` runs, one test each. Not covered: the command itself (test_engine_batch.py,
test_chains.py), the real control plane (tests/cluster/test_scenarios.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpurunbook.headless import fixture
from gpurunbook.headless.batch import in_home
from gpurunbook.headless.chain import Chain
from gpurunbook.headless.expectation import Scenario

HOME = Path(__file__).parents[2]


@pytest.fixture
def clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("GPURUNBOOK_HOME", "GPURUNBOOK_OUT", "GPURUNBOOK_RUN_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GPURUNBOOK_CLUSTERS", str(tmp_path / "clusters"))
    monkeypatch.chdir(HOME)
    yield tmp_path / "clusters"
    fixture.stop(tmp_path / "clusters")


@pytest.mark.parametrize("scenario", in_home(HOME), ids=lambda one: f"{one.runbook}-{one.name}")
def test_a_scenario_comes_to_what_is_expected(scenario: Scenario, clusters: Path, tmp_path: Path) -> None:
    links = Chain(scenario, home=HOME, out=tmp_path / "out", clusters=clusters, cell_seconds=600).run()
    assert [line for link in links for line in (*link.missed, link.trouble) if line] == []
    assert links[-1].what == ""
