"""Approvals: a detached signature over change id, expiry and plan digest, by someone other than the operator."""

from __future__ import annotations

import contextlib
import json
import re
from datetime import UTC, datetime
from pathlib import Path

from gpurunbook.errors import EvidenceError, InputError, NotApproved
from gpurunbook.evidence import cosign, detached, signing
from gpurunbook.evidence.bundle import COSIGN, SSH
from gpurunbook.folder import keep
from gpurunbook.journal import canonical
from gpurunbook.runbook.site import Site

NAME = "approval.json"
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
AGAIN = "Ask for an approval of this plan: `gpurunbook approve`."


def signed_bytes(change_id: str, expires: str, plan: str) -> bytes:
    """Writes nothing. What is signed: canonical JSON of change_id, expires and plan, and a newline."""
    return canonical({"change_id": change_id, "expires": expires, "plan": plan}) + b"\n"


def approve(folder: Path, *, change_id: str, expires: datetime, plan: str, key: Path | str) -> Path:
    """Writes `approval.json` and its signature into the folder of the dry run. The path of the former.

    key: an ssh key, or one of cosign's.
    """
    until = expires.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    data = signed_bytes(change_id, until, plan)
    end, signature = detached.sign(data, key, signing.APPROVAL)
    other = SSH if end == COSIGN else COSIGN
    (folder / f"{NAME}{other}").unlink(missing_ok=True)
    keep.kept(folder / f"{NAME}{end}", signature)
    keep.kept(folder / NAME, data)
    return folder / NAME


def judge(
    path: Path | None, *, site: Site, home: Path, operator: str, change_id: str, plan: str, now: datetime
) -> tuple[str, str]:
    """Writes nothing. Approver and expiry of a valid approval.

    Raises NotApproved with a code of its own for each way in which it is none: `no-approval`,
    `approval-unreadable`, `approval-other-plan`, `approval-other-change`, `approval-expired`,
    `approval-untrusted`, `operator-unknown`, `operator-unmapped`, `approved-by-operator`.
    """
    if path is None or not path.is_file():
        raise _no("no-approval", "there is no approval of this plan")
    if odd := obstacle(site, home, operator):
        raise odd
    data, until = _read(path, change_id, plan)
    if until <= now:
        raise _no("approval-expired", f"it expired at {until:%Y-%m-%dT%H:%M:%SZ}, and it is {now:%Y-%m-%dT%H:%M:%SZ}")
    try:
        approvers = _signed_by(data, path, site, home, site.principals[operator])
    except OSError as wrong:
        raise _no("approval-unreadable", f"its signature cannot be read: {wrong.strerror}") from None
    except (EvidenceError, InputError) as wrong:
        raise _no("approval-untrusted", wrong.message) from None
    if site.principals[operator] in approvers:
        raise _no("approved-by-operator", f"the key that signed is {site.principals[operator]}'s, the operator")
    return approvers[0], until.strftime("%Y-%m-%dT%H:%M:%SZ")


def obstacle(site: Site, home: Path, operator: str) -> NotApproved | None:
    """Writes nothing. Why no approval counts here, whoever signs it: the operator, or the files of the site; None where
    one may count."""
    if not operator:
        message, remedy = "the API server does not say who the operator is", "Only a dry run is possible here."
        return NotApproved(message, subject="approval", remedy=remedy, code="operator-unknown")
    if not _mapped(operator, site, home):
        return NotApproved(
            f"the site file maps API user {operator!r} to no signer, so nobody can be told apart from the operator",
            subject="approval",
            remedy="Add the user under principals in the site file, with a name that signers or cosign_keys have.",
            code="operator-unmapped",
        )
    named = [name for name in (site.signers, *site.cosign_keys.values()) if name]
    if not any((home / name).is_file() for name in named):
        message = f"no such file of a signer: {', '.join(named)}" if named else "the site file names no signers"
        remedy = "Put it there, or correct signers or cosign_keys in the site file."
        return NotApproved(message, subject="approval", remedy=remedy, code="approval-untrusted")
    return None


def _mapped(operator: str, site: Site, home: Path) -> bool:
    """Whether the operator has a name of a signer: by one that stands nowhere else his own key would be another's."""
    name = site.principals.get(operator)
    if name is None or name in site.cosign_keys:
        return name is not None
    try:
        return signing.lists(home / site.signers, name)
    except InputError:
        return True  # told of the signature


def _signed_by(data: bytes, path: Path, site: Site, home: Path, operator: str) -> list[str]:
    """Who signed; and the operator, where the key is one of his too: it may stand there under several names."""
    bundle = path.with_name(f"{path.name}{COSIGN}")
    if bundle.is_file():
        return _cosigned_by(data, bundle.read_bytes(), site, home)
    signature = path.with_name(f"{path.name}{SSH}").read_bytes()
    signers = home / site.signers
    found = [signing.verify(data, signature, signers, signing.APPROVAL)]
    with contextlib.suppress(EvidenceError):
        found.append(signing.verify(data, signature, signers, signing.APPROVAL, operator))
    return found


def _cosigned_by(data: bytes, bundle: bytes, site: Site, home: Path) -> list[str]:
    found: list[str] = []
    why = "the site file names no cosign_keys"
    for name, key in sorted(site.cosign_keys.items()):
        try:
            cosign.verify(data, bundle, home / key)
        except EvidenceError as wrong:
            why = wrong.message
        else:
            found.append(name)
    if not found:
        raise EvidenceError(f"none of cosign_keys signed it: {why}", code="signature-untrusted")
    return found


def _read(path: Path, change_id: str, plan: str) -> tuple[bytes, datetime]:
    try:
        data = path.read_bytes()
        found = json.loads(data)
        if data != signed_bytes(found["change_id"], found["expires"], found["plan"]):
            raise ValueError("it is not in canonical form")
        if not _TIME.fullmatch(found["expires"]):
            raise ValueError(f"expires is {found['expires']!r:.60}, wanted 2026-01-31T12:00:00Z")
        until = datetime.strptime(found["expires"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as wrong:
        raise _no("approval-unreadable", f"it cannot be read: {wrong}") from None
    if found["plan"] != plan:
        raise _no("approval-other-plan", f"it is for plan {found['plan']!s:.19}…, this one is {plan[:19]}…")
    if found["change_id"] != change_id:
        raise _no("approval-other-change", f"it is for change {found['change_id']!r:.60}, this one is {change_id!r}")
    return data, until


def _no(code: str, message: str) -> NotApproved:
    return NotApproved(message, subject="approval", remedy=AGAIN, code=code)
