"""Rows by which several servers of one database tell each other how long they stood still.

Revision ID: 0017
Revises: 0016
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "server_process",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("process", sa.String(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.Column("stalled_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_server_process")),
    )


def downgrade() -> None:
    op.drop_table("server_process")
