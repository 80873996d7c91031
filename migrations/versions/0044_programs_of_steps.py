"""What the programs of a run's steps exchange, beside where its replicas sit.

Revision ID: 0044
Revises: 0043
"""

import sqlalchemy as sa
from alembic import op

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("placement_record", sa.Column("programs", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("placement_record", "programs")
