"""What each second of a run went into: as members tell it, and of ended runs by host and name.

Revision ID: 0028
Revises: 0027
"""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("member", sa.Column("spent", sa.Text(), nullable=True))
    op.add_column("member", sa.Column("spent_until_us", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("member", sa.Column("end_waited_us", sa.BigInteger(), nullable=True))
    op.add_column("attempt", sa.Column("backoff_us", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_table(
        "stretch",
        sa.Column("member_id", sa.String(), nullable=False),
        sa.Column("begin_us", sa.BigInteger(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("end_us", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("spent", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["member_id"], ["member.id"], name="fk_stretch_member_id_member"),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_stretch_project_id_project"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_stretch_run_id_run"),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name="fk_stretch_attempt_id_attempt"),
        sa.PrimaryKeyConstraint("member_id", "begin_us", name="pk_stretch"),
    )
    op.create_index("ix_stretch_attempt_id_step", "stretch", ["attempt_id", "step"])
    op.create_table(
        "ledger_entry",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("host_id", sa.String(), nullable=False),
        sa.Column("device_kind", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=False),
        sa.Column("wall_us", sa.BigInteger(), nullable=False),
        sa.Column("device_us", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_ledger_entry_run_id_run"),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_ledger_entry_project_id_project"),
        sa.PrimaryKeyConstraint("run_id", "host_id", "device_kind", "name", name="pk_ledger_entry"),
    )
    op.create_index("ix_ledger_entry_project_id_ended_at", "ledger_entry", ["project_id", "ended_at"])


def downgrade() -> None:
    op.drop_table("ledger_entry")
    op.drop_table("stretch")
    op.drop_column("attempt", "backoff_us")
    for name in ("end_waited_us", "spent_until_us", "spent"):
        op.drop_column("member", name)
