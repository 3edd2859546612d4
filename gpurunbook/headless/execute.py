"""Running one runbook headlessly, and what it came to. The verdict is the journal's, never a cell's status."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from gpurunbook.declared.book import Runbook
from gpurunbook.declared.runbooks import declared
from gpurunbook.errors import InputError, JournalError, RunInUse
from gpurunbook.evidence import executed
from gpurunbook.evidence.bundle import VERDICT
from gpurunbook.evidence.seal import manifest_digest
from gpurunbook.findings import EXIT, Verdict
from gpurunbook.folder import keep, parameters, workspace
from gpurunbook.headless import engine, expectation
from gpurunbook.headless.signals import Signals
from gpurunbook.journal import JOURNAL, Record, read, replay

SEALED, UNSEALED, WITHHELD = "sealed", "unsealed", "withheld"


@dataclass(frozen=True)
class Outcome:
    """What a run came to. message: what was seen; next: the next command; seconds: of the wall clock; manifest: the
    manifest's digest, for the change ticket."""

    run_dir: Path
    runbook: str
    verdict: Verdict
    code: str
    step: str
    message: str
    next: str
    evidence: str
    unsealed: str = ""
    seconds: float = 0.0
    manifest: str = ""
    rehearsal: bool = False
    seen: expectation.Seen | None = field(default=None, repr=False)

    @property
    def exit(self) -> int:
        """Writes nothing. The exit code: of the verdict, never 0 without evidence, 1 when it is withheld."""
        return self.exit_for(None)

    def exit_for(self, required: str | None) -> int:
        """Writes nothing. As `exit`; where a pass is required, `planned` ends with 1."""
        code = EXIT[self.verdict]
        if code == 0 and required and self.verdict != required:
            code = 1
        if code == 0 and self.evidence == UNSEALED:
            return 2
        if code == 0 and self.evidence == WITHHELD:
            return 1
        return code

    @property
    def html(self) -> Path | None:
        """Writes nothing. The page to read, where there is one."""
        path = self.run_dir / f"{self.runbook}.html"
        return path if self.evidence == SEALED and path.is_file() else None

    def as_json(self) -> dict[str, Any]:
        """Writes nothing. The content of verdict.json, and the manifest's digest; without a seal, the same words from
        the journal."""
        with contextlib.suppress(OSError, ValueError):
            if self.evidence != UNSEALED:
                said = json.loads((self.run_dir / VERDICT).read_bytes())
                return {**said, "manifest": self.manifest}
        return {
            "run": self.run_dir.name,
            "runbook": self.runbook,
            "verdict": str(self.verdict),
            "code": self.code,
            "step": self.step,
            "message": self.message,
            "next": self.next,
            "evidence": self.evidence,
            "unsealed": self.unsealed,
            "rehearsal": self.rehearsal,
            "left_behind": list(self.seen.left_behind) if self.seen else [],
        }


def load() -> None:
    """Imports what a run needs, so that it is paid once before worker processes are forked."""
    import papermill.execute  # noqa: F401


def run(
    runbook: str,
    values: Mapping[str, Any],
    *,
    home: Path,
    out: Path,
    run_id: str = "",
    scenario: str = "",
    progress: bool = False,
    cell_seconds: float | None = None,
    again: bool = False,
) -> Outcome:
    """Makes or resumes a run, executes its working copy in place and seals it.

    values: parameters that were judged already; those of an earlier start stay where none is given anew. again: a run
    that closed well and is sealed is executed again all the same. Raises GateError, RunInUse, RunBound and InputError
    before anything is touched; whatever happens later is in the outcome.
    """
    began = time.monotonic()
    with (
        Signals() as signals,
        workspace.driven(runbook, home=home, out=out, run_id=run_id, scenario=scenario, values=values) as run_dir,
    ):
        report = engine.Report()
        copy = workspace.notebook(run_dir)
        if not again:
            engine.unsealed(run_dir)
        values = _taken(run_dir, copy, declared(runbook), values)
        if not copy.is_file():
            keep.kept(copy, workspace.source(home, runbook).read_bytes())
        try:
            _papermill(copy, values, run_dir, report, progress, cell_seconds, signals)
        except RunInUse:
            raise
        except Exception as wrong:
            report.reason = report.reason or f"{type(wrong).__name__}: {wrong}"
            if not report.manifest:
                report.unsealed = report.unsealed or report.reason
        return _outcome(run_dir, runbook, report, time.monotonic() - began)


def _taken(run_dir: Path, copy: Path, book: Runbook, values: Mapping[str, Any]) -> dict[str, Any]:
    """Keeps what is given in the run's folder, before anything that may be stopped. All parameters that the notebook
    does not have by itself. Raises RunBound when something has counted by others, InputError `not-started` when nobody
    can tell what the run was given: with the defaults it could go to another cluster."""
    records: list[Record] = []
    with contextlib.suppress(JournalError):  # told with the outcome
        records = read(run_dir / JOURNAL, cut=True)
    state = replay(records)
    if not state.start and workspace.given(run_dir) is None:
        raise InputError(
            "it never started, and its folder does not say what it was given: it could go to another cluster",
            subject=f"run {run_dir.name}",
            remedy=f"`gpurunbook new {book.name}` starts another one.",
            code="not-started",
        )
    engine.accept(run_dir, book, state, values)
    given = workspace.given(run_dir) or {}
    had = {**injected(copy), **given}
    if state.start:
        # Somebody may have changed the notebook since: a run that started goes on with what it was started with, or
        # what it was given later.
        started = [record["time"] for record in records if record["event"] == "start"][-1]
        later = given if str(workspace.record(run_dir).get("given", "")) > started else {}
        has = {**msgspec.to_builtins(book.parameters()), **_written(copy), **had}
        had |= {name: was for name, (was, _) in parameters.anew(state, has).items()} | later
    return {**had, **values}


def _written(copy: Path) -> dict[str, Any]:
    """What the parameters cell of a working copy assigns."""
    found: dict[str, Any] = {}
    with contextlib.suppress(InputError):
        for cell in executed.read(copy.read_bytes(), copy.name).cells if copy.is_file() else ():
            found |= (executed.values(cell.source) or {}) if "parameters" in cell.tags else {}
    return found


def _papermill(
    copy: Path,
    values: Mapping[str, Any],
    run_dir: Path,
    report: engine.Report,
    progress: bool,
    cell_seconds: float | None,
    signals: Signals,
) -> None:
    import papermill.engines
    import papermill.execute

    logging.getLogger("papermill").setLevel(logging.CRITICAL)  # What it would say stands in the outcome.
    papermill.engines.papermill_engines.register("gpurunbook", engine.Engine)
    papermill.execute.execute_notebook(
        str(copy),
        str(copy),
        parameters=dict(values) or None,
        engine_name="gpurunbook",
        progress_bar=progress,
        execution_timeout=cell_seconds,
        run_dir=run_dir,
        report=report,
        signals=signals,
    )


def injected(copy: Path) -> dict[str, Any]:
    """Writes nothing. The parameters that papermill put into a working copy before."""
    try:
        found = json.loads(copy.read_bytes())["metadata"]["papermill"]["parameters"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return dict(found) if isinstance(found, dict) else {}


def _outcome(run_dir: Path, runbook: str, report: engine.Report, seconds: float) -> Outcome:
    manifest = report.manifest
    outcome = Outcome(
        run_dir=run_dir,
        runbook=runbook,
        verdict=Verdict.UNKNOWN,
        code="not-started",
        step="",
        message=report.reason,
        next=f"gpurunbook run {runbook} --run-id {run_dir.name}",
        evidence=str(manifest["evidence"]) if manifest else UNSEALED,
        unsealed=report.unsealed,
        seconds=seconds,
        manifest=manifest_digest(run_dir) if manifest else "",
        rehearsal=bool(manifest.get("rehearsal")),
    )
    try:
        records = read(run_dir / JOURNAL)
    except JournalError as wrong:
        return replace(outcome, code=wrong.code, message=str(wrong))
    state = replay(records)
    outcome = replace(outcome, rehearsal=bool(state.start.get("rehearsal", outcome.rehearsal)))
    if state.closing is None:
        code = "not-closed" if state.start else outcome.code
        return replace(outcome, code=code, message=report.reason or "the run was not closed")
    found = expectation.seen(records)
    said = state.closing["data"]
    outcome = replace(
        outcome,
        verdict=found.verdict,
        code=found.code,
        step=found.step,
        message=str(said.get("message") or said.get("reason", "")),
        next=str(said.get("next") or outcome.next),
        seen=found,
    )
    if manifest and manifest["verdict"] != found.verdict:
        told = "; ".join(f"{entry['cell'] or entry['kind']}: {entry['detail']}" for entry in manifest["lowered"][:5])
        message = f"closed {found.verdict}, but the seal found: {told}"
        lowered = replace(found, verdict=Verdict(manifest["verdict"]), code="lowered")
        return replace(outcome, verdict=lowered.verdict, code="lowered", message=message, seen=lowered)
    if outcome.evidence == SEALED and outcome.verdict is Verdict.PASS:
        # The closing record was written before the seal, and still asks for it. That of a dry run says how to apply.
        return replace(outcome, next=f"gpurunbook verify {run_dir}")
    return outcome


def inject(copy: Path, values: Mapping[str, Any]) -> None:
    """Replaces a working copy by one that holds the parameters in a cell, as papermill would put them."""
    import nbformat
    import papermill.iorw
    import papermill.parameterize

    nb = papermill.iorw.load_notebook_node(str(copy))
    nb = papermill.parameterize.parameterize_notebook(nb, dict(values))
    keep.kept(copy, nbformat.writes(nb).encode())
