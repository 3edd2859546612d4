"""The words of the node rules and docs/codes.md are the same.

Covered: every code, reason and state that the rules below can give is documented under Holders or Cordon.
Not covered: whether the sentence beside it is right; the steps built of these rules (service.py).
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import gpurunbook.nodes

ROOM = Path(gpurunbook.nodes.__file__).parent
CODES = Path(__file__).parents[2] / "docs" / "codes.md"

RULES = (
    *("capacity", "claims", "controllers", "cordon", "discovery", "families", "holders", "machines", "operands"),
    *("resources", "selectors", "shapes", "signals", "tolerations", "vmshapes"),
)

OTHER_WORDS = {
    # Names of charts, namespaces, workloads, checks and of the API's own problems: no words of ours.
    *("dra-driver", "dra-driver-nvidia-gpu", "gpu-operator", "hami-device-plugin", "hami-system", "kata-deploy"),
    *("kube-system", "node-critical", "node-driver-registrar", "node-feature-discovery", "not-found"),
    *("nvidia-device-plugin", "nvidia-dra-driver-gpu", "nvidia-gpu-operator", "nvidia-sandbox-device-plugin"),
    *("other-hands", "system-node-critical", "system-upgrade-controller", "topology-updater"),
}


def words() -> set[str]:
    """Every hyphenated word that stands as a text in the rules."""
    trees = (ast.parse((ROOM / f"{name}.py").read_text()) for name in RULES)
    texts = (n.value for tree in trees for n in ast.walk(tree) if isinstance(n, ast.Constant))
    return {t for t in texts if isinstance(t, str) and re.fullmatch(r"[a-z]+(-[a-z]+)+", t)}


def documented() -> set[str]:
    """The words in back-quotes in the two sections."""
    sections = re.split(r"(?m)^## ", CODES.read_text())
    ours = [s for s in sections if s.startswith(("Holders\n", "Cordon\n"))]
    assert len(ours) == 2
    return {w for s in ours for w in re.findall(r"`([a-z]+(?:-[a-z]+)*)`", s)}


def test_every_word_is_documented() -> None:
    assert words() - OTHER_WORDS - documented() == set()


def test_the_list_of_other_words_is_not_longer_than_it_must_be() -> None:
    assert words() >= OTHER_WORDS
