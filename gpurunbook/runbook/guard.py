"""What must stand in the middle of a run, a cordon above all: noticed when lost, made again, judged again, told.

The driver manager and the System Upgrade Controller uncordon nodes that they did not cordon
(NVIDIA/k8s-driver-manager#212, rancher/system-upgrade-controller#341).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import datetime

from gpurunbook.errors import GateError
from gpurunbook.findings import Finding, Status, worst
from gpurunbook.journal import timestamp
from gpurunbook.plan import Need, Observed, Planned
from gpurunbook.runbook import changing
from gpurunbook.runbook.ledger import Ledger
from gpurunbook.sources.door import Door

_MARK = "stands:"


class Guard:
    """Looks after what the runbook declares as standing. Does nothing before that step, or in a dry run."""

    def __init__(self, run: Ledger, door: Callable[[], Door]) -> None:
        self._run = run
        self._door = door
        self._stood: datetime | None = None
        self.told: list[Finding] = []

    def _active(self) -> bool:
        stands = self._run.book.stands
        if stands is None or not self._run.parameters.apply:
            return False
        judged = self._run.state.steps.get(stands.since, {})
        return bool(judged.get("passed")) and bool(judged.get("outcomes"))

    @property
    def needs(self) -> dict[str, Need]:
        """Writes nothing. What a wait must follow besides its own needs, under names of ours."""
        stands = self._run.book.stands
        if stands is None or not self._active():
            return {}
        return {_MARK + name: need for name, need in stands.again(self._run.parameters, self._run.id).needs.items()}

    def look(self, seen: Mapping[str, Observed]) -> None:
        """Makes again what is seen to be lost. seen: the needs named above; unread ones are left to the next look."""
        own = {name.removeprefix(_MARK): value for name, value in seen.items() if name.startswith(_MARK)}
        stands = self._run.book.stands
        if stands is None or not own or any(value.problem for value in own.values()):
            return
        self._judge(stands.again(self._run.parameters, self._run.id).plan(own), self._run.state.open_step)

    def stand(self, step: str) -> None:
        """Reads afresh whether it stands, and makes it again when it does not. Raises as `look`."""
        stands = self._run.book.stands
        if stands is None or not self._active() or step == stands.since:
            return
        change = stands.again(self._run.parameters, self._run.id)
        seen, _ = self._run.observe(change.needs, change.follow)
        self._judge(change.plan(seen), step)

    def _judge(self, planned: Planned, step: str) -> None:
        status = worst(planned.findings)
        if status in (Status.FAIL, Status.UNKNOWN):
            leading = next(f for f in planned.findings if f.status is status)
            raise GateError(leading.message, subject=leading.subject, remedy=leading.remedy, code=leading.code)
        if not planned.mutations:
            self._stood = self._run.clock()
            return
        self._again(planned, step)

    def _again(self, planned: Planned, step: str) -> None:
        stands = self._run.book.stands
        assert stands is not None
        times = sum(r["event"] == "lost" for r in self._run.journal.records) + 1
        noticed = self._run.clock()
        stood = timestamp(self._stood) if self._stood else self._run.journal.records[-1]["time"]
        for finding in planned.findings:
            self.told.append(
                dataclasses.replace(
                    finding,
                    status=Status.WARN,
                    message=f"{finding.message} (it stood at {stood}, was missed at {timestamp(noticed)})",
                )
            )
        self._run.journal.append(
            "lost",
            {"step": step, "stood": stood, "findings": [f.as_json() for f in self.told[-len(planned.findings) :]]},
        )
        for mutation in planned.mutations:
            named = dataclasses.replace(mutation, name=f"{mutation.name}-again-{times}")
            self._door().send(stands.since, named, changing.words(self._run, stands.since))
        self._stood = self._run.clock()
        check = stands.recheck(self._run.parameters)
        seen, _ = self._run.observe(check.needs, check.follow)
        findings = check.judge(seen).findings
        self.told += findings
        status = worst(findings)
        if status in (Status.FAIL, Status.UNKNOWN):
            leading = next((f for f in findings if f.status is status), None)
            raise GateError(
                f"it was lost and made again; meanwhile: {leading.message if leading else 'nothing could be judged'}",
                subject=leading.subject if leading else "",
                remedy=leading.remedy if leading else "",
                code=leading.code if leading else "no-finding",
            )
