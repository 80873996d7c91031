"""Webhooks, their deliveries, and when the steps of a run got further.

Revision ID: 0030
Revises: 0029
"""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

_WAITING = "state = 'waiting'"


def upgrade() -> None:
    for name in ("advanced_at", "step_us", "stalled_at"):
        op.add_column("run", sa.Column(name, sa.BigInteger(), nullable=True))
    op.create_table(
        "webhook",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("url", sa.String(), nullable=False),
        sa.Column("secret", sa.String(), nullable=False),
        sa.Column("alerts", sa.Text(), nullable=False),
        sa.Column("job", sa.String(), nullable=True),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("made_by", sa.String(), nullable=True),
        sa.Column("made_by_id", sa.String(), nullable=True),
        sa.Column("failures", sa.BigInteger(), nullable=False),
        sa.Column("delivered_at", sa.BigInteger(), nullable=True),
        sa.Column("last_error", sa.String(), nullable=False),
        sa.Column("last_error_at", sa.BigInteger(), nullable=True),
        sa.Column("deleted_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_webhook_project_id_project"),
        sa.PrimaryKeyConstraint("id", name="pk_webhook"),
    )
    op.create_index("ix_webhook_project_id_id", "webhook", ["project_id", "id"])
    op.create_table(
        "webhook_delivery",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("webhook_id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=True),
        sa.Column("cause", sa.String(), nullable=False),
        sa.Column("alert", sa.String(), nullable=False),
        sa.Column("body", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("tries", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("status", sa.BigInteger(), nullable=True),
        sa.Column("error", sa.String(), nullable=False),
        sa.CheckConstraint("state IN ('waiting', 'delivered', 'given_up')", name=op.f("ck_webhook_delivery_state")),
        sa.ForeignKeyConstraint(["webhook_id"], ["webhook.id"], name="fk_webhook_delivery_webhook_id_webhook"),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_webhook_delivery_project_id_project"),
        sa.PrimaryKeyConstraint("id", name="pk_webhook_delivery"),
        sa.UniqueConstraint("webhook_id", "cause", name="uq_webhook_delivery_webhook_id_cause"),
    )
    op.create_index("ix_webhook_delivery_webhook_id_id", "webhook_delivery", ["webhook_id", "id"])
    op.create_index(
        "ix_webhook_delivery_due",
        "webhook_delivery",
        ["webhook_id", "due_at", "id"],
        sqlite_where=sa.text(_WAITING),
        postgresql_where=sa.text(_WAITING),
    )
    op.create_index("ix_webhook_delivery_ended_at", "webhook_delivery", ["ended_at"])


def downgrade() -> None:
    op.drop_table("webhook_delivery")
    op.drop_table("webhook")
    for name in ("stalled_at", "step_us", "advanced_at"):
        op.drop_column("run", name)
