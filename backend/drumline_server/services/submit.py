"""Takes submissions: all is checked, then jobs, versions, runs, events and keys are stored in one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import new_id
from drumline.contracts.spec import RunSubmit
from drumline.contracts.states import RunState
from drumline_server.base.errors import CapError, DrumlineError, InvalidRequestError
from drumline_server.base.shapes import shape_of
from drumline_server.lifecycle import checkpoints
from drumline_server.services import bundles, jobs
from drumline_server.services.checking import Checked, Checker
from drumline_server.services.runs import view_run
from drumline_server.storage import fields, history
from drumline_server.storage.history import record_first_events
from drumline_server.storage.models import JobVersion, Run, RunLabel, principal_columns, principal_in, table_of
from drumline_server.storage.notifications import QUEUE, announce, run_list
from drumline_server.storage.requests import IdempotentRequest, idempotent_request, remember, replay, replays
from drumline_server.storage.runs import require_run, version_of

_MICROS = 1_000_000
_INSERT = insert(table_of(Run))
Row = dict[str, Any]  # Any: values of columns
_INSERT_LABEL = insert(table_of(RunLabel))


@dataclass(frozen=True, slots=True)
class CheckedRun:
    """A run that has been checked and is to be queued."""

    project_id: str
    submitted_by: api.PrincipalRef
    version: JobVersion
    body: RunSubmit
    checked: Checked
    rerun_of: str | None = None
    batch: tuple[str, int] | None = None
    """The batch and the run's place in it."""


def queue_runs(session: Session, orders: Sequence[CheckedRun], *, now: int) -> list[Run]:
    """Queues the runs; their order in the queue is that of `orders`. The session does not know what is returned.

    Raises InvalidRequestError where a checkpoint to resume from was deleted after it had been checked.
    """
    return [Run(**row) for row in queue_rows(session, orders, now=now)]


def queue_rows(session: Session, orders: Sequence[CheckedRun], *, now: int) -> list[Row]:
    """`queue_runs` for many: the rows as they were stored. Objects of the ORM take longer to make than to store."""
    rows = [
        # a microsecond apart: ids of one millisecond do not sort
        _queued_row(order, now + place)
        for place, order in enumerate(orders)
    ]
    for row, number in zip(rows, fields.take_numbers(session, len(rows)), strict=True):
        row["number"] = number
    session.execute(_INSERT, rows)
    _add_fields(session, orders, rows)
    labels = [
        {"run_id": row["id"], "key": key, "value": value, "project_id": row["project_id"]}
        for row in rows
        for key, value in row["labels"].items()
    ]
    if labels:
        session.execute(_INSERT_LABEL, labels)
    checkpoints.keep_checkpoints(session, {row["resume_from"] for row in rows if row["resume_from"] is not None})
    record_first_events(session, rows, "state", {"state": RunState.QUEUED, "from": None})
    announce(session, QUEUE, *(run_list(row["id"]) for row in rows))
    return rows


def _add_fields(session: Session, orders: Sequence[CheckedRun], rows: Sequence[Row]) -> None:
    by_project: dict[str, dict[int, fields.Fields]] = {}
    alike: dict[str, dict[int, fields.Alike]] = {}
    left_out = fields.LeftOut()
    for order, row in zip(orders, rows, strict=True):
        project_id, number = row["project_id"], row["number"]
        given = fields.parameter_fields(row["parameters"])
        by_project.setdefault(project_id, {})[number] = given | fields.label_fields(row["labels"])
        if order.version.defaults:
            taken = left_out.of(order.version.defaults, row["parameters"], len(given))
            alike.setdefault(project_id, {}).setdefault(id(taken), fields.Alike([], taken)).runs.append(number)
    for project_id, runs in sorted(by_project.items()):
        fields.add_fields(session, project_id, runs, [*alike.get(project_id, {}).values()])


def room_to_wait(session: Session, project_id: str, most: int) -> int:
    """How many more runs of the project may wait. Counts no further than `most`, by index alone."""
    waiting = select(Run.id).where(Run.project_id == project_id, Run.state == RunState.QUEUED).limit(most)
    return most - (session.scalar(select(func.count()).select_from(waiting.subquery())) or 0)


def no_room_to_wait(most: int) -> CapError:
    """The refusal of a run that may not wait beside so many others."""
    return CapError(
        "Too many runs of this project would wait",
        most,
        "DRUMLINE_WAITING_RUNS",
        hint="Wait until some have started, or cancel some.",
    )


def make_queued_run(order: CheckedRun, now: int) -> Run:
    """The run as it is first stored."""
    return Run(**_queued_row(order, now))


def _queued_row(order: CheckedRun, now: int) -> Row:
    """What a run is first stored with; columns have their defaults beside it."""
    body, version = order.body, order.version
    resources = body.resources.model_dump()
    queue_s = body.limits.queue_s
    return dict(
        id=new_id("run"),
        project_id=order.project_id,
        job_id=version.job_id,
        job_name=body.job.name,
        version_id=version.id,
        version_number=version.number,
        **principal_columns("submitted_by", order.submitted_by),
        rerun_of=order.rerun_of,
        plan_id=order.checked.plan_id,
        resume_from=order.checked.resume_from,
        batch_id=order.batch[0] if order.batch else None,
        batch_index=order.batch[1] if order.batch else None,
        state=RunState.QUEUED,
        fence=0,
        event_seq=1,
        attempts=0,
        hosts=[],
        strategy_kind=version.strategy["kind"],
        **resources,
        shape=str(shape_of(version.strategy, resources, version.checkpoint)),
        priority=body.priority,
        parameters=order.checked.parameters,
        limits=body.limits.model_dump(),
        retries=body.retries.model_dump(),
        labels=dict(body.labels),
        wait_for_devices=body.wait_for_devices,
        created_at=now,
        queue_deadline=None if queue_s is None else now + int(queue_s * _MICROS),
    )


_ROUTE = "POST /runs"
_CREATED = 201


@dataclass(frozen=True, slots=True)
class Submission:
    """Who submits what, under which Idempotency-Key."""

    project_id: str
    submitted_by: api.PrincipalRef
    key: str
    body: RunSubmit
    credential: str
    """Id of the token or session: keys of different ones never meet."""


@dataclass(frozen=True, slots=True)
class Rerun:
    """Who wants an old run again, under which Idempotency-Key."""

    project_id: str
    submitted_by: api.PrincipalRef
    key: str
    run_id: str
    body: api.RerunRequest
    credential: str


@dataclass(frozen=True, slots=True)
class SubmissionResult:
    """The answer to a submission; `replayed` if the key had it already."""

    submitted: api.SubmittedRun
    replayed: bool


@dataclass(frozen=True, slots=True)
class _Accepted:
    """A request whose run is to be queued."""

    request: IdempotentRequest
    order: CheckedRun
    created_version: bool


def submit_all(
    session: Session, submissions: Sequence[Submission], *, most_waiting: int, now: int
) -> list[SubmissionResult | DrumlineError]:
    """For each submission its run, or the answer that its key already has, or the refusal; few statements for them all.

    Bodies are storable (`require_storable`); `most_waiting` runs of a project may wait. Refusals are DrumlineError as
    of `Checker.check`; idempotency_mismatch, idempotency_in_flight; CapError. Of several with one key the first is
    decided first, and the others have its answer. Raises DrumlineError where it is too late to tell whose it is; then
    nothing of the transaction may stay.
    """
    requests = [
        idempotent_request(each.project_id, each.credential, _ROUTE, each.key, each.body) for each in submissions
    ]
    outcomes: dict[int, SubmissionResult | DrumlineError] = {}
    left = dict(enumerate(requests))
    while left:
        first_of = {request.names: place for place, request in reversed(left.items())}
        turn = {place: left.pop(place) for place in sorted(first_of.values())}
        asked = [(submissions[place], request) for place, request in turn.items()]
        outcomes.update(zip(turn, _submit_different(session, asked, most_waiting=most_waiting, now=now), strict=True))
    return [outcomes[place] for place in range(len(requests))]


def _submit_different(
    session: Session, asked: Sequence[tuple[Submission, IdempotentRequest]], *, most_waiting: int, now: int
) -> list[SubmissionResult | DrumlineError]:
    stored_answers = replays(session, [request for _, request in asked], now=now)
    resolver = _SubmissionResolver(session, most_waiting, now)
    outcomes = [resolver.decide(*each, stored) for each, stored in zip(asked, stored_answers, strict=True)]
    answers = iter(_queue(session, [each for each in outcomes if isinstance(each, _Accepted)], now=now))
    return [next(answers) if isinstance(each, _Accepted) else each for each in outcomes]


class _SubmissionResolver:
    """Decides about submissions; what many of them share is looked up once."""

    def __init__(self, session: Session, most_waiting: int, now: int) -> None:
        self._session = session
        self._most_waiting = most_waiting
        self._now = now
        self._checkers: dict[str, Checker] = {}
        self._versions: dict[tuple[str, str], JobVersion] = {}
        self._rooms: dict[str, int] = {}
        """By project: how many more runs may wait."""

    def decide(
        self,
        submission: Submission,
        request: IdempotentRequest,
        stored_answer: dict[str, Any] | DrumlineError | None,  # Any: JSON of the answer
    ) -> SubmissionResult | DrumlineError | _Accepted:
        """The answer that the key already has, why the submission is refused, or what is to be queued."""
        if isinstance(stored_answer, DrumlineError):
            return stored_answer
        if stored_answer is not None:
            return SubmissionResult(api.SubmittedRun.model_validate(stored_answer), replayed=True)
        try:
            checked = self._checker(submission.project_id).check(submission.body)
        except DrumlineError as error:
            return error
        if not self._take_room(submission.project_id):
            return no_room_to_wait(self._most_waiting)
        version, created = self._version(submission)
        order = CheckedRun(submission.project_id, submission.submitted_by, version, submission.body, checked)
        return _Accepted(request, order, created)

    def _checker(self, project_id: str) -> Checker:
        if project_id not in self._checkers:
            self._checkers[project_id] = Checker(self._session, project_id, now=self._now)
        return self._checkers[project_id]

    def _take_room(self, project_id: str) -> bool:
        if project_id not in self._rooms:
            self._rooms[project_id] = room_to_wait(self._session, project_id, self._most_waiting)
        self._rooms[project_id] -= 1
        return self._rooms[project_id] >= 0

    def _version(self, submission: Submission) -> tuple[JobVersion, bool]:
        job = submission.body.job
        known = (submission.project_id, job.model_dump_json())
        if known in self._versions:
            return self._versions[known], False
        self._versions[known], created = jobs.ensure_version(
            self._session, submission.project_id, job, by=submission.submitted_by, now=self._now
        )
        return self._versions[known], created


def rerun(session: Session, request: Rerun, *, most_waiting: int, now: int) -> SubmissionResult:
    """Queues a run with the version, parameters and options of an old one, whatever is current now.

    Raises NotFoundError, and DrumlineError as `submit_all`: the fleet may have shrunk since.
    """
    old = require_run(session, request.project_id, request.run_id)
    route = f"{_ROUTE}/{old.id}:rerun"
    named = idempotent_request(request.project_id, request.credential, route, request.key, request.body)
    stored_answer = replay(session, named, now=now)
    if stored_answer is not None:
        return SubmissionResult(api.SubmittedRun.model_validate(stored_answer), replayed=True)
    version = version_of(session, old)
    bundles.take_bundle(session, request.project_id, version.bundle)
    jobs.know_defaults(session, version)
    body = _original_submission(session, old, version, request.body)
    try:
        checked = Checker(session, request.project_id, now=now).check(body)
    except InvalidRequestError as error:
        if error.errors[0].field == "resume_from":
            error.hint = f"To start over: from_start (drumline rerun {old.id} --from-start). {error.hint}".rstrip()
        raise
    if room_to_wait(session, request.project_id, most_waiting) < 1:
        raise no_room_to_wait(most_waiting)
    order = CheckedRun(request.project_id, request.submitted_by, version, body, checked, rerun_of=old.id)
    (answer,) = _queue(session, [_Accepted(named, order, created_version=False)], now=now)
    return answer


def _original_submission(session: Session, old: Run, version: JobVersion, changes: api.RerunRequest) -> RunSubmit:
    spec = jobs.view_version(version, old.job_name)
    waits = old.wait_for_devices if changes.wait_for_devices is None else changes.wait_for_devices
    job: dict[str, BaseModel | str] = {name: getattr(spec, name) for name in _JOB_FIELDS}
    try:
        return RunSubmit.model_validate(
            {
                "job": {"name": old.job_name, **job},
                "parameters": old.parameters,
                "resources": {"replicas": old.replicas, "platform": old.platform, "spread": old.spread},
                "limits": old.limits,
                "retries": old.retries,
                "priority": old.priority,
                "labels": old.labels,
                "wait_for_devices": waits,
                "anyway": True,  # it was tried before, and whoever wants it again knows how it went
                "resume_from": None if changes.from_start else old.resume_from,
            }
        )
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in wrong["loc"])
        raise InvalidRequestError(
            field, f"run {old.id} was allowed this, and runs are not any more: {wrong['msg']}"
        ) from None


_JOB_FIELDS = ("program", "strategy", "record", "checkpoint")


def _queue(session: Session, accepted: Sequence[_Accepted], *, now: int) -> list[SubmissionResult]:
    """Queues the runs, keeps the answers and writes down who submitted."""
    if not accepted:
        return []
    runs = queue_runs(session, [each.order for each in accepted], now=now)
    versions = {each.order.version.id: each.order for each in accepted}
    specs = {key: jobs.view_version(order.version, order.body.job.name) for key, order in versions.items()}
    answers = [
        api.SubmittedRun(
            run=view_run(run, specs[run.version_id], None, each.order.checked.warnings),
            created_version=each.created_version,
        )
        for each, run in zip(accepted, runs, strict=True)
    ]
    remember(session, zip([each.request for each in accepted], answers, strict=True), status=_CREATED, now=now)
    history.record_audits(session, [_audit_entry(run) for run in runs], now=now)
    return [SubmissionResult(answer, replayed=False) for answer in answers]


def _audit_entry(run: Run) -> history.AuditEntry:
    body = {"job": run.job_name, "version": run.version_number}
    return history.AuditEntry("run.submit", run.id, principal_in(run, "submitted_by"), run.project_id, body=body)
