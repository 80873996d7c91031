"""Hosts know the TPU slice that they are of.

Revision ID: 0024
Revises: 0023
"""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("slice_name", "slice_topology"):
        op.add_column("host", sa.Column(name, sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    for name in ("slice_topology", "slice_name"):
        op.drop_column("host", name)
