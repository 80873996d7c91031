"""Plans, and the plan that a run was submitted from.

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_STATES = ("none", "waiting", "running", "ready", "failed", "busy")


def upgrade() -> None:
    states = ", ".join(f"'{state}'" for state in _STATES)
    op.create_table(
        "plan",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("foreseen", sa.Text(), nullable=False),
        sa.Column("probe_state", sa.String(), nullable=False),
        sa.Column("host_id", sa.String(), nullable=True),
        sa.Column("terms", sa.Text(), nullable=True),
        sa.Column("deadline", sa.BigInteger(), nullable=True),
        sa.Column("fault", sa.String(), nullable=True),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("output", sa.String(), nullable=False),
        sa.Column("program", sa.Text(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(f"probe_state IN ({states})", name=op.f("ck_plan_probe_state")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_plan_project_id_project")),
        sa.ForeignKeyConstraint(["host_id"], ["host.id"], name=op.f("fk_plan_host_id_host")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_plan")),
    )
    op.create_index("ix_plan_host_id_probe_state", "plan", ["host_id", "probe_state"])
    op.create_index("ix_plan_created_at", "plan", ["created_at"])
    op.add_column("run", sa.Column("plan_id", sa.String(), nullable=True))


def downgrade() -> None:
    op.execute("ALTER TABLE run DROP COLUMN plan_id")
    op.drop_table("plan")
