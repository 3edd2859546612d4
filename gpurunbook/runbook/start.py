"""What opens a run: the start cell of a notebook, or whoever has collected the parameters already."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from datetime import UTC, datetime
from typing import Any

from gpurunbook.declared.book import Runbook
from gpurunbook.declared.runbooks import declared
from gpurunbook.errors import GateError
from gpurunbook.folder import keep, parameters, workspace
from gpurunbook.runbook.run import Run
from gpurunbook.shown import display


def now() -> datetime:
    """Writes nothing. The wall clock, in UTC."""
    return datetime.now(UTC)


def start(runbook: str) -> Run:
    """Opens or resumes a run in its folder's journal; reads the cluster, writes nothing to it.

    The parameters are those of the executed parameter cells. Raises ParameterError before any API call,
    RunInUse when another process holds the run; every other failure closes the run with a verdict first.
    """
    shell = _shell()
    display.install_error_card(shell)
    book = declared(runbook)
    cells = [str(cell) for cell in shell.history_manager.input_hist_raw[:-1]]
    values = parameters.collect(book, cells, shell.user_ns)
    # Without `run` no cell of a step has done anything in this kernel: each that was clicked shows a NameError.
    clicked = set() if "run" in shell.user_ns else set(_STEP_OF_CELL.findall("\n".join(cells)))
    return open_run(book, values, clicked)


_STEP_OF_CELL = re.compile(r"^run\.(?:check|change|wait)\(\s*[\"']([a-z0-9_-]+)[\"']", re.MULTILINE)


def _shell() -> Any:
    from IPython import get_ipython

    shell = get_ipython()
    if shell is None:
        raise GateError(
            "this is no notebook kernel", subject="gpurunbook.start", remedy="Use `gpurunbook run RUNBOOK`."
        )
    return shell


def open_run(book: Runbook, values: Mapping[str, Any], clicked: Set[str] = frozenset()) -> Run:
    """Opens or resumes a run, as `start` does, for parameters that were collected already.

    clicked: steps whose cells were run before the start, so that they show an error and not what was judged.
    """
    chosen = parameters.load(book, values)
    folder, home = workspace.locate(book.name, str(getattr(chosen, "run_id", "")))
    keep.hold(folder / workspace.KERNEL_LOCK)
    run = Run(book, chosen, folder, home, now)
    run.begin()
    run.unshown |= {step for step in clicked if run.state.passed(step)}
    if run.unshown:
        display.unshown(run.unshown_steps())
    return run
