"""When members of a gang come to their collectives, and whom a run waits for.

Revision ID: 0034
Revises: 0033
"""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "arrival_record",
        sa.Column("member_id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("samples", sa.Text(), nullable=False),
        sa.Column("recorded_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["member_id"], ["member.id"], name="fk_arrival_record_member_id_member"),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_arrival_record_project_id_project"),
        sa.PrimaryKeyConstraint("member_id", name="pk_arrival_record"),
    )
    op.add_column("run", sa.Column("straggler", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("run", "straggler")
    op.drop_table("arrival_record")
