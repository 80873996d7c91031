"""Executors, and a heap that each test leaves as it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

_MPMD = pytest.mark.long("whether a program is stale is found before an executor has it")


@pytest.fixture(params=["spmd", pytest.param("mpmd", marks=_MPMD)])
def executor(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", autouse=True)
def frozen_heap() -> None:
    """A collection looks at what these tests made, and not at the million objects of JAX each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def forgotten_functions(frozen_heap: None) -> Iterator[None]:
    """Strategies are shared between tests; what one test defined, no other calls."""
    yield
    gc.collect()
    # What is left lives on: the next collection need not look at it again.
    gc.freeze()
