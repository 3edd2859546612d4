"""run.change: plan, dry run or approved apply, through the one door."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import yaml

from gpurunbook.errors import Drifted
from gpurunbook.findings import Finding, Status
from gpurunbook.folder import keep
from gpurunbook.folder.parameters import BLANK
from gpurunbook.journal import Record, canonical, timestamp
from gpurunbook.plan import Change, Mutation, Planned, Table
from gpurunbook.runbook import plans
from gpurunbook.runbook.authority import wanting
from gpurunbook.runbook.ledger import Ledger
from gpurunbook.sources.door import Door, Outcome

AGAIN = "-again-"
"""Between the name of a mutation and a number, when what it made was lost and is made again."""


def words(run: Ledger, step: str) -> dict[str, str]:
    """Writes nothing. What the placeholders of a mutation stand for in this run and step."""
    p = run.parameters
    return {
        "run": run.id,
        "runbook": run.book.name,
        "step": step,
        "time": timestamp(run.clock()),
        "head": run.journal.head,
        "change_id": p.change_id,
        "reason": p.reason,
        "plan": p.plan,
    }


def finished(run: Ledger, door: Door, step: str, plan: plans.Plan) -> bool:
    """Writes nothing. Whether this run has carried out every mutation of the step, and each is still so."""
    mutations = plan.mutations(step)
    return bool(mutations) and all(_done(run, step, m) and door.holds(step, m, words(run, step)) for m in mutations)


def _done(run: Ledger, step: str, mutation: Mutation) -> bool:
    results = (r["data"] for r in run.journal.records if r["event"] == "result")
    return any((d["step"], d["name"]) == (step, mutation.name) and d["how"] != "refused" for d in results)


def perform(run: Ledger, door: Door, step: str, change: Change, plan: plans.Plan | None) -> None:
    """Changes what the step plans, or proves by dry run that it could; records, shows, and stops unless it is good.

    plan: that of the dry run, None in one. What is sent is what it says; before the first mutation of the step the
    plan is made afresh, and must be the same. What this run did once and somebody undid is not done again: that
    raises Drifted.
    """
    begun = any(begun_step == step for begun_step, _ in run.state.begun)
    seen, inputs = run.observe(change.needs, change.follow)
    planned = change.plan(seen) if not begun else Planned(_going_on(step))
    mutations = list(planned.mutations)
    if plan is not None and not _refused(planned):
        approved = plan.mutations(step)
        if not begun:
            _same(step, mutations, approved)
        mutations = approved
    findings = list(planned.findings)
    outcomes: dict[str, Outcome] = {}
    files = dict(inputs)
    if not _refused(planned):
        for mutation in mutations:
            if plan is not None and _done(run, step, mutation):
                _still_so(run, door, step, mutation)
            outcome = door.send(step, mutation, words(run, step))
            outcomes[mutation.name] = outcome
            files |= _snapshots(run, step, mutation, outcome)
            findings.append(_told(step, mutation, outcome))
    run.judged(
        step,
        change.title,
        findings,
        views=(*planned.views, _table(step, mutations, outcomes)),
        files=files,
        against=change.against,
        extra={
            "mutations": [m.as_json() for m in mutations],
            "applied": plan is not None,
            "outcomes": {name: outcome.how for name, outcome in outcomes.items()},
        },
    )


def _refused(planned: Planned) -> bool:
    return not planned.findings or any(f.status in (Status.FAIL, Status.UNKNOWN) for f in planned.findings)


def _still_so(run: Ledger, door: Door, step: str, mutation: Mutation) -> None:
    if not door.holds(step, mutation, words(run, step)):
        raise Drifted(
            "this run did it, and somebody has undone it since",
            subject=f"{mutation.name} of {mutation.target.kind} {mutation.target.name}",
            remedy="Find out who and why; to do it again, make a new dry run.",
            code="undone",
        )


def _going_on(step: str) -> tuple[Finding, ...]:
    return (
        Finding(step, step, Status.PASS, "going-on", "this step was begun before; each object is read and settled"),
    )


def _same(step: str, fresh: list[Mutation], approved: list[Mutation]) -> None:
    left, right = [m.as_json() for m in fresh], [m.as_json() for m in approved]
    if canonical(left) == canonical(right):
        return
    raise Drifted(
        "the plan made now is not the one of the dry run: " + "; ".join(_diff(right, left, "")[:6]),
        subject=f"step {step!r}",
        remedy="Look at what changed, then make a new dry run.",
        code="plan-changed",
    )


def _diff(old: Any, new: Any, path: str) -> list[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        keys = sorted({*old, *new})
        return [line for key in keys for line in _diff(old.get(key), new.get(key), f"{path}/{key}")]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [line for n, pair in enumerate(zip(old, new, strict=True)) for line in _diff(*pair, f"{path}/{n}")]
    return [] if old == new else [f"{path or '/'} was {_short(old)}, is {_short(new)}"]


def _short(value: Any) -> str:
    text = json.dumps(_read(value), sort_keys=True, ensure_ascii=False)
    return text if len(text) <= 240 else f"{text[:239]}…"


def _read(value: Any) -> Any:
    """JSON that stands in a string, as an annotation has it, as what it says."""
    if isinstance(value, Mapping):
        return {key: _read(inner) for key, inner in value.items()}
    if isinstance(value, str) and value[:1] == "{":
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def _field(pointer: str) -> str:
    """A JSON pointer for people: a key with a slash in quotes instead of `~1`."""
    keys = [key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")]
    return "/".join(f'"{key}"' if "/" in key else key for key in keys)


def _snapshots(run: Ledger, step: str, mutation: Mutation, outcome: Outcome) -> dict[str, str]:
    kept: dict[str, str] = {}
    for folder, found in (("before", outcome.before), ("after", outcome.after)):
        if found is not None and outcome.how != "validated":
            data = json.dumps(found, sort_keys=True, indent=1).encode()
            kept |= run.keep_files({f"{step}-{mutation.name}.json": data}, folder)
    return kept


def _told(step: str, mutation: Mutation, outcome: Outcome) -> Finding:
    what = f"{mutation.target.namespace or '-'}/{mutation.target.kind}/{mutation.target.name}"
    if outcome.how == "not-validated":
        return Finding(
            step,
            what,
            Status.UNKNOWN,
            "dry-run-not-validated",
            f"the server did not validate this change: {outcome.why}",
            "A dry run needs the write permission, and webhooks without side effects.",
        )
    said = {
        "applied": "changed",
        "already": f"nothing to do: {outcome.why}",
        "recovered": f"changed; {outcome.why}",
        "validated": "the server would accept this change; nothing was written",
    }[outcome.how]
    return Finding(step, what, Status.PASS, f"change-{outcome.how}", said)


def _table(step: str, mutations: list[Mutation], outcomes: Mapping[str, Outcome]) -> Table:
    rows = [
        (m.name, f"{m.verb} {m.target.kind} {m.target.name}", line, outcomes[m.name].how)
        for m in mutations
        if m.name in outcomes
        for line in lines(m)
    ]
    return Table(
        f"Mutations of step {step}",
        ("name", "object", "what it does", "outcome"),
        rows,
        note="none" if not rows else "",
    )


def lines(mutation: Mutation) -> list[str]:
    """Writes nothing. What a mutation does, a line for each field that it writes; the tests of a JSON patch are one."""
    match mutation.verb, mutation.patch:
        case "patch", "json":
            writes = [operation for operation in mutation.body if operation["op"] != "test"]
            made = [f"{o['op']} {_field(o['path'])}{_value(o)}" for o in writes]
            tests = len(mutation.body) - len(writes)
            return [*made, f"only while {tests} fields are as judged"] if tests else made
        case "patch", _:
            return [f"set {path} = {_short(value)}" for path, value in _leaves(mutation.body, "")]
        case "create", _:
            return [f"create {_short(mutation.body)}"]
    return [mutation.verb]


def _value(operation: Mapping[str, Any]) -> str:
    return f" = {_short(operation['value'])}" if "value" in operation else ""


def _leaves(value: Any, path: str) -> list[tuple[str, Any]]:
    if not isinstance(value, Mapping) or not value:
        return [(path, value)]
    return [leaf for key, inner in value.items() for leaf in _leaves(inner, f"{path}/{key}")]


def first_words(records: Sequence[Record], step: str) -> dict[str, str]:
    """Writes nothing. The moment's words with which the first mutation of a step was sent; {} when none was."""
    for record in records:
        if record["event"] == "intent" and record["data"]["step"] == step:
            return dict(record["data"]["words"])
    return {}


def times_again(records: Sequence[Record], *, in_step: bool = False) -> int:
    """Writes nothing. How often something lost was to be made again, in the whole run or since the open step began."""
    count = 0
    for record in records:
        if in_step and record["event"] == "step":
            count = 0
        count += record["event"] == "intent" and AGAIN in record["data"]["name"]
    return count


APPLY = "apply.yaml"
"""The parameters of the apply that belongs to a dry run."""


def close_planned(run: Ledger) -> tuple[str, str, bool]:
    """Writes `plan.json`, and `apply.yaml` with the parameters of its apply. The digest; the lines to paste: they are
    all that the apply needs, at the end of the parameters cell of a new working copy; whether it changes anything."""
    order = [step.id for step in run.book.steps]
    uid = run.state.start["cluster"]["uid"]
    document = plans.document(run.book.name, uid, run.journal.records, order)
    plan = plans.write(run.folder, document)
    needed = {"apply": True, "plan": plan, "expect_cluster": uid}
    missing = dict.fromkeys(wanting(run.parameters), "")
    given = {**msgspec.to_builtins(run.parameters), **needed, **missing, "run_id": ""}
    text = yaml.safe_dump(given, sort_keys=False)
    for name in missing:
        text = text.replace(f"\n{name}: ''\n", f"\n{name}: ''  # the apply needs it\n")
    keep.kept(run.folder / APPLY, text.encode())
    asked = {name: given[name] or BLANK for name in ("change_id", "reason")}
    usual = msgspec.to_builtins(type(run.parameters)())
    shown = {k: v for k, v in {**given, **asked}.items() if k in needed or k in asked or v != usual[k]}
    lines = "\n".join(f"{name} = {_literal(value)}" for name, value in shown.items())
    return plan, lines, any(step["mutations"] for step in document["steps"])


def _literal(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
