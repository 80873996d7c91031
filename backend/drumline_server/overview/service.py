"""Puts the overview together: whether anything is wrong, and whether the fleet is busy."""

from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.states import TERMINAL_RUN, RunState
from drumline_server.devices import service as devices
from drumline_server.overview import queries
from drumline_server.runs.views import view_summary
from drumline_server.runs.waits import rules_of
from drumline_server.runs.why import looked_at, why_waiting
from drumline_server.scheduler.placement import place
from drumline_server.scheduler.rounds import Terms

MAX_DEVICES = 2_048
MAX_HOSTS = 200
_SHOWN = 10
_ATTENTION = 5
_DAY = 86_400_000_000
_WAITING = frozenset({RunState.QUEUED, RunState.RETRY_WAIT})
_RUNNING = frozenset({RunState.PLACED, RunState.RUNNING, RunState.CANCELLING})


def overview(session: Session, project_id: str, terms: Terms, *, now: int) -> api.Overview:
    """What the first page shows."""
    total, held = devices.device_totals(session, project_id)
    hosts = devices.list_hosts(session, project_id, cursor=None, limit=MAX_HOSTS, now=now, suspect_s=terms.suspect_s)
    shown = devices.list_devices(session, project_id, cursor=None, limit=MAX_DEVICES)
    failed = queries.newest(session, project_id, {RunState.FAILED}, _ATTENTION, ended_after=now - _DAY)
    running = queries.newest(session, project_id, _RUNNING, _SHOWN)
    rules = rules_of(session, project_id, running, terms, now=now)
    return api.Overview(
        devices_total=total,
        devices_held=held,
        hosts=hosts.items,
        devices=shown.items,
        attention=tuple(view_summary(run, None) for run in failed),
        queued=_queued(session, project_id, terms, now),
        queued_total=queries.count(session, project_id, _WAITING),
        running=tuple(view_summary(run, rules.get(run.id)) for run in running),
        running_total=queries.count(session, project_id, _RUNNING),
        recent=_recent(session, project_id),
    )


def _recent(session: Session, project_id: str) -> tuple[api.RunSummary, ...]:
    """The newest runs that have ended, the one that ended last first, as their list says when each did."""
    ended = [view_summary(run, None) for run in queries.newest(session, project_id, TERMINAL_RUN, _SHOWN)]
    return tuple(sorted(ended, key=lambda run: (run.ended_at or run.created_at, run.id), reverse=True))


def _queued(session: Session, project_id: str, terms: Terms, now: int) -> tuple[api.QueuedRun, ...]:
    """Waiting runs in the order in which the scheduler considers them, those in backoff last."""
    snapshot = terms.look(session, project_id, now=now)
    starting = {placement.run_id for placement in place(snapshot).placements}
    first = [run.id for run in snapshot.queue[:_SHOWN]]
    places = {run_id: place for place, run_id in enumerate(first, 1)}
    shown: list[api.QueuedRun] = []
    for run in (*queries.by_ids(session, first), *queries.in_backoff(session, project_id, _SHOWN - len(first))):
        why = why_waiting(session, run, now=now)
        if why is not None:
            if run.id in places:
                why = looked_at(why, starts=run.id in starting).model_copy(update={"position": places[run.id]})
            shown.append(api.QueuedRun(run=view_summary(run, why.rule), why=why))
    return tuple(shown)
