"""Reductions with every element of their arrays.

Revision ID: 0039
Revises: 0038
"""

import sqlalchemy as sa
from alembic import op

revision = "0039"
down_revision = "0038"
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
