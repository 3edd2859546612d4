"""Scraps: what is kept of each kind of value, what is refused, the size, and names.

Covered: the payload against scrapbook's own reader, in a notebook that holds it as a kernel would save it.
Not covered here: a kernel (tests/notebooks/test_error_cards.py writes and reads one).
"""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta, timezone
from enum import IntEnum, StrEnum

import nbformat
import pytest

from gpurunbook.errors import InputError
from gpurunbook.findings import Status
from gpurunbook.shown import scraps


class Level(IntEnum):
    HIGH = 3


class Odd(StrEnum):
    A = "a"


@pytest.fixture
def shown(monkeypatch):
    bundles = []
    monkeypatch.setattr(scraps, "put", lambda data, metadata: bundles.append((data, metadata)))
    monkeypatch.setattr(scraps, "_written", set())
    return bundles


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (None, None),
        (True, True),
        (math.nan, None),
        ([1.5, math.nan], [1.5, None]),
        (Status.FAIL, "fail"),
        (Level.HIGH, 3),
        ({Odd.A: 1}, {"a": 1}),
        ((1, (2,)), [1, [2]]),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset({"b", "a", None, 1}), [None, 1, "a", "b"]),
        ({"b": 1, "a": {"d": 1, "c": 2}}, {"a": {"c": 2, "d": 1}, "b": 1}),
        (datetime(2026, 11, 30, 12, tzinfo=UTC), "2026-11-30T12:00:00Z"),
        (datetime(2026, 11, 30, 12, 0, 0, 5, tzinfo=timezone(timedelta(hours=2))), "2026-11-30T10:00:00.000005Z"),
        (date(2026, 11, 30), "2026-11-30"),
        ("lone \ud800", "lone \\ud800"),
        (2**70, 2**70),
    ],
)
def test_what_is_kept(given, kept):
    made = scraps.normalise(given)
    assert json.dumps(made) == json.dumps(kept)


def test_a_subclass_of_text_is_kept_as_plain_text():
    class Text(str):
        pass

    made = scraps.normalise({Text("k"): Text("v")})
    assert [type(x) for x in (*made, *made.values())] == [str, str]


def test_numpy_scalars_are_kept_as_numbers():
    numpy = pytest.importorskip("numpy")
    given = [numpy.int64(3), numpy.float64("nan"), numpy.bool_(True), numpy.float32(0.5)]
    assert scraps.normalise(given) == [3, None, True, 0.5]
    assert [type(x) for x in scraps.normalise(given)] == [int, type(None), bool, float]


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (math.inf, "infinite"),
        (-math.inf, "infinite"),
        ({1: "a"}, "key 1 of type int"),
        ({None: "a"}, "NoneType"),
        ({True: "a"}, "bool"),
        (datetime(2026, 11, 30), "without a zone"),
        (b"raw", "bytes"),
        (object(), "type object"),
        ({"a": {"b": [0, math.inf]}}, "a.b[1]"),
        ({"\ud800": 1, "\\ud800": 2}, "two keys"),
    ],
)
def test_what_would_be_lost_without_a_word_is_refused(given, word):
    with pytest.raises(InputError) as refused:
        scraps.normalise(given)
    assert word in str(refused.value)


def test_data_that_holds_itself_is_refused():
    endless: list = []
    endless.append(endless)
    with pytest.raises(InputError, match="nested"):
        scraps.normalise(endless)


def test_a_scrap_too_large_for_a_notebook_is_refused():
    with pytest.raises(InputError, match="bytes, at most"):
        scraps.payload("big", ["x" * 100] * 1000)


def test_a_name_is_written_once_unless_replaced_or_closing(shown):
    scraps.scrap("a", 1)
    with pytest.raises(InputError, match="written already"):
        scraps.scrap("a", 2)
    scraps.scrap("a", 3, replace=True)
    scraps.scrap(scraps.CLOSING, {"verdict": "rejected"})
    scraps.scrap(scraps.CLOSING, {"verdict": "pass"})
    assert len(shown) == 4


def test_a_refused_scrap_shows_nothing_and_leaves_the_name_free(shown):
    with pytest.raises(InputError):
        scraps.scrap("a", math.inf)
    scraps.scrap("a", 1)
    assert len(shown) == 1


def test_scrapbook_reads_it_back(shown, tmp_path):
    data = {"verdict": Status.PASS, "ratio": math.nan, "names": {"b", "a"}, "at": datetime(2026, 1, 1, tzinfo=UTC)}
    scraps.scrap("gpurunbook.step.audit", data)
    ((bundle, metadata),) = shown
    output = nbformat.v4.new_output("display_data", bundle, metadata=metadata)
    cell = nbformat.v4.new_code_cell("", outputs=[output], id="audit")
    path = tmp_path / "run.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)

    import scrapbook

    read = scrapbook.read_notebook(str(path)).scraps
    assert dict(read["gpurunbook.step.audit"].data) == {
        "at": "2026-01-01T00:00:00Z",
        "names": ["a", "b"],
        "ratio": None,
        "verdict": "pass",
    }
