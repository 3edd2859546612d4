"""Tools of the evidence gate in one exact version each, as CI pins them."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from gpurunbook.errors import InputError
from gpurunbook.sources import tools
from gpurunbook.supply import strictjson
from gpurunbook.supply.members import at

TOOLS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "cosign": (("version", "--json"), ("gitVersion",)),
    "crane": (("version",), ()),
    "syft": (("version", "-o", "json"), ("version",)),
    "trivy": (("version", "--format", "json"), ("Version",)),
}
"""Tool → how to ask for its version, and where in the JSON it stands (nowhere: the answer is the version)."""


def read_pins(data: bytes) -> dict[str, str]:
    """Writes nothing. `{"cosign": "3.1.3", …}`, one exact version per tool. Raises InputError (`pins`)."""
    try:
        pins = strictjson.loads(data)
    except InputError as wrong:
        raise InputError(wrong.message, subject="pins", code="pins") from None
    if not isinstance(pins, dict):
        raise InputError("not an object of tool and exact version", subject="pins", code="pins")
    for name in TOOLS:
        if not isinstance(pins.get(name), str) or not re.fullmatch(r"v?[0-9]+(?:\.[0-9A-Za-z-]+)+", pins[name]):
            message = f"{name} is {pins.get(name)!r}, wanted one exact version such as 1.2.3"
            raise InputError(message, subject="pins", code="pins")
    if more := sorted(set(pins) - set(TOOLS)):
        raise InputError(f"{more[0]!r} is none of {', '.join(TOOLS)}", subject="pins", code="pins")
    return {name: version.removeprefix("v") for name, version in pins.items()}


def check(pins: Mapping[str, str], env: Mapping[str, str], cache: tuple[str, ...]) -> bytes:
    """Writes nothing. What trivy says of itself and its database, once every tool is of its pinned version.

    cache: words that name trivy's cache. Raises InputError (`tool-missing`, `tool-version`).
    """
    said = b""
    with tempfile.TemporaryDirectory() as nowhere:
        for name, (words, path) in TOOLS.items():
            line = [name, *words, *(cache if name == "trivy" else ())]
            answered = tools.run(line, timeout=120, env=env, cwd=Path(nowhere))
            text = answered.stdout.decode(errors="replace").strip()
            if path:
                with contextlib.suppress(InputError):
                    text = str(at(strictjson.loads(answered.stdout), *path))
            if answered.returncode != 0 or text.removeprefix("v") != pins[name]:
                message = f"it says {text[:80]!r} (exit {answered.returncode}), pinned is {pins[name]}"
                remedy = "Install the pinned version, or have the pin changed in review."
                raise InputError(message, subject=name, remedy=remedy, code="tool-version")
            said = answered.stdout
    return said
