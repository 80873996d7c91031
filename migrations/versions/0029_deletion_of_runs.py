"""Runs can be deleted, and projects delete old ones: marks, settings, and fewer foreign keys that point at a run.

Whoever deletes a row has the database look for rows that point at it. Where no index begins with the column that points,
that is a look through the whole table. What a member reported is bound to the member, which is bound to attempt and run:
the direct ways to these are dropped where no index has them. What a deleted run used stays in the ledger.

Revision ID: 0029
Revises: 0028
"""

import re
from collections.abc import Callable, Sequence

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

_DROPPED = [
    ("checkpoint", "attempt"),
    ("gap", "attempt"),
    ("hold", "run"),
    ("ledger_entry", "run"),
    ("log_chunk", "attempt"),
    ("metric", "attempt"),
    ("non_finite", "attempt"),
    ("placement_record", "run"),
    ("reduction", "attempt"),
    ("reduction_kind", "attempt"),
    ("stretch", "run"),
    ("variable_record", "run"),
]


def upgrade() -> None:
    op.add_column("run", sa.Column("deleted_at", sa.BigInteger(), nullable=True))
    op.add_column("run", sa.Column("telemetry_bytes", sa.BigInteger(), nullable=True))
    op.add_column("batch", sa.Column("deleted", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("bulk_change", sa.Column("refused", sa.Text(), nullable=True))
    op.add_column("project", sa.Column("retention_days", sa.BigInteger(), nullable=True))
    op.add_column("project", sa.Column("retention_bytes", sa.BigInteger(), nullable=True))
    op.drop_index("ix_run_job_id_created_at", "run")
    op.create_index("ix_run_job_id_created_at", "run", ["job_id", "created_at", "deleted_at"])
    op.drop_index("ix_run_version_id", "run")
    op.create_index("ix_run_version_id", "run", ["version_id", "deleted_at"])
    op.create_index("ix_checkpoint_member_id", "checkpoint", ["member_id"])
    _create_partial_index("ix_run_deleted", "run", ["project_id", "number"], "deleted_at IS NOT NULL")
    _create_partial_index("ix_audit_deleted_run", "audit", ["target"], "action = 'run.delete'")
    if op.get_bind().dialect.name == "sqlite":
        _edit_in_place(_DROPPED, _without)
        return
    for table, parent in _DROPPED:
        op.drop_constraint(f"fk_{table}_{parent}_id_{parent}", table, type_="foreignkey")


def _create_partial_index(name: str, table: str, columns: list[str], where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))


def _edit_in_place(keys: Sequence[tuple[str, str]], edit: Callable[[str, str], str]) -> None:
    """SQLite's own way to change what constrains a table (lang_altertable.html, 7): its rows stay where they are, which
    may be gigabytes of output. The columns stay as they are, so that each row means what it meant.
    """
    bind = op.get_bind()
    bind.exec_driver_sql("PRAGMA writable_schema = ON")
    for table, parent in keys:
        query = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?"
        declared = str(bind.exec_driver_sql(query, (table,)).scalar_one())
        key = f"CONSTRAINT fk_{table}_{parent}_id_{parent} FOREIGN KEY({parent}_id) REFERENCES {parent} (id)"
        edited = edit(declared, key)
        assert edited != declared, f"{table} does not have, or has already, {key}: {declared}"
        bind.exec_driver_sql("UPDATE sqlite_master SET sql = ? WHERE type = 'table' AND name = ?", (edited, table))
    version = int(bind.exec_driver_sql("PRAGMA schema_version").scalar_one())
    bind.exec_driver_sql(f"PRAGMA schema_version = {version + 1}")  # others read the tables anew
    bind.exec_driver_sql("PRAGMA writable_schema = RESET")


def _without(declared: str, key: str) -> str:
    return re.sub(rf",\s*{re.escape(key)}", "", declared)


def _with(declared: str, key: str) -> str:
    return declared if key in declared else re.sub(r"\s*\)\s*\Z", f", \n\t{key}\n)", declared)


def downgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        _edit_in_place(_DROPPED, _with)
    else:
        for table, parent in _DROPPED:
            name = f"fk_{table}_{parent}_id_{parent}"
            op.create_foreign_key(name, table, parent, [f"{parent}_id"], ["id"])
    for name, table in (
        ("ix_audit_deleted_run", "audit"),
        ("ix_run_deleted", "run"),
        ("ix_checkpoint_member_id", "checkpoint"),
        ("ix_run_version_id", "run"),
        ("ix_run_job_id_created_at", "run"),
    ):
        op.drop_index(name, table)
    op.create_index("ix_run_job_id_created_at", "run", ["job_id", "created_at"])
    op.create_index("ix_run_version_id", "run", ["version_id"])
    for table, column in (
        ("project", "retention_bytes"),
        ("project", "retention_days"),
        ("bulk_change", "refused"),
        ("batch", "deleted"),
        ("run", "telemetry_bytes"),
        ("run", "deleted_at"),
    ):
        op.drop_column(table, column)
