"""Evidence of small images in a loopback registry, collected by the real crane, cosign, syft and trivy, and gated.

Covered: an index for two platforms, signed and clean; a Critical finding with and without an exception; unsigned;
signed by another key, in both forms of signatures; the child of a signed index, alone and with its index; a scan of
another platform; a registry that does not answer; a second collection; a mirror; tools of other versions.
Not covered: keyless signatures and transparency logs, which need a network.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpurunbook.cli import main
from gpurunbook.sources import tools
from gpurunbook.sources.keys import fingerprint
from gpurunbook.supply.calls import FORM
from tests.tools.build import GROUPS
from tests.tools.registry import Registry, layer
from tests.unit.gate_evidence import decisions, exception, sha, text

pytestmark = [pytest.mark.tools, pytest.mark.xdist_group("collect")]

Tool = Callable[[str], Path]
HOST = "registry.example"
CLEAN, SICK = {"bash": "5.2"}, {"bash": "5.2", "openssl": "3.0.1-1"}


@dataclass(frozen=True)
class Shop:
    """The images by name (repository without host, digest), and what a collection needs. made: the first answer."""

    folder: Path
    images: dict[str, tuple[str, str]]
    children: dict[str, str]
    registry: Registry
    pins: dict[str, str]
    keys: dict[str, str]
    made: dict[str, Any]

    def audit(self, *names: str) -> Path:
        digests = [
            {"digest": digest, "records": 1, "repositories": [f"{HOST}/{repository}"]}
            for repository, digest in sorted(self.images[name] for name in names)
        ]
        answer = {"verdict": "pass", "evidence_ready": True, "findings": [], "cluster": None, "rehearsal": True}
        path = self.folder / f"audit-{'-'.join(names)}.json"
        path.write_bytes(text({**answer, "digests": sorted(digests, key=lambda one: str(one["digest"]))}))
        return path

    def decided(self, **sections: Any) -> Path:
        entries = [
            {"repository": f"{HOST}/*", "key": self.keys["ours"], "transparency_log": False},
            *sections.pop("signatures", []),
        ]
        data = text(decisions(signatures=entries, **sections))
        path = self.folder / f"exceptions-{sha(data)[7:19]}.yaml"
        path.write_bytes(data)
        return path

    def collect(self, audit: Path, out: str, *words: str) -> tuple[int, dict[str, Any]]:
        (self.folder / "pins.json").write_bytes(text(self.pins))
        line = ["--images", audit, "--out", self.folder / out, "--pins", self.folder / "pins.json", "--jobs", "4"]
        line += ["--exceptions", self.decided(), "--key", self.folder / "ours.pub"]
        line += ["--registry-map", f"{HOST}={self.registry.address}", "--trivy-cache", self.folder / "cache"]
        return command(self.folder, "collect", *map(str, line), *words)

    def gate(self, audit: Path, evidence: str, exceptions: Path, *words: str) -> tuple[int, dict[str, Any]]:
        line = ["--images", audit, "--evidence", self.folder / evidence, "--exceptions", exceptions]
        return command(self.folder, *map(str, line), *words)


def command(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """A command in this process; its answer goes through a file, as a user would keep it."""
    answer = folder / "answer.json"
    with answer.open("w") as out, pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr("sys.stdout", out)
        main(["gate", *words, "-o", "json"])
    assert isinstance(ended.value.code, int)
    return ended.value.code, json.loads(answer.read_text())


@pytest.fixture(scope="module")
def shop(registry: Registry, tool: Tool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("collect")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{tool('cosign').parent}:{os.environ['PATH']}")
        patch.setenv("HOME", str(folder))  # no user's configuration, keys or credentials count
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield _shop(registry, folder)


def _shop(registry: Registry, folder: Path) -> Shop:
    def good(*line: str, data: bytes = b"") -> None:
        env = {**os.environ, "COSIGN_PASSWORD": ""}
        done = tools.run(line, input=data, timeout=120, env=env, cwd=folder)
        assert done.returncode == 0, done.stderr.decode()

    def sign(image: str, key: str, *more: str) -> None:
        words = ("--tlog-upload=false", "--use-signing-config=false", "--allow-insecure-registry", "--yes")
        good("cosign", "sign", "--key", f"{key}.key", *words, *more, image)

    for key in ("ours", "other"):
        good("cosign", "generate-key-pair", "--output-key-prefix", key)
    fresh = (datetime.now(UTC) - timedelta(hours=1)).isoformat(timespec="seconds").replace("+00:00", "Z")
    advisory = {"id": "CVE-2026-0001", "package": "openssl", "fixed": "99", "severity": "CRITICAL", "title": "planted"}
    planted = {"platform": "debian 12", "updated_at": fresh, "next_update": fresh, "advisories": [advisory]}
    good("trivydb", str(folder / "cache"), data=text(planted))
    children = {
        machine: registry.push(f"gate/index:{machine}", layer(CLEAN, machine), platform=f"linux/{machine}")
        for machine in ("amd64", "arm64")
    }
    pushed = {
        "index": registry.index("gate/index:all", list(children.values())),
        "sick": registry.push("gate/sick:1", layer(SICK)),
        "unsigned": registry.push("gate/unsigned:1", layer({"zlib1g": "1"})),
        "other": registry.push("gate/other:1", layer({"curl": "1"})),
        "legacy": registry.push("gate/legacy:1", layer({"curl": "2"})),
    }
    sign(pushed["index"], "ours")
    sign(pushed["sick"], "ours")
    sign(pushed["other"], "other")
    sign(pushed["legacy"], "other", "--new-bundle-format=false")
    images = {}
    for name, image in {**pushed, "child": children["amd64"]}.items():
        repository, _, digest = image.removeprefix(f"{registry.address}/").partition("@")
        images[name] = (repository, digest)
    pins = {n: m.version.removeprefix("v") for m in GROUPS["tools"] for n in m.programs if n not in ("helm", "trivydb")}
    keys = {key: fingerprint(folder / f"{key}.pub") for key in ("ours", "other")}
    own = {f"linux/{machine}": image.partition("@")[2] for machine, image in children.items()}
    shop = Shop(folder, images, own, registry, pins, keys, {})
    _, made = shop.collect(shop.audit(*pushed), "evidence", "--platform", "linux/amd64", "--platform", "linux/arm64")
    shop.made.update(made)
    return shop


PLATFORMS = ("--platform", "linux/amd64", "--platform", "linux/arm64")
ALL = ("index", "sick", "unsigned", "other", "legacy")


def judged(shop: Shop, **sections: Any) -> tuple[str, dict[str, dict[str, Any]], dict[str, set[str]]]:
    """The verdict, images by name and platform, and the codes against each digest."""
    _, answer = shop.gate(shop.audit(*ALL), "evidence", shop.decided(**sections), *PLATFORMS)
    names = {digest: name for name, (_, digest) in shop.images.items()}
    images = {f"{names[one['digest']]} {one['platform']}": one for one in answer["images"]}
    against: dict[str, set[str]] = {}
    for found in answer["findings"]:
        if found["status"] in ("fail", "unknown"):
            digest = found["subject"].partition("/")[0]
            against.setdefault(names.get(digest, found["subject"]), set()).add(found["code"])
    return answer["verdict"], images, against


def test_every_image_gets_its_answer_from_the_real_tools(shop: Shop) -> None:
    verdict, images, against = judged(shop)
    assert verdict == "fail"
    assert sorted(images) == [
        "index linux/amd64",
        "index linux/arm64",
        "legacy linux/amd64",
        "other linux/amd64",
        "sick linux/amd64",
        "unsigned linux/amd64",
    ]
    assert against == {
        "sick": {"critical"},
        "unsigned": {"signature-failed"},
        "legacy": {"signature-failed"},
        "other": {"signature-not-checked"},  # cosign's 1 says nothing, although the key is another
    }
    states = {name: image["signature"]["state"] for name, image in images.items()}
    assert states == {
        "index linux/amd64": "verified",
        "index linux/arm64": "verified",
        "legacy linux/amd64": "failed",
        "other linux/amd64": "not-checked",
        "sick linux/amd64": "verified",
        "unsigned linux/amd64": "failed",
    }
    for image in images.values():
        assert [one["components"] > 0 for one in image["sboms"]] == [True]
        assert len(image["scans"]) == len(image["inventories"]) == 1
        assert {c["tool"]: c["version"] for c in image["commands"]} == shop.pins


def test_a_critical_finding_passes_with_an_exception_of_its_own(shop: Shop) -> None:
    accepted = exception(repository=f"{HOST}/gate/sick", expires="2099-01-01")
    _, images, against = judged(shop, exceptions=[accepted])
    assert "sick" not in against
    assert images["sick linux/amd64"]["exceptions"] == ["SEC-1"]
    assert images["sick linux/amd64"]["verdict"] == "pass"
    gone = exception(repository=f"{HOST}/gate/sick", expires="2026-01-01")
    _, images, against = judged(shop, exceptions=[gone])
    assert (against["sick"], against["SEC-1"]) == ({"critical"}, {"exception-expired"})


def test_an_unsigned_image_passes_when_that_is_on_record(shop: Shop) -> None:
    recorded = {
        "repository": f"{HOST}/gate/unsigned",
        "does_not_sign": "no signature is published",
        "owner": "Security",
        "expires": "2099-01-01",
    }
    _, images, against = judged(shop, signatures=[recorded])
    assert images["unsigned linux/amd64"]["signature"]["state"] == "publisher-does-not-sign"
    assert "unsigned" not in against
    _, _, against = judged(shop, signatures=[{**recorded, "repository": f"{HOST}/gate/legacy"}])
    assert against["legacy"] == {"signature-contradicted"}


def test_a_signature_of_another_signer_is_not_the_one_that_was_asked_for(shop: Shop) -> None:
    wanted = {"repository": f"{HOST}/gate/sick", "key": shop.keys["other"], "transparency_log": False}
    _, _, against = judged(shop, signatures=[wanted])
    assert "wrong-signer" in against["sick"]


def test_what_is_whole_is_not_collected_again(shop: Shop) -> None:
    assert (shop.made["verdict"], shop.made["kept"]) == ("incomplete", 0)  # the image of another key ended with 1
    code, again = shop.collect(shop.audit(*ALL), "evidence", *PLATFORMS)
    ran = [call for call in again["calls"] if not call["kept"]]
    assert code == 2
    assert {call["tool"] for call in ran} == {"cosign"}
    assert sorted(call["exit_code"] for call in ran) == [1, 10, 12]


def test_the_child_of_a_signed_index_is_verified_only_by_its_index(shop: Shop) -> None:
    audit, exceptions = shop.audit("child"), shop.decided()
    shop.collect(audit, "alone")
    _, answer = shop.gate(audit, "alone", exceptions)
    assert {f["code"] for f in answer["findings"] if f["status"] == "fail"} == {"signature-failed"}
    relations = shop.folder / "relations.json"
    named = [{"digest": digest, "platform": platform} for platform, digest in shop.children.items()]
    relations.write_bytes(text({shop.images["index"][1]: named}))
    shop.collect(audit, "together", "--relations", str(relations))
    code, answer = shop.gate(audit, "together", exceptions, "--relations", str(relations))
    assert (code, answer["verdict"]) == (0, "pass")
    assert "signed-by-index" in {f["code"] for f in answer["findings"]}


def test_a_scan_of_another_platform_is_seen_in_its_content(shop: Shop) -> None:
    """Trivy takes a manifest of another platform than asked for without a word."""
    digest = shop.children["linux/arm64"]
    image = f"{shop.registry.address}/gate/index@{digest}"
    line = ["trivy", "image", "--format", "json", "--platform", "linux/amd64", "--image-src", "remote"]
    line += ["--show-suppressed", "--skip-db-update", "--skip-java-db-update", "--offline-scan", "--insecure"]
    line += ["--skip-version-check", "--cache-backend", "memory", "--cache-dir", str(shop.folder / "cache"), image]
    done = tools.run(line, timeout=120, cwd=shop.folder)
    assert done.returncode == 0, done.stderr.decode()
    evidence = shop.folder / "otherplatform"
    evidence.mkdir()
    (evidence / "scan").write_bytes(done.stdout)
    call = {"record": FORM, "tool": "trivy", "version": shop.pins["trivy"], "argv": line, "stderr": "", "seconds": 1}
    call |= {"started": "2026-08-20T09:00:00Z", "exit_code": 0, "outputs": [sha(done.stdout)]}
    (evidence / "record").write_bytes(text(call))
    audit = {"verdict": "pass", "evidence_ready": True}
    audit["digests"] = [{"digest": digest, "records": 1, "repositories": [f"{HOST}/gate/index"]}]
    (shop.folder / "audit-arm.json").write_bytes(text(audit))
    exceptions = shop.decided()
    _, answer = shop.gate(shop.folder / "audit-arm.json", "otherplatform", exceptions, "--platform", "linux/amd64")
    assert {"platform-mismatch", "scan-missing"} <= {f["code"] for f in answer["findings"]}


def test_a_registry_that_does_not_answer_makes_nothing_of_an_image(shop: Shop) -> None:
    nowhere = ("--registry-map", f"{HOST}/gate=127.0.0.1:1/gate", "--platform", "linux/amd64")
    code, made = shop.collect(shop.audit("index"), "nowhere", *nowhere)
    assert (code, made["verdict"]) == (2, "incomplete")
    assert {call["tool"] for call in made["calls"] if call["exit_code"] == 0} == set()
    _, answer = shop.gate(shop.audit("index"), "nowhere", shop.decided(), "--platform", "linux/amd64")
    (image,) = answer["images"]
    assert (image["verdict"], image["signature"]["state"]) == ("fail", "not-checked")
    codes = {f["code"] for f in answer["findings"]}
    assert codes == {"command-failed", "sbom-missing", "scan-missing", "signature-not-checked"}


@pytest.mark.parametrize("name", ["cosign", "crane", "syft", "trivy"])
def test_a_real_tool_of_another_version_than_pinned_is_refused(shop: Shop, name: str) -> None:
    shop.pins[name], real = "0.0.1", shop.pins[name]
    try:
        code, answer = shop.collect(shop.audit("index"), "unpinned")
    finally:
        shop.pins[name] = real
    assert (code, [f["code"] for f in answer["findings"]]) == (2, ["tool-version"])
    assert f"it says '{real}'" in answer["findings"][0]["message"].replace("'v", "'")
