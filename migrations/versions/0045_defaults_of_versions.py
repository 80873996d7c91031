"""What a version's program takes for parameters that are left out.

Revision ID: 0045
Revises: 0044
"""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None

_VERSION = sa.table("job_version", *map(sa.column, ("id", "project_id", "bundle", "entrypoint", "defaults")))
_BUNDLE = sa.table("bundle", *map(sa.column, ("project_id", "sha256", "entrypoints")))
_AT_ONCE = 500


def upgrade() -> None:
    op.add_column("job_version", sa.Column("defaults", sa.Text(), nullable=True))
    connection = op.get_bind()
    same = sa.and_(_BUNDLE.c.project_id == _VERSION.c.project_id, _BUNDLE.c.sha256 == _VERSION.c.bundle)
    query = (
        sa.select(_VERSION.c.id, _VERSION.c.entrypoint, _BUNDLE.c.entrypoints)
        .join(_BUNDLE, same)
        .order_by(_VERSION.c.id)
        .limit(_AT_ONCE)
    )
    change = sa.update(_VERSION).where(_VERSION.c.id == sa.bindparam("of")).values(defaults=sa.bindparam("known"))
    after = ""
    while found := connection.execute(query.where(_VERSION.c.id > after)).all():
        connection.execute(change, [{"of": row[0], "known": json.dumps(_defaults(row[1], row[2]))} for row in found])
        after = found[-1][0]


def _defaults(entrypoint: str, entrypoints: str) -> dict[str, Any]:  # Any: JSON
    offered = next((each for each in json.loads(entrypoints) if each["entrypoint"] == entrypoint), {"parameters": ()})
    return {one["name"]: one["default"] for one in offered["parameters"] if one.get("default") is not None}


def downgrade() -> None:
    op.drop_column("job_version", "defaults")
