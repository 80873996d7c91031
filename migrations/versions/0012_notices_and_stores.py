"""What a host's operator should mend, and which directory holds the files of the database's bundles.

Revision ID: 0012
Revises: 0011
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("host", sa.Column("notices", sa.Text(), nullable=True))
    op.create_table(
        "store",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("identity", sa.String(), nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_store")),
    )


def downgrade() -> None:
    op.drop_table("store")
    op.execute("ALTER TABLE host DROP COLUMN notices")
