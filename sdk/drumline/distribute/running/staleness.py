"""Whether a compiled step is out of date: traced again it must be the same program, with the same constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from drumline.distribute.errors import StaleProgramError
from drumline.distribute.running.captured_values import is_simple, simple_content
from drumline.distribute.tracing import jaxprs
from drumline.distribute.tracing.step import TracedStep


def refuse_stale(compiled: Sequence[TracedStep], fresh: Sequence[TracedStep], opaque: Sequence[str]) -> None:
    """StaleProgramError where ``fresh`` traces are another program than those that were compiled."""
    found = _difference(compiled, fresh)
    if found is None:
        return
    cause = (
        f"what it captures and the engine can't compare: {', '.join(opaque)}"
        if opaque
        else "something that the engine doesn't see, such as a file, a clock, or functions more than 3 calls deep"
    )
    raise StaleProgramError(
        f"the compiled step is out of date: traced again, {found}. It depends on {cause}. Pass it in args, or make a "
        "new function when it changes"
    )


def _difference(compiled: Sequence[TracedStep], fresh: Sequence[TracedStep]) -> str | None:
    if len(compiled) != len(fresh):
        return f"it is {len(fresh)} programs instead of {len(compiled)}"
    for old, new in zip(compiled, fresh, strict=True):
        found = (
            jaxprs.difference(old.unmarked or old.jaxpr, new.jaxpr)
            or _constants_differ(old.constants, new.constants)
            or _outputs_differ(old, new)
        )
        if found is not None:
            return found
    return None


def _constants_differ(old: Sequence[Any], new: Sequence[Any]) -> str | None:
    for number, (before, after) in enumerate(zip(old, new, strict=True)):
        if before is not after and not is_same_constant(before, after):
            return f"its constant {number}, {np.shape(after)}, has other values"
    return None


def is_same_constant(old: Any, new: Any) -> bool:
    """Equal shape, dtype and bits."""
    if jnp.issubdtype(getattr(old, "dtype", np.float32), jax.dtypes.prng_key):
        old, new = jax.random.key_data(old), jax.random.key_data(new)
    before, after = np.asarray(old), np.asarray(new)
    return before.dtype == after.dtype and before.shape == after.shape and before.tobytes() == after.tobytes()


def _outputs_differ(old: TracedStep, new: TracedStep) -> str | None:
    if old.output_tree != new.output_tree:
        return f"it returns {new.output_tree[0]} instead of {old.output_tree[0]}"
    if [*map(id, old.read)] != [*map(id, new.read)] or [*map(id, old.written)] != [*map(id, new.written)]:
        return "it uses other variables"
    for before, after in zip(old.output_leaves, new.output_leaves, strict=True):
        if (before.kind, before.index) != (after.kind, after.index):
            return "it returns something else"
        if is_simple(before.value) and simple_content(before.value) != simple_content(after.value):
            return f"it returns {after.value!r} instead of {before.value!r}"
    return None
