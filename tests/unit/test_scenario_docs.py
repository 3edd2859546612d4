"""What the documentation says of scenarios and of the site file.

Covered: docs/scenarios.md against the folders and their expectations, both ways; docs/site.md against the fields of
Site and their defaults; the site files of the checkout and the fields of an expectation in docs/architecture.md.
Not covered: that each scenario comes to what is expected (`gpurunbook run --all`).
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from gpurunbook.errors import InputError
from gpurunbook.headless.batch import in_home
from gpurunbook.headless.expectation import Approve, Deed, Expectation
from gpurunbook.runbook import site

HOME = Path(__file__).parents[2]
DOCS = HOME / "docs"


def tables(text: str) -> list[tuple[str, list[str]]]:
    """(word in backticks above it, cells) of each row; heads and rules are left out."""
    found, about = [], ""
    for line in text.splitlines():
        if named := re.fullmatch(r"`([a-z_]+)`", line):
            about = named[1]
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            found.append((about, cells))
    return found


def test_the_table_of_scenarios_is_that_of_the_folders() -> None:
    told = [(about, cells[0], *cells[2:]) for about, cells in tables((DOCS / "scenarios.md").read_text())]
    there = [
        (
            s.runbook,
            f"`{s.name}`" + (" (main)" if s.main else ""),
            s.expected.verdict,
            f"`{s.expected.code}`",
            s.expected.step,
            f"`{s.expected.after}`" if s.expected.after else "",
            "yes" if s.expected.cluster else "",
        )
        for s in in_home(HOME)
    ]
    assert sorted(told) == sorted(there)
    assert len(there) > 90


def test_each_scenario_says_what_it_shows_and_no_two_say_the_same() -> None:
    shows = [(about, cells[1]) for about, cells in tables((DOCS / "scenarios.md").read_text())]
    assert all(text for _, text in shows)
    assert len(set(shows)) == len(shows)


def test_every_field_of_a_site_file_is_documented_with_its_default() -> None:
    told = {cells[0].strip("`"): cells[1].strip("`") for _, cells in tables((DOCS / "site.md").read_text())}
    defaults = msgspec.to_builtins(site.Site())
    assert {name: json.loads(text) if text[0] in '{["ft' else text for name, text in told.items()} == defaults


def test_the_example_of_a_site_file_is_one(tmp_path: Path) -> None:
    lines = (DOCS / "site.md").read_text().split("\n\n    clusters:", 1)[1].split("\n\n", 1)[0]
    (tmp_path / "site.yaml").write_text(
        "\n".join(line.removeprefix("    ") for line in f"clusters:{lines}".split("\n"))
    )
    assert site.load(tmp_path, "site.yaml").approval == ["node_cordon"]


@pytest.mark.parametrize("path", sorted((HOME / "parameters").glob("site*.yaml")), ids=lambda path: path.stem)
def test_a_site_file_of_the_checkout_can_be_read(path: Path) -> None:
    found = site.load(HOME, str(path.relative_to(HOME)))
    assert not found.signers or found.signers.startswith("outputs/.fixture-keys/")


def test_no_private_key_is_in_the_checkout() -> None:
    armour = b"PRIVATE " + b"KEY-----"
    assert [p.name for p in (HOME / "parameters").rglob("*") if p.is_file() and armour in p.read_bytes()] == []


def test_every_field_of_an_expectation_is_documented() -> None:
    text = (DOCS / "architecture.md").read_text().split("\n## Scenarios\n", 1)[1].split("\n## ", 1)[0]
    words = set(re.findall(r"`([a-z_]+)`", text))
    fields = {name for kind in (Expectation, Approve, Deed) for name in kind.__struct_fields__}
    assert fields - words == set()


def test_expectations_without_their_notebook_are_no_pass(tmp_path):
    (tmp_path / "runbooks").mkdir()
    (tmp_path / "parameters" / "promotion").mkdir(parents=True)
    (tmp_path / "parameters" / "promotion" / "expect.yaml").write_text("main: a\n")
    with pytest.raises(InputError, match="no notebook for: promotion"):
        in_home(tmp_path)
