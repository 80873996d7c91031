"""Puts the overview together: whether anything is wrong, and whether the fleet is busy."""

from collections.abc import Collection, Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.states import RunState
from drumline_server.scheduling.placement import place
from drumline_server.scheduling.snapshot import SchedulingTerms, take_snapshot
from drumline_server.services import fleet
from drumline_server.services.explain import why_waiting, with_scheduler_verdict
from drumline_server.services.explain_start import rules_of
from drumline_server.services.runs import view_summary
from drumline_server.storage.models import Run


def count(session: Session, project_id: str, states: Collection[RunState]) -> int:
    """How many runs are in one of `states`."""
    query = select(func.count()).where(Run.project_id == project_id, Run.state.in_(states))
    return session.scalar(query) or 0


def newest(session: Session, project_id: str, states: Collection[RunState], limit: int) -> Sequence[Run]:
    """Runs in one of `states`, newest first."""
    query = select(Run).where(Run.project_id == project_id, Run.state.in_(states))
    return session.scalars(query.order_by(Run.created_at.desc(), Run.id.desc()).limit(limit)).all()


def list_last_ended(session: Session, project_id: str, limit: int) -> Sequence[Run]:
    """The runs that ended last, the last one first, whenever they were submitted."""
    query = select(Run).where(Run.project_id == project_id, Run.ended_at.is_not(None), Run.deleted_at.is_(None))
    return session.scalars(query.order_by(Run.ended_at.desc(), Run.id.desc()).limit(limit)).all()


def list_last_failed(session: Session, project_id: str, limit: int, *, since: int) -> Sequence[Run]:
    """The runs that failed last, none before `since`."""
    query = select(Run).where(Run.project_id == project_id, Run.ended_at > since, Run.state == RunState.FAILED)
    query = query.where(Run.deleted_at.is_(None))
    return session.scalars(query.order_by(Run.ended_at.desc(), Run.id.desc()).limit(limit)).all()


def list_stalled(session: Session, project_id: str, limit: int) -> Sequence[Run]:
    """The runs whose steps get no further, the longest first."""
    query = select(Run).where(Run.project_id == project_id, Run.state == RunState.RUNNING, Run.stalled_at.is_not(None))
    return session.scalars(query.order_by(Run.stalled_at, Run.id).limit(limit)).all()


def by_ids(session: Session, run_ids: Sequence[str]) -> list[Run]:
    """Those runs, in that order."""
    found = {run.id: run for run in session.scalars(select(Run).where(Run.id.in_(run_ids)))}
    return [found[run_id] for run_id in run_ids if run_id in found]


def in_backoff(session: Session, project_id: str, limit: int) -> Sequence[Run]:
    """Runs that wait before another attempt, oldest first."""
    query = select(Run).where(Run.project_id == project_id, Run.state == RunState.RETRY_WAIT)
    return session.scalars(query.order_by(Run.created_at, Run.id).limit(limit)).all()


MAX_DEVICES = 2_048
MAX_HOSTS = 200
_SHOWN = 10
_ATTENTION = 5
_DAY = 86_400_000_000
_WAITING = frozenset({RunState.QUEUED, RunState.RETRY_WAIT})
_RUNNING = frozenset({RunState.PLACED, RunState.RUNNING, RunState.CANCELLING})


def overview(session: Session, project_id: str, terms: SchedulingTerms, *, now: int) -> api.Overview:
    """What the first page shows."""
    total, held = fleet.device_totals(session, project_id)
    hosts = fleet.list_hosts(session, project_id, cursor=None, limit=MAX_HOSTS, now=now, suspect_s=terms.suspect_s)
    shown = fleet.list_devices(session, project_id, cursor=None, limit=MAX_DEVICES)
    stalled = list_stalled(session, project_id, _ATTENTION)
    failed = list_last_failed(session, project_id, _ATTENTION, since=now - _DAY)
    running = newest(session, project_id, _RUNNING, _SHOWN)
    rules = rules_of(session, project_id, running, terms, now=now)
    return api.Overview(
        devices_total=total,
        devices_held=held,
        hosts=hosts.items,
        devices=shown.items,
        attention=tuple(view_summary(run, None) for run in (*stalled, *failed)),
        queued=_list_queued(session, project_id, terms, now),
        queued_total=count(session, project_id, _WAITING),
        running=tuple(view_summary(run, rules.get(run.id)) for run in running),
        running_total=count(session, project_id, _RUNNING),
        recent=tuple(view_summary(run, None) for run in list_last_ended(session, project_id, _SHOWN)),
    )


def _list_queued(session: Session, project_id: str, terms: SchedulingTerms, now: int) -> tuple[api.QueuedRun, ...]:
    """Waiting runs in the order in which the scheduler considers them, those in backoff last."""
    snapshot = take_snapshot(session, project_id, terms, now=now)
    starting = {placement.run_id for placement in place(snapshot).placements}
    first = [run.id for run in snapshot.queue[:_SHOWN]]
    places = {run_id: place for place, run_id in enumerate(first, 1)}
    shown: list[api.QueuedRun] = []
    for run in (*by_ids(session, first), *in_backoff(session, project_id, _SHOWN - len(first))):
        why = why_waiting(session, run, now=now)
        if why is not None:
            if run.id in places:
                why = with_scheduler_verdict(why, starts=run.id in starting).model_copy(
                    update={"position": places[run.id]}
                )
            shown.append(api.QueuedRun(run=view_summary(run, why.rule), why=why))
    return tuple(shown)
