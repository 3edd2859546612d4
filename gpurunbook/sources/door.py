"""The one door: every change to a cluster goes through `Door.send`.

Around each mutation stand two journal records, `intent` before and `result` after, both fsynced. A write carries
the fresh resourceVersion; on a conflict the object is read and judged again, and sent again only while the judged
fields are what the plan relied on. A lost answer is settled by reading: a mutation is never sent twice on a guess.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpurunbook.errors import (
    ClusterError,
    Conflict,
    Denied,
    Drifted,
    Garbled,
    GateError,
    InputError,
    Invalid,
    NotFound,
    RunbookError,
    ServerFault,
    Throttled,
    Unreachable,
)
from gpurunbook.journal import Journal, canonical, digest
from gpurunbook.plan import Mutation
from gpurunbook.pointers import differences, fill
from gpurunbook.sources.cluster import Cluster
from gpurunbook.sources.connection import decode, pause

MANAGER = "gpurunbook"
"""Field manager of all our writes."""

ATTEMPTS = 6

_CONTENT = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "": "application/json",
}
_MOMENT = ("time", "head")
"""Words that differ from one try to the next; the first intent's are kept."""

_LOST = (ServerFault, Unreachable, Garbled)
"""After these nobody knows whether the request was carried out."""

_AGAIN = (Conflict, Invalid, NotFound, Throttled, *_LOST)
"""After these the object is read, and the same may be sent again."""

_METHOD = {"create": "POST", "patch": "PATCH", "delete": "DELETE"}


@dataclass(frozen=True)
class Outcome:
    """What became of one mutation.

    how: `applied`, `already` (it was so), `recovered` (sent before, the answer was lost), `validated` (server-side
    dry run), `not-validated` (the server could not dry-run it; `why` says so); in the journal also `refused` (surely
    not carried out). before, after: raw objects.
    """

    how: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    why: str = ""


class _Refused(Exception):
    """The server has surely carried nothing out."""

    def __init__(self, error: RunbookError) -> None:
        super().__init__()
        self.error = error


def _always() -> None:
    pass


class Door:
    """Sends mutations to one cluster, with one journal. apply False: server-side dry run, nothing is persisted.

    permit: called before each request that changes something is sent, each try of it; raises GateError when it must
    not be sent any more. What needs no request needs no permit.
    """

    def __init__(
        self,
        cluster: Cluster,
        journal: Journal,
        *,
        apply: bool,
        sleep: Callable[[float], None] = time.sleep,
        permit: Callable[[], None] = _always,
    ) -> None:
        self._cluster = cluster
        self._journal = journal
        self._apply = apply
        self._sleep = sleep
        self._permit = permit

    def send(self, step: str, mutation: Mutation, words: Mapping[str, str]) -> Outcome:
        """Changes one object of the cluster, or proves by dry run that it could.

        words: values of the placeholders. Raises Drifted with the field diff when the object or a judged field is
        another one, ClusterError when the server refuses or cannot be reached, GateError without a permit. An intent
        without a result in the journal means that it may have been carried out.
        """
        begun, done = self._announced(step, mutation)
        sent = {**words, **begun}
        before = self._read(mutation)
        why = self._settled(mutation, before, fill(dict(mutation.goal), sent))
        if why and self._apply:
            how = "recovered" if begun and not done else "already"
            return self._record(step, mutation, Outcome(how, before, before, why))
        if why:
            return Outcome("already", before, before, why)
        words = words if done else sent
        goal = fill(dict(mutation.goal), words)
        self._must_hold(mutation, before)
        if not self._apply:
            return self._rehearse(mutation, before, words)
        self._permit()
        self._journal.append(
            "intent",
            {
                "step": step,
                "name": mutation.name,
                "mutation": digest(canonical(mutation.as_json())),
                "target": mutation.as_json()["target"],
                "resource_version": _version(before),
                "words": {name: words[name] for name in _MOMENT},
            },
        )
        try:
            outcome = self._apply_until_settled(mutation, before, goal, words, unsure=bool(begun) and not done)
        except _Refused as wrong:
            self._record(step, mutation, Outcome("refused", before, None, wrong.error.message))
            raise wrong.error from None
        return self._record(step, mutation, outcome)

    def _apply_until_settled(
        self,
        mutation: Mutation,
        before: dict[str, Any] | None,
        goal: Mapping[str, Any],
        words: Mapping[str, str],
        unsure: bool,
    ) -> Outcome:
        """unsure: whether an earlier try may still have been carried out; else what refuses it is a `_Refused`."""
        current = before
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._permit()
                after = self._once(mutation, current, words, dry_run=False)
            except (GateError, InputError) as wrong:  # before the first try or, after a 401, before the second
                if unsure:
                    raise
                raise _Refused(wrong) from None
            except ClusterError as wrong:
                unsure = unsure or isinstance(wrong, _LOST)
                try:
                    found = self._look(mutation, current, goal, wrong, attempt)
                except RunbookError as error:
                    if unsure:
                        raise
                    raise _Refused(error) from None
                if isinstance(found, Outcome):
                    return Outcome(found.how, before, found.after, found.why)
                current = found
                continue
            left = differences(after, goal) if mutation.verb != "delete" else []
            if left:
                raise Drifted(
                    "the server answered with other fields than were sent: " + "; ".join(left),
                    subject=_spell(mutation),
                    remedy="A webhook or a controller rewrites them; find it before going on.",
                )
            return Outcome("applied", before, after)
        raise AssertionError("unreachable")

    def _look(
        self,
        mutation: Mutation,
        sent: dict[str, Any] | None,
        goal: Mapping[str, Any],
        wrong: ClusterError,
        attempt: int,
    ) -> Outcome | dict[str, Any] | None:
        """What to send against next, or that it was carried out all the same. Raises when neither is."""
        if not isinstance(wrong, _AGAIN):
            raise wrong
        if isinstance(wrong, (Throttled, *_LOST)):
            self._sleep(pause(wrong, attempt))
        current = self._read(mutation)
        if self._settled(mutation, current, goal):
            return Outcome("recovered", sent, current, f"the answer was lost: {wrong.message}")
        self._must_hold(mutation, current)
        unmoved = _version(current) == _version(sent) and isinstance(wrong, Conflict | Invalid | NotFound)
        if attempt == ATTEMPTS or unmoved:
            raise wrong
        return current

    def _rehearse(self, mutation: Mutation, before: dict[str, Any] | None, words: Mapping[str, str]) -> Outcome:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return Outcome("validated", before, self._once(mutation, before, words, dry_run=True))
            except Denied as wrong:
                return Outcome("not-validated", before, None, wrong.message)
            except (Conflict, Invalid):
                moved = self._read(mutation)
                self._must_hold(mutation, moved)
                if attempt == ATTEMPTS or _version(moved) == _version(before):
                    raise
                before = moved
            except (Throttled, ServerFault, Unreachable) as wrong:
                if attempt == ATTEMPTS:
                    raise
                self._sleep(pause(wrong, attempt))
            except ClusterError as wrong:
                # An admission webhook that has side effects refuses a dry run with 400 (kubernetes dry-run docs).
                if wrong.status == 400 and "dry run" in wrong.message.lower().replace("dryrun", "dry run"):
                    return Outcome("not-validated", before, None, wrong.message)
                raise
        raise AssertionError("unreachable")

    def _once(
        self, mutation: Mutation, current: dict[str, Any] | None, words: Mapping[str, str], *, dry_run: bool
    ) -> dict[str, Any]:
        query = [("fieldManager", MANAGER)] if mutation.verb != "delete" else []
        if dry_run:
            query.append(("dryRun", "All"))
        raw = self._cluster.connection.send(
            _METHOD[mutation.verb],
            mutation.target.path,
            query,
            json.dumps(_body(mutation, current, words), sort_keys=True).encode(),
            _CONTENT[mutation.patch],
            again=None if dry_run else self._permit,
        )
        answer: dict[str, Any] = decode(raw, _spell(mutation))
        return answer

    def _read(self, mutation: Mutation) -> dict[str, Any] | None:
        path = mutation.target.path
        if mutation.verb == "create":
            path = f"{path}/{mutation.target.name}"
        try:
            return self._cluster.object(path)
        except NotFound:
            return None

    def _settled(self, mutation: Mutation, current: dict[str, Any] | None, goal: Mapping[str, Any]) -> str:
        """Why nothing needs to be sent, or ""."""
        if mutation.verb == "delete":
            gone = current is None or _uid(current) != mutation.target.uid
            return "it is gone" if gone else ""
        if current is None or (mutation.verb == "patch" and _uid(current) != mutation.target.uid):
            return ""
        return "" if differences(current, goal) else "it is so already"

    def _must_hold(self, mutation: Mutation, current: dict[str, Any] | None) -> None:
        what = _spell(mutation)
        if mutation.verb == "create":
            if current is not None:
                raise Drifted(
                    "it exists and is not this run's",
                    subject=what,
                    remedy="`gpurunbook leftovers` says whose it is.",
                    code="exists-already",
                )
            return
        if current is None:
            raise Drifted("it is gone", subject=what, remedy="Start again from the dry run.", code="object-gone")
        if _uid(current) != mutation.target.uid:
            raise Drifted(
                f"it was replaced: uid is {_uid(current)}, was {mutation.target.uid} when it was judged",
                subject=what,
                remedy="Start again from the dry run.",
                code="object-replaced",
            )
        left = differences(current, mutation.judged)
        if left:
            raise Drifted(
                "what the plan relies on has changed: " + "; ".join(left),
                subject=what,
                remedy="Find who changed it, then make a new dry run.",
            )

    def holds(self, step: str, mutation: Mutation, words: Mapping[str, str]) -> bool:
        """Writes nothing. Whether the object is now as this run left it, or as the mutation wants it."""
        sent = {**words, **self._announced(step, mutation)[0]}
        return bool(self._settled(mutation, self._read(mutation), fill(dict(mutation.goal), sent)))

    def _announced(self, step: str, mutation: Mutation) -> tuple[dict[str, str], bool]:
        """The moment's words of the last intent, which a second try sends again; and whether its result is known."""
        done = False
        for record in reversed(self._journal.records):
            data = record["data"]
            if record["event"] not in {"intent", "result"} or (data["step"], data["name"]) != (step, mutation.name):
                continue
            if record["event"] == "intent":
                return dict(data["words"]), done
            done = True
        return {}, done

    def _record(self, step: str, mutation: Mutation, outcome: Outcome) -> Outcome:
        self._journal.append(
            "result",
            {
                "step": step,
                "name": mutation.name,
                "how": outcome.how,
                "why": outcome.why,
                "target": mutation.as_json()["target"],
                "resource_version": _version(outcome.after),
            },
        )
        return outcome


def _body(mutation: Mutation, current: dict[str, Any] | None, words: Mapping[str, str]) -> Any:
    """The body with its placeholders filled and the fresh resourceVersion as a precondition."""
    if mutation.verb == "delete":
        preconditions = {"uid": mutation.target.uid, "resourceVersion": _version(current)}
        return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
    body = fill(mutation.body, words)
    if mutation.patch == "json":
        tests = [
            {"op": "test", "path": "/metadata/uid", "value": mutation.target.uid},
            {"op": "test", "path": "/metadata/resourceVersion", "value": _version(current)},
        ]
        return [*tests, *body]
    if mutation.patch == "merge":
        metadata = {**body.get("metadata", {}), "uid": mutation.target.uid, "resourceVersion": _version(current)}
        return {**body, "metadata": metadata}
    return body


def _uid(found: dict[str, Any]) -> str:
    return str((found.get("metadata") or {}).get("uid") or "")


def _version(found: dict[str, Any] | None) -> str:
    return str(((found or {}).get("metadata") or {}).get("resourceVersion") or "")


def _spell(mutation: Mutation) -> str:
    where = f"{mutation.target.namespace}/" if mutation.target.namespace else ""
    return f"{mutation.verb} {where}{mutation.target.kind}/{mutation.target.name}"
