"""A machine joins a project: its single-use token becomes a host and the host's own token."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from drumline.contracts.ids import new_id
from drumline.contracts.worker_api import Enroll, Enrolled
from drumline_server.auth import service as auth
from drumline_server.models import Host


def enroll(session: Session, secret: str, body: Enroll, *, now: int) -> Enrolled:
    """Spends the enrolment token. A host of that name keeps its identity; its older tokens end.

    Raises UnauthenticatedError if the token is unknown, expired or spent.
    """
    ticket = auth.redeem_enrolment(session, secret, body.name, now=now)
    project_id = ticket.project_id
    host = session.scalar(select(Host).where(Host.project_id == project_id, Host.name == body.name))
    if host is None:
        host = Host(id=new_id("hst"), project_id=project_id, name=body.name, enrolled_at=now)
        session.add(host)
        session.flush()
    token = auth.issue_worker_token(
        session, project_id=project_id, host_id=host.id, host_name=host.name, now=now, made_by=ticket.token_id
    )
    return Enrolled(host=host.id, token=token)
