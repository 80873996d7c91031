"""Every run is numbered; tables for what lists sort and filter by, for views and for changes of many runs.

Revision ID: 0025
Revises: 0024
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

from drumline_server.storage.database import Rewrite

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

_RUN = sa.table("run", sa.column("id"), sa.column("number"))


def _number(connection: sa.Connection, rows: Sequence[sa.RowMapping]) -> None:
    """By id, that is by time, as those of later runs are greater."""
    first = (connection.scalar(sa.select(sa.func.max(_RUN.c.number))) or 0) + 1
    statement = sa.update(_RUN).where(_RUN.c.id == sa.bindparam("of_id")).values(number=sa.bindparam("new"))
    connection.execute(statement, [{"of_id": row["id"], "new": first + place} for place, row in enumerate(rows)])


REWRITE = Rewrite("run", ("id",), (), _number)

_LISTED = [
    "project_id",
    "created_at",
    "id",
    "number",
    "state",
    "reason_code",
    "job_name",
    "version_number",
    "submitted_by",
    "batch_id",
    "strategy_kind",
    "platform",
    "replicas",
    "priority",
    "attempts",
    "started_at",
    "ended_at",
    "starred_at",
    "archived_at",
]


def upgrade() -> None:
    op.drop_index("ix_run_project_id_created_at_id", "run")
    op.create_index("ix_run_list", "run", _LISTED)
    op.create_index("uq_run_number", "run", ["number"], unique=True)
    _create_partial_index("ix_run_archived", "run", ["project_id", "number"], "archived_at IS NOT NULL")
    bind = op.get_bind()
    if bind.dialect.name == "postgresql":
        first = (bind.scalar(sa.select(sa.func.max(_RUN.c.number))) or 0) + 1
        op.execute(f"CREATE SEQUENCE run_number START WITH {first}")
    text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    _create_fields(text)
    op.create_table(
        "run_figures",
        sa.Column("run", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("figures", sa.Text(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=True),
        _foreign_key("run_figures", "run", "run.number"),
        _foreign_key("run_figures", "project_id", "project.id"),
        sa.PrimaryKeyConstraint("run", name=op.f("pk_run_figures")),
    )
    _create_partial_index("ix_run_figures_due_at", "run_figures", ["due_at", "run"], "due_at IS NOT NULL")
    _create_views(text)


def _create_fields(text: sa.types.TypeEngine[str]) -> None:
    op.create_table(
        "field",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("name", text, nullable=False),
        _foreign_key("field", "project_id", "project.id"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_field")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_field_project_id_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "run_field",
        sa.Column("run", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("field_id", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.Double(), nullable=False),
        sa.Column("text", text, nullable=False),
        _foreign_key("run_field", "run", "run.number"),
        _foreign_key("run_field", "field_id", "field.id"),
        sa.PrimaryKeyConstraint("run", "field_id", name=op.f("pk_run_field")),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_run_field_value", "run_field", ["field_id", "kind", "number", "text", "run"])


def _create_views(text: sa.types.TypeEngine[str]) -> None:
    op.create_table(
        "run_view",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("name", text, nullable=False),
        sa.Column("view", sa.Text(), nullable=False),
        sa.Column("made_by", sa.String(), nullable=True),
        sa.Column("made_by_id", sa.String(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        _foreign_key("run_view", "project_id", "project.id"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run_view")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_run_view_project_id_name")),
    )
    op.create_table(
        "bulk_change",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("change", sa.Text(), nullable=False),
        sa.Column("asked_by", sa.String(), nullable=True),
        sa.Column("asked_by_id", sa.String(), nullable=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("runs", sa.LargeBinary(), nullable=False),
        sa.Column("total", sa.BigInteger(), nullable=False),
        sa.Column("done", sa.BigInteger(), nullable=False),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("state IN ('RUNNING', 'DONE')", name=op.f("ck_bulk_change_state")),
        _foreign_key("bulk_change", "project_id", "project.id"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_bulk_change")),
    )
    _create_partial_index("ix_bulk_change_open", "bulk_change", ["created_at", "id"], "ended_at IS NULL")


def _foreign_key(table: str, column: str, target: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [target], name=op.f(f"fk_{table}_{column}_{target.partition('.')[0]}"))


def _create_partial_index(name: str, table: str, columns: list[str], condition: str) -> None:
    where = sa.text(condition)
    op.create_index(name, table, columns, sqlite_where=where, postgresql_where=where)


def downgrade() -> None:
    for table in ("bulk_change", "run_view", "run_figures", "run_field", "field"):
        op.drop_table(table)
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP SEQUENCE run_number")
    for name in ("ix_run_archived", "uq_run_number", "ix_run_list"):
        op.drop_index(name, "run")
    op.create_index("ix_run_project_id_created_at_id", "run", ["project_id", "created_at", "id"])
    op.execute("UPDATE run SET number = 0")
