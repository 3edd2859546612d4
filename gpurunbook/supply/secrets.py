"""Secret values in manifests and values. Known shapes and names only, no guessing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from gpurunbook import leaks
from gpurunbook.supply import sops
from gpurunbook.supply.flaws import Flaw
from gpurunbook.supply.found import Place
from gpurunbook.supply.sops import ENCRYPTED
from gpurunbook.supply.strictyaml import List, Map, Node, Text
from gpurunbook.supply.tree import Trail, at, dotted, steps, word

_CLAIMS = re.compile(r".+\.(?:sops|enc)\.(?:ya?ml|json)", re.IGNORECASE)
_CODES = {
    "private-key": ("private-key", "a private key"),
    "registry-login": ("registry-password", "a registry password"),
    "vgpu-licence-token": ("licence-token", "a vGPU licence token"),
}
"""Codes of shapes; of any other: a token."""

_HEADER = re.compile(r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----")

_NAME = re.compile(
    r"(?!.*existing).*(?:password|passwd|passphrase|token|apikey|privatekey|clientsecret|secretaccesskey"
    r"|dockerconfigjson|licensekey|licencekey|\.tok)|(?:aws|s3|minio)?secretkey"
)
_ARGUMENT = re.compile(r"--?[A-Za-z0-9-]*(?:password|passwd|passphrase|token|api-key|secret-key)[= ]([^\s$/{][^\s]*)")
_OPTION = re.compile(r"--?[A-Za-z0-9-]*(?:password|passwd|passphrase|token|api-key|secret-key)")
_ELSEWHERE = re.compile(r"/[A-Za-z0-9._/-]+|\$\{[^}]*\}|\$\([^)]*\)|\$[A-Za-z_][A-Za-z0-9_]*|.*\{\{.*", re.DOTALL)
"""A path, or what something else replaces: the value stands elsewhere."""

_SWITCH = frozenset({"true", "false", "yes", "no", "on", "off", "0", "1"})
_LICENCE = re.compile(r".*\.tok|client_configuration_token.*")

REFERRING = frozenset({"ExternalSecret", "ClusterExternalSecret", "SecretStore", "ClusterSecretStore", "SealedSecret"})
"""Kinds whose `secretKey` and `token` name something elsewhere, or are encrypted by another means."""

SECRET_CODES = frozenset({"secret-value", "private-key", "known-token", "registry-password", "licence-token"})
SECRET_CODES |= {"licensing-config", "sops-not-encrypted"}
"""Findings that say that a secret stands in the file."""

_REMEDY = "Take it out and keep it in a SOPS-encrypted Secret; whoever had this file has the secret, so replace it."


@lru_cache(maxsize=8192)
def _secret_name(key: str) -> bool:
    return _NAME.fullmatch(re.sub(r"[-_]|\.(?!tok\Z)", "", key.lower())) is not None


def concern(key: str) -> bool:
    """Writes nothing. Whether a secret can stand under such a key."""
    return key == "licensingConfig" or _secret_name(key)


def judge_text(value: Text, field: str) -> Iterator[Flaw]:
    """Writes nothing. Secrets that are known by their shape, in any text. The secret itself is not told."""
    kinds = {kind for _, kind, _ in leaks.secrets(value.text)}
    if _HEADER.search(value.text):  # in a manifest its beginning alone is one too many
        kinds.add("private-key")
    for kind in sorted(kinds):
        yield shaped(kind, value.line, field)


def shaped(kind: str, line: int, field: str) -> Flaw:
    """Writes nothing. What is said of a secret of a known shape."""
    code, what = _CODES.get(kind, ("known-token", f"a token ({kind})"))
    return Flaw(line, field, code, f"{what} of a known shape stands in the text", _REMEDY)


def named(line: int, field: str, key: str) -> Flaw:
    """Writes nothing. What is said of a value under the name of a secret."""
    if _LICENCE.fullmatch(key):
        return Flaw(line, field, "licence-token", f"{key} holds a vGPU licence token in the clear", _REMEDY)
    return Flaw(line, field, "secret-value", f"{key} holds a value in the clear", _REMEDY)


def is_secret(key: str, value: Text) -> bool:
    """Writes nothing. Whether a secret stands in the clear, by its key."""
    return _secret_name(key) and _is_value(value)


class Secrets:
    """Judges one document. sops: it has SOPS metadata."""

    def __init__(self, doc: Map, kind: str, place: Place) -> None:
        self._doc = doc
        self._kind = kind
        self._place = place
        self._schema = kind == "CustomResourceDefinition"  # it speaks of secrets by name, and holds none
        self._names = kind not in REFERRING and not self._schema
        self._sops = at(doc, "sops")
        self._secret = kind == "Secret" or kind.startswith("ENC[")  # a kind that is encrypted may be one
        self.encrypted = isinstance(self._sops, Map)

    def whole(self) -> Iterator[Flaw]:
        """Writes nothing. What is against the document as a whole: a Secret with values, SOPS that is none."""
        if isinstance(self._sops, Map):
            yield from sops.judge(self._doc, self._sops, secret=self._secret, raw=self._place.raw)
        elif _CLAIMS.fullmatch(self._place.name) and self._place.name != ".sops.yaml" and not self._place.sops:
            message = "the file's name claims SOPS, and it has no SOPS metadata"
            yield Flaw(self._doc.line, "sops", "sops-not-encrypted", message, "Encrypt it with sops, or rename it.")
        elif self._secret:
            yield from self._plain_secret()
        generators = at(self._doc, "secretGenerator")
        for n, one in enumerate(generators.items if isinstance(generators, List) else ()):
            yield from self._generated(at(one, "literals"), f"secretGenerator[{n}].literals")

    def _generated(self, literals: Node | None, field: str) -> Iterator[Flaw]:
        """What kustomize would make a Secret of."""
        for n, item in enumerate(literals.items if isinstance(literals, List) else ()):
            key, _, value = word(item).partition("=")
            if value and not ENCRYPTED.fullmatch(value):
                message = f"a value ({key}) of a Secret stands in the clear"
                yield Flaw(item.line, f"{field}[{n}]", "secret-value", message, _REMEDY)

    def _plain_secret(self) -> Iterator[Flaw]:
        for part in ("data", "stringData"):
            values = at(self._doc, part)
            for key, value in values.items.items() if isinstance(values, Map) else ():
                if isinstance(value, Text) and (value.null or not value.text.strip()):
                    continue
                if self._place.sops and isinstance(value, Text) and ENCRYPTED.fullmatch(value.text):
                    continue
                message = f"a Secret with a value ({key}) that is not encrypted"
                yield Flaw(value.line, f"{part}.{key}", "secret-value", message, _REMEDY)
                break

    def judge(self, node: Map, trail: Trail) -> Iterator[Flaw]:
        """Writes nothing. Secret values under the names of this mapping, in an environment variable, in a licence."""
        if self._secret and trail is not None and steps(trail)[0] in {"data", "stringData"}:
            return  # judged as a whole
        for key, value in node.items.items():
            if isinstance(value, Text):
                if leaks.suspect(value.text):
                    yield from judge_text(value, dotted(trail, key))
                if self._names and is_secret(self._bare(key), value):
                    yield named(value.line, dotted(trail, key), key)
            if key == "licensingConfig" and not self._schema:
                yield from _licensing(value, dotted(trail, key))
        if self._names and "value" in node.items and _secret_name(word(node, "name")):
            value = node.items["value"]
            if isinstance(value, Text) and _is_value(value):
                key = f"value of {word(node, 'name')}"
                yield named(value.line, dotted(trail, key), key)

    def _bare(self, key: str) -> str:
        """The key without the suffix by which SOPS was told to leave it open."""
        if not self.encrypted:
            return key
        return key.removesuffix(word(self._sops, "unencrypted_suffix") or "_unencrypted")

    def items(self, node: List, trail: Trail) -> Iterator[Flaw]:
        """Writes nothing. Secret values among the texts of a list, as arguments of a command or by their shape."""
        for n, item in enumerate(node.items):
            if isinstance(item, Text) and len(item.text) > 2:
                if leaks.suspect(item.text):
                    yield from judge_text(item, f"{dotted(trail)}[{n}]")
                if n and _given(node.items[n - 1], item):
                    name = word(node.items[n - 1])
                    message = f"{name} is given a value in the clear"
                    yield Flaw(item.line, f"{dotted(trail)}[{n}]", "secret-value", message, _REMEDY)
                if item.text.startswith("-") and _ARGUMENT.fullmatch(item.text):
                    name = re.split("[= ]", item.text)[0]
                    yield Flaw(
                        item.line,
                        f"{dotted(trail)}[{n}]",
                        "secret-value",
                        f"{name} is given a value in the clear",
                        _REMEDY,
                    )


def _given(option: Node, value: Text) -> bool:
    """Whether a text is the value of the option before it in a command."""
    name = word(option)
    return name.startswith("-") and bool(_OPTION.fullmatch(name)) and value.text[0] != "-" and _is_value(value)


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
