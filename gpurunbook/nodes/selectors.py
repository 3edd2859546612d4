"""Kubernetes selectors on a node: does a node selector, an affinity or a label selector choose it?

Terms of a node selector are alternatives, the expressions of one term must all hold, and an empty term chooses
nothing (k8s.io/component-helpers nodeaffinity).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_INTEGER = re.compile(r"[+-]?[0-9]+")


def node_selector(selector: Mapping[str, Any], name: str, labels: Mapping[str, str] | None) -> bool | None:
    """Writes nothing. Whether a NodeSelector (`nodeSelectorTerms`) chooses the node; None when its labels are needed
    and not known."""
    answers = [_term(term, name, labels) for term in selector.get("nodeSelectorTerms") or ()]
    if True in answers:
        return True
    return None if None in answers else False


def _term(term: Mapping[str, Any], name: str, labels: Mapping[str, str] | None) -> bool | None:
    fields = term.get("matchFields") or ()
    expressions = term.get("matchExpressions") or ()
    if not fields and not expressions:
        return False
    if not all(_expression(e, {"metadata.name": name}) for e in fields):
        return False
    if not expressions:
        return True
    if labels is None:
        return None
    return all(_expression(e, labels) for e in expressions)


def label_selector(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Writes nothing. Whether a LabelSelector chooses the labels: none at all chooses nothing, an empty one all."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    return all(labels.get(k) == v for k, v in wanted.items()) and all(
        _expression(e, labels) for e in selector.get("matchExpressions") or ()
    )


def _expression(expression: Mapping[str, Any], values: Mapping[str, str]) -> bool:
    key, operator = expression.get("key"), expression.get("operator")
    wanted = expression.get("values") or []
    seen = values.get(str(key))
    match operator:
        case "In":
            return seen is not None and seen in wanted
        case "NotIn":
            return seen is None or seen not in wanted
        case "Exists":
            return seen is not None
        case "DoesNotExist":
            return seen is None
        case "Gt" | "Lt":
            if (
                seen is None
                or len(wanted) != 1
                or not (_INTEGER.fullmatch(seen) and _INTEGER.fullmatch(str(wanted[0])))
            ):
                return False
            return int(seen) > int(wanted[0]) if operator == "Gt" else int(seen) < int(wanted[0])
    return False


def daemon_runs_on(spec: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
    """Writes nothing. Whether a DaemonSet's pod spec chooses the node: nodeName, nodeSelector, required affinity."""
    if spec.get("nodeName") not in (None, "", name):
        return False
    if any(labels.get(k) != v for k, v in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or node_selector(required, name, labels) is True
