"""The audit's codes: the table in docs/codes.md has each of them with its effect, and no other.

Not covered: whether the sentences say the same.
"""

from __future__ import annotations

import re
from pathlib import Path

from gpurunbook.supply.auditcodes import FAILING, LIST_CODES, RECORD_CODES

PAGE = Path(__file__).parents[2] / "docs" / "codes.md"


def documented() -> dict[str, str]:
    section = re.search(r"^## Audit\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert section is not None
    rows = re.findall(r"^\| (`[^|]+`) \| ([^|]+) \|", section[1], re.MULTILINE)
    return {code: effect.split(",")[0] for codes, effect in rows for code in re.findall(r"`([^`]+)`", codes)}


def test_the_page_lists_exactly_the_codes_with_their_effect() -> None:
    words = {"fail": "fails", "note": "note"}
    records = {code: words[known.effect] for code, known in RECORD_CODES.items()}
    lists = {code: known.effect for code, known in LIST_CODES.items()}
    assert documented() == records | lists


def test_every_code_that_stops_a_run_says_what_to_do() -> None:
    stopping = {**LIST_CODES, **{code: RECORD_CODES[code] for code in FAILING}}
    assert [code for code, known in stopping.items() if not known.remedy.endswith(".")] == []
