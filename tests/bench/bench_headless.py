"""What a headless run costs over bare nbclient, notebook by notebook, and how quickly `gpurunbook --help` answers.

    python tests/bench/bench_headless.py [--pairs 5]

One driver process, imports paid before. Each pair executes the same notebook with the same parameters by nbclient,
by papermill and by `gpurunbook run`, in an order that turns; differences are medians over pairs, so that a busy
machine slows all. The seal is timed on a copy of the run folder. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HOME = Path(__file__).parents[2]
MADE_BY_SEAL = ("manifest.json", "verdict.json", "findings.json", "provenance_audit.html")


def timed(action: Callable[..., Any], *arguments: Any) -> tuple[Any, float, float]:
    """What a call gives, its wall seconds, and its CPU seconds with those of the processes that ended in it."""
    begin, used = time.perf_counter(), cpu()
    given = action(*arguments)
    return given, time.perf_counter() - begin, cpu() - used


def cpu() -> float:
    """CPU seconds of this process and of its children that have ended."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)


def nbclient_alone(name: str, values: dict[str, Any], out: Path) -> None:
    """The notebook in a kernel of its own, as nbclient does it; nothing is saved."""
    from nbclient import NotebookClient
    from papermill.iorw import load_notebook_node
    from papermill.parameterize import parameterize_notebook

    from gpurunbook.folder import workspace

    os.environ["GPURUNBOOK_RUN_DIR"] = str(workspace.new_run(name, home=HOME, out=out))
    nb = load_notebook_node(str(workspace.source(HOME, name)))
    with contextlib.suppress(Exception):  # A scenario that is rejected raises.
        NotebookClient(parameterize_notebook(nb, values), kernel_name="python3").execute()


def papermill_alone(name: str, values: dict[str, Any], out: Path) -> None:
    """The same by papermill's own engine, which saves and validates twice per cell."""
    import papermill

    from gpurunbook.folder import workspace

    run_dir = workspace.new_run(name, home=HOME, out=out)
    os.environ["GPURUNBOOK_RUN_DIR"] = str(run_dir)
    source, copy = workspace.source(HOME, name), workspace.notebook(run_dir)
    with contextlib.suppress(Exception):
        papermill.execute_notebook(str(source), str(copy), parameters=values, progress_bar=False)


def ours(name: str, values: dict[str, Any], out: Path) -> Path:
    """`gpurunbook run`; gives the run folder."""
    from gpurunbook.headless import execute

    os.environ.pop("GPURUNBOOK_RUN_DIR", None)
    return execute.run(name, values, home=HOME, out=out).run_dir


def seal_again(run_dir: Path, out: Path) -> tuple[float, float]:
    """Wall and CPU seconds of the seal alone, on a copy of the run as it was before its seal."""
    from gpurunbook.evidence.seal import seal

    copy = out / "copies" / run_dir.name
    shutil.copytree(run_dir, copy)
    for name in MADE_BY_SEAL:
        (copy / name).unlink(missing_ok=True)
    return timed(seal, copy)[1:]


def headless(pairs: int, runbooks: list[str]) -> None:
    """Prints two lines per main scenario of a runbook: wall and CPU seconds."""
    from gpurunbook.declared.runbooks import declared
    from gpurunbook.headless import batch, execute, fixture
    from gpurunbook.runbook import given

    execute.load()
    warnings.simplefilter("ignore")
    print(f"{pairs} pairs, medians in seconds")
    print(f"{'':28}{'':5}{'nbclient':>9}{'papermill':>10}{'run':>7}{'seal':>7}{'engine':>8}")
    for scenario in [s for s in batch.in_home(HOME, runbooks) if s.main]:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder)
            os.environ["GPURUNBOOK_CLUSTERS"] = str(out / "clusters")
            values = given.gather(declared(scenario.runbook), [scenario.file])
            values |= {"apply": False} if "apply" in values else {}  # a dry run can be repeated
            with silent_kernels():
                ours(scenario.runbook, values, out)  # starts the cluster
                rows = [turn_of(number, scenario.runbook, values, out) for number in range(pairs)]
            fixture.stop(out / "clusters")
        for at, kind in enumerate(("wall", "CPU")):
            name = f"{scenario.runbook}/{scenario.name}" if at == 0 else ""
            base, plain, run, seal = (statistics.median(r[key][at] for r in rows) for key in rows[0])
            engine = statistics.median(r["ours"][at] - r["seal"][at] - r["nbclient_alone"][at] for r in rows)
            print(f"{name:28}{kind:5}{base:9.2f}{plain:10.2f}{run:7.2f}{seal:7.2f}{engine:+8.2f}")
    print("engine: run less seal less nbclient; wanted at most 0.3, and a seal of at most 0.4")


@contextlib.contextmanager
def silent_kernels() -> Iterator[None]:
    """Kernels over TCP, as nbclient starts them, warn of that on standard error."""
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def turn_of(number: int, runbook: str, values: dict[str, Any], out: Path) -> dict[str, tuple[float, float]]:
    """One execution in each way, and one seal."""
    ways: list[Callable[[str, dict[str, Any], Path], Any]] = [nbclient_alone, papermill_alone, ours]
    row: dict[str, tuple[float, float]] = {}
    for way in ways[number % 3 :] + ways[: number % 3]:
        made, wall, used = timed(way, runbook, values, out)
        row[way.__name__] = (wall, used)
        if way is ours:
            row["seal"] = seal_again(made, out)
    return {key: row[key] for key in ("nbclient_alone", "papermill_alone", "ours", "seal")}


def help_time(pairs: int) -> None:
    """Prints how long `gpurunbook --help` takes, beside a Python that does nothing."""
    script = "import sys; from gpurunbook.cli import main; main(['--help'])"

    def process(code: str) -> None:
        subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=True)

    both = [(timed(process, script)[1:], timed(process, "pass")[1:]) for _ in range(pairs * 3)]
    for at, kind in enumerate(("wall", "CPU")):
        asked, bare = (statistics.median(pair[i][at] for pair in both) for i in (0, 1))
        print(f"gpurunbook --help {asked:.3f} s {kind}, python alone {bare:.3f} s; wanted under 0.2 s")


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--runbook", action="append", help="default: provenance_audit")
    chosen = parser.parse_args()
    os.chdir(HOME)
    help_time(chosen.pairs)
    headless(chosen.pairs, chosen.runbook or ["provenance_audit"])


if __name__ == "__main__":
    main()
