"""When a host was rung for the probe of a plan.

Revision ID: 0011
Revises: 0010
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("plan", sa.Column("rung_at", sa.BigInteger(), nullable=True))
    op.create_index("ix_plan_probe_state_rung_at", "plan", ["probe_state", "rung_at"])


def downgrade() -> None:
    op.drop_index("ix_plan_probe_state_rung_at", "plan")
    op.execute("ALTER TABLE plan DROP COLUMN rung_at")
