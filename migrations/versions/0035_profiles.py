"""Traced calls of `strategy.run`.

Revision ID: 0035
Revises: 0034
"""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "profile",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("member_id", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("nth", sa.BigInteger(), nullable=False),
        sa.Column("total_bytes", sa.BigInteger(), nullable=False),
        sa.Column("rank", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("call", sa.BigInteger(), nullable=False),
        sa.Column("steps", sa.BigInteger(), nullable=False),
        sa.Column("span_ns", sa.BigInteger(), nullable=False),
        sa.Column("devices", sa.BigInteger(), nullable=False),
        sa.Column("computing_ns", sa.BigInteger(), nullable=True),
        sa.Column("collective_ns", sa.BigInteger(), nullable=True),
        sa.Column("both_ns", sa.BigInteger(), nullable=True),
        sa.Column("idle_ns", sa.BigInteger(), nullable=True),
        sa.Column("unmeasured", sa.String(), nullable=True),
        sa.Column("file_bytes", sa.BigInteger(), nullable=False),
        sa.Column("file_left_out", sa.String(), nullable=True),
        sa.Column("traced_at", sa.BigInteger(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("file", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_profile_project_id_project"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_profile_run_id_run"),
        sa.ForeignKeyConstraint(["member_id"], ["member.id"], name="fk_profile_member_id_member"),
        sa.PrimaryKeyConstraint("id", name="pk_profile"),
        sa.UniqueConstraint("member_id", "seq", name="uq_profile_member_id_seq"),
    )
    op.create_index("ix_profile_run_id_step", "profile", ["run_id", "step", "id"])


def downgrade() -> None:
    op.drop_table("profile")
