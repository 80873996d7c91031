"""A variable's state as golden files write it."""

from __future__ import annotations

from typing import Any

import jax

from conformance.codec import encode


def state_of(strategy: Any, variable: Any) -> Any:
    """All copies, replica 0 first; the single one of a central variable."""
    copies = strategy.local_results(variable)
    if len(copies) == strategy.num_replicas_in_sync and all(isinstance(copy, jax.Array) for copy in copies):
        return {"variable": [encode(copy) for copy in copies]}
    return {"central_variable": encode(variable.value)}
