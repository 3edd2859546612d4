"""What must stand in the middle of a run, a cordon above all: noticed when lost, made again, judged again, told.

The driver manager and the System Upgrade Controller uncordon nodes that they did not cordon
(NVIDIA/k8s-driver-manager#212, rancher/system-upgrade-controller#341).
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from gpurunbook.errors import GateError
from gpurunbook.findings import Finding, Status, worst
from gpurunbook.journal import timestamp
from gpurunbook.plan import Change, Need, Observed, Planned, Seen, Stood
from gpurunbook.runbook import changing, losses, waiting
from gpurunbook.runbook.ledger import Ledger
from gpurunbook.sources.door import Door
from gpurunbook.sources.watch import follow

AGAIN = 10
"""How often it is made again within one step: then somebody fights over it, and a person must look."""

LONG_SECONDS = 0.5
"""What takes longer is not waited for before somebody looks."""

_MARK = "stands:"


class Guard:
    """Looks after what the runbook declares as standing. Does nothing before that step has passed, or in a dry run.

    held: raises GateError unless this run still holds its lease; without it nothing is made again.
    """

    def __init__(
        self,
        run: Ledger,
        door: Callable[[], Door],
        held: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._door = door
        self._held = held
        self._clock = clock
        self._whole: tuple[float, str, Seen] | None = None
        self._missed = False
        self._told: list[Finding] = []

    def story(self) -> str:
        """Writes nothing. How often it was lost in this run, for how long, and who came; "" when it never was."""
        stands = self._run.book.stands
        return losses.told(stands.what, losses.losses(self._run.journal.records)) if stands else ""

    def take(self) -> list[Finding]:
        """Writes nothing. What there is to tell since the last call."""
        told, self._told = self._told, []
        return told

    def _change(self) -> Change | None:
        """What makes it again; None where nothing of this run stands yet."""
        stands = self._run.book.stands
        if stands is None or not self._run.parameters.apply:
            return None
        judged = self._run.state.steps.get(stands.since, {})
        if not judged.get("passed") or not judged.get("outcomes"):
            return None
        return stands.again(self._run.parameters, self._run.id, self._last())

    @property
    def needs(self) -> dict[str, Need]:
        """Writes nothing. What a wait must follow besides its own needs, under names of ours."""
        change = self._change()
        return {_MARK + name: need for name, need in change.needs.items()} if change else {}

    def look(self, seen: Mapping[str, Observed]) -> None:
        """Makes again what is seen to be lost, after a fresh read: a watch may lag behind what was made again already.

        seen: the needs named above; while one is unread, it is left to the next look.
        """
        own = {name.removeprefix(_MARK): value for name, value in seen.items() if name.startswith(_MARK)}
        change = self._change()
        if change is None or not own or any(value.problem for value in own.values()):
            return
        if _stands(change.plan(own)) and not self._lost:
            self._see(own)
        else:
            self.stand(self._run.state.open_step)

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        """Looks after it while the block takes long, as a wait does; what goes wrong there is raised at the end.

        The block may read and must not write: what is made again is written from another thread.
        """
        if self._change() is None:
            yield
            return
        over = threading.Event()
        wrong: list[Exception] = []

        def work() -> None:
            if over.wait(LONG_SECONDS):
                return
            try:
                with follow(self._run.cluster, self.needs) as after:
                    while not over.is_set():
                        self.look(after(waiting.LOOK_SECONDS))
            except Exception as error:
                wrong.append(error)

        thread = threading.Thread(target=work, name="stands", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        if wrong:
            raise wrong[0]

    def stand(self, step: str, *, whole: bool = False) -> None:
        """Reads afresh whether it stands, and makes it again when it does not.

        whole: also refuse what waits for a manager to settle. Raises GateError when it is another's, when it cannot
        be read, when this run lost its lease, or when what came meanwhile is not good.
        """
        change = self._change()
        if change is None:
            return
        seen, _ = Ledger.observe(self._run, change.needs, change.follow)
        planned = change.plan(seen)
        if _stands(planned):
            if self._lost:
                self._run.journal.append("whole", {"step": step, "came": list(planned.came)})
            self._see(seen)
            return
        _refuse(planned.findings, "")
        self._tell(step, planned)
        if planned.mutations:
            self._again(planned, seen)
            if whole:
                self.stand(step, whole=True)
        elif whole:
            leading = planned.findings[0]
            raise GateError(leading.message, subject=leading.subject, remedy=leading.remedy, code=leading.code)

    @property
    def _lost(self) -> bool:
        """Whether the journal's last word is that it is gone, or that it was made again and nobody has looked since."""
        found = losses.losses(self._run.journal.records)
        return bool(found) and not found[-1].over

    def _see(self, seen: Seen) -> None:
        self._missed = False
        self._whole = (self._clock(), timestamp(self._run.clock()), seen)

    def _last(self) -> Stood | None:
        stood = self._in_journal()
        if stood is None or self._whole is None:
            return stood
        moment, time, seen = self._whole
        return Stood(time, self._clock() - moment, seen, stood.uid)

    def _in_journal(self) -> Stood | None:
        """When it last stood for sure: once it was made, when it was seen whole again, and at the beginning of each
        step that was judged later, unless it was missed then."""
        stands = self._run.book.stands
        assert stands is not None
        found = begun = uid = ""
        gone = False
        for record in self._run.journal.records:
            event, data, time = record["event"], record["data"], record["time"]
            if event == "result" and data["step"] == stands.since and data["how"] != "refused":
                found, uid, gone = time, data["target"]["uid"], False
            elif event == "lost":
                begun, gone = "", True
            elif event == "whole":
                found, gone = time, False
            elif event == "step":
                begun = "" if gone else time
            elif event == "judged" and found and data["step"] != stands.since:
                found = max(found, begun)
        return Stood(found, None, {}, uid) if found else None

    def _tell(self, step: str, planned: Planned) -> None:
        if self._missed:
            return
        self._missed = True
        last, noticed = self._last(), timestamp(self._run.clock())
        when = f"stood at {last.time}, missed at {noticed}" if last else f"missed at {noticed}"
        told = [dataclasses.replace(f, status=Status.WARN, message=f"{f.message} ({when})") for f in planned.findings]
        self._told += told
        self._run.journal.append(
            "lost",
            {
                "step": step,
                "stood": last.time if last else "",
                "seconds": round(last.seconds, 3) if last and last.seconds is not None else None,
                "missed": noticed,
                "came": list(planned.came),
                "findings": [f.as_json() for f in told],
            },
        )

    def _again(self, planned: Planned, seen: Seen) -> None:
        stands = self._run.book.stands
        assert stands is not None
        self._held()
        records = self._run.journal.records
        words = {**changing.words(self._run, stands.since), **changing.first_words(records, stands.since)}
        times = changing.times_again(records)
        for mutation in planned.mutations:
            named = dataclasses.replace(mutation, name=f"{mutation.name}{changing.AGAIN}{times + 1}")
            self._door().send(stands.since, named, words)
        self._see(seen)
        check = stands.recheck(self._run.parameters)
        findings = check.judge(Ledger.observe(self._run, check.needs, check.follow)[0]).findings
        self._told += findings
        lost = planned.findings[0]
        _refuse(findings, f"found when {lost.code} of {lost.subject} was made good: ")
        if changing.times_again(self._run.journal.records, in_step=True) >= AGAIN:
            raise GateError(
                f"it was lost and made again {AGAIN} times in this step: something fights over it",
                subject=planned.findings[0].subject,
                remedy="Find what takes it away (the runbook's step on other hands names who may) and stop it.",
                code="lost-again",
            )


def _stands(planned: Planned) -> bool:
    return not planned.mutations and worst(planned.findings) is Status.PASS


def _refuse(findings: tuple[Finding, ...], prefix: str) -> None:
    status = worst(findings)
    if status in (Status.FAIL, Status.UNKNOWN):
        leading = next((f for f in findings if f.status is status), None)
        raise GateError(
            prefix + (leading.message if leading else "nothing could be judged"),
            subject=leading.subject if leading else "",
            remedy=leading.remedy if leading else "",
            code=leading.code if leading else "no-finding",
        )
