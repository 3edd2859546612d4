"""Throw-away ssh keys with which scenarios approve. They are made on this machine, and trusted by nothing real."""

from __future__ import annotations

import fcntl
from pathlib import Path

from gpurunbook.errors import InputError
from gpurunbook.evidence import signing
from gpurunbook.folder import keep
from gpurunbook.runbook.site import Site
from gpurunbook.sources import tools

FOLDER = ".fixture-keys"
"""Name of the folder in which keys may be made, beside the file of signers: never beside that of a real site."""

STRANGER = "stranger"


def key(home: Path, site: Site, who: str) -> Path:
    """Makes the keys of all principals of the site file where they are missing. The private key of one of them, or of
    a stranger that the file of signers does not hold. Raises InputError for anybody else, and for a real site."""
    signers = home / site.signers
    if signers.parent.name != FOLDER:
        raise InputError(
            f"scenarios sign with throw-away keys, which are made in a folder {FOLDER} only",
            subject=f"signers: {site.signers!r:.120}",
            remedy=f"Name outputs/{FOLDER}/allowed_signers in the site file of the scenario.",
        )
    principals = sorted({*site.principals.values()})
    if who not in (*principals, STRANGER):
        raise InputError(f"approve: by: {who!r:.80} is no principal of the site file", subject=", ".join(principals))
    signers.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (signers.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # scenarios run side by side
        known = signers.read_text() if signers.is_file() else ""
        for name in principals:
            public = _made(signers.parent / name).with_suffix(".pub").read_text().split()
            line = f'{name} namespaces="{signing.APPROVAL}" {public[0]} {public[1]}\n'
            known += "" if line in known else line
        keep.write(signers, known.encode())
        return _made(signers.parent / who)


def _made(path: Path) -> Path:
    if not path.with_suffix(".pub").is_file():
        path.unlink(missing_ok=True)
        done = tools.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", path.name, "-f", str(path)])
        if done.returncode:
            raise InputError(f"ssh-keygen made no key: {done.complaint}", subject=str(path))
    return path
