"""Runs know the first reduction whose result was NaN or infinite.

Revision ID: 0023
Revises: 0022
"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("first_non_finite", sa.Text(), nullable=True))
    op.create_table(
        "non_finite",
        sa.Column("member_id", sa.String(), sa.ForeignKey("member.id"), primary_key=True),
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("project_id", sa.String(), sa.ForeignKey("project.id"), nullable=False),
        sa.Column("run_id", sa.String(), sa.ForeignKey("run.id"), nullable=False),
        sa.Column("attempt_id", sa.String(), sa.ForeignKey("attempt.id"), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("call", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("recorded_at", sa.BigInteger(), nullable=False),
    )
    op.create_index("ix_non_finite_run_id_call_seq", "non_finite", ["run_id", "call", "seq"])


def downgrade() -> None:
    op.drop_table("non_finite")
    op.drop_column("run", "first_non_finite")
