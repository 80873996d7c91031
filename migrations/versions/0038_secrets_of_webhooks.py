"""The secret that a webhook had before its newest one, and until when it is good.

Revision ID: 0038
Revises: 0037
"""

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("webhook", sa.Column("old_secret", sa.String(), nullable=True))
    op.add_column("webhook", sa.Column("old_secret_until", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.drop_column("webhook", "old_secret_until")
    op.drop_column("webhook", "old_secret")
