"""Per-replica values from golden inputs, made through the public API."""

from __future__ import annotations

from typing import Any

from conformance.codec import decode
from conformance.strategies import make_strategy


def distributed_value(strategy: Any, value: Any) -> Any:
    """A JSON list of leaves as a per-replica value, anything else as a plain one.

    A list of another length than the strategy has replicas is made by a strategy of that length.
    """
    if not isinstance(value, list):
        return decode(value)
    components = [decode(item) for item in value]
    if len(components) != strategy.num_replicas_in_sync:
        strategy = make_strategy("mirrored", len(components))
    return strategy.distribute_values_from_function(lambda context: components[context.replica_id_in_sync_group])
