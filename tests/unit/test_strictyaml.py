"""The strict YAML loader and the shapes read from it.

Covered: every code of ORDER except `type` at the top (its callers test that), their precedence, lines, what a
scalar keeps, alias and nesting limits, merge keys, streaming, and both of PyYAML's parsers.
Not covered: PyYAML's own grammar.
"""

from __future__ import annotations

import json

import pytest
import yaml

from gpurunbook.errors import InputError
from gpurunbook.supply import strictyaml
from gpurunbook.supply.shape import Shape
from gpurunbook.supply.strictyaml import List, Map, Text, document, documents

LIMIT = 65_536


@pytest.fixture(params=["libyaml", "pure Python"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(strictyaml, "_PARSER", yaml.CBaseLoader if request.param == "libyaml" else yaml.BaseLoader)
    return str(request.param)


def refusal(data: bytes, limit: int = LIMIT) -> InputError:
    with pytest.raises(InputError) as caught:
        document(data, limit=limit)
    return caught.value


@pytest.mark.parametrize(
    ("data", "code", "line"),
    [
        (b"", "empty", 1),
        (b" \n\n", "empty", 1),
        (b"# only\n  # comments\n", "empty", 1),
        (b"\xef\xbb\xbf# with a byte order mark\n", "empty", 1),
        (b"\t\n", "empty", 1),
        (b"a: 1\nb: \xff\n", "encoding", 2),
        (b"a: \xed\xa0\x80\n", "encoding", 1),
        ("a: 1\n".encode("utf-16"), "encoding", 1),
        (b"a: 1\n---\n", "multi-document", 2),
        (b"a: 1\n---\nb: 2\n", "multi-document", 2),
        (b"a: 1\n---\n}{\n", "multi-document", 2),
        (b"a: 1\n--- {\n", "multi-document", 2),
        (b"a: 1\n...\n---\nb\n", "multi-document", 3),
        (b"---\n---\n", "multi-document", 2),
        (b"# a\n---\na: 1\r\n---\r\n", "multi-document", 4),
        (b"a: [1\n---\nb: 1\n", "multi-document", 2),
        (b"%YAML 1.1\n---\na: 'x\n---\n", "multi-document", 4),
        (b"a: [1\n", "syntax", 2),
        (b"a: b: c\n", "syntax", 1),
        (b'"a" b\n', "syntax", 1),
        (b"a: \x00\n", "syntax", 1),
        (b"a: 1\n\tb: 2\n", "syntax", 2),
        (b"a: &x 1\n", "alias", 1),
        (b"a: 1\nb: *x\n", "alias", 2),
        (b"a: &x {b: 1}\n", "alias", 1),
        (b"a: 1\nb: &x [1]\n", "alias", 2),
        (b"a: 1\n&k b: 2\n", "alias", 2),
        (b"a: 1\n*k : 2\n", "alias", 2),
        (b"a: !!str 1\n", "tag", 1),
        (b"a: ! 1\n", "tag", 1),
        (b"a: 1\nb: !!map {}\n", "tag", 2),
        (b"a: !!python/object/apply:os.system [x]\n", "tag", 1),
        (b"!!str a: 1\n", "tag", 1),
        (b"a: 1\na: 2\n", "duplicate-key", 2),
        (b"a: 1\n'a': 2\n", "duplicate-key", 2),
        (b"a:\n  b: 1\n  c: 2\n  b: 3\n", "duplicate-key", 4),
        (b"- {a: 1, a: 1}\n", "duplicate-key", 1),
        (b"a: 1\n[b]: 2\n", "unknown-field", 2),
        (b"? {b: c}\n: 2\n", "unknown-field", 1),
    ],
)
def test_a_file_that_could_be_read_in_two_ways_is_refused_with_its_line(
    parser: str, data: bytes, code: str, line: int
) -> None:
    wrong = refusal(data)
    assert wrong.code == code
    if parser == "libyaml":  # the parsers put the mark of a syntax error in different places
        assert wrong.subject == f"line {line}"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"a: *x\na: !!str 1\na: 2\n---\n}{", "multi-document"),
        (b"a: 1\na: *x\nb: [\n", "syntax"),
        (b"a: 1\na: !!str 1\nb: &x 1\n", "alias"),
        (b"a: 1\na: 2\nb: !!str 1\n", "tag"),
    ],
)
def test_of_several_faults_the_first_in_the_order_is_told(parser: str, data: bytes, code: str) -> None:
    assert refusal(data).code == code


def test_size_is_judged_before_anything_is_decoded() -> None:
    assert refusal(b"\xff" * 11, limit=10).code == "too-large"
    assert refusal(b"\xff" * 10, limit=10).code == "encoding"


def test_scalars_stay_as_they_were_written(parser: str) -> None:
    data = b"a: 595.90\nb: yes\nc: 2026-08-18\nd: 0x1F\ne: '1'\nf: |\n  x\n  y\ng: 1e3\nh: 0o7\n"
    node = document(data, limit=LIMIT)
    assert isinstance(node, Map)
    assert {key: (v.text, v.plain) for key, v in node.items.items() if isinstance(v, Text)} == {
        "a": ("595.90", True),
        "b": ("yes", True),
        "c": ("2026-08-18", True),
        "d": ("0x1F", True),
        "e": ("1", False),
        "f": ("x\ny\n", False),
        "g": ("1e3", True),
        "h": ("0o7", True),
    }


@pytest.mark.parametrize("word", ["", "~", "null", "Null", "NULL"])
def test_unquoted_null_is_told_from_the_same_word_in_quotes(parser: str, word: str) -> None:
    node = document(f"a: {word}\nb: '{word}'\n".encode(), limit=LIMIT)
    assert isinstance(node, Map)
    assert [value.null for value in node.items.values() if isinstance(value, Text)] == [True, False]


def test_a_value_carries_the_line_of_its_key(parser: str) -> None:
    node = document(b"a:\n  b:\n    - c\n    -\n      d: e\n", limit=LIMIT)
    assert node == Map({"a": Map({"b": List([Text("c", True, 3), Map({"d": Text("e", True, 5)}, 5)], 2)}, 1)}, 1)


@pytest.mark.parametrize("data", [b"--- a\n", b"a\n...\n", b"%YAML 1.1\n---\na\n", b"# x\n\n---\na\n# y\n"])
def test_one_document_may_be_marked_as_one(parser: str, data: bytes) -> None:
    node = document(data, limit=LIMIT)
    assert isinstance(node, Text) and node.text == "a"


def test_dashes_inside_text_are_no_document(parser: str) -> None:
    node = document(b"a: '---'\nb: ---\nc: |\n  ---\n", limit=LIMIT)
    assert isinstance(node, Map) and list(node.items) == ["a", "b", "c"]


@pytest.mark.parametrize("opening", [b"[", b"{a: ", b"- "])
def test_deep_nesting_is_refused_and_not_walked(opening: bytes) -> None:
    assert refusal(opening * (LIMIT // len(opening))).code == "syntax"


BOMB = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (98 + n, 98 + n, b",".join([b"*%c" % (97 + n)] * 9)) for n in range(20)
)


def test_an_alias_bomb_is_refused_before_it_grows(parser: str) -> None:
    with pytest.raises(InputError) as caught:
        list(documents(BOMB, limit=LIMIT))
    assert caught.value.code == "alias"


def test_many_small_alias_bombs_are_one(parser: str) -> None:
    small = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
        b"%c: &%c [%s]\n" % (98 + n, 98 + n, b",".join([b"*%c" % (97 + n)] * 9)) for n in range(4)
    )
    assert len(list(documents(small, limit=LIMIT))) == 1
    with pytest.raises(InputError) as caught:
        list(documents(b"---\n".join([small] * 60), limit=LIMIT))
    assert caught.value.code == "alias"


def test_aliases_and_merge_keys_are_put_in_where_they_are_allowed(parser: str) -> None:
    data = b"b: &b {x: 1, y: 2}\nc:\n  <<: *b\n  y: 3\nd:\n  <<: [*b, {z: 4}]\nk: &k name\n*k : *k\n"
    (node,) = documents(data, limit=LIMIT)
    assert isinstance(node, Map)
    assert _plain(node) == {
        "b": {"x": "1", "y": "2"},
        "c": {"x": "1", "y": "3"},
        "d": {"x": "1", "y": "2", "z": "4"},
        "k": "name",
        "name": "name",
    }


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"a: *x\n", "syntax"),
        (b"a: &x [*x]\n", "syntax"),
        (b"a: {<<: 1}\n", "type"),
        (b"a: {<<: [1]}\n", "type"),
        (b"a: &x 1\n---\nb: *x\n", "syntax"),
    ],
)
def test_aliases_without_sense_are_refused_even_where_aliases_are_allowed(parser: str, data: bytes, code: str) -> None:
    with pytest.raises(InputError) as caught:
        list(documents(data, limit=LIMIT))
    assert caught.value.code == code


def test_documents_come_one_by_one_and_a_fault_stops_at_its_document(parser: str) -> None:
    stream = documents(b"a: 1\n---\n---\nb: 2\nb: 3\n", limit=LIMIT)
    assert next(stream) == Map({"a": Text("1", True, 1)}, 1)
    empty = next(stream)
    assert isinstance(empty, Text) and empty.null
    with pytest.raises(InputError) as caught:
        next(stream)
    assert (caught.value.code, caught.value.subject) == ("duplicate-key", "line 5")


@pytest.mark.parametrize("text", ["🚀", "a🚀\U00010000\U0010ffff", "\\🚀", "\\\\ud83d\\ude80", "ß\t\\", '"'])
def test_json_is_read_as_its_writers_escape_it(parser: str, text: str) -> None:
    (node,) = documents(json.dumps({"a": text}).encode(), limit=LIMIT)
    assert strictyaml.plain(node) == {"a": text}


@pytest.mark.parametrize("half", [r'"\ud83d"', r'"\ude80"', r'"\ude80\ud83d"', r'"\ud83d \ude80"'])
def test_half_a_character_is_refused(half: str) -> None:
    with pytest.raises(InputError):
        list(documents(f"a: {half}".encode(), limit=LIMIT))


def test_nothing_is_no_document() -> None:
    assert list(documents(b"# nothing\n", limit=LIMIT)) == []


def test_a_shape_tells_the_gravest_fault_with_place_and_wish() -> None:
    shape = Shape()
    fields = shape.fields(document(b"a: [1]\nb: 2\nc: 'true'\n", limit=LIMIT), ("a", "c"), "the file")
    shape.text(fields["a"], "a")
    shape.flag(fields["c"], "c")
    with pytest.raises(InputError) as caught:
        shape.done()
    assert (caught.value.code, str(caught.value)) == (
        "unknown-field",
        "line 2: the file has no field 'b'; it has a, c",
    )


@pytest.mark.parametrize("word", ["True", "TRUE", "yes", "on", "1", "'true'", '"false"', "y", "[true]", "{}"])
def test_only_plain_true_and_false_are_flags(word: str) -> None:
    shape = Shape()
    node = document(f"a: {word}\n".encode(), limit=LIMIT)
    shape.flag(shape.fields(node, ("a",), "x")["a"], "a")
    with pytest.raises(InputError, match="plain true or false"):
        shape.done()


def test_null_reads_as_nothing_of_any_type() -> None:
    shape = Shape()
    node = shape.fields(document(b"a: ~\n", limit=LIMIT), ("a",), "x")["a"]
    read = (shape.text(node, "a"), shape.flag(node, "a"), shape.items(node, "a"), shape.fields(node, (), "a"))
    shape.done()
    assert read == ("", False, [], {})


def _plain(node: strictyaml.Node) -> object:
    if isinstance(node, Map):
        return {key: _plain(value) for key, value in node.items.items()}
    return [_plain(item) for item in node.items] if isinstance(node, List) else node.text
