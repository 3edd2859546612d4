"""Collecting evidence with programs that stand in for the tools: plans, records, resuming, faults.

Covered: versions that are not pinned, what each tool is told and kept from, mirrors, who signs, what is done again,
calls that fail or take too long, a collection that was killed or runs twice, a folder that takes nothing, options.
Not covered: the tools themselves (tests/tools/test_collect.py).
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from gpurunbook.cli import main
from gpurunbook.errors import InputError
from gpurunbook.sources.collect import Plan, collect
from gpurunbook.sources.keys import fingerprint
from gpurunbook.sources.pins import read_pins
from gpurunbook.supply.decisions import read_decisions
from gpurunbook.supply.family import Family
from gpurunbook.supply.relations import Child
from tests.unit.gate_evidence import KEY, PLATFORMS, REPOSITORY, VERSIONS, Evidence, decisions, sha, signer, text

KEY_FILE = """-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEUcEc8x82ZYoqNqZg4NgtD/4q4qLy
gj+9QU096BS+DmepKRI1ykAeZrk3jELBzunSQWb5IbuCIYdBHTlONVddqA==
-----END PUBLIC KEY-----
"""

# A stand-in says what lies in its folder under the name of the call, and keeps how it was called.
STAND_IN = """#!/bin/sh
here="$(dirname "$(readlink -f "$0")")"; tool="$(basename "$0")"; verb="$1"
for word in "$@"; do last="$word"; done
case "$last" in *@*) about="$(echo "$last" | sed 's/.*@sha256:\\(........\\).*/\\1/')";; *) about=none;; esac
platform=""; image=""; seen=""
for word in "$@"; do
  [ "$seen" = --platform ] && platform="$(basename "$word")"
  case "$word" in *@sha256:*) image="$(echo "$word" | sed 's/.*@sha256:\\(........\\).*/\\1/')";; esac
  seen="$word"
done
name="$tool-$verb-$image-$platform"
{ echo "$@"; env; ls -A; } > "$here/log/$name-$$"
[ -e "$here/slow" ] && [ "$verb" != version ] && exec sleep 30
[ -e "$here/answers/$name.code" ] && { echo "refused by the stand-in" >&2; exit "$(cat "$here/answers/$name.code")"; }
if [ "$tool-$verb" = syft-scan ]; then
  cp "$here/answers/$name.cyclonedx" cyclonedx.json; cp "$here/answers/$name.syft" syft.json; exit
fi
[ -e "$here/answers/$name" ] && exec cat "$here/answers/$name"
echo "nothing is known of $name" >&2; exit 1
"""


class Bench:
    """A folder of stand-ins for one piece of evidence, and the plan that collects it."""

    def __init__(self, folder: Path, evidence: Evidence) -> None:
        self.folder, self.evidence = folder, evidence
        self.programs = folder / "programs"
        for name in ("answers", "log"):
            (self.programs / name).mkdir(parents=True)
        for name in VERSIONS:
            (self.programs / name).write_text(STAND_IN)
            (self.programs / name).chmod(0o755)
        (folder / "nvidia.pub").write_text(KEY_FILE)
        self.key = fingerprint(folder / "nvidia.pub")
        docs, index = evidence.docs, evidence.digest
        self.answer("cosign-version--", {"gitVersion": f"v{VERSIONS['cosign']}"})
        self.answer("syft-version--", {"version": VERSIONS["syft"]})
        self.answer("crane-version--", f"{VERSIONS['crane']}\n".encode())
        self.answer("trivy-version--", docs["database"])
        self.answer(f"cosign-verify-{index[7:15]}-", docs["cosign"])
        self.answer(f"crane-manifest-{index[7:15]}-", docs["index"])
        for platform in evidence.platforms:
            machine, child = platform.split("/")[1], evidence.child[platform][7:15]
            self.answer(f"crane-manifest-{child}-", docs[f"manifest-{machine}"])
            self.answer(f"crane-config-{child}-", docs[f"config-{machine}"])
            self.answer(f"trivy-image-{index[7:15]}-{machine}", docs[f"trivy-{machine}"])
            self.answer(f"syft-scan-{index[7:15]}-{machine}.cyclonedx", docs[f"sbom-{machine}"])
            self.answer(f"syft-scan-{index[7:15]}-{machine}.syft", docs[f"syft-{machine}"])

    def answer(self, name: str, document: Any) -> None:
        data = document if isinstance(document, bytes) else text(document)
        (self.programs / "answers" / name).write_bytes(data)

    def fail(self, name: str, code: int) -> None:
        self.answer(f"{name}.code", str(code).encode())

    def plan(self, **more: Any) -> Plan:
        said = decisions(signatures=[signer(key=self.key)])
        settings: dict[str, Any] = {
            "out": self.folder / "evidence",
            "images": {self.evidence.digest: [self.evidence.repository]},
            "pins": VERSIONS,
            "decisions": read_decisions(text(said)),
            "platforms": self.evidence.platforms,
            "keys": {self.key: self.folder / "nvidia.pub"},
            "timeout": 120.0,
        }
        return Plan(**{**settings, **more})

    def log(self) -> list[str]:
        """How every call but those for versions was made: words, variables, files of its folder."""
        return [p.read_text() for p in sorted((self.programs / "log").iterdir()) if "-version-" not in p.name]

    def files(self) -> list[Path]:
        return sorted(p for p in (self.folder / "evidence").rglob("*") if p.is_file())


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(tmp_path, Evidence())
    monkeypatch.setenv("PATH", f"{made.programs}:{os.environ['PATH']}")
    return made


def test_what_is_collected_passes_the_gate(bench: Bench) -> None:
    made = collect(bench.plan())
    assert made.whole
    assert not made.unverified
    evidence = Evidence()
    evidence.docs, evidence.calls = {}, {}
    evidence.raw = {str(path): path.read_bytes() for path in bench.files()}
    evidence.exceptions = decisions(signatures=[signer(key=bench.key)])
    now = time.time_ns()  # the calls were made by the real clock; the made-up database is of no age
    report = evidence.report(now=now, max_database_age=now)
    assert [f.code for f in report.findings] == ["evidence-complete"]
    assert all(image.calls for image in report.images)


def test_every_call_is_recorded_with_what_it_was_told(bench: Bench) -> None:
    collect(bench.plan())
    records = [json.loads(p.read_text()) for p in bench.files() if p.name.endswith(".call.json")]
    tools = sorted(record["tool"] for record in records)
    assert tools == ["cosign", *["crane"] * 5, "syft", "syft", "trivy", "trivy"]
    for record in records:
        assert record["version"] == VERSIONS[record["tool"]]
        assert record["exit_code"] == 0
        assert record["argv"][-1].endswith(bench.evidence.digest) or record["tool"] in ("crane", "syft")
        assert not any(word.startswith("--severity") for word in record["argv"])
    (trivy,) = {record["database"] for record in records if record["tool"] == "trivy"}
    assert any(p.name == f"trivy-version-{trivy[7:19]}.json" for p in bench.files())
    (cosign,) = (record for record in records if record["tool"] == "cosign")
    assert cosign["key"] == bench.key


def test_tools_read_nothing_but_their_words(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRIVY_SEVERITY", "SYFT_EXCLUDE", "COSIGN_EXPERIMENTAL", "TUF_ROOT", "SIGSTORE_ROOT_FILE"):
        monkeypatch.setenv(name, "x")
    (bench.folder / "evidence").mkdir()
    (bench.folder / "evidence" / "trivy.yaml").write_text("severity: [LOW]")
    monkeypatch.chdir(bench.folder / "evidence")
    collect(bench.plan())
    assert len(bench.log()) == 10
    for called in bench.log():
        assert not any(
            line.startswith(("TRIVY_", "SYFT_", "COSIGN_", "TUF_", "SIGSTORE_")) for line in called.split("\n")
        )
        assert "trivy.yaml" not in called


def test_what_is_whole_is_not_done_again(bench: Bench) -> None:
    first = collect(bench.plan())
    before = {path: path.stat().st_ino for path in bench.files() if "trivy-version" not in path.name}
    again = collect(bench.plan())
    assert (sum(d.kept for d in first.done), sum(d.kept for d in again.done)) == (0, 10)
    assert {path: path.stat().st_ino for path in before} == before


@pytest.mark.parametrize(
    ("name", "change", "done"),
    [
        ("trivy.json", lambda path: path.write_bytes(path.read_bytes() + b" "), 1),
        ("trivy.json", Path.unlink, 1),
        ("cyclonedx.json", Path.unlink, 1),
        ("trivy.call.json", Path.unlink, 1),
        ("trivy.call.json", lambda path: path.write_text("{"), 1),
        ("syft.call.json", lambda path: path.write_text(path.read_text().replace("1.57.0", "1.56.0")), 1),
        ("syft.call.json", lambda path: path.write_text(path.read_text().replace('code": 0', 'code": 1')), 1),
        ("syft.call.json", lambda path: path.write_text(path.read_text().replace('"settings"', '"other"')), 1),
    ],
)  # fmt: skip
def test_what_is_not_whole_is_done_again(bench: Bench, name: str, change: Any, done: int) -> None:
    collect(bench.plan())
    change(next(path for path in bench.files() if path.name == name))
    again = collect(bench.plan())
    assert sum(not d.kept for d in again.done) == done
    assert collect(bench.plan()).whole


def test_another_database_makes_every_scan_anew_and_takes_the_old_words_away(bench: Bench) -> None:
    collect(bench.plan())
    database = bench.evidence.docs["database"]
    bench.answer("trivy-version--", {**database, "VulnerabilityDB": {"UpdatedAt": "2026-08-21T00:00:00Z"}})
    again = collect(bench.plan())
    assert {d.call.tool for d in again.done if not d.kept} == {"trivy"}
    assert sum(p.name.startswith("trivy-version-") for p in bench.files()) == 1


def test_a_call_that_fails_is_recorded_keeps_nothing_old_and_stops_no_other(bench: Bench) -> None:
    collect(bench.plan())
    next(path for path in bench.files() if path.name == "trivy.call.json").unlink()
    machine = next(p.parent.name for p in bench.files() if p.name == "trivy.json" and not _recorded(p))
    bench.fail(f"trivy-image-{bench.evidence.digest[7:15]}-{machine[6:]}", 1)
    made = collect(bench.plan())
    (failed,) = (d for d in made.done if not d.answered)
    assert not made.whole
    assert (failed.call.exit_code, failed.call.outputs) == (1, [])
    assert "refused by the stand-in" in failed.call.stderr
    assert sum(p.name == "trivy.json" for p in bench.files()) == 1


@pytest.mark.parametrize("said", [b"", b"Everything is fine.\n", b'{"SchemaVersion": 2, "Results": [{', b"[]{}"])
def test_a_tool_that_ends_well_and_says_no_whole_json_has_not_answered(bench: Bench, said: bytes) -> None:
    name = f"trivy-image-{bench.evidence.digest[7:15]}-amd64"
    bench.answer(name, said)
    made = collect(bench.plan())
    (failed,) = (d for d in made.done if not d.answered)
    assert (failed.call.exit_code, failed.call.outputs, made.whole) == (0, [], False)
    bench.answer(name, bench.evidence.docs["trivy-amd64"])
    again = collect(bench.plan())
    assert again.whole and sum(not d.kept for d in again.done) == 1


def test_a_manifest_that_an_index_names_twice_is_fetched_once(bench: Bench) -> None:
    evidence = bench.evidence
    entries = evidence.docs["index"]["manifests"]
    twin = {"os": "linux", "architecture": "arm64", "variant": "v8"}
    index = {
        **evidence.docs["index"],
        "manifests": [*entries, {"digest": evidence.child["linux/arm64"], "platform": twin}],
    }
    digest = sha(text(index))
    bench.answer(f"crane-manifest-{digest[7:15]}-", index)
    made = collect(bench.plan(images={digest: [evidence.repository]}, platforms=()))
    records = [done.job.record for done in made.done]
    assert len(records) == len(set(records))


def test_a_registry_cannot_name_files_of_ours(bench: Bench) -> None:
    """The config's digest and the platform in an index are the registry's words."""
    evidence = bench.evidence
    child = evidence.child["linux/amd64"][7:15]
    bench.answer(
        f"crane-manifest-{child}-", {"schemaVersion": 2, "config": {"digest": "sha256:../../../../x"}, "layers": []}
    )
    before = sorted(bench.folder.iterdir())
    made = collect(bench.plan())
    assert sorted(p for p in bench.folder.iterdir() if p.name != "evidence") == before
    assert all("/config-.." not in d.job.record for d in made.done)
    family = Family()
    for odd in ("..", "linux/../..", "a" * 300, "x\n"):
        platform = {"os": odd, "architecture": "amd64"}
        index = {"schemaVersion": 2, "manifests": [{"digest": evidence.digest, "platform": platform}]}
        with pytest.raises(InputError, match="no part of a platform"):
            family.add(evidence.digest, index)
    assert family.children(evidence.digest) == {}


def _recorded(path: Path) -> bool:
    return path.with_name("trivy.call.json").exists()


@pytest.mark.parametrize(("code", "answered"), [(10, True), (12, True), (13, True), (1, False), (11, False)])
def test_cosign_tells_unsigned_from_unreachable_by_its_exit(bench: Bench, code: int, answered: bool) -> None:
    bench.fail(f"cosign-verify-{bench.evidence.digest[7:15]}-", code)
    assert collect(bench.plan()).whole is answered


def test_a_call_that_takes_too_long_is_ended_and_recorded(bench: Bench) -> None:
    (bench.programs / "slow").touch()
    made = collect(bench.plan(timeout=2.0, platforms=("linux/amd64",)))
    assert {d.call.exit_code for d in made.done} == {None}
    assert not made.whole
    assert all("no answer in 2 s" in d.call.stderr for d in made.done)
    (bench.programs / "slow").unlink()
    assert collect(bench.plan()).whole


def test_a_registry_that_cannot_be_reached_leaves_the_platforms_to_the_user(bench: Bench) -> None:
    bench.fail(f"crane-manifest-{bench.evidence.digest[7:15]}-", 1)
    made = collect(bench.plan())
    assert sorted(d.call.tool for d in made.done if d.answered) == ["cosign", "syft", "syft", "trivy", "trivy"]
    with pytest.raises(InputError) as refused:
        collect(bench.plan(platforms=()))
    assert refused.value.code == "platforms-unknown"


def test_platforms_are_those_that_the_image_has_and_that_are_in_use(bench: Bench) -> None:
    for used, wanted in (((), PLATFORMS), (("linux/arm64", "linux/s390x"), ("linux/arm64",))):
        made = collect(bench.plan(platforms=used, out=bench.folder / "-".join(["x", *used]).replace("/", "-")))
        scanned = {d.job.argv[d.job.argv.index("--platform") + 1] for d in made.done if "--platform" in d.job.argv}
        assert scanned == set(wanted)
    with pytest.raises(InputError, match="said to be in use: linux/s390x"):
        collect(bench.plan(platforms=("linux/s390x",)))


# --- who signs


def told(bench: Bench, *entries: dict[str, Any], **more: Any) -> tuple[list[str], dict[str, str]]:
    said = read_decisions(text(decisions(signatures=list(entries))))
    made = collect(bench.plan(decisions=said, **more))
    lines = [list(d.job.argv) for d in made.done if d.call.tool == "cosign"]
    return (lines[0][2:-1] if lines else []), dict(made.unverified)


def test_cosign_is_told_who_must_have_signed(bench: Bench) -> None:
    key = str(bench.folder / "nvidia.pub")
    unlogged, json_ = "--insecure-ignore-tlog=true", ["--output", "json"]
    assert told(bench, signer(key=bench.key))[0] == ["--key", key, unlogged, *json_]
    assert told(bench, signer(key=bench.key, transparency_log=True))[0] == ["--key", key, *json_]
    keyless = {"repository": REPOSITORY, "identity": "https://ci/x", "issuer": "https://token"}
    wanted = ["--certificate-identity", "https://ci/x", "--certificate-oidc-issuer", "https://token", *json_]
    assert told(bench, keyless)[0] == wanted


def test_cosign_is_not_run_where_nobody_can_say_for_whom(bench: Bench) -> None:
    digest = bench.evidence.digest
    assert told(bench) == ([], {digest: f"nothing says who signs {REPOSITORY}"})
    assert told(bench, signer())[1] == {digest: f"no --key has the fingerprint {KEY}"}
    unsigned = {"repository": "nvcr.io/*", "does_not_sign": "why", "owner": "o", "expires": "2099-01-01"}
    assert told(bench, unsigned)[1] == {digest: "recorded as not signed: why"}


def test_the_index_that_holds_a_running_manifest_is_verified_as_well(bench: Bench) -> None:
    child = bench.evidence.child["linux/amd64"]
    family = Family({bench.evidence.digest: [Child(child, "linux/amd64")]})
    made = collect(bench.plan(images={child: [REPOSITORY]}, family=family, platforms=()))
    verified = {d.job.argv[-1].partition("@")[2]: d.call.exit_code for d in made.done if d.call.tool == "cosign"}
    assert verified == {child: 1, bench.evidence.digest: 0}
    evidence = Evidence()
    evidence.docs, evidence.calls = {}, {}
    evidence.raw = {str(path): path.read_bytes() for path in bench.files()}
    evidence.exceptions = decisions(signatures=[signer(key=bench.key)])
    evidence.audit = json.loads(json.dumps(evidence.audit).replace(evidence.digest, child))
    # The index is in the folder, so that it proves what the file of relations only says.
    (image,) = evidence.report(platforms=("linux/amd64",)).images
    assert (image.signature.state, image.signature.digest) == ("verified", evidence.digest)


def test_a_mirror_is_asked_by_the_same_digest(bench: Bench) -> None:
    mirrors = {"nvcr.io": "127.0.0.1:5000/all", "nvcr.io/nvidia": "127.0.0.1:5000/nvidia", "nvcr": "wrong.example"}
    made = collect(bench.plan(mirrors=mirrors))
    asked = {word.removeprefix("registry:") for d in made.done for word in d.job.argv if "@" in word}
    assert {word.partition("@")[0] for word in asked} == {"127.0.0.1:5000/nvidia/k8s/dcgm-exporter"}
    for done in made.done:
        if done.call.tool == "trivy":
            assert "--insecure" in done.job.argv  # a loopback registry speaks HTTP
    plain = collect(bench.plan(out=bench.folder / "other"))
    assert not any("--insecure" in d.job.argv for d in plain.done)


# --- refusals


@pytest.mark.parametrize("tool", sorted(VERSIONS))
def test_a_tool_of_another_version_than_pinned_is_refused_before_any_image(bench: Bench, tool: str) -> None:
    with pytest.raises(InputError) as refused:
        collect(bench.plan(pins={**VERSIONS, tool: "9.9.9"}))
    assert (refused.value.code, refused.value.subject) == ("tool-version", tool)
    assert bench.log() == []
    bench.answer(f"{tool}-version--", b"")
    with pytest.raises(InputError, match="pinned is"):
        collect(bench.plan())


@pytest.mark.parametrize("tool", sorted(VERSIONS))
def test_a_tool_that_is_not_there_is_named_with_how_to_get_it(
    bench: Bench, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bench.programs / tool).unlink()
    monkeypatch.setenv("PATH", f"{bench.programs}:/usr/bin:/bin")
    with pytest.raises(InputError) as refused:
        collect(bench.plan())
    assert (refused.value.code, refused.value.subject) == ("tool-missing", tool)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b"{}", b'{"cosign": "3.1.3"}', text({**VERSIONS, "trivy": "latest"}),
        text({**VERSIONS, "trivy": 1}), text({**VERSIONS, "trivy": ">=0.74.0"}),
        text({**VERSIONS, "trivy": "0"}), text({**VERSIONS, "grype": "1.0.0"}),
        text({**VERSIONS, "trivy": ""}), b'{"trivy": "1.0.0", "trivy": "1.0.1"}',
    ],
)  # fmt: skip
def test_pins_name_every_tool_in_one_exact_version(data: bytes) -> None:
    with pytest.raises(InputError) as refused:
        read_pins(data)
    assert refused.value.code == "pins"
    assert read_pins(text({**VERSIONS, "cosign": "v3.0.4"})) == VERSIONS


@pytest.mark.parametrize("content", ["", "x", KEY_FILE * 2, KEY_FILE.replace("PUBLIC", "PRIVATE"), "\xff"])
def test_a_key_is_one_public_key(tmp_path: Path, content: str) -> None:
    (tmp_path / "key").write_text(content, encoding="latin-1")
    with pytest.raises(InputError):
        fingerprint(tmp_path / "key")


def test_a_fingerprint_is_of_the_key_and_not_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(KEY_FILE)
    (tmp_path / "b").write_text(f"\n{KEY_FILE}\n\n")
    assert fingerprint(tmp_path / "a") == fingerprint(tmp_path / "b")


def test_two_collections_do_not_share_a_folder(bench: Bench) -> None:
    (bench.folder / "evidence").mkdir()
    held = os.open(bench.folder / "evidence", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        with pytest.raises(InputError) as refused:
            collect(bench.plan())
        assert refused.value.code == "in-use"
    finally:
        os.close(held)
    assert collect(bench.plan()).whole


def test_what_a_killed_collection_left_is_taken_away(bench: Bench) -> None:
    left = bench.folder / "evidence" / ".partial-x"
    left.mkdir(parents=True)
    (left / "cyclonedx.json").write_text("{")
    half = bench.folder / "evidence" / "sha256-1" / ".trivy.json.0a1b2c3d.part"
    half.parent.mkdir()
    half.write_text("{")
    collect(bench.plan())
    assert not any(part.startswith(".") for path in bench.files() for part in path.relative_to(bench.folder).parts)


def test_a_folder_that_takes_nothing_is_no_crash(bench: Bench) -> None:
    (bench.folder / "evidence").write_text("a file")
    with pytest.raises(InputError) as refused:
        collect(bench.plan())
    assert refused.value.code == "unwritable"


def test_nothing_is_executable_or_hidden_in_the_folder(bench: Bench) -> None:
    collect(bench.plan())
    assert all(stat.S_IMODE(path.stat().st_mode) & 0o111 == 0 for path in bench.files())


def test_progress_is_told_to_the_end(bench: Bench) -> None:
    seen: list[tuple[int, int]] = []
    collect(bench.plan(), lambda done, known: seen.append((done, known)))
    assert seen[-1] == (10, 10)
    assert [done for done, _ in seen] == list(range(1, 11))


# --- the command


def command(bench: Bench, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any], str]:
    for name, document in (("audit", bench.evidence.audit), ("pins", VERSIONS)):
        (bench.folder / f"{name}.json").write_bytes(text(document))
    said = decisions(signatures=[signer(key=bench.key)])
    (bench.folder / "exceptions.yaml").write_bytes(text(said))
    paths = {"--images": "audit.json", "--pins": "pins.json", "--exceptions": "exceptions.yaml", "--key": "nvidia.pub"}
    line = [word for option, name in paths.items() for word in (option, str(bench.folder / name))]
    with pytest.raises(SystemExit) as ended:
        main(["gate", "collect", *line, "--out", str(bench.folder / "evidence"), "-o", "json", *words])
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, json.loads(out) if out else {}, err


def test_the_command_collects_and_says_what_it_did(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    code, answer, err = command(bench, capsys, "--platform", "linux/amd64", "--jobs", "3")
    assert (code, answer["verdict"], answer["ran"], answer["kept"]) == (0, "collected", 6, 0)
    assert err == ""  # no bar where there is no terminal
    code, answer, _ = command(bench, capsys)
    assert (code, answer["ran"], answer["kept"]) == (0, 4, 6)


def test_the_command_ends_with_2_when_something_is_missing(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.fail(f"syft-scan-{bench.evidence.digest[7:15]}-amd64", 1)
    code, answer, err = command(bench, capsys)
    assert (code, answer["verdict"]) == (2, "incomplete")
    assert [f["code"] for f in answer["findings"]] == ["command-failed"]
    assert "refused by the stand-in" in err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--pins", "/nowhere"], "unreadable"),
        (["--images", "/nowhere"], "unreadable"),
        (["--key", "/nowhere"], "unreadable"),
        (["--relations", "/nowhere"], "unreadable"),
        (["--platform", "linux/s390x"], "platforms-unknown"),
    ],
)
def test_the_command_refuses_in_one_answer(
    bench: Bench, capsys: pytest.CaptureFixture[str], words: list[str], code: str
) -> None:
    ended, answer, _ = command(bench, capsys, *words)
    assert (ended, answer["verdict"], [f["code"] for f in answer["findings"]]) == (2, "error", [code])


@pytest.mark.parametrize(
    "words",
    [["--timeout", "0"], ["--jobs", "0"], ["--registry-map", "a.io"], ["--registry-map", "a/=b"], ["--platform", "x"]],
)  # fmt: skip
def test_a_malformed_option_ends_with_2(bench: Bench, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert command(bench, capsys, *words)[0] == 2
    assert bench.log() == []
