"""Members know when somebody asked where they stand, and keep their answer.

Revision ID: 0020
Revises: 0019
"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("member", sa.Column("stacks_asked_at", sa.BigInteger(), nullable=True))
    op.add_column("member", sa.Column("stacks_answered_at", sa.BigInteger(), nullable=True))
    op.add_column("member", sa.Column("standing", sa.Text(), nullable=True))


def downgrade() -> None:
    for name in ("standing", "stacks_answered_at", "stacks_asked_at"):
        op.drop_column("member", name)
