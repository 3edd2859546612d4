"""The real supply-chain tools run, are the pinned ones, and work on small images in a loopback registry.

Covered: versions; images, their platforms and indexes by digest; signatures by key (signed, unsigned, wrong key, index
signed and its child asked); an SBOM of what was installed; a scan against planted advisories, and their age;
helm rendering. Not covered: keyless signing and transparency logs, which need a network.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tools.build import GROUPS
from tests.tools.registry import Registry, RegistryError, layer

pytestmark = pytest.mark.tools

Tool = Callable[[str], Path]

VERSION = {
    "cosign": ["version"],
    "syft": ["version"],
    "trivy": ["version"],
    "crane": ["version"],
    "helm": ["version", "--short"],
}


def run(tmp_path: Path, *line: str | Path, text: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a tool with a home of its own, so that no user's configuration, keys or databases count."""
    env = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "COSIGN_PASSWORD": "", "TUF_ROOT": ""}
    return subprocess.run(
        [*map(str, line)], env=env, cwd=tmp_path, input=text, capture_output=True, text=True, check=False, timeout=120
    )


def good(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", VERSION)
def test_a_tool_prints_its_pinned_version(tool: Tool, tmp_path: Path, name: str) -> None:
    module = next(m for m in GROUPS["tools"] if name in m.programs)
    said = good(run(tmp_path, tool(name), *VERSION[name]))
    assert module.version.removeprefix("v") in re.findall(r"(?<![0-9.])v?([0-9]+\.[0-9]+\.[0-9]+)(?![0-9.])", said)


def test_the_same_content_has_the_same_digest(registry: Registry) -> None:
    first = registry.push("same:1", layer({"openssl": "3.0.1"}))
    again = registry.push("same:2", layer({"openssl": "3.0.1"}))
    other = registry.push("same:3", layer({"openssl": "3.0.2"}))
    assert first == again != other
    assert re.fullmatch(rf"{registry.address}/same@sha256:[0-9a-f]{{64}}", first)


def test_an_index_holds_its_platforms(registry: Registry) -> None:
    children = {
        platform: registry.push(f"many:{platform[6:]}", layer({"bash": "5.2"}, platform[6:]), platform=platform)
        for platform in ("linux/amd64", "linux/arm64")
    }
    index = registry.index("many:all", list(children.values()))
    held = registry.manifest(index)["manifests"]
    found = {"{os}/{architecture}".format(**m["platform"]): f"{registry.address}/many@{m['digest']}" for m in held}
    assert found == children


def test_labels_stand_in_the_image(registry: Registry) -> None:
    image = registry.push("labels:1", layer({}), labels={"b": "2", "a": "1"})
    assert json.loads(registry.run("config", image))["config"]["Labels"] == {"a": "1", "b": "2"}


def test_what_is_not_there_is_an_error_in_cranes_words(registry: Registry) -> None:
    with pytest.raises(RegistryError, match=r"MANIFEST_UNKNOWN|NAME_UNKNOWN"):
        registry.digest("absent:1")


# --- cosign

UNLOGGED = ("--insecure-ignore-tlog=true", "--allow-insecure-registry")
WRONG_KEY = (1, "no matching attestations: failed to verify signature")
UNSIGNED = (10, "no signatures found")


@pytest.fixture(scope="module")
def keys(tool: Tool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two key pairs, `ours` and `other`."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ours", "other"):
        good(run(folder, tool("cosign"), "generate-key-pair", "--output-key-prefix", name))
    return folder


def sign(tool: Tool, keys: Path, image: str) -> None:
    unlogged = ("--tlog-upload=false", "--use-signing-config=false", "--allow-insecure-registry", "--yes")
    good(run(keys, tool("cosign"), "sign", "--key", keys / "ours.key", *unlogged, image))


def refusal(tool: Tool, keys: Path, image: str, key: str = "ours") -> tuple[int, str] | None:
    """None when the signature verifies, else exit code and the first words of the reason."""
    done = run(keys, tool("cosign"), "verify", "--key", keys / f"{key}.pub", *UNLOGGED, image)
    if done.returncode == 0:
        return None
    reason = re.search(r"^Error: ([^:\n]+(?:: failed to verify signature)?)", done.stderr, re.MULTILINE)
    assert reason, done.stderr
    return done.returncode, reason[1]


def test_a_signature_holds_for_its_key_and_its_digest_alone(registry: Registry, tool: Tool, keys: Path) -> None:
    signed = registry.push("signed:1", layer({"curl": "8.1"}))
    unsigned = registry.push("signed:2", layer({"curl": "8.2"}))
    sign(tool, keys, signed)
    assert refusal(tool, keys, signed) is None
    assert refusal(tool, keys, signed, key="other") == WRONG_KEY
    assert refusal(tool, keys, unsigned) == UNSIGNED


def test_a_signed_index_signs_no_child(registry: Registry, tool: Tool, keys: Path) -> None:
    child = registry.push("signedindex:amd64", layer({"curl": "8.3"}))
    index = registry.index("signedindex:all", [child])
    sign(tool, keys, index)
    assert refusal(tool, keys, index) is None
    assert refusal(tool, keys, child) == UNSIGNED


# --- syft and trivy


def test_an_sbom_names_the_image_and_its_packages(registry: Registry, tool: Tool, tmp_path: Path) -> None:
    image = registry.push("sbom:1", layer({"openssl": "3.0.1-1", "zlib1g": "1.2.13"}))
    (tmp_path / "syft.yaml").write_text("registry: {insecure-use-http: true}\ncheck-for-app-update: false\n")
    line = ("scan", f"registry:{image}", "--config", tmp_path / "syft.yaml", "-o", "cyclonedx-json", "-q")
    sbom = json.loads(good(run(tmp_path, tool("syft"), *line)))
    packages = {c["name"]: c["version"] for c in sbom["components"] if c["type"] == "library"}
    assert packages == {"openssl": "3.0.1-1", "zlib1g": "1.2.13"}
    component = sbom["metadata"]["component"]
    assert image.partition("@")[2] in (component.get("version", ""), component["name"].partition("@")[2])


def database(tool: Tool, folder: Path, *advisories: tuple[str, str, str]) -> Path:
    """A trivy cache folder whose database has these (id, package, severity) as fixed in 99."""
    request = {
        "platform": "debian 12",
        "updated_at": "2026-11-30T00:00:00Z",
        "next_update": "2026-12-01T00:00:00Z",
        "advisories": [
            {"id": i, "package": p, "severity": s, "fixed": "99", "title": f"A flaw in {p}"} for i, p, s in advisories
        ],
    }
    good(run(folder, tool("trivydb"), folder / "cache", text=json.dumps(request)))
    return folder / "cache"


def scan(tool: Tool, folder: Path, cache: Path, image: str, *words: str) -> subprocess.CompletedProcess[str]:
    quiet = ("--skip-db-update", "--skip-java-db-update", "--offline-scan", "--skip-version-check", "--quiet")
    line = ("image", *quiet, "--image-src", "remote", "--insecure", "--cache-dir", cache, "--format", "json")
    return run(folder, tool("trivy"), *line, *words, image)


def test_a_scan_finds_what_was_planted_and_nothing_else(registry: Registry, tool: Tool, tmp_path: Path) -> None:
    cache = database(tool, tmp_path, ("CVE-2026-0001", "openssl", "CRITICAL"), ("CVE-2026-0002", "curl", "HIGH"))
    sick = registry.push("scan:1", layer({"openssl": "3.0.1-1", "bash": "5.2"}))
    well = registry.push("scan:2", layer({"bash": "5.2"}))
    report = json.loads(good(scan(tool, tmp_path, cache, sick)))
    found = [v for result in report["Results"] for v in result.get("Vulnerabilities", [])]
    assert [(v["VulnerabilityID"], v["PkgName"], v["Severity"]) for v in found] == [
        ("CVE-2026-0001", "openssl", "CRITICAL")
    ]
    assert report["Metadata"]["RepoDigests"] == [sick]
    clean = json.loads(good(scan(tool, tmp_path, cache, well)))
    assert [v for result in clean["Results"] for v in result.get("Vulnerabilities", [])] == []


def test_trivy_tells_the_age_of_its_database(tool: Tool, tmp_path: Path) -> None:
    cache = database(tool, tmp_path, ("CVE-2026-0001", "openssl", "LOW"))
    told = json.loads(good(run(tmp_path, tool("trivy"), "version", "--format", "json", "--cache-dir", cache)))
    assert told["VulnerabilityDB"]["UpdatedAt"].startswith("2026-11-30T00:00:00")


def test_a_scan_without_a_database_is_no_clean_scan(registry: Registry, tool: Tool, tmp_path: Path) -> None:
    image = registry.push("scan:3", layer({"bash": "5.2"}))
    done = scan(tool, tmp_path, tmp_path / "nothing", image)
    assert done.returncode != 0
    assert done.stdout == ""


@pytest.mark.parametrize(
    "request_",
    [
        "",
        "{}",
        '{"platform":"debian 12","advisories":[{"id":"CVE-1","package":"a","severity":"critical"}]}',
        '{"platform":"debian 12","unknown":1}',
    ],
)
def test_the_database_writer_refuses_what_it_does_not_know(tool: Tool, tmp_path: Path, request_: str) -> None:
    done = run(tmp_path, tool("trivydb"), tmp_path / "cache", text=request_)
    assert done.returncode == 1
    assert done.stderr.startswith("trivydb: ")
    assert not (tmp_path / "cache" / "db" / "metadata.json").exists()


# --- helm


def test_helm_renders_a_chart_of_ours(tool: Tool, tmp_path: Path) -> None:
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: chart\nversion: 1.2.3\n")
    (chart / "values.yaml").write_text("image: registry.example/a:1\n")
    body = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: {{ .Values.image }}}]}\n"
    )
    (chart / "templates" / "pod.yaml").write_text(body)
    rendered = good(run(tmp_path, tool("helm"), "template", "release", chart, "--set", "image=registry.example/a:2"))
    assert "image: registry.example/a:2" in rendered
