"""What a run has left in the cluster, read once more at its end, and the commands that undo it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from gpurunbook.errors import NotFound, RunbookError
from gpurunbook.folder import workspace
from gpurunbook.folder.parameters import BLANK
from gpurunbook.nodes import cordon
from gpurunbook.runbook.authority import CHANGE_ID
from gpurunbook.runbook.changing import AGAIN
from gpurunbook.runbook.ledger import Ledger

STANDS, GONE, ANOTHERS, UNREAD = "stands", "gone", "another's", "unread"


def behind(run: Ledger) -> list[str]:
    """Writes nothing. Mutations that this run sent and did not undo, with the command that undoes them.

    Each object is read once more: what is gone or another run's by now is not this run's to undo. What cannot be read
    stands as the journal says.
    """
    standing: dict[tuple[str, str, str], bool] = {}
    paths: dict[tuple[str, str], str] = {}
    for record in run.journal.records:
        data = record["data"]
        if record["event"] not in {"intent", "result"}:
            continue
        target = data["target"]["kind"], data["target"]["name"]
        paths[target] = f"{data['target']['path'].removesuffix('/' + target[1])}/{target[1]}"
        mutation = data["name"].partition(AGAIN)[0]
        known = record["event"] == "result"
        if known and data["how"] == "refused":
            if AGAIN not in data["name"]:
                standing.pop((*target, mutation), None)
        elif mutation == "lease-back" and known:
            standing.pop((*target, "lease"), None)
        elif mutation == "release" and known:
            standing = {key: sure for key, sure in standing.items() if key[:2] != target}
        elif mutation != "lease-back":
            standing[*target, mutation] = known
    now = _read_anew(run, {key[:2]: paths[key[:2]] for key in standing})
    # One whose outcome is not known may still be carried out, unless another run has taken its object.
    standing = {
        key: sure for key, sure in standing.items() if now[key[:2]] != ANOTHERS and not (sure and now[key[:2]] == GONE)
    }
    taken = f" --set take_over={run.id}" if any(kind == "Lease" for kind, _, _ in standing) else ""
    told = []
    for (kind, name, mutation), known in standing.items():
        sure = "" if known else " (sent; the outcome is not known yet)"
        unread = " (by the journal; it could not be read anew)" if now[kind, name] == UNREAD else ""
        undo = f"gpurunbook release {name}{taken}" if kind == "Node" else f"gpurunbook abort {run.id}"
        how = f"`{undo}{at(run)}{_authority(run)}` undoes it"
        if _rehearsed(run):
            how = "the cluster is this scenario's own, so that there is nothing to undo"
        told.append(f"{kind} {name}: {mutation} by run {run.id}{sure}{unread}; {how}")
    return sorted(told)


def _read_anew(run: Ledger, paths: Mapping[tuple[str, str], str]) -> dict[tuple[str, str], str]:
    """What has become of the objects since; after one that could not be read no other is waited for."""
    found = dict.fromkeys(paths, UNREAD)
    try:
        if not paths or run.cluster.uid != run.state.start.get("cluster", {}).get("uid"):
            return found
        for target, path in paths.items():
            found[target] = _became(run, target[0], path)
    except RunbookError:
        pass
    return found


def _became(run: Ledger, kind: str, path: str) -> str:
    try:
        found = run.cluster.object(path)
    except NotFound:
        return GONE
    if kind == "Lease":
        return STANDS if (found.get("spec") or {}).get("holderIdentity") == run.id else ANOTHERS
    if kind == "Node":
        marks = cordon.standing(found, run.id)
        if marks.owner is not None and marks.run != run.id:
            return ANOTHERS
        return GONE if marks.state == cordon.NOBODY else STANDS
    return STANDS


def at(run: Ledger) -> str:
    """Writes nothing. What a printed command needs to reach this run's cluster: "" for the current context."""
    return f" --cluster {shlex.quote(run.parameters.cluster)}" if run.parameters.cluster else ""


def _authority(run: Ledger) -> str:
    """What the apply that a printed command leads to needs: this run's change, and a reason of its own."""
    given = run.parameters.change_id
    return f" --set change_id={shlex.quote(given) if CHANGE_ID.fullmatch(given) else BLANK} --set reason={BLANK}"


def _rehearsed(run: Ledger) -> bool:
    """Whether this is a run of a scenario: its cluster state is its own, and no command reaches it."""
    try:
        return bool(workspace.record(run.folder).get("scenario"))
    except RunbookError:
        return False
