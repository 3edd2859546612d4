"""What each scenario of a runbook must come to: `parameters/<runbook>/expect.yaml`, and the comparison with a run.

    main: clean
    clean: {verdict: pass, code: all-steps-passed, cluster: true}
    floating-tag: {verdict: rejected, code: latest, step: audit, cluster: false}
    release: {verdict: pass, code: all-steps-passed, mutations: 3, after: cordon, cluster: true}

A scenario is `parameters/<runbook>/<scenario>.yaml`; each has an expectation and each expectation a scenario.
What is done around the last run (gpurunbook.headless.chain) stands in the expectation too: a scenario's own file holds
parameters and nothing else, so that plain papermill takes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from gpurunbook.errors import InputError
from gpurunbook.findings import Status, Verdict
from gpurunbook.journal import Record, replay
from gpurunbook.runbook import given

FILE = "expect.yaml"
MAIN = "main"

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,60}")


class Approve(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the plan is approved where the site file demands it. by: a principal of that file, `nobody`, or `stranger`,
    whose key no file of signers holds. The rest makes it an approval that must not count."""

    by: str = "approver"
    expired: bool = False
    other_plan: bool = False
    other_change: bool = False


class Deed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What somebody else does to the cluster between dry run and apply, as its administrator.

    One of the two: a merge patch of the object at the API path, or an object to create in the collection there.
    """

    path: str
    merge: dict[str, Any] | None = None
    create: dict[str, Any] | None = None


class Expectation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of one scenario. It judges the last run: step is that of the closing record, mutations how many were sent to the
    cluster (null: nobody can tell), left_behind one part of the text of each thing left behind, warns the codes of all
    its warnings (left out: not compared).

    after: a scenario of the same cluster that is run first, as an earlier piece of work; meanwhile: what others do
    between dry run and apply; approve: see there; again: the finished apply is run a second time.
    cluster: whether it also runs on the real control plane.
    """

    verdict: Literal["pass", "planned", "rejected", "blocked", "failed", "unknown"]
    code: str
    cluster: bool
    step: str = ""
    mutations: int | None = 0
    left_behind: tuple[str, ...] = ()
    evidence: Literal["sealed", "withheld"] = "sealed"
    warns: tuple[str, ...] | None = None
    after: str = ""
    meanwhile: tuple[Deed, ...] = ()
    approve: Approve = Approve()
    again: bool = False


PLANNED = Expectation(verdict="planned", code="planned", step="close", cluster=False)
"""What a dry run must come to before its apply is tried."""


@dataclass(frozen=True)
class Seen:
    """What a run came to, by its journal."""

    verdict: Verdict
    code: str
    step: str
    mutations: int
    left_behind: tuple[str, ...]
    warns: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Writes nothing."""
        return {
            "verdict": str(self.verdict),
            "code": self.code,
            "step": self.step,
            "mutations": self.mutations,
            "left_behind": list(self.left_behind),
            "warns": list(self.warns),
        }


@dataclass(frozen=True)
class Scenario:
    """One file of parameters and what it must come to. after: the scenario that is run first."""

    runbook: str
    name: str
    file: Path
    expected: Expectation
    main: bool
    after: Scenario | None = None


def seen(records: Iterable[Record]) -> Seen:
    """Writes nothing. What the records of a journal say the run came to; one that did not close is unknown."""
    records = list(records)
    state = replay(records)
    closing = state.closing["data"] if state.closing else {}
    died = state.closing is None or state.closing["event"] == "died"
    findings = [finding for step in state.steps.values() for finding in step.get("findings", ())]
    return Seen(
        verdict=state.verdict,
        code="died" if died else str(closing["code"]),
        step=str(closing.get("step", "")),
        mutations=sum(record["event"] == "intent" for record in records),
        left_behind=tuple(map(str, closing.get("left_behind", ()))),
        warns=tuple(sorted({str(f["code"]) for f in findings if f["status"] == Status.WARN})),
    )


def differences(expected: Expectation, found: Seen) -> list[str]:
    """Writes nothing. One line for each thing that is not as expected; none when the expectation holds."""
    pairs: list[tuple[str, object, object]] = [
        ("verdict", expected.verdict, str(found.verdict)),
        ("code", expected.code, found.code),
    ]
    if expected.mutations is not None:
        pairs.append(("mutations", expected.mutations, found.mutations))
    if expected.step:
        pairs.append(("step", expected.step, found.step))
    lines = [f"{what}: expected {wanted!r}, seen {got!r}" for what, wanted, got in pairs if wanted != got]
    if expected.warns is not None and sorted(expected.warns) != sorted(found.warns):
        lines.append(f"warns: expected {sorted(expected.warns)!r}, seen {sorted(found.warns)!r}")
    if not _all_there(expected.left_behind, found.left_behind):
        lines.append(f"left_behind: expected {list(expected.left_behind)!r}, seen {list(found.left_behind)!r}")
    return lines


def _all_there(parts: tuple[str, ...], texts: tuple[str, ...]) -> bool:
    """Each part in a text of its own, and no text left over."""
    left = list(texts)
    for part in sorted(parts, key=len, reverse=True):
        hit = next((text for text in left if part in text), None)
        if hit is None:
            return False
        left.remove(hit)
    return not left


def scenarios(home: Path, runbook: str) -> list[Scenario]:
    """Writes nothing. The scenarios of one runbook, by name.

    Raises InputError that names the file: no expectations, a scenario without one, one without a scenario, no main
    scenario, a wrong word in them, or a chain that cannot be.
    """
    folder = home / "parameters" / runbook
    path = folder / FILE
    if not path.is_file():
        raise InputError(
            f"there is no {FILE}: nothing says what a scenario must come to",
            subject=str(folder),
            remedy="It holds `main: NAME`, and for each NAME.yaml `NAME: {verdict: …, code: …, cluster: false}`.",
        )
    table = given.from_file(path)
    main = table.pop(MAIN, None)
    files = {file.stem: file for file in sorted(folder.glob("*.yaml")) if file.name != FILE}
    _paired(set(files), set(table), path)
    if not isinstance(main, str) or main not in files:
        raise InputError(f"main: is {main!r:.80}, wanted the name of one scenario", subject=str(path))
    found = {
        name: Scenario(runbook, name, files[name], _expectation(table[name], f"{path}: {name}"), name == main)
        for name in sorted(files)
    }
    return [_chained(found, name, path, ()) for name in found]


def _chained(found: Mapping[str, Scenario], name: str, path: Path, behind: tuple[str, ...]) -> Scenario:
    """The scenario with the one that is run before it, and so on."""
    one, where = found[name], f"{path}: {name}"
    expected = one.expected
    if expected.after:
        if expected.after not in found:
            raise InputError(f"after: there is no scenario {expected.after!r:.80}", subject=where)
        if expected.after in (name, *behind):
            raise InputError(f"after: {expected.after!r} comes before itself", subject=where)
        one = replace(one, after=_chained(found, expected.after, path, (name, *behind)))
        first, last = (given.from_file(found[n].file).get("cluster", "") for n in (expected.after, name))
        if first != last:
            raise InputError(f"after: {expected.after!r} is of cluster {first!r}, this one of {last!r}", subject=where)
    around = [field for field in ("meanwhile", "again") if getattr(expected, field)]
    around += ["approve"] if expected.approve != Approve() else []
    if around and given.from_file(one.file).get("apply") is not True:
        raise InputError(f"{around[0]}: goes with an apply, and the parameters do not say apply: true", subject=where)
    return one


def _paired(files: set[str], expected: set[str], path: Path) -> None:
    for name in sorted(files | expected):
        if not _NAME.fullmatch(name) or name == MAIN:
            raise InputError(
                f"{name!r:.80} is no name for a scenario: wanted lower-case words with dashes", subject=str(path)
            )
        if name not in expected:
            raise InputError(
                f"the scenario {name!r} has no expectation", subject=str(path), remedy=f"Add a line `{name}: …`."
            )
        if name not in files:
            raise InputError(
                f"there is an expectation of {name!r}, and no {name}.yaml beside it",
                subject=str(path),
                remedy="Add the file, or remove the line.",
            )


def _expectation(raw: Any, where: str) -> Expectation:
    if not isinstance(raw, Mapping):
        raise InputError(f"is {raw!r:.80}, wanted verdict, code and cluster", subject=where)
    try:
        found = msgspec.convert(dict(raw), Expectation, strict=True)
    except msgspec.ValidationError as wrong:
        raise InputError(str(wrong), subject=where) from None
    if found.mutations is not None and found.mutations < 0:
        raise InputError(f"mutations is {found.mutations}, wanted 0 or more", subject=where)
    for deed in found.meanwhile:
        if (deed.merge is None) == (deed.create is None):
            raise InputError(f"meanwhile: {deed.path!r:.80} needs one of merge and create", subject=where)
    return found
