"""What a member's processes use of their host; when members of a gang came to earlier collectives.

Revision ID: 0036
Revises: 0035
"""

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("stretch", sa.Column("usage", sa.Text(), nullable=True))
    op.add_column("arrival_record", sa.Column("older", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("arrival_record", "older")
    op.drop_column("stretch", "usage")
