"""run.change: plan, dry run or approved apply, through the one door."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import yaml

from gpurunbook.errors import Drifted, GateError, NotFound
from gpurunbook.findings import Finding, Status
from gpurunbook.journal import canonical, timestamp
from gpurunbook.plan import Change, Mutation, Planned, Table
from gpurunbook.runbook import approval, keep, lease, plans
from gpurunbook.runbook.ledger import Ledger
from gpurunbook.runbook.site import Site
from gpurunbook.sources.door import Door, Outcome

_CHANGE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/#-]{0,63}")


@dataclass(frozen=True)
class Authority:
    """What an apply stands on: the plan of its dry run, who approved it, and whether glass was broken."""

    plan: plans.Plan
    approver: str
    expires: str
    break_glass: bool


def authorise(run: Ledger, site: Site, uid: str) -> Authority:
    """Appends `authorised` once per kernel. Raises GateError, with a code for each thing that is missing or wrong."""
    p = run.parameters
    for field in ("expect_cluster", "change_id", "reason", "plan"):
        if not str(getattr(p, field)).strip():
            raise GateError(
                "is empty, and apply needs it",
                subject=f"parameter {field!r}",
                remedy="The end of the dry run shows the lines to paste.",
                code=f"{field.replace('_', '-')}-missing",
            )
    if not _CHANGE_ID.fullmatch(p.change_id):
        raise GateError(
            f"{p.change_id!r:.80} is no change id: wanted letters, digits and ._:/#- (at most 64)",
            subject="parameter 'change_id'",
            remedy="It is written into annotations and approvals as it stands.",
            code="change-id-malformed",
        )
    if not run.state.start["operator"]["name"]:
        raise GateError(
            "the API server does not say who the operator is (no SelfSubjectReview)",
            subject="operator",
            remedy="Only a dry run is possible here.",
            code="operator-unknown",
        )
    plan = plans.find(run.folder.parent, p.plan)
    for field, wanted in (("runbook", run.book.name), ("cluster", uid)):
        if plan.document[field] != wanted:
            raise GateError(
                f"it was made for {field} {plan.document[field]}, this is {wanted}",
                subject=f"plan {p.plan[:19]}…",
                remedy="Make a dry run here.",
                code=f"plan-other-{field}",
            )
    authority = _approved(run, site, plan)
    run.journal.append(
        "authorised",
        {
            "plan": plan.digest,
            "dry_run": plan.run,
            "approver": authority.approver,
            "expires": authority.expires,
            "break_glass": authority.break_glass,
            "change_id": p.change_id,
            "reason": p.reason,
        },
    )
    return authority


def _approved(run: Ledger, site: Site, plan: plans.Plan) -> Authority:
    p = run.parameters
    if run.book.name not in site.approval:
        return Authority(plan, "", "", break_glass=False)
    if p.break_glass:
        if site.break_glass:
            return Authority(plan, "", "", break_glass=True)
        raise GateError(
            "the site file does not allow break_glass",
            subject="parameter 'break_glass'",
            remedy="Ask for an approval.",
            code="break-glass-forbidden",
        )
    approver, expires = approval.judge(
        run.home / p.approval if p.approval else plan.folder / approval.NAME,
        site=site,
        home=run.home,
        operator=run.state.start["operator"]["name"],
        change_id=p.change_id,
        plan=plan.digest,
        now=run.clock(),
    )
    return Authority(plan, approver, expires, break_glass=False)


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


def perform(run: Ledger, door: Door, step: str, change: Change, authority: Authority | None) -> None:
    """Changes what the step plans, or proves by dry run that it could; records, shows, and stops unless it is good.

    authority: None for a dry run. What is sent is what the plan of the dry run says; before the first mutation of
    the step the plan is made afresh, and must be the same.
    """
    begun = any(r["event"] == "intent" and r["data"]["step"] == step for r in run.journal.records)
    seen, inputs = run.observe(change.needs, change.follow)
    planned = change.plan(seen) if not begun else Planned(_going_on(step))
    mutations = list(planned.mutations)
    if authority is not None and not _refused(planned):
        approved = authority.plan.mutations(step)
        if not begun:
            _same(step, mutations, approved)
        mutations = approved
    findings = list(planned.findings)
    outcomes: dict[str, Outcome] = {}
    files = dict(inputs)
    if not _refused(planned):
        for mutation in mutations:
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
            "applied": authority is not None,
            "outcomes": {name: outcome.how for name, outcome in outcomes.items()},
        },
    )


def _refused(planned: Planned) -> bool:
    return not planned.findings or any(f.status in (Status.FAIL, Status.UNKNOWN) for f in planned.findings)


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
    return json.dumps(value, sort_keys=True)[:120]


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
        (m.name, m.verb, f"{m.target.kind} {m.target.name}", _short(m.body), outcomes[m.name].how)
        for m in mutations
        if m.name in outcomes
    ]
    return Table(
        f"Mutations of step {step}",
        ("name", "verb", "object", "body", "outcome"),
        rows,
        note="none" if not rows else "",
    )


def left_behind(run: Ledger) -> list[str]:
    """Writes nothing. Mutations that this run sent and did not undo, with the command that undoes them."""
    standing: dict[str, str] = {}
    for record in run.journal.records:
        data = record["data"]
        if record["event"] not in {"intent", "result"}:
            continue
        target = f"{data['target']['kind']} {data['target']['name']}"
        key = f"{target}:{data['name']}"
        if data["name"] == "lease-back" and record["event"] == "result":
            standing.pop(f"{target}:lease", None)
        elif data["name"] == "release" and record["event"] == "result":
            standing = {k: v for k, v in standing.items() if not k.startswith(f"{target}:")}
        elif data["name"] != "lease-back":
            sure = "" if record["event"] == "result" else " (sent; the outcome is not known yet)"
            standing[key] = f"{target}: {data['name']} by run {run.id}{sure}"
    return sorted(standing.values())


def take_lease(run: Ledger, door: Door, site: Site) -> None:
    """Takes the Lease of the run's target, unless it has it: creates it, or takes it over from the run that is named.

    Raises GateError `lease-held` when another run holds it.
    """
    target = _target(run)
    if not target:
        return
    namespace = site.lease_namespace
    found = _lease(run, namespace, target)
    holder = str((found.get("spec") or {}).get("holderIdentity") or "") if found else ""
    mutation = lease.acquire(namespace, target)
    if found and holder and holder == run.parameters.take_over:
        mutation = lease.take_over(namespace, target, str(found["metadata"]["uid"]), holder)
    try:
        door.send("lease", mutation, words(run, "lease"))
    except Drifted as wrong:
        found = _lease(run, namespace, target) or {}
        spec = found.get("spec") or {}
        raise GateError(
            f"run {spec.get('holderIdentity')} holds it since {spec.get('acquireTime')}",
            subject=f"lease {namespace}/{lease.name(target)}",
            remedy="Wait until that run closes. If it died, resume it, or name it in parameter take_over.",
            code="lease-held",
        ) from wrong


def _lease(run: Ledger, namespace: str, target: str) -> dict[str, Any] | None:
    try:
        return run.cluster.object(f"{lease.collection(namespace)}/{lease.name(target)}")
    except NotFound:
        return None


def return_lease(run: Ledger, door: Door, site: Site) -> None:
    """Deletes the Lease that this run holds, if it holds one."""
    target = _target(run)
    found = _lease(run, site.lease_namespace, target) if target else None
    if found and (found.get("spec") or {}).get("holderIdentity") == run.id:
        uid = str(found["metadata"]["uid"])
        door.send("lease", lease.give_back(site.lease_namespace, target, uid), words(run, "lease"))


def _target(run: Ledger) -> str:
    return run.book.lease.format_map(msgspec.structs.asdict(run.parameters))


APPLY = "apply.yaml"
"""The parameters of the apply that belongs to a dry run."""


def close_planned(run: Ledger) -> tuple[str, str]:
    """Writes `plan.json`, and `apply.yaml` with the parameters of its apply. The digest, and the lines to paste."""
    order = [step.id for step in run.book.steps]
    uid = run.state.start["cluster"]["uid"]
    plan = plans.write(run.folder, plans.document(run.book.name, uid, run.journal.records, order))
    needed = {"apply": True, "plan": plan, "expect_cluster": uid}
    given = {**msgspec.to_builtins(run.parameters), **needed, "run_id": ""}
    keep.write(run.folder / APPLY, yaml.safe_dump(given, sort_keys=False).encode())
    for name in ("change_id", "reason"):
        needed[name] = getattr(run.parameters, name) or "…"
    return plan, "\n".join(
        f"{name} = {json.dumps(value) if value is not True else value}" for name, value in needed.items()
    )
