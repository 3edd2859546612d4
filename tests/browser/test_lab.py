"""The provenance audit as people see it: in JupyterLab, driven in Chromium, and as the exported page.

Covered: a run cell by cell with a kernel restart in its middle; three named values and the figure's data in a trusted
notebook, in an untrusted one, and in the page with scripts off and no network; a window that changes; sealing and
verifying what JupyterLab saved; a failing audit; hostile names; a cell out of order; a second kernel on one run; a
wrong parameter; a source that must not be saved.
Not covered: what the values should be (tests/cases, the expect.yaml files), every way to tamper (test_verify.py),
the death of a kernel (tests/notebooks), other browsers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from gpurunbook.journal import read
from tests.browser.notebook_page import Lab, Notebook, events, picture

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
NAME = "provenance_audit.ipynb"


def closing(folder: Path) -> dict[str, Any]:
    """The last record's data, which is of a close."""
    record = read(folder / "journal.jsonl")[-1]
    assert record["event"] == "close"
    return dict(record["data"])


@dataclass(frozen=True)
class Shown:
    """What a reader sees: three named values, and the figure as series name → label → number."""

    verdict: str
    cluster: str
    digests: str
    figure: dict[str, dict[str, int]]


def values(place: Locator | Page) -> tuple[str, str, str]:
    """The three named values in a notebook or page."""
    verdict = place.locator(".rb-value-verdict .rb-word").last
    cluster = place.locator(".rb-value-cluster-uid").last
    return verdict.inner_text(), cluster.inner_text(), place.locator(".rb-fact-digests").inner_text()


def in_lab(notebook: Notebook) -> Shown:
    """What a notebook in JupyterLab shows; the figure is what plotly.js has drawn."""
    traces = notebook.figure()
    return Shown(*values(notebook.panel), {t["name"]: dict(zip(t["y"], t["x"], strict=True)) for t in traces})


def in_page(page: Page) -> Shown:
    """What the exported page shows; the figure is the table beside the drawing."""
    table = page.locator(".rb-figure table")
    names = [name for name in table.locator("th").all_text_contents() if name]
    rows = [row.locator("td").all_text_contents() for row in table.locator("tbody tr").all()]
    figure = {name: {row[0]: int(row[1 + at]) for row in rows} for at, name in enumerate(names)}
    return Shown(*values(page), figure)


@dataclass(frozen=True)
class Offline:
    """A page that may read files only and runs no script. attempted: what it asked the network for."""

    page: Page
    attempted: list[str]


@pytest.fixture
def offline(chromium: Browser) -> Iterator[Offline]:
    attempted: list[str] = []
    context = chromium.new_context(java_script_enabled=False, viewport={"width": 1280, "height": 1000})
    context.set_default_timeout(120_000)

    def judge(route: Any) -> None:
        if route.request.url.startswith("file://"):
            route.continue_()
        else:
            attempted.append(route.request.url)
            route.abort()

    context.route("**/*", judge)
    yield Offline(context.new_page(), attempted)
    context.close()


@dataclass(frozen=True)
class Audited:
    """A run that was stepped through in JupyterLab and saved there. numbers: of its code cells, as they show them."""

    notebook: Notebook
    folder: Path
    shown: Shown
    trust: str
    numbers: list[str]


@pytest.fixture(scope="module")
def audited(workbench: Page, lab: Lab) -> Audited:
    """Steps through the passing audit with a kernel restart after its first step, and saves. The kernel stays."""
    folder = lab.new("stepped-through", "pass")
    notebook = Notebook(workbench, lab, folder / NAME)
    notebook.run("parameters", notebook.injected, "start", "audit")
    notebook.restart()
    notebook.run("parameters", notebook.injected, "start", "evidence", "close")
    shown = in_lab(notebook)
    notebook.save()
    picture(workbench, "lab-audit.png", 1330, notebook.cell("audit").locator(".jp-Cell-outputWrapper"))
    prompts = notebook.panel.locator(".jp-CodeCell .jp-InputArea-prompt").all_inner_texts()
    return Audited(notebook, folder, shown, notebook.trust, prompts)


@pytest.fixture(scope="module")
def sealed(audited: Audited, lab: Lab) -> dict[str, Any]:
    """What `gpurunbook seal` says of it, while the notebook is still open and its kernel alive."""
    return lab.seal(audited.folder)


# -- one run, read in three ways ------------------------------------------------------------------------------------


def test_a_run_goes_on_after_its_kernel_was_restarted(audited: Audited) -> None:
    assert [entry for entry in events(audited.folder) if entry[0] != "judged"] == [
        ("start", ""),
        ("cluster", ""),
        ("step", "audit"),
        ("resume", ""),
        ("cluster", ""),
        ("step", "evidence"),
        ("close", "close"),
    ]
    # The second kernel counts from 1 again; the cell of the audit keeps its number of the first, and was not needed.
    assert audited.numbers[:6] == ["[1]:", "[2]:", "[3]:", "[4]:", "[4]:", "[5]:"]


def test_a_trusted_notebook_shows_what_the_cluster_holds(audited: Audited, lab: Lab) -> None:
    lists = [lab.ask("small", f"/api/v1/namespaces/{name}/pods") for name in ("gpu-operator", "hami-system")]
    digests = {
        digest
        for pods in lists
        for pod in pods["items"]
        for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
        for status in pod["status"].get(kind, [])
        for digest in DIGEST.findall(status["imageID"])
    }
    assert audited.trust.startswith("Notebook trusted")
    assert audited.shown.verdict == "pass"
    assert audited.shown.cluster == lab.ask("small", "/api/v1/namespaces/kube-system")["metadata"]["uid"]
    assert audited.shown.digests == str(len(digests))
    drawn = {label: sum(series[label] for series in audited.shown.figure.values()) for label in ("manifest", "mutable")}
    assert drawn == {"manifest": len(digests), "mutable": 0}


def test_the_figure_stays_when_the_window_changes(audited: Audited, page: Page) -> None:
    audited.notebook.activate()
    graph = audited.notebook.panel.locator(".js-plotly-plot")
    for width, height in ((1000, 900), (1280, 4000)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(1000)  # JupyterLab and plotly.js answer to it one after the other
        audited.notebook.until(lambda: (graph.bounding_box() or {"height": 0})["height"] > 200, "the figure is gone")


def test_an_untrusted_notebook_shows_the_same(audited: Audited, lab: Lab, page: Page) -> None:
    folder = lab.home / "outputs" / "headless"
    done = lab.gpurunbook(
        *("run", "provenance_audit", "--run-id", folder.name, "--parameters", "parameters/provenance_audit/pass.yaml")
    )
    assert done.returncode == 0, done.stderr
    notebook = Notebook(page, lab, folder / NAME)
    assert notebook.trust.startswith("Notebook not trusted: 0 of")
    assert in_lab(notebook) == audited.shown
    assert lab.verified(folder) == ("consistent", [])  # reading it there changed nothing


def test_what_jupyterlab_saved_is_sealed_and_verifies(audited: Audited, sealed: dict[str, Any], lab: Lab) -> None:
    assert (sealed["verdict"], sealed["evidence"], sealed["lowered"]) == ("pass", "sealed", [])
    # plotly.js puts a picture beside its JSON; the seal is of what was saved, with it.
    saved = json.loads((audited.folder / NAME).read_bytes())
    kinds = [set(output["data"]) for cell in saved["cells"] for output in cell.get("outputs", [])]
    assert [k for k in kinds if "application/vnd.plotly.v1+json" in k and "image/png" in k]
    restarted = {entry["cell"] for entry in sealed["anomalies"]}
    assert {entry["kind"] for entry in sealed["anomalies"]} == {"out-of-order"}
    assert restarted == {"evidence"}
    assert lab.verified(audited.folder) == ("consistent", [])


def test_the_exported_page_shows_the_same_without_scripts_and_network(
    audited: Audited, sealed: dict[str, Any], offline: Offline
) -> None:
    offline.page.goto((audited.folder / "provenance_audit.html").as_uri())
    assert offline.page.locator("#verdict .rb-word").inner_text() == sealed["verdict"]
    assert in_page(offline.page) == audited.shown
    drawn = offline.page.locator("svg rect title").all_text_contents()
    assert drawn == [f"{s}: {audited.shown.figure[s][at]}" for at in LABELS for s in audited.shown.figure]
    expect(offline.page.locator("svg")).to_be_visible()
    assert offline.attempted == []


LABELS = ("manifest", "local", "config", "mutable", "malformed", "unresolved", "never-started")


def test_a_page_that_asks_the_network_for_something_would_be_noticed(offline: Offline, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(
        '<img src="http://127.0.0.1:9/pixel.png"><script>document.title = "ran"</script>'
    )
    offline.page.goto((tmp_path / "page.html").as_uri())
    assert offline.attempted == ["http://127.0.0.1:9/pixel.png"]
    assert offline.page.title() == ""


# -- what goes wrong ------------------------------------------------------------------------------------------------


def test_a_failing_audit_shows_card_findings_and_a_folded_traceback(lab: Lab, page: Page, offline: Offline) -> None:
    folder = lab.new("fails", "latest")
    notebook = Notebook(page, lab, folder / NAME)
    cell = notebook.run("parameters", notebook.injected, "start", "audit")
    card = cell.locator(".rb-card")
    expect(card.locator(".rb-value-code")).to_have_text("explicit-latest")
    expect(card.locator(".rb-value-object")).to_have_text("gpu-operator/Pod/debug-tools")
    expect(card.locator(".rb-value-go-on")).to_contain_text("run this cell again")
    expect(card.locator("summary")).to_be_visible()
    expect(card.locator("details pre")).to_be_hidden()
    # What is wrong stands in the list of findings and in the card, and nowhere else.
    assert cell.inner_text().count("the tag latest is refused") == 2
    card.locator("summary").click()
    expect(card.locator("details pre")).to_contain_text("ledger.py")
    said = cell.locator(".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.stderr']")
    expect(said).to_have_text("Stopped: explicit-latest: gpu-operator/Pod/debug-tools")
    expect(cell.locator(".rb-col-code").first).to_have_text("explicit-latest")
    expect(cell.locator(".rb-value-verdict .rb-word")).to_have_text("rejected")
    assert closing(folder)["verdict"] == "rejected"
    notebook.save()
    assert lab.seal(folder)["verdict"] == "rejected"
    offline.page.goto((folder / "provenance_audit.html").as_uri())
    expect(offline.page.locator("#verdict .rb-word")).to_have_text("rejected")
    expect(offline.page.locator("#findings td").nth(1)).to_have_text("explicit-latest")
    expect(offline.page.locator(".rb-card details pre")).to_be_hidden()
    picture(offline.page, "html-audit.png", 1000)


def test_hostile_names_stay_text_in_notebook_and_page(lab: Lab, page: Page, offline: Offline) -> None:
    folder = lab.new("hostile", "hostile-text")
    notebook = Notebook(page, lab, folder / NAME)
    cell = notebook.run("parameters", notebook.injected, "start", "audit")
    offered = cell.locator(".jp-OutputArea")
    expect(offered.locator(".jp-RenderedHTML.jp-mod-trusted").first).to_be_visible()  # JupyterLab lets scripts through
    expect(offered.locator(".jp-RenderedHTML:not(.jp-mod-trusted)")).to_have_count(0)
    expect(offered).to_contain_text("<img src=x onerror=alert(1)>")
    expect(offered).to_contain_text("<script>alert(1)</script>")
    expect(offered).to_contain_text(r"$\phantom{worker}$")  # and no formula, which JupyterLab would typeset
    expect(offered.locator("mjx-container")).to_have_count(0)
    for injected in ("script", "img:not(.plot-img)", "[onerror]", "[onload]", "iframe"):
        expect(offered.locator(injected)).to_have_count(0)
    notebook.save()
    assert lab.seal(folder)["evidence"] == "sealed"
    offline.page.goto((folder / "provenance_audit.html").as_uri())
    expect(offline.page.locator("#findings")).to_contain_text("<script>alert(1)</script>")
    for injected in ("script", "img", "[onerror]", "[onload]", "iframe"):
        expect(offline.page.locator(injected)).to_have_count(0)
    assert "\x1b" not in (folder / "provenance_audit.html").read_text()
    assert offline.attempted == []


def test_a_cell_out_of_order_is_told_what_to_run_and_the_run_goes_on(lab: Lab, page: Page) -> None:
    folder = lab.new("out-of-order", "pass")
    notebook = Notebook(page, lab, folder / NAME)
    cell = notebook.run("parameters", notebook.injected, "start", "evidence")
    expect(cell.locator(".rb-card")).to_contain_text("Out of order")
    expect(cell.locator(".rb-card .rb-value-to-do")).to_have_text("Run the cell 'audit' first.")
    assert "step" not in {event for event, _ in events(folder)}
    notebook.run("audit", "evidence", "close")
    expect(notebook.cell("evidence").locator(".rb-card")).to_have_count(0)
    assert closing(folder)["verdict"] == "pass"


def test_a_second_kernel_on_one_run_is_refused_until_the_first_is_gone(lab: Lab, page: Page) -> None:
    folder = lab.new("twice", "pass")
    (folder / "again.ipynb").write_bytes((folder / NAME).read_bytes())
    first = Notebook(page, lab, folder / NAME)
    first.run("parameters", first.injected, "start")
    second = Notebook(page, lab, folder / "again.ipynb")
    cell = second.run("parameters", second.injected, "start")
    expect(cell.locator(".rb-card .rb-value-code")).to_have_text("run-in-use")
    expect(cell.locator(".rb-card .rb-value-what")).to_contain_text("another process works on this run")
    assert [event for event, _ in events(folder)] == ["start", "cluster"]
    first.activate()
    first.shut_down()
    second.activate()
    second.run("start")
    expect(cell.locator(".rb-card")).to_have_count(0)
    assert [event for event, _ in events(folder)] == ["start", "cluster", "resume", "cluster"]


def test_a_wrong_parameter_is_named_before_anything_is_sent(audited: Audited, lab: Lab, page: Page) -> None:
    before = lab.requests("small")
    assert before, "the audit before this one has sent something"
    folder = lab.new("wrong-parameter", "pass")
    notebook = Notebook(page, lab, folder / NAME)
    notebook.append(notebook.injected, 'tolerate_never_started = "false"')
    cell = notebook.run("parameters", notebook.injected, "start")
    card = cell.locator(".rb-card")
    expect(card).to_contain_text("A parameter is wrong")
    expect(card.locator(".rb-value-object")).to_have_text("parameter 'tolerate_never_started'")
    expect(card.locator(".rb-value-to-do")).to_contain_text("Was False meant?")
    assert lab.requests("small") == before
    assert not (folder / "journal.jsonl").exists()
    notebook.append(notebook.injected, "tolerate_never_started = False")
    notebook.run(notebook.injected, "start")
    expect(cell.locator(".rb-value-run")).to_have_text(folder.name)
    assert len(lab.requests("small")) > len(before)


def test_a_source_notebook_cannot_be_saved(lab: Lab, page: Page) -> None:
    source = lab.home / "runbooks" / NAME
    before = source.read_bytes()
    notebook = Notebook(page, lab, source)
    notebook.append("parameters", "x = 1")
    assert "is a source and stays as it is" in notebook.refused()
    assert source.read_bytes() == before
