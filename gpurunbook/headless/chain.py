"""The runs of one scenario, in order, on one cluster: what people do.

Parameters with `apply: true` have a dry run of the same parameters first, then the approval where the site file
demands one, then the apply with the plan digest and the cluster's uid of the dry run filled in. What the scenario
itself gives for these two wins, so that a wrong one can be tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from gpurunbook.declared.runbooks import declared
from gpurunbook.headless import execute, throwaway
from gpurunbook.headless.execute import Outcome
from gpurunbook.headless.expectation import PLANNED, Deed, Expectation, Scenario, differences
from gpurunbook.headless.fixture import Fixture
from gpurunbook.journal import JOURNAL, read, replay
from gpurunbook.runbook import approval, given
from gpurunbook.runbook.site import load

_OF_APPLY = ("plan", "expect_cluster", "approval")
"""Parameters that a dry run does not have yet."""

_OTHER_PLAN = "sha256:" + "0" * 64
NOBODY = "nobody"
DRY = "dry run"


@dataclass(frozen=True)
class Link:
    """One run of a chain. what: `cordon, dry run`; "" for the last. missed: how it is not as expected."""

    what: str
    outcome: Outcome
    missed: tuple[str, ...] = ()
    trouble: str = ""

    def as_json(self) -> dict[str, Any]:
        """Writes nothing."""
        return {
            "run": self.outcome.run_dir.name,
            "what": self.what,
            "verdict": str(self.outcome.verdict),
            "code": self.outcome.code,
            "evidence": self.outcome.evidence,
        }


class Chain:
    """The runs of one scenario. clusters: where its embedded server keeps its state.

    cluster: another cluster than the parameters name, where `administer` does what others do meanwhile.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        home: Path,
        out: Path,
        clusters: Path,
        cell_seconds: float,
        cluster: str = "",
        administer: Callable[[Deed], None] | None = None,
    ) -> None:
        self._scenario = scenario
        self._home = home
        self._out = out
        self._cell_seconds = cell_seconds
        self._cluster = cluster
        self._fixture = Fixture(clusters)
        self._administer = administer or self._fixture.do
        self.links: list[Link] = []

    def run(self) -> list[Link]:
        """Runs and seals one after the other, until one is not as expected. Raises as given.gather and throwaway.key,
        and InputError when the cluster refuses what others do meanwhile."""
        self._all(self._scenario)
        return self.links

    def _all(self, one: Scenario) -> bool:
        if one.after is not None and not self._all(one.after):
            return False
        values = given.gather(declared(one.runbook), [one.file], cluster=self._cluster)
        if not values.get("apply"):
            return self._run(one, "", values, one.expected)
        before = {k: v for k, v in values.items() if k not in _OF_APPLY} | {"apply": False}
        if not self._run(one, DRY, before, PLANNED):
            return False
        dry = self.links[-1].outcome
        state = replay(read(dry.run_dir / JOURNAL))
        assert state.closing is not None
        plan = str(state.closing["data"]["plan"])
        approved = self._approve(one, dry.run_dir, plan, values)
        for deed in one.expected.meanwhile:
            self._administer(deed)
        full = {"plan": plan, "expect_cluster": state.start["cluster"]["uid"], **approved, **values}
        if not one.expected.again:
            return self._run(one, "", full, one.expected)
        # What was sent is counted at the end, over both times: nothing may be done twice.
        first = msgspec.structs.replace(one.expected, mutations=None, warns=None)
        if not self._run(one, "first time", full, first):
            return False
        return self._run(one, "", full, one.expected, run_id=self.links[-1].outcome.run_dir.name)

    def _run(
        self, one: Scenario, what: str, values: Mapping[str, Any], expected: Expectation, run_id: str = ""
    ) -> bool:
        """Whether the run came to what is expected."""
        whose = [one.name] if one.name != self._scenario.name else []
        label = ": ".join([self._scenario.name, ", ".join([*whose, what] if what == DRY else whose)]).removesuffix(": ")
        what = ", ".join([*whose, what] if what else whose)
        self._fixture.news()
        outcome = execute.run(
            one.runbook,
            values,
            home=self._home,
            out=self._out,
            run_id=run_id,
            again=bool(run_id),
            scenario=label,
            cell_seconds=self._cell_seconds,
        )
        missed: list[str] = []
        if outcome.seen is not None:
            missed = differences(expected, outcome.seen)
            if outcome.evidence != expected.evidence:
                text = f"evidence: expected {expected.evidence!r}, seen {outcome.evidence!r} {outcome.unsealed}"
                missed.append(text.strip())
            missed += _against(self._fixture.news(), applied=bool(values.get("apply")))
        trouble = (outcome.message or outcome.code) if outcome.seen is None else ""
        told = tuple(f"{what}: {line}" if what else line for line in missed)
        self.links.append(Link(what, outcome, told, f"{what}: {trouble}" if what and trouble else trouble))
        return not missed and not trouble

    def _approve(self, one: Scenario, folder: Path, plan: str, values: Mapping[str, Any]) -> dict[str, str]:
        """The parameter that names the approval: equal plans of other scenarios have approvals of their own."""
        site, wanted = load(self._home, str(values.get("site", ""))), one.expected.approve
        if one.runbook not in site.approval:
            return {}
        path = folder / approval.NAME
        named = {"approval": str(path.relative_to(self._home) if path.is_relative_to(self._home) else path)}
        if wanted.by == NOBODY:
            return named
        hours = -1 if wanted.expired else 1
        approval.approve(
            folder,
            change_id="other" if wanted.other_change else str(values.get("change_id", "")),
            expires=datetime.now(UTC) + timedelta(hours=hours),
            plan=_OTHER_PLAN if wanted.other_plan else plan,
            key=throwaway.key(self._home, site, wanted.by),
        )
        return named


def _against(requests: list[dict[str, Any]], *, applied: bool) -> list[str]:
    """What a run must never send: anything that the embedded server does not know, and a write in a dry run."""
    told = [f"the embedded server does not know: {r['unsupported']}" for r in requests if "unsupported" in r]
    written = [r for r in requests if r["persisted"] and not applied]
    return told + [f"a dry run wrote: {r['method']} {r['path']}" for r in written]
