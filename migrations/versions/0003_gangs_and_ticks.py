"""Where the members of a gang meet, and where each one's program is.

Revision ID: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("attempt") as attempt:
        attempt.add_column(sa.Column("coordinator", sa.String(), nullable=True))
    with op.batch_alter_table("member") as member:
        member.add_column(sa.Column("tick", sa.Text(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("member") as member:
        member.drop_column("tick")
    with op.batch_alter_table("attempt") as attempt:
        attempt.drop_column("coordinator")
