"""Builds the Go programs that the tests run: the real control plane and the supply-chain tools.

    python3 tests/tools/build.py envtest     kube-apiserver, kube-controller-manager, kube-scheduler, etcd, kwok
    python3 tests/tools/build.py tools       cosign, syft, trivy, crane, helm, trivydb

Each program is a tool dependency of a small go.mod. What is built goes to
`${XDG_CACHE_HOME:-~/.cache}/gpurunbook/go/<module>-<key>/`, where the key is a digest of everything that the project
decides about the build, and is linked from `tests/envtest/bin` or `tests/tools/bin`. A fresh clone with the same
key reuses the programs; with another key the old ones are never looked at. Only the standard library is imported.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent


class BuildError(Exception):
    """A program is missing or could not be built; the message says how to get it."""


@dataclass(frozen=True)
class Module:
    """One go.mod: its folder under tests/, the pinned upstream module, its programs, and where a version is stamped."""

    folder: str
    upstream: str
    programs: dict[str, str]
    stamp: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()

    @property
    def path(self) -> Path:
        return TESTS / self.folder

    @property
    def version(self) -> str:
        """The pinned version of the upstream module, as in go.mod."""
        text = (self.path / "go.mod").read_text()
        found = re.search(rf"^\s*(?:require )?{re.escape(self.upstream)} (v[0-9A-Za-z.+-]+)", text, re.MULTILINE)
        if found is None:
            raise BuildError(f"{self.path}/go.mod does not require {self.upstream}")
        return found[1]

    @property
    def ldflags(self) -> str:
        values = {"version": self.version, "bare": self.version.removeprefix("v")}
        values["major"], values["minor"] = values["bare"].split(".")[:2]
        return " ".join(["-s -w", *("-X " + stamp.format(**values) for stamp in self.stamp)])

    @property
    def key(self) -> str:
        """Digest of all that decides what is built: go.mod, go.sum, sources, flags, machine."""
        digest = hashlib.sha256()
        inputs = [self.path / "go.mod", self.path / "go.sum", *sorted(self.path.glob("*.go"))]
        for part in (*(f"{p.name}\0{p.read_text()}" for p in inputs), repr(self), self.ldflags, platform.machine()):
            digest.update(part.encode() + b"\0")
        return digest.hexdigest()[:20]

    @property
    def cached(self) -> Path:
        """The folder that holds this build, whether or not it was made already."""
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return base / "gpurunbook" / "go" / f"{self.path.name}-{self.key}"


KUBE = "k8s.io/component-base/version"
GROUPS: dict[str, tuple[Module, ...]] = {
    "envtest": (
        Module("envtest/etcd", "go.etcd.io/etcd/server/v3", {"etcd": "go.etcd.io/etcd/server/v3"}),
        Module(
            "envtest/kwok",
            "sigs.k8s.io/kwok",
            {"kwok": "sigs.k8s.io/kwok/cmd/kwok"},
            ("sigs.k8s.io/kwok/pkg/consts.Version={bare}",),
        ),
        Module(
            "envtest/kubernetes",
            "k8s.io/kubernetes",
            {
                name: f"k8s.io/kubernetes/cmd/{name}"
                for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
            },
            (
                f"{KUBE}.gitVersion={{version}}",
                f"{KUBE}.gitMajor={{major}}",
                f"{KUBE}.gitMinor={{minor}}",
                f"{KUBE}.gitTreeState=clean",
                "k8s.io/client-go/pkg/version.gitVersion={version}",
            ),
        ),
    ),
    "tools": (
        Module(
            "tools/crane",
            "github.com/google/go-containerregistry",
            {"crane": "github.com/google/go-containerregistry/cmd/crane"},
            ("github.com/google/go-containerregistry/cmd/crane/cmd.Version={bare}",),
        ),
        Module("tools/trivydb", "go.etcd.io/bbolt", {"trivydb": "."}),
        Module(
            "tools/helm",
            "helm.sh/helm/v3",
            {"helm": "helm.sh/helm/v3/cmd/helm"},
            ("helm.sh/helm/v3/internal/version.version={version}",),
        ),
        Module(
            "tools/cosign",
            "github.com/sigstore/cosign/v3",
            {"cosign": "github.com/sigstore/cosign/v3/cmd/cosign"},
            ("sigs.k8s.io/release-utils/version.gitVersion={version}",),
        ),
        Module(
            "tools/syft",
            "github.com/anchore/syft",
            {"syft": "github.com/anchore/syft/cmd/syft"},
            ("main.version={bare}",),
        ),
        # trivy's own dependency go-json-experiment is used through encoding/json/v2, which Go builds only on request.
        Module(
            "tools/trivy",
            "github.com/aquasecurity/trivy",
            {"trivy": "github.com/aquasecurity/trivy/cmd/trivy"},
            ("github.com/aquasecurity/trivy/pkg/version/app.ver={bare}",),
            (("GOEXPERIMENT", "jsonv2"),),
        ),
    ),
}


def folder(group: str) -> Path:
    """Where the programs of a group are linked: git-ignored, inside the checkout. Writes nothing."""
    return TESTS / group / "bin"


def program(group: str, name: str) -> Path:
    """One program of a group, built from this checkout's pins. Writes nothing.

    Raises BuildError naming the program and the command when it is missing or was built from other pins.
    """
    module = next(module for module in GROUPS[group] if name in module.programs)
    link = folder(group) / name
    if not link.exists():
        raise BuildError(f"{name} is not built; run `make {group}`")
    if link.resolve().parent != module.cached.resolve():
        raise BuildError(f"{name} was built from other pins than {module.folder}/go.mod; run `make {group}`")
    return link


def programs(group: str) -> Path:
    """The folder with the group's programs, each one as `program` wants it. Writes nothing."""
    for module in GROUPS[group]:
        for name in module.programs:
            program(group, name)
    return folder(group)


def build(group: str) -> None:
    """Builds what is not in the cache, one program after the other, and links all of the group."""
    if shutil.which("go") is None:
        raise BuildError(f"`make {group}` needs Go (see tests/{group}/*/go.mod for the version); install it")
    for module in GROUPS[group]:
        made = module.cached
        made.parent.mkdir(parents=True, exist_ok=True)
        with (made.parent / f"{made.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.is_dir():
                _compile(module, made)
        folder(group).mkdir(exist_ok=True)
        for name in module.programs:
            link = folder(group) / f".{name}.{os.getpid()}"
            link.symlink_to(made / name)
            link.replace(folder(group) / name)


def _compile(module: Module, made: Path) -> None:
    flags = "-mod=readonly -trimpath -buildvcs=false"
    env = {**os.environ, "GOFLAGS": flags, "CGO_ENABLED": "0", "GOWORK": "off", **dict(module.env)}
    with tempfile.TemporaryDirectory(prefix=".building-", dir=made.parent) as scratch:
        for name, package in module.programs.items():
            began = time.monotonic()
            print(f"building {name} {module.version} ...", flush=True)
            command = ["nice", "go", "build", "-ldflags", module.ldflags, "-o", f"{scratch}/{name}", package]
            if subprocess.run(command, cwd=module.path, env=env, check=False).returncode:
                raise BuildError(f"{name} did not build; its go.mod is {module.path}/go.mod")
            print(f"built {name} {module.version} in {time.monotonic() - began:.0f} s", flush=True)
        complete = Path(scratch) / "done"
        complete.mkdir()
        for name in module.programs:
            (Path(scratch) / name).rename(complete / name)
        complete.rename(made)


def main() -> int:
    """Builds the groups named on the command line; without one, all."""
    names = sys.argv[1:] or list(GROUPS)
    try:
        for name in names:
            if name not in GROUPS:
                raise BuildError(f"{name} is none of {', '.join(GROUPS)}")
            build(name)
            print(f"{name}: {folder(name)}")
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
