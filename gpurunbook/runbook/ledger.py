"""What a run writes down: entering a step, what was judged, and how it closed.

Every gate is judged from the journal and a fresh read, never from the kernel's memory, so that it holds in any
order of clicking, after a kernel restart, and from another process.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from gpurunbook.declared.book import Runbook
from gpurunbook.errors import (
    ClusterError,
    DeadlineError,
    GateError,
    InputError,
    OutOfOrder,
    Raced,
    RunbookError,
    Stopped,
)
from gpurunbook.findings import Finding, Status, Verdict, worst
from gpurunbook.folder import keep, parameters
from gpurunbook.journal import JOURNAL, Journal, Record, State, canonical, digest, replay
from gpurunbook.plan import Approved, Judgement, Need, Observed, View
from gpurunbook.runbook.observe import Observer
from gpurunbook.shown import cards, display
from gpurunbook.shown.redact import redact
from gpurunbook.shown.scraps import CLOSING, TOO_LARGE, payload, scrap
from gpurunbook.sources.cluster import Cluster

_AHEAD = 5 / 60
"""Hours that clocks may differ."""

_NAMED = re.compile(r"\bparameter ['`]([a-z_]+)['`]")
"""A parameter, as errors and remedies name it."""


class Ledger:
    """The records of one run of one runbook, in one folder."""

    def __init__(
        self, book: Runbook, chosen: msgspec.Struct, folder: Path, home: Path, clock: Callable[[], datetime]
    ) -> None:
        self.book = book
        self.parameters: Any = chosen
        self.folder = folder
        self.home = home
        self.clock = clock
        self._opened = clock(), time.monotonic()
        self.journal = Journal.open(folder / JOURNAL, clock)

    @property
    def id(self) -> str:
        """Writes nothing. The run id, which is the folder's name."""
        return self.folder.name

    @property
    def state(self) -> State:
        """Writes nothing. What the journal says now."""
        return replay(self.journal.records)

    @property
    def cluster(self) -> Cluster:
        """Writes nothing. The cluster of this run."""
        raise NotImplementedError

    def moment(self) -> datetime:
        """Writes nothing. The time to judge at: parameter `now` where it is there and set, else the clock."""
        return parameters.moment(self.parameters) or self.clock()

    def latest(self) -> datetime:
        """Writes nothing. The time by which it is judged whether something has ended: that of the clock or, where it
        was set back, the latest of the journal and of all that has passed since this object was made."""
        opened, ticks = self._opened
        times = [self.clock(), opened + timedelta(seconds=time.monotonic() - ticks)]
        times += [datetime.fromisoformat(record["time"]) for record in self.journal.records]
        return max(times)

    def approved(self, digest: str) -> Approved:
        """Writes nothing. The approval of a digest. Raises NotApproved where the site demands one and there is none."""
        raise NotImplementedError

    def enter(self, step: str) -> None:
        """Appends that the step begins. Raises OutOfOrder when it is not declared or what it needs has not passed."""
        self.journal.refresh()
        state = self.state
        declared = self.book.step(step)
        if declared is None:
            known = ", ".join(s.id for s in self.book.steps)
            raise OutOfOrder(
                f"{self.book.name} declares no such step", subject=f"step {step!r}", remedy=f"It has: {known}."
            )
        self.demand(declared.needs, f"step {step!r}")
        head = self.journal.head
        if state.closing is not None:
            head = self.journal.append("reopen", {"step": step}, expect=head)["hash"]
        self.journal.append("step", {"step": step}, expect=head)

    def demand(self, steps: Sequence[str], subject: str) -> None:
        """Writes nothing. Raises OutOfOrder, with the cell to run first, unless all the steps have passed, and still
        count where the runbook says how long a step does."""
        absent = [step for step in steps if not self.state.passed(step)]
        if absent:
            have = "has" if len(absent) == 1 else "have"
            raise OutOfOrder(
                f"{', '.join(absent)} {have} not passed in this run",
                subject=subject,
                remedy=f"Run the cell {absent[0]!r} first.",
            )
        if self.book.lasts is not None:
            for step in self._standing_on(steps):
                if why := self._over(step, self.book.lasts):
                    raise OutOfOrder(why, subject=subject, remedy=f"Run the cell {step!r} again, and those after it.")

    def _standing_on(self, steps: Sequence[str]) -> list[str]:
        """The steps, and what they need and these need, in declared order; those that were judged."""
        wanted = set(steps)
        for one in reversed(self.book.steps):
            wanted |= set(one.needs) if one.id in wanted else set()
        return [one.id for one in self.book.steps if one.id in wanted and one.id in self.state.judged]

    def _over(self, step: str, lasts: float) -> str:
        """Why a step that has passed counts no more; "" while it does."""
        state, declared = self.state, self.book.step(step)
        record = state.judged[step]
        passed = datetime.fromisoformat(record["time"])
        ahead = (passed - self.clock()).total_seconds() / 3600
        if ahead > _AHEAD:
            return f"{step} passed {ahead:.1f} h from now: this clock, or that one, is wrong"
        hours = (self.latest() - passed).total_seconds() / 3600
        if hours > lasts:
            return f"{step} passed {hours:.1f} h ago, and counts for {lasts:g} h: things change meanwhile"
        for need in declared.needs if declared else ():
            if need in state.judged and state.judged[need]["seq"] > record["seq"]:
                return f"{need} was judged again after {step}, which stands on it"
        return ""

    def observe(
        self,
        needs: Mapping[str, Need],
        follow: Callable[[Mapping[str, Observed]], Mapping[str, Need]] | None = None,
    ) -> tuple[dict[str, Observed], dict[str, str]]:
        """Copies the user's files that it reads into the run folder. What was observed, and the copies' digests."""
        files = {name: data.get("files", {}) for name, data in self.state.steps.items()}
        observer = Observer(self.folder, self.home, lambda: self.cluster, self.moment, files, self.approved)
        seen = observer(needs)
        if follow is not None:
            seen.update(observer(follow(seen)))
        return seen, observer.inputs

    def keep_files(self, files: Mapping[str, bytes], folder: str) -> dict[str, str]:
        """Writes the files under `folder` of the run. Their digests by path. Raises RunbookError when it cannot."""
        for name, data in files.items():
            keep.kept(self.folder / folder / name, data)
        return {f"{folder}/{name}": digest(data) for name, data in files.items()}

    def judged(
        self,
        step: str,
        title: str,
        findings: Sequence[Finding],
        *,
        views: Sequence[View] = (),
        facts: Mapping[str, Any] | None = None,
        files: Mapping[str, str] | None = None,
        against: Verdict,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Records and shows what was judged; unless it is good, closes the run and raises Stopped.

        against: the verdict of what fails; once this run has begun a change, that is a failure whatever the step says.
        """
        if self.tell(step, title, findings, views=views, facts=facts, files=files, extra=extra):
            display.state_line(self.state, self.book)
            return
        leading = _leading(findings)
        verdict = Verdict.FAILED if self.state.changed else against
        if leading.status is Status.UNKNOWN:
            verdict = Verdict.UNKNOWN
        self.shut(verdict, leading.code, step, _told(leading), self._next(leading.remedy))
        raise Stopped(
            leading.message,
            subject=leading.subject,
            remedy=leading.remedy,
            code=leading.code,
        )

    def tell(
        self,
        step: str,
        title: str,
        findings: Sequence[Finding],
        *,
        views: Sequence[View] = (),
        facts: Mapping[str, Any] | None = None,
        files: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> bool:
        """Records and shows what was judged. Whether it is good."""
        status = worst(findings)
        passed = status in (Status.PASS, Status.WARN)
        small, kept = self._facts(step, redact(dict(facts or {})))
        self.journal.append(
            "judged",
            {
                "step": step,
                "title": title,
                "status": status,
                "passed": passed,
                "findings": [redact(f.as_json()) for f in findings],
                "files": {**(files or {}), **kept},
                "facts": small,
                **(extra or {}),
            },
        )
        data = self.state.steps[step]
        scrap(f"gpurunbook.step.{step}", {k: data[k] for k in ("status", "passed", "facts")}, replace=True)
        display.judged(title, Judgement(tuple(findings), tuple(views)), data)
        return passed

    def _facts(self, step: str, facts: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """The facts as the notebook can hold them: those of a crowded node are kept in a file instead."""
        try:
            payload(f"gpurunbook.step.{step}", facts | {"status": "", "passed": False})
        except InputError as wrong:
            if wrong.code != TOO_LARGE:
                raise
            name = f"{step}-facts.json"
            return {"file": f"after/{name}"}, self.keep_files({name: canonical(facts)}, "after")
        return facts, {}

    def left_behind(self) -> list[str]:
        """Writes nothing. What this run has changed and not undone, one line each, with the command that undoes it."""
        return []

    def shut(self, verdict: Verdict, code: str, step: str, message: str, next_: str, **more: Any) -> Record:
        """Writes the closing record and the closing scrap, and shows the end of the run."""
        data = {
            "verdict": verdict,
            "code": code,
            "step": step,
            "message": message,
            "next": next_,
            "left_behind": self.left_behind(),
            **more,
        }
        record = self.journal.append("close", redact(data))
        self.show_closing(record)
        return record

    def show_closing(self, record: Record) -> None:
        """Shows the end of the run, with its closing scrap."""
        state = self.state
        told = {
            "run": self.id,
            "runbook": self.book.name,
            "head": record["hash"],
            "rehearsal": bool(state.start.get("rehearsal", True)),
        }
        scrap(CLOSING, told | {key: record["data"][key] for key in ("verdict", "code", "step")})
        display.closed(state)

    @contextlib.contextmanager
    def closing_on_error(self, step: str) -> Iterator[None]:
        """Whatever goes wrong inside closes the run with a verdict, then goes on as the error it was."""
        try:
            yield
        except (Raced, Stopped):
            raise
        except (Exception, KeyboardInterrupt) as wrong:
            self.journal.refresh()
            code, verdict = self._verdict(wrong)
            message = str(wrong) or type(wrong).__name__
            if isinstance(wrong, KeyboardInterrupt):
                message = cards.INTERRUPTED
            elif isinstance(wrong, RunbookError):
                message = f"{wrong.subject}: {wrong.message}" if wrong.subject else wrong.message
            next_ = self._next(getattr(wrong, "remedy", ""), getattr(wrong, "subject", ""))
            self.shut(verdict, code, step, message, next_)
            raise

    def _verdict(self, wrong: BaseException) -> tuple[str, Verdict]:
        code = wrong.code if isinstance(wrong, RunbookError) else "internal-error"
        if isinstance(wrong, KeyboardInterrupt):
            code = "interrupted"
        if self.state.changed and not isinstance(wrong, OutOfOrder):
            return code, Verdict.FAILED
        if isinstance(wrong, GateError) or (isinstance(wrong, ClusterError) and code == "permission-missing"):
            return code, Verdict.BLOCKED
        if isinstance(wrong, DeadlineError):
            return code, Verdict.FAILED
        return code, Verdict.UNKNOWN

    def _next(self, remedy: str, subject: str = "") -> str:
        """What to do, and how to go on with this run: with the parameter to correct, as long as it takes another."""
        named = None if self.state.bound else _NAMED.search(f"{subject} {remedy}")
        corrected = f" --set {named[1]}={parameters.BLANK}" if named else ""
        again = f"un the cell again, or `gpurunbook run {self.book.name} --run-id {self.id}{corrected}`."
        return f"{remedy} Then r{again}" if remedy else f"R{again}"


def _told(finding: Finding) -> str:
    """What a finding says, with its subject where the message does not name that itself."""
    subject = finding.subject.strip()
    named = re.search(rf"(?<![\w.-]){re.escape(subject)}(?![\w.-])", finding.message)
    return f"{subject}: {finding.message}" if subject and not named else finding.message


def _leading(findings: Sequence[Finding]) -> Finding:
    """The finding that names the stop: the first of the gravest status."""
    gravest = worst(findings)
    for finding in findings:
        if finding.status is gravest:
            return finding
    return Finding("run", "", Status.UNKNOWN, "no-finding", "the check concluded nothing", "This is a defect.")
