"""Parameters as people give them: YAML files, and NAME=VALUE on a command line.

A file is taken by plain papermill as well, which reads YAML 1.1 (`012` is 10, `yes` is true); most people and
other tools mean YAML 1.2. A value that the two read differently is refused here, with what it could mean.
"""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import yaml

from gpurunbook.declared.book import Runbook
from gpurunbook.errors import InputError, ParameterError
from gpurunbook.folder import parameters

_LIMIT = 1 << 20
"""Bytes of one parameters file."""


class _Old(yaml.SafeLoader):
    """As papermill reads: YAML 1.1 without dates (papermill/iorw.py)."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, pattern) for tag, pattern in pairs if not tag.endswith(":timestamp")]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


class _Exact(yaml.SafeLoader):
    """The scalars of the YAML 1.2 core schema that YAML 1.1 reads alike."""

    yaml_implicit_resolvers = {}  # noqa: RUF012

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Refuses aliases: a small file could become a huge value."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "aliases are not taken here", self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        return super().compose_node(parent, index)


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", list("-+.")),
):
    _Exact.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})\\Z"), _first)
_Exact.add_constructor("tag:yaml.org,2002:int", lambda _, node: int(node.value))


def gather(book: Runbook, files: Iterable[Path] = (), words: Iterable[str] = (), cluster: str = "") -> dict[str, Any]:
    """Writes nothing. All parameters that were given, judged by the runbook's declaration.

    Later files win over earlier ones, words over files, and `cluster` over both. Raises ParameterError or
    InputError that name the parameter or the file, before anything is made.
    """
    given: dict[str, Any] = {}
    for file in files:
        given.update(from_file(file))
    given.update(from_words(book, words))
    if cluster:
        given["cluster"] = cluster
    parameters.load(book, given)
    return given


def from_file(path: Path) -> dict[str, Any]:
    """Writes nothing. The parameters of one YAML file. Raises InputError, or ParameterError for an unclear value."""
    try:
        with path.open("rb") as file:
            raw = file.read(_LIMIT + 1)
    except OSError as wrong:
        raise InputError(f"cannot be read: {wrong.strerror}", subject=str(path), code="unreadable") from None
    if len(raw) > _LIMIT:
        raise InputError(f"is larger than {_LIMIT} bytes", subject=str(path))
    if not raw.strip():  # one that was cut off must not mean the defaults
        remedy = "Write it again, or leave it away: without a file the defaults hold."
        raise InputError("is empty: no parameter stands there", subject=str(path), remedy=remedy)
    return parse(raw, str(path))


def parse(raw: bytes, name: str) -> dict[str, Any]:
    """Writes nothing. The parameters that YAML bytes hold; no bytes hold none. Raises as `from_file`."""
    try:
        loader = _Exact(raw.decode())
        try:
            node = loader.get_single_node()
            if node is None:
                return {}
            if not isinstance(node, yaml.MappingNode):
                raise InputError("wanted lines of `name: value`", subject=name)
            _check_mapping(node, name, "")
            found = loader.construct_document(node)
        finally:
            loader.dispose()
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as wrong:
        if isinstance(wrong, InputError | ParameterError):
            raise
        raise InputError(f"is no YAML that is taken here: {wrong}", subject=name) from None
    return dict(found)


def _check_mapping(node: Any, name: str, inside: str) -> None:
    keys: set[str] = set()
    for key, value in node.value:
        where = f"{name} line {key.start_mark.line + 1}"
        if not isinstance(key, yaml.ScalarNode) or not key.tag.endswith(":str"):
            raise InputError("a name must be plain text", subject=where)
        if key.value in keys:
            raise InputError(f"{key.value!r} stands there twice", subject=where, remedy="Keep one of them.")
        keys.add(key.value)
        _check(value, name, inside or key.value)


def _check(node: Any, name: str, parameter: str) -> None:
    if isinstance(node, yaml.ScalarNode) and node.style is None:
        _check_plain(node, name, parameter)
        return
    kinds = {yaml.MappingNode: "map", yaml.SequenceNode: "seq", yaml.ScalarNode: "str"}
    if node.tag != f"tag:yaml.org,2002:{kinds[type(node)]}":
        raise _tagged(node, name, parameter)
    if isinstance(node, yaml.MappingNode):
        _check_mapping(node, name, parameter)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _check(item, name, parameter)


def _subject(node: Any, name: str, parameter: str) -> str:
    return f"parameter {parameter!r} ({name} line {node.start_mark.line + 1})"


def _tagged(node: Any, name: str, parameter: str) -> ParameterError:
    return ParameterError(
        f"the tag {node.tag} is not taken here", subject=_subject(node, name, parameter), remedy="Remove the tag."
    )


def _check_plain(node: Any, name: str, parameter: str) -> None:
    old, exact = _reading(_Old, node.value), _reading(_Exact, node.value)
    if node.tag != _resolved(_Exact(""), node.value):
        if node.tag.endswith(":str"):
            return
        raise _tagged(node, name, parameter)
    if type(old) is type(exact) and (old == exact or old != old):
        return
    text = node.value
    meant = f"Write '{text}' in quotes for the text"
    if isinstance(old, bool):
        meant += f", or {str(old).lower()} for the truth value"
    elif isinstance(old, int | float) or isinstance(exact, int | float):
        meant += ", or the number without leading zeros, colons, underscores or exponent"
    raise ParameterError(
        f"{text} without quotes means {_spell(old)} to papermill (YAML 1.1) and {_spell(exact)} to others (YAML 1.2)",
        subject=_subject(node, name, parameter),
        remedy=f"{meant}.",
    )


def _resolved(loader: Any, text: str) -> Any:
    return loader.resolve(yaml.ScalarNode, text, (True, False))


def _reading(kind: Any, text: str) -> Any:
    loader = kind("")
    return loader.construct_object(yaml.ScalarNode(_resolved(loader, text), text))


def _spell(value: Any) -> str:
    if isinstance(value, str):
        return f"the text {value!r}"
    return json.dumps(value)


def from_words(book: Runbook, words: Iterable[str]) -> dict[str, Any]:
    """Writes nothing. NAME=VALUE pairs, each value read as the declared type of its parameter.

    Text is taken as it stands (`1.10`, `012`, `yes`); bool takes true or false; numbers are decimal; a list is JSON
    or words with commas between. Raises ParameterError that names the parameter.
    """
    fields = {f.name: f.type for f in msgspec.structs.fields(book.parameters)}
    found: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise ParameterError("wanted NAME=VALUE", subject=f"--set {word!r:.80}")
        if name in found:
            raise ParameterError("is set twice", subject=f"parameter {name!r}", remedy="Keep one of them.")
        if name not in fields:
            raise parameters.unknown(book, name)
        found[name] = _read(text, fields[name], name)
    return found


def _read(text: str, kind: Any, name: str) -> Any:
    if typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    if kind is str or typing.get_origin(kind) is typing.Literal:
        return text
    if kind is bool and text in {"true", "false", "True", "False"}:
        return text.lower() == "true"
    if kind is int and re.fullmatch(r"-?(0|[1-9][0-9]{0,18})", text):
        return int(text)
    if kind is float and re.fullmatch(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?", text):
        return float(text)
    if typing.get_origin(kind) is list:
        (item,) = typing.get_args(kind)
        return _json_list(text, name) if text.lstrip().startswith("[") else _split(text, item, name)
    raise ParameterError(
        f"{text!r:.80} was given, wanted {_wanted(kind)}",
        subject=f"parameter {name!r}",
        remedy=_hint(text, kind),
    )


def _split(text: str, item: Any, name: str) -> list[Any]:
    return [_read(part.strip(), item, name) for part in text.split(",")] if text.strip() else []


def _json_list(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as wrong:
        words = re.findall(r"[^][\s,\"']+", text)[:3] or ["a", "b"]
        raise ParameterError(
            f"{text!r:.80} is no JSON list: {wrong}",
            subject=f"parameter {name!r}",
            remedy=f"Write {json.dumps(words, ensure_ascii=False)}, or {','.join(words)}; quote it for the shell.",
        ) from None


def _wanted(kind: Any) -> str:
    return {bool: "true or false", int: "a whole number", float: "a number"}.get(kind, str(kind))


def _hint(text: str, kind: Any) -> str:
    if kind is bool:
        low = text.strip().lower()
        if low in {"no", "off", "0", "n"}:
            return "Was false meant?"
        if low in {"yes", "on", "1", "y"}:
            return "Was true meant?"
        return "Write true or false."
    if kind in (int, float) and re.fullmatch(r"[-+]?0+[0-9]+", text):
        return f"Was {int(text)} meant? A leading zero is octal in YAML 1.1."
    return ""
