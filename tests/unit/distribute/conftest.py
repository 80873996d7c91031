"""Eight CPU devices for every test of the engine."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest

import drumline.distribute as dist
from support.compiled import keep_compiled_programs

dist.set_cpu_devices(8)


@pytest.fixture(scope="session", autouse=True)
def compiled_programs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Of all tests."""
    keep_compiled_programs(tmp_path_factory.mktemp("programs"))


@pytest.fixture
def two() -> dist.MirroredStrategy:
    """Two replicas."""
    return dist.MirroredStrategy(jax.devices()[:2])


@pytest.fixture
def three() -> dist.MirroredStrategy:
    """Three replicas."""
    return dist.MirroredStrategy(jax.devices()[:3])


@pytest.fixture
def four() -> dist.MirroredStrategy:
    """Four replicas."""
    return dist.MirroredStrategy(jax.devices()[:4])


@pytest.fixture
def x64() -> Iterator[None]:
    """64-bit types, for one test."""
    with jax.enable_x64(True):
        yield
