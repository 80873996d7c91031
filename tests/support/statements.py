"""What is sent to databases."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, event
from sqlalchemy.engine import Engine

Statement = tuple[str, Any]  # Any: what the driver takes as parameters


@contextmanager
def statements() -> Iterator[list[Statement]]:
    """Everything that is sent to any database meanwhile."""
    seen: list[Statement] = []

    def note(_: Connection, __: object, statement: str, parameters: Any, *___: object) -> None:
        seen.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", note)
    yield seen
    event.remove(Engine, "before_cursor_execute", note)
