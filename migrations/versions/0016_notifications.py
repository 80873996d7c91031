"""A notification is a hint: nothing of it is kept.

Revision ID: 0016
Revises: 0015
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_KEYS = ("project", "attempt", "member", "host")


def upgrade() -> None:
    op.drop_table("outbox")
    op.drop_index("ix_plan_probe_state_rung_at", "plan")
    op.execute("ALTER TABLE plan DROP COLUMN rung_at")


def downgrade() -> None:
    """What is under way then is not rung for; heartbeats bring it."""
    op.add_column("plan", sa.Column("rung_at", sa.BigInteger(), nullable=True))
    op.create_index("ix_plan_probe_state_rung_at", "plan", ["probe_state", "rung_at"])
    op.create_table(
        "outbox",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("member_id", sa.String(), nullable=False),
        sa.Column("host_id", sa.String(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("rung_at", sa.BigInteger(), nullable=True),
        sa.Column("rings", sa.BigInteger(), nullable=False),
        sa.Column("settled_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("kind IN ('claim', 'cancel')", name=op.f("ck_outbox_kind")),
        *(
            sa.ForeignKeyConstraint([f"{table}_id"], [f"{table}.id"], name=op.f(f"fk_outbox_{table}_id_{table}"))
            for table in _KEYS
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox")),
    )
    op.create_index("ix_outbox_member_id", "outbox", ["member_id"])
    op.create_index(
        "ix_outbox_open",
        "outbox",
        ["rung_at"],
        sqlite_where=sa.text("settled_at IS NULL"),
        postgresql_where=sa.text("settled_at IS NULL"),
    )
