"""Homes with one tiny notebook as their runbook, and how the executed ones are read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from gpurunbook.journal import read, replay

FILES = Path(__file__).parent / "files"
PODS = Path(__file__).parents[1] / "cases" / "audit" / "podlists" / "01-contract-good.json"
RUNBOOK = "provenance_audit"


def lay(folder: Path, name: str) -> Path:
    """A home whose runbook provenance_audit is the tiny notebook `name`."""
    home = folder / "home"
    (home / "runbooks").mkdir(parents=True)
    (home / "parameters" / RUNBOOK).mkdir(parents=True)
    shutil.copy(FILES / f"{name}.ipynb", home / "runbooks" / f"{RUNBOOK}.ipynb")
    shutil.copy(PODS, home / "pods.json")
    return home


def source(home: Path) -> str:
    return str(home / "runbooks" / f"{RUNBOOK}.ipynb")


def environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(("GPURUNBOOK_", "JPY_"))}


def papermill(home: Path, *words: str, output: str = "out.ipynb", **more: Any) -> subprocess.Popen[str]:
    """A real papermill with our engine, begun in the home."""
    command = [sys.executable, "-m", "papermill", "--engine", "gpurunbook", "--no-progress-bar", *words]
    return _begin(home, [*command, source(home), output], **more)


def gpurunbook(home: Path, *words: str, **more: Any) -> subprocess.Popen[str]:
    """A real gpurunbook process, begun in the home."""
    code = "import sys; from gpurunbook.cli import main; main(sys.argv[1:])"
    return _begin(home, [sys.executable, "-c", code, *words], **more)


def _begin(home: Path, command: list[str], **more: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, cwd=home, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more
    )


def the_run(home: Path) -> Path:
    """The only run folder of the home."""
    (found,) = [path.parent for path in (home / "outputs").glob("*/run.json")]
    return found


def events(run_dir: Path) -> list[str]:
    return [record["event"] for record in read(run_dir / "journal.jsonl")]


def closing(run_dir: Path) -> dict[str, Any]:
    record = replay(read(run_dir / "journal.jsonl")).closing
    assert record is not None
    return {"event": record["event"], **record["data"]}


def statuses(path: Path) -> dict[str, str]:
    """Cell id → papermill's status, without the marker cells."""
    cells = json.loads(path.read_bytes())["cells"]
    return {c["id"]: c["metadata"]["papermill"]["status"] for c in cells if "papermill" in c["metadata"]}


def outputs(path: Path, cell: str) -> str:
    """All text of a cell's outputs."""
    (found,) = [c for c in json.loads(path.read_bytes())["cells"] if c["id"] == cell]
    words = []
    for output in found["outputs"]:
        words += ["".join(output.get("text", "")), output.get("ename", ""), output.get("evalue", "")]
    return "\n".join(words)


def excepted(path: Path) -> object:
    return json.loads(path.read_bytes())["metadata"]["papermill"]["exception"]


def half_written(folder: Path) -> list[str]:
    """Files that a writer left behind, and JSON files that are cut off."""
    found = [path.name for path in folder.rglob("*.part")]
    for path in [*folder.rglob("*.json"), *folder.rglob("*.ipynb")]:
        try:
            json.loads(path.read_bytes())
        except ValueError:
            found.append(path.name)
    return found
