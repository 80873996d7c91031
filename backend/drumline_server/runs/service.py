"""Runs as the API shows them."""

from collections.abc import Collection, Sequence

from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline_server.errors import InvalidRequestError, NotFoundError
from drumline_server.jobs import service as jobs
from drumline_server.models import Run
from drumline_server.paging import decode_cursor, page_of
from drumline_server.runs import queries
from drumline_server.runs.queries import RunFilters
from drumline_server.runs.views import view_attempt, view_event, view_run, view_summary
from drumline_server.runs.waits import rules_of
from drumline_server.runs.why import why_waiting
from drumline_server.runs.why_start import explain
from drumline_server.scheduler.rounds import Terms

_NEWEST = 2**62


def parse_labels(labels: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The labels of a filter. Raises InvalidRequestError for one that is not `key=value`."""
    pairs = []
    for label in labels:
        name, equals, value = label.partition("=")
        if not equals or not name:
            raise InvalidRequestError("label", f"{label!r} is not of the form key=value")
        pairs.append((name, value))
    return tuple(pairs)


def list_runs(
    session: Session, project_id: str, filters: RunFilters, terms: Terms, *, cursor: str | None, limit: int, now: int
) -> api.Page[api.RunSummary]:
    """A page of runs, each with what it waits for."""
    after = None
    if cursor:
        created_at, run_id = decode_cursor(cursor, int, str)
        after = (int(created_at), str(run_id))
    rows = queries.runs_page(session, project_id, filters, after, limit + 1)
    rules = rules_of(session, project_id, rows[:limit], terms, now=now)
    return page_of(
        rows,
        limit,
        item=lambda run: view_summary(run, rules.get(run.id)),
        key=lambda run: (run.created_at, run.id),
    )


def get_run(session: Session, project_id: str, run_id: str, terms: Terms, *, now: int) -> api.Run:
    """One run, with what would let it start if it waits. Raises NotFoundError."""
    run = require_run(session, project_id, run_id)
    return _view(session, run, explain(session, run, terms, now=now))


def whole_run(session: Session, run: Run, *, now: int) -> api.Run:
    """A run with its version and the reason why it waits."""
    return _view(session, run, why_waiting(session, run, now=now))


def _view(session: Session, run: Run, why: api.Why | None) -> api.Run:
    spec = jobs.view_version(queries.version_of(session, run), run.job_name)
    return view_run(run, spec, why)


def list_attempts(
    session: Session, project_id: str, run_id: str, *, cursor: str | None, limit: int
) -> api.Page[api.Attempt]:
    """A page of a run's attempts, newest first. Raises NotFoundError."""
    require_run(session, project_id, run_id)
    before = int(decode_cursor(cursor, int)[0]) if cursor else _NEWEST
    rows = queries.attempts_before(session, run_id, before, limit + 1)
    members = queries.members_of(session, [attempt.id for attempt in rows])
    hosts = queries.hosts_by_id(session, [member.host_id for member in members])
    return page_of(
        rows,
        limit,
        item=lambda attempt: view_attempt(attempt, [m for m in members if m.attempt_id == attempt.id], hosts),
        key=lambda attempt: (attempt.number,),
    )


def list_events(
    session: Session, project_id: str, run_id: str, *, after: int, limit: int, kinds: Collection[str] = ()
) -> api.Page[api.RunEvent]:
    """Events of a run in order, those behind `after` and of `kinds`, or of any kind. Raises NotFoundError."""
    require_run(session, project_id, run_id)
    rows = queries.events_after(session, run_id, after, limit + 1, kinds)
    shown = rows[:limit]
    following = str(shown[-1].seq) if len(rows) > limit else None
    return api.Page(items=tuple(view_event(event) for event in shown), next=following)


def require_run(session: Session, project_id: str, run_id: str) -> Run:
    """The project's run. Raises NotFoundError, also for a run of another project."""
    run = queries.find_run(session, project_id, run_id)
    if run is None:
        raise NotFoundError("run", run_id)
    return run
