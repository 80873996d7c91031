"""Histograms, images, texts and tables that programs log.

Revision ID: 0032
Revises: 0031
"""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "media",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("member_id", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("nth", sa.BigInteger(), nullable=False),
        sa.Column("total_bytes", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("rank", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("width", sa.BigInteger(), nullable=True),
        sa.Column("height", sa.BigInteger(), nullable=True),
        sa.Column("logged_at", sa.BigInteger(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_media_project_id_project"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_media_run_id_run"),
        sa.ForeignKeyConstraint(["member_id"], ["member.id"], name="fk_media_member_id_member"),
        sa.PrimaryKeyConstraint("id", name="pk_media"),
        sa.UniqueConstraint("member_id", "seq", name="uq_media_member_id_seq"),
    )
    op.create_index("ix_media_run_id_name_kind_step", "media", ["run_id", "name", "kind", "attempt_id", "step", "id"])


def downgrade() -> None:
    op.drop_table("media")
