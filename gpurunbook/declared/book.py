"""The shape of a declaration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gpurunbook.plan import Change, Check, Stood


@dataclass(frozen=True)
class Step:
    """One step. id: also the id of its cell; needs: ids of the steps that must have passed in this run."""

    id: str
    title: str
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Permission:
    """One thing that the runbook does at the API server, as a Role would allow it.

    namespace: empty for cluster-wide; `{name}` is filled from the parameters, a list parameter gives one each.
    """

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@dataclass(frozen=True)
class Stands:
    """What must stand from one step on until the run closes, such as a cordon.

    what: its name; since: the step after which it must; again: from the parameters, the run id and when it last stood,
    the change that makes it again (without mutations while it stands); recheck: what is judged anew once it was made
    again.
    """

    what: str
    since: str
    again: Callable[[Any, str, Stood | None], Change]
    recheck: Callable[[Any], Check]


@dataclass(frozen=True)
class Runbook:
    """One runbook. parameters: a msgspec.Struct class whose fields all have defaults and descriptions.

    changes: whether it can change the cluster; lease: the target that an apply keeps other runs from, with
    `{parameter}` filled in; stands: what must not be lost in the middle; lasts: for how many hours a step counts that
    has passed, and then only until what it needs is judged again; None: as long as the run.
    """

    name: str
    title: str
    parameters: type[msgspec.Struct]
    steps: tuple[Step, ...]
    permissions: tuple[Permission, ...] = field(default=())
    changes: bool = False
    lease: str = ""
    stands: Stands | None = None
    lasts: float | None = None

    def step(self, step: str) -> Step | None:
        """Writes nothing. The step of that id."""
        return next((s for s in self.steps if s.id == step), None)


def described(text: str) -> Any:
    """Writes nothing. The description of a parameter, as msgspec metadata."""
    return msgspec.Meta(description=text)
