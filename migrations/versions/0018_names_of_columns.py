"""Columns are named as the field names what they hold.

Revision ID: 0018
Revises: 0017
"""

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_RENAMED = (
    ("plan", "foreseen", "simulation"),
    ("host", "notices", "warnings"),
    ("idempotency_key", "answer", "response"),
    ("store", "made_at", "created_at"),
    ("metric_page", "step_lasts", "last_values_by_step"),
    ("metric_page", "time_lasts", "last_values_by_time"),
    ("metric_page", "lows", "minima"),
    ("metric_page", "highs", "maxima"),
    ("metric_page", "totals", "sums"),
)


def upgrade() -> None:
    for table, old, new in _RENAMED:
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")


def downgrade() -> None:
    for table, old, new in _RENAMED:
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {new} TO {old}")
