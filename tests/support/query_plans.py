"""How databases come by their answers, in their own words."""

import json
from collections.abc import Callable
from typing import Any

from sqlalchemy.orm import Session

from support.core import Core
from support.statements import statements


def read_plans(core: Core, ask: Callable[[Session], object]) -> list[str]:
    """How the database came by each answer, in its own words."""
    with statements() as sent:
        core.read(ask)
    selects = [each for each in sent if each[0].lstrip().upper().startswith(("SELECT", "WITH"))]
    return core.read(lambda session: [_plan(session, *each) for each in selects])


def _plan(session: Session, statement: str, parameters: Any) -> str:
    connection = session.connection()
    if connection.dialect.name == "sqlite":
        rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        return "\n".join(row[-1] for row in rows)
    rows = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters)
    return json.dumps(rows.scalar_one())


def rows_read(plan: str, table: str) -> int:
    """How many rows of a table PostgreSQL touched, by its own count."""
    return sum(_touched(node["Plan"], table) for node in json.loads(plan))


def _touched(node: dict[str, Any], table: str) -> int:
    of_table = node.get("Relation Name") == table
    read = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"] if of_table else 0
    return int(read) + sum(_touched(child, table) for child in node.get("Plans", ()))
