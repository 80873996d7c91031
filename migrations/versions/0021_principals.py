"""What somebody did is kept with who did it: the name as of then, and the id of the token or session.

Rows of before keep the name that they have, without an id; where they have none nobody knows any more.

Revision ID: 0021
Revises: 0020
"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

_COLUMNS = (
    ("audit", "principal_id"),
    ("batch", "submitted_by_id"),
    ("batch", "cancel_requested_by_id"),
    ("bundle", "created_by"),
    ("bundle", "created_by_id"),
    ("host", "drain_requested_by"),
    ("host", "drain_requested_by_id"),
    ("job", "created_by"),
    ("job", "created_by_id"),
    ("job_change", "by_id"),
    ("job_version", "created_by"),
    ("job_version", "created_by_id"),
    ("member", "stacks_asked_by"),
    ("member", "stacks_asked_by_id"),
    ("plan", "created_by_id"),
    ("run", "submitted_by_id"),
    ("run", "cancel_requested_by"),
    ("run", "cancel_requested_by_id"),
    ("token", "created_by"),
    ("token", "created_by_id"),
    ("token", "revoked_by"),
    ("token", "revoked_by_id"),
)
_OWNERS = "ix_run_project_id_submitted_by_created_at_id"


def upgrade() -> None:
    for table, name in _COLUMNS:
        op.add_column(table, sa.Column(name, sa.String(), nullable=True))
    op.create_index(_OWNERS, "run", ["project_id", "submitted_by", "created_at", "id"])


def downgrade() -> None:
    op.drop_index(_OWNERS, "run")
    for table, name in reversed(_COLUMNS):
        op.drop_column(table, name)
