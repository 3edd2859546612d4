"""Running the cells of a working copy in a real Jupyter kernel, which may be killed while a cell runs."""

from __future__ import annotations

import os
import queue
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cells import Copy
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager
from stage import BOOK, SECONDS, Place, eventually, parameters

KILLED = -9


def run(
    place: Place,
    name: str,
    values: Mapping[str, Any],
    until: Callable[[], bool] = lambda: False,
    record: int | None = None,
) -> int:
    """0, 1 when a cell failed, or KILLED: once `until` is true, or right before the kernel appends that record."""
    folder = place.new(name)
    environment = {**os.environ, **place.environment}
    if record is not None:
        _startup(place, folder, record)
    with tempfile.TemporaryDirectory(dir="/tmp") as sockets:
        manager = KernelManager(kernel_name="python3", transport="ipc", connection_file=f"{sockets}/k.json")
        manager._kernel_spec = KernelSpec(
            argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            display_name="Python 3",
            language="python",
        )
        with open(f"{folder}.log", "ab") as log:
            manager.start_kernel(cwd=str(folder), env=environment, stdout=log, stderr=log)
        client = manager.client()
        try:
            client.start_channels()
            client.wait_for_ready(timeout=SECONDS)
            return _cells(manager, client, folder, parameters(**values), until)
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
            manager.cleanup_resources()


def _startup(place: Place, folder: Path, record: int) -> None:
    """What the kernel runs before the first cell: arms its end as `cells` does for a plain process."""
    script = Path(place.environment["IPYTHONDIR"], "profile_default", "startup", "end.py")
    script.parent.mkdir(parents=True)
    here, journal = str(Path(__file__).parent), str(folder.resolve() / "journal.jsonl")
    lines = ["import sys, pathlib", f"sys.path.insert(0, {here!r})", "import cells"]
    script.write_text("\n".join([*lines, f"cells.signal_before({record}, pathlib.Path({journal!r}), 9)", ""]))


def _cells(manager: Any, client: Any, folder: Path, values: Mapping[str, Any], until: Callable[[], bool]) -> int:
    copy = Copy(folder / f"{BOOK}.ipynb")
    copy.inject(values)
    for source in copy.cells():
        asked = client.execute(source)
        while True:
            if until():
                os.kill(manager.provisioner.pid, signal.SIGKILL)
                eventually(lambda: not manager.is_alive(), "the kernel is dead")
                return KILLED
            try:
                message = client.get_iopub_msg(timeout=0.02)
            except queue.Empty:
                if not manager.is_alive():
                    return KILLED
                continue
            if message["parent_header"].get("msg_id") == asked and _told(copy, message):
                break
        if client.get_shell_msg(timeout=SECONDS)["content"]["status"] != "ok":
            copy.save()
            return 1
    return 0


def _told(copy: Copy, message: Mapping[str, Any]) -> bool:
    """Puts what the kernel tells into the cell. Whether the cell is over."""
    content: Any = message["content"]
    match message["msg_type"]:
        case "display_data" | "update_display_data" as kind:
            named = content["transient"].get("display_id", "")
            copy.show(content["data"], content["metadata"], named, update=kind == "update_display_data")
        case "error":
            copy.fail(content["ename"], content["evalue"], content["traceback"])
        case "stream":
            copy.say(content["text"])
        case "status":
            return bool(content["execution_state"] == "idle")
    return False
