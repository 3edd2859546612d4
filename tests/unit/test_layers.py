"""The arrows between rooms, and what an import costs.

Covered: import-linter's contracts of pyproject.toml hold, a forbidden import makes them fail, a room that no
contract names makes them fail, `import gpurunbook` and `gpurunbook --help` stay light, rooms stay small or say why.
Not covered: imports made inside functions at run time, other than by the two commands above.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "gpurunbook"
ROOM_LINES = 2500

HEAVY = ("scrapbook", "papermill", "nbformat", "nbconvert", "pandas", "jupyterlab", "jsonschema")


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    command = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    return subprocess.run(
        [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(root)!r}); {command}", "--no-cache"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_the_contracts_hold() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    kept = re.search(r"Contracts: ([0-9]+) kept, 0 broken", done.stdout)
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert kept is not None
    assert int(kept[1]) == len(contracts)


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("supply/intruder.py", "import subprocess"),
        ("nodes/intruder.py", "import kubernetes"),
        ("plan.py", "import gpurunbook.sources"),
        ("sources/intruder.py", "import gpurunbook.runbook"),
        ("embedded/intruder.py", "import gpurunbook.supply"),
        ("runbook/intruder.py", "import gpurunbook.embedded"),
        ("unlisted.py", "import json"),
    ],
)
def test_a_forbidden_import_breaks_a_contract(tmp_path: Path, file: str, line: str) -> None:
    shutil.copytree(PACKAGE, tmp_path / "gpurunbook", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    place = tmp_path / "gpurunbook" / file
    place.write_text((place.read_text() if place.exists() else "") + f"\n{line}\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"[1-9][0-9]* broken", done.stdout)


def loaded_by(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split("\n")[-2].split())


def test_a_kernel_loads_nothing_heavy() -> None:
    assert not loaded_by("import gpurunbook as rb; rb.start").intersection(HEAVY)


def test_help_loads_click_and_nothing_else_that_is_installed() -> None:
    code = (
        "from gpurunbook.cli import group\ntry:\n group(['--help'])\nexcept SystemExit as end:\n assert end.code == 0"
    )
    third_party = loaded_by(code) - set(sys.stdlib_module_names) - {"gpurunbook", "__main__"}
    ours_to_blame = {name for name in third_party - loaded_by("import click") if not name.startswith("_")}
    assert ours_to_blame == set()


def test_a_large_room_has_its_reason_in_contributing() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for init in PACKAGE.glob("*/__init__.py"):
        lines = sum(len(file.read_text().splitlines()) for file in init.parent.rglob("*.py"))
        if lines > ROOM_LINES:
            assert re.search(rf"^- `{init.parent.name}/`: .{{20,}}", text, re.MULTILINE), (
                f"{init.parent.name}/ has {lines} lines; over {ROOM_LINES} its reason stands in CONTRIBUTING.md"
            )
