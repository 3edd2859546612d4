"""Every code that the machinery of runs can give stands in docs/codes.md, and every code there is given.

Covered: `code=` words and the `code` of error classes in errors.py, runbook/, sources/ and cli/. Left out: codes of
rules, which are compared beside their rules.
"""

import ast
import re
from pathlib import Path

import gpurunbook

PACKAGE = Path(gpurunbook.__file__).parent
ROOMS = ("headless", "lint", "runbook", "evidence", "folder", "shown", "sources")
DOCS = PACKAGE.parent / "docs" / "codes.md"


def given():
    found = set()
    single = [PACKAGE / "errors.py", PACKAGE / "journal.py", PACKAGE / "cli" / "changes.py"]
    files = [*single, *(f for room in ROOMS for f in (PACKAGE / room).glob("*.py"))]
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "code":
                found |= words(node.value)
            if isinstance(node, ast.Assign) and [getattr(t, "id", "") for t in node.targets] == ["code"]:
                found |= words(node.value)
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"_no", "Problem"} and node.args:
                found |= words(node.args[0])
    return found


def words(node):
    """The constant words that an expression can be; an f-string is left to the documentation's own rows."""
    match node:
        case ast.Constant(value=str(word)) if word:
            return {word}
        case ast.IfExp():
            return words(node.body) | words(node.orelse)
        case ast.BoolOp():
            return set().union(*map(words, node.values))
    return set()


def documented():
    text = DOCS.read_text().split("\n## Runs\n", 1)[1].split("\n## ", 1)[0]
    cells = (line.split("|")[1] for line in text.splitlines() if line.startswith("| `"))
    return {word for cell in cells for word in re.findall(r"`([a-z-]+)`", cell)}


def test_every_code_of_a_run_is_documented():
    assert given() - documented() == set()


def test_the_collector_sees_the_codes_that_matter():
    assert {"wrong-cluster", "permission-missing", "no-approval", "lease-held", "forbidden"} <= given()
