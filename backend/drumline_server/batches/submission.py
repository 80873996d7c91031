"""Takes a batch: each of its runs is checked, then all of them are queued in one transaction, or none."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.ids import new_id
from drumline.contracts.problems import FieldProblem
from drumline.contracts.spec import RunSubmit
from drumline.contracts.storable import unstorable
from drumline.contracts.sweeps import BatchSubmit, SweepSpec, SweepSubmit
from drumline_server import audit
from drumline_server.batches import service, sweeps
from drumline_server.errors import DrumlineError, InvalidRequestError
from drumline_server.idempotency import Keyed, is_answered, keyed, remember, replay
from drumline_server.jobs import service as jobs
from drumline_server.models import Batch, JobVersion
from drumline_server.runs.checking import Checked, Checker, require_storable
from drumline_server.runs.queueing import Order, queue_rows

_CREATED = 201
_SHOWN_ERRORS = 20


@dataclass(frozen=True, slots=True)
class Submission:
    """Who submits which runs, under which Idempotency-Key."""

    project_id: str
    submitted_by: str
    key: str
    body: BatchSubmit | SweepSubmit
    credential: str
    """Id of the token or session: keys of different ones never meet."""

    @property
    def route(self) -> str:
        """What the key is of."""
        return "POST /runs:sweep" if isinstance(self.body, SweepSubmit) else "POST /runs:batch"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a submission; `replayed` if the key had it already."""

    submitted: api.SubmittedBatch
    replayed: bool


@dataclass(frozen=True, slots=True)
class Prepared:
    """A submission whose runs have been made and checked, so that little is left to do while others wait to write."""

    submission: Submission
    request: Keyed
    runs: Sequence[tuple[RunSubmit, Checked]]
    """Nothing where the key has an answer already."""


def prepare(session: Session, submission: Submission, *, now: int) -> Prepared:
    """Makes and checks all runs of the batch on a snapshot, without writing.

    Raises DrumlineError: bad_sweep; and as `Checker.check`, with an entry of `errors` for each run that is wrong.
    """
    _require_storable(submission.body)
    request = _keyed(submission)
    if is_answered(session, request, now=now):
        return Prepared(submission, request, ())
    return Prepared(submission, request, _checked_runs(session, submission))


def submit(session: Session, prepared: Prepared, *, now: int) -> Answer:
    """Queues all runs of the batch, or gives the answer that the key already has.

    Raises DrumlineError: idempotency_mismatch, idempotency_in_flight.
    """
    submission, request = prepared.submission, prepared.request
    first = replay(session, request, now=now)
    if first is not None:
        return Answer(api.SubmittedBatch.model_validate(first), replayed=True)
    runs = prepared.runs or _checked_runs(session, submission)  # the answer that was there became too old meanwhile
    batch = _store(session, submission, [run for run, _ in runs], now=now)
    orders = _orders(session, submission, batch, runs, now=now)
    queued = queue_rows(session, orders, now=now)
    answer = api.SubmittedBatch(batch=service.view_one(session, batch), runs=tuple(row["id"] for row in queued))
    remember(session, [(request, answer)], status=_CREATED, now=now)
    audit.record(
        session,
        "batch.submit",
        batch.id,
        principal=submission.submitted_by,
        project_id=submission.project_id,
        now=now,
        body={"runs": batch.size, "jobs": batch.jobs},
    )
    return Answer(answer, replayed=False)


def _keyed(submission: Submission) -> Keyed:
    """As of the whole body; of many runs one after the other, since the JSON of all of them is made in one breath."""
    body = submission.body
    names = (submission.project_id, submission.credential, submission.route, submission.key)
    if isinstance(body, SweepSubmit):
        return keyed(*names, body)
    head = body.model_copy(update={"runs": []}).model_dump_json().removesuffix("]}")
    digest = hashlib.sha256(head.encode())
    for place, run in enumerate(body.runs):
        digest.update(f"{',' if place else ''}{run.model_dump_json()}".encode())
    digest.update(b"]}")
    return Keyed(*names, digest.hexdigest())


def _checked_runs(session: Session, submission: Submission) -> list[tuple[RunSubmit, Checked]]:
    runs = _runs_of(submission.body)
    return list(zip(runs, _check(session, submission.project_id, submission.body, runs), strict=True))


def _require_storable(body: BatchSubmit | SweepSubmit) -> None:
    if isinstance(body, SweepSubmit):
        require_storable(body.run)
        problem = unstorable(body.sweep.model_dump(mode="python"))
        if problem:
            raise InvalidRequestError("sweep", problem)
        return
    for place, run in enumerate(body.runs):
        problem = unstorable(run.parameters)
        if problem:
            raise InvalidRequestError(f"runs.{place}.parameters", problem)


def _runs_of(body: BatchSubmit | SweepSubmit) -> Sequence[RunSubmit]:
    if isinstance(body, BatchSubmit):
        return body.runs
    return [
        body.run.model_copy(update={"parameters": {**body.run.parameters, **point}})
        for point in sweeps.expand(body.sweep, body.run.parameters)
    ]


def _check(
    session: Session, project_id: str, body: BatchSubmit | SweepSubmit, runs: Sequence[RunSubmit]
) -> list[Checked]:
    """What each run needs to be queued; every run is looked at before the refusal."""
    checker = Checker(session, project_id)
    checked: list[Checked] = []
    refusals: list[tuple[int, DrumlineError]] = []
    for place, run in enumerate(runs):
        try:
            checked.append(checker.check(run))
        except DrumlineError as error:
            refusals.append((place, error))
    if refusals:
        raise _refused_sweep(body.sweep, refusals) if isinstance(body, SweepSubmit) else _refused_batch(refusals)
    if isinstance(body, SweepSubmit):
        _require_different(checked)
    return checked


def _require_different(checked: Sequence[Checked]) -> None:
    """Values that differ in the request may be the same to the program: 1 and 1.0."""
    seen: dict[str, int] = {}
    for place, run in enumerate(checked):
        text = json.dumps(run.parameters, sort_keys=True)
        first = seen.setdefault(text, place)
        if first != place:
            raise sweeps.bad_sweep("sweep", f"runs {first} and {place} have the same parameters: {text[:200]}")


def _refused_batch(refusals: Sequence[tuple[int, DrumlineError]]) -> DrumlineError:
    fields = tuple(
        FieldProblem(field=f"runs.{place}.{field.field}".rstrip("."), message=field.message)
        for place, error in refusals
        for field in error.errors or (FieldProblem(field="", message=error.detail),)
    )
    place, first = refusals[0]
    others = f" ({len(refusals) - 1} more runs are refused too)" if len(refusals) > 1 else ""
    return DrumlineError(
        first.code,
        f"Run {place} of the batch: {first.detail}{others}",
        hint=first.hint,
        context={**first.context, "runs_refused": len(refusals)},
        errors=fields[:_SHOWN_ERRORS],
    )


def _refused_sweep(sweep: SweepSpec, refusals: Sequence[tuple[int, DrumlineError]]) -> DrumlineError:
    """One entry for each thing that is wrong: most are in many runs at once."""
    swept = set(sweeps.swept_names(sweep))
    fields: dict[tuple[str, str], FieldProblem] = {}
    for _, error in refusals:
        for field in error.errors:
            name = field.field.removeprefix("parameters.")
            place = sweeps.field_of(sweep, name) if name in swept else f"run.{field.field}"
            fields.setdefault((place, field.message), FieldProblem(field=place, message=field.message))
    first = refusals[0][1]
    return DrumlineError(
        first.code,
        first.detail,
        hint=first.hint,
        context={**first.context, "runs_refused": len(refusals)},
        errors=tuple(fields.values())[:_SHOWN_ERRORS],
    )


def _store(session: Session, submission: Submission, runs: Sequence[RunSubmit], *, now: int) -> Batch:
    body = submission.body
    batch = Batch(
        id=new_id("bat"),
        project_id=submission.project_id,
        name=body.name,
        submitted_by=submission.submitted_by,
        size=len(runs),
        jobs=sorted({run.job.name for run in runs}),
        sweep=body.sweep.model_dump(mode="json") if isinstance(body, SweepSubmit) else None,
        created_at=now,
    )
    session.add(batch)
    session.flush()
    return batch


def _orders(
    session: Session,
    submission: Submission,
    batch: Batch,
    runs: Sequence[tuple[RunSubmit, Checked]],
    *,
    now: int,
) -> list[Order]:
    versions: dict[str, JobVersion] = {}
    orders: list[Order] = []
    for place, (run, checked) in enumerate(runs):
        spec = run.job.model_dump_json()
        if spec not in versions:
            versions[spec], _ = jobs.ensure_version(
                session, submission.project_id, run.job, by=submission.submitted_by, now=now
            )
        order = Order(
            submission.project_id, submission.submitted_by, versions[spec], run, checked, batch=(batch.id, place)
        )
        orders.append(order)
    return orders
