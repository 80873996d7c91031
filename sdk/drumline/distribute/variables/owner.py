"""A strategy as its variables know it: where they are put, and the list of those that live."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, ClassVar, cast

import jax

from drumline.distribute.base.enums import ReduceOp, VariableAggregation, VariableSynchronization
from drumline.distribute.combine import combiners
from drumline.distribute.contexts import context
from drumline.distribute.values.device_group import DeviceGroup


class VariableOwner(DeviceGroup):
    """Devices, and the variables made for them. Every strategy is one.

    Variables are typed Any here: their classes name their owner, and imports go one way.
    """

    #: False where variables stay where JAX puts them (default strategy).
    places_variables: ClassVar[bool] = True
    #: May devices keep what a step left on them of a variable that is held once?
    keeps_copies: bool = False
    #: The context of code outside every scope; only the default strategy has one.
    default_replica_context: Any = None
    #: Where the state was last saved or restored, for the message when it is lost.
    last_checkpoint: str | None = None

    def __init__(
        self, devices: Sequence[jax.Device], replica_devices: Sequence[Sequence[jax.Device]] | None = None
    ) -> None:
        super().__init__(devices, replica_devices)
        self._variables: list[weakref.ref[Any]] = []
        self._variables_made = 0

    def variable_class(self, synchronization: VariableSynchronization, aggregation: VariableAggregation) -> type[Any]:
        """The class that a new variable has."""
        raise NotImplementedError

    def register_variable(self, variable: Any) -> None:
        """Makes ``variable`` an input of the steps traced from now on."""
        self._variables.append(weakref.ref(variable))

    def reduce_stacked(self, op: ReduceOp, array: jax.Array, axis: Any = None) -> jax.Array:
        """Reduces [replicas, *shape] on the devices that hold it."""
        return combiners.reduce_stacked(self, op, array, axis)

    def next_variable_name(self) -> str:
        """The name of a variable that was given none."""
        self._variables_made += 1
        return f"variable_{self._variables_made - 1}"

    def own_variables(self) -> list[Any]:
        """Live variables of this strategy in creation order."""
        living = [(reference, reference()) for reference in self._variables]
        self._variables = [reference for reference, variable in living if variable is not None]
        return [variable for _, variable in living if variable is not None]

    def live_variables(self) -> list[Any]:
        """Variables that a step may use: this strategy's, and plain ones made outside every scope."""
        default = cast("VariableOwner | None", context.made_default_strategy())
        plain = default.own_variables() if default is not None and default is not self else []
        return [variable for variable in (*self.own_variables(), *plain) if variable.is_initialized]


def current_owner() -> VariableOwner:
    """The current strategy, to make a variable for."""
    return cast(VariableOwner, context.current_strategy())
