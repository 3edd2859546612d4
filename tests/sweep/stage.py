"""Places where runs can be killed: a home with its runs, a cluster of its own, and processes that start fast.

All processes are forked from one that has imported everything (multiprocessing's fork server): a run begins within a
tenth of a second, and is still a process of its own, with its own locks, that a real SIGKILL ends.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import cells

from gpurunbook.declared.runbooks import declared, defaults
from gpurunbook.embedded import __main__ as starter
from gpurunbook.folder import workspace
from tests.cluster import embedded_server

ROOT = Path(__file__).parents[2]
FIXTURE = ROOT / "parameters" / "clusters" / "cordon-tolerated"
BOOK = "node_cordon"
NODE = "gpu-0001"
SECONDS = 300.0

_KEPT = ("seed.json", "objects.log", "tokens.json")

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(
    [
        "pytest",
        "IPython.core.interactiveshell",
        "gpurunbook.runbook.start",
        "gpurunbook.sources.watch",
        "gpurunbook.declared.node_cordon",
        "kubernetes.client.api_client",
        "kubernetes.config",
        "gpurunbook.embedded.__main__",
        "gpurunbook.embedded.process",
    ]
)


def eventually(test: Callable[[], Any], what: str, seconds: float = SECONDS) -> Any:
    """The first true value."""
    end = time.monotonic() + seconds
    while not (found := test()):
        assert time.monotonic() < end, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.003)
    return found


def ended(process: BaseProcess) -> int:
    """The exit code of a process that ends by itself or was killed."""
    process.join(SECONDS)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise AssertionError(f"a process did not end within {SECONDS:.0f} s")
    return process.exitcode


def _serve(state: str) -> None:
    sys.exit(starter.main(["--state", state, "--idle", "600"]))


class Place:
    """One home and one cluster, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.out = self.home / "outputs"
        self.state = folder / "state"
        self._server: embedded_server.Embedded | None = None

    @classmethod
    def made(cls, folder: Path) -> Place:
        """A new one, its cluster as the fixture has it."""
        place = cls(folder)
        place._furnish()
        place._server = embedded_server.start(place.state, FIXTURE, idle=600)
        return place

    def _furnish(self) -> None:
        self.state.mkdir(parents=True)
        (self.home / "parameters").mkdir(parents=True)
        (self.home / "runbooks").mkdir()
        shutil.copy(ROOT / "runbooks" / f"{BOOK}.ipynb", self.home / "runbooks")
        self.out.mkdir()

    def copy(self, folder: Path, *, runs: bool = True) -> Place:
        """The same cluster once more, under a server of its own; without runs it is another person's laptop.

        Only while nothing is being written to this one.
        """
        place = Place(folder)
        place._furnish()
        for name in _KEPT:
            if (self.state / name).exists():
                shutil.copy(self.state / name, place.state)
        if runs:
            shutil.copytree(self.out, place.out, dirs_exist_ok=True)
        return place

    @property
    def server(self) -> embedded_server.Embedded:
        """The cluster's server, started on first use."""
        if self._server is None:
            process = _forks.Process(target=_serve, args=(str(self.state),))
            process.start()
            assert ended(process) == 0, (self.state / "server.log").read_text()
            self._server = embedded_server.Embedded(self.state, json.loads((self.state / "server.json").read_text()))
        return self._server

    def stop(self) -> None:
        """Ends the server and waits for that."""
        if self._server is not None or (self.state / "server.json").exists():
            self._server = None
            embedded_server.stop(self.state)

    @property
    def admin(self) -> Any:
        """A client of the cluster's administrator, whose requests are told from those of runs by the user."""
        return self.server.client()

    @property
    def kubeconfig(self) -> Path:
        """The operator's, once the server runs."""
        return Path(self.server.info["kubeconfig"])

    @property
    def environment(self) -> dict[str, str]:
        """What a kernel of this place has set."""
        return {
            "GPURUNBOOK_HOME": str(self.home),
            "GPURUNBOOK_OUT": str(self.out),
            "IPYTHONDIR": str(self.folder / "ipython"),
            "KUBECONFIG": str(self.kubeconfig),
        }

    def new(self, name: str) -> Path:
        """A run's folder with its working copy."""
        if not (self.out / name).exists():
            workspace.new_run(BOOK, home=self.home, out=self.out, run_id=name)
        return self.out / name

    def begin(self, name: str, values: Mapping[str, Any], **how: Any) -> BaseProcess:
        """A process that runs the cells of the run `name`, new or known; how: as `cells.execute` takes it."""
        folder = str(self.new(name))
        given = parameters(**values)
        process = _forks.Process(target=cells.execute, args=(folder, given, self.environment), kwargs=how)
        process.start()
        return process

    def run(self, name: str, values: Mapping[str, Any], **how: Any) -> int:
        """The exit code of such a process."""
        return ended(self.begin(name, values, **how))

    def planned(self, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of the apply, by a dry run of this name."""
        assert self.run(name, values) == 0, self.said(name)
        given = json.loads(json.dumps(dict(values)))
        plan = closing(self.out / name)["plan"]
        uid = self.admin.call("GET", "/api/v1/namespaces/kube-system")["metadata"]["uid"]
        return {**given, "apply": True, "plan": plan, "expect_cluster": uid}

    def said(self, name: str) -> str:
        """How a run ended, for messages."""
        log = Path(f"{self.out / name}.log")
        return f"{closing(self.out / name)} {log.read_text()[-2000:] if log.exists() else ''}"


def parameters(**values: Any) -> dict[str, Any]:
    """What is given to every run besides; a cordon that stands need not be watched for long here."""
    usual = {"change_id": "CHG-7", "reason": "a fan is broken", "node": NODE, "wait_seconds": 120, "hold_seconds": 0}
    known = defaults(declared(BOOK))
    return {name: value for name, value in usual.items() if name in known} | values


def closing(folder: Path) -> dict[str, Any]:
    """The closing record's data; {} for a run that is not closed."""
    from gpurunbook.journal import read, replay

    found = replay(read(folder / "journal.jsonl")).closing
    return dict(found["data"]) if found else {}


def stopped(process: BaseProcess) -> bool:
    """Whether it has stopped itself."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def resume(process: BaseProcess) -> None:
    """Lets a process go on that had stopped itself."""
    assert process.pid is not None
    os.kill(process.pid, signal.SIGCONT)


def let_go(process: BaseProcess) -> int:
    """The exit code of a process that had stopped itself and goes on."""
    resume(process)
    return ended(process)


def kill(process: BaseProcess) -> None:
    """SIGKILL, and the end of the process."""
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
