"""How errors look and count in a real kernel, under nbclient and under plain papermill.

Covered: the card and the `error` output of an error of ours, of an interrupt, and of a defect; that the cell fails and
later cells do not run; SystemExit in every spelling; errors of the reader's own cell; HTML that is not typeset; the
size of the cell; a scrap written by a kernel and read by scrapbook.
Not covered: os._exit and kernel death, which no hook in the kernel can see (the engine's tests).
"""

from __future__ import annotations

import json
import re

import nbclient
import nbformat
import papermill
import pytest

INSTALL = "from gpurunbook.shown.display import install_error_card\ninstall_error_card(get_ipython())"
STOP = (
    "from gpurunbook.errors import Stopped\n"
    "raise Stopped('no <b>\\x1b[31m' + 'x' * 100_000, subject='pod a', remedy='pin it', code='odd')"
)


def notebook(*cells: str) -> nbformat.NotebookNode:
    made = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "p", "language": "python"}}
    )
    made.cells = [nbformat.v4.new_code_cell(cell, id=f"c{i}") for i, cell in enumerate(cells)]
    return made


def run(*cells: str) -> tuple[nbformat.NotebookNode, nbclient.exceptions.CellExecutionError | None]:
    made = notebook(*cells)
    try:
        nbclient.NotebookClient(made, timeout=300).execute()
    except nbclient.exceptions.CellExecutionError as failed:
        return made, failed
    return made, None


def errors(cell) -> list:
    return [output for output in cell.outputs if output.output_type == "error"]


@pytest.fixture
def page(monkeypatch):
    """Kernels are those of a Jupyter server."""
    monkeypatch.setenv("JPY_SESSION_NAME", "outputs/r/x.ipynb")


@pytest.fixture(autouse=True)
def _log(monkeypatch):
    """Kernels are nobody's session."""
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)


def test_an_error_of_ours_is_a_card_and_a_short_error_and_stops_the_notebook():
    made, failed = run(INSTALL, STOP, "print('never')")
    assert failed is not None
    assert failed.ename == "Stopped"
    card, error = [o for o in made.cells[1].outputs if o.output_type in ("display_data", "error")]
    assert "rb-card" in card.data["text/html"]
    assert "cell:2" in card.data["text/html"]
    assert error.ename == "Stopped"
    assert error.evalue.startswith("pod a: no <b>\\x1b[31m")
    assert error.traceback == [f"Stopped: {error.evalue}"]
    assert len(json.dumps(made.cells[1].outputs)) < 64 * 1024
    assert made.cells[2].execution_count is None


@pytest.mark.usefixtures("page")
def test_in_jupyterlab_the_card_alone_says_what_is_wrong():
    made, failed = run(INSTALL, STOP)
    assert failed is not None
    (error,) = errors(made.cells[1])
    assert error.evalue.startswith("pod a: no <b>\\x1b[31m")
    assert error.traceback == ["Stopped: odd: pod a"]


def test_a_foreign_error_keeps_its_traceback():
    made, failed = run(INSTALL, "1 / 0", "print('never')")
    assert failed is not None
    (error,) = errors(made.cells[1])
    assert error.ename == "ZeroDivisionError"
    assert len(error.traceback) > 1
    assert not [o for o in made.cells[1].outputs if "rb-card" in str(o)]


@pytest.mark.parametrize(
    ("cell", "name", "title"),
    [
        ("raise KeyboardInterrupt", "KeyboardInterrupt", "Interrupted"),
        ("from gpurunbook.journal import replay\nreplay([{}])", "KeyError", "Something went wrong"),
    ],
)
@pytest.mark.usefixtures("page")
def test_in_jupyterlab_an_interrupt_and_a_defect_of_ours_have_a_card_with_a_folded_traceback(cell, name, title):
    made, failed = run(INSTALL, cell, "print('never')")
    assert failed is not None
    card, error = [o for o in made.cells[1].outputs if o.output_type in ("display_data", "error")]
    assert card.data["text/plain"].startswith(f"✗ {title}\n")
    assert "<details" in card.data["text/html"]
    assert (error.ename, error.traceback) == (name, [name])
    assert made.cells[2].execution_count is None


def test_a_log_has_the_frames_of_a_defect():
    made, failed = run(INSTALL, "from gpurunbook.journal import replay\nreplay([{}])")
    assert failed is not None
    (error,) = errors(made.cells[1])
    assert "journal.py" in "".join(error.traceback)


def test_what_is_shown_is_not_typeset():
    made, _ = run(INSTALL, "from gpurunbook.shown.mime import line\nline('$x$')", STOP)
    (said,), (card,) = [[o for o in cell.outputs if o.output_type == "display_data"] for cell in made.cells[1:]]
    for output in (card, said):
        assert re.match(r'<div class="[^"]*\bmathjax_ignore\b', output.data["text/html"])


def test_installing_twice_shows_one_card():
    made, _ = run(INSTALL + "\ninstall_error_card(get_ipython())", STOP)
    assert len([o for o in made.cells[1].outputs if o.output_type == "display_data"]) == 1
    assert len(errors(made.cells[1])) == 1


def executed(folder):
    """out.ipynb of in.ipynb. A busy machine starts a kernel slower than within papermill's minute."""
    ends = (str(folder / "in.ipynb"), str(folder / "out.ipynb"))
    papermill.execute_notebook(*ends, progress_bar=False, start_timeout=600)


EXITS = ["import sys; sys.exit(0)", "raise SystemExit", "import sys; sys.exit('bye')", "import sys; sys.exit(3)"]


@pytest.mark.parametrize("leaving", EXITS)
def test_a_cell_that_leaves_fails_under_papermill_and_nothing_after_it_runs(leaving, tmp_path):
    nbformat.write(notebook(INSTALL, leaving, "print('never')"), tmp_path / "in.ipynb")
    with pytest.raises(papermill.PapermillExecutionError) as failed:
        executed(tmp_path)
    assert failed.value.ename == "GateError"
    saved = nbformat.read(tmp_path / "out.ipynb", 4)
    assert "never" not in "".join(o.get("text", "") for cell in saved.cells for o in cell.get("outputs", []))
    card = next(o for cell in saved.cells for o in cell.get("outputs", []) if "rb-card" in str(o))
    assert "exit-in-cell" in card["data"]["text/plain"]


def test_without_the_hook_papermill_calls_such_a_notebook_a_success(tmp_path):
    """The reason for the hook: when papermill changes this, the hook can go."""
    nbformat.write(notebook(EXITS[0], "print('never')"), tmp_path / "in.ipynb")
    executed(tmp_path)
    assert nbformat.read(tmp_path / "out.ipynb", 4).cells[-1].execution_count is None


def test_a_scrap_and_views_of_a_kernel_are_read_from_the_saved_notebook(tmp_path):
    cell = (
        "from gpurunbook.shown.scraps import scrap\nfrom gpurunbook.shown import display\n"
        "from gpurunbook.plan import Figure, Judgement\n"
        "scrap('gpurunbook.close', {'verdict': 'pass', 'ratio': float('nan')})\n"
        "display.judged('T', Judgement((), views=(Figure('F', ['a', 'b'], {'n': [1, 2]}),)), {'status': 'pass'})\n"
        "import sys; print(sorted({'scrapbook', 'papermill', 'nbformat', 'pandas', 'plotly'} & set(sys.modules)))"
    )
    made, failed = run(cell)
    assert failed is None
    nbformat.write(made, tmp_path / "out.ipynb")
    import scrapbook

    read = scrapbook.read_notebook(str(tmp_path / "out.ipynb"))
    assert dict(read.scraps["gpurunbook.close"].data) == {"ratio": None, "verdict": "pass"}

    from gpurunbook.shown.display import figure_from_bundle

    saved = json.loads((tmp_path / "out.ipynb").read_text())
    figures = [figure_from_bundle(o.get("data", {})) for o in saved["cells"][0]["outputs"]]
    assert [f.series for f in figures if f] == [{"n": [1, 2]}]
    assert "".join(o.get("text", "") for o in made.cells[0].outputs) == "[]\n"
