"""Secret values in manifests and values, and files that claim SOPS. Known shapes and names only, no guessing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from gpurunbook.supply.flaws import Flaw
from gpurunbook.supply.strictyaml import List, Map, Node, Text
from gpurunbook.supply.tree import Trail, at, dotted, walk, word

ENCRYPTED = re.compile(
    r"ENC\[AES256_GCM,data:[A-Za-z0-9+/=]*,iv:[A-Za-z0-9+/=]+,tag:[A-Za-z0-9+/=]+,type:(?:str|int|float|bool|bytes|comment)\]"
)
_CLAIMS = re.compile(r".+\.(?:sops|enc)\.(?:ya?ml|json)", re.IGNORECASE)
_RECIPIENTS = ("age", "pgp", "kms", "gcp_kms", "azure_kv", "hc_vault", "key_groups")
_PARTIAL = ("encrypted_regex", "encrypted_suffix", "unencrypted_regex", "unencrypted_suffix", "encrypted_comment_regex")

_SHAPES = (
    ("private-key", re.compile(r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----|AGE-SECRET-KEY-1[0-9A-Z]{20,}")),
    (
        "registry-password",
        re.compile(r'"auth"\s*:\s*"[A-Za-z0-9+/=]{6,}"|"auths"\s*:.*"password"\s*:\s*"[^"]', re.DOTALL),
    ),
    (
        "known-token",
        re.compile(
            r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}|nvapi-[A-Za-z0-9_-]{20,}|\bhf_[A-Za-z0-9]{30,}"
            r"|\bgh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}|glpat-[A-Za-z0-9_-]{20,}|\bAKIA[0-9A-Z]{16}\b"
            r"|\bxox[abprs]-[A-Za-z0-9-]{10,}|\b[a-z][a-z0-9+.-]*://[^/\s:@${}]+:[^/\s@${}]{3,}@"
        ),
    ),
)
_HINT = re.compile(r"-----BEGIN|AGE-SECRET|\"auth|eyJ|nvapi-|hf_|gh[pousr]_|github_|glpat-|AKIA|xox|://[^/@]*@")

_NAME = re.compile(
    r"(?!.*existing).*(?:password|passwd|passphrase|token|apikey|privatekey|clientsecret|secretaccesskey"
    r"|dockerconfigjson|licensekey|licencekey|\.tok)|(?:aws|s3|minio)?secretkey"
)
_ARGUMENT = re.compile(r"--?[A-Za-z0-9-]*(?:password|passwd|passphrase|token|api-key|secret-key)[= ]([^\s$/{][^\s]*)")
_ELSEWHERE = re.compile(r"/[A-Za-z0-9._/-]+|\$\{[^}]*\}|\$\([^)]*\)|\$[A-Za-z_][A-Za-z0-9_]*|.*\{\{.*", re.DOTALL)
"""A path, or what something else replaces: the value stands elsewhere."""

_SWITCH = frozenset({"true", "false", "yes", "no", "on", "off", "0", "1"})
_LICENCE = re.compile(r".*\.tok|client_configuration_token.*")

_REFERRING = frozenset({"ExternalSecret", "ClusterExternalSecret", "SecretStore", "ClusterSecretStore", "SealedSecret"})
"""Kinds whose `secretKey` and `token` name something elsewhere, or are encrypted by another means."""

_REMEDY = "Take it out and keep it in a SOPS-encrypted Secret; whoever had this file has the secret, so replace it."


@lru_cache(maxsize=8192)
def _secret_name(key: str) -> bool:
    return _NAME.fullmatch(re.sub(r"[-_]|\.(?!tok\Z)", "", key.lower())) is not None


def _suspect(text: str) -> bool:
    """Whether a shape may be in it; most texts are short, and quickly passed over."""
    return len(text) > 15 and _HINT.search(text) is not None


def judge_text(value: Text, field: str) -> Iterator[Flaw]:
    """Writes nothing. Secrets that are known by their shape, in any text. The secret itself is not told."""
    for code, shape in _SHAPES:
        if shape.search(value.text):
            what = {"private-key": "a private key", "registry-password": "a registry password"}.get(code, "a token")
            yield Flaw(value.line, field, code, f"{what} of a known shape stands in the text", _REMEDY)


class Secrets:
    """Judges one document. sops: it has SOPS metadata."""

    def __init__(self, doc: Map, kind: str, file_name: str) -> None:
        self._doc = doc
        self._kind = kind
        self._file = file_name
        self._names = kind not in _REFERRING and kind != "CustomResourceDefinition"

    def whole(self) -> Iterator[Flaw]:
        """Writes nothing. What is against the document as a whole: a Secret with values, SOPS that is none."""
        sops = at(self._doc, "sops")
        if isinstance(sops, Map):
            yield from self._sops(sops)
        elif _CLAIMS.fullmatch(self._file) and self._file != ".sops.yaml":
            message = "the file's name claims SOPS, and it has no SOPS metadata"
            yield Flaw(self._doc.line, "sops", "sops-not-encrypted", message, "Encrypt it with sops, or rename it.")
        elif self._kind == "Secret":
            yield from self._plain_secret()

    def _plain_secret(self) -> Iterator[Flaw]:
        for part in ("data", "stringData"):
            values = at(self._doc, part)
            for key, value in values.items.items() if isinstance(values, Map) else ():
                if isinstance(value, Text) and (value.null or not value.text.strip()):
                    continue
                message = f"a Secret with a value ({key}) that is not encrypted"
                yield Flaw(value.line, f"{part}.{key}", "secret-value", message, _REMEDY)
                break

    def _sops(self, sops: Map) -> Iterator[Flaw]:
        remedy = "Encrypt the file with sops, and replace every secret that stood in it in plain."
        whole = ENCRYPTED.fullmatch(word(sops, "mac")) and word(sops, "lastmodified")
        if not whole or not any(isinstance(at(sops, name), List) and at(sops, name).items for name in _RECIPIENTS):  # type: ignore[union-attr]
            message = "the SOPS metadata are not whole: mac, lastmodified and a recipient"
            yield Flaw(sops.line, "sops", "sops-not-encrypted", message, remedy)
        partial = any(word(sops, name) for name in _PARTIAL)
        plain: list[tuple[int, str]] = []
        encrypted = 0
        for node, trail in walk(self._doc):
            pairs = node.items.items() if isinstance(node, Map) else enumerate(node.items)
            for key, value in pairs:
                way: Trail = (trail, key)
                if not isinstance(value, Text) or not value.text or value.null or _top(way) == "sops":
                    continue
                if ENCRYPTED.fullmatch(value.text):
                    encrypted += 1
                elif self._must_be_encrypted(way, partial):
                    plain.append((value.line, dotted(way)))
        if plain:
            number, field = min(plain)
            message = f"claims SOPS, and {len(plain)} values are plain, the first here"
            yield Flaw(number, field, "sops-not-encrypted", message, remedy)
        elif not encrypted:
            message = "claims SOPS, and nothing in it is encrypted"
            yield Flaw(self._doc.line, "sops", "sops-not-encrypted", message, remedy)

    def _must_be_encrypted(self, way: Trail, partial: bool) -> bool:
        if not partial:  # SOPS leaves out keys of this suffix by default
            return not any(isinstance(step, str) and step.endswith("_unencrypted") for step in _keys(way))
        # Which keys its patterns cover is for sops to say; a Secret's values must be among them.
        return self._kind == "Secret" and _top(way) in {"data", "stringData"}

    def concern(self, node: Map) -> bool:
        """Writes nothing. Whether a secret can stand in this mapping itself. Quick: most have none."""
        for key, value in node.items.items():
            if type(value) is Text:
                text = value.text
                if (len(text) > 15 and _suspect(text)) or _secret_name(key):
                    return True
            elif key == "licensingConfig":
                return True
        return "value" in node.items and _secret_name(word(node, "name"))

    def judge(self, node: Map, trail: Trail) -> Iterator[Flaw]:
        """Writes nothing. Secret values under the names of this mapping, in an environment variable, in a licence."""
        if self._kind == "Secret" and trail is not None and _top(trail) in {"data", "stringData"}:
            return  # judged as a whole
        for key, value in node.items.items():
            if isinstance(value, Text):
                if _suspect(value.text):
                    yield from judge_text(value, dotted(trail, key))
                if self._names and _secret_name(key) and _is_value(value):
                    yield self._flaw(value, trail, key)
            if key == "licensingConfig":
                yield from _licensing(value, dotted(trail, key))
        if self._names and "value" in node.items and _secret_name(word(node, "name")):
            value = node.items["value"]
            if isinstance(value, Text) and _is_value(value):
                yield self._flaw(value, trail, f"value of {word(node, 'name')}")

    def _flaw(self, value: Text, trail: Trail, key: str) -> Flaw:
        if _LICENCE.fullmatch(key):
            message = f"{key} holds a vGPU licence token in the clear"
            return Flaw(value.line, dotted(trail, key), "licence-token", message, _REMEDY)
        return Flaw(value.line, dotted(trail, key), "secret-value", f"{key} holds a value in the clear", _REMEDY)

    def items(self, node: List, trail: Trail) -> Iterator[Flaw]:
        """Writes nothing. Secret values among the texts of a list, as arguments of a command or by their shape."""
        for n, item in enumerate(node.items):
            if isinstance(item, Text) and len(item.text) > 8:
                if _suspect(item.text):
                    yield from judge_text(item, f"{dotted(trail)}[{n}]")
                if item.text.startswith("-") and _ARGUMENT.fullmatch(item.text):
                    name = re.split("[= ]", item.text)[0]
                    yield Flaw(
                        item.line,
                        f"{dotted(trail)}[{n}]",
                        "secret-value",
                        f"{name} is given a value in the clear",
                        _REMEDY,
                    )


def _is_value(value: Text) -> bool:
    text = value.text.strip()
    if not text or value.null or text.lower() in _SWITCH:
        return False
    return not (ENCRYPTED.fullmatch(text) or _ELSEWHERE.fullmatch(text))


def _licensing(value: Node, field: str) -> Iterator[Flaw]:
    if not isinstance(value, Map):
        return
    remedy = "Name a Secret (secretName) that SOPS manages; a ConfigMap or the values are readable."
    for key, inner in value.items.items():
        if key in {"secretName", "nlsEnabled"} or (isinstance(inner, Text) and (inner.null or not inner.text.strip())):
            continue
        what = "names a ConfigMap" if key == "configMapName" else f"holds {key}"
        message = f"licensingConfig {what}: licensed vGPU material stands in the clear"
        yield Flaw(inner.line, f"{field}.{key}", "licensing-config", message, remedy)


def _keys(trail: Trail) -> Iterator[str | int]:
    while trail is not None:
        trail, step = trail
        yield step


def _top(trail: Trail) -> str | int:
    return [*_keys(trail)][-1]
