"""Processes that run one program: it is compared between them once, when it is built, with what all replicas get of it.

What is handed to a later call is not compared: that would cost each step an exchange.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import jax

from drumline.distribute.cluster.exchange import digest
from drumline.distribute.tracing.arguments import StepArguments
from drumline.distribute.tracing.step import TracedStep
from drumline.distribute.values.device_group import DeviceGroup


def require_same_program(
    group: DeviceGroup,
    text: str,
    what: str,
    arguments: StepArguments | None = None,
    traces: Sequence[TracedStep] = (),
) -> None:
    """ProcessesDifferError where a process of the group has another program, or another value for all replicas.

    ``text``: the program. Compared are also the plain ``arguments``, and what the step captures: arrays, and variables
    made outside of the strategy's scope. Nothing is compared in a program of one process.
    """
    if group.exchange is None:
        return
    values = {} if arguments is None else _plain_arguments(arguments)
    for traced in traces:
        values |= {f"captured array {i}": _value(value) for i, value in enumerate(traced.constants)}
        values |= {repr(one): digest(one.value) for one in traced.read if one.storage == "single"}
    values["its program"] = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    group.exchange.require_same(what, values)


def _plain_arguments(arguments: StepArguments) -> dict[str, Any]:
    """What every replica is given, by the place where the call has it."""
    args, kwargs = jax.tree.unflatten(arguments.tree, range(len(arguments.own_leaves)))
    paths = jax.tree_util.tree_flatten_with_path({"args": args, "kwargs": kwargs})[0]
    return {
        _name(path): _value(arguments.leaves[number]) for path, number in paths if arguments.kinds[number] == "plain"
    }


def _name(path: Any) -> str:
    key, *rest = path
    return f"{key.key}{jax.tree_util.keystr(tuple(rest))}"


def _value(leaf: Any) -> Any:
    """A number as it is, which a message can show; of an array its digest, or its type if all processes have it."""
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        return f"{leaf.dtype}{list(leaf.shape)}"
    return leaf if isinstance(leaf, (int, float)) else digest(leaf)
