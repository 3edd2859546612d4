"""`gpurunbook run` and `gpurunbook new`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from gpurunbook.headless.batch import Result
    from gpurunbook.headless.execute import Outcome

F = TypeVar("F", bound=Callable[..., Any])

_COLOURS = {"pass": "green", "planned": "yellow", "unknown": "magenta"}


def given_options(command: F) -> F:
    """Adds the options that say what a run is given and where it is kept."""
    for option in (
        click.option("--run-id", default="", metavar="ID", help="Name of the run; an earlier one is gone on with."),
        click.option(
            "--out", type=click.Path(file_okay=False, path_type=Path), help="Folder of runs. Default: outputs/"
        ),
        click.option("--cluster", default="", metavar="CONTEXT", help="embedded:DIR, or a kubeconfig context."),
        click.option("--set", "sets", multiple=True, metavar="NAME=VALUE", help="One parameter, read as its type."),
        click.option(
            "--parameters",
            "files",
            multiple=True,
            type=click.Path(dir_okay=False, path_type=Path),
            help="YAML file of parameters; later ones win.",
        ),
    ):
        command = option(command)
    return command


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("runbook", required=False)
@given_options
@click.option("--require", type=click.Choice(["pass"]), help="Let `planned` end with 1.")
@click.option("--all", "every", is_flag=True, help="Run every scenario of every runbook; expectations decide.")
@click.option("--main", is_flag=True, help="With --all: only the main scenario of each runbook.")
@click.option("--jobs", type=click.IntRange(min=1), help="With --all: how many at once. Default: processors.")
@click.option("--cell-timeout", type=click.IntRange(min=1), metavar="SECONDS", help="Interrupt a cell after this time.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def run(
    runbook: str | None,
    files: tuple[Path, ...],
    sets: tuple[str, ...],
    cluster: str,
    out: Path | None,
    run_id: str,
    require: str | None,
    every: bool,
    main: bool,
    jobs: int | None,
    cell_timeout: int | None,
    output: str,
) -> int:
    """Run a runbook headlessly and seal its evidence, or run all scenarios.

    Exit: 0 pass or planned, 1 rejected, blocked or failed, 2 unknown. With --all: 0 when each scenario came to
    what is expected of it, 1 when one did not, 2 when one could not be run.
    """
    if every:
        if files or sets or cluster or run_id or require:
            raise click.UsageError("--all takes its parameters from the scenarios; give no others")
        return _run_all(runbook, out, main, jobs, cell_timeout, output)
    if main or jobs:
        raise click.UsageError("--main and --jobs go with --all")
    if not runbook:
        raise click.UsageError("name a runbook, or say --all")
    return _run_one(runbook, files, sets, cluster, out, run_id, require, cell_timeout, output)


def _run_one(
    runbook: str,
    files: tuple[Path, ...],
    sets: tuple[str, ...],
    cluster: str,
    out: Path | None,
    run_id: str,
    require: str | None,
    cell_timeout: int | None,
    output: str,
) -> int:
    from gpurunbook.errors import GateError
    from gpurunbook.headless import execute

    home, out, values, run_id = _gathered(runbook, files, sets, cluster, out, run_id)
    try:
        outcome = execute.run(
            runbook,
            values,
            home=home,
            out=out,
            run_id=run_id,
            progress=sys.stderr.isatty(),
            cell_seconds=cell_timeout,
        )
    except GateError as wrong:
        return _blocked(wrong, runbook, out / run_id, output)
    if output == "json":
        click.echo(json.dumps(outcome.as_json(), sort_keys=True, indent=1))
    else:
        card(outcome)
    _page(out)
    return outcome.exit_for(require)


def _page(out: Path) -> Path | None:
    """Replaces the page of runs. Where it cannot be written the answer of the runs stands all the same."""
    from gpurunbook.evidence import index

    try:
        return index.write(out)
    except OSError as wrong:
        click.echo(f"the page of runs in {out} cannot be written: {wrong.strerror}; the runs are whole", err=True)
        return None


def _blocked(wrong: Any, runbook: str, run_dir: Path, output: str) -> int:
    """Prints why nothing was begun, as of a run that was."""
    from gpurunbook.findings import EXIT, Verdict
    from gpurunbook.headless.execute import Outcome

    message = f"{wrong.subject}: {wrong.message}"
    outcome = Outcome(run_dir, runbook, Verdict.BLOCKED, wrong.code, "", message, wrong.remedy, evidence="")
    if output == "json":
        said = {"run": run_dir.name, "runbook": runbook, "verdict": str(Verdict.BLOCKED), "code": wrong.code}
        said |= {"message": message, "next": wrong.remedy}
        click.echo(json.dumps(said, sort_keys=True, indent=1))
    else:
        card(outcome)
    return EXIT[Verdict.BLOCKED]


def _gathered(
    runbook: str, files: tuple[Path, ...], sets: tuple[str, ...], cluster: str, out: Path | None, run_id: str
) -> tuple[Path, Path, dict[str, Any], str]:
    """Home, folder of runs, parameters, and run id, all judged before anything is made."""
    from gpurunbook.declared.runbooks import declared
    from gpurunbook.errors import ParameterError
    from gpurunbook.folder import workspace
    from gpurunbook.runbook import given

    values = given.gather(declared(runbook), files, sets, cluster)
    named = str(values.pop("run_id", ""))
    if run_id and named and run_id != named:
        raise ParameterError(f"--run-id is {run_id!r}, the parameter is {named!r}", subject="parameter 'run_id'")
    home = workspace.find_home()
    workspace.source(home, runbook)
    if len(Path(run_id).parts) > 1 and (Path(run_id) / workspace.RECORD).is_file():
        out, run_id = Path(run_id).resolve().parent, Path(run_id).resolve().name
    if run_id or named:
        workspace.checked_run_id(run_id or named)
    return home, (out or workspace.runs_folder(home)).resolve(), values, run_id or named


def card(outcome: Outcome) -> None:
    """Prints what a run came to: verdict, code, what, next, evidence, folder, page."""
    from gpurunbook.shown.hostile import harmless
    from gpurunbook.shown.marks import plain

    evidence = outcome.evidence + (f": {outcome.unsealed}" if outcome.unsealed else "")
    click.secho(plain(outcome.verdict), fg=_COLOURS.get(outcome.verdict, "red"), bold=True)
    if outcome.rehearsal:
        click.secho("  rehearsal: not evidence for a live cluster", fg="red")
    for name, value in (
        ("code", f"{outcome.code} ({outcome.step})" if outcome.step else outcome.code),
        ("what", outcome.message),
        ("left", "; ".join(outcome.seen.left_behind) if outcome.seen else ""),
        ("next", outcome.next),
        ("evidence", evidence),
        ("manifest", outcome.manifest),
        ("run", _short(outcome.run_dir)),
        ("page", _short(outcome.html) if outcome.html else ""),
    ):
        if value:
            shown = harmless(value, 2000, lines=True).strip().replace("\n", "\n           ")
            click.echo(f"  {name:<8} {shown}")


def _short(path: Path) -> str:
    shown = os.path.relpath(path)
    return str(path) if shown.startswith("..") else shown


def _run_all(
    runbook: str | None, out: Path | None, main: bool, jobs: int | None, cell_timeout: int | None, output: str
) -> int:
    from gpurunbook.folder import workspace
    from gpurunbook.headless import batch

    home = workspace.find_home()
    out = (out or workspace.runs_folder(home)).resolve()
    scenarios = [s for s in batch.in_home(home, [runbook] if runbook else []) if s.main or not main]
    if not scenarios:
        raise click.UsageError("there is no scenario to run")
    with _progress(len(scenarios)) as done:
        results = batch.run_all(
            scenarios,
            home=home,
            out=out,
            jobs=jobs or 0,
            cell_seconds=cell_timeout or batch.CELL_SECONDS,
            done=done,
        )
    page = _page(out)
    code = max(result.exit for result in results)
    if output == "json":
        verdict = {0: "pass", 1: "fail", 2: "error"}[code]
        said = {"verdict": verdict, "runs": [result.as_json() for result in results], "index": page and str(page)}
        click.echo(json.dumps(said, sort_keys=True, indent=1))
    else:
        _table(results)
    for result in results:
        if result.exit:
            _complain(result)
    if page is not None:
        click.echo(f"evidence: {_short(page)}", err=output == "json")
    return code


class _progress:
    """A bar on standard error when that is a terminal; a line per scenario is no help in a log."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._bar: Any = None

    def __enter__(self) -> Callable[[Result], None]:
        if not sys.stderr.isatty():
            return lambda _: None
        from rich.console import Console
        from rich.progress import Progress

        self._bar = Progress(console=Console(stderr=True), transient=True)
        self._bar.start()
        task = self._bar.add_task("scenarios", total=self._total)
        return lambda _: self._bar.advance(task)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def _table(results: list[Result]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from gpurunbook.shown.hostile import harmless
    from gpurunbook.shown.marks import plain

    table = Table(box=box.SIMPLE)
    for name in ("runbook", "scenario", "expected", "seen", "code", "evidence", "runs", "s", ""):
        table.add_column(name)
    for result in results:
        outcome = result.outcome
        held = ("as expected", "green") if result.exit == 0 else ("not as expected", "bold red")
        if result.exit == 2:
            held = ("could not be run", "bold magenta")
        table.add_row(
            Text(result.scenario.runbook),
            Text(result.scenario.name),
            Text(result.scenario.expected.verdict),
            Text(plain(outcome.verdict) if outcome else ""),
            Text(harmless(outcome.code) if outcome else ""),
            Text(outcome.evidence if outcome else ""),
            Text(str(len(result.links) or "")),
            Text(f"{result.seconds:.1f}" if outcome else ""),
            Text(held[0], style=held[1]),
        )
    width = None if sys.stdout.isatty() else 160
    Console(width=width).print(table)


def _complain(result: Result) -> None:
    from gpurunbook.shown.hostile import harmless

    where = f"{result.scenario.runbook}/{result.scenario.name}"
    if result.trouble:
        click.echo(f"{where} could not be run: {harmless(result.trouble, 2000, lines=True)}", err=True)
    for line in result.differences:
        click.echo(f"{where} is not as expected: {harmless(line, 900)}", err=True)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("runbook")
@given_options
def new(
    runbook: str, files: tuple[Path, ...], sets: tuple[str, ...], cluster: str, out: Path | None, run_id: str
) -> int:
    """Make a run folder with a working copy of RUNBOOK, and print the copy's path."""
    click.echo(make(runbook, files, sets, cluster, out, run_id))
    return 0


def make(
    runbook: str, files: tuple[Path, ...], sets: tuple[str, ...], cluster: str, out: Path | None, run_id: str
) -> Path:
    """Makes the run folder and the working copy, with the parameters in it. Gives the copy's path."""
    from gpurunbook.folder import workspace

    home, out, values, run_id = _gathered(runbook, files, sets, cluster, out, run_id)
    copy = workspace.notebook(workspace.new_run(runbook, home=home, out=out, run_id=run_id, values=values))
    if values:
        from gpurunbook.headless import execute

        execute.inject(copy, values)
    return copy
