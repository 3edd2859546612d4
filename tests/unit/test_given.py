"""Parameters as people give them.

Covered: every scalar that YAML 1.1 (papermill) and YAML 1.2 read differently, both readings in the message; equal
readings pass; what is no flat, plain mapping; words by declared type, unknown names, order of precedence.
Not covered: which types a runbook declares (test_parameters).
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from papermill.iorw import NoDatesSafeLoader

from gpurunbook.declared.runbooks import declared
from gpurunbook.errors import InputError, ParameterError
from gpurunbook.folder import parameters
from gpurunbook.runbook import given
from gpurunbook.sources.embedded import serve

BOOK = declared("provenance_audit")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("12", 12),
        ("-7", -7),
        ("0", 0),
        ("1.10", 1.1),
        (".5", 0.5),
        ("~", None),
        ("", None),
        ("plain words", "plain words"),
        ("embedded:clusters/small", "embedded:clusters/small"),
        ("2026-01-31", "2026-01-31"),
        ("'yes'", "yes"),
        ('"012"', "012"),
        ("[a, 'off', 3]", ["a", "off", 3]),
        ("!!str 012", "012"),
    ],
)
def test_a_value_that_all_read_alike_is_taken_as_papermill_takes_it(text: str, value: object) -> None:
    found = given.parse(f"name: {text}\n".encode(), "f.yaml")
    assert found == {"name": value}
    assert type(found["name"]) is type(value)
    assert yaml.load(f"name: {text}\n", Loader=NoDatesSafeLoader) == found


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        ("012", "means 10 to papermill", "and 12 to others"),
        ("08", "means the text '08' to papermill", "and 8 to others"),
        ("yes", "means true to papermill", "and the text 'yes' to others"),
        ("No", "means false to papermill", "and the text 'No' to others"),
        ("on", "means true to papermill", "and the text 'on' to others"),
        ("OFF", "means false to papermill", "and the text 'OFF' to others"),
        ("0x1f", "means 31 to papermill", "and the text '0x1f' to others"),
        ("0b11", "means 3 to papermill", "and the text '0b11' to others"),
        ("1_000", "means 1000 to papermill", "and the text '1_000' to others"),
        ("1:30", "means 90 to papermill", "and the text '1:30' to others"),
        ("1e3", "means the text '1e3' to papermill", "and 1000.0 to others"),
    ],
)
@pytest.mark.parametrize("place", ["name: {}", "name: [a, {}]", "name: {{inner: {}}}", "name:\n  - {}"])
def test_a_value_that_is_read_in_two_ways_is_refused_with_both(text: str, old: str, new: str, place: str) -> None:
    with pytest.raises(ParameterError) as wrong:
        given.parse(place.format(text).encode(), "f.yaml")
    assert old in str(wrong.value)
    assert new in str(wrong.value)
    assert "parameter 'name' (f.yaml line " in str(wrong.value)
    assert f"'{text}' in quotes" in wrong.value.remedy


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"- a\n", "wanted lines"),
        (b"12\n", "wanted lines"),
        (b"1: a\n", "plain text"),
        (b"yes: a\nyes: b\n", "twice"),
        (b"a: 1\nb:\n  c: 1\n  c: 2\n", "twice"),
        (b"a: &x [1]\nb: *x\n", "aliases"),
        (b"a: {\n", "no YAML"),
        (b"a: 1\n---\nb: 2\n", "no YAML"),
        (b"a: \xff\n", "no YAML"),
        (b"a: \x00\n", "no YAML"),
        (b"a: [" * 3000, "no YAML"),
    ],
)
def test_what_is_no_plain_mapping_is_refused(raw: bytes, says: str) -> None:
    with pytest.raises(InputError, match=says):
        given.parse(raw, "f.yaml")


@pytest.mark.parametrize(
    "tag",
    [
        "!!int '3'",
        "!!python/name:os.system x",
        "!mine x",
        "!!bool 'true'",
        "!!set {a}",
        "!!omap [a: 1]",
        "!!binary aGk=",
    ],
)
def test_an_explicit_tag_is_refused(tag: str) -> None:
    with pytest.raises((ParameterError, InputError), match=r"not taken here|no YAML"):
        given.parse(f"a: {tag}".encode(), "f.yaml")


def test_an_empty_file_gives_nothing() -> None:
    assert given.parse(b"", "f.yaml") == {}
    assert given.parse(b"# only words\n", "f.yaml") == {}


@pytest.mark.parametrize("raw", [b"", b" \n\n"])
def test_a_file_that_was_cut_off_does_not_mean_the_defaults(tmp_path, raw: bytes) -> None:
    path = tmp_path / "cut.yaml"
    path.write_bytes(raw)
    with pytest.raises(InputError, match="is empty: no parameter") as refused:
        given.from_file(path)
    assert refused.value.subject == str(path)
    path.write_bytes(b"# the defaults\n")
    assert given.from_file(path) == {}


def test_a_file_that_cannot_be_read_is_named(tmp_path) -> None:
    with pytest.raises(InputError, match=r"none\.yaml.*cannot be read"):
        given.from_file(tmp_path / "none.yaml")
    (tmp_path / "huge.yaml").write_bytes(b"a: 1\n" + b"#" * (1 << 20))
    with pytest.raises(InputError, match="larger"):
        given.from_file(tmp_path / "huge.yaml")


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("cluster=1.10", "1.10"),
        ("cluster=012", "012"),
        ("cluster=yes", "yes"),
        ("cluster=", ""),
        ("cluster=a=b", "a=b"),
        ("tolerate_never_started=true", True),
        ("tolerate_never_started=False", False),
        ("namespaces=a", ["a"]),
        ("namespaces=a, b", ["a", "b"]),
        ('namespaces=["a","012"]', ["a", "012"]),
        ("namespaces=", []),
    ],
)
def test_a_word_is_read_as_the_declared_type(word: str, value: object) -> None:
    assert given.from_words(BOOK, [word]) == {word.partition("=")[0]: value}


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("tolerate_never_started=yes", "Was true meant"),
        ("tolerate_never_started=0", "Was false meant"),
        ("tolerate_never_started=", "true or false"),
        ("namespaces=[a", "no JSON list"),
        ("clusters=x", "Did you mean 'cluster'"),
        ("zzz=x", "It has: cluster"),
        ("cluster", "wanted NAME=VALUE"),
    ],
)
def test_a_wrong_word_is_refused_with_what_was_meant(word: str, says: str) -> None:
    with pytest.raises(ParameterError, match=says):
        given.from_words(BOOK, [word])


def test_a_word_given_twice_is_refused() -> None:
    with pytest.raises(ParameterError, match="set twice"):
        given.from_words(BOOK, ["cluster=a", "cluster=b"])


def test_words_win_over_files_and_later_files_over_earlier(tmp_path) -> None:
    (tmp_path / "1.yaml").write_text("reason: one\nchange_id: a\n")
    (tmp_path / "2.yaml").write_text("reason: two\n")
    found = given.gather(BOOK, [tmp_path / "1.yaml", tmp_path / "2.yaml"], ["change_id=b"], "embedded:x")
    assert found == {"reason": "two", "change_id": "b", "cluster": "embedded:x"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("change_id: 1.10\n", "1.10 becomes 1.1"),
        ("tolerate_never_started: 'false'\n", "Was False meant"),
        ("namespaces: gpu-operator\n", "A list of one was meant"),
        ("clutser: x\n", "Did you mean 'cluster'"),
        ("namespaces: [1]\n", "list of text"),
        ("cluster: ~\n", "wanted text"),
    ],
)
def test_a_file_is_judged_by_the_declaration_before_anything_is_made(tmp_path, text: str, says: str) -> None:
    (tmp_path / "f.yaml").write_text(text)
    with pytest.raises(ParameterError, match=says):
        given.gather(BOOK, [tmp_path / "f.yaml"])


@pytest.mark.parametrize("char", ["\0", "\n", "\x1b", "\x7f", "\x85", "\x9b", "\u2028", "\u202e", "\u2067", "\ud800"])
@pytest.mark.parametrize("beside", ["", "a", "é"])
def test_a_text_that_a_terminal_or_a_file_would_not_give_back_is_refused(char: str, beside: str) -> None:
    for values in ({"reason": f"{beside}{char}"}, {"namespaces": ["a", f"{beside}{char}"]}):
        with pytest.raises(ParameterError, match="control character"):
            parameters.load(BOOK, values)


@pytest.mark.parametrize("text", ["Wartung für GPU-Knoten", "정기 점검", "نگه‌داری", "👩‍🔧", "a" * 10_000])
def test_any_other_text_is_taken(text: str) -> None:
    assert parameters.load(BOOK, {"reason": text}).reason == text


def test_a_number_that_other_readers_would_round_is_refused() -> None:
    cordon = declared("node_cordon")
    assert parameters.load(cordon, {"wait_seconds": (1 << 53) - 1})
    for number in (1 << 53, -(1 << 53), 10**30):
        with pytest.raises(ParameterError, match="exact"):
            parameters.load(cordon, {"wait_seconds": number})


@pytest.mark.parametrize("now", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+00:01", "0000-06-01T00:00:00Z"])
def test_a_time_outside_of_all_years_is_refused(now: str) -> None:
    with pytest.raises(ParameterError, match="no year from 1 to 9999"):
        parameters.load(declared("promotion"), {"now": now})


@pytest.mark.parametrize("path", ["runbooks/promotion.ipynb", "promotion.ipynb", "./runbooks/promotion.ipynb"])
def test_a_notebook_given_as_a_runbook_gets_the_right_word(path: str) -> None:
    with pytest.raises(ParameterError, match="Did you mean 'promotion'"):
        declared(path)


def test_a_list_without_quotes_is_shown_with_them() -> None:
    with pytest.raises(ParameterError, match=r'Write \["gpu-operator", "kube-dc"\], or gpu-operator,kube-dc'):
        given.from_words(declared("promotion"), ["namespaces=[gpu-operator, kube-dc]"])


def test_a_fixture_cluster_named_by_its_path_gets_the_right_word(tmp_path: Path) -> None:
    (tmp_path / "parameters/clusters/small").mkdir(parents=True)
    (tmp_path / "parameters/clusters/small/cluster.yaml").touch()
    with pytest.raises(InputError, match="`embedded:clusters/small` is one"):
        serve("parameters/clusters/small", home=tmp_path, clusters=None)
