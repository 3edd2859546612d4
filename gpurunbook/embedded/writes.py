"""Create, replace, patch and delete."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

from gpurunbook.embedded.requests import Request, Target
from gpurunbook.embedded.resources import Catalog, Resource
from gpurunbook.embedded.status import not_implemented
from gpurunbook.embedded.store import Store


class Writes:
    """The writing verbs."""

    def __init__(self, store: Store, catalog: Catalog, now: Callable[[], dt.datetime]) -> None:
        self.store, self.catalog, self.now = store, catalog, now

    def _no(self, _request: Request, target: Target, resource: Resource) -> tuple[int, bytes]:
        raise not_implemented(f"{target.verb} of {resource.plural}")

    create = update = patch = delete = deletecollection = evict = bind = _no
