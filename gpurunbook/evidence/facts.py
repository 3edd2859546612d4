"""What a bundle says of its run: from the journal and the executed notebook alone, so that anyone can compute it again.

The journal says what was observed and decided, the notebook what people see. Where the two or the source disagree, a
good verdict becomes `unknown`; no verdict becomes better.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from gpurunbook.errors import EvidenceError
from gpurunbook.evidence.executed import INJECTED_TAG, Notebook, anomaly, cell_digest, compare, values
from gpurunbook.findings import EXIT, Status, Verdict
from gpurunbook.journal import Record, State, canonical, digest, replay
from gpurunbook.shown.redact import redact
from gpurunbook.shown.scraps import CLOSING

OF_THE_BUNDLE = frozenset({"files", "journal", "notebook", "package", "renderer", "source", "versions"})
"""Fields of the manifest that verdict.json does not repeat."""

_STEP = "gpurunbook.step."
_BOUND = ("renderer", "source", "versions")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

_LOWERING = frozenset({"source", "step", "parameter", "file"})
_LOWERING_OF_STEPS = frozenset({"edited", "deleted", "skipped"})


def closed(records: Sequence[Record], notebook: Notebook) -> None:
    """Writes nothing. Raises EvidenceError unless the notebook shows the journal's last closing record.

    A run that died has none to show, and one whose start failed need not: then it is unknown.
    Codes: `not-closed`, `closing-absent`, `closing-differs`, `closing-foreign`.
    """
    closing = replay(records).closing
    if closing is None:
        raise EvidenceError("the journal has no closing record", code="not-closed")
    heads = {record["hash"] for record in records if record["event"] == "close"}
    shown = False
    for cell, scrap in notebook.scraps(CLOSING):
        head = scrap.get("head") if isinstance(scrap, dict) else None
        if head not in heads:
            raise EvidenceError(
                "the closing scrap in it is of no closing record of this journal",
                subject=f"cell {cell.key}",
                remedy="The notebook is of another run, or was changed.",
                code="closing-foreign",
            )
        if head == closing["hash"]:
            shown = True
            wanted = _closing_scrap(records, closing)
            wrong = sorted(key for key in {*wanted, *scrap} if scrap.get(key) != wanted.get(key))
            if wrong:
                raise EvidenceError(
                    f"the closing scrap differs from the journal in {', '.join(wrong)}",
                    subject=f"cell {cell.key}",
                    remedy="The notebook was changed after it ran.",
                    code="closing-differs",
                )
    if not shown and not _told_nowhere(closing):
        raise EvidenceError(
            f"no cell shows the journal's last closing record ({closing['hash'][:19]}…)",
            subject="the notebook",
            remedy="Save this run's notebook as it is now and seal again; `--notebook FILE` names another place.",
            code="closing-absent",
        )


def _told_nowhere(closing: Record) -> bool:
    """Whether no cell need show the end: that of a run that died, or of a start, whose cell is run again until it goes
    on."""
    return closing["event"] == "died" or (closing["data"]["step"] == "start" and EXIT[closing["data"]["verdict"]] != 0)


def _closing_scrap(records: Sequence[Record], closing: Record) -> dict[str, Any]:
    then = replay(records[: closing["seq"] + 1])
    data = closing["data"]
    return {
        "run": then.run,
        "runbook": then.runbook,
        **{key: data[key] for key in ("verdict", "code", "step")},
        "head": closing["hash"],
        "rehearsal": bool(then.start.get("rehearsal", True)),
    }


def findings(records: Sequence[Record]) -> dict[str, Any]:
    """Writes nothing. What stands in findings.json: every finding with its step, in the order of the journal."""
    steps = replay(records).steps
    return {
        "format": "gpurunbook.findings/v1",
        "findings": [{"step": step, **finding} for step, data in steps.items() for finding in data["findings"]],
    }


def conclude(
    records: Sequence[Record], notebook: Notebook, source: Mapping[str, Any], files: Mapping[str, str]
) -> dict[str, Any]:
    """Writes nothing. What verdict.json and the manifest say of a closed run.

    source: `{"sha256", "cells"}` of the source notebook, both None where it was not found; files: digests of the
    files in the folder. Raises EvidenceError as `closed`, and `odd-name`.
    """
    closed(records, notebook)
    state = replay(records)
    assert state.closing is not None
    for name in (state.run, state.runbook):
        if not _NAME.fullmatch(name):  # files are named by it: it must not lead out of a folder
            raise EvidenceError(f"{name!r:.120} is no name of a run or runbook", subject="the journal", code="odd-name")
    anomalies = [*_begun_anew(records), *_source(state, source), *_compared(source, notebook), *_stale(state, notebook)]
    anomalies += [*_steps(state, notebook), *_parameters(state, notebook), *_files(records, files)]
    steps = set(state.steps)
    lowered = [
        entry
        for entry in anomalies
        if entry["kind"] in _LOWERING or (entry["kind"] in _LOWERING_OF_STEPS and entry["cell"] in steps)
    ]
    lowered = lowered if EXIT[state.verdict] == 0 else []
    told = any(scrap["head"] == state.closing["hash"] for _, scrap in notebook.scraps(CLOSING))
    if not told and state.verdict is not Verdict.UNKNOWN:
        anomalies.append(anomaly("closing", "", "no cell shows any more how its start ended"))
        lowered = anomalies[-1:]
    verdict = Verdict.UNKNOWN if lowered else state.verdict
    return {
        "run": state.run,
        "runbook": state.runbook,
        "verdict": str(verdict),
        "exit": EXIT[verdict],
        "closed": _closing(state),
        "lowered": lowered,
        "anomalies": anomalies,
        "not_run": [cell.key for cell in notebook.cells if cell.code and cell.ran is None],
        "steps": [_step(step, data) for step, data in state.steps.items()],
        "parameters": state.start["parameters"],
        **_who(records, state),
        "start": records[0]["time"],
        "end": state.closing["time"],
        "head": state.closing["hash"],
    }


def bound(manifest: Mapping[str, Any]) -> str:
    """Writes nothing. A digest of the fields that stand in the manifest alone; verdict.json holds it, so that none of
    them can be changed there only."""
    return digest(canonical({name: manifest[name] for name in _BOUND}))


def shown(notebook: Notebook) -> dict[str, Any]:
    """Writes nothing. Digests of the notebook and each cell, the same for two runs that showed the same."""
    cells = [{"id": cell.key, "sha256": cell_digest(cell)} for cell in notebook.cells]
    return {"sha256": digest(canonical([cell["sha256"] for cell in cells])), "cells": cells}


def _closing(state: State) -> dict[str, Any]:
    assert state.closing is not None
    data = state.closing["data"]
    if state.closing["event"] == "died":
        again = f"gpurunbook run {state.runbook} --run-id {state.run}"
        data = {"verdict": Verdict.UNKNOWN, "code": "died", "message": data["reason"], "next": again, **data}
    return {
        "event": state.closing["event"],
        **{key: str(data.get(key, "")) for key in ("verdict", "code", "step", "message", "next")},
    }


def _step(step: str, data: Mapping[str, Any]) -> dict[str, Any]:
    counts = {str(status): sum(f["status"] == status for f in data["findings"]) for status in Status}
    return {"id": step, **{key: data[key] for key in ("title", "status", "passed")}, "findings": counts}


def _who(records: Sequence[Record], state: State) -> dict[str, Any]:
    seen = state.clusters
    granted = [record["data"] for record in records if record["event"] == "authorised"]
    authority = granted[-1] if granted else {}
    # Several, where one approval of the plan ended in the middle of the run.
    approvers = dict.fromkeys(data["approver"] for data in granted if data["plan"] == authority["plan"])
    given = state.start["parameters"]
    reasons = sorted({reason for data in seen for reason in data["rehearsal_reasons"]})
    return {
        "cluster": state.start.get("cluster"),
        "operator": state.start.get("operator"),
        # A run whose cluster was never identified is no evidence about any.
        "rehearsal": not seen or any(data["rehearsal"] for data in seen),
        "rehearsal_reasons": reasons if seen else ["the cluster was not identified"],
        "change_id": given.get("change_id", ""),
        "reason": given.get("reason", ""),
        "approver": ", ".join(filter(None, approvers)),
        "break_glass": any(data.get("break_glass", False) for data in granted),
        "overrides": authority.get("overrides", []),
        "left_behind": _left_behind(records, state),
    }


def _left_behind(records: Sequence[Record], state: State) -> list[str]:
    assert state.closing is not None
    if state.closing["event"] == "close":
        return list(state.closing["data"]["left_behind"])
    sent = [record["data"] for record in records if record["event"] == "intent"]
    return sorted(
        {f"{data['target']['kind']} {data['target']['name']}: {data['name']} was begun; look at it" for data in sent}
    )


def _begun_anew(records: Sequence[Record]) -> Iterator[dict[str, str]]:
    """Where the run was started again with other parameters, before anything had counted."""
    starts = [record for record in records if record["event"] == "start"]
    for earlier, later in pairwise(starts):
        old, new = (record["data"]["parameters"] for record in (earlier, later))
        told = ", ".join(
            f"{name} was {old.get(name)!r}, is {new.get(name)!r}"
            for name in sorted({*old, *new} - {"run_id"})
            if old.get(name) != new.get(name)
        )
        yield anomaly("begun-anew", "", f"started again at {later['time']}, and what was before is void: {told}")


def _source(state: State, source: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    if source["sha256"] is None:
        yield anomaly("source", "", "the source notebook was not found, so edited cells cannot be told")
    elif source["sha256"] != state.start["source"]:
        yield anomaly("source", "", "the source notebook is not the one that the run began with")


def _compared(source: Mapping[str, Any], notebook: Notebook) -> list[dict[str, str]]:
    return compare(source["cells"], notebook) if source["cells"] is not None else []


def _stale(state: State, notebook: Notebook) -> Iterator[dict[str, str]]:
    assert state.closing is not None
    for cell, scrap in notebook.scraps(CLOSING):
        if scrap["head"] != state.closing["hash"]:
            yield anomaly("stale", cell.key, "it shows an earlier end of this run, which was taken back")
    for cell in notebook.cells:
        for name, scrap in cell.scraps.items():
            step = name.removeprefix(_STEP)
            # Of several scraps of a name other readers take the last, wherever it stands.
            if step != name and step != cell.id and not _shows(scrap, state.steps.get(step)):
                yield anomaly("stale", cell.key, f"it shows the step {step} as it was not judged at the end")


def _shows(scrap: Any, data: Mapping[str, Any] | None) -> bool:
    """Whether it is the scrap of what was judged. As text, for Python takes 1 for True."""
    return data is not None and canonical(scrap) == canonical({key: data[key] for key in ("status", "passed", "facts")})


def _steps(state: State, notebook: Notebook) -> Iterator[dict[str, str]]:
    """Where the notebook does not show a step as the journal has it."""
    for step, data in state.steps.items():
        cell = notebook.cell(step)
        name = f"{_STEP}{step}"
        if cell is None or name not in cell.scraps:
            shows = f"it shows {cell.errors[-1].get('ename')}" if cell is not None and cell.errors else ""
            again = "run it again, then the last cell; save, and seal again" if cell is not None else ""
            told = "no cell of this id shows what the journal says was judged"
            yield anomaly("step", step, "; ".join(filter(None, (told, shows, again))))
        elif not _shows(cell.scraps[name], data):
            yield anomaly("step", step, "the cell shows something else than the journal says was judged")
        elif cell.errors and data["passed"]:
            yield anomaly("step", step, "the journal says that it passed, the cell shows an error")


def _parameters(state: State, notebook: Notebook) -> Iterator[dict[str, str]]:
    """Where the parameter cells, or what papermill noted, are not the parameters of the journal."""
    given = {name: value for name, value in state.start["parameters"].items() if name != "run_id"}
    effective: dict[str, tuple[str, Any]] = {}
    for cell in notebook.cells:
        if {"parameters", INJECTED_TAG} & set(cell.tags):
            effective |= {name: (cell.key, value) for name, value in (values(cell.source) or {}).items()}
    noted = {name: ("the papermill metadata", value) for name, value in notebook.noted.items()}
    for name, (where, value) in [*sorted(effective.items()), *sorted(noted.items())]:
        if name in given and not _equal(value, given[name]):
            yield anomaly("parameter", where, f"{name} is not what the run was started with")


def _equal(value: Any, given: Any) -> bool:
    try:
        return canonical(redact(value)) == canonical(given)
    except (TypeError, ValueError):
        return False


def _files(records: Sequence[Record], files: Mapping[str, str]) -> Iterator[dict[str, str]]:
    recorded: dict[str, str] = {}
    for record in records:
        if record["event"] == "judged":
            recorded |= record["data"]["files"]
    for name, wanted in sorted(recorded.items()):
        if files.get(name) != wanted:
            yield anomaly("file", name, "is not what was judged" if name in files else "was judged and is missing")
