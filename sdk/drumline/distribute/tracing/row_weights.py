"""Rows of a batch that count, and rows that only fill it up: what a step asks for, and what it says of its outputs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from drumline.distribute.contexts import context
from drumline.distribute.contexts.step_trace import StepTrace
from drumline.distribute.errors import InvalidValueError
from drumline.distribute.values.device_group import DeviceGroup


def row_weights(like: Any = None) -> jax.Array:
    """float32 [rows]: 1 for each row of this replica's batch, 0 for those that only fill it up.

    They fill up under ``InputOptions(last_batch="pad")`` alone; elsewhere all are 1. ``like``: an array of the batch,
    needed where the strategy knows of no batch: with one replica, whose batches are bare arrays.
    Raises ContextError outside a step, InvalidValueError where the number of rows is not known or another.
    """
    context.require_replica_context("row_weights")
    trace = context.current_trace()
    known = None if trace is None else _find_weights(trace)
    if known is None:
        if like is None or not np.ndim(like):
            raise InvalidValueError(
                "row_weights() knows of no batch here: pass an array of the batch, dist.row_weights(x)"
            )
        return jnp.ones(np.shape(like)[0], jnp.float32)
    if like is not None and np.shape(like)[:1] != known.shape:
        raise InvalidValueError(f"row_weights of {list(np.shape(like))}: the batch has {known.shape[0]} rows")
    return known


def weights_of(leaf: Any) -> jax.Array | None:
    """The weights of the rows of ``leaf`` where its batch may be padded; None where all rows count."""
    trace = context.current_trace()
    if trace is None or trace.row_weights is None or np.shape(leaf)[:1] != trace.row_weights.shape:
        return None
    return _find_weights(trace)


class RowsMark:
    """What :func:`rows` returns: outputs that have a row for each row of the batch."""

    __slots__ = ("tree",)

    def __init__(self, tree: Any) -> None:
        self.tree = tree

    def check(self, array: Any, trace: StepTrace) -> None:
        """InvalidValueError for an output that has not the batch's rows."""
        known = _find_weights(trace)
        if not array.ndim or (known is not None and array.shape[:1] != known.shape):
            raise InvalidValueError(
                f"dist.rows of an output of shape {list(array.shape)}: it needs a row for each row of the batch"
                + (f", {known.shape[0]}" if known is not None else "")
            )


def rows(tree: Any) -> Any:
    """Marks outputs of a step that keep the batch's rows: of a padded batch only the true rows leave ``run``.

    Outside a step the value is returned as it is.
    """
    trace = context.current_trace()
    if trace is None:
        return tree
    trace.minds_row_weights = True
    return RowsMark(tree)


def refuse_unminded_padding(owner: DeviceGroup, counted: tuple[int, ...], name: str, *, minds: bool) -> None:
    """InvalidValueError for a step that takes rows which only fill up for true ones."""
    if not minds:
        # Over several processes every replica needs as many rows.
        way = "drop_remainder=True" if owner.has_foreign_devices else "InputOptions(last_batch='exact')"
        raise InvalidValueError(
            f"step {name} got a padded batch, of which {list(counted)} rows per replica count, and does not ask which: "
            "use dist.global_mean or dist.row_weights() for losses, and return dist.rows(y) for outputs with a row per "
            f"row of the batch, or use {way}"
        )


def _find_weights(trace: StepTrace) -> jax.Array | None:
    if trace.row_weights is not None:
        trace.minds_row_weights = True
        weights: jax.Array = trace.row_weights
        return weights
    if trace.rows is None:
        return None
    return jnp.ones(trace.rows[trace.replica or 0], jnp.float32)
