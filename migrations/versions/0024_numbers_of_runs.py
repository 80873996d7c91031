"""Runs have a number, a note, a star and a time since which they are archived.

Revision ID: 0024
Revises: 0023
"""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("number", sa.BigInteger(), server_default="0", nullable=False))
    op.add_column("run", sa.Column("note", sa.String(), server_default="", nullable=False))
    op.add_column("run", sa.Column("starred_at", sa.BigInteger(), nullable=True))
    op.add_column("run", sa.Column("archived_at", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    for name in ("archived_at", "starred_at", "note", "number"):
        op.drop_column("run", name)
