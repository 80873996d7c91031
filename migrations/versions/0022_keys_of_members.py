"""Members keep the hash of the key that they were claimed with, hosts the protocol of their worker.

Members that were claimed before have no key, and are spoken for without one.

Revision ID: 0022
Revises: 0021
"""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("member", sa.Column("key_hash", sa.String(), nullable=True))
    op.add_column("host", sa.Column("protocol", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.drop_column("host", "protocol")
    op.drop_column("member", "key_hash")
