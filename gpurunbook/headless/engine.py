"""The papermill engine: `papermill --engine gpurunbook in.ipynb out.ipynb`, and behind `gpurunbook run`.

papermill loads this module while it is itself half imported (its entry points are read at the end of
papermill/engines.py), so everything of papermill is imported on use.
"""

from __future__ import annotations

import contextlib
import copy
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpurunbook.declared.book import Runbook
from gpurunbook.declared.runbooks import declared
from gpurunbook.errors import EvidenceError, GateError, InputError, JournalError, Stopped
from gpurunbook.findings import EXIT, Verdict
from gpurunbook.folder import parameters, workspace
from gpurunbook.headless.signals import Signals
from gpurunbook.journal import JOURNAL, Journal, State, read, replay
from gpurunbook.shown.hostile import harmless
from gpurunbook.sources import files

if TYPE_CHECKING:
    from gpurunbook.headless.saving import Ending

_RUNBOOK_OF_CELL = re.compile(r"\s*# parameters of ([a-z][a-z0-9_]*)[ \t]*(\n|\Z)")
_REFUSED_TAGS = ("raises-exception", "skip-execution")


@dataclass
class Report:
    """What a driver saw, for who called it. unsealed: why there is no evidence; empty when there is."""

    run_dir: Path = Path()
    reason: str = ""
    unsealed: str = ""
    manifest: dict[str, Any] = field(default_factory=dict)


class Engine:
    """Executes a notebook so that its file, its journal and the exit code are true after any way to end."""

    @classmethod
    def nb_kernel_name(cls, nb: Any, name: str | None = None) -> str:
        """Writes nothing. As papermill: the given name, else that of the notebook."""
        from papermill.utils import nb_kernel_name

        return str(nb_kernel_name(nb, name))

    @classmethod
    def nb_language(cls, nb: Any, language: str | None = None) -> str:
        """Writes nothing. As papermill: the given language, else that of the notebook."""
        from papermill.utils import nb_language

        return str(nb_language(nb, language))

    @classmethod
    def execute_notebook(
        cls,
        nb: Any,
        kernel_name: str,
        output_path: str | None = None,
        progress_bar: bool | dict[str, Any] = True,
        log_output: bool = False,
        autosave_cell_every: int = 30,
        input_path: Any = None,
        stdout_file: Any = None,
        stderr_file: Any = None,
        start_timeout: int = 60,
        execution_timeout: float | None = None,
        run_dir: Path | None = None,
        report: Report | None = None,
        signals: Signals | None = None,
    ) -> Any:
        """Runs the cells in a new kernel, saves, closes a run that died, seals, and returns the notebook.

        run_dir: the run to work on; by default as the kernel finds it, else a new one; signals: those of the caller.
        Returns only when the run
        closed `pass` or `planned` and is sealed. Raises PapermillExecutionError for a cell that failed, Stopped
        for a run that closed otherwise, EvidenceError without a seal, RunInUse before anything is touched.
        """
        from gpurunbook.headless.saving import Notebook

        _refuse_tags(nb)
        called_by_papermill = report is None
        report = report or Report()
        with contextlib.ExitStack() as stack:
            report.run_dir = stack.enter_context(_folder(nb, input_path, run_dir))
            if called_by_papermill:
                unsealed(report.run_dir)
                _accept(nb, report.run_dir)
            signals = signals or stack.enter_context(Signals())
            out = _Output(report.run_dir, output_path)
            _shorten_paths(nb, report.run_dir)
            notebook = Notebook(
                nb,
                out.path,
                progress_bar=progress_bar,
                log_output=log_output,
                autosave_cell_every=autosave_cell_every,
            )
            driving = _Driving(notebook, signals, report, out)
            try:
                driving.execute(
                    kernel_name=kernel_name,
                    cell_seconds=execution_timeout,
                    start_seconds=start_timeout,
                    log_output=log_output,
                    stdout_file=stdout_file,
                    stderr_file=stderr_file,
                )
            except Exception as wrong:
                report.reason = report.reason or f"{type(wrong).__name__}: {wrong}"
                raise
            finally:
                driving.conclude()
                if called_by_papermill:
                    from gpurunbook.evidence import index

                    driving.say()
                    index.refresh(report.run_dir)
            driving.answer()
        return nb


def unsealed(run_dir: Path) -> None:
    """Writes nothing. Raises GateError `run-closed` for a run that closed well and is sealed: its manifest's digest may
    stand on a ticket."""
    from gpurunbook.evidence import bundle, seal

    if not (run_dir / bundle.MANIFEST).exists() or not seal.current(run_dir):
        return
    with contextlib.suppress(InputError, ValueError, KeyError, TypeError):
        manifest = json.loads((run_dir / bundle.MANIFEST).read_bytes())
        if manifest["evidence"] == "sealed" and EXIT[Verdict(manifest["verdict"])] == 0:
            runbook = workspace.record(run_dir)["runbook"]
            raise GateError(
                f"it closed {manifest['verdict']} and is sealed, with the manifest {seal.manifest_digest(run_dir)}",
                subject=f"run {run_dir.name} in {run_dir}",
                remedy=f"`gpurunbook verify {run_dir}` reads it; `gpurunbook new {runbook}` begins another one.",
                code="run-closed",
            )


def accept(run_dir: Path, book: Runbook, state: State, values: Mapping[str, Any]) -> None:
    """Keeps the parameters of an execution in the run's folder, before its kernel starts. Raises RunBound."""
    parameters.keep_to(book, state, values)
    if not state.bound:
        workspace.give(run_dir, {name: value for name, value in values.items() if name != "run_id"})


def _accept(nb: Any, run_dir: Path) -> None:
    """As `accept`, of what papermill was given; a notebook of no runbook has nothing to keep."""
    with contextlib.suppress(JournalError):
        state = replay(read(run_dir / JOURNAL))
        with contextlib.suppress(InputError):
            book = declared(str(workspace.record(run_dir)["runbook"]))
            accept(run_dir, book, state, nb.metadata.papermill.get("parameters", {}))


class _Driving:
    """One execution: the cells, what the journal then says, and the seal."""

    def __init__(self, notebook: Any, signals: Any, report: Report, out: _Output) -> None:
        self.notebook = notebook
        self.signals = signals
        self.report = report
        self.out = out
        self.cell = ""
        self._before = self._closed()

    def execute(self, kernel_name: str, **options: Any) -> None:
        from papermill.execute import raise_for_execution_errors

        from gpurunbook.headless.drive import drive

        run_dir = self.report.run_dir
        environment = {"GPURUNBOOK_RUN_DIR": str(run_dir)}
        # A kernel takes the run of its working directory first: another run's folder would be taken for ours.
        folder = None if workspace.named() in (None, run_dir) else run_dir
        ending = drive(
            self.notebook, self.signals, kernel_name=kernel_name, environment=environment, folder=folder, **options
        )
        ending = ending or self._unclosed()
        if ending is not None:
            self.report.reason = f"{ending.name}: {ending.reason}"
            self.cell = ending.cell
        self.notebook.notebook_complete()
        if ending is None:
            return
        nb = self.notebook.nb
        raise_for_execution_errors(nb if self.out.final else copy.deepcopy(nb), str(self.out.path))

    def _unclosed(self) -> Ending | None:
        from gpurunbook.headless.saving import Ending

        cells = self.notebook.nb.cells
        if self._state().closing is not None or not cells:
            return None
        last = max((i for i, cell in enumerate(cells) if cell.cell_type == "code"), default=len(cells) - 1)
        ending = Ending(
            "RunNotClosed", "the notebook ended without closing its run", last, str(cells[last].get("id", ""))
        )
        self.notebook.fail(ending, show=True)
        return ending

    def _state(self) -> State:
        return replay(Journal.open(self.report.run_dir / JOURNAL).records)

    def _closed(self) -> str:
        """The hash of the closing record that there is, or ""."""
        with contextlib.suppress(JournalError):
            return str((self._state().closing or {}).get("hash", ""))
        return ""

    def conclude(self) -> None:
        """Closes a run that died, then seals. Raises nothing: what went wrong stands in the report."""
        run_dir = self.report.run_dir
        try:
            if workspace.kernel_alive(run_dir):
                self.report.unsealed = "another kernel works on this run"
                return
            if self.report.reason:
                self._died()
            from gpurunbook.evidence.seal import seal

            self.report.manifest = dict(seal(run_dir, self.out.elsewhere))
        except Exception as wrong:
            self.report.unsealed = f"{type(wrong).__name__}: {wrong}"

    def _died(self) -> None:
        from gpurunbook.shown.redact import redact

        journal = Journal.open(self.report.run_dir / JOURNAL)
        state = replay(journal.records)
        # What an earlier execution came to says nothing of this one, which did not get as far.
        old = state.closing is not None and state.closing["hash"] == self._before
        if state.start and (state.closing is None or old or EXIT[state.verdict] == 0):
            step = state.open_step or self.cell
            journal.append("died", redact({"reason": self.report.reason[:1000], "step": step}))

    def say(self) -> None:
        """Writes nothing but a few lines on standard error: verdict, reason, evidence, next command."""
        from gpurunbook.evidence.seal import manifest_digest

        run_dir = self.report.run_dir
        verdict = str(self.report.manifest.get("verdict", Verdict.UNKNOWN))
        with contextlib.suppress(JournalError):
            verdict = verdict if self.report.manifest else str(self._state().verdict)
        again = f"gpurunbook run {workspace.record(run_dir)['runbook']} --run-id {run_dir.name}"
        lines = [
            f"run {run_dir.name}: {verdict}",
            f"  reason: {self.report.reason}" if self.report.reason else "",
            f"  evidence: {self.report.manifest.get('evidence') or 'unsealed: ' + self.report.unsealed} in {run_dir}",
            f"  manifest: {manifest_digest(run_dir)}" if self.report.manifest else "",
            f"  next: {again}" if self.report.reason or self.report.unsealed else "",
        ]
        print("\n".join(harmless(line, 600) for line in lines if line), file=sys.stderr)

    def answer(self) -> None:
        """Raises unless the run closed `pass` or `planned` and its evidence stands."""
        run_dir, manifest = self.report.run_dir, self.report.manifest
        try:
            state = self._state()
        except JournalError as wrong:
            raise EvidenceError(str(wrong), subject=run_dir.name) from None
        said = state.closing["data"] if state.closing else {}
        if EXIT[state.verdict] != 0:
            raise Stopped(
                f"closed {state.verdict}: {said.get('message', said.get('reason', ''))}",
                subject=run_dir.name,
                remedy=str(said.get("next", "")),
                code=str(said.get("code", "died")),
            )
        if self.report.unsealed:
            raise EvidenceError(
                f"no evidence: {self.report.unsealed}",
                subject=run_dir.name,
                remedy=f"`gpurunbook seal {run_dir}` tries again.",
                code="unsealed",
            )
        if manifest.get("evidence") != "sealed" or EXIT[Verdict(manifest["verdict"])] != 0:
            raise EvidenceError(
                f"the evidence is {manifest.get('evidence')}, the verdict {manifest['verdict']}",
                subject=run_dir.name,
                remedy=f"{run_dir / 'verdict.json'} says why.",
                code=str(manifest.get("evidence")),
            )


class _Output:
    """Where the executed notebook is saved, and how papermill saves it once more when the engine has returned.

    final: the place that papermill was given, when that is a local file. For standard output, devices and remote
    places our own copy stands in the run folder, and papermill writes to the place itself.
    """

    def __init__(self, run_dir: Path, output_path: str | None) -> None:
        from papermill.iorw import LocalHandler, papermill_io

        own = workspace.notebook(run_dir)
        handler = papermill_io.get_handler(output_path) if output_path else None
        self.path = own
        self.final = False
        if output_path and isinstance(handler, LocalHandler):
            given = Path(papermill_io.get_handler("local")._cwd or ".").resolve() / output_path
            self.final = not files.special(given)
            if self.final:
                self.path = given
                _write_whole(output_path, self.path)
        self.elsewhere = None if self.path.resolve() == own.resolve() else self.path


_WHOLE: dict[str, Path] = {}
"""Output paths as papermill was given them, and the files that they mean."""


def _write_whole(given: str, path: Path) -> None:
    """papermill's own last write truncates the file first; from now on it replaces this one, or leaves equal bytes."""
    from papermill.iorw import LocalHandler, papermill_io

    from gpurunbook.folder import keep

    class WholeFile(LocalHandler):  # type: ignore[misc]
        def write(self, text: str, path: str) -> None:
            target = _WHOLE.get(path)
            if target is None:
                super().write(text, path)
            elif not target.is_file() or target.read_bytes() != text.encode():
                keep.write(target, text.encode())

    if given not in _WHOLE:
        papermill_io.register(given, WholeFile())
    _WHOLE[given] = path


def _refuse_tags(nb: Any) -> None:
    for cell in nb.cells:
        for tag in _REFUSED_TAGS:
            if tag in cell.metadata.get("tags", []):
                raise InputError(
                    f"the tag {tag!r} would hide what a cell does from the evidence",
                    subject=f"cell {cell.get('id', '?')!r}",
                    remedy="Remove the tag; nothing was run.",
                )


def runbook_of(nb: Any, path: Any) -> str:
    """Writes nothing. The runbook that a notebook is of: its parameters cell says so, else the file's name."""
    for cell in nb.cells:
        found = _RUNBOOK_OF_CELL.match(cell.source) if cell.cell_type == "code" else None
        if found:
            return found[1]
    stem = Path(path).stem if isinstance(path, str) else ""
    return re.sub(r"[^a-z0-9_]+", "_", stem.lower()).strip("_") or "notebook"


def _folder(nb: Any, input_path: Any, run_dir: Path | None) -> contextlib.AbstractContextManager[Path]:
    """The run that the kernel will find by itself; see `workspace.locate`."""
    given = nb.metadata.papermill.get("parameters", {}).get("run_id", "")
    run_id = given if isinstance(given, str) else ""
    run_dir = run_dir or workspace.named()
    if run_dir is not None:
        return _held(run_dir)
    start = Path(input_path).resolve().parent if isinstance(input_path, str) and Path(input_path).is_file() else None
    if start is not None and run_id in ("", start.name) and (start / workspace.RECORD).is_file():
        return _held(start)  # a working copy, by its path
    try:
        home = workspace.find_home()
    except InputError:
        if start is None:
            raise
        home = workspace.find_home(start)
    out = workspace.runs_folder(home)
    return workspace.driven(runbook_of(nb, input_path), home=home, out=out, run_id=run_id, copy=False)


@contextlib.contextmanager
def _held(run_dir: Path) -> Iterator[Path]:
    workspace.record(run_dir)
    with workspace.driver(run_dir):
        yield run_dir.resolve()


def _shorten_paths(nb: Any, run_dir: Path) -> None:
    """Absolute paths in the evidence would tell user names (nteract/papermill#232)."""
    home = Path(workspace.record(run_dir)["home"])
    about = nb.metadata.papermill
    for key in ("input_path", "output_path"):
        value = about.get(key)
        if isinstance(value, str) and Path(value).is_absolute():
            path = Path(value)
            about[key] = str(path.relative_to(home)) if path.is_relative_to(home) else path.name
