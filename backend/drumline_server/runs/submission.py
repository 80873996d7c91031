"""Takes a submission: everything is checked, then job, version, run, event and key are stored in one transaction."""

from dataclasses import dataclass

from pydantic import BaseModel, ValidationError
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.spec import RunSubmit
from drumline_server import audit
from drumline_server.errors import InvalidRequestError
from drumline_server.idempotency import Keyed, keyed, remember, replay
from drumline_server.jobs import service as jobs
from drumline_server.models import JobVersion, Run
from drumline_server.runs import queries, service
from drumline_server.runs.checking import Checker, require_storable
from drumline_server.runs.queueing import Order, queue_runs
from drumline_server.runs.views import view_run

_ROUTE = "POST /runs"
_CREATED = 201


@dataclass(frozen=True, slots=True)
class Submission:
    """Who submits what, under which Idempotency-Key."""

    project_id: str
    submitted_by: str
    key: str
    body: RunSubmit
    credential: str
    """Id of the token or session: keys of different ones never meet."""


@dataclass(frozen=True, slots=True)
class Rerun:
    """Who wants an old run again, under which Idempotency-Key."""

    project_id: str
    submitted_by: str
    key: str
    run_id: str
    body: api.RerunRequest
    credential: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a submission; `replayed` if the key had it already."""

    submitted: api.SubmittedRun
    replayed: bool


def submit(session: Session, submission: Submission, *, now: int) -> Answer:
    """Queues a run, or gives the answer that the key already has.

    Raises DrumlineError as `Checker.check`; idempotency_mismatch, idempotency_in_flight.
    """
    body = submission.body
    require_storable(body)
    request = keyed(submission.project_id, submission.credential, _ROUTE, submission.key, body)
    first = replay(session, request, now=now)
    if first is not None:
        return Answer(api.SubmittedRun.model_validate(first), replayed=True)
    checked = Checker(session, submission.project_id).check(body)
    version, created_version = jobs.ensure_version(
        session, submission.project_id, body.job, by=submission.submitted_by, now=now
    )
    order = Order(version, body, checked)
    return _queue(session, submission, request, order, created_version=created_version, now=now)


def rerun(session: Session, request: Rerun, *, now: int) -> Answer:
    """Queues a run with the version, parameters and options of an old one, whatever is current now.

    Raises NotFoundError, and DrumlineError as `submit`: the fleet may have shrunk since.
    """
    old = service.require_run(session, request.project_id, request.run_id)
    route = f"{_ROUTE}/{old.id}:rerun"
    named = keyed(request.project_id, request.credential, route, request.key, request.body)
    first = replay(session, named, now=now)
    if first is not None:
        return Answer(api.SubmittedRun.model_validate(first), replayed=True)
    version = queries.version_of(session, old)
    body = _as_submitted(session, old, version, request.body)
    checked = Checker(session, request.project_id).check(body)
    order = Order(version, body, checked, rerun_of=old.id)
    return _queue(session, request, named, order, created_version=False, now=now)


def _as_submitted(session: Session, old: Run, version: JobVersion, changes: api.RerunRequest) -> RunSubmit:
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
                "resume_from": old.resume_from,
            }
        )
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in wrong["loc"])
        raise InvalidRequestError(
            field, f"run {old.id} was allowed this, and runs are not any more: {wrong['msg']}"
        ) from None


_JOB_FIELDS = ("program", "strategy", "record", "checkpoint")


def _queue(
    session: Session, sender: Submission | Rerun, request: Keyed, order: Order, *, created_version: bool, now: int
) -> Answer:
    (run,) = queue_runs(session, sender.project_id, sender.submitted_by, [order], now=now)
    shown = view_run(run, jobs.view_version(order.version, run.job_name), why=None)
    answer = api.SubmittedRun(run=shown, created_version=created_version)
    remember(session, request, answer.model_dump(mode="json"), status=_CREATED, now=now)
    audit.record(
        session,
        "run.submit",
        run.id,
        principal=sender.submitted_by,
        project_id=sender.project_id,
        now=now,
        body={"job": run.job_name, "version": run.version_number},
    )
    return Answer(answer, replayed=False)
