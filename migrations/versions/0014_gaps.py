"""What is lost of telemetry, at its place; what hosts still have to send of members that have ended.

Revision ID: 0014
Revises: 0013
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_OF_MEMBER = ("output_bytes", "unsent_bytes", "telemetry_at", "logged_step", "logged_at")


def upgrade() -> None:
    for column in _OF_MEMBER:
        op.add_column("member", sa.Column(column, sa.BigInteger(), nullable=True))
    op.add_column("member", sa.Column("open_gaps", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_table(
        "gap",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("member_id", sa.String(), nullable=False),
        sa.Column("what", sa.String(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=True),
        sa.Column("size_bytes", sa.BigInteger(), nullable=True),
        sa.Column("detail", sa.String(), nullable=False),
        sa.Column("first_byte", sa.BigInteger(), nullable=True),
        sa.Column("next_byte", sa.BigInteger(), nullable=True),
        sa.Column("after_step", sa.BigInteger(), nullable=True),
        sa.Column("after_at", sa.BigInteger(), nullable=True),
        sa.Column("before_step", sa.BigInteger(), nullable=True),
        sa.Column("before_at", sa.BigInteger(), nullable=True),
        sa.Column("recorded_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_gap_project_id_project"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_gap_run_id_run"),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name="fk_gap_attempt_id_attempt"),
        sa.ForeignKeyConstraint(["member_id"], ["member.id"], name="fk_gap_member_id_member"),
        sa.PrimaryKeyConstraint("id", name="pk_gap"),
    )
    op.create_index("ix_gap_run_id_id", "gap", ["run_id", "id"])
    op.create_index("ix_gap_member_id", "gap", ["member_id"])


def downgrade() -> None:
    op.drop_table("gap")
    for column in (*_OF_MEMBER, "open_gaps"):
        op.execute(f"ALTER TABLE member DROP COLUMN {column}")
