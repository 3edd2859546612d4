"""The project's pins agree with each other, and what it installs is what it declares.

Covered: pyproject against requirements.lock, environment.yml and the reasons in CONTRIBUTING; imports against declared
dependencies; entry points; the Makefile's targets and .ci/run; that tests of a group stay together. Not covered:
solving the conda environment; a full installation from the lock, which `make test` itself does.
"""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUNTIME = [Requirement(line) for line in PROJECT["project"]["dependencies"]]
DEVELOPMENT = [Requirement(line) for line in PROJECT["project"]["optional-dependencies"]["dev"]]
BUILD = [Requirement(line) for line in PROJECT["build-system"]["requires"]]

NAMED_BY_THE_CUSTOMER = {"jupyterlab", "papermill", "nbclient", "kubernetes", "pandas", "plotly", "scrapbook", "pytest"}

STARTED_NOT_IMPORTED = {"ipykernel", "jupyterlab", "pandas", "plotly", "scrapbook"}
"""Kernel and Lab run as processes of their own; the others serve users' cells, Lab's renderer and readers."""


def locked() -> list[tuple[Requirement, list[str]]]:
    """Every entry of the lock with its hashes."""
    text = re.sub(r"\\\n\s*", " ", (ROOT / "requirements.lock").read_text())
    entries = []
    for line in filter(None, text.splitlines()):
        requirement, *hashes = line.split(" --hash=")
        entries.append((Requirement(requirement.strip()), [h.strip() for h in hashes]))
    return entries


def test_the_lock_pins_every_entry_with_hashes() -> None:
    entries = locked()
    assert len(entries) > 100
    for requirement, hashes in entries:
        assert re.fullmatch(r"==[0-9][0-9A-Za-z.+]*", str(requirement.specifier)), str(requirement)
        assert hashes, f"{requirement} has no hash"
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", h) for h in hashes), str(requirement)


@pytest.mark.parametrize("file", ["requirements.lock", "environment.yml"])
def test_pins_name_no_index_and_no_address(file: str) -> None:
    text = (ROOT / file).read_text()
    assert not re.search(r"://|--(extra-)?index|--find-links|--trusted-host|^-", text, re.MULTILINE)


@pytest.mark.parametrize("wanted", [*RUNTIME, *DEVELOPMENT, *BUILD], ids=lambda r: r.name)
def test_the_lock_holds_what_pyproject_wants(wanted: Requirement) -> None:
    pins = [r for r, _ in locked() if canonicalize_name(r.name) == canonicalize_name(wanted.name)]
    assert pins, f"{wanted} is not in requirements.lock; run `make lock`"
    for pin in pins:
        (specifier,) = pin.specifier
        assert wanted.specifier.contains(specifier.version), f"{pin} is not {wanted}; run `make lock`"


def test_the_conda_twin_pins_the_same() -> None:
    twin = yaml.safe_load((ROOT / "environment.yml").read_text())
    *conda, pip = twin["dependencies"]
    assert sorted(str(Requirement(line)) for line in pip["pip"]) == sorted(str(r) for r, _ in locked())
    (python,) = (line.removeprefix("python=") for line in conda if line.startswith("python="))
    assert Requirement(f"python{PROJECT['project']['requires-python']}").specifier.contains(python)


def test_the_customers_packages_stay() -> None:
    assert {canonicalize_name(r.name) for r in [*RUNTIME, *DEVELOPMENT]} >= NAMED_BY_THE_CUSTOMER


@pytest.mark.parametrize(("heading", "declared"), [("At run time", RUNTIME), ("To develop", DEVELOPMENT)])
def test_every_dependency_has_its_reason(heading: str, declared: list[Requirement]) -> None:
    section = (ROOT / "CONTRIBUTING.md").read_text().split(f"### {heading}\n")[1].split("\n#")[0]
    reasons = dict(re.findall(r"^\| ([a-z0-9-]+) \| (.+) \|$", section, re.MULTILINE))
    reasons.pop("package")
    assert list(reasons) == [r.name for r in declared]
    assert all(len(reason) > 8 for reason in reasons.values())


def imported() -> set[str]:
    """The distributions that modules of the package import, wherever in the file."""
    modules = set()
    for file in (ROOT / "gpurunbook").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                modules |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                modules.add(str(node.module).partition(".")[0])
    homes = importlib.metadata.packages_distributions()
    foreign = modules - set(sys.stdlib_module_names) - {"gpurunbook"}
    assert foreign <= set(homes), f"not installed: {sorted(foreign - set(homes))}"
    return {canonicalize_name(homes[module][0]) for module in foreign}


def test_what_is_imported_is_declared_and_the_other_way_round() -> None:
    declared = {canonicalize_name(r.name) for r in RUNTIME}
    assert imported() - declared == set()
    assert declared - imported() == STARTED_NOT_IMPORTED


def test_entry_points_lead_to_what_exists() -> None:
    own = importlib.metadata.distribution("gpurunbook").entry_points
    assert {(e.group, e.name) for e in own} == {("console_scripts", "gpurunbook"), ("papermill.engine", "gpurunbook")}
    for entry in own:
        assert callable(entry.load())


@pytest.mark.parametrize("target", ["run", "test", "lab", "lint", "bench", "sweep", "envtest", "tools"])
def test_make_has_the_target(target: str) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    done = subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_ci_builds_and_runs_everything_and_stops_at_the_first_failure() -> None:
    script = ROOT / ".ci" / "run"
    text = script.read_text()
    assert os.access(script, os.X_OK)
    assert "set -euo pipefail" in text
    assert re.findall(r"^make (.+)$", text, re.MULTILINE) == ["envtest tools", "env", "lint", "test"]
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0


def test_no_two_test_files_have_one_name():
    """Folders of tests are no packages, so pytest takes two files of one name for one module and runs neither."""
    names = [path.name for path in (Path(__file__).parents[1]).rglob("test_*.py")]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []


GROUPED = """
import pytest

@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("number", range(4))
def test_of_a_group(number, worker_id, tmp_path_factory):
    (tmp_path_factory.getbasetemp().parent / f"ran-{number}-{worker_id}").touch()
"""


def test_tests_of_a_group_stay_on_one_worker(tmp_path: Path) -> None:
    """Else each worker starts a control plane and a JupyterLab of its own, in silence."""
    (tmp_path / "test_grouped.py").write_text(GROUPED)
    words = ["-n", "2", "--dist", "loadgroup", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'temp'}"]
    command = [sys.executable, "-m", "pytest", "--rootdir", str(tmp_path), *words, str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    ran = [path.name.rpartition("-")[2] for path in (tmp_path / "temp").glob("ran-*")]
    assert len(ran) == 4 and len(set(ran)) == 1, ran
