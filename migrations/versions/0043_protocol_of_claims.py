"""A member keeps which protocol its worker spoke when it claimed it.

Members of before have none: what heartbeats told of them needed no key, and does not until they end.

Revision ID: 0043
Revises: 0042
"""

import sqlalchemy as sa
from alembic import op

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("member", sa.Column("protocol", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.drop_column("member", "protocol")
