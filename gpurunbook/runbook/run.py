"""A run as a cell sees it: start, check, close.

Every gate is judged from the journal and a fresh read, never from the kernel's memory, so that it holds in any
order of clicking, after a kernel restart, and from another process.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

import gpurunbook
from gpurunbook.declared.book import Runbook
from gpurunbook.errors import (
    ClusterError,
    Denied,
    Drifted,
    GateError,
    OutOfOrder,
    ParameterError,
    Raced,
    RunbookError,
    Stopped,
)
from gpurunbook.findings import Finding, Status, Verdict, worst
from gpurunbook.journal import Journal, State, digest, replay
from gpurunbook.plan import Check, Judgement
from gpurunbook.runbook import display, keep, parameters, permissions, telling, workspace
from gpurunbook.runbook.observe import Observer
from gpurunbook.runbook.redact import redact
from gpurunbook.runbook.scraps import CLOSING, scrap
from gpurunbook.runbook.steps import declared
from gpurunbook.sources.cluster import Cluster, connect


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
    return open_run(book, values)


def _shell() -> Any:
    from IPython import get_ipython

    shell = get_ipython()
    if shell is None:
        raise GateError(
            "this is no notebook kernel", subject="gpurunbook.start", remedy="Use `gpurunbook run RUNBOOK`."
        )
    return shell


def open_run(book: Runbook, values: Mapping[str, Any]) -> Run:
    """Opens or resumes a run, as `start` does, for parameters that were collected already."""
    chosen = parameters.load(book, values)
    folder, home = workspace.locate(book.name, str(getattr(chosen, "run_id", "")))
    keep.hold(folder / "lock")
    run = Run(book, chosen, folder, home)
    run._begin()
    return run


class Run:
    """One run of one runbook, in one folder."""

    def __init__(
        self,
        book: Runbook,
        chosen: msgspec.Struct,
        folder: Path,
        home: Path,
        clock: Callable[[], datetime] = now,
    ) -> None:
        self.book = book
        self.parameters: Any = chosen
        self.folder = folder
        self.home = home
        self._clock = clock
        self._journal = Journal.open(folder / "journal.jsonl", clock)
        self._cluster: Cluster | None = None

    @property
    def id(self) -> str:
        """Writes nothing. The run id, which is the folder's name."""
        return self.folder.name

    @property
    def state(self) -> State:
        """Writes nothing. What the journal says now."""
        return replay(self._journal.records)

    # -- start ---------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        given = msgspec.to_builtins(self.parameters)
        process = {"host": socket.gethostname(), "pid": os.getpid()}
        state = self.state
        if state.start:
            self._same_run(state, redact(given))
            self._journal.append("resume", {"process": process})
        else:
            self._journal.append(
                "start",
                {
                    "run": self.id,
                    "runbook": self.book.name,
                    "parameters": redact(given),
                    "package": {"version": version("gpurunbook"), "digest": package_digest()},
                    "source": _file_digest(self.home / "runbooks" / f"{self.book.name}.ipynb"),
                    "process": process,
                },
            )
        with self._closing_on_error("start"):
            self._identify(state)
        telling.opened(self.state, self.book, resumed=bool(state.start))

    def _same_run(self, state: State, given: Mapping[str, Any]) -> None:
        if state.runbook != self.book.name:
            raise ParameterError(
                f"this run is of {state.runbook}, not of {self.book.name}",
                subject=self.id,
                remedy=f"Start one with `gpurunbook new {self.book.name}`.",
            )
        before = {**state.start["parameters"], "run_id": ""}
        changed = sorted(k for k, v in {**given, "run_id": ""}.items() if before.get(k) != v)
        if changed:
            raise ParameterError(
                "a run keeps the parameters that it was started with; changed: "
                + ", ".join(f"{k} was {before.get(k)!r}, is {given[k]!r}" for k in changed),
                subject=self.id,
                remedy=f"Put them back, or start another run with `gpurunbook new {self.book.name}`.",
            )

    def _identify(self, before: State) -> None:
        reasons: list[str] = []
        cluster: dict[str, Any] = {"name": self.parameters.cluster, "uid": None, "version": None}
        operator = ""
        if getattr(self.parameters, "pod_json", ""):
            reasons.append("captured file instead of a live cluster")
        else:
            identity = self.cluster.identify()
            cluster = {"name": self.parameters.cluster, "uid": identity.uid, "version": identity.version}
            operator = identity.operator
            reasons += identity.rehearsal
        expected = self.parameters.expect_cluster
        seen = before.start.get("cluster", {}).get("uid")
        self._journal.append(
            "cluster",
            {
                "cluster": cluster,
                "operator": {"name": operator},
                "rehearsal": bool(reasons),
                "rehearsal_reasons": reasons,
            },
        )
        for wanted, why in ((expected, "parameter expect_cluster"), (seen, "the start of this run")):
            if wanted and wanted != cluster["uid"]:
                raise Drifted(
                    f"namespace kube-system has uid {cluster['uid']}, wanted {wanted} ({why})",
                    subject=f"cluster {self.parameters.cluster or 'of the current context'}",
                    remedy="Nothing else was read. Check the kubeconfig context.",
                    code="wrong-cluster",
                )
        if self._cluster is not None:
            self._permitted()

    def _permitted(self) -> None:
        wanted = permissions.needed(self.book, self.parameters)
        missing = self.cluster.missing(wanted)
        if missing:
            names = ", ".join(map(permissions.spell, missing))
            raise Denied(
                f"{self.state.start['operator']['name'] or 'the operator'} may not: {names}",
                subject="permissions",
                remedy="Apply this Role, or ask for it:\n" + permissions.role(self.book.name, missing),
                code="permission-missing",
            )

    @property
    def cluster(self) -> Cluster:
        """Writes nothing. The cluster of this run, connected on first use."""
        if self._cluster is None:
            self._cluster = connect(self.parameters.cluster, home=self.home, clusters=workspace.clusters(self.folder))
        return self._cluster

    # -- check ---------------------------------------------------------------------------------------------------

    def check(self, step: str, check: Check) -> None:
        """Observes, judges, records and shows one step; closes the run and raises Stopped unless it is good.

        check: an unevaluated check. Raises TypeError for anything else: what is judged is fresh. Raises OutOfOrder
        when a step that it needs has not passed.
        """
        if not isinstance(check, Check):
            raise TypeError(
                f"run.check({step!r}, …) takes an unevaluated check such as rb.supply.provenance(…), "
                f"not a {type(check).__name__}: what is judged must be fresh."
            )
        self._enter(step)
        with self._closing_on_error(step):
            judgement = self._judge(step, check)
        self._conclude(step, check, judgement)

    def _enter(self, step: str) -> None:
        self._journal.refresh()
        state = self.state
        declared_step = self.book.step(step)
        if declared_step is None:
            known = ", ".join(s.id for s in self.book.steps)
            raise OutOfOrder(
                f"{self.book.name} declares no such step", subject=f"step {step!r}", remedy=f"It has: {known}."
            )
        absent = [need for need in declared_step.needs if not state.passed(need)]
        if absent:
            raise OutOfOrder(
                f"it needs {', '.join(absent)}, which {'has' if len(absent) == 1 else 'have'} not passed in this run",
                subject=f"step {step!r}",
                remedy=f"Run the cell {absent[0]!r} first.",
            )
        head = self._journal.head
        if state.closing is not None:
            head = self._journal.append("reopen", {"step": step}, expect=head)["hash"]
        self._journal.append("step", {"step": step}, expect=head)

    def _judge(self, step: str, check: Check) -> Judgement:
        files = {name: data.get("files", {}) for name, data in self.state.steps.items()}
        observer = Observer(self.folder, self.home, lambda: self.cluster, self._clock, files)
        seen = observer(check.needs)
        if check.follow is not None:
            seen.update(observer(check.follow(seen)))
        judgement = check.judge(seen)
        kept = dict(observer.inputs)
        for name, data in judgement.files.items():
            keep.write(self.folder / "after" / name, data)
            kept[f"after/{name}"] = digest(data)
        status = worst(judgement.findings)
        self._journal.append(
            "judged",
            {
                "step": step,
                "title": check.title,
                "status": status,
                "passed": status in (Status.PASS, Status.WARN),
                "findings": [redact(f.as_json()) for f in judgement.findings],
                "files": kept,
                "facts": redact(dict(judgement.facts)),
            },
        )
        return judgement

    def _conclude(self, step: str, check: Check, judgement: Judgement) -> None:
        judged = self.state.steps[step]
        scrap(f"gpurunbook.step.{step}", {k: judged[k] for k in ("status", "passed", "facts")}, replace=True)
        telling.judged(check.title, judgement.findings, judgement.views, Status(judged["status"]), step)
        if judged["passed"]:
            telling.gate(self.state, self.book, step)
            return
        leading = _leading(judgement.findings)
        verdict = Verdict.UNKNOWN if worst(judgement.findings) is Status.UNKNOWN else check.against
        self._close(verdict, leading.code, step, leading.message, leading.remedy)
        raise Stopped(
            leading.message,
            subject=leading.subject,
            remedy=f"{leading.remedy} {self._again()}".strip(),
            code=leading.code,
        )

    # -- close ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Writes the closing record and scrap. Raises OutOfOrder while a declared step has not passed."""
        self._journal.refresh()
        state = self.state
        absent = [s.id for s in self.book.steps if not state.passed(s.id)]
        if absent:
            raise OutOfOrder(
                f"{', '.join(absent)} {'has' if len(absent) == 1 else 'have'} not passed in this run",
                subject="close",
                remedy=f"Run the cell {absent[0]!r} first.",
            )
        self._close(Verdict.PASS, "all-steps-passed", "close", "Every step passed.", self._seal_line())

    def _close(self, verdict: Verdict, code: str, step: str, message: str, next_: str) -> None:
        record = self._journal.append(
            "close",
            redact(
                {
                    "verdict": verdict,
                    "code": code,
                    "step": step,
                    "message": message,
                    "next": next_,
                    "left_behind": [],
                }
            ),
        )
        state = self.state
        scrap(
            CLOSING,
            {
                "run": self.id,
                "runbook": self.book.name,
                "verdict": verdict,
                "code": code,
                "step": step,
                "head": record["hash"],
                "rehearsal": bool(state.start.get("rehearsal", True)),
            },
        )
        telling.closed(state)

    @contextlib.contextmanager
    def _closing_on_error(self, step: str) -> Iterator[None]:
        try:
            yield
        except Raced:
            raise
        except (Exception, KeyboardInterrupt) as wrong:
            self._journal.refresh()
            code, verdict = _crash(wrong)
            message = str(wrong) or type(wrong).__name__
            if isinstance(wrong, RunbookError):
                message = f"{wrong.subject}: {wrong.message}" if wrong.subject else wrong.message
            self._close(verdict, code, step, message, getattr(wrong, "remedy", "") or self._again())
            raise

    def _again(self) -> str:
        return f"Then run the cell again, or `gpurunbook run {self.book.name} --run-id {self.id}`."

    def _seal_line(self) -> str:
        return f"`gpurunbook seal {self.folder}` makes the evidence once the notebook is saved."


def _crash(wrong: BaseException) -> tuple[str, Verdict]:
    if isinstance(wrong, KeyboardInterrupt):
        return "interrupted", Verdict.UNKNOWN
    if isinstance(wrong, GateError):
        return wrong.code, Verdict.BLOCKED
    if isinstance(wrong, ClusterError) and wrong.code == "permission-missing":
        return wrong.code, Verdict.BLOCKED
    return (wrong.code if isinstance(wrong, RunbookError) else "internal-error"), Verdict.UNKNOWN


def _leading(findings: tuple[Finding, ...]) -> Finding:
    """The finding that names the stop: the first of the gravest status."""
    gravest = worst(findings)
    for finding in findings:
        if finding.status is gravest:
            return finding
    return Finding("run", "", Status.UNKNOWN, "no-finding", "the check concluded nothing", "This is a defect.")


def _file_digest(path: Path) -> str | None:
    try:
        return digest(path.read_bytes())
    except OSError:
        return None


def package_digest() -> str:
    """Writes nothing. One digest over the package's own source files, by relative path."""
    root = Path(gpurunbook.__file__).parent
    total = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        total.update(f"{path.relative_to(root)} {digest(path.read_bytes())}\n".encode())
    return "sha256:" + total.hexdigest()


__all__ = ["Run", "open_run", "start"]
