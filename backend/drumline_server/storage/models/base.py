"""What every table shares: names of constraints, types of columns, and checks of states."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, ClassVar

from pydantic_core import from_json, to_json
from sqlalchemy import BigInteger, CheckConstraint, Dialect, LargeBinary, MetaData, Table, Text, TypeDecorator
from sqlalchemy.orm import DeclarativeBase

NAMING_CONVENTION = {
    "ix": "ix_%(column_0_N_label)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Document(TypeDecorator[Any]):  # Any: whatever JSON can hold
    """JSON as text. NaN and infinities become the strings that the contracts read back as floats."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """The value as JSON text; SQL NULL for `None`."""
        return None if value is None else to_json(value, inf_nan_mode="strings").decode()

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """The value that was stored."""
        return None if value is None else from_json(value)


class Base(DeclarativeBase):
    """Integers have 64 bits, times are microseconds since 1970 UTC, documents are JSON text."""

    metadata = MetaData(naming_convention=NAMING_CONVENTION)
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        int: BigInteger,
        bytes: LargeBinary,
        dict[str, Any]: Document,
        list[Any]: Document,
    }


def table_of(model: type[Base]) -> Table:
    """The table of a model, for statements that make no objects: they cost half of what the others do."""
    table = model.__table__
    assert isinstance(table, Table)
    return table


def one_of(column: str, states: Iterable[StrEnum | str]) -> CheckConstraint:
    """A constraint that only the given words may stand in `column`."""
    words = ", ".join(f"'{state}'" for state in states)
    return CheckConstraint(f"{column} IN ({words})", name=column)
