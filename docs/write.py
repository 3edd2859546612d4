"""Writes the pages of this folder that follow from the package: commands.md and parameters.md.

`python docs/write.py`; a test says when that is due.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from gpurunbook.cli import COMMANDS
from gpurunbook.declared import runbooks
from gpurunbook.declared.common import Changing, Common

COMMANDS_HEAD = """# Commands

`gpurunbook COMMAND --help` says the rest. Tables are for a terminal, `-o json` for machines; messages go to standard
error. Exit codes: [verdicts.md](verdicts.md).

| command | does |
|---|---|
"""

PARAMETERS_HEAD = """# Parameters

They stand in the first code cell of a runbook. Give them there, with `--set NAME=VALUE`, or in YAML files with
`--parameters FILE`. A name that a runbook does not have and a value of another type are refused before anything is sent
to a cluster. papermill's `-p` guesses types (`false` becomes a text, `1.10` a number): use `-f FILE`.

## Every runbook
"""

TABLE = "\n| parameter | default | meaning |\n|---|---|---|\n"


def commands() -> str:
    """Writes nothing. The page of commands."""
    rows = "".join(f"| `gpurunbook {name}` | {line} |\n" for name, (_, line) in sorted(COMMANDS.items()))
    return COMMANDS_HEAD + rows


def parameters() -> str:
    """Writes nothing. The page of parameters: those that runbooks share, then each runbook's own."""
    shared = TABLE + "".join(_rows(Common, None))
    changing = "\n## Those that change something\n" + TABLE + "".join(_rows(Changing, Common))
    return PARAMETERS_HEAD + shared + changing + "".join(map(_of, runbooks.names()))


def _of(runbook: str) -> str:
    own = runbooks.declared(runbook).parameters
    shared = Changing if issubclass(own, Changing) else Common
    return f"\n## {runbook}\n" + TABLE + "".join(_rows(own, shared))


def _rows(kind: type[msgspec.Struct], but: type[msgspec.Struct] | None) -> Iterator[str]:
    shared = {field.name for field in msgspec.structs.fields(but)} if but else set()
    for field in msgspec.structs.fields(kind):
        if field.name not in shared:
            default = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
            (about,) = [item.description for item in field.type.__metadata__ if isinstance(item, msgspec.Meta)]
            yield f"| `{field.name}` | `{default!r}` | {about} |\n"


PAGES = {"commands.md": commands, "parameters.md": parameters}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (Path(__file__).parent / name).write_text(page())
