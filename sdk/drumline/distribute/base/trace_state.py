"""What JAX is doing on this thread: whether it traces, and the settings that a trace depends on."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
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


def is_tracing() -> bool:
    """True inside a function that JAX is transforming: under jit, grad, vmap, scan, cond, a loop ..."""
    return bool(get_opaque_trace_state() != state_outside_traces())


@cache
def state_outside_traces() -> Any:
    """JAX's trace state outside every transformation, as every new thread has it."""
    # JAX keeps its state per thread; this one may be inside a trace when it is first asked.
    with ThreadPoolExecutor(1) as fresh:
        return fresh.submit(get_opaque_trace_state).result()


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
