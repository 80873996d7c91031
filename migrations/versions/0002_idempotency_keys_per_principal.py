"""Idempotency keys belong to a principal: nobody meets the keys of others.

Nobody knows who sent the keys of before, so that these are not replayed any more.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _remake(sa.Column("principal", sa.String(), nullable=False))


def downgrade() -> None:
    _remake()


def _remake(*more: sa.Column[str]) -> None:
    """The table made again: a primary key cannot be altered in place."""
    op.drop_table("idempotency_key")
    keys = ["project_id", *(column.name for column in more), "route", "key"]
    op.create_table(
        "idempotency_key",
        sa.Column("project_id", sa.String(), nullable=False),
        *more,
        sa.Column("route", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("body_hash", sa.String(), nullable=False),
        sa.Column("status", sa.BigInteger(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_idempotency_key_project_id_project")),
        sa.PrimaryKeyConstraint(*keys, name=op.f("pk_idempotency_key")),
    )
    op.create_index("ix_idempotency_key_created_at", "idempotency_key", ["created_at"])
