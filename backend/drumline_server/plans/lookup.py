"""Finds plans, and forgets old ones."""

from sqlalchemy import delete, exists
from sqlalchemy.orm import Session

from drumline_server.errors import NotFoundError
from drumline_server.models import Plan, Run

KEPT_US = 7 * 86_400 * 1_000_000
"""A plan that no run came from is forgotten after a week."""


def require_plan(session: Session, project_id: str, plan_id: str) -> Plan:
    """The project's plan. Raises NotFoundError."""
    plan = session.get(Plan, plan_id, populate_existing=True)
    if plan is None or plan.project_id != project_id:
        raise NotFoundError("plan", plan_id)
    return plan


def forget_old(session: Session, *, now: int) -> None:
    """Removes plans of more than a week ago that no run came from."""
    used = exists().where(Run.plan_id == Plan.id)
    session.execute(delete(Plan).where(Plan.created_at < now - KEPT_US, ~used))
