"""What the steps behind a run's present rate are made of.

Revision ID: 0033
Revises: 0032
"""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("throughput", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("run", "throughput")
