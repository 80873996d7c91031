"""The words of the engine: reduce operations, synchronization and aggregation of variables."""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

from drumline.distribute.errors import InvalidValueError

_E = TypeVar("_E", bound="NamedEnum")


class NamedEnum(Enum):
    """An enum whose members are also accepted by name, in any case."""

    @classmethod
    def parse(cls: type[_E], value: object) -> _E:
        """The member itself, or the one with that name; InvalidValueError lists the names."""
        if isinstance(value, cls):
            return value
        name = getattr(value, "name", value)
        if isinstance(name, str) and name.upper() in cls.__members__:
            return cls[name.upper()]
        raise InvalidValueError(
            f"{value!r:.80} is no {cls.__name__}; use one of {', '.join(m.lower() for m in cls.__members__)}"
        )


class ReduceOp(NamedEnum):
    """How values of several replicas become one."""

    SUM = "SUM"
    MEAN = "MEAN"

    @staticmethod
    def from_variable_aggregation(aggregation: VariableAggregation | str) -> ReduceOp:
        """The operation an aggregation stands for; InvalidValueError for NONE and ONLY_FIRST_REPLICA."""
        name = VariableAggregation.parse(aggregation).name
        if name not in ReduceOp.__members__:
            raise InvalidValueError(f"aggregation='{name.lower()}' stands for no reduce operation; use 'sum' or 'mean'")
        return ReduceOp[name]


class VariableSynchronization(NamedEnum):
    """When the copies of a variable are brought together."""

    AUTO = 0
    NONE = 1
    ON_WRITE = 2
    ON_READ = 3


class VariableAggregation(NamedEnum):
    """How updates that differ between replicas become one."""

    NONE = 0
    SUM = 1
    MEAN = 2
    ONLY_FIRST_REPLICA = 3
