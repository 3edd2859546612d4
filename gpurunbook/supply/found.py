"""Where a finding of the manifest review stands: file, line, and the way through texts that hold other documents."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from gpurunbook.errors import InputError
from gpurunbook.findings import Finding, Status
from gpurunbook.leaks import secrets as leaks
from gpurunbook.leaks import suspect
from gpurunbook.supply.flaws import Flaw
from gpurunbook.supply.strictyaml import Text

CHECK = "manifests"
SOURCE = "GPU supply-chain policy, Reference policy; promotion step 3"


@dataclass(frozen=True)
class Found:
    """A finding at a line of a file; the subject is `namespace/kind/name`, or the file where there is no object."""

    file: str
    line: int
    finding: Finding

    def as_json(self) -> dict[str, str | int]:
        """Writes nothing. The finding with its place."""
        return {**self.finding.as_json(), "file": self.file, "line": self.line}


@dataclass(frozen=True)
class Place:
    """A document: a file's own, one that is packed into a text of another, or an object in another.

    path: names it among all; within: the fields and lines on the way to the text, "" for a file's own; base: the
    file's line at which the text begins; lined: a line of the text is a line of the file; about: the object in the
    text; depth: documents in documents; sops: it stands in one that has SOPS metadata; raw: the file, where comments
    decide about it.
    """

    file: str
    path: str = ""
    within: str = ""
    base: int = 0
    lined: bool = True
    about: str = ""
    depth: int = 0
    sops: bool = False
    raw: bytes = field(default=b"", repr=False)

    @property
    def name(self) -> str:
        """Writes nothing. The file's name without its folder, also that of a file in a text."""
        return posixpath.basename(self.path or self.file)

    @property
    def folder(self) -> str:
        """Writes nothing. Where files that the document names are looked for."""
        return posixpath.dirname(self.path or self.file)

    def inside(self, value: Text, field: str, path: str, *, written: bool = True) -> Place:
        """Writes nothing. The place of what stands in a text. written: as it stands, not encoded."""
        lined = self.lined and written and value.block
        within = self.told(value.line, field)
        return Place(self.file, path, within, self.line(value.line), lined, depth=self.depth + 1)

    def below(self, field: str, path: str, *, sops: bool) -> Place:
        """Writes nothing. The place of an object that stands in the open, in another one."""
        within = f"{self.within}: {field}" if self.within else field
        return replace(self, path=path, within=within, depth=self.depth + 1, sops=self.sops or sops)

    def of(self, about: str) -> Place:
        """Writes nothing. The place of one object of it."""
        return replace(self, about=about) if self.within else self

    def line(self, number: int) -> int:
        """Writes nothing. The file's line for a line of the document."""
        return self.base + number if self.lined else self.base

    def told(self, number: int, text: str) -> str:
        """Writes nothing. The text with the way to it before it."""
        if not self.within:
            return text
        return f"{self.within}, line {number}{f', {self.about}' if self.about else ''}: {text}"


@dataclass
class Notes:
    """Collects findings, each once."""

    found: dict[Found, None] = field(default_factory=dict)

    def note(self, place: Place, subject: str, flaws: Iterable[Flaw]) -> None:
        """Writes nothing. Flaws of a document; `subject` is the object that stands in the file."""
        for flaw in flaws:
            message = place.told(flaw.line, f"{flaw.field}: {flaw.message}" if flaw.field else flaw.message)
            made = Finding(CHECK, subject, Status.FAIL, flaw.code, _bare(message), flaw.remedy, SOURCE)
            self.found[Found(place.file, place.line(flaw.line), made)] = None

    def refuse(self, place: Place, wrong: InputError) -> None:
        """Writes nothing. What cannot be read; the answer is then an error."""
        _, _, number = wrong.subject.partition("line ")
        line = int(number) if number.isdecimal() else 1
        message = _bare(place.told(line, wrong.message))
        made = Finding(CHECK, place.file, Status.UNKNOWN, wrong.code, message, wrong.remedy, SOURCE)
        self.found[Found(place.file, place.line(line), made)] = None


def _bare(message: str) -> str:
    """The message without a secret that stands in what it quotes, a password in an image's address say."""
    if not suspect(message):
        return message
    for _, kind, secret in [*leaks(message)]:
        message = message.replace(secret, f"[{kind}]") if secret in message else f"[{kind} in what was quoted]"
    return message
