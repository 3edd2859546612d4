"""The sweep's bench, one for each worker, and how many points there are.

GPURUNBOOK_SWEEP=full asks for the whole matrix; without it every mutation and every gap around it is tried once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from bench import Bench

FULL = os.environ.get("GPURUNBOOK_SWEEP") == "full"


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("sweep"))
    yield made
    made.close()


@pytest.fixture
def full() -> bool:
    """Whether the whole matrix is asked for."""
    return FULL


@pytest.fixture
def point(subtests: pytest.Subtests, record_property: Callable[[str, object], None]) -> Callable[..., object]:
    """One point of the sweep, counted: `with point("label"):`."""

    def counted(label: str) -> object:
        record_property("sweep point", label)
        return subtests.test(msg=label)

    return counted
