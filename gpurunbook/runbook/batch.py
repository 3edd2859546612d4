"""Running many scenarios at once, each in a process of its own, and comparing each with its expectation."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import multiprocessing
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from gpurunbook.errors import RunbookError
from gpurunbook.runbook import execute, given
from gpurunbook.runbook.execute import Outcome
from gpurunbook.runbook.expectation import Scenario, differences
from gpurunbook.runbook.steps import declared

CELL_SECONDS = 600.0
"""A cell of a scenario that takes longer is interrupted: a batch must end."""

STOP_SECONDS = 5.0


@dataclass(frozen=True)
class Result:
    """Of one scenario. differences: how it is not as expected; trouble: why it could not be run."""

    scenario: Scenario
    outcome: Outcome | None
    differences: tuple[str, ...] = ()
    trouble: str = ""

    @property
    def exit(self) -> int:
        """Writes nothing. 0 as expected, 1 not as expected, 2 could not be run."""
        return 2 if self.trouble else 1 if self.differences else 0

    def as_json(self) -> dict[str, Any]:
        """Writes nothing."""
        seen = self.outcome.seen if self.outcome else None
        return {
            "runbook": self.scenario.runbook,
            "scenario": self.scenario.name,
            "run": self.outcome.run_dir.name if self.outcome else None,
            "held": self.exit == 0,
            "expected": self.scenario.expected.verdict,
            "seen": seen.as_json() if seen else None,
            "evidence": self.outcome.evidence if self.outcome else None,
            "seconds": round(self.outcome.seconds, 3) if self.outcome else None,
            "differences": list(self.differences),
            "trouble": self.trouble,
        }


@dataclass
class _Worker:
    scenario: Scenario
    process: Any
    answer: connection.Connection
    words: IO[bytes]
    clusters: Path


def run_all(
    scenarios: Sequence[Scenario],
    *,
    home: Path,
    out: Path,
    jobs: int = 0,
    cell_seconds: float = CELL_SECONDS,
    done: Callable[[Result], None] = lambda _: None,
) -> list[Result]:
    """Runs each scenario in a forked process, at most `jobs` at once (0: one per processor).

    Each has a cluster state of its own under `<out>/.clusters/`, whose servers are asked to end afterwards. SIGTERM
    and SIGINT end the running ones in order; those not yet run are in trouble. Results in the order of the scenarios.
    """
    execute.load()
    from gpurunbook.runbook.drive import Signals

    clusters = out.resolve() / ".clusters" / f"batch-{secrets.token_hex(4)}"
    waiting = list(reversed(scenarios))
    running: list[_Worker] = []
    results: dict[Path, Result] = {}
    with Signals() as signals:
        while waiting or running:
            if signals.seen and not signals.answered:
                signals.answered = True
                for worker in running:
                    worker.process.terminate()
            while waiting and len(running) < (jobs or os.cpu_count() or 1):
                scenario = waiting.pop()
                if signals.answered:
                    results[scenario.file] = Result(scenario, None, trouble=f"not run: {signals.reason}")
                    continue
                running.append(
                    _begin(scenario, home, out, clusters / f"{scenario.runbook}-{scenario.name}", cell_seconds)
                )
            ready = set(connection.wait([worker.answer for worker in running], timeout=0.2))
            for worker in [w for w in running if w.answer in ready]:
                running.remove(worker)
                result = _end(worker)
                results[worker.scenario.file] = result
                done(result)
    with contextlib.suppress(OSError):
        clusters.rmdir()
    return [results[scenario.file] for scenario in scenarios]


def _begin(scenario: Scenario, home: Path, out: Path, clusters: Path, cell_seconds: float) -> _Worker:
    fork = multiprocessing.get_context("fork")  # papermill's imports (1 to 2 s) are there already
    ours, theirs = fork.Pipe(duplex=False)
    words = tempfile.TemporaryFile()  # noqa: SIM115
    process = fork.Process(target=_work, args=(scenario, home, out, clusters, cell_seconds, theirs, words))
    process.start()
    theirs.close()
    return _Worker(scenario, process, ours, words, clusters)


def _work(
    scenario: Scenario,
    home: Path,
    out: Path,
    clusters: Path,
    cell_seconds: float,
    answer: connection.Connection,
    words: IO[bytes],
) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    sys.stdout.flush()
    for descriptor in (1, 2):
        os.dup2(words.fileno(), descriptor)
    os.environ["GPURUNBOOK_CLUSTERS"] = str(clusters)
    os.environ.pop("GPURUNBOOK_RUN_DIR", None)
    try:
        values = given.gather(declared(scenario.runbook), [scenario.file])
        answer.send(
            execute.run(scenario.runbook, values, home=home, out=out, scenario=scenario.name, cell_seconds=cell_seconds)
        )
    except RunbookError as wrong:
        answer.send(f"{wrong.code}: {wrong}")


def _end(worker: _Worker) -> Result:
    try:
        told = worker.answer.recv()
    except EOFError:  # It ended without a word.
        told = None
    worker.process.join()
    worker.answer.close()
    stop_servers(worker.clusters)
    with worker.words as words:
        words.seek(0)
        tail = words.read()[-2000:].decode(errors="replace").strip()
    if isinstance(told, Outcome):
        expected = worker.scenario.expected
        missed = () if told.seen is None else tuple(differences(expected, told.seen))
        trouble = told.message if told.seen is None else ""
        if told.evidence != expected.evidence:
            missed = (
                *missed,
                f"evidence: expected {expected.evidence!r}, seen {told.evidence!r} {told.unsealed}".strip(),
            )
        result = Result(worker.scenario, told, missed, trouble)
    else:
        code = worker.process.exitcode
        result = Result(worker.scenario, None, trouble=told or f"its process ended with {code}: {tail}")
    if result.exit == 0:
        shutil.rmtree(worker.clusters, ignore_errors=True)
    return result


def stop_servers(clusters: Path) -> None:
    """Asks the embedded servers whose state lies in the folder to end, and waits for them a few seconds."""
    for path in sorted(clusters.glob("*/server.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
            server = json.loads(path.read_bytes())
            where = http.client.HTTPConnection(urlsplit(server["url"]).netloc, timeout=STOP_SECONDS)
            where.request("POST", "/_gpurunbook/stop", headers={"Authorization": f"Bearer {server['token']}"})
            where.getresponse().read()
            where.close()
            _gone(path.parent / "lock")


def _gone(lock: Path) -> None:
    end = time.monotonic() + STOP_SECONDS
    with lock.open("rb") as file:
        while time.monotonic() < end:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return
            time.sleep(0.01)


def in_home(home: Path, runbooks: Sequence[str] = ()) -> list[Scenario]:
    """Writes nothing. The scenarios of the named runbooks, else of every notebook in `runbooks/`.

    Raises InputError or ParameterError for a notebook that is not declared, or that has no good expectations.
    """
    from gpurunbook.runbook.expectation import scenarios

    names = list(runbooks) or sorted(path.stem for path in (home / "runbooks").glob("*.ipynb"))
    return [scenario for name in names for scenario in scenarios(home, declared(name).name)]
