"""A nest of variables: what an optimizer remembers, kept where steps change it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from drumline.distribute.base.enums import VariableAggregation
from drumline.distribute.errors import InvalidValueError
from drumline.distribute.variables.variable import Variable


class VariableTree:
    """Variables in the nest that they were made from. Make it by ``dist.variables``.

    It is a pytree whose leaves are the variables: it goes into a checkpoint, and is filled in place, as they do.
    """

    def __init__(self, tree: Any, aggregation: VariableAggregation | str | None = None) -> None:
        leaves, structure = jax.tree.flatten(tree)
        self._structure: Any = structure
        self._leaves = [_variable_of(leaf, aggregation) for leaf in leaves]

    @property
    def variables(self) -> Any:
        """The nest of the variables themselves, as checkpoints take it; what is no array stands as it is."""
        return jax.tree.unflatten(self._structure, self._leaves)

    @property
    def values(self) -> Any:
        """The nest of the values: this replica's inside a step, the aggregated ones elsewhere."""
        return jax.tree.unflatten(self._structure, [_value_of(leaf) for leaf in self._leaves])

    def assign(self, tree: Any) -> Self:
        """Sets all values. InvalidValueError, before any is set, for a nest of another structure or other shapes."""
        leaves, structure = jax.tree.flatten(tree)
        if structure != self._structure:
            raise InvalidValueError(f"assign of {structure} to variables in {self._structure}: the structures differ")
        for variable, value in zip(self._leaves, leaves, strict=True):
            if isinstance(variable, Variable) and np.shape(value) != variable.shape:
                raise InvalidValueError(
                    f"assign of a value of shape {list(np.shape(value))} to {variable!r}: the shapes must be equal"
                )
        for variable, value in zip(self._leaves, leaves, strict=True):
            if isinstance(variable, Variable):
                variable.assign(value)
        return self

    def __repr__(self) -> str:
        count = sum(isinstance(leaf, Variable) for leaf in self._leaves)
        return f"VariableTree({count} variables in {self._structure})"


def _flatten(tree: VariableTree) -> tuple[list[Any], Any]:
    return tree._leaves, tree._structure


def _unflatten(structure: Any, leaves: Iterable[Any]) -> VariableTree:
    """A nest of these leaves, whatever they are."""
    made = VariableTree.__new__(VariableTree)
    made._structure, made._leaves = structure, [*leaves]
    return made


jax.tree_util.register_pytree_node(VariableTree, _flatten, _unflatten)


def variables(tree: Any, *, aggregation: VariableAggregation | str | None = None) -> VariableTree:
    """Makes a variable of every array and number in ``tree``, such as an optimizer's state; in ``scope()``.

        with strategy.scope():
            memory = dist.variables(optimizer.init(weights))

        def step(x):
            updates, new = optimizer.update(gradients, memory.values)
            memory.assign(new)

    ``aggregation``: what differing writes mean. By default the mean for floats, and replica 0's value for integers and
    bools, of which there is no mean; values that are the same on all replicas cost no exchange.
    """
    return VariableTree(tree, aggregation)


def _variable_of(leaf: Any, aggregation: VariableAggregation | str | None) -> Any:
    if not isinstance(leaf, (jax.Array, np.ndarray, np.generic, bool, int, float, complex)):
        return leaf
    if aggregation is not None:
        return Variable(leaf, aggregation=aggregation)
    has_mean = jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)
    return Variable(leaf, aggregation="mean" if has_mean else "only_first_replica")


def _value_of(leaf: Any) -> Any:
    return leaf.value if isinstance(leaf, Variable) else leaf
