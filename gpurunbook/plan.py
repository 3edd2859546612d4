"""What rules return, as data: what must be observed, how it is judged, and what is shown.

A rule builds a `Check`. It names what must be observed as `Need` values and gives a pure function from the
observed values to a `Judgement`. It reads nothing itself: `runbook` has every need fetched by `sources`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpurunbook.findings import Finding, Verdict


@dataclass(frozen=True)
class Need:
    """Something that must be observed before a rule can judge."""


@dataclass(frozen=True)
class Pages(Need):
    """A whole Kubernetes collection, read in pages.

    path: `/api/v1/namespaces/gpu-operator/pods`; page: the msgspec type of one page, or None for raw dicts;
    query: further query parameters, such as a field selector; kept: a pure function from the items of one page to what
    of them is kept, or None for all. Observed as the list of what was kept.
    """

    path: str
    page: Any = None
    query: tuple[tuple[str, str], ...] = ()
    kept: Callable[[list[Any]], list[Any]] | None = None


@dataclass(frozen=True)
class Object(Need):
    """One Kubernetes object as a raw dict."""

    path: str


@dataclass(frozen=True)
class Document(Need):
    """The bytes of one file of the user's. Kept under `inputs/` of the run."""

    path: str
    limit: int = 1 << 30


@dataclass(frozen=True)
class Folder(Need):
    """All files of one folder of the user's and below. Kept under `inputs/` of the run.

    files, limit: how many files and bytes it may have in all; withhold: a pure function from a file's path and bytes to
    why no copy of it may be kept, "" when one may. Then its digest is kept with the reason. Observed as a mapping of
    path in the folder to bytes, or to the Problem that hid that one file (a symbolic link, say).
    """

    path: str
    files: int = 5_000
    limit: int = 1 << 30
    withhold: Callable[[str, bytes], str] | None = None


@dataclass(frozen=True)
class Recorded(Need):
    """The bytes of a file that an earlier step of this run recorded; its digest is checked in the journal."""

    step: str
    name: str


@dataclass(frozen=True)
class Bundle(Need):
    """The sealed bundle of another run, verified. Observed as `Consumed`.

    path: its folder; digest: of its manifest, as it is known from elsewhere; signers: an allowed_signers file, or a
    public key of cosign's; files: those of its files that the rule reads, where they are there. What was read is kept
    under `inputs/`.
    """

    path: str
    digest: str = ""
    signers: str = ""
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Approval(Need):
    """The approval of a digest by another person, where the site demands one. Observed as `Approved`."""

    digest: str


@dataclass(frozen=True)
class Now(Need):
    """The run's clock: an aware datetime in UTC."""


@dataclass(frozen=True)
class Problem:
    """Why a need could not be observed. code: forbidden, not-found, unreadable, unreachable, garbled, …; remedy: where
    the message does not hold it."""

    code: str
    message: str
    remedy: str = ""


@dataclass(frozen=True)
class Observed:
    """A need with its value, or with the problem that kept it from being observed. Never both."""

    need: Need
    value: Any = None
    problem: Problem | None = None


Seen = Mapping[str, Observed]


@dataclass(frozen=True)
class Consumed:
    """A bundle as it verified. strength: consistent, anchored, signed, altered, unsealed; told: what is not as sealed.

    The rest is what its manifest says, and can be believed as far as the strength goes; steps: those that passed;
    weaker: which gates of its own it went past (broken glass, overrides).
    """

    strength: str
    told: tuple[str, ...]
    manifest: str = ""
    run: str = ""
    runbook: str = ""
    verdict: str = ""
    rehearsal: bool = True
    cluster: str = ""
    signer: str = ""
    end: str = ""
    steps: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    weaker: tuple[str, ...] = ()


@dataclass(frozen=True)
class Approved:
    """Whether the site demands an approval, and of whom there is a valid one until when; "" where none is demanded."""

    demanded: bool
    approver: str = ""
    expires: str = ""


@dataclass(frozen=True)
class Stood:
    """When something that must stand was last seen whole: a time for people, seconds since by a monotonic clock (None:
    not measured, by another kernel), what was observed then, and the uid of the object that this run last wrote."""

    time: str
    seconds: float | None
    seen: Seen
    uid: str = ""


@dataclass(frozen=True)
class Table:
    """Rows for people. `total` is the number of rows there are where `rows` is only the first part of them.

    bars: names of numeric columns shown with a bar; status: name of the column that holds a status word.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | int | float | bool | None]]
    total: int | None = None
    bars: Sequence[str] = ()
    status: str = ""
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """A bar chart: one value per label, or one stack per series. `series` maps a name to its values in label order."""

    title: str
    labels: Sequence[str]
    series: Mapping[str, Sequence[int | float]]
    unit: str = ""


View = Table | Figure


@dataclass(frozen=True)
class Judgement:
    """What a rule concluded. Writes nothing.

    findings: at least one, or the judgement counts as unknown; views: shown in the notebook in this order;
    facts: small named values for machines (scraps), JSON without NaN; files: bytes for the bundle by name.
    """

    findings: tuple[Finding, ...]
    views: tuple[View, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """An unevaluated check: needs, and the pure function that judges what was observed.

    follow: names further needs that only what was seen so far can tell (claims that pods name, say); called
    once. against: the verdict that a failing finding gives the run.
    """

    title: str
    needs: Mapping[str, Need]
    judge: Callable[[Seen], Judgement]
    against: Verdict = Verdict.REJECTED
    follow: Callable[[Seen], Mapping[str, Need]] | None = None


@dataclass(frozen=True)
class Target:
    """The object that a mutation touches. uid: "" for an object that is still to be made."""

    kind: str
    name: str
    path: str
    namespace: str = ""
    uid: str = ""


@dataclass(frozen=True)
class Mutation:
    """One change to one object, as data.

    name: unique in its step; verb: `create` (path is the collection), `patch`, `delete`; patch: `json` or `merge`;
    body: JSON, in which `${run}`, `${time}`, `${head}`, `${change_id}`, `${plan}`, `${reason}`, `${step}` stand for
    what is filled in when it is sent; judged: JSON pointer → value that the plan relies on (None: absent);
    goal: JSON pointer → value that holds once it is done, placeholders allowed; inverse: what undoes it.
    """

    name: str
    verb: str
    target: Target
    body: Any = None
    patch: str = ""
    judged: Mapping[str, Any] = field(default_factory=dict)
    goal: Mapping[str, Any] = field(default_factory=dict)
    inverse: Mutation | None = None

    def as_json(self) -> dict[str, Any]:
        """Writes nothing. What the plan digest covers: target, verb, fields, values, judged preconditions, inverse."""
        return {
            "name": self.name,
            "verb": self.verb,
            "patch": self.patch,
            "target": {
                "kind": self.target.kind,
                "namespace": self.target.namespace,
                "name": self.target.name,
                "uid": self.target.uid,
                "path": self.target.path,
            },
            "body": self.body,
            "judged": dict(self.judged),
            "goal": dict(self.goal),
            "inverse": self.inverse.as_json() if self.inverse else None,
        }


@dataclass(frozen=True)
class Planned:
    """What a change comes to: findings that allow or refuse it, and the mutations in order (none: already so).

    came: of what must stand, who came since it stood, such as `namespace/name` of pods.
    """

    findings: tuple[Finding, ...]
    mutations: tuple[Mutation, ...] = ()
    views: tuple[View, ...] = ()
    came: tuple[str, ...] = ()


@dataclass(frozen=True)
class Change:
    """An unevaluated change: needs, and the pure function from what was observed to the plan."""

    title: str
    needs: Mapping[str, Need]
    plan: Callable[[Seen], Planned]
    against: Verdict = Verdict.BLOCKED
    follow: Callable[[Seen], Mapping[str, Need]] | None = None


@dataclass(frozen=True)
class Progress:
    """How far a wait is. state: `done`, `waiting` or `failed`; missing: what is still due, one line each."""

    state: str
    missing: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    views: tuple[View, ...] = ()


@dataclass(frozen=True)
class Wait:
    """An unevaluated wait: what to follow, and the pure function that says done, waiting or failed.

    hold: seconds for which it must say done without a break before that counts.
    """

    title: str
    needs: Mapping[str, Need]
    progress: Callable[[Seen], Progress]
    seconds: float
    hold: float = 0.0
