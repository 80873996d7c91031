"""Where the worker of an incarnation lives, and the lease of those whose host moved away from them.

Revision ID: 0010
Revises: 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_LEASED = sa.text("last_heartbeat_at IS NOT NULL")


def upgrade() -> None:
    op.add_column("incarnation", sa.Column("place", sa.String(), nullable=False, server_default=""))
    op.add_column("incarnation", sa.Column("last_heartbeat_at", sa.BigInteger(), nullable=True))
    op.add_column("incarnation", sa.Column("takeover_s", sa.Double(), nullable=True))
    op.create_index(
        "ix_incarnation_last_heartbeat_at",
        "incarnation",
        ["last_heartbeat_at"],
        sqlite_where=_LEASED,
        postgresql_where=_LEASED,
    )


def downgrade() -> None:
    op.drop_index("ix_incarnation_last_heartbeat_at", "incarnation")
    for column in ("takeover_s", "last_heartbeat_at", "place"):
        op.execute(f"ALTER TABLE incarnation DROP COLUMN {column}")
