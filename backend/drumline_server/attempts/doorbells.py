"""Asks the relay to ring at a member's host, so that news does not wait for a heartbeat."""

from typing import Literal

from sqlalchemy.orm import Session

from drumline.contracts.ids import new_id
from drumline_server.models import Member, Outbox
from drumline_server.wakeups import OUTBOX, announce


def order_ring(session: Session, member: Member, kind: Literal["claim", "cancel"], *, now: int) -> None:
    """Leaves a doorbell in the outbox: there is a member to claim, or one that is to stop."""
    session.add(
        Outbox(
            id=new_id("obx"),
            project_id=member.project_id,
            kind=kind,
            attempt_id=member.attempt_id,
            member_id=member.id,
            host_id=member.host_id,
            fence=member.fence,
            created_at=now,
        )
    )
    announce(session, OUTBOX)
