"""Public keys in files."""

from __future__ import annotations

import base64
import re
from pathlib import Path

from gpurunbook.digests import digest
from gpurunbook.errors import InputError
from gpurunbook.sources import files


def fingerprint(path: Path) -> str:
    """Writes nothing. SHA-256 of the DER in a file with one PEM public key. Raises InputError (`key`)."""
    text = files.read(str(path), 1 << 16).decode("ascii", errors="replace").strip()
    found = re.fullmatch(r"-----BEGIN PUBLIC KEY-----\n([A-Za-z0-9+/=\s]+)\n-----END PUBLIC KEY-----", text)
    if found is None:
        raise InputError("not one public key in PEM", subject=str(path), code="key")
    return digest(base64.b64decode(found[1]))
