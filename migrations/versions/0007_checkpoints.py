"""Where checkpoints are, whether they are kept, and what attempts went on from.

Revision ID: 0007
Revises: 0006
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.schema import SchemaItem

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_STATES = "state IN ('KEPT', 'DELETED', 'DAMAGED')"


def upgrade() -> None:
    with op.batch_alter_table("host") as host:
        host.add_column(sa.Column("checkpoint_store", sa.String(), nullable=False, server_default=""))
    with op.batch_alter_table("host") as host:
        host.alter_column("checkpoint_store", server_default=None)
    with op.batch_alter_table("run") as run:
        run.add_column(sa.Column("resume_from", sa.String(), nullable=True))
    with op.batch_alter_table("attempt") as attempt:
        attempt.add_column(sa.Column("resumed_from", sa.String(), nullable=True))
        attempt.add_column(sa.Column("resumed_step", sa.BigInteger(), nullable=True))
    # Checkpoints of before lay elsewhere on their hosts, under other hashes: nothing can go on from them.
    op.drop_table("checkpoint")
    _create_checkpoints(with_state=True)


def downgrade() -> None:
    op.drop_table("checkpoint")
    _create_checkpoints(with_state=False)
    with op.batch_alter_table("attempt") as attempt:
        attempt.drop_column("resumed_step")
        attempt.drop_column("resumed_from")
    with op.batch_alter_table("run") as run:
        run.drop_column("resume_from")
    with op.batch_alter_table("host") as host:
        host.drop_column("checkpoint_store")


def _create_checkpoints(*, with_state: bool) -> None:
    columns: list[SchemaItem] = [
        sa.Column("member_id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("manifest", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        *(
            sa.ForeignKeyConstraint([f"{owner}_id"], [f"{owner}.id"], name=op.f(f"fk_checkpoint_{owner}_id_{owner}"))
            for owner in ("attempt", "member", "project", "run")
        ),
    ]
    key = ["member_id", "seq"]
    if not with_state:
        columns.append(sa.Column("seq", sa.BigInteger(), nullable=False))
    else:
        key = ["id"]
        columns += [
            sa.Column("id", sa.String(), nullable=False),
            sa.Column("state", sa.String(), nullable=False),
            sa.Column("host_id", sa.String(), nullable=False),
            sa.Column("store", sa.String(), nullable=False),
            sa.ForeignKeyConstraint(["host_id"], ["host.id"], name=op.f("fk_checkpoint_host_id_host")),
            sa.CheckConstraint(_STATES, name=op.f("ck_checkpoint_state")),
            sa.UniqueConstraint("run_id", "fence", "step", name=op.f("uq_checkpoint_run_id_fence_step")),
        ]
    op.create_table("checkpoint", *columns, sa.PrimaryKeyConstraint(*key, name=op.f("pk_checkpoint")))
    with op.batch_alter_table("checkpoint") as table:
        table.create_index("ix_checkpoint_run_id_step", ["run_id", "step"], unique=False)
