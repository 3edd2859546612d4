"""Records of tool calls: what was run, in which version, how it ended, and what it wrote, by digest.

A file of evidence counts with the record of the call that wrote it, found by the file's SHA-256 and never by its name.
Only options that are known to take nothing out of an answer are accepted: `trivy --severity` or `--ignore-unfixed` drop
findings without a trace.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from gpurunbook.digests import digest
from gpurunbook.errors import InputError
from gpurunbook.supply import strictjson, times
from gpurunbook.supply.references import is_digest, parse

FORM = "gpurunbook.io/tool-call/v1"
"""Value of `record`, by which a record is known."""

_OPTIONS: Mapping[str, Mapping[str, bool]] = {
    "cosign verify": {
        **dict.fromkeys(("--key", "--certificate-identity", "--certificate-oidc-issuer", "--output"), True),
        **dict.fromkeys(("--insecure-ignore-tlog", "--private-infrastructure", "--offline"), False),
        **dict.fromkeys(("--allow-insecure-registry", "--allow-http-registry"), False),
        "--timeout": True,
    },
    "crane config": {"--insecure": False, "--platform": True},
    "crane manifest": {"--insecure": False, "--platform": True},
    "syft scan": {
        **dict.fromkeys(("--output", "--platform", "--config"), True),
        "--quiet": False,
    },
    "trivy image": {
        **dict.fromkeys(("--format", "--output", "--platform", "--image-src", "--scanners"), True),
        **dict.fromkeys(("--cache-dir", "--cache-backend", "--timeout", "--ignorefile", "--vex", "--parallel"), True),
        **dict.fromkeys(("--show-suppressed", "--list-all-pkgs", "--offline-scan", "--skip-db-update"), False),
        **dict.fromkeys(("--skip-java-db-update", "--skip-version-check", "--no-progress"), False),
        **dict.fromkeys(("--quiet", "--debug", "--insecure"), False),
    },
    "trivy version": {"--format": True, "--cache-dir": True, "--quiet": False},
}
"""Tool and verb → its options, and whether each takes a value."""

_LONG = {"-c": "--config", "-d": "--debug", "-f": "--format", "-o": "--output", "-q": "--quiet"}
"""One option under two names is still one: of `--format cyclonedx -f json` the tool obeys the last."""


def settings(http: bool) -> bytes:
    """Writes nothing. The file that `syft scan --config` is given here, and no other: such a file can leave things out.

    http: whether the registry is asked without TLS. Without the digest of every file, which no gate asks for, syft's
    own JSON is a fraction as long.
    """
    whole = {"check-for-app-update": False, "file": {"metadata": {"selection": "none"}}}
    return json.dumps({**whole, "registry": {"insecure-use-http": http}}).encode()


_SETTINGS = frozenset(digest(settings(http)) for http in (False, True))

_SBOMS = frozenset({"cyclonedx", "spdx", "spdx-json"})
"""Formats in which trivy lists components and no vulnerabilities."""


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One call. exit_code: None when it did not end in time; outputs: SHA-256 of each thing that it wrote.

    started: RFC 3339; stderr: the end of it; key: SHA-256 of the public key's DER that `cosign verify --key` used;
    database: SHA-256 of what `trivy version --format json` had said before the scan; settings: of the file that
    `syft scan --config` was given.
    """

    record: str
    tool: str
    version: str
    argv: list[str]
    started: str
    seconds: float
    exit_code: int | None
    stderr: str
    outputs: list[str]
    key: str = ""
    database: str = ""
    settings: str = ""

    def as_json(self) -> dict[str, Any]:
        """Writes nothing. The record as an object."""
        made: dict[str, Any] = msgspec.to_builtins(self)
        return made


@dataclass(frozen=True)
class Asked:
    """What a call was about. repository: normalised; digest: "" for a call about no image; platform: as given."""

    repository: str
    digest: str
    platform: str
    options: Mapping[str, str]


def read_call(document: Any) -> Call:
    """Writes nothing. A record from its JSON. Raises InputError (`unreadable`) that names the member."""
    try:
        call = strictjson.typed(document, Call)
    except InputError as wrong:
        raise InputError(f"not a record of a tool call: {wrong}", code="unreadable") from None
    if call.record != FORM:
        raise InputError(f"record is {call.record[:80]!r}, wanted {FORM}", code="unreadable")
    if not call.tool or not call.version or not call.argv:
        raise InputError("a record without tool, version or argv", code="unreadable")
    if times.instant(call.started) is None:
        raise InputError(f"started is {call.started[:80]!r}, wanted RFC 3339 with T and zone", code="unreadable")
    digests = [*call.outputs, *filter(None, (call.key, call.database, call.settings))]
    bad = next((text for text in digests if not is_digest(text)), None)
    if bad is not None:
        raise InputError(f"{bad[:80]!r} is not sha256: and 64 lower-case hexadecimal digits", code="unreadable")
    return call


def asked(call: Call) -> Asked:
    """Writes nothing. The image and the platform that a call was about, from its argument list.

    Raises InputError (`command-refused`) for an option that is not known to leave the answer whole, and for an image
    that is not named by `repository@digest`.
    """
    name = f"{call.tool} {call.argv[1] if len(call.argv) > 1 else ''}".strip()
    known = _OPTIONS.get(name)
    if known is None:
        raise _refused(f"{name!r} is none of {', '.join(sorted(_OPTIONS))}")
    options: dict[str, str] = {}
    images: list[str] = []
    rest = iter(call.argv[2:])
    for word in rest:
        if not word.startswith("-"):
            images.append(word)
            continue
        short, equals, value = word.partition("=")
        option = _LONG.get(short, short)
        if option not in known:
            raise _refused(f"{name} with {option[:80]}: not known to leave the answer whole")
        if option in options and (name, option) != ("syft scan", "--output"):
            raise _refused(f"{name} with {option} twice")
        if known[option] and not equals:
            value = next(rest, "")
        options[option] = value if known[option] or equals else "true"
    _demands(name, options)
    if name == "syft scan" and "--config" in options and call.settings not in _SETTINGS:
        raise _refused("syft scan --config with settings that are not known to leave the answer whole")
    platform = options.get("--platform", "")
    if name == "trivy version":
        return Asked("", "", platform, options)
    if len(images) != 1:
        raise _refused(f"{name} names {len(images)} images, wanted one")
    text = images[0].removeprefix("registry:") if name == "syft scan" else images[0]
    try:
        reference = parse(text)
    except InputError as wrong:
        raise _refused(wrong.message) from None
    if not is_digest(reference.digest) or reference.tag:
        raise _refused(f"{name} is asked for {text[:200]!r}, wanted repository@sha256:…, without a tag")
    return Asked(reference.repository, reference.digest, platform, options)


def tail(call: Call) -> str:
    """Writes nothing. The last line that a call wrote to stderr; hostile text."""
    return (call.stderr.strip().splitlines() or ["no message"])[-1]


def _demands(name: str, options: Mapping[str, str]) -> None:
    if name == "trivy image" and options.get("--format", "") not in _SBOMS:
        if options.get("--show-suppressed") != "true":
            raise _refused("trivy image without --show-suppressed: what an ignore file or VEX took out is not seen")
        if "vuln" not in options.get("--scanners", "vuln").split(","):
            raise _refused(f"trivy image --scanners {options['--scanners']}: vulnerabilities were not looked for")
    if name == "cosign verify":
        keyless = {"--certificate-identity", "--certificate-oidc-issuer"} & set(options)
        if len(keyless) != (0 if "--key" in options else 2):
            raise _refused("cosign verify needs --key, or --certificate-identity and --certificate-oidc-issuer")


def _refused(message: str) -> InputError:
    return InputError(message, code="command-refused")
