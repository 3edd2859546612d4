"""What a folder of manifests holds besides: charts that are not rendered, packed charts, and files of other kinds.

A chart's templates are Go, and only helm can say what they become. Files that nobody applies are named and not judged;
a secret of a known shape in one of them is told all the same.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from gpurunbook import leaks
from gpurunbook.errors import InputError
from gpurunbook.supply import secrets
from gpurunbook.supply.flaws import Flaw
from gpurunbook.supply.packed import KUSTOMIZATIONS, VALUES
from gpurunbook.supply.strictyaml import Text

_ENDINGS = (".yaml", ".yml", ".json")
_PACKED = (".tgz", ".tar.gz")
"""What helm and Fleet take for a chart."""

_PROSE = (".md", ".rst", ".adoc", ".gotmpl")
"""Documentation shows addresses with passwords that open nothing."""

_NAMED = (".env", ".properties")
_PAIR = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*[\"']?(.*?)[\"']?\s*")
_SHOWN = 5


def is_reviewed(path: str) -> bool:
    """Writes nothing. Whether a file of a folder is reviewed, by its name: what kubectl, helm and kustomize take.

    Also in capitals: whoever applies such a file by its name is not stopped by them.
    """
    return path.lower().endswith(_ENDINGS) or posixpath.basename(path) in KUSTOMIZATIONS


def few(names: list[str]) -> str:
    """Writes nothing. The first names, and how many more there are."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def hidden(path: str, data: bytes) -> Iterator[Flaw]:
    """Writes nothing. Secrets in a file that is no manifest: of known shapes, and in a dotenv file by their names."""
    if path.lower().endswith(_PROSE) or b"\x00" in data[:8192]:
        return
    text = data.decode(errors="replace")
    for leak in leaks.scan(text):
        yield secrets.shaped(leak.kind, leak.line, "")
    if path.lower().endswith(_NAMED):
        for number, line in enumerate(text.splitlines(), 1):
            pair = _PAIR.fullmatch(line)
            if pair and secrets.is_secret(pair[1], Text(pair[2], True, number)):
                yield secrets.named(number, "", pair[1])


class Beside:
    """Takes note of files one after another, and says at the end what was not seen."""

    def __init__(self) -> None:
        self._charts: set[str] = set()
        self._held: dict[str, list[str]] = {}
        self._packed: list[str] = []
        self.passed_over: list[str] = []

    def chart(self, path: str) -> None:
        """Writes nothing. Takes note of a Chart.yaml: what follows below its folder belongs to the chart."""
        if posixpath.basename(path) == "Chart.yaml":
            self._charts.add(posixpath.dirname(path))

    def template(self, path: str) -> bool:
        """Writes nothing. Whether helm takes a file for a template: it is among those of a chart."""
        return any(path.startswith(posixpath.join(root, "templates", "")) for root in self._roots(path))

    def values(self, path: str) -> bool:
        """Writes nothing. Whether a file has values of a chart, which may be none."""
        return path.endswith(VALUES) and bool(self._roots(path))

    def hold(self, path: str) -> bool:
        """Takes note of a file that only helm can render, when it belongs to a chart; whether it does."""
        roots = self._roots(path)
        if roots:
            whole = roots[0]  # what would be rendered
            self._held.setdefault(whole, []).append(path.removeprefix(whole).lstrip("/"))
        return bool(roots)

    def other(self, path: str) -> bool:
        """Takes note of a file of another kind; whether that is all there is to say of it."""
        if not path.lower().endswith(_PACKED):
            self.passed_over.append(path)
            return True
        if not self.hold(path):
            self._packed.append(path)
        return False

    def unseen(self) -> Iterator[tuple[str, InputError]]:
        """Writes nothing. Each chart that was not rendered, once."""
        for root, names in sorted(self._held.items()):
            message = f"the chart is not rendered, so what it would apply was not seen: {few(sorted(names))}"
            yield posixpath.join(root, "Chart.yaml"), _unseen(message)
        for path in sorted(self._packed):
            yield path, _unseen("a packed chart: what it would apply was not seen")

    def _roots(self, path: str) -> list[str]:
        """The charts that a file is in, outermost first."""
        found = []
        outer = posixpath.dirname(path)
        while outer not in found:
            found.append(outer)
            outer = posixpath.dirname(outer)
        return [one for one in found[::-1] if one in self._charts]


def _unseen(message: str) -> InputError:
    remedy = "Render it with your values (helm template) and review that; its values.yaml can be given by its name."
    return InputError(message, subject="line 1", code="not-rendered", remedy=remedy)
