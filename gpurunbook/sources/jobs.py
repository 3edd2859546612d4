"""The calls of tools by which evidence is collected, as data: what is run, and which files come of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpurunbook.supply import calls

LOOPBACK = re.compile(r"(?:127\.[0-9.]+|localhost|\[::1\])(?::[0-9]+)?/.*")
"""A registry of this machine, which is asked without TLS."""

SYFT = "syft.yaml"
"""Name of the file that syft reads besides its words."""

_FORMS = {"cyclonedx.json": "cyclonedx-json", "syft.json": "syft-json"}


@dataclass(frozen=True)
class Job:
    """One call. place: folder under `out`; name: of its record; outputs: file → what it is made of, "" for stdout."""

    place: str
    name: str
    argv: tuple[str, ...]
    outputs: Mapping[str, str]
    key: str = ""
    database: str = ""

    @property
    def record(self) -> str:
        """Writes nothing. Path of the record under `out`."""
        return f"{self.place}/{self.name}.call.json"


def settings(job: Job) -> bytes:
    """Writes nothing. What syft reads besides its words; empty for other tools."""
    http = LOOPBACK.fullmatch(job.argv[2].removeprefix("registry:")) is not None
    return calls.settings(http) if job.argv[0] == "syft" else b""


def folder(digest: str, platform: str = "") -> str:
    """Writes nothing. Where the evidence of a digest lies, or that of one of its platforms."""
    return "/".join([digest.replace(":", "-"), *([platform.replace("/", "-")] if platform else [])])


def document(verb: str, digest: str, own: str, where: str, reference: str = "") -> Job:
    """Writes nothing. The call that fetches a manifest or a config (verb) with its own digest, for an image's digest.

    reference: what crane is asked for, where that is another thing.
    """
    name = f"{verb}-{own[7:19]}"
    return Job(folder(digest), name, ("crane", verb, reference or f"{where}@{own}"), {f"{name}.json": ""})


def sbom(digest: str, platform: str, where: str) -> Job:
    """Writes nothing. The call of syft for one platform of an image, in CycloneDX and in syft's own form."""
    argv: tuple[str, ...] = ("syft", "scan", f"registry:{where}@{digest}", "--platform", platform, "--config", SYFT)
    argv = (*argv, *(word for name, form in _FORMS.items() for word in ("-o", f"{form}={name}")))
    return Job(folder(digest, platform), "syft", argv, {name: name for name in _FORMS})
