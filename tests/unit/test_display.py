"""What cells show.

Covered: escaping of hostile text in every view and card, cuts and the 64 KB budget, redaction, reading the HTML by
class, the subset of HTML that JupyterLab's sanitiser keeps (against the installed JupyterLab), status words without
colour, plotly JSON and its way back, SVG, cards with folded tracebacks, the head and end of a run.
Not covered here: kernels (tests/notebooks/test_error_cards.py) and a browser.
"""

from __future__ import annotations

import json
import math
import re
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gpurunbook.declared.book import Runbook, Step
from gpurunbook.errors import GateError, NotFound, OutOfOrder, RunbookError, Stopped
from gpurunbook.findings import Finding, Status, Verdict
from gpurunbook.journal import State
from gpurunbook.plan import Figure, Judgement, Table
from gpurunbook.shown import cards, display, mime
from gpurunbook.shown.hostile import escaped, harmless

PLOTLY = "application/vnd.plotly.v1+json"

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' onmouseover='alert(1)",
    "\x1b[31mred\x1b[0m\x1b]8;;http://evil\x07link",
    "\x9b31mC1",
    "pass\r\nfail",
    "user\u202ecod.exe",
    "zero\u200bwidth\u2060\ufeff",
    "blank\u3164\u2800\u00a0name",
    "tag\U000e0041",
    "lone\ud800surrogate",
    "$x$ \\(y\\) {{7*7}} %{customdata}",
    "x" * 5_000_000,
]


class Page(HTMLParser):
    """Elements with their class, attributes and text."""

    VOID = frozenset({"br", "hr", "img"})

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[dict] = []
        self.open: list[dict] = []
        self.feed(html)
        self.close()
        assert not self.open, "an element was left open"

    def handle_starttag(self, tag, attrs):
        element = {"tag": tag, "attrs": dict(attrs), "text": ""}
        self.elements.append(element)
        if tag not in self.VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def all(self, name: str) -> list[str]:
        return [e["text"] for e in self.elements if name in e["attrs"].get("class", "").split()]

    def one(self, name: str) -> str:
        (found,) = self.all(name)
        return found


def table(rows, **more) -> Table:
    return Table("Failures", ("Pod", "status", "n"), rows, status="status", bars=("n",), **more)


def figure(**more) -> Figure:
    series = {"pass": [3, 4], "fail": [1, 0]}
    return Figure(**{"title": "Digests", "labels": ["pinned", "latest"], "series": series, "unit": "digests", **more})


def every_html() -> list[str]:
    bad = "<b>&\x1b\u202e"
    return [
        display.bundle(
            table([(bad, "fail", 3), ("w" * 90, "pass", 1), ("b", "odd", None)], note=bad, total=99), file=bad
        )["text/html"],
        display.bundle(figure(title=bad, labels=[bad, bad]))["text/html"],
        display.bundle(Table("wide", [bad] * 2000, []))["text/html"],
        cards.state_line(bad, "pass", detail=bad, next_action=bad)["text/html"],
        cards.banner(bad, verdict="rejected", values={bad: bad}, rehearsal=True, reasons=[bad], next_action=bad)[
            "text/html"
        ],
        cards.error_card(RunbookError(bad, subject=bad, remedy=bad))["text/html"],
    ]


# -- hostile text ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE, ids=lambda t: repr(t[:12]))
def test_hostile_text_is_harmless_wherever_it_is_shown(text):
    bundles = [
        display.bundle(table([(text, text, 1)])),
        display.bundle(Table(text, (text,), [], note=text), file=text),
        display.bundle(figure(title=text, labels=[text, "b"], series={text: [1, 2]}, unit=text)),
        cards.state_line(text, text, detail=text, next_action=text),
        cards.banner(text, verdict=text, values={text: text}, rehearsal=True, reasons=[text], next_action=text),
        cards.error_card(RunbookError(text, subject=text, remedy=text)),
    ]
    for made in bundles:
        page = Page(made["text/html"])
        assert {e["tag"] for e in page.elements} <= TAGS
        assert not [a for e in page.elements for a in e["attrs"] if a.startswith("on")]
        stored = json.dumps(made, ensure_ascii=False)
        assert stored.encode("utf-8")
        for char in set(json.dumps(made["text/html"]) + made["text/plain"] + made["text/html"]):
            assert char.isprintable() or char == "\n", f"{char!r} reached the reader"
        assert display.size(made) < display.CELL_BUDGET


def test_harmless_leaves_plain_and_foreign_words_as_they_are():
    assert harmless("nvcr.io/nvidia/driver:1@sha256:ab") == "nvcr.io/nvidia/driver:1@sha256:ab"
    assert harmless("größe 漢字 ελ") == "größe 漢字 ελ"


def test_harmless_writes_what_it_took_away_as_escapes():
    assert harmless("a\x1b[1m\n\u202e\u200b\u3164") == "a\\x1b[1m\\n\\u202e\\u200b\\u3164"
    assert harmless("a\nb\rc", lines=True) == "a\nb\\rc"
    assert escaped('"<\x1b>') == "&quot;&lt;\\x1b&gt;"


def test_a_long_text_is_cut_and_its_length_noted():
    assert harmless("y" * 301) == "y" * 300 + "… (301 characters)"
    shown = display.bundle(table([("x" * 5_000_000, "fail", 1)]))
    assert "(5000000 characters)" in shown["text/html"]
    assert "(5000000 characters)" in shown["text/plain"]


def test_a_secret_in_a_view_is_redacted_even_where_it_would_be_cut():
    token = "hf_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3z"
    views = [table([(" " * 280 + token, "fail", 1)], note=token), figure(title=token, labels=[token, "b"])]
    for view in views:
        assert token[:15] not in json.dumps(display.bundle(view))
    made = cards.error_card(RunbookError(token), redact=display.redact)
    assert token[:15] not in json.dumps(made)


# -- tables ------------------------------------------------------------------------------------------------------


def test_a_table_is_read_by_class_from_its_html():
    page = Page(display.bundle(table([("a", "fail", 3), ("b", "pass", 7.5)]))["text/html"])
    assert page.one("rb-title") == "Failures"
    assert page.all("rb-head") == ["Pod", "status", "n"]
    assert page.all("rb-col-pod") == ["a", "b"]
    assert page.all("rb-word") == ["fail", "pass"]
    assert page.all("rb-col-n") == ["3", "7.5"]


def test_a_status_is_told_by_word_and_symbol_besides_its_colour():
    made = display.bundle(table([(w, w, 1) for w in ("pass", "warn", "fail", "unknown", "odd")]))
    marks = Page(made["text/html"]).all("rb-status")
    assert marks == ["✓ pass", "! warn", "✗ fail", "? unknown", "• odd"]
    assert all(mark in made["text/plain"] for mark in marks)


def test_more_than_fifty_rows_are_cut_and_the_file_is_named():
    made = display.bundle(table([(f"pod-{i}", "pass", i) for i in range(812)]), file="inventory.json")
    page = Page(made["text/html"])
    assert len(page.all("rb-row")) == 50
    assert "first 50 of 812, all in inventory.json" in page.all("rb-note")
    assert "first 50 of 812, all in inventory.json" in made["text/plain"]
    assert "pod-50" not in made["text/plain"]


def test_rows_that_were_cut_before_are_counted_by_total():
    assert "first 1 of 9" in display.bundle(table([("a", "pass", 1)], total=9))["text/plain"]


def test_exactly_fifty_rows_are_not_called_cut():
    assert "first" not in display.bundle(table([("a", "pass", 1)] * 50))["text/plain"]


def test_an_empty_table_says_so_without_a_head():
    page = Page(display.bundle(table([]))["text/html"])
    assert page.all("rb-note") == ["no rows"]
    assert page.all("rb-head") == []


def test_bars_are_in_proportion_and_never_of_odd_numbers():
    values = [10, 5, 0, -3, math.nan, math.inf, True, None, "7"]
    page = Page(display.bundle(table([("a", "pass", v) for v in values]))["text/html"])
    widths = [
        re.search(r"width:([0-9.]+)%", e["attrs"]["style"])[1]
        for e in page.elements
        if e["attrs"].get("class") == "rb-bar"
    ]
    assert widths == ["100.0", "50.0", *["0.0"] * 7]
    assert page.all("rb-col-n") == ["10", "5", "0", "-3", "nan", "inf", "yes", "–", "7"]


def test_a_row_of_another_length_than_the_head_is_refused():
    with pytest.raises(ValueError, match="one cell per column"):
        display.bundle(table([("a", "pass")]))
    with pytest.raises(ValueError, match="one cell per column"):
        display.bundle(table([("a", "pass", 1, 2)]))


@pytest.mark.parametrize("filler", ["<", "\x1b", "é", "x"])
def test_the_budget_holds_for_the_worst_table_and_rows_are_then_left_out(filler):
    wide = Table("w", [f"c{i}" for i in range(30)], [[filler * 400] * 30] * 500)
    made = display.bundle(wide, file="all.json")
    assert display.size(made) <= display.VIEW_BUDGET
    assert re.search(r"first [0-9]+ of 500, all in all.json", made["text/plain"])


def test_what_cannot_be_shown_within_the_budget_says_where_it_is():
    made = display.bundle(Table("w", [f"column {i}" for i in range(5000)], []), file="all.json")
    assert made["text/plain"] == "w: too large to show, all in all.json"


def test_several_views_share_the_budget_of_a_cell(monkeypatch):
    shown = []
    monkeypatch.setattr(display, "put", shown.append)
    table = Table("w", ["a", "b"], [["<" * 300, "x" * 300]] * 60)
    display.judged("T", Judgement((), views=(table,) * 7), {"status": "pass"})
    shown = [made for made in shown if "<table" in made["text/html"]]
    assert len(shown) == 7
    assert sum(map(display.size, shown)) <= display.VIEW_BUDGET


# -- figures -----------------------------------------------------------------------------------------------------


def test_a_figure_is_small_plotly_json_with_labelled_axes_and_no_template():
    made = display.bundle(figure())[PLOTLY]
    assert display.size({PLOTLY: made}) < 3000
    assert "template" not in made["layout"]
    assert made["layout"]["barmode"] == "stack"
    assert made["layout"]["xaxis"]["title"]["text"] == "digests"
    assert [(t["name"], t["y"], t["x"], t["text"]) for t in made["data"]] == [
        ("pass", ["pinned", "latest"], [3, 4], ["3", "4"]),
        ("fail", ["pinned", "latest"], [1, 0], ["1", "0"]),
    ]
    assert len({t["marker"]["color"] for t in made["data"]}) == 2
    assert len({t["marker"]["pattern"]["shape"] for t in made["data"]}) == 2


def test_a_figure_is_valid_for_plotly():
    plotly = pytest.importorskip("plotly.graph_objects")
    made = display.bundle(figure(labels=["<b>", "$x$"]))[PLOTLY]
    assert plotly.Figure(data=made["data"], layout=made["layout"]).data[0].x == (3, 4)


def test_a_figures_values_are_read_by_class_from_its_html():
    page = Page(display.bundle(figure())["text/html"])
    assert page.all("rb-label") == ["pinned", "latest"]
    assert page.all("rb-col-pass") == ["3", "4"]
    assert page.all("rb-col-fail") == ["1", "0"]


def test_a_figure_comes_back_from_its_bundle():
    for given in (figure(), figure(labels=["<a href='x'>&amp;", "$tex$"]), figure(unit=""), figure(series={})):
        saved = json.loads(json.dumps(display.bundle(given)))
        back = display.figure_from_bundle(saved)
        assert back == Figure(given.title, list(given.labels) if given.series else [], given.series, given.unit)


def test_a_value_that_is_no_number_comes_back_as_none():
    back = display.figure_from_bundle(json.loads(json.dumps(display.bundle(figure(series={"a": [math.nan, 1]})))))
    assert math.isnan(back.series["a"][0])


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {PLOTLY: None},
        {PLOTLY: {"data": [], "layout": {}}},
        {PLOTLY: {"data": [{"y": ["a"], "x": ["1"], "name": "n"}], "layout": {"meta": {"gpurunbook": "figure"}}}},
        {PLOTLY: {"data": 7, "layout": {"meta": {"gpurunbook": "figure"}}}},
    ],
)
def test_a_bundle_without_a_figure_of_ours_gives_none(stored):
    assert display.figure_from_bundle(stored) is None


def test_a_forged_figure_gives_none():
    stored = display.bundle(figure())
    stored[PLOTLY]["data"][0]["x"] = [1, "<script>"]
    assert display.figure_from_bundle(stored) is None
    stored[PLOTLY]["data"][0]["x"] = [1]
    assert display.figure_from_bundle(stored) is None


def test_equal_labels_stay_apart():
    made = display.bundle(figure(labels=["a", "a"]))[PLOTLY]
    assert made["data"][0]["y"] == ["a", "a (2)"]
    assert display.bundle(figure(labels=["a", "a (2)", "a"], series={"n": [1, 2, 3]}))[PLOTLY]["data"][0]["y"] == [
        "a",
        "a (2)",
        "a (3)",
    ]


def test_a_figure_with_too_many_labels_says_so():
    many = figure(labels=[f"l{i}" for i in range(80)], series={"n": list(range(80))})
    made = display.bundle(many)
    assert len(made[PLOTLY]["data"][0]["y"]) == 50
    assert "first 50 of 80" in made["text/plain"]


def test_a_series_of_another_length_than_the_labels_is_refused():
    with pytest.raises(ValueError, match="1 values for 2 labels"):
        display.bundle(figure(series={"n": [1]}))


def test_svg_is_well_formed_without_scripts_and_holds_every_value():
    root = ET.fromstring(display.svg(figure(labels=["<script>", "b\x1b"], title="'\"&")))
    names = {e.tag.rpartition("}")[2] for e in root.iter()}
    assert names == {"svg", "rect", "text", "title"}
    text = [e.text for e in root.iter() if e.text]
    assert "<script>" in text
    assert "b\\x1b" in text
    assert "3 + 1" in text
    assert "4 + 0" in text


def test_svg_says_one_zero_where_nothing_is():
    zeros = Figure("none", ["a"], {"one": [0], "two": [0]})
    assert [e.text for e in ET.fromstring(display.svg(zeros)).iter() if e.get("class") == "rb-value"] == ["0"]


# -- JupyterLab's sanitiser --------------------------------------------------------------------------------------

TAGS = frozenset(
    ["div", "span", "b", "i", "table", "caption", "thead", "tbody", "tr", "th", "td", "details", "summary", "pre"]
)
STYLES = {
    "background-color": r"#[0-9a-f]{6}",
    "color": r"#[0-9a-f]{6}",
    "padding": r"[0-9]+px( [0-9]+px)?",
    "border-left": r"[0-9]+px solid #[0-9a-f]{6}",
    "max-width": r"[0-9]+px",
    "word-wrap": "break-word",
    "width": r"[0-9]+(\.[0-9])?(%|px)",
    "height": r"[0-9]+px",
    "font-size": r"[0-9]+px",
    "font-weight": "bold",
    "text-align": "left|right",
    "caption-side": "top",
    "white-space": "nowrap|pre-wrap",
    "display": "flex",
}


def test_only_what_the_sanitiser_keeps_is_used():
    for html in every_html():
        for element in Page(html).elements:
            assert element["tag"] in TAGS
            assert set(element["attrs"]) <= {"class", "style", "title"}
            for declaration in filter(None, element["attrs"].get("style", "").split(";")):
                name, _, value = declaration.partition(":")
                assert re.fullmatch(STYLES[name], value), declaration


def test_the_installed_jupyterlab_keeps_these_tags_attributes_and_styles():
    files = list((Path(sys.prefix) / "share/jupyter/lab/static").glob("jlab_core.*.js"))
    (source,) = [s for s in (f.read_text(errors="replace") for f in files) if "allowedStyles:" in s]
    tags = set(re.findall(r'"([a-z0-9]+)"', re.search(r"allowedTags:\[([^\]]*)\]", source)[1]))
    everywhere = set(re.findall(r'"([a-z-]+)"', re.search(r'allowedAttributes:\{"\*":\[([^\]]*)\]', source)[1]))
    kept = source[source.index("allowedStyles:") :][:12000]
    assert tags >= TAGS
    assert everywhere >= {"class", "style", "title"}
    for name in STYLES:
        assert re.search(rf'[{{,]"?{name}"?:\[', kept), f"JupyterLab drops the style {name}"


# -- cards -------------------------------------------------------------------------------------------------------


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    try:
        raise error from cause
    except Exception as caught:
        return caught


def test_a_card_says_what_which_object_what_to_do_and_how_to_go_on():
    error = raised(NotFound("no such namespace", subject="namespace gpu-operator", remedy="Create it."))
    made = display.error_card(error)
    page = Page(made["text/html"])
    assert page.one("rb-value-what") == "no such namespace"
    assert page.one("rb-value-object") == "namespace gpu-operator"
    assert page.one("rb-value-to-do") == "Create it."
    assert page.one("rb-value-go-on").startswith("Run this cell again")
    assert page.one("rb-value-code") == "not-found"
    assert "Create it." in made["text/plain"]


def test_the_traceback_is_folded_names_causes_and_no_folder_of_this_machine():
    error = raised(OutOfOrder("a step is missing"), raised(KeyError("deep")))
    made = display.error_card(error)
    folded = Page(made["text/html"]).one("rb-traceback")
    assert "unit/test_display.py" in folded
    assert "caused by\n" in folded
    assert "KeyError: 'deep'" in folded
    assert str(Path(__file__).parent.parent) not in made["text/html"]
    assert "test_display.py" not in made["text/plain"]


def test_a_card_of_a_foreign_error_names_its_type():
    assert "ZeroDivisionError: by zero" in display.error_card(ZeroDivisionError("by zero"))["text/plain"]


def test_a_card_stays_small_whatever_the_error_holds():
    error = raised(Stopped("<" * 100_000, subject="\x1b" * 100_000, remedy='"' * 100_000))
    assert display.size(display.error_card(error)) <= 8 * 1024


def test_causes_that_name_each_other_end():
    first, second = GateError("a"), GateError("b")
    first.__cause__, second.__cause__ = second, first
    assert cards.trace_text(first) == "GateError: a\ncaused by\nGateError: b"


# -- a run -------------------------------------------------------------------------------------------------------

BOOK = Runbook("audit", "Audit", type("P", (), {}), (Step("one", "First step"), Step("two", "Second step")))


@pytest.fixture
def shown(monkeypatch):
    bundles = []
    monkeypatch.setattr(display, "put", bundles.append)
    return bundles


def begun(**steps) -> State:
    told = {"cluster": {"name": "prod", "uid": "u-1", "version": "v1.35"}, "operator": {"name": "ada"}}
    told |= {"rehearsal": False, "rehearsal_reasons": []}
    return State("r1", "audit", told, {k: {"step": k, "passed": v} for k, v in steps.items()})


def test_the_head_of_a_run_names_run_cluster_operator_and_the_next_cell(shown):
    display.start(begun(), BOOK, resumed=False)
    page = Page(shown[0]["text/html"])
    assert page.one("rb-value-run") == "r1"
    assert page.one("rb-value-cluster-uid") == "u-1"
    assert page.one("rb-value-operator") == "ada"
    assert page.one("rb-value-next") == "run the cell one: First step"
    assert page.all("rb-rehearsal") == []


def test_a_resumed_run_says_what_has_passed(shown):
    display.start(begun(one=True), BOOK, resumed=True)
    assert "passed already: one" in shown[0]["text/plain"]
    assert "run the cell two" in shown[0]["text/plain"]


@pytest.mark.parametrize("told", [{"rehearsal": True, "rehearsal_reasons": ["embedded cluster"]}, {}])
def test_a_rehearsal_or_an_unidentified_cluster_is_red_in_head_and_end(shown, told):
    state = State("r1", "audit", told, {}, closing={"event": "close", "data": {"verdict": "pass"}})
    display.start(state, BOOK, resumed=False)
    display.closed(state)
    for made in shown:
        assert "✗ rehearsal" in Page(made["text/html"]).one("rb-rehearsal")
        assert made["text/plain"].startswith("✗ rehearsal: not evidence for a live cluster: ")


def end(verdict: str) -> State:
    told = {"verdict": verdict, "code": "latest", "step": "one", "message": "a tag", "next": "pin it"}
    state = begun(one=True)
    state.closing = {"event": "close", "data": {**told, "left_behind": ["Node a"]}}
    return state


@pytest.mark.parametrize(("verdict", "said"), [("pass", "✓ pass"), ("planned", "! planned")])
def test_the_end_of_a_run_shows_the_verdict_why_and_what_is_next(shown, verdict, said):
    display.closed(end(verdict))
    page = Page(shown[0]["text/html"])
    assert page.one("rb-value-verdict") == said
    assert page.one("rb-value-code") == "latest"
    assert page.one("rb-value-message") == "a tag"
    assert page.one("rb-value-next") == "pin it"


@pytest.mark.parametrize("verdict", ["rejected", "blocked", "failed", "unknown"])
def test_the_end_of_a_run_that_was_stopped_leaves_why_and_what_is_next_to_its_card(shown, verdict):
    display.closed(end(verdict))
    page = Page(shown[0]["text/html"])
    assert page.one("rb-value-verdict").endswith(verdict)
    assert page.one("rb-value-left-behind") == "Node a"
    assert page.all("rb-value-message") == page.all("rb-value-next") == []


def test_every_verdict_and_status_has_a_look_of_its_own_kind():
    symbols = {word: cards.plain(word)[0] for word in [*Verdict, *Status]}
    assert "•" not in symbols.values()
    assert {w for w, s in symbols.items() if s == "✓"} == {"pass"}


def test_a_judgement_shows_status_bad_findings_and_views(shown):
    findings = (
        Finding("audit", "ns/pod/a", Status.PASS, "ok", "fine"),
        Finding("audit", "ns/pod/<b>", Status.FAIL, "latest", "a tag", "pin it"),
    )
    record = {"status": "fail", "files": {"after/inventory.json": "sha256:0", "inputs/pods.json": "sha256:1"}}
    many = Table("All", ("pod",), [("p",)] * 60)
    display.judged("Judge images", Judgement(findings, views=(many,)), record)
    line, bad, view = shown
    assert "✗ fail · Judge images · findings: 2, not good: 1" in line["text/plain"]
    assert Page(bad["text/html"]).all("rb-col-remedy") == ["pin it"]
    assert Page(bad["text/html"]).all("rb-col-subject") == ["ns/pod/<b>"]
    assert "first 50 of 60, all in after/inventory.json" in view["text/plain"]


def test_a_judgement_shows_its_plain_facts_by_name_and_no_nested_ones(shown):
    facts = {"digests": 10, "evidence_ready": True, "inventory": "<b>", "runtime": {"manifest": 51}}
    display.judged("Judge images", Judgement((), ()), {"status": "pass", "facts": facts})
    _, line = shown
    page = Page(line["text/html"])
    assert (page.one("rb-fact-digests"), page.one("rb-fact-evidence-ready")) == ("10", "yes")
    assert page.one("rb-fact-inventory") == "<b>"
    assert line["text/plain"] == "digests: 10 · evidence ready: yes · inventory: <b>"


def test_the_facts_of_a_step_stay_small_whatever_they_hold():
    line = cards.facts_line({f"{n}{'<' * 5000}": "'" * 5000 for n in range(1000)})
    assert mime.size(line) < 8 * 1024


def test_the_line_after_a_gate_says_how_far_and_what_next(shown):
    display.state_line(begun(one=True), BOOK)
    assert shown[0]["text/plain"] == "✓ pass · r1 · 1 of 2 steps passed · next: run the cell two: Second step"
    display.state_line(begun(one=True, two=True), BOOK)
    assert shown[1]["text/plain"].endswith("next: run the last cell, run.close()")


def test_outside_a_kernel_the_text_is_printed(capsys):
    display.put({"text/html": "<b>no</b>", "text/plain": "yes"})
    display.put({"application/json": {}})
    assert capsys.readouterr().out == "yes\n"


def test_a_bar_of_percent_is_of_a_hundred_and_backticks_in_our_own_words_are_code() -> None:
    table = Table(
        "t", ("percent", "name", "remedy"), [(25.0, "`a`", "Run `gpurunbook doctor <x>`.")], bars=("percent",)
    )
    html = display.bundle(table)["text/html"]
    assert "width:25.0%" in html
    assert "Run <code>gpurunbook doctor &lt;x&gt;</code>." in html
    assert ">`a`<" in html
