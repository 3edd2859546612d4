"""Running the code cells of a working copy in a plain process, as a kernel does: one shell, in order, saved each time.

`execute` is the whole process. It may kill itself (SIGKILL), or stop itself until somebody lets it go on (SIGSTOP),
right before it appends the record of a given number to the run's journal: an audit hook sees the lock that every
append takes first.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

Cell = dict[str, Any]
Output = dict[str, Any]


class Copy:
    """A working copy with the outputs of its cells, replaced on disk as a whole after every cell."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._notebook: dict[str, Any] = json.loads(path.read_bytes())
        self._named: dict[str, Output] = {}
        self._cell: Cell = {}

    def inject(self, values: Mapping[str, Any]) -> None:
        """Puts the parameters where papermill puts them; those of an earlier time give way."""
        cells: list[Cell] = self._notebook["cells"]
        kept = [c for c in cells if "injected-parameters" not in c["metadata"].get("tags", ())]
        at = next(n for n, c in enumerate(kept) if "parameters" in c["metadata"].get("tags", ()))
        source = "\n".join(["# Parameters", *(f"{name} = {value!r}" for name, value in values.items())])
        given = {"cell_type": "code", "id": "injected", "metadata": {"tags": ["injected-parameters"]}, "source": source}
        self._notebook["cells"] = [*kept[: at + 1], given, *kept[at + 1 :]]
        for cell in self._code():
            cell |= {"outputs": [], "execution_count": None}

    def _code(self) -> list[Cell]:
        return [c for c in self._notebook["cells"] if c["cell_type"] == "code"]

    def cells(self) -> Iterator[str]:
        """The sources of the code cells in order; each is saved once it is over."""
        self.save()
        for number, cell in enumerate(self._code(), 1):
            self._cell = cell
            yield "".join(cell["source"])
            cell["execution_count"] = number
            self.save()

    def show(self, data: Any, metadata: Any, display_id: str, *, update: bool) -> None:
        """A display in the current cell, or in place of an earlier one."""
        if update:
            self._named[display_id] |= {"data": data, "metadata": metadata}
            return
        output = {"output_type": "display_data", "data": data, "metadata": metadata}
        self._cell["outputs"].append(output)
        if display_id:
            self._named[display_id] = output

    def fail(self, name: str, value: str, lines: list[str]) -> None:
        """The error that ended the current cell."""
        self._cell["outputs"].append({"output_type": "error", "ename": name, "evalue": value, "traceback": lines})

    def say(self, text: str) -> None:
        """What the current cell printed."""
        if text:
            self._cell["outputs"].append({"output_type": "stream", "name": "stdout", "text": text})

    def save(self) -> None:
        """The file as a whole: a process that is killed leaves the old one or the new one."""
        part = self._path.with_name(".part")
        part.write_text(json.dumps(self._notebook, indent=1))
        part.replace(self._path)


def _shell(copy: Copy) -> Any:
    from IPython.core.displaypub import DisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    class Publisher(DisplayPublisher):
        def publish(self, data: Any, metadata: Any = None, **more: Any) -> None:
            named = (more.get("transient") or {}).get("display_id", "")
            copy.show(data, metadata or {}, named, update=more.get("update", False))

    class Shell(InteractiveShell):
        display_pub_class = Publisher

        def _showtraceback(self, etype: Any, evalue: Any, stb: list[str]) -> None:
            copy.fail(etype.__name__, str(evalue), stb)

    return Shell.instance(config=Config({"HistoryManager": {"enabled": False}}))


def signal_before(record: int, journal: Path, number: int) -> None:
    """Arms a signal of this process to itself, right before it appends the record."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "fcntl.flock" and arguments[1] == fcntl.LOCK_EX:
            there = os.readlink(f"/proc/self/fd/{arguments[0]}")
            if there == str(journal) and journal.read_bytes().count(b"\n") == record:
                os.kill(os.getpid(), number)

    sys.addaudithook(hook)


def _jump(jumps: list[float]) -> None:
    """Makes the run of this process see a wall clock that is so many seconds off: one value for each look at it, the
    last one from then on."""
    from gpurunbook.runbook import start

    true, left = start.now, list(jumps)

    def now() -> datetime:
        return true() + timedelta(seconds=left.pop(0) if len(left) > 1 else left[0])

    start.now = now


def execute(
    folder: str,
    values: dict[str, Any],
    environment: dict[str, str],
    kill: int | None = None,
    stop: int | None = None,
    jumps: list[float] | None = None,
) -> None:
    """The process: runs the cells of the run's working copy until one fails, and exits with 1 then, else with 0.

    kill, stop: numbers of records before which that happens; jumps: see `_jump`.
    """
    from gpurunbook.runbook import guard

    guard.LONG_SECONDS = 3600.0  # how busy the machine is must not decide which requests there are
    os.environ.update(environment)
    os.chdir(folder)
    (path,) = Path(folder).glob("*.ipynb")
    with open(f"{folder}.log", "a") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    for record, number in ((kill, signal.SIGKILL), (stop, signal.SIGSTOP)):
        if record is not None:
            signal_before(record, Path(folder).resolve() / "journal.jsonl", number)
    if jumps:
        _jump(jumps)
    copy = Copy(path)
    copy.inject(values)
    shell = _shell(copy)
    for source in copy.cells():
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            result = shell.run_cell(source, store_history=True)
        copy.say(said.getvalue())
        if not result.success:
            copy.save()
            sys.exit(1)
