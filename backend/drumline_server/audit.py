"""Writes the audit trail, in the transaction of the act itself."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import insert
from sqlalchemy.orm import Session

from drumline.contracts.ids import new_id
from drumline_server.models import Audit, table_of

_INSERT = insert(table_of(Audit))


def record(
    session: Session,
    action: str,
    target: str,
    *,
    principal: str,
    project_id: str | None,
    now: int,
    client: str = "",
    body: Mapping[str, Any] | None = None,  # Any: JSON of the act; never a secret
) -> None:
    """Adds one act: `principal` did `action` (such as `token.create`) to `target`, from the address `client`."""
    session.execute(
        _INSERT,
        [
            {
                "id": new_id("aud"),
                "project_id": project_id,
                "at": now,
                "principal": principal,
                "action": action,
                "target": target,
                "client": client,
                "body": dict(body or {}),
            }
        ],
    )
