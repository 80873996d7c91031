"""Large contents of media and files of profiles can be in the store of content: which, and where.

Those that are there already are moved by the server, a few at a time. No row is written here: the indexes are made
of what the rows say of their lengths.

Revision ID: 0041
Revises: 0040
"""

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None

_TABLES = {"media": "content", "profile": "file"}
_NAMED = sa.text("sha256 IS NOT NULL")


def upgrade() -> None:
    for table, column in _TABLES.items():
        op.add_column(table, sa.Column("sha256", sa.String(), nullable=True))
        op.add_column(table, sa.Column("location", sa.String(), nullable=True))
        large = sa.text(f"length({column}) >= 16384")
        op.create_index(f"ix_{table}_large", table, ["id"], sqlite_where=large, postgresql_where=large)
        op.create_index(f"ix_{table}_sha256", table, ["sha256"], sqlite_where=_NAMED, postgresql_where=_NAMED)


def downgrade() -> None:
    for table in _TABLES:
        op.drop_index(f"ix_{table}_sha256", table)
        op.drop_index(f"ix_{table}_large", table)
        op.drop_column(table, "location")
        op.drop_column(table, "sha256")
