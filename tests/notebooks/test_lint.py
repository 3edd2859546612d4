"""The linter of source notebooks.

Covered: one notebook in `lint/` per rule, which breaks that rule and no other; the variants of each rule as edits of
`lint/clean.ipynb`; what `--fix` repairs and what it leaves; unreadable files; the command's output and exit codes;
the runbooks that ship. Not covered: whether a notebook runs.
"""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Annotated

import msgspec
import nbformat
import pytest
from click.testing import CliRunner

from gpurunbook.cli.lint import lint as command
from gpurunbook.declared.book import Runbook, Step, described
from gpurunbook.declared.runbooks import names
from gpurunbook.errors import InputError, ParameterError
from gpurunbook.lint import lint as linter
from gpurunbook.lint.source import dump, read

FILES = Path(__file__).parent / "lint"
RUNBOOKS = Path(__file__).parents[2] / "runbooks"


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    node: Annotated[str, described("the node to drain")] = ""
    limit: Annotated[int, described("pods evicted at once")] = 1
    namespaces: Annotated[list[str], described("where holders are looked for")] = msgspec.field(
        default_factory=lambda: ["gpu-operator", "hami-system"]
    )
    apply: Annotated[bool, described("change the cluster, or only plan")] = False


BOOK = Runbook(
    "drain_demo",
    "Drain one node",
    Parameters,
    (Step("zero-holders", "h"), Step("cordon", "c", ("zero-holders",)), Step("settled", "s", ("cordon",))),
    changes=True,
)


def lookup(name: str) -> Runbook:
    if name == "declared":
        raise ParameterError("no such runbook", subject=name)
    return BOOK


def flaws(path: Path) -> list[linter.Flaw]:
    return linter.lint(path, lookup)


class Edited:
    """A copy of the clean notebook, to be broken."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "clean.ipynb"
        self.tree = copy.deepcopy(read(FILES / "clean.ipynb").tree)

    def cell(self, id_: str) -> dict:
        return next(cell for cell in self.tree["cells"] if cell.get("id") == id_)

    def source(self, id_: str, old: str, new: str) -> None:
        before = "".join(self.cell(id_)["source"])
        assert old in before
        self.cell(id_)["source"] = before.replace(old, new)

    def flaws(self) -> list[linter.Flaw]:
        self.path.write_bytes(dump(self.tree))
        return flaws(self.path)

    def rules(self) -> set[str]:
        return {flaw.rule for flaw in self.flaws()}


@pytest.fixture
def edited(tmp_path):
    return Edited(tmp_path)


# -- a notebook per rule -----------------------------------------------------------------------------------------


def test_every_rule_has_a_notebook_that_breaks_it():
    assert {path.stem for path in FILES.glob("*.ipynb")} == {rule.id for rule in linter.RULES} | {"clean", "declared"}


def test_the_clean_notebook_has_no_flaw():
    assert flaws(FILES / "clean.ipynb") == []


@pytest.mark.parametrize("rule", [rule.id for rule in linter.RULES] + ["declared"])
def test_each_notebook_breaks_its_rule_and_no_other(rule):
    found = flaws(FILES / f"{rule}.ipynb")
    assert {flaw.rule for flaw in found} == {rule}
    assert all(flaw.message and flaw.remedy and flaw.source for flaw in found)


@pytest.mark.parametrize("path", sorted(FILES.glob("*.ipynb")), ids=lambda p: p.stem)
def test_each_notebook_is_a_notebook_for_nbformat_too(path):
    nbformat.validate(nbformat.read(path, 4))


def test_rules_have_ids_of_their_own_and_say_where_they_come_from():
    ids = [rule.id for rule in linter.RULES]
    assert len(set(ids)) == len(ids)
    assert all(rule.source and rule.remedy and rule.check.__doc__ for rule in linter.RULES)


# -- variants: code ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "old", "new", "rule"),
    [
        # functions
        ("close", "run.close()", "def f():\n    pass\nrun.close()", "functions"),
        ("close", "run.close()", "async def f():\n    pass\nrun.close()", "functions"),
        ("close", "run.close()", "class A:\n    pass\nrun.close()", "functions"),
        # imports
        ("start", "import gpurunbook as rb", "import gpurunbook", "imports"),
        ("start", "import gpurunbook as rb", "from gpurunbook import nodes", "imports"),
        ("start", "import gpurunbook as rb", "import gpurunbook as rb, os", "imports"),
        ("start", "import gpurunbook as rb\n", "", "imports"),
        # magics and other tongues
        ("close", "run.close()", "%%bash\nls", "python"),
        ("close", "run.close()", "x = !ls\nrun.close()", "python"),
        ("close", "run.close()", "run?", "python"),
        ("close", "run.close()", "run.close(", "python"),
        # print, also by another name
        ("close", "run.close()", "say = print\nrun.close()", "print"),
        # what swallows or leaves
        ("cordon", "run.change", "try:\n    pass\nexcept Exception:\n    pass\nrun.change", "plain-code"),
        ("cordon", "run.change", "if p.apply:\n    raise SystemExit\nrun.change", "plain-code"),
        ("cordon", "run.change", "get_ipython().system('ls')\nrun.change", "plain-code"),
        ("cordon", "run.change", "__import__('os')\nrun.change", "plain-code"),
        ("cordon", "run.change", "quit\nrun.change", "plain-code"),
        ("cordon", "run.change", "run.change = str\nrun.change", "plain-code"),
        ("cordon", "run.change", "rb.nodes.cordon = rb.nodes.uncordon\nrun.change", "plain-code"),
        ("cordon", "run.change", "del rb.nodes.cordon\nrun.change", "plain-code"),
        ("cordon", "run.change", "setattr(run, 'change', str)\nrun.change", "plain-code"),
        ("cordon", "run.change", "globals()['run'] = p\nrun.change", "plain-code"),
        ("cordon", "run.change", "for n in p.namespaces:\n    rb.nodes.no_holders(n)\nrun.change", "plain-code"),
        ("cordon", "run.change", "x = [rb.nodes.no_holders(n) for n in p.namespaces]\nrun.change", "plain-code"),
        # start and close
        ("start", '"drain_demo"', '"provenance_audit"', "start-and-close"),
        ("start", "run = rb", "again = rb", "start-and-close"),
        ("close", "run.close()", "run.close()\np.node", "start-and-close"),
        ("close", "run.close()", "p.apply and run.close()", "start-and-close"),
        ("cordon", "run.change", "run = p\nrun.change", "start-and-close"),
        ("cordon", "run.change", "rb = p\nrun.change", "start-and-close"),
        ("cordon", "run.change", "match p:\n    case run:\n        pass\nrun.change", "start-and-close"),
        ("cordon", "run.change", "match p:\n    case [*rb]:\n        pass\nrun.change", "start-and-close"),
        ("settled", "run.wait", "run.close()\nrun.wait", "start-and-close"),
        # gates
        ("settled", '"settled", rb', '"settle", rb', "step-ids"),
        ("settled", '"settled", rb', "p.node, rb", "step-ids"),
        ("settled", "run.wait", "if p.apply:\n    run.wait", "step-ids"),
        ("settled", "run.wait", "p.apply and run.wait", "step-ids"),
        ("settled", "run.wait", 'run.show("settled")\nrun.wait', "step-ids"),
        ("settled", "run.wait", "run.shut", "step-ids"),
        ("settled", "run.wait", 'run.check("settled", rb.nodes.x())\nrun.wait', "step-ids"),
        ("settled", "run.wait", "run.close", "step-order"),
        ("settled", "run.wait", "run.cheque", "step-order"),
        # tags of changes
        ("settled", "run.wait", "run.change", "mutates"),
    ],
)
def test_a_broken_cell_is_found(edited, cell, old, new, rule):
    edited.source(cell, old, new)
    assert rule in edited.rules()


def test_a_flaw_names_file_cell_and_line(edited):
    edited.source("settled", "run.wait", "x = 1\nprint(x)\nrun.wait")
    (flaw,) = edited.flaws()
    assert (flaw.file, flaw.cell, flaw.line, flaw.rule) == (str(edited.path), "settled", 2, "print")


@pytest.mark.parametrize(
    "line",
    ["x = [n.upper() for n in p.namespaces]", "for n in p.namespaces:\n    n", 'rb.nodes.table("a")'],
)
def test_plain_python_besides_the_gate_is_no_flaw(edited, line):
    edited.source("settled", "run.wait", f"{line}\nrun.wait")
    assert edited.flaws() == []


def test_a_percent_sign_in_python_is_no_magic(edited):
    edited.source("settled", "run.wait", "x = (7\n % 2)\nrun.wait")
    assert edited.flaws() == []


def test_a_gate_before_the_start_is_found(edited):
    cells = edited.tree["cells"]
    cells.insert(3, cells.pop(cells.index(edited.cell("zero-holders"))))
    assert "start-and-close" in edited.rules()


def test_a_step_that_is_declared_and_has_no_cell_is_named(edited):
    edited.tree["cells"].remove(edited.cell("settled"))
    assert [f.message for f in edited.flaws() if f.rule == "step-order"] == ["the declared step 'settled' has no cell"]


def test_a_step_that_is_not_declared_is_named(edited):
    extra = copy.deepcopy(edited.cell("settled"))
    extra.update(id="more", source='run.wait("more", rb.nodes.settled(p.node))')
    edited.tree["cells"][-2:-2] = [{**edited.cell("about-close"), "id": "about-more"}, extra]
    (flaw,) = edited.flaws()
    assert (flaw.rule, flaw.cell, flaw.message) == ("step-order", "more", "the step 'more' is not declared")


# -- variants: parameters ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# parameters of drain_demo", "# Parameters of drain_demo"),
        ("# parameters of drain_demo", "# parameters of drain_demo "),
        ("# parameters of drain_demo", "\n# parameters of drain_demo"),
        ('node = ""', 'node = "a"'),
        ('node = ""', 'nodes = ""'),
        ('node = ""', "node = None"),
        ("limit = 1", "limit = True"),
        ("limit = 1", "limit = 1.0"),
        ("limit = 1", "limit = int('1')"),
        ("limit = 1", "limit = 1\nother = 2  # more"),
        ("limit = 1", "limit = 1\nprint(limit)"),
        ("apply = False", "apply = 0"),
        ("apply = False", "apply: bool"),
        ("apply = False  # change the cluster, or only plan", ""),
        ('"hami-system"', '"kube-system"'),
        ('    "hami-system",\n', ""),
    ],
)
def test_a_parameters_cell_unlike_the_schema_is_found(edited, old, new):
    edited.source("parameters", old, new)
    assert "parameters-cell" in edited.rules()


def test_parameters_in_another_order_are_found(edited):
    edited.source("parameters", 'node = ""  # the node to drain\n', "")
    edited.cell("parameters")["source"] += '\nnode = ""  # the node to drain'
    (flaw,) = edited.flaws()
    assert "in this order, node, limit" in flaw.message


def test_annotated_parameters_and_negative_numbers_are_plain_values(edited):
    edited.source("parameters", "limit = 1", "limit: int = 1")
    assert edited.flaws() == []
    edited.source("parameters", "limit: int = 1", "limit = -1")
    assert "limit is -1, the schema's default is 1" in [f.message for f in edited.flaws()]


def test_a_second_cell_of_parameters_or_one_behind_another_is_found(edited):
    edited.cell("close")["metadata"]["tags"] = ["parameters"]
    assert "parameters-cell" in edited.rules()
    edited.cell("close")["metadata"]["tags"] = []
    edited.cell("parameters")["metadata"]["tags"] = []
    assert "parameters-cell" in edited.rules()
    edited.cell("about-start")["metadata"]["tags"] = ["parameters"]
    assert "parameters-cell" in edited.rules()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  # change the cluster, or only plan", ""),
        ("  # change the cluster, or only plan", "  #"),
        ("# how many pods may be evicted at once,\n# counted over all namespaces\n", ""),
        ("# counted over all namespaces\n", "\n"),
    ],
)
def test_a_parameter_without_a_comment_is_found(edited, old, new):
    edited.source("parameters", old, new)
    assert edited.rules() == {"parameters-explained"}


def test_the_marker_line_explains_no_parameter(edited):
    edited.source(
        "parameters",
        '# parameters of drain_demo\nnode = ""  # the node to drain',
        "# parameters of drain_demo\nnode = ''",
    )
    assert edited.rules() == {"parameters-explained"}


# -- variants: cells and text ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "id_",
    ["3fa9c1d7", "deadbeef", "1b4e28ba-2fa1-11d2-883f-0016d3cca427", "Zero-Holders", "a_b", "a--b", "9-a", "", "a b"],
)
def test_an_id_that_is_no_name_is_found(edited, id_):
    edited.cell("about-close")["id"] = id_
    assert "cell-ids" in edited.rules()


def test_a_missing_id_and_an_id_twice_are_found(edited):
    edited.cell("about-close").pop("id")
    assert "cell-ids" in edited.rules()
    edited.tree["cells"][-2]["id"] = "header"
    assert [f.message for f in edited.flaws() if f.rule == "cell-ids"] == ["the id stands twice"]


@pytest.mark.parametrize("tag", ["raises-exception", "skip-execution", "injected-parameters", "remove-cell"])
def test_a_tag_that_hides_something_is_refused(edited, tag):
    edited.cell("about-close")["metadata"]["tags"] = [tag]
    assert edited.rules() == {"tags"}


SECTIONS = ("Purpose", "Blast radius", "Duration", "Abort", "Rollback")


@pytest.mark.parametrize("section", SECTIONS)
def test_a_missing_or_empty_section_is_found(edited, section):
    others = [f"**{name}.** text" for name in SECTIONS if name != section]
    edited.cell("header")["source"] = "\n\n".join(["# T", *others])
    assert [f.message for f in edited.flaws()] == [f"the header has no section {section!r}"]
    edited.cell("header")["source"] = "\n\n".join(["# T", f"## {section}", *others])
    assert [f.message for f in edited.flaws()] == [f"the section {section!r} is empty"]


@pytest.mark.parametrize("form", ["**{}:** {}", "**{}**: {}", "- **{}** {}", "| **{}** | {} |", "### {}\n\n{}"])
def test_a_section_is_a_heading_or_a_line_that_begins_in_bold(edited, form):
    edited.cell("header")["source"] = "# T\n\n" + "\n\n".join(form.format(name, "text") for name in SECTIONS)
    assert edited.flaws() == []
    edited.cell("header")["source"] = "# T\n\n" + "\n\n".join(form.format(name, "") for name in SECTIONS)
    assert len(edited.flaws()) == 5


def test_a_header_without_a_title_or_that_is_code_is_found(edited):
    edited.source("header", "# Drain one node", "Drain one node")
    assert edited.rules() == {"header"}
    edited.tree["cells"].pop(0)
    assert "header" in edited.rules()


def test_an_empty_notebook_breaks_rules_and_nothing_else(edited):
    edited.tree["cells"] = []
    assert edited.rules() == {"header", "parameters-cell", "imports", "start-and-close", "step-order"}


def test_a_blank_markdown_cell_explains_nothing(edited):
    edited.cell("about-close")["source"] = " \n"
    assert edited.rules() == {"markdown-first"}


def test_a_raw_cell_is_refused(edited):
    edited.tree["cells"].append({"cell_type": "raw", "id": "raw", "metadata": {"tags": []}, "source": "x"})
    assert edited.rules() == {"markdown-first"}


def test_twelve_lines_are_allowed_thirteen_are_not(edited):
    edited.cell("close")["source"] = "# one\n" * 11 + "run.close()"
    assert edited.flaws() == []
    edited.cell("close")["source"] = "# one\n" * 12 + "run.close()"
    assert edited.rules() == {"cell-length"}


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("[a](clean.ipynb)", True),
        ('[a](clean.ipynb#start "title")', True),
        ("[a](#start) [b](https://x.example/y.ipynb) [c](mailto:a@x.example)", True),
        ("`[a](gone.md)`", True),
        ("```\n[a](gone.md)\n```", True),
        ("![picture](gone.png)", False),
        ("[a](<gone.md>)", False),
        ("[a]\n\n[a]: gone.md", False),
        ('<a href="gone.md">a</a>', False),
        ("[a](/clean.ipynb)", False),
        ("[a](../clean.ipynb)", False),
    ],
)
def test_relative_links_lead_somewhere(edited, text, good):
    edited.cell("about-close")["source"] = f"Close.\n\n{text}"
    assert edited.rules() == (set() if good else {"links"})


def test_a_link_with_escaped_blanks_is_followed(edited, tmp_path):
    (tmp_path / "a b.md").touch()
    edited.cell("about-close")["source"] = "[a](a%20b.md)"
    assert edited.flaws() == []


# -- form and its repair -----------------------------------------------------------------------------------------

FORM = ("canonical-json", "notebook-metadata", "no-outputs", "cell-metadata")


@pytest.mark.parametrize("rule", FORM)
def test_fix_repairs_form(rule, tmp_path):
    path = tmp_path / f"{rule}.ipynb"
    shutil.copy(FILES / path.name, path)
    shutil.copy(FILES / "clean.ipynb", tmp_path)
    path.chmod(0o444)
    assert linter.fix(path) is True
    assert path.read_bytes() == (FILES / "clean.ipynb").read_bytes()
    assert path.stat().st_mode & 0o777 == 0o444
    assert flaws(path) == []
    assert linter.fix(path) is False


@pytest.mark.parametrize("rule", [rule.id for rule in linter.RULES if rule.id not in FORM])
def test_fix_never_touches_content(rule, tmp_path):
    path = tmp_path / f"{rule}.ipynb"
    shutil.copy(FILES / path.name, path)
    assert linter.fix(path) is False
    assert path.read_bytes() == (FILES / path.name).read_bytes()


def test_the_four_rules_of_form_hold_exactly_when_the_file_is_canonical(edited):
    for path in FILES.glob("*.ipynb"):
        broken = {flaw.rule for flaw in flaws(path)} & set(FORM)
        assert bool(broken) == (linter.canonical(read(path).tree) != path.read_bytes())


def test_canonical_form_is_what_nbformat_writes():
    node = nbformat.read(FILES / "clean.ipynb", 4)
    assert (nbformat.writes(node) + "\n").encode() == (FILES / "clean.ipynb").read_bytes()


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: tree["metadata"].update(papermill={"parameters": {}}),
        lambda tree: tree["metadata"].pop("kernelspec"),
        lambda tree: tree["metadata"]["kernelspec"].update(name="venv"),
        lambda tree: tree.update(nbformat_minor=4),
        lambda tree: tree.pop("nbformat_minor"),
        lambda tree: tree.pop("metadata"),
        lambda tree: tree.update(signature="x"),
        lambda tree: tree["cells"][2].pop("outputs"),
        lambda tree: tree["cells"][2].pop("execution_count"),
        lambda tree: tree["cells"][2].update(execution_count=1),
        lambda tree: tree["cells"][2].update(collapsed=True),
        lambda tree: tree["cells"][1].update(outputs=[]),
        lambda tree: tree["cells"][1]["metadata"].pop("tags"),
        lambda tree: tree["cells"][1]["metadata"].update(tags="parameters"),
        lambda tree: tree["cells"][1]["metadata"].update(jupyter={"source_hidden": True}),
    ],
)
def test_what_lab_and_papermill_add_is_found_and_repaired(edited, change):
    change(edited.tree)
    assert edited.rules() & set(FORM)
    assert linter.fix(edited.path)
    assert flaws(edited.path) == []


# -- what cannot be read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'{"cells": [], "nbformat": 3}',
        b'{"cells": {}, "nbformat": 4}',
        b'{"cells": [7], "nbformat": 4}',
        b'{"cells": [{"cell_type": "code", "metadata": {}, "source": [1]}], "nbformat": 4}',
        b'{"cells": [{"cell_type": "heading", "metadata": {}, "source": ""}], "nbformat": 4}',
        b'{"cells": [], "nbformat": 4, "nbformat": 4}',
        b'{"cells": [], "nbformat": 4, "x": NaN}',
        b'{"cells": [], "nbformat": 4, "x": "\\ud800"}',
        b"[" * 100_000,
    ],
)
def test_a_file_that_is_no_notebook_is_unreadable_and_left_alone(raw, tmp_path):
    path = tmp_path / "x.ipynb"
    path.write_bytes(raw)
    for call in (flaws, linter.fix):
        with pytest.raises(InputError):
            call(path)
    assert path.read_bytes() == raw
    assert linter.answer([path])["verdict"] == "unreadable"


def test_a_source_that_python_cannot_parse_in_any_way_is_a_flaw(edited):
    for source in ("\0", "(" * 5000, "x = '\ud7ff"):
        edited.cell("about-close")["cell_type"] = "markdown"
        edited.cell("close")["source"] = source
        assert "python" in edited.rules()


# -- the command -------------------------------------------------------------------------------------------------


def call(*arguments: str):
    return CliRunner().invoke(command, arguments, standalone_mode=False)


def test_the_shipped_runbooks_are_clean():
    done = call("-o", "json", str(RUNBOOKS))
    assert json.loads(done.stdout)["findings"] == []
    assert done.return_value == 0


def test_every_shipped_runbook_is_declared():
    assert {path.stem for path in RUNBOOKS.glob("*.ipynb")} <= set(names())


def test_the_command_answers_in_json_with_sorted_keys_and_exit_codes(tmp_path):
    path = tmp_path / "provenance_audit.ipynb"
    path.write_bytes((RUNBOOKS / path.name).read_bytes().replace(b"run.close()", b"run.closed()"))
    done = call("-o", "json", str(tmp_path))
    said = json.loads(done.stdout)
    assert done.return_value == 1
    assert (said["verdict"], said["files"]) == ("error", 1)
    assert {finding["rule"] for finding in said["findings"]} == {"start-and-close", "step-ids"}
    assert set(said["findings"][0]) == {"rule", "file", "cell", "line", "message", "remedy", "source"}
    assert done.stdout == json.dumps(said, indent=1, sort_keys=True) + "\n"


def test_one_unreadable_file_beside_others_makes_the_answer_unreadable(tmp_path):
    shutil.copy(RUNBOOKS / "provenance_audit.ipynb", tmp_path)
    (tmp_path / "b.ipynb").write_text("{")
    (tmp_path / ".ipynb_checkpoints").mkdir()
    (tmp_path / ".ipynb_checkpoints" / "c.ipynb").write_text("{")
    done = call("-o", "json", str(tmp_path))
    said = json.loads(done.stdout)
    assert done.return_value == 2
    assert (said["verdict"], said["files"], len(said["unreadable"])) == ("unreadable", 2, 1)


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_without_notebooks_or_a_missing_path_is_not_clean(there, tmp_path):
    path = tmp_path / "none"
    if there:
        path.mkdir()
    assert call("-o", "json", str(path)).return_value == 2


def test_fix_by_the_command_repairs_and_says_so(tmp_path):
    path = tmp_path / "provenance_audit.ipynb"
    tree = json.loads((RUNBOOKS / path.name).read_bytes())
    path.write_text(json.dumps(tree))
    done = call("--fix", "-o", "json", str(path))
    assert json.loads(done.stdout)["fixed"] == [str(path)]
    assert done.return_value == 0
    assert path.read_bytes() == (RUNBOOKS / path.name).read_bytes()


def test_hostile_text_of_a_notebook_is_harmless_on_a_terminal(tmp_path):
    path = tmp_path / "provenance_audit.ipynb"
    tree = json.loads((RUNBOOKS / path.name).read_bytes())
    tree["cells"][0]["id"] = "\x1b[31m\u202e"
    path.write_bytes(dump(tree))
    done = call("-o", "table", str(path))
    assert done.return_value == 1
    assert "\\x1b[31m" in done.output
    assert all(char.isprintable() or char == "\n" for char in done.output)
