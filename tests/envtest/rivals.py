"""Other hands of a fixture on the real control plane: what its actors do, but for those that the plane has itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpurunbook.embedded import fixture
from tests.envtest.controlplane import ControlPlane

_OF_THE_PLANE = {"daemonset-controller", "kubelet"}

READS_LOG = "editor"
"""An actor that reads the request log of an embedded server: no other has one."""


@contextmanager
def at_work(plane: ControlPlane, folder: Path) -> Iterator[None]:
    """The fixture's actors, each as a process and a user of its own, until the block ends or this process does.

    Raises RuntimeError with its own words when one has failed.
    """
    processes = []
    for actor in fixture.load(folder).config.actors:
        if actor.name not in _OF_THE_PLANE:
            user = plane.user(actor.username or f"system:gpurunbook:actor:{actor.name}", "system:masters")
            line = [sys.executable, "-m", "gpurunbook.embedded.actors", actor.name, "--until-eof"]
            line += ["--kubeconfig", str(user), "--parameters", json.dumps(actor.parameters)]
            log = (plane.folder / f"actor-{user.stem}.log").open("w+")
            processes.append((subprocess.Popen(line, stdin=subprocess.PIPE, stderr=log), log))
    try:
        yield
    finally:
        failed = []
        for process, log in processes:
            assert process.stdin is not None
            process.stdin.close()
            if process.wait(timeout=30):
                log.seek(0)
                failed.append(log.read())
            log.close()
        if failed:
            raise RuntimeError("; ".join(failed))
