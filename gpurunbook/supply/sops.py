"""Files that claim SOPS: are its metadata whole, and is everything encrypted that its own rule covers?

Which values SOPS encrypts is decided by one rule in the metadata, over all keys on the way to a value (indexes of
lists are no keys), or by comments: one stands for the key or the item below it and for all in it. Regular expressions
are searched for anywhere in a key or in a comment. `mac_only_encrypted` leaves open values out
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

Covers = Callable[[Iterable[str], int], bool | None]
"""Whether a value with these keys on its way, at this line, is to be encrypted; None when that cannot be told."""


def concern(data: bytes) -> bool:
    """Writes nothing. Whether a rule over comments may stand in a file."""
    return b"encrypted_comment_regex" in data


def judge(doc: Map, sops: Map, *, secret: bool, raw: bytes = b"") -> Iterator[Flaw]:
    """Writes nothing. What is against the claim. secret: it is a Secret, all of whose values must be encrypted.

    raw: the file, which a rule over comments needs; without it nobody can tell what such a rule covers.
    """
    if not _whole(sops):
        message = "the SOPS metadata are not whole: mac, lastmodified and a recipient"
        yield Flaw(sops.line, "sops", "sops-not-encrypted", message, _REMEDY)
    covers, wrong = _rule(sops, raw)
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
            elif (secret and whole[0] in {"data", "stringData"}) or covers(
                (k for k in whole if isinstance(k, str)), value.line
            ):
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


def _rule(sops: Map, raw: bytes) -> tuple[Covers, str]:
    """The rule, and what is against it."""
    given = [name for name in _RULES if word(sops, name)]
    if len(given) > 1:
        return _untold, f"the SOPS metadata have {len(given)} rules ({', '.join(given)}); sops takes one"
    name = given[0] if given else "unencrypted_suffix"
    text = word(sops, name) or "_unencrypted"
    opened = name.startswith("un")
    if name.endswith("_suffix"):
        return (lambda keys, _: any(key.endswith(text) for key in keys) != opened), ""
    pattern = _pattern(text)
    if pattern is None:
        return _untold, f"nobody can tell here which values the {name} {text[:80]!r} covers"
    if name in _COMMENTS:
        if not raw:
            return _untold, f"nobody can tell here which values the {name} covers: their comments are not there"
        marked = _marked(raw.decode(errors="replace"), pattern)
        return (lambda _, number: (number in marked) != opened), ""
    return (lambda keys, _: any(pattern.search(key) for key in keys) != opened), ""


def _untold(_: Iterable[str], __: int) -> None:
    return None


def _marked(text: str, pattern: re.Pattern[str]) -> set[int]:
    """The lines that a comment stands for: the one below it, or its own, and all that is in it."""
    found: set[int] = set()
    waiting, depth, item = False, -1, False  # depth: indentation of what is marked, -1 for nothing; item: of a list
    for number, whole in enumerate(text.split("\n"), 1):
        bare = whole.strip()
        if bare.startswith("#"):
            waiting = waiting or pattern.search(bare[1:]) is not None
        elif bare:
            indent = len(whole) - len(whole.lstrip(" "))
            inside = indent > depth or (indent == depth and not item and bare.startswith("- "))
            if depth < 0 or not inside:
                _, hash_, behind = bare.partition(" #")
                marks = waiting or (bool(hash_) and pattern.search(behind) is not None)
                depth, item = (indent, bare.startswith("- ")) if marks else (-1, False)
            if depth >= 0:
                found.add(number)
            waiting = False
    return found


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
