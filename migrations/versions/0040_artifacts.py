"""Files that programs keep with their runs; their bytes are in the store of content.

Revision ID: 0040
Revises: 0039
"""

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "artifact",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("member_id", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("rank", sa.BigInteger(), nullable=False),
        sa.Column("host_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=True),
        sa.Column("is_directory", sa.Boolean(), nullable=False),
        sa.Column("files", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("about", sa.Text(), nullable=False),
        sa.Column("received_bytes", sa.BigInteger(), nullable=False),
        sa.Column("touched_at", sa.BigInteger(), nullable=False),
        sa.Column("location", sa.String(), nullable=True),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("saved_at", sa.BigInteger(), nullable=False),
        sa.Column("stored_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("state IN ('ARRIVING', 'STORED', 'LOST')", name=op.f("ck_artifact_state")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_artifact_project_id_project"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_artifact_run_id_run"),
        sa.ForeignKeyConstraint(["member_id"], ["member.id"], name="fk_artifact_member_id_member"),
        sa.PrimaryKeyConstraint("id", name="pk_artifact"),
        sa.UniqueConstraint("member_id", "seq", name="uq_artifact_member_id_seq"),
    )
    op.create_index("ix_artifact_run_id_saved_at", "artifact", ["run_id", "saved_at", "id"])
    op.create_index("ix_artifact_project_id_id", "artifact", ["project_id", "id"])
    op.create_index("ix_artifact_sha256", "artifact", ["sha256"])
    op.create_index("ix_artifact_state_touched_at", "artifact", ["state", "touched_at"])


def downgrade() -> None:
    op.drop_table("artifact")
