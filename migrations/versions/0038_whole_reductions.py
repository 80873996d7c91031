"""Reductions with every element of their arrays.

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
    op.add_column("reduction", sa.Column("whole_bytes", sa.BigInteger(), nullable=True))
    op.add_column("reduction", sa.Column("whole_total_bytes", sa.BigInteger(), nullable=True))
    op.add_column("reduction", sa.Column("whole", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    op.drop_column("reduction", "whole")
    op.drop_column("reduction", "whole_total_bytes")
    op.drop_column("reduction", "whole_bytes")
