"""A job's current version and its history; batches of runs.

Revision ID: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("job", sa.Column("current_version", sa.BigInteger(), nullable=False, server_default="0"))
    op.execute("UPDATE job SET current_version = latest_version")
    op.create_table(
        "job_change",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("by", sa.String(), nullable=False),
        sa.Column("cause", sa.String(), nullable=False),
        sa.Column("from_version", sa.BigInteger(), nullable=True),
        sa.Column("to_version", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_job_change_job_id_job")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_job_change_project_id_project")),
        sa.PrimaryKeyConstraint("job_id", "number", name=op.f("pk_job_change")),
    )
    op.create_table(
        "batch",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("submitted_by", sa.String(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("jobs", sa.Text(), nullable=False),
        sa.Column("sweep", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_batch_project_id_project")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_batch")),
    )
    op.create_index("ix_batch_project_id_created_at_id", "batch", ["project_id", "created_at", "id"])
    # added one by one: rebuilding the table, as SQLite's batch mode does, would lose the order of the queue's index
    op.add_column("run", sa.Column("rerun_of", sa.String(), nullable=True))
    op.add_column("run", sa.Column("batch_id", sa.String(), nullable=True))
    op.add_column("run", sa.Column("batch_index", sa.BigInteger(), nullable=True))
    op.add_column("run", sa.Column("outcomes", sa.Text(), nullable=True))
    op.create_index("ix_run_batch_id_batch_index", "run", ["batch_id", "batch_index"])


def downgrade() -> None:
    op.drop_index("ix_run_batch_id_batch_index", "run")
    for column in ("outcomes", "batch_index", "batch_id", "rerun_of"):
        op.drop_column("run", column)
    op.drop_table("batch")
    op.drop_table("job_change")
    op.drop_column("job", "current_version")
