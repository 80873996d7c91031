"""What each device did in a traced call, beside its lanes: read of many calls at once.

Revision ID: 0037
Revises: 0036
"""

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("profile", sa.Column("times", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("profile", "times")
