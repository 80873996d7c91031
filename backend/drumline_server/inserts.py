"""`INSERT ... ON CONFLICT DO NOTHING` for both databases."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from drumline_server.models import Base


def insert_or_ignore(session: Session, table: type[Base], rows: Sequence[Mapping[str, Any]]) -> None:  # Any: columns
    """Adds those rows that break no unique constraint."""
    if not rows:
        return
    insert = sqlite.insert if session.get_bind().dialect.name == "sqlite" else postgresql.insert
    session.execute(insert(table).on_conflict_do_nothing(), list(rows))
