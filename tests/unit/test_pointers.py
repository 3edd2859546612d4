"""JSON pointers and placeholders. Covered: all of both, against RFC 6901's own examples too."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurunbook.pointers import at, differences, escape, fill

# RFC 6901 §5
DOCUMENT: dict[str, Any] = {
    "foo": ["bar", "baz"],
    "": 0,
    "a/b": 1,
    "c%d": 2,
    "e^f": 3,
    "g|h": 4,
    "i\\j": 5,
    'k"l': 6,
    " ": 7,
    "m~n": 8,
}


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("", DOCUMENT),
        ("/foo", ["bar", "baz"]),
        ("/foo/0", "bar"),
        ("/", 0),
        ("/a~1b", 1),
        ("/c%d", 2),
        ("/e^f", 3),
        ("/g|h", 4),
        ("/i\\j", 5),
        ('/k"l', 6),
        ("/ ", 7),
        ("/m~0n", 8),
    ],
)
def test_the_examples_of_the_rfc(pointer: str, value: Any) -> None:
    assert at(DOCUMENT, pointer) == value


@pytest.mark.parametrize(
    "pointer", ["/none", "/foo/2", "/foo/-", "/foo/-1", "/foo/01", "/foo/٠", "/foo/x", "/foo/0/x", "/a~1b/x", "/foo/"]
)
def test_where_nothing_stands_is_none(pointer: str) -> None:
    assert at(DOCUMENT, pointer) is None


@given(st.text())
def test_any_key_can_be_pointed_at(key: str) -> None:
    assert at({key: 1, "other": 2}, "/" + escape(key)) == (1 if key != "other" else 2)
    assert at({"outer": {key: "x"}}, "/outer/" + escape(key)) == "x"


def test_a_label_key_is_one_token() -> None:
    assert escape("gpurunbook.io/cordon") == "gpurunbook.io~1cordon"
    assert escape("~1") == "~01"


def test_differences_name_each_pointer_with_both_values_in_order() -> None:
    wanted = {"/foo/1": "baz", "/foo/0": "BAR", "/a~1b": None, "/none": None, "/ ": 7}
    assert differences(DOCUMENT, wanted) == ["/a~1b: wanted None, is 1", "/foo/0: wanted 'BAR', is 'bar'"]


def test_one_is_not_true_and_zero_is_not_false() -> None:
    assert differences({"a": 1, "b": 0, "c": True}, {"/a": True, "/b": False, "/c": 1}) == [
        "/a: wanted True, is 1",
        "/b: wanted False, is 0",
        "/c: wanted 1, is True",
    ]
    assert differences({"a": [1]}, {"/a": [True]}) == ["/a: wanted [True], is [1]"]
    assert differences({"a": {"b": False}}, {"/a": {"b": 0}}) != []


def test_words_are_filled_everywhere_and_the_value_is_left_alone() -> None:
    value = {"run": "${run}", "list": ["${run}-${step}", 7, None, ("${step}",)], "n": 1, "${run}": "key"}
    before = repr(value)
    assert fill(value, {"run": "r1", "step": "mark"}) == {
        "run": "r1",
        "list": ["r1-mark", 7, None, ["mark"]],
        "n": 1,
        "${run}": "key",
    }
    assert repr(value) == before


def test_what_was_filled_in_is_not_filled_again() -> None:
    assert fill("${reason}", {"reason": "because of ${plan}", "plan": "x"}) == "because of ${plan}"


@pytest.mark.parametrize("text", ["$run", "${RUN}", "${run", "{run}", "$ {run}", "${a-b}", "${}"])
def test_what_is_no_placeholder_stays(text: str) -> None:
    assert fill(text, {"run": "r1"}) == text


def test_an_unknown_word_is_refused() -> None:
    with pytest.raises(KeyError, match="rum"):
        fill(["${rum}"], {"run": "r1"})
