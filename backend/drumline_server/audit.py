"""Writes the audit trail, in the transaction of the act itself."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert
from sqlalchemy.orm import Session

from drumline.contracts.ids import new_id
from drumline_server.models import Audit, table_of

_INSERT = insert(table_of(Audit))


@dataclass(frozen=True, slots=True)
class Act:
    """`principal` did `action` (such as `token.create`) to `target`, from the address `client`."""

    action: str
    target: str
    principal: str
    project_id: str | None
    client: str = ""
    body: Mapping[str, Any] | None = None  # Any: JSON of the act; never a secret


def record(
    session: Session,
    action: str,
    target: str,
    *,
    principal: str,
    project_id: str | None,
    now: int,
    client: str = "",
    body: Mapping[str, Any] | None = None,  # Any: as in Act
) -> None:
    """Adds one act."""
    record_all(session, [Act(action, target, principal, project_id, client, body)], now=now)


def record_all(session: Session, acts: Iterable[Act], *, now: int) -> None:
    """Adds acts of one moment."""
    session.execute(
        _INSERT,
        [
            {
                "id": new_id("aud"),
                "at": now,
                "action": act.action,
                "target": act.target,
                "principal": act.principal,
                "project_id": act.project_id,
                "client": act.client,
                "body": dict(act.body or {}),
            }
            for act in acts
        ],
    )
