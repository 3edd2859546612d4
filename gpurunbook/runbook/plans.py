"""The plan of a dry run, as a document with a digest.

The digest covers the cluster uid and, per step and in order, each mutation's target, verb, fields, values, judged
preconditions and inverse. What is filled in when it is sent stands there by its name (`${run}`, `${time}`, …).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpurunbook.errors import GateError, JournalError, RunbookError
from gpurunbook.folder import keep
from gpurunbook.journal import JOURNAL, Record, canonical, digest, read, replay
from gpurunbook.plan import Mutation, Target
from gpurunbook.runbook import approval

NAME = "plan.json"


@dataclass(frozen=True)
class Plan:
    """A plan with the dry run that it comes from."""

    run: str
    folder: Path
    document: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """Writes nothing. The digest of the document."""
        return digest(canonical(dict(self.document)))

    def mutations(self, step: str) -> list[Mutation]:
        """Writes nothing. The planned mutations of one step, in order."""
        return [mutation(entry) for s in self.document["steps"] if s["step"] == step for entry in s["mutations"]]


def mutation(entry: Mapping[str, Any]) -> Mutation:
    """Writes nothing. A mutation from its JSON."""
    target = entry["target"]
    return Mutation(
        name=entry["name"],
        verb=entry["verb"],
        target=Target(target["kind"], target["name"], target["path"], target["namespace"], target["uid"]),
        body=entry["body"],
        patch=entry["patch"],
        judged=entry["judged"],
        goal=entry["goal"],
        inverse=mutation(entry["inverse"]) if entry["inverse"] else None,
    )


def document(runbook: str, cluster: str, records: Sequence[Record], order: Sequence[str]) -> dict[str, Any]:
    """Writes nothing. The plan that a dry run's journal has come to; steps without a plan are left out."""
    steps = replay(records).steps
    return {
        "format": 1,
        "runbook": runbook,
        "cluster": cluster,
        "steps": [
            {"step": step, "mutations": steps[step]["mutations"]}
            for step in order
            if "mutations" in steps.get(step, {})
        ],
    }


def write(folder: Path, plan: Mapping[str, Any]) -> str:
    """Writes `plan.json` into the run folder. Its digest."""
    keep.kept(folder / NAME, json.dumps(plan, sort_keys=True, indent=1).encode() + b"\n")
    return digest(canonical(dict(plan)))


def find(out: Path, wanted: str) -> Plan:
    """Writes nothing. The plan of this digest among the runs under `out`; of several, one that was approved, the last.

    Raises GateError: `plan-not-found`, or `plan-not-passed` when no dry run with it closed as planned.
    """
    refused: RunbookError | None = None
    good: list[Plan] = []
    for path in sorted(out.glob(f"*/{NAME}")):
        try:
            plan = Plan(path.parent.name, path.parent, json.loads(path.read_bytes()))
            if plan.digest != wanted:
                continue
        except (OSError, ValueError, TypeError, RecursionError):
            continue
        try:
            closing = replay(read(path.parent / JOURNAL)).closing
        except JournalError as wrong:
            refused = wrong
            continue
        if closing is not None and closing["data"].get("plan") == wanted:
            good.append(plan)
            continue
        refused = GateError(
            "its dry run did not close as planned",
            subject=f"plan {wanted[:19]}… of run {plan.run}",
            remedy="Make a new dry run.",
            code="plan-not-passed",
        )
    if good:
        return max(good, key=lambda plan: ((plan.folder / approval.NAME).is_file(), plan.run))
    if refused is not None:
        raise refused
    raise GateError(
        f"no run under {out.name}/ has a plan of this digest",
        subject=f"plan {wanted[:80]}",
        remedy="Copy it from the end of the dry run; a plan made elsewhere is brought with its run folder.",
        code="plan-not-found",
    )
