"""The redactor and the leak scan.

Covered: each known shape, plain and wrapped (base64, JSON, JSON in JSON, HTML, ANSI, YAML, a notebook's list of
lines); what must not be taken for a secret; trees keep their shape; nothing that was redacted is found again.
Not covered: secrets without a shape of their own, compressed files.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpurunbook.leaks import Leak, scan
from gpurunbook.shown.redact import redact


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


JWT = f"{part({'alg': 'RS256', 'kid': 'k1'})}.{part({'iss': 'kubernetes/serviceaccount', 'sub': 'x'})}.{'c2ln' * 12}"
LICENCE = f"{part({'alg': 'RS256'})}.{part({'iss': 'NLS Service Instance', 'aud': 'NLS Licensed Client'})}.c2lnbmF0dXJl"
KEY = (
    "-----BEGIN EC PRIVATE KEY-----\n"
    + "MHcCAQEEIGFrZWZha2VmYWtlZmFrZWZha2VmYWtlZmFrZWZha2VmYWtlZmFrZWZh\n" * 3
    + "-----END EC PRIVATE KEY-----\n"
)
ENCRYPTED = KEY.replace(
    "EC PRIVATE KEY-----\nMH", "RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: X,1\n\nMH", 1
)
CERTIFICATE = KEY.replace("EC PRIVATE KEY", "CERTIFICATE")
NGC = "nvapi-" + "aB3_-xYz" * 8
LEGACY = b64("abcdefghijklmnopqrstuvwx12:0b6ad2e2-43a5-4c1f-9f36-0d7e1f2a3b4c")
HUGGING = "hf_" + "aBcDeFgHiJ" * 3 + "kLmN"
DOCKER = json.dumps({"auths": {"nvcr.io": {"auth": b64(f"$oauthtoken:{NGC}")}}})
PASSWORD = json.dumps({"auths": {"harbor.example.com": {"username": "robot", "password": "Sunny-Day-7"}}})
KUBECONFIG = f"""apiVersion: v1
kind: Config
current-context: prod
clusters:
- cluster:
    certificate-authority-data: {b64(CERTIFICATE)}
users:
- name: admin
  user:
    client-certificate-data: {b64(CERTIFICATE)}
    client-key-data: {b64(KEY)}
"""
TOKEN_CONFIG = "apiVersion: v1\nkind: Config\nusers:\n- name: ci\n  user:\n    token: 0123456789abcdefghij\n"
JOIN = "K10" + "0f" * 32 + "::server:0123456789abcdef"

SECRETS = {
    "jwt": JWT,
    "vgpu-licence-token": LICENCE,
    "private-key": KEY,
    "ngc-key": NGC,
    "hugging-face-token": HUGGING,
    "registry-login": DOCKER,
    "kubeconfig": KUBECONFIG,
    "authorization-header": "curl -H 'Authorization: Bearer Zm9vYmFyYmF6'",
    "cluster-join-token": JOIN,
    "forge-token": "ghp_" + "aB3x" * 9,
    "cloud-key": "AKIA" + "ABCD" * 4,
    "chat-token": "xoxb-1234567890-abcdef",
    "address-with-password": "git clone https://robot:Sunny-Day-7@git.example.com/a.git",
}


def kinds(text: str | bytes) -> set[str]:
    return {leak.kind for leak in scan(text)}


@pytest.mark.parametrize("kind", SECRETS)
def test_each_shape_is_found_and_named(kind: str) -> None:
    assert kind in kinds(SECRETS[kind])
    assert kind in kinds(SECRETS[kind].encode())


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("private-key", ENCRYPTED),
        ("private-key", KEY.replace("EC ", "OPENSSH ")),
        ("private-key", KEY.replace("EC ", "")),
        ("private-key", KEY.replace("EC PRIVATE", "ENCRYPTED SIGSTORE PRIVATE")),
        ("private-key", KEY.replace("EC PRIVATE KEY", "PGP PRIVATE KEY BLOCK")),
        ("private-key", KEY[:150]),
        ("private-key", CERTIFICATE + KEY),
        ("registry-login", PASSWORD),
        ("registry-login", "auths:\n  nvcr.io:\n    auth: " + b64("user:pass")),
        ("registry-login", json.dumps({"nvcr.io": {"auth": b64("user:pass")}})),
        ("registry-login", '{"auths": {"x": {"identitytoken": "0a1b2c3d"}}}'),
        ("ngc-key", f"NGC_API_KEY={LEGACY}"),
        ("ngc-key", json.dumps({"name": "NGC_API_KEY", "value": LEGACY})),
        ("kubeconfig", TOKEN_CONFIG),
        ("kubeconfig", json.dumps({"kind": "Config", "users": [{"name": "a", "user": {"password": "Winter7"}}]})),
        ("authorization-header", '{"Authorization": ["Basic dXNlcjpwYXNz"]}'),
        ("authorization-header", "authorization = 'bearer abcdefgh12345678'"),
        ("jwt", f"token={JWT}&x=1"),
        ("private-key", "AGE-SECRET-KEY-1" + "QPZ" * 20),
        ("forge-token", "glpat-" + "aB3x" * 5),
        ("forge-token", "github_pat_" + "aB3_" * 9),
        ("address-with-password", json.dumps({"url": "redis://u:Sunny-Day-7@db.example:6379"})),
    ],
)
def test_each_spelling_of_a_shape_is_found(kind: str, text: str) -> None:
    assert kind in kinds(text)
    assert scan(redact(text)) == []


def wrapped(secret: str) -> dict[str, str]:
    as_json = json.dumps({"text": secret})
    return {
        "base64": b64(secret) if len(secret) < 30 else "data:\n  value: " + b64(secret),
        "base64 in JSON in base64": "x: " + b64(json.dumps({"a": b64(secret)})),
        "JSON": as_json,
        "JSON in JSON": json.dumps({"annotation": as_json}),
        "HTML": "<td>" + html.escape(secret) + "</td>",
        "HTML in JSON": json.dumps({"text/html": html.escape(as_json)}),
        "ANSI": "\x1b[31m" + secret + "\x1b[0m",
        "ANSI in JSON": json.dumps("\x1b[01;31m" + secret + "\x1b[0m"),
        "lines of a notebook": json.dumps({"text": secret.splitlines(keepends=True)}, indent=1),
        "escaped slashes": as_json.replace("/", "\\/"),
    }


@pytest.mark.parametrize("kind", ["jwt", "vgpu-licence-token", "private-key", "registry-login", "kubeconfig"])
@pytest.mark.parametrize("way", wrapped(""))
def test_wrapping_does_not_hide_a_secret(kind: str, way: str) -> None:
    text = wrapped(SECRETS[kind])[way]
    assert scan(text), text
    assert scan(redact(text)) == []


@pytest.mark.parametrize("kind", ["ngc-key", "hugging-face-token"])
@pytest.mark.parametrize("way", wrapped(""))
def test_wrapping_does_not_hide_a_bare_token(kind: str, way: str) -> None:
    assert scan(wrapped(SECRETS[kind])[way])


def test_a_secret_object_with_a_docker_configuration_is_found() -> None:
    secret = {"kind": "Secret", "data": {".dockerconfigjson": b64(DOCKER)}}
    assert kinds(json.dumps(secret)) == {"registry-login"}
    assert kinds(f"kind: Secret\ndata:\n  .dockerconfigjson: {b64(PASSWORD)}\n") == {"registry-login"}


HARMLESS = [
    "sha256:" + hashlib.sha256(b"image").hexdigest(),
    hashlib.sha1(b"revision").hexdigest(),
    str(uuid.UUID(int=2**127 + 5)),
    "GPU-" + str(uuid.UUID(int=2**126 + 5)),
    CERTIFICATE,
    b64(CERTIFICATE),
    "-----BEGIN PUBLIC KEY-----\n" + "MFkw" * 16 + "\n-----END PUBLIC KEY-----",
    "-----BEGIN PRIVATE KEY-----\n…\n-----END PRIVATE KEY-----\n sha256:" + "ab" * 32,
    "Look for -----BEGIN PRIVATE KEY----- in the file.",
    'WWW-Authenticate: Bearer realm="https://nvcr.io/proxy_auth",scope="repository:nvidia/driver:pull"',
    "Authorization: Bearer $TOKEN",
    "Authorization: Bearer <token>",
    '{"auths": {"nvcr.io": {}}, "credsStore": "pass"}',
    "kind: Config\nusers:\n- user:\n    client-key-data: DATA+OMITTED\n    token: REDACTED\n",
    "kind: Config\nusers:\n- user:\n    tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token\n",
    "nvapi-key",
    "https://git.example.com:8443/a@b",
    json.dumps({"a": "http://a.example:8080", "mail": "x@example.com"}),
    "http://a.example:8080,y@example.com",
    "https://robot:${PASSWORD}@git.example.com/ https://robot:<password>@git.example.com/",
    "https://robot@git.example.com/a?b=c:d@e",
    "ghp_short AKIA1 xoxb- glpat-x myAKIA0123456789ABCDEF",
    "hf_model_name",
    "hf_hub_download(repo_id)",
    "eyJust.a.word",
    "eyJ0.x.y",
    "authors: NVIDIA",
    "auth: disabled",
    "author: alice:bob",
    json.dumps({"path": "token", "expirationSeconds": 3607}),
    "nvcr.io/nvidia/driver:580.65.06-ubuntu22.04@sha256:" + "0f" * 32,
    b64(json.dumps({"kind": "Pod", "spec": {"nodeName": "gpu-7"}})),
    json.dumps({"digest": "sha256:" + "ab" * 32, "seq": 5, "prev": "sha256:" + "0" * 64}),
]


@pytest.mark.parametrize("text", HARMLESS)
def test_digests_certificates_and_placeholders_are_no_secrets(text: str) -> None:
    assert scan(text) == []
    assert redact(text) == text


def test_a_leak_tells_where_and_what_but_not_the_secret() -> None:
    [leak] = scan(f"one\ntwo {NGC}\nagain {NGC}\n")
    assert leak == Leak(2, "ngc-key", len(NGC), hashlib.sha256(NGC.encode()).hexdigest()[:8])
    assert NGC[6:20] not in str(leak)


def test_a_tree_keeps_its_shape_and_the_fingerprint_tells_equal_secrets() -> None:
    tree = {"a": [1, None, True, 2.5, {"b": f"x {HUGGING} y"}], "c": HUGGING, "d": "plain"}
    made = redact(tree)
    mark = hashlib.sha256(HUGGING.encode()).hexdigest()[:8]
    assert made["a"][:4] == [1, None, True, 2.5]
    assert made["a"][4]["b"] == f"x [redacted hugging-face-token, {len(HUGGING)} characters, sha256 {mark}] y"
    assert made["c"].endswith(f"sha256 {mark}]")
    assert made["d"] == "plain"
    assert tree["c"] == HUGGING


def test_what_stands_under_a_secret_key_goes_whatever_it_looks_like() -> None:
    made = redact({"user": {"password": "Sunny-Day-7", "name": "ci"}, "token": "abcdef", "auth": {"kind": "none"}})
    assert made["user"]["name"] == "ci"
    assert made["auth"] == {"kind": "none"}
    assert made["user"]["password"].startswith("[redacted secret, 11 characters, sha256 ")
    assert made["token"].startswith("[redacted secret, 6 characters")


def test_all_data_of_a_secret_object_goes_and_its_keys_stay() -> None:
    made = redact({"kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "eA==", "b": ""}, "type": "Opaque"})
    assert made["data"]["a"].startswith("[redacted secret, 4 characters")
    assert made["data"]["b"] == ""
    assert made["metadata"] == {"name": "s"}


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.one_of(st.sampled_from([*SECRETS.values(), PASSWORD, "\\", '"', "\n"]), st.text(max_size=30)), max_size=6
    )
)
def test_what_was_redacted_is_not_found_again_and_stays_as_it_is(parts: list[str]) -> None:
    made = redact(" ".join(parts))
    assert scan(made) == []
    assert redact(made) == made


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_can_be_scanned(data: bytes) -> None:
    assert all(leak.line >= 1 for leak in scan(data))
