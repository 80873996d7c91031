"""The queue by groups of alike runs, and the lease of the loops.

Revision ID: 0008
Revises: 0007
"""

import json
from math import prod
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("shape", sa.String(), nullable=False, server_default=""))
    _fill_shapes()
    op.drop_index("ix_run_queue", "run")
    op.create_index("ix_run_queue", "run", ["state", "project_id", "priority", "shape", "created_at", "id"])
    op.create_index("ix_run_state_queue_deadline", "run", ["state", "queue_deadline"])
    lease = op.create_table(
        "lease",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_lease")),
    )
    op.bulk_insert(lease, [{"name": "loops", "holder": "", "fence": 0, "expires_at": 0}])


def _fill_shapes() -> None:
    connection = op.get_bind()
    versions = connection.execute(sa.text("SELECT id, strategy FROM job_version")).all()
    fill = sa.text(
        "UPDATE run SET shape = replicas || :per_replica || platform || ' ' || COALESCE(:spread, spread)"
        " WHERE version_id = :version"
    ).bindparams(sa.bindparam("spread", type_=sa.String()))
    for version, strategy in versions:
        per_replica, spread = _needs(json.loads(strategy))
        connection.execute(fill, {"version": version, "per_replica": f"x{per_replica} ", "spread": spread})


def _needs(strategy: dict[str, Any]) -> tuple[int, str | None]:
    one_host = strategy["kind"] in ("central_storage", "one_device") or strategy.get("executor") == "mpmd"
    return prod(strategy.get("computation_shape") or [1]), "one_host" if one_host else None


def downgrade() -> None:
    op.drop_table("lease")
    op.drop_index("ix_run_state_queue_deadline", "run")
    op.drop_index("ix_run_queue", "run")
    op.execute("ALTER TABLE run DROP COLUMN shape")  # in place: a rebuilt table would lose the order of the index
    op.create_index(
        "ix_run_queue", "run", ["state", "project_id", sa.literal_column("priority DESC"), "created_at", "id"]
    )
