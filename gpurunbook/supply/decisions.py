"""What Security has decided, as one reviewed YAML file: exceptions, dispositions, and who signs what.

apiVersion: gpurunbook.io/v1
kind: SecurityDecisions
exceptions: [{id, cve, package, digest | repository, owner, expires, reason, vex?}]
dispositions: [{id, cve, package, digest | repository, owner, expires, exploitability, privileges, mitigation, vex?}]
signatures: [{repository, key, transparency_log?} | {repository, identity, issuer}
             | {repository, does_not_sign, owner, expires}]
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpurunbook.errors import InputError
from gpurunbook.supply import strictyaml, times
from gpurunbook.supply.references import is_digest, parse
from gpurunbook.supply.shape import Shape
from gpurunbook.supply.strictyaml import Node

LIMIT = 4 << 20
"""Bytes of the file."""

API_VERSION, KIND = "gpurunbook.io/v1", "SecurityDecisions"

_SCOPED = ("id", "cve", "package", "digest", "repository", "owner", "expires", "vex")
_FIELDS = {
    "exception": (*_SCOPED, "reason"),
    "disposition": (*_SCOPED, "exploitability", "privileges", "mitigation"),
    "signature": ("repository", "key", "transparency_log", "identity", "issuer", "does_not_sign", "owner", "expires"),
}
_CVE = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-:._][A-Za-z0-9]+)+")
_PACKAGE = re.compile(r"[^\s*?]+")


@dataclass(frozen=True)
class Acceptance:
    """A named, time-bounded decision about one vulnerability in one package of one digest or repository.

    kind: `exception` (Critical and not rated) or `disposition` (High); digest, repository: one of them, the other "";
    expires: nanoseconds since 1970; until: as written; vex: `@id` of an OpenVEX document that it rests on, or "".
    """

    kind: str
    id: str
    cve: str
    package: str
    digest: str
    repository: str
    owner: str
    expires: int
    until: str
    vex: str
    grounds: Mapping[str, str]
    line: int

    @property
    def place(self) -> str:
        """Writes nothing. What it is about, for people."""
        return f"{self.cve} in {self.package} of {self.digest or self.repository}"


@dataclass(frozen=True)
class Signer:
    """Who signs a repository, or every repository below `…/*`.

    key: SHA-256 of the public key's DER; log: whether the signature is in a transparency log; identity, issuer:
    of a keyless signature; reason: why nobody signs, with owner and the end of that answer (0: no end).
    """

    repository: str
    key: str
    log: bool
    identity: str
    issuer: str
    reason: str
    owner: str
    expires: int
    line: int

    def covers(self, repository: str) -> bool:
        """Writes nothing. Whether a normalised repository is this one, or below it."""
        if self.repository.endswith("/*"):
            return repository.startswith(self.repository[:-1])
        return repository == self.repository


@dataclass(frozen=True)
class Decisions:
    """The whole file, in its order."""

    accepted: tuple[Acceptance, ...] = ()
    signers: tuple[Signer, ...] = ()

    def signer(self, repository: str) -> Signer | None:
        """Writes nothing. The narrowest entry for a normalised repository."""
        fitting = (one for one in self.signers if one.covers(repository))
        return max(fitting, key=lambda one: (len(one.repository.removesuffix("*")), one.repository), default=None)


def read_decisions(data: bytes) -> Decisions:
    """Writes nothing. Raises InputError (`exceptions-malformed`) whose subject is the line."""
    try:
        return _read(strictyaml.document(data, limit=LIMIT))
    except InputError as wrong:
        raise InputError(wrong.message, subject=wrong.subject, code="exceptions-malformed") from None


def _read(node: Node) -> Decisions:
    if not isinstance(node, strictyaml.Map):
        raise strictyaml.fault("type", node.line, f"not a mapping with apiVersion {API_VERSION} and kind {KIND}")
    shape = Shape()
    top = shape.fields(node, ("apiVersion", "kind", "exceptions", "dispositions", "signatures"), "the file")
    for name, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if (seen := shape.text(top.get(name), name)) != wanted:
            raise strictyaml.fault("type", node.line, f"{name} is {seen[:80]!r}, wanted {wanted}")
    accepted = [
        _acceptance(_Entry(shape, item, kind))
        for kind in ("exception", "disposition")
        for item in shape.items(top.get(f"{kind}s"), f"{kind}s")
    ]
    signers = [_signer(_Entry(shape, item, "signature")) for item in shape.items(top.get("signatures"), "signatures")]
    shape.done()
    _unrepeated((one.id, one.line) for one in accepted)
    _unrepeated((one.repository, one.line) for one in signers)
    return Decisions(tuple(accepted), tuple(signers))


class _Entry:
    """One entry, read field by field; a fault says the line and what was expected."""

    def __init__(self, shape: Shape, node: Node, kind: str) -> None:
        self.line, self.kind, self._shape = node.line, kind, shape
        self._fields = shape.fields(node, _FIELDS[kind], kind)

    def wrong(self, message: str) -> InputError:
        self._shape.done()  # a field of another type or name is the graver fault
        return strictyaml.fault("type", self.line, f"{self.kind}: {message}")

    def text(self, name: str) -> str:
        return self._shape.text(self._fields.get(name), f"{self.kind}: {name}").strip()

    def due(self, name: str) -> str:
        if not (found := self.text(name)):
            raise self.wrong(f"no {name}")
        return found

    def flag(self, name: str, absent: bool) -> bool:
        return self._shape.flag(self._fields[name], f"{self.kind}: {name}") if name in self._fields else absent

    def form(self, name: str, pattern: re.Pattern[str], wanted: str) -> str:
        if not pattern.fullmatch(found := self.due(name)):
            raise self.wrong(f"{name} is {found[:80]!r}, wanted {wanted}")
        return found

    def moment(self, name: str) -> int:
        found = self.due(name)
        day = times.days(found)
        moment = day * times.DAY if day is not None else times.instant(found)
        if moment is None:
            raise self.wrong(f"{name} is {found[:80]!r}, wanted YYYY-MM-DD or RFC 3339 with T and zone")
        return moment

    def digest(self, name: str) -> str:
        if not is_digest(found := self.due(name)):
            raise self.wrong(f"{name} is {found[:80]!r}, wanted sha256: and 64 lower-case hexadecimal digits")
        return found

    def repository(self, below: bool = False) -> str:
        written = self.due("repository")
        path = written.removesuffix("/*") if below else written
        # With a path of its own a registry alone, as in nvcr.io/*, is a repository by the grammar.
        more = "/a/b" if path != written else ""
        try:
            found = parse(path + more)
        except InputError as wrong:
            raise self.wrong(wrong.message) from None
        if found.tag or found.pinned:
            raise self.wrong(f"repository is {written[:200]!r}, wanted one without tag and digest")
        return f"{found.repository.removesuffix(more)}/*" if more else found.repository


def _acceptance(entry: _Entry) -> Acceptance:
    if bool(entry.text("digest")) == bool(entry.text("repository")):
        raise entry.wrong("wanted either digest or repository")
    grounds = ("reason",) if entry.kind == "exception" else ("exploitability", "privileges", "mitigation")
    return Acceptance(
        kind=entry.kind,
        id=entry.due("id"),
        cve=entry.form("cve", _CVE, "the id of one vulnerability"),
        package=entry.form("package", _PACKAGE, "the name of one package"),
        digest=entry.digest("digest") if entry.text("digest") else "",
        repository=entry.repository() if entry.text("repository") else "",
        owner=entry.due("owner"),
        expires=entry.moment("expires"),
        until=entry.due("expires"),
        vex=entry.text("vex"),
        grounds={name: entry.due(name) for name in grounds},
        line=entry.line,
    )


_WAYS = ("key", "identity", "does_not_sign")
_BELONGS = {"key": {"transparency_log"}, "identity": {"issuer"}, "does_not_sign": {"owner", "expires"}}


def _signer(entry: _Entry) -> Signer:
    ways = [name for name in _WAYS if entry.text(name)]
    if len(ways) != 1:
        raise entry.wrong("wanted one of key, identity (with issuer), does_not_sign (with owner and expires)")
    way = ways[0]
    for other in sorted(set().union(*_BELONGS.values()) - _BELONGS[way]):
        if entry.text(other):
            raise entry.wrong(f"{other} does not belong to {way}")
    unsigned = way == "does_not_sign"
    return Signer(
        repository=entry.repository(below=True),
        key=entry.digest("key") if way == "key" else "",
        log=entry.flag("transparency_log", True),
        identity=entry.text("identity"),
        issuer=entry.due("issuer") if way == "identity" else "",
        reason=entry.text("does_not_sign"),
        owner=entry.due("owner") if unsigned else "",
        expires=entry.moment("expires") if unsigned else 0,
        line=entry.line,
    )


def _unrepeated(named: Iterable[tuple[str, int]]) -> None:
    seen: dict[str, int] = {}
    for name, line in named:
        if name in seen:
            raise strictyaml.fault("duplicate-key", line, f"{name[:200]!r} stands already at line {seen[name]}")
        seen[name] = line
