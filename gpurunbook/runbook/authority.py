"""What an apply stands on: complete parameters, the plan of its dry run, and an approval where the site wants one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from gpurunbook.errors import GateError, NotApproved
from gpurunbook.folder import parameters
from gpurunbook.plan import Approved
from gpurunbook.runbook import approval, plans
from gpurunbook.runbook.ledger import Ledger
from gpurunbook.runbook.site import Site

_BEHIND = timedelta(minutes=5)
"""A clock that is so far behind the records of its run is told of."""

CHANGE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/#-]{0,63}")


def wanting(parameters: Any) -> list[str]:
    """Writes nothing. Which of the parameters that a person must give before an apply are not given."""
    return [name for name in ("change_id", "reason") if _empty(getattr(parameters, name))]


def _empty(value: str) -> bool:
    return value.strip() in ("", parameters.BLANK)


def demand(run: Ledger) -> None:
    """Writes nothing. Raises GateError when a parameter that an apply needs is empty or malformed."""
    p = run.parameters
    for field in ("expect_cluster", "change_id", "reason", "plan"):
        if _empty(str(getattr(p, field))):
            raise GateError(
                "is empty, and apply needs it",
                subject=f"parameter {field!r}",
                remedy="The end of the dry run shows the lines to paste, and its apply.yaml holds them.",
                code=f"{field.replace('_', '-')}-missing",
            )
    if not CHANGE_ID.fullmatch(p.change_id):
        raise GateError(
            f"{p.change_id!r:.80} is no change id: wanted letters, digits and ._:/#- (at most 64)",
            subject="parameter 'change_id'",
            remedy="It is written into annotations and approvals as it stands.",
            code="change-id-malformed",
        )


def plan(run: Ledger, uid: str) -> plans.Plan:
    """Writes nothing. The plan that an apply carries out. Raises GateError, with a code for each thing that is missing
    or wrong."""
    p = run.parameters
    demand(run)
    if not run.state.start["operator"]["name"]:
        raise GateError(
            "the API server does not say who the operator is (no SelfSubjectReview)",
            subject="operator",
            remedy="Only a dry run is possible here.",
            code="operator-unknown",
        )
    found = plans.find(run.folder.parent, p.plan)
    for field, wanted in (("runbook", run.book.name), ("cluster", uid)):
        if found.document.get(field) != wanted:
            raise GateError(
                f"it was made for {field} {found.document.get(field)}, this is {wanted}",
                subject=f"plan {p.plan[:19]}…",
                remedy="Make a dry run here.",
                code=f"plan-other-{field}",
            )
    return found


def permit(run: Ledger, site: Site, found: plans.Plan) -> None:
    """Appends `authorised`, unless it is what this kernel wrote last. Called before each change that is sent: an
    approval may end, or be taken back, between two of them. Raises NotApproved, GateError `break-glass-forbidden`, and
    `operator-changed` when it would be sent as somebody else than the journal names."""
    was, now = run.state.start["operator"]["name"], run.cluster.operator()
    if now != was:
        raise GateError(
            f"the credentials that were loaded again are of {now or 'nobody whom the API server names'}, the run was "
            f"started by {was}",
            subject="operator",
            remedy="Nothing was sent. Log in as the one who started it, or start the kernel anew: then that is noted.",
            code="operator-changed",
        )
    approver, expires, glass = _approved(run, site, found)
    granted = {
        "plan": found.digest,
        "dry_run": found.run,
        "approver": approver,
        "expires": expires,
        "break_glass": glass,
        "change_id": run.parameters.change_id,
        "reason": run.parameters.reason,
    }
    if _last_granted(run) != granted:
        run.journal.append("authorised", granted)


def _last_granted(run: Ledger) -> Mapping[str, Any]:
    for record in reversed(run.journal.records):
        if record["event"] in ("authorised", "start", "resume"):
            return record["data"] if record["event"] == "authorised" else {}
    return {}


def of_digest(run: Ledger, site: Site, digest: str) -> Approved:
    """Appends `authorised` when another person has signed the digest, where the site file lists the runbook.

    The approval is the file that parameter `approval` names, else `approval.json` of the run folder. Raises NotApproved
    as `approval.judge`, and GateError `change-id-missing`.
    """
    if run.book.name not in site.approval:
        return Approved(demanded=False)
    p = run.parameters
    if "change_id" in wanting(p):
        given = {name: value for name, value in run.state.start["parameters"].items() if name != "change_id"}
        raise GateError(
            "is empty, and an approval names it",
            subject="parameter 'change_id'",
            remedy=f"A new run takes it: `{parameters.command(run.book, given)} --set change_id={parameters.BLANK}`.",
            code="change-id-missing",
        )
    approver, expires = _judged(run, site, run.folder, digest)
    granted = {"plan": digest, "approver": approver, "expires": expires, "change_id": p.change_id, "reason": p.reason}
    run.journal.append("authorised", {**granted, "break_glass": False})
    return Approved(True, approver, expires)


def asked(run: Ledger, site: Site, folder: str) -> str:
    """Writes nothing. How another person signs the plan of this dry run, and what of the site keeps any signature from
    counting; empty where none is needed. folder: of the run, as it is printed."""
    p = run.parameters
    if run.book.name not in site.approval or p.break_glass:
        return ""
    odd = approval.obstacle(site, run.home, run.state.start["operator"]["name"])
    first = f"No approval would count yet: {odd.message}. {odd.remedy} Then another" if odd else "Another"
    change = parameters.BLANK if "change_id" in wanting(p) else shlex.quote(p.change_id)
    return f"{first} person signs it first: `gpurunbook approve {folder} --key KEY --change-id {change}`. Then "


def _judged(run: Ledger, site: Site, folder: Path, digest: str) -> tuple[str, str]:
    """Approver and expiry of the approval that the parameter names, else of the one in the folder."""
    p = run.parameters
    path = run.home / p.approval if p.approval else folder / approval.NAME
    try:
        return approval.judge(
            path,
            site=site,
            home=run.home,
            operator=run.state.start["operator"]["name"],
            change_id=p.change_id,
            plan=digest,
            now=run.latest(),
        )
    except NotApproved as wrong:
        remedy = _another(run, folder, path) if wrong.remedy == approval.AGAIN else wrong.remedy
        subject = f"approval {_short(run, path)} of plan {digest[:19]}…"
        behind = run.latest() - run.clock() > _BEHIND
        clock = (
            f"; this machine's clock says {run.clock():%Y-%m-%dT%H:%M:%SZ}, behind the run's records" if behind else ""
        )
        raise NotApproved(wrong.message + clock, subject=subject, remedy=remedy, code=wrong.code) from None


def _another(run: Ledger, folder: Path, path: Path) -> str:
    """How to ask for an approval of the same plan."""
    own = folder / approval.NAME
    words = ["gpurunbook", "approve", _short(run, folder), "--key", "KEY", "--change-id", run.parameters.change_id]
    asked = shlex.join([*words, "--replace"] if own.exists() else words)
    there = "" if path == own else f", and put it and its signature in the place of {_short(run, path)}"
    sent = "Nothing more is sent. " if run.state.changed else ""
    return f"{sent}Ask for {'another one' if path.exists() else 'one'} of this plan: `{asked}`{there}."


def _short(run: Ledger, path: Path) -> str:
    return str(path.relative_to(run.home) if path.is_relative_to(run.home) else path)


def _approved(run: Ledger, site: Site, found: plans.Plan) -> tuple[str, str, bool]:
    """Who approved it, until when, and whether glass is broken instead."""
    p = run.parameters
    if run.book.name not in site.approval:
        return "", "", False
    if p.break_glass:
        if site.break_glass:
            return "", "", True
        raise GateError(
            "the site file does not allow break_glass",
            subject="parameter 'break_glass'",
            remedy="Ask for an approval.",
            code="break-glass-forbidden",
        )
    return *_judged(run, site, found.folder, found.digest), False
