"""A registry on loopback (Debian's docker-registry), and small images for it, made here and pushed by crane.

An image is one layer with what syft and trivy read of a Debian image: `etc/os-release`, `etc/debian_version` (by which
alone trivy knows Debian) and `var/lib/dpkg/status`.
Everything in it is fixed, so that the same content has the same digest in every run.
"""

from __future__ import annotations

import io
import json
import shutil
import signal
import subprocess
import tarfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests import ports

OS_RELEASE = """PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"
NAME="Debian GNU/Linux"
VERSION_ID="12"
VERSION="12 (bookworm)"
VERSION_CODENAME=bookworm
ID=debian
"""


class RegistryError(Exception):
    """The registry is not installed or did not start, or crane refused."""


def layer(packages: Mapping[str, str], architecture: str = "amd64", files: Mapping[str, str] | None = None) -> bytes:
    """A tar layer of a Debian 12 image with these packages (name to version) installed, and these further files."""
    status = "".join(
        f"Package: {name}\nStatus: install ok installed\nArchitecture: {architecture}\nVersion: {version}\n"
        f"Maintainer: Nobody <nobody@example.org>\nDescription: {name}\n\n"
        for name, version in sorted(packages.items())
    )
    content = {"etc/os-release": OS_RELEASE, "etc/debian_version": "12.5\n", "var/lib/dpkg/status": status}
    content |= files or {}
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path, text in sorted(content.items()):
            entry = tarfile.TarInfo(path)
            entry.size = len(text.encode())
            tar.addfile(entry, io.BytesIO(text.encode()))
    return made.getvalue()


class Registry:
    """A registry that serves HTTP on loopback until the block ends. `address` is what image references begin with."""

    def __init__(self, folder: Path, crane: Path) -> None:
        program = shutil.which("docker-registry")
        if program is None:
            raise RegistryError("docker-registry is not installed; run `apt-get install docker-registry`")
        self.folder, self.crane = folder, crane
        self._port = ports.held()
        self.address = f"127.0.0.1:{self._port.getsockname()[1]}"
        config = {
            "version": "0.1",
            "log": {"level": "warn", "accesslog": {"disabled": True}},
            "storage": {"filesystem": {"rootdirectory": str(folder / "data")}, "delete": {"enabled": True}},
            "http": {"addr": self.address},
        }
        (folder / "config.yml").write_text(json.dumps(config))
        with (folder / "registry.log").open("wb") as log:
            self._process = subprocess.Popen(
                [program, "serve", folder / "config.yml"], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._await()

    def _await(self) -> None:
        end = time.monotonic() + 180
        while True:
            try:
                with urllib.request.urlopen(f"http://{self.address}/v2/", timeout=5):
                    return
            except OSError as error:
                if self._process.poll() is not None or time.monotonic() > end:
                    self.stop()
                    log = (self.folder / "registry.log").read_text(errors="replace")[-1000:]
                    raise RegistryError(f"docker-registry did not start: {log}") from error
                time.sleep(0.05)

    def run(self, *arguments: str | Path) -> str:
        """What crane answers. Raises RegistryError with its own words."""
        line = [str(self.crane), *map(str, arguments), "--insecure"]
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode:
            raise RegistryError(f"crane {arguments[0]}: {done.stderr.strip()}")
        return done.stdout.strip()

    def push(
        self, name: str, content: bytes, *, platform: str = "linux/amd64", labels: Mapping[str, str] | None = None
    ) -> str:
        """Pushes an image of one layer as `name` (repository, with or without tag); gives `address/repository@digest`.

        The layer is what `layer()` made; the image says it is for `platform`.
        """
        target = f"{self.address}/{name}"
        file = self.folder / "layer.tar"
        file.write_bytes(content)
        self.run("append", "--platform", platform, "--new_layer", file, "--new_tag", target)
        stamped = [word for key, value in sorted((labels or {}).items()) for word in ("--label", f"{key}={value}")]
        self.run("mutate", target, "--set-platform", platform, *stamped, "--tag", target)
        return f"{self._repository(target)}@{self.digest(name)}"

    def index(self, name: str, manifests: Sequence[str]) -> str:
        """Pushes an index of images that this registry holds already; gives `address/repository@digest`."""
        target = f"{self.address}/{name}"
        words = [word for manifest in manifests for word in ("--manifest", manifest)]
        self.run("index", "append", *words, "--tag", target)
        return f"{self._repository(target)}@{self.digest(name)}"

    def digest(self, name: str) -> str:
        """The digest that a name has now."""
        return self.run("digest", f"{self.address}/{name}")

    def manifest(self, reference: str) -> Any:
        """The manifest or index that a full reference leads to."""
        return json.loads(self.run("manifest", reference))

    @staticmethod
    def _repository(target: str) -> str:
        head, slash, leaf = target.rpartition("/")
        return head + slash + leaf.partition(":")[0]

    def stop(self) -> None:
        """Ends the server. A second call does nothing."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._port.close()

    def __enter__(self) -> Registry:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
