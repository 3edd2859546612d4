"""Secrets of known shapes, looked for in any text: in what is shown, in what is kept, in what is reviewed.

Known shapes only, no guessing by entropy: digests, git revisions, UUIDs and certificates are no secrets.
Not seen: what is compressed or encrypted, and a secret without a shape of its own.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import html
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

DEPTH = 3
"""How often what is wrapped (base64, JSON in JSON) is unwrapped."""


@dataclass(frozen=True, order=True)
class Leak:
    """A secret that was found. It does not hold the secret.

    line: from 1, in the text as given; length: characters; fingerprint: first 8 hex digits of its SHA-256.
    """

    line: int
    kind: str
    length: int
    fingerprint: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.kind}, {self.length} characters, sha256 {self.fingerprint}"


@dataclass(frozen=True)
class Shape:
    """One kind of secret. anchors: what it begins with, found by plain search; the pattern is matched from there and
    its group `secret` is the secret; sure: a further look at the match; near: one of these stands in the text as well.
    """

    kind: str
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]
    sure: Callable[[str, re.Match[str]], bool] | None = None
    near: tuple[str, ...] = ("",)


def _decoded(run: str) -> str | None:
    """What a base64 text (either alphabet, with or without padding) holds, if that is text."""
    run = re.sub(r"\s", "", run).rstrip("=").translate(_STANDARD)
    try:
        text = base64.b64decode(run + "=" * (-len(run) % 4), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    return text if not _BINARY.search(text) else None


_STANDARD = str.maketrans("-_", "+/")
_BINARY = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


def _object(run: str) -> dict[str, Any]:
    try:
        value = json.loads(_decoded(run) or "")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _token(text: str, match: re.Match[str]) -> bool:
    header = _object(match["secret"].split(".")[0])
    return "alg" in header and not _licence(text, match)


def _licence(_: str, match: re.Match[str]) -> bool:
    parts = match["secret"].split(".")
    claims = _object(parts[1]) if len(parts) > 1 else {}
    return str(claims.get("iss", "")).startswith("NLS") or str(claims.get("aud", "")).startswith("NLS")


def _login(_: str, match: re.Match[str]) -> bool:
    return ":" in (_decoded(match["secret"]) or "")


def _kubeconfig(text: str, match: re.Match[str]) -> bool:
    return bool(_CONFIG.search(text, max(0, match.start() - _NEAR), match.end() + _NEAR))


def _docker(text: str, match: re.Match[str]) -> bool:
    return bool(_AUTHS.search(text, max(0, match.start() - _NEAR), match.start()))


_NEAR = 4000  # characters between a field and what says that it stands in a kubeconfig or a docker configuration
_CONFIG = re.compile(r"current-context|kind[\\\"']*\s*:\s*[\\\"']*Config\b")
_AUTHS = re.compile(r"auths\\*[\"']")
_JWT = re.compile(r"(?<![A-Za-z0-9_-])(?P<secret>eyJ[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]*){2,4})")
_Q = r"\\{0,7}[\"']"  # a quote, perhaps in JSON in JSON
_IS = rf"(?:{_Q})?\s*[:=]\s*(?:{_Q})?"  # between a key and its value, in JSON, YAML, TOML or a command
_PLACEHOLDER = r"[\[<{$*]|REDACTED|DATA\+OMITTED"  # what people and kubectl write in a secret's place


_ALONE = r"(?<![A-Za-z0-9_-])"
_URL = r"^\s/@:\"'<>,;?#\\(){}$"


def _value(least: int) -> str:
    return rf"(?!{_PLACEHOLDER})(?P<secret>[^\s\"',}}<]{{{least},}}?)(?=\\*(?:[\s\"',}}<]|$))"


SHAPES = (
    Shape(
        "private-key",
        ("-----BEGIN ",),
        re.compile(
            r"(?P<secret>-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
            r"(?:(?!-----END).){0,400}?[A-Za-z0-9+/]{24}(?:(?!-----END).){0,20000}(?:-----END [A-Z0-9 ]{0,60}-----)?)",
            re.DOTALL,
        ),
    ),
    Shape("vgpu-licence-token", ("eyJ",), _JWT, _licence),
    Shape("jwt", ("eyJ",), _JWT, _token),
    Shape("ngc-key", ("nvapi-",), re.compile(r"(?<![A-Za-z0-9_-])(?P<secret>nvapi-[A-Za-z0-9_-]{20,})")),
    Shape(
        "ngc-key",  # the older kind has no shape of its own, but a customary name
        ("NGC_API_KEY", "NGC_CLI_API_KEY"),
        re.compile(rf"NGC(?:_CLI)?_API_KEY(?:{_IS}|{_Q},\s*{_Q}value{_Q}\s*:\s*{_Q}){_value(20)}"),
    ),
    Shape(
        "hugging-face-token",
        ("hf_", "api_org_"),
        re.compile(r"(?<![A-Za-z0-9_])(?P<secret>(?:hf|api_org)_[A-Za-z0-9]{30,})(?![A-Za-z0-9_])"),
    ),
    Shape(
        "authorization-header",
        ("uthorization", "UTHORIZATION"),
        re.compile(
            r"(?i:uthorization)[\"'\]\\]*\s*[:=]\s*[\[\s\"'\\]*(?i:bearer|basic)\s+(?P<secret>[A-Za-z0-9._~+/-]{8,}=*)"
        ),
    ),
    Shape("kubeconfig", ("client-key-data",), re.compile(rf"client-key-data{_IS}{_value(16)}")),
    Shape(
        "kubeconfig",
        ("token", "password"),
        re.compile(rf"(?<![A-Za-z0-9_.])(?:token{_IS}(?=.{{16}})|password{_IS}){_value(6)}"),
        _kubeconfig,
        ("current-context", "Config"),
    ),
    Shape(
        "registry-login",
        ("auth",),
        re.compile(rf"(?<![A-Za-z0-9_.-])auth{_IS}(?P<secret>[A-Za-z0-9+/]{{8,}}={{0,2}})"),
        _login,
    ),
    Shape(
        "registry-login",
        ("password", "identitytoken", "registrytoken"),
        re.compile(rf"[a-z]+{_Q}\s*:\s*{_Q}{_value(4)}"),
        _docker,
        ("auths",),
    ),
    Shape(
        "private-key",
        ("AGE-SECRET-KEY-1",),
        re.compile(r"(?P<secret>AGE-SECRET-KEY-1[0-9A-Z]{20,})"),
    ),
    Shape(
        "forge-token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-"),
        re.compile(rf"{_ALONE}(?P<secret>(?:gh[pousr]_|github_pat_)[A-Za-z0-9_]{{30,}}|glpat-[A-Za-z0-9_-]{{20,}})"),
    ),
    Shape("cloud-key", ("AKIA",), re.compile(rf"{_ALONE}(?P<secret>AKIA[0-9A-Z]{{16}})(?![A-Za-z0-9])")),
    Shape("chat-token", ("xox",), re.compile(rf"{_ALONE}(?P<secret>xox[abprs]-[A-Za-z0-9-]{{10,}})")),
    Shape(
        "address-with-password",
        ("://",),
        re.compile(rf"://[{_URL}]{{1,200}}:(?!{_PLACEHOLDER})(?P<secret>[{_URL}]{{3,200}})@"),
    ),
    Shape(
        "cluster-join-token", ("K10",), re.compile(r"(?<![A-Za-z0-9])(?P<secret>K10[0-9a-f]{64}::[a-z]+:[0-9A-Za-z.]+)")
    ),
)

# What base64 begins with when it wraps one of the above: {", { ", {newline, PEM, a kubeconfig, a bare token.
_OPENINGS = (
    *("eyJ", "eyAi", "ewog", "ewoJ", "ewoi", "ew0K", "LS0tLS1CRUdJTi", "YXBpVmVyc2lvb", "a2luZDog"),
    *("ZXlK", "bnZhcGkt", "aGZf"),
)
_RUN = re.compile(r"(?<![A-Za-z0-9+/_-])(?P<run>[A-Za-z0-9+/_-]{20,}={0,2})")
# Escapes that JSON writers may put inside a secret; quotes and line ends the patterns know. Go writes <, > and & so.
_ODD = re.compile(r"\\(?:/|u(00(?!3[cCeE]|26)[2-7][0-9a-fA-F]|001[bB]))")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_ANCHORS = sorted({anchor for shape in SHAPES for anchor in shape.anchors} | {*_OPENINGS})
# The look at the first character halves the time: the engine tries no branch where none can begin.
_FIRST = "".join(sorted({re.escape(anchor[0]) for anchor in _ANCHORS}))
_HINT = re.compile(rf"(?=[{_FIRST}])(?:{'|'.join(map(re.escape, _ANCHORS))})")


def suspect(text: str) -> bool:
    """Writes nothing. Whether a secret may be in a text. Quick: most have none."""
    return _HINT.search(text) is not None


def scan(text: str | bytes) -> list[Leak]:
    """Writes nothing. The secrets in a text, sorted; the same secret is reported once, at its first line.

    Looks as well into base64, JSON and HTML escapes, and behind ANSI colours.
    """
    plain = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    found: dict[tuple[str, str], Leak] = {}
    for start, kind, secret in secrets(plain, DEPTH):
        mark = fingerprint(secret)
        line = plain.count("\n", 0, start) + 1
        known = found.get((kind, mark))
        if known is None or line < known.line:
            found[kind, mark] = Leak(line, kind, len(secret), mark)
    return sorted(found.values())


def fingerprint(secret: str) -> str:
    """Writes nothing. The first 8 hex digits of its SHA-256: tells whether two places hold the same secret."""
    if secret.startswith("-----BEGIN"):  # the same key with real and with escaped line ends
        secret = re.sub(r"\\+[nrt]|[^A-Za-z0-9+/=-]", "", secret)
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()[:8]


def _places(text: str, anchors: tuple[str, ...], pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
    # By plain search: letting the pattern search costs seconds on the pods of a large cluster.
    for anchor in anchors:
        place = text.find(anchor)
        while place >= 0:
            match = pattern.match(text, place)
            if match:
                yield match
            place = text.find(anchor, match.end() if match else place + len(anchor))


def matches(shape: Shape, text: str) -> Iterator[re.Match[str]]:
    """Writes nothing. Where secrets of one shape stand in the open; each match has the group `secret`."""
    if any(word in text for word in shape.near):
        for match in _places(text, shape.anchors, shape.pattern):
            if not shape.sure or shape.sure(text, match):
                yield match


def wrapped(text: str) -> Iterator[tuple[int, int, str]]:
    """Writes nothing. Begin, end and kind of each run of base64 with a secret in it."""
    for match in _places(text, _OPENINGS, _RUN):
        inner = next(secrets(_decoded(match["run"]) or "", DEPTH - 1), None)
        if inner:
            yield (*match.span("run"), inner[1])


def secrets(text: str, depth: int = DEPTH) -> Iterator[tuple[int, str, str]]:
    """Writes nothing. (place in the text, kind, secret), also of what is wrapped; then the place of the wrapping."""
    if len(text) < 8:
        return
    for shape in SHAPES:
        for match in matches(shape, text):
            yield match.start("secret"), shape.kind, match["secret"]
    if not depth:
        return
    for match in _places(text, _OPENINGS, _RUN):
        for _, kind, secret in secrets(_decoded(match["run"]) or "", depth - 1):
            yield match.start(), kind, secret
    for other in _unescaped(text):
        for start, kind, secret in secrets(other, depth - 1):
            # Lines are told by the real line ends; what unescaping added moves the place, so look for it.
            place = text.find(secret[:16])
            yield (place if place >= 0 else min(start, len(text))), kind, secret


def _unescaped(text: str) -> Iterator[str]:
    if "\x1b" in text:
        yield _ANSI.sub("", text)
    if _ODD.search(text):
        yield _ODD.sub(lambda match: chr(int(match[1], 16)) if match[1] else "/", text)
    if "&" in text and ("&quot;" in text or "&#" in text or "&amp;" in text):
        yield html.unescape(text)
