"""Runs as the API shows them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import from_micros
from drumline.contracts.problems import ProblemCode
from drumline.contracts.reasons import REASONS, EndReason
from drumline.contracts.stacks import MemberStacks, MemberStanding, RunStacks
from drumline.contracts.states import TERMINAL_MEMBER, TERMINAL_RUN, MemberState
from drumline_server.base.callers import decode_cursor, page_of
from drumline_server.base.errors import DrumlineError, InvalidRequestError
from drumline_server.lifecycle.aftermath import stopped_by
from drumline_server.lifecycle.deletion import deleted_from
from drumline_server.scheduling.snapshot import SchedulingTerms
from drumline_server.services import jobs
from drumline_server.services.explain_start import explain, rules_of, warnings_of, why_waiting
from drumline_server.services.run_lists import ListQuery, RunList, field_values
from drumline_server.storage import runs
from drumline_server.storage.fields import read_summary
from drumline_server.storage.history import lock_run
from drumline_server.storage.models import Attempt, Host, Member, Run, RunEvent, principal_in, set_principal
from drumline_server.storage.notifications import notify
from drumline_server.storage.runs import RunFilters, conditions_of, require_run


def view_reason(code: str | None, message: str, run: Run) -> api.Reason | None:
    """A typed end of a run, or of a part of it, with its category and sentence; None where there is none."""
    if code is None:
        return None
    reason = EndReason(code)
    facts = REASONS[reason]
    sentence = stopped_by(run, facts.sentence) if reason is EndReason.CANCELLED else facts.sentence
    return api.Reason(
        code=reason, category=facts.category, retryable=facts.retryable, sentence=sentence, message=message
    )


_PHRASES: dict[api.WaitRule, str] = {
    "no_hosts": "no worker with a device",
    "no_such_platform": "no host of its platform",
    "too_few_devices": "fleet is too small for it",
    "host_quarantined": "host is quarantined",
    "host_draining": "host is being drained",
    "host_lost": "host has fallen silent",
    "host_moved": "host has moved; the program may be alive where it was",
    "devices_quarantined": "devices are quarantined",
    "devices_busy": "devices are busy",
    "behind_others": "behind other runs",
    "retry_backoff": "pauses before it tries again",
    "starting": "is about to start",
    "checkpoint_host": "waits for the host of its checkpoint",
    "claiming": "waits for its worker",
    "stopping": "program has its grace period",
    "finishing": "last records are on their way",
    "telemetry": "waits for its telemetry to be taken",
}


def view_summary(
    run: Run, rule: api.WaitRule | None, values: Mapping[str, int | float | str] | None = None
) -> api.RunSummary:
    """A run as a row of a list, with the rule that it waits for if it does, and values of columns."""
    return api.RunSummary.model_validate({**_summary_fields(run, rule), "fields": values or {}})


def _summary_fields(run: Run, rule: api.WaitRule | None) -> dict[str, object]:
    return {
        "id": run.id,
        "project": run.project_id,
        "job": run.job_name,
        "version": run.version_number,
        "owner": principal_in(run, "submitted_by"),
        "state": run.state,
        "reason": view_reason(run.reason_code, run.reason_message, run),
        "wait": None if rule is None else api.Wait(rule=rule, phrase=_PHRASES[rule]),
        "strategy": run.strategy_kind,
        "replicas": run.replicas,
        "platform": run.platform,
        "priority": run.priority,
        "labels": run.labels,
        "progress": {
            "step": run.step,
            "total_steps": run.total_steps,
            "steps_per_s": run.steps_per_s,
            "examples_per_s": run.examples_per_s,
            "throughput": run.throughput,
            "straggler": run.straggler,
            "updated_at": run.progress_at,
        },
        "attempts": run.attempts,
        "created_at": run.created_at,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "cancel_requested": run.cancel_requested_at is not None,
        "cancelled_by": None if run.cancel_requested_at is None else principal_in(run, "cancel_requested_by"),
        "hosts": run.hosts,
        "batch": run.batch_id,
        "not_finite": run.not_finite or {},
        "note": run.note or "",
        "starred": run.starred_at is not None,
        "archived_at": run.archived_at,
        "first_non_finite": run.first_non_finite,
        "stalled_at": run.stalled_at if run.state == "RUNNING" else None,
    }


def view_run(run: Run, spec: api.JobVersion, why: api.Why | None, warnings: Sequence[api.RunWarning] = ()) -> api.Run:
    """A run whole."""
    return api.Run.model_validate(
        {
            **_summary_fields(run, None if why is None else why.rule),
            "spec": spec,
            "parameters": run.parameters,
            "resources": {"replicas": run.replicas, "platform": run.platform, "spread": run.spread},
            "limits": run.limits,
            "retries": run.retries,
            "wait_for_devices": run.wait_for_devices,
            "plan": run.plan_id,
            "resume_from": run.resume_from,
            "why": why,
            "result": None if run.result is None else run.result["value"],
            "last_event": run.event_seq,
            "rerun_of": run.rerun_of,
            "warnings": tuple(warnings),
        }
    )


def view_attempt(run: Run, attempt: Attempt, members: Iterable[Member], hosts: Mapping[str, Host]) -> api.Attempt:
    """An attempt with its members by rank."""
    return api.Attempt.model_validate(
        {
            "id": attempt.id,
            "number": attempt.number,
            "fence": attempt.fence,
            "state": attempt.state,
            "reason": view_reason(attempt.reason_code, attempt.reason_message, run),
            "created_at": attempt.created_at,
            "started_at": attempt.started_at,
            "ended_at": attempt.ended_at,
            "resumed_from": attempt.resumed_from,
            "resumed_step": attempt.resumed_step,
            "members": tuple(_view_member(run, member, hosts[member.host_id].name) for member in members),
        }
    )


def view_event(event: RunEvent) -> api.RunEvent:
    """An event as lists and the stream show it."""
    return api.RunEvent.model_validate(
        {"seq": event.seq, "at": event.at, "kind": event.kind, "attempt": event.attempt_id, "body": event.body}
    )


def _view_member(run: Run, member: Member, host_name: str) -> api.Member:
    return api.Member.model_validate(
        {
            "id": member.id,
            "host": member.host_id,
            "host_name": host_name,
            "rank": member.rank,
            "state": member.state,
            "phase": member.phase,
            "pid": member.pid,
            "exit_code": member.exit_code,
            "signal": member.signal,
            "reason": view_reason(member.reason_code, member.reason_message, run),
            "claimed_at": member.claimed_at,
            "ended_at": member.ended_at,
        }
    )


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
    session: Session,
    project_id: str,
    filters: RunFilters,
    terms: SchedulingTerms,
    *,
    cursor: str | None,
    limit: int,
    now: int,
) -> api.Page[api.RunSummary]:
    """A page of runs, each with what it waits for."""
    after = None
    if cursor:
        created_at, run_id = decode_cursor(cursor, int, str)
        after = (int(created_at), str(run_id))
    rows = runs.runs_page(session, project_id, filters, after, limit + 1)
    rules = rules_of(session, project_id, rows[:limit], terms, now=now)
    return page_of(
        rows,
        limit,
        item=lambda run: view_summary(run, rules.get(run.id)),
        key=lambda run: (run.created_at, run.id),
    )


@dataclass(frozen=True, slots=True)
class Wanted:
    """A page of runs that is asked for."""

    query: ListQuery
    filters: RunFilters
    columns: Sequence[str]
    cursor: str | None
    offset: int
    limit: int


_BY_AGE = ("-created", "created")


def list_or_find(session: Session, wanted: Wanted, terms: SchedulingTerms) -> api.Page[api.RunSummary]:
    """A page of runs: by age and the plain filters alone from the index of it, else by sets. Raises FilterError."""
    query, cursor, limit, now = wanted.query, wanted.cursor, wanted.limit, wanted.query.now
    if not (query.where or wanted.columns or wanted.offset) and query.sort in _BY_AGE:
        filters = replace(wanted.filters, newest_first=query.sort == "-created")
        return list_runs(session, query.project_id, filters, terms, cursor=cursor, limit=limit, now=now)
    query = replace(query, conditions=tuple(conditions_of(wanted.filters)))
    found = RunList(session, query).page(cursor, wanted.offset, limit)
    rules = rules_of(session, query.project_id, found.runs, terms, now=now)
    values = field_values(session, query.project_id, found.runs, wanted.columns, now=now)
    items = [view_summary(run, rules.get(run.id), values[run.id]) for run in found.runs]
    return api.Page(items=tuple(items), next=found.next)


def get_run(session: Session, project_id: str, run_id: str, terms: SchedulingTerms, *, now: int) -> api.Run:
    """One run, with what would let it start if it waits. Raises NotFoundError."""
    run = require_run(session, project_id, run_id)
    return _view(session, run, explain(session, run, terms, now=now))


def get_whole_run(session: Session, project_id: str, run_id: str, *, now: int) -> api.Run:
    """One of many runs: why it waits, without a search for what would let it start, which takes long for each."""
    return whole_run(session, require_run(session, project_id, run_id), now=now)


def whole_run(session: Session, run: Run, *, now: int) -> api.Run:
    """A run with its version and the reason why it waits."""
    return _view(session, run, why_waiting(session, run, now=now))


def _view(session: Session, run: Run, why: api.Why | None) -> api.Run:
    spec = jobs.view_version(runs.version_of(session, run), run.job_name)
    whole = view_run(run, spec, why, warnings_of(session, run))
    until = deleted_from(session, run)
    known = {"deleted_from": None if until is None else from_micros(until), "summary": read_summary(session, run)}
    return whole.model_copy(update=known)


def list_attempts(
    session: Session, project_id: str, run_id: str, *, cursor: str | None, limit: int
) -> api.Page[api.Attempt]:
    """A page of a run's attempts, newest first. Raises NotFoundError."""
    run = require_run(session, project_id, run_id)
    before = int(decode_cursor(cursor, int)[0]) if cursor else _NEWEST
    rows = runs.attempts_before(session, run_id, before, limit + 1)
    members = runs.members_of_attempts(session, [attempt.id for attempt in rows])
    hosts = runs.hosts_by_id(session, [member.host_id for member in members])
    return page_of(
        rows,
        limit,
        item=lambda attempt: view_attempt(run, attempt, [m for m in members if m.attempt_id == attempt.id], hosts),
        key=lambda attempt: (attempt.number,),
    )


def list_events(
    session: Session, project_id: str, run_id: str, *, after: int, limit: int, kinds: Collection[str] = ()
) -> api.Page[api.RunEvent]:
    """Events of a run in order, those behind `after` and of `kinds`, or of any kind. Raises NotFoundError."""
    require_run(session, project_id, run_id)
    rows = runs.events_after(session, run_id, after, limit + 1, kinds)
    shown = rows[:limit]
    following = str(shown[-1].seq) if len(rows) > limit else None
    return api.Page(items=tuple(view_event(event) for event in shown), next=following)


def ask_stacks(session: Session, project_id: str, run_id: str, *, by: api.PrincipalRef, now: int) -> RunStacks:
    """Asks the live members of a run where they stand; what they answered before is forgotten.

    Raises NotFoundError, or DrumlineError already_terminal where no process of it lives.
    """
    run = lock_run(session, run_id)
    if run is None or run.project_id != project_id:
        raise runs.no_run(session, project_id, run_id)
    live = [member for member in _newest_members(session, run) if member.state in _WITH_PROCESS]
    if not live:
        raise DrumlineError(
            ProblemCode.ALREADY_TERMINAL if run.state in TERMINAL_RUN else ProblemCode.CONFLICT,
            f"No process of run {run_id} lives ({run.state}).",
            hint="Stacks of a run that hung are in its log, and the SDK's run.stacks() gives them.",
            context={"run": run_id, "state": run.state},
        )
    # Later than any request before: an answer names the one that it answers, and clocks are set back.
    asked_at = max([now, *(member.stacks_asked_at + 1 for member in live if member.stacks_asked_at is not None)])
    for member in live:
        member.stacks_asked_at, member.stacks_answered_at, member.standing = asked_at, None, None
        set_principal(member, "stacks_asked_by", by)
        notify(session, member.host_id)
    session.flush()
    return get_stacks(session, project_id, run_id, now=now)


def get_stacks(session: Session, project_id: str, run_id: str, *, now: int) -> RunStacks:
    """Where the members of a run's newest attempt stood when they were last asked. Raises NotFoundError."""
    run = require_run(session, project_id, run_id)
    members = _newest_members(session, run)
    hosts = runs.hosts_by_id(session, [member.host_id for member in members])
    asked = [member for member in members if member.stacks_asked_at is not None]
    newest = max(asked, key=lambda member: member.stacks_asked_at or 0, default=None)
    return RunStacks(
        asked_at=None if newest is None else from_micros(newest.stacks_asked_at or 0),
        asked_by=None if newest is None else newest.stacks_asked_by,
        members=tuple(_view_stacks(member, hosts[member.host_id], len(members), now) for member in members),
        is_complete=bool(asked) and all(_is_settled(member) for member in asked),
    )


_WITH_PROCESS = frozenset({MemberState.CLAIMED, MemberState.STARTING, MemberState.RUNNING})
_MOST_STACKS = 256
"""Members of one answer: their stacks are read at once."""
_MOST_TEXT = 256 * 1024
"""Characters of each kind of stacks in one answer: members have equal shares of it, and longer ones are cut."""
_MOST_SHOWN_COLLECTIVES = 1024
"""Collectives of programs in one answer, in equal shares too."""


def _newest_members(session: Session, run: Run) -> Sequence[Member]:
    newest = runs.attempts_before(session, run.id, _NEWEST, 1)
    return runs.members_of_attempts(session, [newest[0].id])[:_MOST_STACKS] if newest else ()


def _is_settled(member: Member) -> bool:
    return member.stacks_answered_at is not None or member.state in TERMINAL_MEMBER


def _view_stacks(member: Member, host: Host, members: int, now: int) -> MemberStacks:
    answered_at = None if member.stacks_answered_at is None else from_micros(member.stacks_answered_at)
    standing = None if answered_at is None else _cut_standing(MemberStanding.model_validate(member.standing), members)
    missing = "" if standing is not None else _why_no_answer(member, host, now)
    return MemberStacks(
        member=member.id,
        rank=member.rank,
        host_name=host.name,
        answered_at=answered_at,
        standing=standing,
        missing=missing,
    )


def _cut_standing(standing: MemberStanding, members: int) -> MemberStanding:
    """What fits the share of one of so many members."""
    program, most = standing.program, _MOST_SHOWN_COLLECTIVES // members
    if program is not None and len(program.collectives) > most:
        left = len(program.collectives) - most
        program = program.model_copy(
            update={"collectives": program.collectives[:most], "more_collectives": program.more_collectives + left}
        )
    texts = {name: _cut_text(getattr(standing, name), _MOST_TEXT // members) for name in ("python", "threads")}
    return standing.model_copy(update={"program": program, **texts})


def _cut_text(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}\n[{len(text) - most} more characters]"


def _why_no_answer(member: Member, host: Host, now: int) -> str:
    if member.state in TERMINAL_MEMBER:
        return "Its process has ended."
    if member.stacks_asked_at is None:
        return "Nobody has asked it."
    silent_s = (now - (host.last_heartbeat_at or now)) / 1e6
    return f"Its host has not answered yet; it was last heard of {max(0.0, silent_s):.0f} s ago."
