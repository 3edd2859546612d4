"""Which image a piece of evidence is about: the subject, what a file names, and whether the two join.

Tools name one image by different digests: the index that was asked for, the manifest of a platform, the
config. Only digests prove; a tag and a repository name do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from gpurunbook.errors import InputError
from gpurunbook.findings import Finding, Status

CHECK = "evidence-file"
SOURCE = "GPU supply-chain policy, SBOM, signature and vulnerability gate"

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_ALGORITHM = re.compile(r"sha[0-9]+:.*", re.DOTALL)


@dataclass(frozen=True)
class Subject:
    """The image that evidence must be about.

    digest: what runs, usually of an index; platform: `linux/amd64`; children: platform → digest of its
    manifest; config: platform → image ID.
    """

    digest: str
    platform: str
    children: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    repository: str = ""

    def child(self) -> str | None:
        """Writes nothing. The manifest of the subject's platform."""
        return next((d for p, d in self.children.items() if same_platform(p, self.platform)), None)

    def image_id(self) -> str | None:
        """Writes nothing. The config digest of the subject's platform."""
        return next((d for p, d in self.config.items() if same_platform(p, self.platform)), None)


@dataclass(frozen=True)
class Named:
    """What a file says it is about. platforms: `os/arch[/variant]`, the os empty where the file names none."""

    digests: frozenset[str] = frozenset()
    image_ids: frozenset[str] = frozenset()
    platforms: frozenset[str] = frozenset()


def read_subject(document: Any) -> Subject:
    """Writes nothing. A subject from its JSON. Raises InputError (`subject`) for another shape."""

    def wrong(message: str) -> InputError:
        return InputError(message, subject="subject", code="subject")

    def digests(name: str) -> dict[str, str]:
        given = document.get(name, {})
        if not isinstance(given, dict) or not all(isinstance(v, str) and DIGEST.fullmatch(v) for v in given.values()):
            raise wrong(f"{name} is not an object of platform and sha256 digest")
        return given

    if not isinstance(document, dict):
        raise wrong("not an object with digest and platform")
    digest, platform = document.get("digest"), document.get("platform")
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
        raise wrong("digest is not sha256: and 64 lower-case hexadecimal digits")
    if not isinstance(platform, str) or not re.fullmatch(r"[a-z0-9]+/[a-z0-9_]+(/[a-z0-9]+)?", platform):
        raise wrong("platform is not of the form linux/amd64")
    repository = document.get("repository", "")
    if not isinstance(repository, str):
        raise wrong("repository is not text")
    return Subject(digest, platform, digests("children"), digests("config"), repository)


def same_platform(one: str, other: str) -> bool:
    """Writes nothing. Whether two platforms are one: a part that either leaves empty is not compared.

    The variant counts only where both name it; v8 is the only one of arm64.
    """
    parts = zip(f"{one}//".split("/")[:3], f"{other}//".split("/")[:3], strict=True)
    return all(a == b or not a or not b for a, b in parts)


def digest_in_reference(text: str) -> str | None:
    """Writes nothing. What stands behind the last `@` of `repository@digest`, well-formed or not."""
    return text.rpartition("@")[2] if "@" in text else None


def digest_in_version(text: str) -> str | None:
    """Writes nothing. A version that is a digest, well-formed or not; None for a tag."""
    return text if _ALGORITHM.fullmatch(text) else None


def purl(text: str) -> tuple[str | None, str]:
    """Writes nothing. The digest and the platform in the package URL of an image, `(None, "")` without them.

    `pkg:oci/name@sha256%3A…?arch=amd64&os=linux`, percent-decoded.
    """
    if not re.match(r"pkg:/*(oci|docker)/", text, re.IGNORECASE):
        return None, ""
    path, _, qualifiers = text.partition("#")[0].partition("?")
    pairs = dict(pair.partition("=")[::2] for pair in qualifiers.split("&"))
    system, machine = unquote(pairs.get("os", "")), unquote(pairs.get("arch", ""))
    platform = f"{system}/{machine}" if system or machine else ""
    version = digest_in_reference(unquote(path))
    return (digest_in_version(version) if version else None), platform


def note(code: str, subject: str, message: str) -> Finding:
    """Writes nothing. A finding that says how something was joined, and never fails."""
    return Finding(CHECK, subject, Status.PASS, code, message, "", SOURCE)


def failing(code: str, subject: str, message: str, remedy: str = "") -> Finding:
    """Writes nothing. A finding that fails the file."""
    return Finding(CHECK, subject, Status.FAIL, code, message, remedy, SOURCE)


def join(subject: Subject, named: Named) -> list[Finding]:
    """Writes nothing. Whether a file is about the subject: nothing, a note, or why not."""
    found = _joined(subject, named)
    for platform in sorted(named.platforms):
        if not same_platform(platform, subject.platform):
            message = f"the file is about {platform}, wanted {subject.platform}"
            found.append(failing("platform-mismatch", subject.digest, message, _AGAIN))
    return found


_AGAIN = "Collect it again, from the registry, by digest and with the platform named."


def _joined(subject: Subject, named: Named) -> list[Finding]:
    child, image_id = subject.child(), subject.image_id()
    seen = ", ".join(sorted(named.digests or named.image_ids))
    if named.digests:
        if subject.digest in named.digests:
            return []
        if child in named.digests:
            message = f"named is {child}, the manifest of {subject.platform}"
            return [note("matched-by-child", subject.digest, message)]
        others = sorted(p for p, d in subject.children.items() if d in named.digests)
        if others:
            message = f"named is {seen}, the manifest of {', '.join(others)}; wanted {subject.platform}"
            return [failing("platform-mismatch", subject.digest, message, _AGAIN)]
        return [failing("subject-mismatch", subject.digest, f"the file is about {seen}", _AGAIN)]
    if named.image_ids:
        if image_id in named.image_ids:
            return [note("matched-by-config", subject.digest, f"only the image ID is named, {image_id}")]
        return [failing("subject-mismatch", subject.digest, f"the file is about the image ID {seen}", _AGAIN)]
    message = "the file names neither a manifest digest nor an image ID; a tag proves nothing"
    return [failing("subject-unproven", subject.digest, message, _AGAIN)]


def digests_of(references: Iterable[str]) -> frozenset[str]:
    """Writes nothing. What `repository@digest` texts name."""
    return frozenset(found for text in references if (found := digest_in_reference(text)))
