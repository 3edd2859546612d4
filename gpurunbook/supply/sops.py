"""Files that claim SOPS: are its metadata whole, and is everything encrypted that its own rule covers?

Which values SOPS encrypts is decided by one rule in the metadata, over all keys on the way to a value (indexes of
lists are no keys). Regular expressions are searched for anywhere in a key. `mac_only_encrypted` leaves open values out
of the checksum; they are reviewed as any other, so it decides nothing here.
Source: getsops/sops, sops.go (shouldBeEncrypted) and stores/stores.go (one rule at most; `_unencrypted` without one).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from warnings import catch_warnings, simplefilter

from gpurunbook.supply.flaws import Flaw
from gpurunbook.supply.strictyaml import List, Map, Text
from gpurunbook.supply.tree import Trail, at, dotted, line, steps, walk, word

ENCRYPTED = re.compile(
    r"ENC\[AES256_GCM,data:[A-Za-z0-9+/=]*,iv:[A-Za-z0-9+/=]+,tag:[A-Za-z0-9+/=]+,type:(?:str|int|float|bool|bytes|comment)\]"
)
_RECIPIENTS = ("age", "pgp", "kms", "gcp_kms", "azure_kv", "hc_vault", "hckms", "key_groups")
_COMMENTS = ("encrypted_comment_regex", "unencrypted_comment_regex")
_RULES = ("unencrypted_suffix", "encrypted_suffix", "unencrypted_regex", "encrypted_regex", *_COMMENTS)
_FOREIGN = re.compile(r"\[\[:|\\[pPzQECXA]|\(\?(?!i\)|:|i:)|\\[1-9]|[*+?}]\+")
"""What Go reads otherwise than Python, or one of them not at all."""
_SLOW = re.compile(r"\)[*+{]|\)\?[*+{]")
_REPEATS = 2
_REMEDY = "Encrypt the file with sops, and replace every secret that stood in it in plain."

Covers = Callable[[Iterable[str]], bool | None]
"""Whether a value with these keys on its way is to be encrypted; None when that cannot be told."""


def judge(doc: Map, sops: Map, *, secret: bool) -> Iterator[Flaw]:
    """Writes nothing. What is against the claim. secret: it is a Secret, all of whose values must be encrypted."""
    if not _whole(sops):
        message = "the SOPS metadata are not whole: mac, lastmodified and a recipient"
        yield Flaw(sops.line, "sops", "sops-not-encrypted", message, _REMEDY)
    covers, wrong = _rule(sops)
    if wrong:
        yield Flaw(sops.line, "sops", "sops-not-encrypted", wrong, _REMEDY)
    plain: list[tuple[int, str]] = []
    encrypted = 0
    for node, trail in walk(doc):
        pairs = node.items.items() if isinstance(node, Map) else enumerate(node.items)
        for key, value in pairs:
            way: Trail = (trail, key)
            if not isinstance(value, Text) or not value.text or value.null:
                continue
            whole = steps(way)
            if whole[0] == "sops":
                continue
            if ENCRYPTED.fullmatch(value.text):
                encrypted += 1
            elif (secret and whole[0] in {"data", "stringData"}) or covers(k for k in whole if isinstance(k, str)):
                plain.append((value.line, dotted(way)))
    if plain:
        number, field = min(plain)
        message = f"claims SOPS, and {len(plain)} values that it must encrypt are plain, the first here"
        yield Flaw(number, field, "sops-not-encrypted", message, _REMEDY)
    elif not encrypted:
        message = "claims SOPS, and nothing in it is encrypted"
        yield Flaw(line(doc, 1), "sops", "sops-not-encrypted", message, _REMEDY)


def _whole(sops: Map) -> bool:
    recipients = (at(sops, name) for name in _RECIPIENTS)
    listed = any(isinstance(one, List) and one.items for one in recipients)
    return bool(ENCRYPTED.fullmatch(word(sops, "mac")) and word(sops, "lastmodified") and listed)


def _rule(sops: Map) -> tuple[Covers, str]:
    """The rule, and what is against it."""
    given = [name for name in _RULES if word(sops, name)]
    if len(given) > 1:
        return _untold, f"the SOPS metadata have {len(given)} rules ({', '.join(given)}); sops takes one"
    name = given[0] if given else "unencrypted_suffix"
    text = word(sops, name) or "_unencrypted"
    if name in _COMMENTS:
        return _untold, ""  # comments are not read here
    opened = name.startswith("un")
    if name.endswith("_suffix"):
        return (lambda keys: any(key.endswith(text) for key in keys) != opened), ""
    pattern = _pattern(text)
    if pattern is None:
        return _untold, f"nobody can tell here which values the {name} {text[:80]!r} covers"
    return (lambda keys: any(pattern.search(key) for key in keys) != opened), ""


def _untold(_: Iterable[str]) -> None:
    return None


def _pattern(text: str) -> re.Pattern[str] | None:
    """The expression as Go reads it; None for one that Python may read otherwise, or only slowly."""
    repeats = len(re.findall(r"(?<!\\)[*+{]", text))
    if len(text) > 1000 or repeats > _REPEATS or _FOREIGN.search(text) or _SLOW.search(text):
        return None
    try:
        with catch_warnings():
            simplefilter("error")
            return re.compile(text, re.ASCII)
    except (re.error, Warning, OverflowError, RecursionError):
        return None
