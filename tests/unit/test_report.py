"""The executed notebook as one HTML page.

Covered: what the page says at the top; that it needs neither scripts nor the network; hostile outputs of every kind;
the allow-list for HTML; that hostile text takes no long time; cells and figures.
Not covered: how a browser draws it (tests/browser).
"""

from __future__ import annotations

import base64
import json
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import evidence_run as made
import pytest
from evidence_run import RUNBOOK, Run
from hypothesis import given, settings
from hypothesis import strategies as st

from gpurunbook.evidence.seal import seal
from gpurunbook.findings import Finding, Status
from gpurunbook.shown.figures import PLOTLY
from gpurunbook.shown.sanitise import clean

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 20).decode()


class Page(HTMLParser):
    """Tags with attributes, the text by id, and whether every tag is ended in order."""

    VOID = frozenset({"meta", "br", "hr", "img"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self.open: list[tuple[str, str | None]] = []
        self.nested = True
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append((tag, dict(attrs).get("id")))

    def handle_endtag(self, tag: str) -> None:
        self.nested &= bool(self.open) and self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        for _, id in self.open:
            if id:
                self.texts[id] = " ".join(f"{self.texts.get(id, '')} {data}".split())


def page_of(run: Run) -> str:
    run.save()
    seal(run.folder)
    return (run.folder / f"{RUNBOOK}.html").read_text()


def with_output(tmp_path: Path, output: dict[str, Any]) -> str:
    run = made.passed(tmp_path)
    run.cell("start")["outputs"] = [output]
    return page_of(run)


def requests(text: str) -> list[str]:
    """Everything that a browser would fetch or run by itself."""
    found = []
    for tag, attrs in Page(text).tags:
        found += [f"<{tag}>"] if tag in {"script", "link", "iframe", "object", "embed", "base", "form"} else []
        for name, value in attrs.items():
            loads = name in {"src", "srcset", "data", "poster", "background", "action", "xlink:href"}
            if name.startswith("on") or (loads and not str(value).startswith("data:image/")):
                found.append(f"{tag} {name}={value}")
            if name == "href" and tag != "a":
                found.append(f"{tag} href={value}")
            if "url(" in str(value).lower() or "javascript:" in str(value).lower():
                found.append(f"{tag} {name}={value}")
    return found + re.findall(r"url\(|@import", text)


def test_the_top_says_verdict_run_cluster_operator_time_and_evidence(tmp_path: Path) -> None:
    texts = Page(page_of(made.passed(tmp_path))).texts
    assert texts["verdict"] == "✓ pass"
    assert texts["run"] == made.RUN
    assert texts["cluster"] == "prod-a, uid 0b6ad2e2-43a5-4c1f-9f36-0d7e1f2a3b4c, server v1.35.4"
    assert texts["operator"] == "alice@example.com"
    assert texts["time"] == "2026-01-31 12:00:01 UTC to 2026-01-31 12:00:07 UTC"
    assert (texts["evidence"], texts["change"], texts["left-behind"]) == ("sealed", "CHG-4711", "nothing")
    assert {"rehearsal", "not-run", "anomalies", "lowered"}.isdisjoint(texts)


def test_a_rehearsal_is_red_and_says_why(tmp_path: Path) -> None:
    run = made.begun(tmp_path, rehearsal=True)
    run.journal.append(
        "close", {"verdict": "pass", "code": "c", "step": "close", "message": "m", "next": "", "left_behind": []}
    )
    run.ran("close", 3)
    told = {"run": made.RUN, "runbook": RUNBOOK, "verdict": "pass", "code": "c", "step": "close", "rehearsal": True}
    run.cell("close")["outputs"] = [made.scrap(made.CLOSING, {**told, "head": run.journal.head})]
    text = page_of(run)
    assert "not evidence for a live cluster (the cluster says that it is a fixture)" in Page(text).texts["rehearsal"]
    assert ".rehearsal { background: #b00020" in text


def test_cells_that_did_not_run_and_differences_are_told_before_the_notebook(tmp_path: Path) -> None:
    run = made.died(tmp_path)
    run.cell("about-audit")["source"] = ["Other words"]
    text = page_of(run)
    texts = Page(text).texts
    assert texts["not-run"] == "2 cells did not run: ready , close"
    assert "skipped" not in texts["anomalies"]
    assert "edited about-audit" in texts["anomalies"]
    assert text.index('id="not-run"') < text.index('id="anomalies"') < text.index("The notebook</h2>")
    assert "did not run" in texts[re.findall(r'href="#(cell-[0-9]+)">ready<', text)[0]]


def test_a_lowered_verdict_says_what_the_journal_says_and_why(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    run.cell("audit")["source"] = ["pass"]
    texts = Page(page_of(run)).texts
    assert texts["verdict"] == "? unknown"
    assert texts["lowered"].startswith("The journal says pass. It counts as unknown")
    assert "edited audit" in texts["lowered"]


def test_findings_that_are_not_good_are_told_and_cut_with_a_note(tmp_path: Path) -> None:
    run = made.begun(tmp_path)
    bad = tuple(Finding("c", f"ns/pod/p{n}", Status.FAIL, "latest", "m <script>") for n in range(60))
    run.judge("audit", 3, bad, "fail")
    run.close("audit", 3, "rejected", "latest")
    text = page_of(run)
    assert "ns/pod/p49" in Page(text).texts["findings"]
    assert "first 50 of 60, all in findings.json" in text
    assert requests(text) == []


def test_tables_figures_and_values_are_there_without_scripts(tmp_path: Path) -> None:
    text = page_of(made.passed(tmp_path))
    page = Page(text)
    classes = {word for _, attrs in page.tags for word in str(attrs.get("class", "")).split()}
    assert {"rb-table", "rb-row", "rb-col-pods", "rb-bar", "rb-svg", "rb-figure", "rb-value-verdict"} <= classes
    assert [tag for tag, _ in page.tags].count("svg") == 2
    assert "17 records in 0.25 s" in text
    assert page.nested
    assert requests(text) == []
    assert "default-src 'none'" in text


# -- hostile outputs ----------------------------------------------------------------------------------------------

ATTACK = "<script>alert(1)</script><img src=x onerror=alert(1)>"

OUTPUTS = {
    "html": made.shows({"text/html": ATTACK}),
    "html that ends our boxes": made.shows({"text/html": "</div></section></body>" + ATTACK}),
    "svg": made.shows({"image/svg+xml": f"<svg onload=alert(1)>{ATTACK}</svg>"}),
    "javascript": made.shows({"application/javascript": "alert(1)"}),
    "markdown": made.shows({"text/markdown": f"{ATTACK} [x](javascript:alert(1)) ![y](https://example.com/z.png)"}),
    "text": made.shows({"text/plain": ATTACK}),
    "stream": {"output_type": "stream", "name": "stdout", "text": ATTACK},
    "error": {"output_type": "error", "ename": ATTACK, "evalue": ATTACK, "traceback": [ATTACK]},
    "error of no shape": {"output_type": "error", "ename": None, "evalue": [1], "traceback": "x"},
    "no image": made.shows({"image/png": f'"{ATTACK}'}),
    "an image that is HTML": made.shows({"image/png": base64.b64encode(ATTACK.encode()).decode()}),
    "plotly of another": made.shows({PLOTLY: {"data": [{"type": "bar", "y": [ATTACK]}]}, "text/plain": "x"}),
    "a stranger's type": made.shows({ATTACK: ATTACK}),
    "no data": {"output_type": "display_data", "data": None},
    "an unknown output": {"output_type": ATTACK},
}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_a_hostile_output_is_harmless(tmp_path: Path, kind: str) -> None:
    text = with_output(tmp_path, OUTPUTS[kind])
    page = Page(text)
    assert requests(text) == []
    assert page.nested and not page.open
    assert page.texts["verdict"] == "✓ pass"


def test_a_figure_of_ours_with_hostile_labels_is_harmless(tmp_path: Path) -> None:
    figure = made.display.bundle(made.Figure(ATTACK, [ATTACK, "a"], {ATTACK: [1, 2]}, ATTACK))
    text = with_output(tmp_path, made.shows(figure))
    assert requests(text) == []
    assert "&lt;script&gt;" in text


def test_hostile_names_sources_and_cell_ids_are_harmless(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    run.notebook["cells"].append({**made.code("x", ATTACK), "execution_count": 9, "id": '"><script>\u202e'})
    run.cell("header")["source"] = [
        f"# {ATTACK}\n\n[x](javascript:alert(1)) <b>{ATTACK}</b> ![i](https://example.com/i)"
    ]
    text = page_of(run)
    assert requests(text) == []
    assert "\u202e" not in text and "\\u202e" in text


def test_an_image_is_shown_and_nothing_else_of_its_type(tmp_path: Path) -> None:
    text = with_output(tmp_path, made.shows({"image/png": PIXEL + "\n", "text/plain": "x"}))
    assert f'src="data:image/png;base64,{PIXEL}"' in text


def test_colours_of_a_terminal_go_and_other_escapes_show(tmp_path: Path) -> None:
    shown = {"output_type": "stream", "name": "stdout", "text": "\x1b[31mred\x1b[0m\tok\r\n\x1b]0;title\x07\u202eevil"}
    text = with_output(tmp_path, shown)
    assert "<pre>red    ok\n\\x1b]0;title\\x07\\u202eevil</pre>" in text


def test_a_long_output_is_cut_with_its_length(tmp_path: Path) -> None:
    text = with_output(tmp_path, {"output_type": "stream", "name": "stdout", "text": "x" * 5_000_000})
    assert "(5000000 characters)" in text
    assert len(text) < 400_000


# -- the allow-list ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dirty", "kept"),
    [
        ("<b>x</b>", "<b>x</b>"),
        (
            '<td class="rb-col-a mine" style="text-align:left">1</td>',
            '<td class="rb-col-a" style="text-align:left">1</td>',
        ),
        ('<span class="verdict banner">pass</span>', "<span>pass</span>"),
        ('<div id="verdict">x</div>', "<div>x</div>"),
        ("<div>", "<div></div>"),
        ("</div></div>x", "x"),
        ("<b><i>x</b>y</i>", "<b><i>x</i></b>y"),
        ("<DIV><BR/></DIV>", "<div><br></div>"),
        ("<div/>x", "<div></div>x"),
        ("a < b & c > d", "a &lt; b &amp; c &gt; d"),
        ("&lt;script&gt;", "&lt;script&gt;"),
        ("<!-- <b> --><i>x</i>", "<i>x</i>"),
        ("<!-- x", ""),
        ("<![CDATA[x]]>", "&lt;![CDATA[x]]&gt;"),
        ("<style>b{}</style>x", "x"),
        ("<svg><svg></svg><b>y</b></svg>x", "x"),
        ("<script>'<b>'", ""),
        ("<iframe src=x></iframe>x", "x"),
        ("<math><mi>x</mi></math>y", "y"),
        ("<table><tr><td colspan=2 rowspan='x'>1</td></tr></table>", '<table><tr><td colspan="2">1</td></tr></table>'),
        ("<a href='https://example.com/?a=1&amp;b'>x</a>", '<a href="https://example.com/?a=1&amp;b">x</a>'),
        ("<a href='#cell-3'>x</a>", '<a href="#cell-3">x</a>'),
        ("<a href='java&#115;cript:alert(1)'>x</a>", "<a>x</a>"),
        ("<a href=' javascript:alert(1)'>x</a>", "<a>x</a>"),
        ("<a href='//example.com'>x</a>", "<a>x</a>"),
        ("<a href='data:text/html,x'>x</a>", "<a>x</a>"),
        ("<b onclick=alert(1) title='a\"b'>x</b>", '<b title="a&quot;b">x</b>'),
        ("<b style='position:fixed;color:red'>x</b>", '<b style="color:red">x</b>'),
        ("<b style='background:url(//x)'>x</b>", "<b>x</b>"),
        ("<b style='margin:-99px;transform:none;width:expression(1)'>x</b>", "<b>x</b>"),
        ("<b style='width:1px\\'>x</b>", "<b>x</b>"),
        (
            "<details open class='rb-traceback'><summary>s</summary>t</details>",
            '<details open class="rb-traceback"><summary>s</summary>t</details>',
        ),
        ('<b a"b>x</b>', '&lt;b a"b&gt;x'),
        ("<b\n\ttitle\n=\n'x'>y</b>", '<b title="x">y</b>'),
    ],
)
def test_only_what_is_allowed_is_kept(dirty: str, kept: str) -> None:
    assert clean(dirty) == kept


def test_what_our_tables_hold_is_kept_as_it_is() -> None:
    table = made.Table("T", ("a", "n"), [("<b>", 3), ("x", 7)], bars=("n",), status="a", note="note")
    for view in (table, made.Figure("F", ["a", "b"], {"x": [1, 2], "y": [3, 4]})):
        html = made.display.bundle(view)["text/html"]
        assert clean(html) == html.replace("&#x27;", "'").replace("&quot;", '"')


PIECES = [
    "<",
    ">",
    "</",
    "<b",
    "<div ",
    "style=",
    '"',
    "'",
    "=",
    "x",
    "<script>",
    "</script>",
    "<!--",
    "-->",
    "&lt;",
    "<svg/",
    "\0",
    "<a href=",
    "on",
]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=5)), max_size=25))
def test_whatever_comes_in_is_well_nested_and_cleaning_is_final(pieces: list[str]) -> None:
    kept = clean("".join(pieces))
    page = Page(f"<section>{kept}</section>")
    assert page.nested and not page.open
    assert requests(kept) == []
    assert clean(kept) == kept


@pytest.mark.parametrize(
    "piece",
    [
        "<",
        "<a ",
        "<a",
        "</",
        "<!",
        "<!--",
        "<![",
        "&#",
        "<a b='",
        '<a b="',
        "<a b c d ",
        "<div>",
        "</div>",
        "<svg>",
        "<b =",
        "\u202e",
    ],
)
def test_hostile_html_takes_no_long_time(piece: str) -> None:
    begun = time.monotonic()
    clean((piece * 65_536)[:65_536])
    assert time.monotonic() - begun < 60  # html.parser takes minutes


def test_equal_runs_give_equal_pages(tmp_path: Path) -> None:
    assert page_of(made.passed(tmp_path / "a")) == page_of(made.passed(tmp_path / "b"))


def test_the_page_holds_no_script_whatever_a_notebook_says(tmp_path: Path) -> None:
    run = made.passed(tmp_path)
    run.cell("start")["outputs"] = list(OUTPUTS.values())
    text = page_of(run)
    assert "<script" not in text.lower()
    assert requests(text) == []
    assert json.loads((run.folder / "manifest.json").read_bytes())["verdict"] == "pass"
