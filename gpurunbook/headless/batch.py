"""Running many scenarios at once, each in a process of its own, and comparing each with its expectation."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import IO, Any

from gpurunbook.declared.runbooks import declared
from gpurunbook.errors import InputError, RunbookError
from gpurunbook.headless import execute, fixture
from gpurunbook.headless.chain import Chain, Link
from gpurunbook.headless.execute import Outcome
from gpurunbook.headless.expectation import FILE, Scenario

CELL_SECONDS = 600.0
"""A cell of a scenario that takes longer is interrupted: a batch must end."""


@dataclass(frozen=True)
class Result:
    """Of one scenario. links: its runs, the one that counts last; trouble: why it could not be run."""

    scenario: Scenario
    links: tuple[Link, ...] = ()
    trouble: str = ""

    @property
    def outcome(self) -> Outcome | None:
        """Writes nothing. What the last run came to."""
        return self.links[-1].outcome if self.links else None

    @property
    def differences(self) -> tuple[str, ...]:
        """Writes nothing. How its runs are not as expected."""
        return tuple(line for link in self.links for line in link.missed)

    @property
    def seconds(self) -> float:
        """Writes nothing. What its runs took together, by the wall clock."""
        return sum(link.outcome.seconds for link in self.links)

    @property
    def exit(self) -> int:
        """Writes nothing. 0 as expected, 1 not as expected, 2 could not be run."""
        return 2 if self.trouble or not self.links else 1 if self.differences else 0

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
            "seconds": round(self.seconds, 3) if self.outcome else None,
            "chain": [link.as_json() for link in self.links],
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
    from gpurunbook.headless.signals import Signals

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
                    results[scenario.file] = Result(scenario, trouble=f"not run: {signals.reason}")
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
        answer.send(Chain(scenario, home=home, out=out, clusters=clusters, cell_seconds=cell_seconds).run())
    except RunbookError as wrong:
        answer.send(f"{wrong.code}: {wrong}")


def _end(worker: _Worker) -> Result:
    try:
        told = worker.answer.recv()
    except EOFError:  # It ended without a word.
        told = None
    worker.process.join()
    worker.answer.close()
    fixture.stop(worker.clusters)
    with worker.words as words:
        words.seek(0)
        tail = words.read()[-2000:].decode(errors="replace").strip()
    if isinstance(told, list):
        result = Result(worker.scenario, tuple(told), next((link.trouble for link in told if link.trouble), ""))
    else:
        code = worker.process.exitcode
        result = Result(worker.scenario, trouble=told or f"its process ended with {code}: {tail}")
    if result.exit == 0:
        shutil.rmtree(worker.clusters, ignore_errors=True)
    return result


def in_home(home: Path, runbooks: Sequence[str] = ()) -> list[Scenario]:
    """Writes nothing. The scenarios of the named runbooks, else of every notebook in `runbooks/`.

    Raises InputError or ParameterError for a notebook that is not declared, or that has no good expectations, and for
    expectations without their notebook: what is left out must not look like a pass.
    """
    from gpurunbook.headless.expectation import scenarios

    notebooks = {path.stem for path in (home / "runbooks").glob("*.ipynb")}
    expected = {path.parent.name for path in (home / "parameters").glob(f"*/{FILE}")}
    absent = sorted(expected - notebooks)
    if absent and not runbooks:
        raise InputError(
            f"there are expectations and no notebook for: {', '.join(absent)}",
            subject=str(home / "runbooks"),
            remedy="Put the notebook there, or take the expectations away.",
        )
    names = list(runbooks) or sorted(notebooks)
    return [scenario for name in names for scenario in scenarios(home, declared(name).name)]
