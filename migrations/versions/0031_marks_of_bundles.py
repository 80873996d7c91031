"""Bundles that nothing names any more can be swept: since when, and where their bytes are.

Revision ID: 0031
Revises: 0030
"""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

_UNNAMED = sa.text("unnamed_since IS NOT NULL")


def upgrade() -> None:
    op.add_column("bundle", sa.Column("location", sa.String(), nullable=True))
    op.add_column("bundle", sa.Column("unnamed_since", sa.BigInteger(), nullable=True))
    op.create_index("ix_bundle_sha256", "bundle", ["sha256"])
    op.create_index("ix_bundle_unnamed", "bundle", ["unnamed_since"], sqlite_where=_UNNAMED, postgresql_where=_UNNAMED)
    op.create_index("ix_job_version_bundle", "job_version", ["bundle"])


def downgrade() -> None:
    op.drop_index("ix_job_version_bundle", "job_version")
    op.drop_index("ix_bundle_unnamed", "bundle")
    op.drop_index("ix_bundle_sha256", "bundle")
    op.drop_column("bundle", "unnamed_since")
    op.drop_column("bundle", "location")
