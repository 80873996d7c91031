"""Runs by state and by owner have their numbers in the index, so that lists read no rows for them.

Revision ID: 0042
Revises: 0041
"""

from alembic import op

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None

_COLUMNS = ("state", "submitted_by")


def upgrade() -> None:
    for column in _COLUMNS:
        name = f"ix_run_project_id_{column}_created_at_id"
        op.create_index(f"{name}_number", "run", ["project_id", column, "created_at", "id", "number"])
        op.drop_index(name, "run")


def downgrade() -> None:
    for column in _COLUMNS:
        name = f"ix_run_project_id_{column}_created_at_id"
        op.create_index(name, "run", ["project_id", column, "created_at", "id"])
        op.drop_index(f"{name}_number", "run")
