"""Which built programs count as this checkout's own.

Covered: the key changes with pins, sources and flags; a missing program, and one of other pins, are refused by name;
a build is reused and linked; a failed build leaves nothing. Not covered: the upstream modules (`make envtest tools`).
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import absent
from tests.tools import build
from tests.tools.build import GROUPS, BuildError, Module

GO_MOD = "module example.test/tiny\n\ngo 1.24\n"
MAIN = 'package main\n\nvar version = "none"\n\nfunc main() { println(version) }\n'
ALL = [module for group in GROUPS.values() for module in group]


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Module:
    """A group `tiny` of one module without dependencies, in a tree and a cache of its own."""
    folder = tmp_path / "tests" / "tiny" / "main"
    folder.mkdir(parents=True)
    (folder / "go.mod").write_text(GO_MOD + "\n// require example.test/up v1.2.3\n")
    (folder / "go.sum").write_text("")
    (folder / "main.go").write_text(MAIN)
    module = Module("tiny/main", "// require example.test/up", {"tiny": "."}, ("main.version={version}",))
    monkeypatch.setattr(build, "TESTS", tmp_path / "tests")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(GROUPS, "tiny", (module,))
    return module


@pytest.mark.parametrize("module", ALL, ids=lambda m: m.folder)
def test_every_module_pins_what_it_builds(module: Module) -> None:
    assert module.version.startswith("v")
    assert (module.path / "go.sum").read_text()


def test_kubernetes_staging_modules_are_all_replaced_by_the_version_that_belongs_to_it() -> None:
    kubernetes = next(m for m in ALL if m.upstream == "k8s.io/kubernetes")
    staging = "v0" + kubernetes.version.removeprefix("v1")
    lines = (kubernetes.path / "go.mod").read_text().split("replace (")[1].split(")")[0].strip().splitlines()
    assert len(lines) > 25
    for line in lines:
        name, _, target, version = line.split()
        assert (name, version) == (target, staging)


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "go.mod").write_text(GO_MOD + "// require example.test/up v1.2.4\n"),
        lambda folder: (folder / "go.sum").write_text("example.test/up v1.2.3 h1:other=\n"),
        lambda folder: (folder / "main.go").write_text(MAIN + "// other\n"),
        lambda folder: (folder / "more.go").write_text("package main\n"),
    ],
    ids=["go.mod", "go.sum", "source", "another source"],
)
def test_the_key_changes_with_what_is_built(tiny: Module, change: Callable[[Path], object]) -> None:
    before = tiny.key
    change(tiny.path)
    assert tiny.key != before


def test_the_key_changes_with_flags(tiny: Module) -> None:
    others = [
        Module(tiny.folder, tiny.upstream, tiny.programs, ("main.other={version}",)),
        Module(tiny.folder, tiny.upstream, tiny.programs, tiny.stamp, (("GOEXPERIMENT", "x"),)),
        Module(tiny.folder, tiny.upstream, {"tiny": ".", "more": "."}, tiny.stamp),
    ]
    assert len({module.key for module in [tiny, *others]}) == 4


def test_a_missing_program_is_named_with_the_command(tiny: Module) -> None:
    with pytest.raises(BuildError, match=r"tiny is not built; run `make tiny`"):
        build.programs("tiny")


def test_a_program_of_other_pins_is_refused(tiny: Module) -> None:
    tiny.cached.mkdir(parents=True)
    (tiny.cached / "tiny").write_text("")
    build.folder("tiny").mkdir()
    (build.folder("tiny") / "tiny").symlink_to(tiny.cached / "tiny")
    assert build.programs("tiny") == build.folder("tiny")
    (tiny.path / "main.go").write_text(MAIN + "// other\n")
    with pytest.raises(BuildError, match="other pins"):
        build.programs("tiny")


def test_a_link_to_a_cache_that_was_cleared_is_a_missing_program(tiny: Module) -> None:
    build.folder("tiny").mkdir()
    (build.folder("tiny") / "tiny").symlink_to(tiny.cached / "tiny")
    with pytest.raises(BuildError, match="not built"):
        build.programs("tiny")


@pytest.mark.tools
class TestWithGo:
    """Needs the Go toolchain."""

    @pytest.fixture
    def go(self, monkeypatch: pytest.MonkeyPatch) -> None:
        if shutil.which("go") is None:
            absent("no Go toolchain: install it, then run `make tools`")
        # Go's own cache would follow XDG_CACHE_HOME and compile the standard library anew.
        cache = subprocess.run(["go", "env", "GOCACHE"], capture_output=True, text=True, check=True).stdout.strip()
        monkeypatch.setenv("GOCACHE", cache)

    def test_a_build_is_linked_and_reused(self, go: None, tiny: Module) -> None:
        build.build("tiny")
        program = build.programs("tiny") / "tiny"
        made = program.stat().st_ino, program.stat().st_mtime_ns
        build.build("tiny")
        assert (program.stat().st_ino, program.stat().st_mtime_ns) == made
        shutil.rmtree(build.folder("tiny"))
        build.build("tiny")
        assert (program.stat().st_ino, program.stat().st_mtime_ns) == made

    def test_a_failed_build_leaves_nothing_that_counts(self, go: None, tiny: Module) -> None:
        (tiny.path / "main.go").write_text("package main\n\nfunc main() { undefined() }\n")
        with pytest.raises(BuildError, match="tiny did not build"):
            build.build("tiny")
        assert not tiny.cached.exists()
        with pytest.raises(BuildError, match="not built"):
            build.programs("tiny")
