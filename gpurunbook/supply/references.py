"""Image references: the grammar, Docker Hub's short names, and what the policy calls each reference."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from gpurunbook.errors import InputError

DOCKER_HUB = "docker.io"

_HUB_NAMES = frozenset({"docker.io", "index.docker.io"})
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_REGISTRY = re.compile(rf"(?:\[[0-9A-Fa-f:.]+\]|{_LABEL}(?:\.{_LABEL})*)(?::[0-9]+)?")
_COMPONENT = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_PATH = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_SPACE = re.compile(r"\s")
_WORDS = re.compile(r"[-_.]")
_PRECOMPILED = re.compile(r"[0-9]+-[0-9]+\.[0-9]+\.[0-9]+.*")

LONGEST_PATH = 255
"""Characters of a repository without its registry: distribution/reference refuses more."""

FLOATING_TAGS = frozenset(
    {"canary", "current", "dev", "devel", "develop", "edge", "head", "main", "master", "next", "nightly"}
    | {"rolling", "snapshot", "stable", "tip", "trunk", "unstable"}
)
"""Whole tags that are moved by habit. A tag with the word *latest* in it floats as well."""


REMEDY = {
    "empty-reference": "Name the image with an explicit release tag or a digest.",
    "invalid-reference": "Write [registry/]path:tag, or @sha256: and 64 lower-case hexadecimal digits.",
    "explicit-latest": "Write the release tag or the digest; latest is refused even beside a digest.",
    "bad-digest": "Write sha256: and 64 lower-case hexadecimal digits.",
    "implicit-latest": "Write a release tag or a digest; without either, latest is pulled.",
    "floating-alias": "Write a release tag that is never moved, or a digest.",
}
"""What to do about each code of `desired`."""

SAID = {
    "empty-reference": "no image is named",
    "invalid-reference": "is no image reference",
    "explicit-latest": "asks for latest",
    "bad-digest": "has no good digest behind the @",
    "implicit-latest": "has neither tag nor digest",
    "floating-alias": "has a tag that is moved",
}
"""What a reference with such a code is or does."""


class Reference(msgspec.Struct, frozen=True, gc=False):
    """A reference of valid form, except that what follows the `@` is as written.

    repository: registry and path in long form (registry in lower case, `docker.io` where none is named, `library/`
    where Docker Hub implies it): the form in which two repositories are compared. tag, digest: "" where none is
    written; pinned: whether an `@` is written. identity: what is asked for: repository, tag (neither tag nor digest:
    `latest`) and digest.
    """

    repository: str
    tag: str
    digest: str
    pinned: bool
    identity: str

    @property
    def name(self) -> str:
        """Writes nothing. The last component of the path."""
        return self.repository.rpartition("/")[2]

    @property
    def registry(self) -> str:
        """Writes nothing. The host, with its port where one is named."""
        return self.repository.partition("/")[0]


class Desired(msgspec.Struct, frozen=True, gc=False):
    """How the policy reads a desired reference.

    word: its class; codes: why it fails, sorted, empty when it passes; notes: codes that never fail;
    reference: None when it has no valid form; pin: the digest that it demands, "" without a good one.
    """

    word: str
    codes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    reference: Reference | None = None
    pin: str = ""


def is_digest(text: str) -> bool:
    """Writes nothing. Whether the text is `sha256:` and 64 lower-case hex digits, the one form that pins."""
    return _DIGEST.fullmatch(text) is not None


def parse(text: str) -> Reference:
    """Writes nothing. `[registry[:port]/]path[:tag][@digest]`, Docker Hub names in their long form.

    The first component is a registry only when it holds `.` or `:` or is `localhost`; a `:` begins a tag only after
    the last `/` and before the `@`. The digest itself is not judged: see `is_digest`. Raises InputError
    (`empty-reference`, `invalid-reference`). Source: distribution/reference, and the OCI distribution
    specification for names and tags.
    """
    if not text:
        raise InputError("no image is named", code="empty-reference")
    if _SPACE.search(text):
        raise _invalid(text, "white space in it")
    head, at, digest = text.partition("@")
    if "@" in digest:
        raise _invalid(text, "more than one @")
    colon = head.find(":", head.rfind("/") + 1)
    name, tag = (head, "") if colon < 0 else (head[:colon], head[colon + 1 :])
    if colon >= 0 and not _TAG.fullmatch(tag):
        raise _invalid(text, f"the tag {tag[:140]!r} is not 1 to 128 of A-Z a-z 0-9 . _ -")
    registry, path = _split(name)
    if registry and not _REGISTRY.fullmatch(registry):
        raise _invalid(text, f"the registry {registry[:80]!r} is not a host with an optional port")
    if not _PATH.fullmatch(path) or len(path) > LONGEST_PATH:
        raise _invalid(text, f"the path {path[:80]!r} is not lower-case components")
    registry = registry.lower()
    if not registry or registry in _HUB_NAMES:
        registry = DOCKER_HUB
        path = path if "/" in path else f"library/{path}"
    repository = f"{registry}/{path}"
    asked = tag or ("" if at else "latest")
    return Reference(repository, tag, digest, bool(at), f"{repository}{':' if asked else ''}{asked}{at}{digest}")


def _split(name: str) -> tuple[str, str]:
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return first, rest
    return "", name


def _invalid(text: str, why: str) -> InputError:
    return InputError(f"{text[:300]!r} is not an image reference: {why}", code="invalid-reference")


def floats(tag: str) -> bool:
    """Writes nothing. Whether a tag is an alias that is moved: *latest* as a word in any case, or main, edge, …"""
    lowered = tag.lower()
    return lowered in FLOATING_TAGS or "latest" in _WORDS.split(lowered)


@lru_cache(maxsize=8192)
def desired(text: str) -> Desired:
    """Writes nothing. The class of a desired reference and the codes that fail it.

    Classes: empty, invalid, explicit-latest, bad-digest, tag+digest, digest, implicit-latest, floating-alias, tag; the
    first that fits. Source: GPU supply-chain and image policy, Reference policy.
    """
    try:
        reference = parse(text)
    except InputError as wrong:
        return Desired("invalid" if text else "empty", (wrong.code,))
    notes: tuple[str, ...] = ()
    if reference.name == "driver" and _PRECOMPILED.fullmatch(reference.tag):
        # The GPU Operator names a precompiled driver by branch and kernel; the release stands nowhere in it.
        notes = ("branch-only-driver-tag",)
    pin = reference.digest if is_digest(reference.digest) else ""
    bad = ("bad-digest",) if reference.pinned and not pin else ()
    if reference.tag == "latest":
        return Desired("explicit-latest", (*bad, "explicit-latest"), notes, reference, pin)
    if bad:
        return Desired("bad-digest", bad, notes, reference)
    if pin:
        return Desired("tag+digest" if reference.tag else "digest", (), notes, reference, pin)
    if not reference.tag:
        return Desired("implicit-latest", ("implicit-latest",), notes, reference)
    if floats(reference.tag):
        return Desired("floating-alias", ("floating-alias",), notes, reference)
    return Desired("tag", (), notes, reference)
