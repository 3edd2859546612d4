"""Verification summaries of a promotion, and their signatures by cosign.

Covered: the form of the statement, one per digest, what of a rehearsal differs; the command refuses what is no approved
promotion; with the real cosign: what is signed verifies for its own digest and key and for no other.
Not covered: transparency logs, KMS keys, attaching to a registry.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from evidence_run import passed

from gpurunbook.cli.vsa import _summaries
from gpurunbook.cli.vsa import vsa as command
from gpurunbook.evidence.seal import manifest_digest, seal
from gpurunbook.supply import vsa
from tests.unit import promotion_fixtures as fixtures

A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64


def image(digest: str, platform: str, *repositories: str) -> dict[str, Any]:
    return {
        "digest": digest,
        "platform": platform,
        "repositories": list(repositories),
        "sboms": [{"file": f"{platform}/sbom.json", "sha256": "sha256:" + "1" * 64}],
        "scans": [{"file": f"{platform}/scan.json", "sha256": "sha256:" + "2" * 64}],
    }


GATE = {
    "images": [
        image(A, "linux/arm64", "nvcr.io/nvidia/driver"),
        image(A, "linux/amd64", "nvcr.io/nvidia/driver", "mirror.example:5000/a/driver"),
        image(B, "linux/amd64", "docker.io/projecthami/hami"),
    ]
}
RUN = "20260822t120000z-promotion-a11d"
WHEN = "2026-08-22T12:00:00Z"


def made(rehearsal: bool = False) -> dict[str, dict[str, Any]]:
    return {k: json.loads(v) for k, v in vsa.summaries(GATE, "sha256:" + "c" * 64, WHEN, rehearsal).items()}


def test_each_digest_has_one_statement_over_all_its_platforms() -> None:
    assert list(made()) == [f"vsa/sha256-{'a' * 64}.json", f"vsa/sha256-{'b' * 64}.json"]
    one = made()[f"vsa/sha256-{'a' * 64}.json"]
    assert one["_type"] == "https://in-toto.io/Statement/v1"
    assert one["predicateType"] == "https://slsa.dev/verification_summary/v1"
    (subject,) = one["subject"]
    assert (subject["name"], subject["digest"]) == ("mirror.example:5000/a/driver", {"sha256": "a" * 64})
    assert subject["annotations"] == {"gpurunbook.io/platforms": ["linux/amd64", "linux/arm64"]}
    predicate = one["predicate"]
    assert set(predicate) == {
        *("verifier", "timeVerified", "resourceUri", "policy", "inputAttestations"),
        *("verificationResult", "verifiedLevels", "slsaVersion"),
    }
    assert predicate["resourceUri"].startswith("pkg:oci/driver@sha256%3Aaaaa")
    assert predicate["verificationResult"] == "PASSED"
    inputs = [entry["uri"] for entry in predicate["inputAttestations"]]
    platforms = ("linux/amd64", "linux/arm64")
    assert inputs == ["proposal.json", *(f"{p}/{f}.json" for p in platforms for f in ("sbom", "scan"))]
    assert all(list(entry["digest"]) == ["sha256"] for entry in predicate["inputAttestations"])


def test_a_rehearsal_has_a_verifier_that_nobody_trusts() -> None:
    real, played = ({one["predicate"]["verifier"]["id"] for one in made(r).values()} for r in (False, True))
    assert (real, played) == ({vsa.VERIFIER}, {vsa.REHEARSAL})


def test_levels_claim_nothing_about_the_build() -> None:
    for one in made().values():
        slsa = [level for level in one["predicate"]["verifiedLevels"] if level.startswith("SLSA_")]
        assert slsa == ["SLSA_BUILD_LEVEL_UNEVALUATED"]


# -- the command -----------------------------------------------------------------------------------------------------


def bundle(folder: Path, rehearsal: bool = True) -> Path:
    """The sealed bundle of an approved run, which is a rehearsal, with summaries."""
    files = vsa.summaries(GATE, "sha256:" + "c" * 64, WHEN, rehearsal)
    run = folder / "run"
    folder.mkdir(exist_ok=True)
    fixtures.bundle(run, RUN, "promotion", {"stabilisation": "x"}, files, "uid", fixtures_time())
    return run


def fixtures_time() -> Any:
    from datetime import UTC, datetime

    return datetime(2026, 8, 22, 12, tzinfo=UTC)


def sign(run: Path, out: Path, *more: str, anchor: str = "") -> Result:
    given = ["--key", "none.key", "--out", str(out), "--manifest-digest", anchor or manifest_digest(run)]
    return CliRunner().invoke(command, [str(run), *given, *more])


def code(result: Result) -> str:
    return str(getattr(result.exception, "code", ""))


def test_only_a_bundle_that_holds_is_signed(tmp_path: Path) -> None:
    run = bundle(tmp_path)
    assert code(sign(run, tmp_path / "out", anchor="0" * 64)) == "vsa-not-approved"
    (run / "after" / "vsa" / f"sha256-{'a' * 64}.json").write_text("{}")
    assert code(sign(run, tmp_path / "out")) == "vsa-not-approved"
    assert not (tmp_path / "out").exists()


def test_a_bundle_that_nothing_anchors_is_not_signed(tmp_path: Path) -> None:
    """Whoever makes a whole bundle anew would have it signed."""
    asked = [str(bundle(tmp_path)), "--key", "none.key", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(command, asked)
    assert done.exit_code == 2 and "--manifest-digest" in done.output


def test_a_summary_that_no_step_wrote_is_not_signed(tmp_path: Path) -> None:
    """Whatever lies in the run's folder is sealed with it."""
    evil = f"vsa/sha256-{'e' * 64}.json"
    fixture = vsa.summaries(GATE, "sha256:" + "c" * 64, WHEN, rehearsal=True)
    run = tmp_path / "run"
    files = {**fixture, evil: b"{}"}
    steps = {"stabilisation": "x"}
    fixtures.bundle(run, RUN, "promotion", steps, files, "uid", fixtures_time(), unrecorded=[evil])
    assert (run / "after" / evil).is_file()
    assert evil.removeprefix("vsa/") not in _summaries(run, manifest_digest(run))
    assert len(_summaries(run, manifest_digest(run))) == len(fixture)


def test_another_runbook_approves_nothing(tmp_path: Path) -> None:
    folder = passed(tmp_path).folder
    seal(folder)
    assert code(sign(folder, tmp_path / "out")) == "vsa-not-approved"


def test_a_rehearsal_cannot_be_signed_as_the_real_thing(tmp_path: Path) -> None:
    assert code(sign(bundle(tmp_path, rehearsal=False), tmp_path / "out")) == "vsa-other-verifier"


@pytest.mark.tools
def test_what_is_signed_verifies_for_its_own_digest_and_key(tmp_path: Path, tool: Callable[[str], Path]) -> None:
    cosign = str(tool("cosign"))
    for name in ("ours", "theirs"):
        environment = {**os.environ, "COSIGN_PASSWORD": "", "HOME": str(tmp_path)}
        argv = [cosign, "generate-key-pair", "--output-key-prefix", str(tmp_path / name)]
        subprocess.run(argv, env=environment, check=True, capture_output=True)
    run, out = bundle(tmp_path / "b"), tmp_path / "out"
    arguments = [str(run), "--key", str(tmp_path / "ours.key"), "--out", str(out), "--cosign", cosign]
    done = CliRunner(env=environment).invoke(command, [*arguments, "--manifest-digest", manifest_digest(run)])
    assert done.exit_code == 0, done.exception
    assert sorted(path.name for path in out.iterdir()) == [f"sha256-{c * 64}.sigstore.json" for c in "ab"]

    def verifies(digest: str, key: str = "ours", file: str = "a") -> bool:
        argv = [cosign, "verify-blob-attestation", "--key", str(tmp_path / f"{key}.pub"), "--type", vsa.PREDICATE]
        argv += [
            "--bundle",
            str(out / f"sha256-{file * 64}.sigstore.json"),
            "--digest",
            digest,
            "--digestAlg",
            "sha256",
        ]
        asked = subprocess.run(
            [*argv, "--insecure-ignore-tlog=true"], env=environment, capture_output=True, check=False
        )
        return asked.returncode == 0

    assert verifies("a" * 64) and verifies("b" * 64, file="b")
    assert not verifies("b" * 64) and not verifies("a" * 64, key="theirs")


@pytest.mark.tools
def test_what_cosign_cannot_sign_is_an_error_and_no_bundle(tmp_path: Path, tool: Callable[[str], Path]) -> None:
    result = sign(bundle(tmp_path), tmp_path / "out", "--cosign", str(tool("cosign")))
    assert code(result) == "vsa-not-signed"
    assert list((tmp_path / "out").iterdir()) == []
