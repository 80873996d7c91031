"""The T that each host's worker was promised, and the runs of a plan by index.

Revision ID: 0009
Revises: 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_PLANNED = sa.text("plan_id IS NOT NULL")


def upgrade() -> None:
    op.add_column("host", sa.Column("takeover_s", sa.Double(), nullable=True))
    op.create_index("ix_run_plan_id", "run", ["plan_id"], sqlite_where=_PLANNED, postgresql_where=_PLANNED)


def downgrade() -> None:
    op.drop_index("ix_run_plan_id", "run")
    op.execute("ALTER TABLE host DROP COLUMN takeover_s")
