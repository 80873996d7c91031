"""Takes what a worker's probe found."""

from sqlalchemy.orm import Session

from drumline.contracts.plans import PlanReport, PlanTaken
from drumline_server.attempts.guard import require_incarnation
from drumline_server.plans import probes


def take_report(session: Session, host_id: str, plan_id: str, report: PlanReport, *, now: int) -> PlanTaken:
    """Raises NotFoundError for a plan of another host; DrumlineError fenced for an old incarnation."""
    require_incarnation(session, host_id, report.incarnation)
    return probes.finish(session, host_id, plan_id, report, now=now)
