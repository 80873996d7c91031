"""Why devices and hosts are quarantined, and hosts that an operator drains.

Revision ID: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_HOST = ("drain_requested_at", "quarantined_at", "flagged_at", "released_at")


_DEVICE = ("quarantined_at", "quarantine_reason", "quarantine_member", "probed_at", "probe_message")


def upgrade() -> None:
    for name in _HOST:
        op.add_column("host", sa.Column(name, sa.BigInteger(), nullable=True))
    op.add_column("host", sa.Column("failures", sa.Text(), nullable=True))
    op.add_column("device", sa.Column("quarantined_at", sa.BigInteger(), nullable=True))
    op.add_column("device", sa.Column("quarantine_reason", sa.String(), nullable=True))
    op.add_column("device", sa.Column("quarantine_member", sa.String(), nullable=True))
    op.add_column("device", sa.Column("probed_at", sa.BigInteger(), nullable=True))
    op.add_column("device", sa.Column("probe_message", sa.String(), nullable=False, server_default=""))
    op.execute(
        "UPDATE device SET quarantine_reason = 'death_not_proven', quarantined_at = 0, quarantine_member = ("
        "SELECT hold.member_id FROM hold WHERE hold.device_id = device.id AND hold.attempt_id = device.attempt_id)"
        " WHERE state = 'QUARANTINED'"
    )
    op.execute("ALTER TABLE device DROP COLUMN quarantine_note")  # in place: a rebuilt table would lose its CHECK
    op.create_index("ix_member_host_id_ended_at", "member", ["host_id", "ended_at"])
    op.create_index("ix_member_run_id", "member", ["run_id"])
    op.create_index("ix_member_reason_code_ended_at", "member", ["reason_code", "ended_at"])


def downgrade() -> None:
    op.drop_index("ix_member_reason_code_ended_at", "member")
    op.drop_index("ix_member_run_id", "member")
    op.drop_index("ix_member_host_id_ended_at", "member")
    op.add_column("device", sa.Column("quarantine_note", sa.String(), nullable=False, server_default=""))
    for table, names in (("device", _DEVICE), ("host", (*_HOST, "failures"))):
        for name in names:
            op.execute(f"ALTER TABLE {table} DROP COLUMN {name}")
