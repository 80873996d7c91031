"""What JAX is doing on this thread: whether it traces, and the settings that a trace depends on."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache
from operator import attrgetter
from typing import Any

import jax
from jax.extend.core import get_opaque_trace_state

#: Settings that each thread has for itself and that a trace depends on, with what sets them.
_TRACE_SETTINGS: dict[str, Any] = {
    "jax_enable_x64": jax.enable_x64,
    "jax_default_matmul_precision": jax.default_matmul_precision,
    "jax_numpy_dtype_promotion": jax.numpy_dtype_promotion,
    "jax_numpy_rank_promotion": jax.numpy_rank_promotion,
    "jax_default_prng_impl": jax.default_prng_impl,
    "jax_threefry_partitionable": jax.threefry_partitionable,
}
#: Of ``jax.config``: the settings that make another program, as for ``jax.jit``. No function of ours: each step asks.
read_trace_settings: Callable[[Any], tuple[Hashable, ...]] = attrgetter(*_TRACE_SETTINGS)

#: The trace that a program on shapes runs in, and its devices; none as a rule.
_abstract: list[tuple[Any, tuple[Any, ...]]] = []


def is_tracing() -> bool:
    """True inside a function that JAX is transforming: under jit, grad, vmap, scan, cond, a loop ..."""
    return bool(get_opaque_trace_state() != state_outside_traces())


@cache
def state_outside_traces() -> Any:
    """JAX's trace state outside every transformation; of a program that runs on shapes, that of the program itself."""
    if _abstract:
        return _abstract[-1][0]
    # As every new thread has it. JAX keeps its state per thread; this one may be inside a trace when it is first asked.
    with ThreadPoolExecutor(1) as fresh:
        return fresh.submit(get_opaque_trace_state).result()


@contextmanager
def run_abstractly(devices: Sequence[Any]) -> Iterator[None]:
    """Takes the trace that this thread is in for no trace: a whole program runs in it, on shapes (see planning).

    ``devices``: what it takes for those that JAX shows.
    """
    _abstract.append((get_opaque_trace_state(), tuple(devices)))
    state_outside_traces.cache_clear()
    try:
        yield
    finally:
        _abstract.pop()
        state_outside_traces.cache_clear()


def is_abstract() -> bool:
    """True while a program runs on shapes: its arrays are tracers, its devices may not be there."""
    return bool(_abstract)


def abstract_devices() -> tuple[Any, ...]:
    """The devices of a program that runs on shapes; none where arrays are real."""
    return _abstract[-1][1] if _abstract else ()


@contextmanager
def under_settings(settings: tuple[Hashable, ...]) -> Iterator[None]:
    """Gives this thread the settings that another one told."""
    with ExitStack() as stack:
        for setting, value in zip(_TRACE_SETTINGS.values(), settings, strict=True):
            stack.enter_context(setting(value))
        yield


def x64_enabled() -> bool:
    """Tells whether JAX keeps 64-bit types on this thread."""
    return bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]  # config attributes are made at run time
