"""Programs of the machine: ssh-keygen, skopeo, trivy, … Always an argument list, always a time limit."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpurunbook.errors import DeadlineError, InputError

GET = {
    "cosign": "`make tools` builds it.",
    "crane": "`make tools` builds it.",
    "jq": "Debian and Ubuntu: the package jq.",
    "skopeo": "Debian and Ubuntu: the package skopeo.",
    "ssh-keygen": "It is part of OpenSSH 8.2 or later; Debian and Ubuntu: the package openssh-client.",
    "syft": "`make tools` builds it.",
    "trivy": "`make tools` builds it.",
}
"""How to get a tool, by its name."""


@dataclass(frozen=True)
class Completed:
    """A program that ended by itself. returncode is negative when a signal ended it."""

    argv: tuple[str, ...]
    returncode: int
    stdout: bytes
    stderr: bytes
    seconds: float

    @property
    def complaint(self) -> str:
        """Writes nothing. The last line that the program wrote to stderr, else to stdout; hostile text."""
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return lines[-1].decode(errors="replace") if lines else f"no message, exit {self.returncode}"


def run(
    argv: Sequence[str],
    *,
    input: bytes = b"",
    timeout: float = 30.0,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Completed:
    """Runs a program without a shell, in the C locale, and waits for it at most `timeout` seconds.

    env: its whole environment, by default this process's; cwd: where it runs, by default here. Any exit code is an
    answer. Raises InputError when the program cannot be started, with how to get it, and DeadlineError when it took
    too long; it is then killed.
    """
    begun = time.monotonic()
    try:
        done = subprocess.run(
            list(argv),
            input=input,
            capture_output=True,
            timeout=timeout,
            check=False,
            env={**(os.environ if env is None else env), "LC_ALL": "C"},
            cwd=cwd,
        )
    except OSError as wrong:
        raise InputError(
            f"the program cannot be started: {wrong.strerror}",
            subject=argv[0],
            remedy=GET.get(Path(argv[0]).name, "Install it, or put it on PATH."),
            code="tool-missing",
        ) from None
    except subprocess.TimeoutExpired:
        raise DeadlineError(f"no answer in {timeout:g} s", subject=argv[0], code="tool-slow") from None
    return Completed(tuple(argv), done.returncode, done.stdout, done.stderr, time.monotonic() - begun)
