"""What each scenario of a runbook must come to: `parameters/<runbook>/expect.yaml`, and the comparison with a run.

    main: clean
    clean: {verdict: pass, code: all-steps-passed, cluster: true}
    floating-tag: {verdict: rejected, code: latest, step: audit, cluster: false}

A scenario is `parameters/<runbook>/<scenario>.yaml`; each has an expectation and each expectation a scenario.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from gpurunbook.errors import InputError
from gpurunbook.findings import Verdict
from gpurunbook.journal import Record, replay
from gpurunbook.runbook import given

FILE = "expect.yaml"
MAIN = "main"

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,60}")


class Expectation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of one scenario. step: that of the closing record; mutations: how many were sent to the cluster.

    left_behind: one part of the text of each thing left behind; cluster: whether it runs on the real control plane.
    """

    verdict: Literal["pass", "planned", "rejected", "blocked", "failed", "unknown"]
    code: str
    cluster: bool
    step: str = ""
    mutations: int = 0
    left_behind: tuple[str, ...] = ()
    evidence: Literal["sealed", "withheld"] = "sealed"


@dataclass(frozen=True)
class Seen:
    """What a run came to, by its journal."""

    verdict: Verdict
    code: str
    step: str
    mutations: int
    left_behind: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Writes nothing."""
        return {
            "verdict": str(self.verdict),
            "code": self.code,
            "step": self.step,
            "mutations": self.mutations,
            "left_behind": list(self.left_behind),
        }


@dataclass(frozen=True)
class Scenario:
    """One file of parameters and what it must come to."""

    runbook: str
    name: str
    file: Path
    expected: Expectation
    main: bool


def seen(records: Iterable[Record]) -> Seen:
    """Writes nothing. What the records of a journal say the run came to; one that did not close is unknown."""
    records = list(records)
    state = replay(records)
    closing = state.closing["data"] if state.closing else {}
    died = state.closing is None or state.closing["event"] == "died"
    return Seen(
        verdict=state.verdict,
        code="died" if died else str(closing["code"]),
        step=str(closing.get("step", "")),
        mutations=sum(record["event"] == "intent" for record in records),
        left_behind=tuple(map(str, closing.get("left_behind", ()))),
    )


def differences(expected: Expectation, found: Seen) -> list[str]:
    """Writes nothing. One line for each thing that is not as expected; none when the expectation holds."""
    pairs = [
        ("verdict", expected.verdict, str(found.verdict)),
        ("code", expected.code, found.code),
        ("mutations", expected.mutations, found.mutations),
    ]
    if expected.step:
        pairs.append(("step", expected.step, found.step))
    lines = [f"{what}: expected {wanted!r}, seen {got!r}" for what, wanted, got in pairs if wanted != got]
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
    scenario, or a wrong word in them.
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
    return [
        Scenario(runbook, name, files[name], _expectation(table[name], f"{path}: {name}"), name == main)
        for name in sorted(files)
    ]


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
    if found.mutations < 0:
        raise InputError(f"mutations is {found.mutations}, wanted 0 or more", subject=where)
    return found
