"""Builds a run as a kernel leaves it: home with source notebook, run folder with journal and executed notebook.

Everything is made by the package's own writers (journal, tables, figures, scraps, cards), with a clock of its own, so
that two builds are equal byte for byte.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gpurunbook.findings import Finding, Status
from gpurunbook.journal import Journal, canonical, digest
from gpurunbook.plan import Figure, Table
from gpurunbook.shown import cards, display
from gpurunbook.shown.scraps import CLOSING, MIME, payload

RUNBOOK = "gpu_audit"
RUN = "20260131t120000z-gpu_audit-1f2e"
PARAMETERS = {
    "cluster": "prod-a",
    "namespaces": ["gpu-operator"],
    "tolerate": 3,
    "change_id": "CHG-4711",
    "reason": "monthly audit",
    "run_id": "",
}
IMAGE = "nvcr.io/nvidia/driver:580.65.06"
FINDINGS = (
    Finding("supply.audit", "gpu-operator/pod/driver-7", Status.PASS, "pinned", f"{IMAGE} runs under its digest"),
    Finding("supply.audit", "gpu-operator/pod/<b>dcgm</b>", Status.WARN, "tag-only", "a tag, no digest", "Pin it."),
)

Notebook = dict[str, Any]


def markdown(id: str, text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": id, "metadata": {"tags": []}, "source": text.splitlines(keepends=True)}


def code(id: str, text: str, tags: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": id,
        "metadata": {"tags": list(tags)},
        "outputs": [],
        "source": text.splitlines(keepends=True),
    }


def shows(data: dict[str, Any], metadata: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"output_type": "display_data", "data": data, "metadata": metadata or {}}


def scrap(name: str, data: Any) -> dict[str, Any]:
    about = {"scrapbook": {"name": name, "data": True, "display": False}}
    return shows({MIME: payload(name, data)}, about)


def error(name: str, message: str) -> dict[str, Any]:
    return {
        "output_type": "error",
        "ename": name,
        "evalue": message,
        "traceback": [f"\x1b[31m{name}\x1b[0m: {message}"],
    }


def source_notebook() -> Notebook:
    return {
        "cells": [
            markdown("header", "# GPU audit\n\nReads pods. See [the policy](https://example.com/policy)."),
            code("parameters", f"# parameters of {RUNBOOK}\n" + _lines(PARAMETERS), ("parameters",)),
            markdown("about-start", "## Start"),
            code("start", f'import gpurunbook as rb\n\nrun = rb.start("{RUNBOOK}")'),
            markdown("about-audit", "## Audit\n\n| bad | means |\n|---|---|\n| red | rejected |"),
            code("audit", 'run.check("audit", rb.supply.provenance(run.parameters.namespaces))', ("checks",)),
            code("ready", 'run.check("ready", rb.supply.evidence_ready())', ("checks",)),
            code("close", "run.close()"),
        ],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _lines(parameters: dict[str, Any]) -> str:
    return "\n".join(f"{name} = {value!r}" for name, value in parameters.items())


@dataclass
class Run:
    """One built run. Change `notebook` and `save()` again, or append to `journal`, to make other states."""

    home: Path
    folder: Path
    journal: Journal
    notebook: Notebook
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return self.folder / f"{RUNBOOK}.ipynb"

    def save(self, path: Path | None = None) -> Path:
        path = path or self.path
        path.write_text(json.dumps(self.notebook, indent=1, sort_keys=True) + "\n")
        return path

    def cell(self, id: str) -> dict[str, Any]:
        return next(cell for cell in self.notebook["cells"] if cell["id"] == id)

    def at(self, id: str) -> int:
        return next(i for i, cell in enumerate(self.notebook["cells"]) if cell["id"] == id)

    def ran(self, id: str, count: int, *outputs: dict[str, Any]) -> None:
        cell = self.cell(id)
        cell["execution_count"] = count
        cell["outputs"] = [*outputs]

    def judge(self, step: str, count: int, findings: tuple[Finding, ...] = FINDINGS, status: str = "warn") -> None:
        inventory = canonical({"images": [IMAGE], "step": step})
        (self.folder / "after").mkdir(exist_ok=True)
        (self.folder / "after" / f"{step}.json").write_bytes(inventory)
        data = {
            "step": step,
            "title": f"Judge {step}",
            "status": status,
            "passed": status in {"pass", "warn"},
            "findings": [finding.as_json() for finding in findings],
            "files": {f"after/{step}.json": digest(inventory)},
            "facts": {"records": 17, "share": 0.25},
        }
        self.journal.append("step", {"step": step})
        self.journal.append("judged", data)
        rows = [(finding.subject, str(finding.status), 7 + n) for n, finding in enumerate(findings)]
        table = Table("Images", ("subject", "status", "pods"), rows, bars=("pods",), status="status")
        figure = Figure("Digests by class", ["registry", "imported <i>"], {"records": [12, 5]}, "records")
        self.ran(
            step,
            count,
            scrap(f"gpurunbook.step.{step}", {key: data[key] for key in ("status", "passed", "facts")}),
            shows(cards.state_line(step, status)),
            shows(display.bundle(table)),
            shows(display.bundle(figure)),
            {"output_type": "stream", "name": "stdout", "text": ["17 records in 0.25 s\n"]},
        )

    def close(self, cell: str, count: int, verdict: str = "pass", code: str = "all-steps-passed") -> None:
        data = {
            "verdict": verdict,
            "code": code,
            "step": cell,
            "message": "Every step passed." if verdict == "pass" else "An image is not pinned.",
            "next": "gpurunbook seal",
            "left_behind": [],
        }
        record = self.journal.append("close", data)
        told = {"run": RUN, "runbook": RUNBOOK, **{key: data[key] for key in ("verdict", "code", "step")}}
        self.cell(cell)["execution_count"] = count
        self.cell(cell)["outputs"] += [
            scrap(CLOSING, {**told, "head": record["hash"], "rehearsal": False}),
            shows(cards.banner("The run is closed", verdict=verdict, values={"run": RUN})),
        ]


def clock() -> Callable[[], datetime]:
    """Each call is a second later."""
    state = {"now": datetime(2026, 1, 31, 12, tzinfo=UTC)}

    def tick() -> datetime:
        state["now"] += timedelta(seconds=1)
        return state["now"]

    return tick


def begun(root: Path, parameters: dict[str, Any] | None = None, *, rehearsal: bool = False) -> Run:
    """A run that has started and judged nothing yet."""
    home = root / "home"
    for name in ("runbooks", "parameters"):
        (home / name).mkdir(parents=True)
    source = home / "runbooks" / f"{RUNBOOK}.ipynb"
    source.write_text(json.dumps(source_notebook(), indent=1, sort_keys=True) + "\n")
    folder = home / "outputs" / RUN
    folder.mkdir(parents=True)
    about = {"run": RUN, "runbook": RUNBOOK, "created": "2026-01-31T12:00:00.000000Z", "home": str(home)}
    (folder / "run.json").write_bytes(canonical(about) + b"\n")
    run = Run(home, folder, Journal.open(folder / "journal.jsonl", clock()), copy.deepcopy(source_notebook()))
    run.journal.append(
        "start",
        {
            "run": RUN,
            "runbook": RUNBOOK,
            "parameters": parameters or PARAMETERS,
            "package": {"version": "0.1.0", "digest": "sha256:" + "ab" * 32},
            "source": digest(source.read_bytes()),
            "process": {"host": "desk", "pid": 4711},
        },
    )
    run.journal.append(
        "cluster",
        {
            "cluster": {"name": "prod-a", "uid": "0b6ad2e2-43a5-4c1f-9f36-0d7e1f2a3b4c", "version": "v1.35.4"},
            "operator": {"name": "alice@example.com"},
            "rehearsal": rehearsal,
            "rehearsal_reasons": ["the cluster says that it is a fixture"] if rehearsal else [],
        },
    )
    run.ran("parameters", 1)
    run.ran("start", 2, shows(cards.banner("GPU audit", values={"run": RUN, "cluster": "prod-a"})))
    return run


def passed(root: Path) -> Run:
    """A run that closed with pass, its notebook saved."""
    run = begun(root)
    run.judge("audit", 3)
    run.judge("ready", 4)
    run.close("close", 5)
    run.save()
    return run


def rejected(root: Path) -> Run:
    """A run that stopped in its first check: the cells behind it did not run."""
    run = begun(root)
    bad = Finding("supply.audit", "gpu-operator/pod/driver-7", Status.FAIL, "latest", "runs :latest", "Pin it.")
    run.judge("audit", 3, (bad,), "fail")
    run.close("audit", 3, "rejected", "latest")
    run.cell("audit")["outputs"].append(error("Stopped", "runs :latest"))
    run.save()
    return run


def died(root: Path) -> Run:
    """A run whose kernel died in its second check: no closing record, no outputs of that cell."""
    run = begun(root)
    run.judge("audit", 3)
    run.journal.append("step", {"step": "ready"})
    run.save()
    return run


def by_papermill(run: Run, parameters: dict[str, Any]) -> None:
    """What papermill adds when it is given parameters."""
    cell = code("0f3c2a1b", "# Parameters\n" + _lines(parameters), ("injected-parameters",))
    cell["execution_count"] = 2
    run.notebook["cells"].insert(run.at("parameters") + 1, cell)
    for later in run.notebook["cells"][run.at("start") :]:
        if later.get("execution_count"):
            later["execution_count"] += 1
    run.notebook["metadata"]["papermill"] = {"parameters": parameters, "output_path": "out.ipynb"}
