"""Where runs live: the home, the folder of runs, and one run's folder with its working copy."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpurunbook.errors import InputError, ParameterError, RunbookError, RunInUse
from gpurunbook.folder import keep
from gpurunbook.journal import canonical, timestamp

RECORD = "run.json"
DRIVER_LOCK = "driver.lock"
KERNEL_LOCK = "lock"

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def _now() -> datetime:
    return datetime.now(UTC)


def run_id(runbook: str, now: datetime, token: Callable[[int], str] = secrets.token_hex) -> str:
    """Writes nothing. A new run id; ids sort by time: `20260131t120000z-provenance_audit-1f2e`."""
    return f"{now.astimezone(UTC):%Y%m%dt%H%M%Sz}-{runbook}-{token(2)}"


def checked_run_id(given: str) -> str:
    """Writes nothing. The id as given. Raises ParameterError unless it is a plain folder name."""
    if not _RUN_ID.fullmatch(given):
        raise ParameterError(
            f"{given!r:.120} is no run id: wanted 1 to 100 letters, digits, '.', '_' or '-', a letter or digit first",
            subject="parameter 'run_id'",
            remedy="The ids of earlier runs are the folder names under outputs/.",
        )
    return given


def find_home(start: Path | None = None) -> Path:
    """Writes nothing. The folder that holds `runbooks/` and `parameters/`.

    That is GPURUNBOOK_HOME where it is set, else the nearest such folder from `start` (the working directory)
    upwards. Raises InputError when there is none.
    """
    named = os.environ.get("GPURUNBOOK_HOME", "")
    if named:
        if _is_home(Path(named)):
            return Path(named).resolve()
        raise InputError(
            "it holds no runbooks/ and parameters/",
            subject=f"GPURUNBOOK_HOME={named}",
            remedy="Set it to the checkout that holds both.",
        )
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if _is_home(folder):
            return folder
    raise InputError(
        f"no folder from {start} upwards holds runbooks/ and parameters/",
        subject="the home of the runbooks",
        remedy="Change into the checkout that holds them, or set GPURUNBOOK_HOME to it.",
    )


def _is_home(folder: Path) -> bool:
    return (folder / "runbooks").is_dir() and (folder / "parameters").is_dir()


def runs_folder(home: Path) -> Path:
    """Writes nothing. Where runs are kept: GPURUNBOOK_OUT, else `outputs/` of the home."""
    named = os.environ.get("GPURUNBOOK_OUT", "")
    return Path(named).resolve() if named else home / "outputs"


def located(named: Path, out: Path | None = None) -> Path:
    """Writes nothing. The folder of that path, else the run of that id in `out`, by default where runs are kept.

    Raises InputError when there is none.
    """
    if named.is_dir():
        return named
    if len(named.parts) == 1:
        with contextlib.suppress(InputError):
            run_dir = (out or runs_folder(find_home())) / named
            if run_dir.is_dir():
                return run_dir
    raise InputError(
        "no such folder, and no run of this id", subject=str(named), remedy="`ls outputs/` shows the runs."
    )


def clusters(run_dir: Path) -> Path:
    """Writes nothing. Where embedded clusters keep their state: GPURUNBOOK_CLUSTERS, else beside the run."""
    named = os.environ.get("GPURUNBOOK_CLUSTERS", "")
    return Path(named).resolve() if named else run_dir.parent / ".clusters"


def record(run_dir: Path) -> dict[str, Any]:
    """Writes nothing. The run's `run.json`. Raises InputError when it is not there or is not one."""
    try:
        found = json.loads((run_dir / RECORD).read_bytes())
    except FileNotFoundError:
        raise InputError(
            f"no {RECORD}: this is no run folder",
            subject=str(run_dir),
            remedy="Runs are the folders under outputs/; `gpurunbook new RUNBOOK` makes one.",
        ) from None
    except (OSError, ValueError, RecursionError) as wrong:
        raise InputError(f"{RECORD} cannot be read: {wrong}", subject=str(run_dir)) from None
    if not isinstance(found, dict) or not all(isinstance(found.get(k), str) for k in ("run", "runbook", "home")):
        raise InputError(f"{RECORD} is not the record of a run", subject=str(run_dir))
    # Files are named by the two: they must not lead out of the folder.
    if not all(_RUN_ID.fullmatch(found[key]) for key in ("run", "runbook")):
        raise InputError(f"{RECORD} is not the record of a run", subject=str(run_dir))
    return found


def source(home: Path, runbook: str) -> Path:
    """Writes nothing. The read-only notebook of a runbook. Raises InputError when there is none."""
    path = home / "runbooks" / f"{runbook}.ipynb"
    if not path.is_file():
        raise InputError(
            "there is no such notebook", subject=str(path), remedy="`ls runbooks/` shows those that there are."
        )
    return path


def notebook(run_dir: Path) -> Path:
    """Writes nothing. Where the working copy of a run lies."""
    return run_dir / f"{record(run_dir)['runbook']}.ipynb"


def _matches(run_dir: Path, runbook: str) -> dict[str, Any]:
    found = record(run_dir)
    if found["runbook"] != runbook:
        raise ParameterError(
            f"this run is of {found['runbook']}, not of {runbook}",
            subject=run_dir.name,
            remedy=f"Start one with `gpurunbook new {runbook}`.",
        )
    return found


def given(run_dir: Path) -> dict[str, Any] | None:
    """Writes nothing. The parameters that the run was made with; None when its record does not say."""
    found = record(run_dir).get("parameters")
    return dict(found) if isinstance(found, dict) else None


def give(run_dir: Path, values: Mapping[str, Any]) -> None:
    """Keeps parameters in the record of a run, beside those that it was given before."""
    known = given(run_dir) or {}
    if values and {**known, **values} != known:
        made = {**record(run_dir), "parameters": {**known, **values}, "given": timestamp(_now())}
        keep.kept(run_dir / RECORD, canonical(made) + b"\n")


def _furnish(
    run_dir: Path, runbook: str, home: Path, scenario: str, copy: bool, values: Mapping[str, Any] | None = None
) -> None:
    if copy:
        keep.kept(run_dir / f"{runbook}.ipynb", source(home, runbook).read_bytes())
    made: dict[str, Any] = {"run": run_dir.name, "runbook": runbook, "created": timestamp(_now()), "home": str(home)}
    if scenario:
        made["scenario"] = scenario
    if values is not None:
        made["parameters"] = dict(values)
    # Last, so that a folder with a record is whole.
    keep.kept(run_dir / RECORD, canonical(made) + b"\n")


def _make(runbook: str, out: Path, given: str) -> Path:
    run_dir = out.resolve() / (checked_run_id(given) if given else run_id(runbook, _now()))
    while True:
        try:
            run_dir.parent.mkdir(parents=True, exist_ok=True)
            run_dir.mkdir(exist_ok=bool(given))
            return run_dir
        except OSError as wrong:
            # An id made up in the same second by another run must not share that run's folder.
            if not given and run_dir.is_dir():
                run_dir = run_dir.with_name(run_id(runbook, _now()))
                continue
            raise RunbookError(
                f"the run folder cannot be made: {wrong.strerror}",
                subject=str(run_dir),
                remedy="Choose another place with --out or GPURUNBOOK_OUT.",
                code="no-run-folder",
            ) from None


def new_run(
    runbook: str,
    *,
    home: Path,
    out: Path,
    run_id: str = "",
    scenario: str = "",
    values: Mapping[str, Any] | None = None,
) -> Path:
    """Makes `<out>/<run-id>/` with `run.json` and the working copy, before any kernel starts.

    values: the parameters that were given; the record keeps them.
    Raises ParameterError for a bad or taken run id, InputError without the source notebook, RunInUse when
    another process is making the same run.
    """
    made = driven(runbook, home=home, out=out, run_id=run_id, scenario=scenario, fresh=True, values=values or {})
    with made as run_dir:
        return run_dir


@contextmanager
def driven(
    runbook: str,
    *,
    home: Path,
    out: Path,
    run_id: str = "",
    scenario: str = "",
    fresh: bool = False,
    copy: bool = True,
    values: Mapping[str, Any] | None = None,
) -> Iterator[Path]:
    """Gives a run's folder, new or known, and holds its driver lock meanwhile.

    Nothing of a known run is touched. copy: whether a new folder gets the working copy; values: the parameters that its
    record keeps. Raises as `new_run`, and RunInUse when another driver or a kernel has the run.
    """
    if copy:
        source(home, runbook)
    run_dir = _make(runbook, out, run_id)
    with driver(run_dir):
        if not (run_dir / RECORD).exists():
            _furnish(run_dir, runbook, home, scenario, copy, values)
        elif fresh:
            raise ParameterError(
                "there is a run of this id already",
                subject=run_dir.name,
                remedy=f"Go on with it by `gpurunbook run {runbook} --run-id {run_dir.name}`, or choose another id.",
                code="run-exists",
            )
        else:
            _matches(run_dir, runbook)
        yield run_dir


_DRIVEN: set[Path] = set()
"""Runs whose driver lock this process has."""


@contextmanager
def driver(run_dir: Path) -> Iterator[None]:
    """Holds the driver lock of a run; within one process it may be taken again. Raises RunInUse.

    A kernel that has the run, one in JupyterLab or one whose driver has just died, counts as a driver.
    """
    run_dir = run_dir.resolve()
    if run_dir in _DRIVEN:
        yield
        return
    if kernel_alive(run_dir):
        raise RunInUse(
            "a kernel works on this run, in JupyterLab or left over from a driver that died a moment ago",
            subject=run_dir.name,
            remedy="Close that notebook's kernel, or wait some seconds; or start a run of its own.",
        )
    keep.hold(run_dir / DRIVER_LOCK)
    _DRIVEN.add(run_dir)
    try:
        yield
    finally:
        _DRIVEN.discard(run_dir)
        keep.release(run_dir / DRIVER_LOCK)


def kernel_alive(run_dir: Path) -> bool:
    """Writes nothing. Whether some process holds the run's kernel lock, as `start` takes it.

    Raises InputError where that cannot be told.
    """
    try:
        descriptor = os.open(run_dir / KERNEL_LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as wrong:
        raise InputError(
            f"{KERNEL_LOCK} cannot be read: {wrong.strerror}; a kernel may be at work",
            subject=str(run_dir),
            remedy="Ask as the user who runs it.",
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def named() -> Path | None:
    """Writes nothing. The run of the working directory's `run.json`, else of GPURUNBOOK_RUN_DIR, else None."""
    here = Path.cwd()
    if (here / RECORD).is_file():
        return here
    variable = os.environ.get("GPURUNBOOK_RUN_DIR", "")
    return Path(variable).resolve() if variable else None


def locate(runbook: str, run_id: str = "") -> tuple[Path, Path]:
    """Gives the run folder and the home of the kernel that calls; makes a folder where no run was given.

    The run is that of `run.json` in the working directory, else of GPURUNBOOK_RUN_DIR, else the known run `run_id`,
    else a new one. Raises ParameterError when `run_id` names another run than the folder.
    """
    run_dir = named()
    if run_dir is not None:
        found = _matches(run_dir, runbook)
        if run_id and run_id != run_dir.name:
            raise ParameterError(
                f"{run_id!r:.120} is another run than the one of this folder, {run_dir.name}",
                subject="parameter 'run_id'",
                remedy="Leave it empty here.",
            )
        return run_dir, Path(found["home"])
    home = find_home()
    out = runs_folder(home)
    if run_id:
        run_dir = out / checked_run_id(run_id)
        found = _matches(run_dir, runbook)
        return run_dir, Path(found["home"])
    run_dir = _make(runbook, out, "")
    _furnish(run_dir, runbook, home, "", copy=False)
    return run_dir, home
