"""The call of `strategy.run` beside the program's step of a reduction; one rate of a run that ended; NaN in results.

Revision ID: 0015
Revises: 0014
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_SECOND = 1_000_000

_MEAN_RATES = f"""
UPDATE run SET steps_per_s = step * {_SECOND}.0 / (ended_at - started_at)
WHERE step > 0 AND steps_per_s IS NOT NULL AND ended_at > started_at
"""
"""What pages showed of runs that had ended, while lists elsewhere showed their last fifth of a second."""


def upgrade() -> None:
    op.add_column("reduction", sa.Column("call", sa.BigInteger(), nullable=True))
    op.execute(_MEAN_RATES)
    op.add_column("run", sa.Column("not_finite", sa.Text(), nullable=True))


def downgrade() -> None:
    op.execute("ALTER TABLE run DROP COLUMN not_finite")
    op.execute('ALTER TABLE reduction DROP COLUMN "call"')
