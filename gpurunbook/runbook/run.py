"""A run as a cell sees it: check, change, wait, close."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

import gpurunbook
from gpurunbook.declared.book import Runbook
from gpurunbook.errors import InputError, OutOfOrder, ParameterError, RunbookError, RunBound
from gpurunbook.findings import EXIT, Finding, Status, Verdict, worst
from gpurunbook.folder import parameters, workspace
from gpurunbook.journal import Record, State, digest
from gpurunbook.plan import Approved, Change, Check, Need, Observed, Progress, Wait
from gpurunbook.runbook import authority, changing, identity, lease, left, plans, waiting
from gpurunbook.runbook.guard import Guard
from gpurunbook.runbook.ledger import Ledger
from gpurunbook.runbook.site import Site, load
from gpurunbook.shown import display
from gpurunbook.shown.redact import redact
from gpurunbook.sources.cluster import Cluster, connect
from gpurunbook.sources.door import Door


class Run(Ledger):
    """One run. What a judgement needs is taken from the parameters of `run.parameters`, never from the notebook."""

    def __init__(
        self, book: Runbook, chosen: msgspec.Struct, folder: Path, home: Path, clock: Callable[[], datetime]
    ) -> None:
        super().__init__(book, chosen, folder, home, clock)
        self._cluster: Cluster | None = None
        self._site: Site | None = None
        self.unshown: set[str] = set()
        self._guard = Guard(self, lambda: self._door, lambda: lease.demand(self, self.site.lease_namespace))

    @property
    def cluster(self) -> Cluster:
        """Writes nothing. The cluster of this run, connected on first use: the one that a parameter names, else the one
        where it started, as long as the kubeconfig still has that, else the one of the current context."""
        if self._cluster is None:
            before = (self.state.start.get("cluster") or {}).get("name")
            if before and not self.parameters.cluster:
                with contextlib.suppress(InputError):
                    self._cluster = connect(before)
                    return self._cluster
            self._cluster = connect(self.parameters.cluster, home=self.home, clusters=workspace.clusters(self.folder))
        return self._cluster

    def check(self, step: str, check: Check) -> None:
        """Observes, judges, records and shows one step; closes the run and raises Stopped unless it is good.

        check: an unevaluated check. Raises TypeError for anything else: what is judged is fresh. Raises OutOfOrder
        when a step that it needs has not passed.
        """
        _unevaluated(check, Check, f"run.check({step!r}, …)", "rb.supply.provenance(…)")
        self.enter(step)
        with self.closing_on_error(step):
            seen, inputs = self.observe(check.needs, check.follow)
            judgement = check.judge(seen)
            files = inputs | self.keep_files(judgement.files, "after")
            self.judged(
                step,
                check.title,
                judgement.findings,
                views=judgement.views,
                facts=judgement.facts,
                files=files,
                against=check.against,
            )

    def change(self, step: str, change: Change) -> None:
        """Changes what the step plans, through the door; with `apply` False only proves that it could.

        Raises as `check`, and GateError when the apply is not authorised or the plan is not the one of the dry run.
        """
        _unevaluated(change, Change, f"run.change({step!r}, …)", "rb.nodes.cordon(…)")
        self.enter(step)
        with self.closing_on_error(step):
            plan = authority.plan(self, self.cluster.uid) if self.parameters.apply else None
            door = self._door if plan is None else self._permitted(plan)
            if plan is None or not changing.finished(self, door, step, plan):
                lease.take(self, door, self.site.lease_namespace)
            changing.perform(self, door, step, change, plan)

    def wait(self, step: str, wait: Wait) -> None:
        """Follows the cluster until the wait is done; writes only what must be made again. A dry run does not wait.

        Raises as `check`, and DeadlineError when the time is up; running the cell again goes on waiting.
        """
        _unevaluated(wait, Wait, f"run.wait({step!r}, …)", "rb.nodes.settled(…)")
        self.enter(step)
        with self.closing_on_error(step):
            if not self.parameters.apply:
                planned = Finding(step, step, Status.PASS, "planned", "waits for what the dry run did not change")
                self.judged(step, wait.title, [planned], against=Verdict.FAILED)
                return
            both = dataclasses.replace(wait, needs={**wait.needs, **self._guard.needs})
            progress = waiting.until(self.cluster, both, standing=self._guard.look)
            self.judged(step, wait.title, _ended(step, progress), views=progress.views, against=Verdict.FAILED)

    def close(self) -> None:
        """Writes the closing record and scrap. Raises OutOfOrder while a declared step has not passed, or its cell
        shows an error since it was clicked before the start.

        A run that has closed well is shown again, and nothing is done.
        """
        self._still_goes_by()
        state = self.state
        if missing := self.unshown_steps():
            raise OutOfOrder(
                f"{', '.join(missing)}: passed before; run before the start cell, it shows an error now",
                subject="close",
                remedy=f"Run the cell {missing[0]!r} first: the evidence must show what was judged.",
            )
        if state.closing is not None and EXIT[state.verdict] == 0:
            self.show_closing(state.closing)
            return
        self.demand([s.id for s in self.book.steps], "close")
        with self.closing_on_error("close"):
            if self.book.changes and not self.parameters.apply:
                self._close_planned()
                return
            if self.book.changes:
                self._guard.stand("close", whole=True)
                lease.leave(self, self._door, self.site.lease_namespace)
            told = [self._guard.story(), "Every step passed.", *(f.message + "." for f in self._guard.take())]
            message = " ".join(filter(None, told))
            hint = f"Save the notebook, then `gpurunbook seal {self.id}` makes the evidence."
            self.shut(Verdict.PASS, "all-steps-passed", "close", message, hint)

    def judged(self, step: str, title: str, findings: Sequence[Finding], **more: Any) -> None:
        """As of every run; what was lost and made again meanwhile is told with the step."""
        told = self._guard.take() if findings else []
        super().judged(step, title, [*told, *findings], **more)

    def shut(self, verdict: Verdict, code: str, step: str, message: str, next_: str, **more: Any) -> Record:
        """As of every run; a run that changed nothing gives its lease back, so that the next may begin.

        What was lost in the step and is not told yet is told with the step, which has not passed.
        """
        declared, told = self.book.step(step), self._guard.take()
        if told and declared is not None:
            if worst(told) in (Status.PASS, Status.WARN):
                status = Status.UNKNOWN if verdict is Verdict.UNKNOWN else Status.FAIL
                told.append(Finding(step, step, status, code, message, next_))
            self.tell(step, declared.title, told)
        if not self.state.changed and lease.taken(self.journal.records):
            # What cannot be given back is named among what is left behind.
            with contextlib.suppress(RunbookError):
                lease.leave(self, self._door, self.site.lease_namespace)
        return super().shut(verdict, code, step, message, next_, **more)

    def unshown_steps(self) -> list[str]:
        """Writes nothing. The steps that passed and that the notebook shows no more, in declared order."""
        return [step.id for step in self.book.steps if step.id in self.unshown]

    def enter(self, step: str) -> None:
        """As of every run; and what must stand is looked at, and made again, before the step begins."""
        self._still_goes_by()
        super().enter(step)
        self.unshown.discard(step)
        with self.closing_on_error(step):
            self._guard.stand(step)

    def observe(
        self,
        needs: Mapping[str, Need],
        follow: Callable[[Mapping[str, Observed]], Mapping[str, Need]] | None = None,
    ) -> tuple[dict[str, Observed], dict[str, str]]:
        """As of every run; what must stand is looked after meanwhile, where that takes long."""
        with self._guard.beside():
            return super().observe(needs, follow)

    def left_behind(self) -> list[str]:
        """Writes nothing. What this run has changed and not undone."""
        return left.behind(self)

    def approved(self, digest: str) -> Approved:
        """Appends `authorised`, where the site demands an approval. Raises NotApproved without one."""
        return authority.of_digest(self, self.site, digest)

    @property
    def site(self) -> Site:
        """Writes nothing. The site file, read once."""
        if self._site is None:
            self._site = load(self.home, self.parameters.site)
        return self._site

    @property
    def _door(self) -> Door:
        """Through it goes what needs no permit: a dry run, what was approved and must stand, and what gives back."""
        return Door(self.cluster, self.journal, apply=bool(getattr(self.parameters, "apply", False)))

    def _permitted(self, plan: plans.Plan) -> Door:
        return Door(self.cluster, self.journal, apply=True, permit=lambda: authority.permit(self, self.site, plan))

    def _close_planned(self) -> None:
        plan, lines, changes = changing.close_planned(self)
        display.paste(
            f"Save this notebook, then `gpurunbook seal {self.id}` makes the evidence. "
            f"To apply this plan: `gpurunbook new {self.book.name}`, and these lines at the end of its parameters cell",
            lines,
        )
        folder = self.folder.relative_to(self.home) if self.folder.is_relative_to(self.home) else self.folder
        wanting = authority.wanting(self.parameters)
        first = authority.asked(self, self.site, str(folder))
        more = "".join(f" --set {name}={parameters.BLANK}" for name in wanting)
        what = "The plan is in plan.json." if changes else "There is nothing to change: the plan in plan.json is empty."
        needs = f" The apply needs {' and '.join(wanting)}, which this dry run was not given." if wanting else ""
        self.shut(
            Verdict.PLANNED,
            "planned",
            "close",
            f"Every check passed, and nothing was written. {what}{needs}",
            f"{first}`gpurunbook run {self.book.name} --parameters {folder / changing.APPLY}{more}`; in JupyterLab "
            "with the lines at the end of the notebook.",
            plan=plan,
        )

    # -- start ---------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Appends the start of the run, or that a kernel came back to it, and shows where it works."""
        given = redact(msgspec.to_builtins(self.parameters))
        process = {"host": socket.gethostname(), "pid": os.getpid()}
        before = self.state
        if before.start and before.run != self.id:
            raise InputError(
                f"its journal is of run {before.run}: the folder was renamed or copied",
                subject=f"run folder {self.id}",
                remedy=f"Give it its name back, or start one with `gpurunbook new {self.book.name}`.",
                code="run-renamed",
            )
        if before.start and self._goes_by(before, given):
            self.journal.append("resume", {"process": process})
        else:
            self.journal.append(
                "start",
                {
                    "run": self.id,
                    "runbook": self.book.name,
                    "parameters": given,
                    "package": {"version": version("gpurunbook"), "digest": package_digest()},
                    "source": _file_digest(self.home / "runbooks" / f"{self.book.name}.ipynb"),
                    "process": process,
                },
            )
        with self.closing_on_error("start"):
            identity.identify(self, self.site, self.state)
        display.start(self.state, self.book, resumed=bool(before.start))

    def _still_goes_by(self) -> None:
        """Writes nothing. Raises OutOfOrder when the run was started again with other parameters than this object has:
        a start that then failed leaves the `run` of the earlier one in the kernel."""
        self.journal.refresh()
        changed = parameters.anew(self.state, msgspec.to_builtins(self.parameters))
        if changed:
            raise OutOfOrder(
                f"the run was started again with other parameters: {', '.join(changed)}",
                subject=f"run {self.id}",
                remedy="Run the start cell again, until it shows the head of the run.",
            )

    def _goes_by(self, before: State, given: Mapping[str, Any]) -> bool:
        """Whether the run goes by these parameters. As long as nothing has counted it may start again with others."""
        if before.runbook != self.book.name:
            raise ParameterError(
                f"this run is of {before.runbook}, not of {self.book.name}",
                subject=self.id,
                remedy=f"Start one with `gpurunbook new {self.book.name}`.",
            )
        if not before.bound:
            return not parameters.anew(before, given)
        try:
            parameters.keep_to(self.book, before, given)
        except RunBound:
            if before.closing is not None and before.closing["event"] == "close":
                self.show_closing(before.closing)  # the card replaces the cell that may have shown it
            raise
        return True


def _ended(step: str, progress: Progress) -> list[Finding]:
    """The findings of a wait that is over; one that failed never passes."""
    findings = list(progress.findings)
    if progress.state == "failed" and all(f.status in (Status.PASS, Status.WARN) for f in findings):
        text = "; ".join(progress.missing) or "no reason was given"
        findings.append(Finding(step, step, Status.FAIL, "wait-failed", f"what was waited for cannot come: {text}"))
    return findings


def _unevaluated(value: object, kind: type, call: str, example: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(
            f"{call} takes an unevaluated {kind.__name__.lower()} such as {example}, "
            f"not a {type(value).__name__}: what is judged must be fresh."
        )


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
