"""Driving a kernel through a notebook so that what is saved is true, however the run ends.

papermill turns every cell that is left `pending` into `completed` and does not count a dead kernel or a cell
time-out as an error of a cell (papermill/engines.py, clientwrap.py; nteract/papermill#508); it also dies of SIGTERM
without saving. Here the started cell is `failed`, those behind it stay `pending`, and the reason is an output.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import NATIVE_KERNEL_NAME, KernelSpec
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbclient.util import ensure_async
from papermill.clientwrap import PapermillNotebookClient
from papermill.log import logger

from gpurunbook.headless.saving import Ending, Notebook
from gpurunbook.headless.signals import Signals

GRACE_SECONDS = 5.0
"""How long an interrupted cell may take for its own clean-up before its kernel is killed."""

OUTPUT_SECONDS = 60
"""How long outputs may lag behind the end of their cell; nbclient's 4 s are too short for megabytes."""

OUTPUT_BYTES = 200 << 20
"""What the outputs of a run may come to. A cell that never stops writing would fill memory and disk, and a notebook
of more than 256 MB cannot be sealed."""

_TOO_LARGE = f"the outputs came to more than {OUTPUT_BYTES >> 20} MB; what came then is left out"

_OUTPUTS = frozenset({"stream", "display_data", "execute_result"})

_SOCKET_PATH = 90
"""Bytes of a socket path that are safe: Linux takes 107, macOS 103, and a suffix is added."""


class Client(PapermillNotebookClient):  # type: ignore[misc]
    """Sends the cells of a notebook to a kernel of this interpreter, over local sockets."""

    def __init__(
        self,
        nb_man: Notebook,
        signals: Signals,
        environment: Mapping[str, str],
        folder: Path | None,
        seconds: float | None,
        **traits: Any,
    ) -> None:
        super().__init__(nb_man, force_raise_errors=True, iopub_timeout=OUTPUT_SECONDS, **traits)
        self._signals = signals
        self._where = {"env": {**os.environ, **environment}, "cwd": None if folder is None else str(folder)}
        self._seconds = seconds
        self._written = 0

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        """As papermill, until the outputs come to more than a notebook can hold; what comes then is dropped."""
        if msg["msg_type"] in _OUTPUTS:
            self._written += len(json.dumps(msg["content"], default=str))
            if self._written > OUTPUT_BYTES:
                self._full.set()
                return None
        return super().process_message(msg, cell, cell_index)

    def run(self) -> Ending | None:
        """Runs all cells; gives why it ended early, or None. The kernel is gone afterwards."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self._run())
        with ThreadPoolExecutor(1) as thread:  # Called from a notebook or another event loop.
            return thread.submit(asyncio.run, self._run()).result()

    async def _run(self) -> Ending | None:
        loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._signals.wake = lambda: loop.call_soon_threadsafe(self._stop.set)
        self._stopping = loop.create_task(self._stop.wait())
        self._full = asyncio.Event()
        self._filling = loop.create_task(self._full.wait())
        if self._signals.seen:
            self._stop.set()
        self.reset_execution_trackers()
        folder = Path(tempfile.mkdtemp(prefix="gpurunbook-", dir=_short_folder()))
        try:
            return await self._started(folder) or await self._cells()
        finally:
            self._signals.wake = None
            self._stopping.cancel()
            self._filling.cancel()
            if self.km is not None:
                await self._async_cleanup_kernel()
            shutil.rmtree(folder, ignore_errors=True)

    async def _started(self, folder: Path) -> Ending | None:
        first = next((i for i, c in enumerate(self.nb.cells) if c.cell_type == "code"), 0)
        self.km = kernel(self.kernel_name, folder)
        starting = asyncio.ensure_future(self._start())
        await asyncio.wait({starting, self._stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting})
            self._signals.answered = True
            return self._ended("Interrupted", self._signals.reason + " before the first cell", first, show=True)
        wrong = starting.exception()
        if wrong is not None:
            return self._ended("KernelNotStarted", f"the kernel did not start: {_line(wrong)}", first, show=True)
        return None

    async def _start(self) -> None:
        await self.async_start_new_kernel(**self._where)
        await self.async_start_new_kernel_client()
        reply = await self.async_wait_for_reply(await ensure_async(self.kc.kernel_info()))
        self.nb.metadata["language_info"] = reply["content"]["language_info"]

    async def _cells(self) -> Ending | None:
        for index, cell in enumerate(self.nb.cells):
            try:
                self.nb_man.cell_start(cell, index)
                await self._cell(cell, index)
            except CellExecutionError as wrong:
                # papermill takes SystemExit(0) for success: an error of another name must stand beside it.
                left = wrong.ename == "SystemExit"
                told = any(o.output_type == "error" and o.ename != "SystemExit" for o in cell.outputs)
                reason = f"the cell called sys.exit({wrong.evalue})" if left else wrong.evalue
                return self._ended("NotebookLeft" if left else wrong.ename, reason, index, show=left and not told)
            except DeadKernelError:
                return self._ended("KernelDied", await self._death(), index, show=True)
            except _Ended as wrong:
                return self._ended(wrong.name, str(wrong), index, show=True)
            except OSError as wrong:
                reason = f"the notebook cannot be saved: {wrong.strerror}"
                return self._ended("NotebookNotSaved", reason, index, show=True)
            except Exception as wrong:
                return self._ended(type(wrong).__name__, _line(wrong), index, show=True)
            self.nb_man.cell_complete(cell, index)
        self.set_widgets_metadata()
        return None

    def _ended(self, name: str, reason: str, index: int, *, show: bool) -> Ending:
        ending = Ending(name, reason, index, str(self.nb.cells[index].get("id", "")))
        self.nb_man.fail(ending, show)
        self.nb_man.cell_complete(self.nb.cells[index], index)
        return ending

    async def _cell(self, cell: Any, index: int) -> None:
        if self._signals.seen:
            self._signals.answered = True
            raise _Ended("Interrupted", self._signals.reason)
        running = asyncio.ensure_future(self.async_execute_cell(cell, index))
        ends = {running, self._stopping, self._filling}
        await asyncio.wait(ends, timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            asked = self._stopping.done()
            await self._interrupt(running)
            if asked:
                self._signals.answered = True
                raise _Ended("Interrupted", self._signals.reason)
            if self._full.is_set():
                raise _Ended("OutputTooLarge", _TOO_LARGE)
            raise _Ended("CellTimeout", f"the cell took longer than {self._seconds:g} s and was interrupted")
        await running
        if self._full.is_set():
            raise _Ended("OutputTooLarge", _TOO_LARGE)

    async def _interrupt(self, running: asyncio.Future[Any]) -> None:
        """The cell gets KeyboardInterrupt and some seconds to end; its outputs are still collected."""
        print("stopping: the cell has a few seconds to end", file=sys.stderr)
        with contextlib.suppress(Exception):
            await ensure_async(self.km.interrupt_kernel())
        await asyncio.wait({running}, timeout=GRACE_SECONDS)
        if not running.done():
            with contextlib.suppress(Exception):
                await ensure_async(self.km.shutdown_kernel(now=True))
            running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    async def _death(self) -> str:
        code = await self.km.provisioner.poll() if self.km and self.km.provisioner else None
        if code is None:
            return "the kernel stopped answering while this cell ran"
        if code < 0:
            hint = " (out of memory?)" if code == -signal.SIGKILL else ""
            return f"the kernel was killed by {signal.Signals(-code).name}{hint} while this cell ran"
        return f"the kernel ended itself with exit code {code} while this cell ran"


class _Ended(Exception):
    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name


def kernel(name: str, folder: Path) -> Any:
    """Writes nothing. The manager of a kernel whose sockets and connection file lie in `folder`.

    `python3` is always this interpreter: a kernelspec of that name in the user's folder may be of another
    environment, and without one there is NoSuchKernel (nteract/papermill#251). Local sockets, because over TCP
    every local user could read and steer the kernel.
    """
    manager = AsyncKernelManager(kernel_name=name, connection_file=str(folder / "k.json"))
    if len(os.fsencode(folder)) < _SOCKET_PATH:
        manager.transport = "ipc"
    if name == NATIVE_KERNEL_NAME:
        manager._kernel_spec = KernelSpec(
            argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            display_name="Python 3",
            language="python",
        )
    return manager


def _short_folder() -> str | None:
    return None if len(os.fsencode(tempfile.gettempdir())) < _SOCKET_PATH - 25 else "/tmp"  # noqa: S108


def _line(wrong: BaseException) -> str:
    text = str(wrong).strip().split("\n", 1)[0]
    return text[:300] or type(wrong).__name__


def drive(
    notebook: Notebook,
    signals: Signals,
    *,
    kernel_name: str,
    environment: Mapping[str, str],
    folder: Path | None = None,
    cell_seconds: float | None = None,
    start_seconds: int = 60,
    **options: Any,
) -> Ending | None:
    """Runs the cells of a notebook in a new kernel and gives why it ended early, or None.

    folder: the kernel's working directory, by default that of this process; options: log_output, stdout_file,
    stderr_file of papermill. Raises OSError when the file cannot be replaced before the first cell.
    """
    notebook.notebook_start()
    client = Client(
        notebook,
        signals,
        environment,
        folder,
        cell_seconds,
        kernel_name=kernel_name,
        startup_timeout=start_seconds,
        log=logger,
        **options,
    )
    return client.run()
