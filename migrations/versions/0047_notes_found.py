"""Runs that have a note are found without the rows of those that have none.

Revision ID: 0047
Revises: 0046
"""

import sqlalchemy as sa
from alembic import op

revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None

_NOTED = sa.text("note <> ''")


def upgrade() -> None:
    op.create_index(
        "ix_run_note", "run", ["project_id", "number"], sqlite_where=_NOTED, postgresql_where=_NOTED, if_not_exists=True
    )


def downgrade() -> None:
    op.drop_index("ix_run_note", "run")
