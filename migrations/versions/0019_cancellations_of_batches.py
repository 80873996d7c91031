"""Batches say that they are being cancelled, and the runs that ended last are found by an index.

Revision ID: 0019
Revises: 0018
"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

_COLUMNS = (
    ("cancel_requested_at", sa.BigInteger),
    ("cancel_requested_by", sa.String),
    ("cancel_grace_s", sa.Double),
    ("cancelled_at", sa.BigInteger),
)
_CANCELLING = sa.text("cancel_requested_at IS NOT NULL AND cancelled_at IS NULL")
_ENDED = sa.text("ended_at IS NOT NULL")


def upgrade() -> None:
    for name, kind in _COLUMNS:
        op.add_column("batch", sa.Column(name, kind(), nullable=True))
    op.create_index(
        "ix_batch_cancelling",
        "batch",
        ["cancel_requested_at", "id"],
        sqlite_where=_CANCELLING,
        postgresql_where=_CANCELLING,
    )
    op.create_index(
        "ix_run_project_id_ended_at_id",
        "run",
        ["project_id", "ended_at", "id"],
        sqlite_where=_ENDED,
        postgresql_where=_ENDED,
    )


def downgrade() -> None:
    op.drop_index("ix_run_project_id_ended_at_id", "run")
    op.drop_index("ix_batch_cancelling", "batch")
    for name, _ in reversed(_COLUMNS):
        op.drop_column("batch", name)
