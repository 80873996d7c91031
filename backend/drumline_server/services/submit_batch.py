"""Takes a batch: each of its runs is checked, then they are queued, a part in each transaction; or none is.

A part takes the writer of the database for some 25 ms, so that 10 000 runs keep nobody waiting. What was begun is
finished by whoever sends the same request again: what is queued already tells where to continue.
"""

import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import new_id, unstorable
from drumline.contracts.problems import FieldProblem
from drumline.contracts.spec import RunSubmit
from drumline.contracts.sweeps import BatchSubmit, SweepSpec, SweepSubmit
from drumline_server.base.errors import DrumlineError, InvalidRequestError
from drumline_server.services import batches, sweeps
from drumline_server.services.checking import Checked, Checker, require_storable
from drumline_server.services.jobs import ensure_version
from drumline_server.services.submit import CheckedRun, no_room_to_wait, queue_rows, room_to_wait
from drumline_server.storage import fields, history
from drumline_server.storage.models import Batch, JobVersion, principal_columns
from drumline_server.storage.requests import (
    UNFINISHED,
    IdempotentRequest,
    finish,
    idempotent_request,
    is_answered,
    remember,
    replay,
)

_CREATED = 201
_SHOWN_ERRORS = 20
_PART = 70
"""Runs that are queued in one transaction, of those that cost little."""
_NEW_VERSION = 18
"""Runs that cost as much as a new version of a job."""
_CHARACTERS = 1_000
"""Of parameters that cost as much to store as a run."""
_FIELDS = 8
"""Rows of labels and of fields that cost as much to store as a run; a label is one of each, a parameter a field."""
_COPIED_FIELDS = 50
"""Fields of parameters that are left out, as another run of the part has them, that cost as much to store as a run."""


@dataclass(frozen=True, slots=True)
class BatchSubmission:
    """Who submits which runs, under which Idempotency-Key."""

    project_id: str
    submitted_by: api.PrincipalRef
    key: str
    body: BatchSubmit | SweepSubmit
    credential: str
    """Id of the token or session: keys of different ones never meet."""
    runs: Sequence[RunSubmit]
    """As `make_runs` makes them of the body."""

    @property
    def route(self) -> str:
        """What the key is of."""
        return "POST /runs:sweep" if isinstance(self.body, SweepSubmit) else "POST /runs:batch"


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The answer to a submission; `replayed` if the key had it already."""

    submitted: api.SubmittedBatch
    replayed: bool


@dataclass(frozen=True, slots=True)
class Prepared:
    """A submission whose runs have been made and checked, so that little is left to do while others wait to write."""

    submission: BatchSubmission
    request: IdempotentRequest
    runs: Sequence[tuple[RunSubmit, Checked]]
    """Nothing where the key has an answer already."""
    ends: Sequence[int]
    """Where the parts end that are queued in a transaction each."""

    def part_from(self, queued: int) -> Sequence[tuple[RunSubmit, Checked]]:
        """The runs to queue next, where so many are."""
        return self.runs[queued : self.ends[bisect_right(self.ends, queued)]]


@dataclass(frozen=True, slots=True)
class Begun:
    """A batch some of whose runs are queued; `queue_part` queues more."""

    prepared: Prepared
    batch_id: str
    versions: dict[str, JobVersion]
    """By the text of the job: what is found once need not be looked for in every part."""


def make_runs(body: BatchSubmit | SweepSubmit) -> Sequence[RunSubmit]:
    """The runs that a body asks for. Those of a sweep may take seconds to draw: call it where no one else waits.

    Raises DrumlineError: bad_sweep; InvalidRequestError for what no database can hold.
    """
    _require_storable(body)
    if isinstance(body, BatchSubmit):
        return body.runs
    return [
        body.run.model_copy(update={"parameters": {**body.run.parameters, **point}})
        for point in sweeps.expand(body.sweep, body.run.parameters)
    ]


def prepare(session: Session, submission: BatchSubmission, *, now: int) -> Prepared:
    """Checks all runs of the batch on a snapshot, without writing.

    Raises DrumlineError: bad_sweep; and as `Checker.check`, with an entry of `errors` for each run that is wrong.
    """
    request = _idempotent_request(submission)
    if is_answered(session, request, now=now):
        return Prepared(submission, request, (), ())
    runs = list(zip(submission.runs, _check(session, submission, now), strict=True))
    return Prepared(submission, request, runs, tuple(_ends(runs)))


def begin(session: Session, prepared: Prepared, *, most_waiting: int, now: int) -> BatchResult | Begun:
    """Makes the batch and queues its first runs, continues one that was begun, or gives the answer that is there.

    Raises DrumlineError: idempotency_mismatch, idempotency_in_flight; CapError where not all of its runs may wait.
    """
    first = replay(session, prepared.request, now=now)
    if first is not None and UNFINISHED not in first:
        return BatchResult(api.SubmittedBatch.model_validate(first), replayed=True)
    if not prepared.runs:  # the answer that was there became too old meanwhile
        prepared = prepare(session, prepared.submission, now=now)
    if first is not None:
        return queue_part(session, Begun(prepared, first[UNFINISHED], {}), most_waiting=most_waiting, now=now)
    if room_to_wait(session, prepared.submission.project_id, most_waiting) < len(prepared.runs):
        raise no_room_to_wait(most_waiting)
    batch = _store(session, prepared, now=now)
    remember(session, [(prepared.request, {UNFINISHED: batch.id})], status=_CREATED, now=now)
    return queue_part(session, Begun(prepared, batch.id, {}), most_waiting=most_waiting, now=now)


_MOST_WARNINGS = 20


def queue_part(session: Session, begun: Begun, *, most_waiting: int, now: int) -> BatchResult | Begun:
    """Queues the next runs of the batch; the answer once all are.

    Whoever does the same at the same time queues others. Raises CapError where no more runs may wait: the batch then
    waits for the same request, incomplete.
    """
    prepared, project_id = begun.prepared, begun.prepared.submission.project_id
    size = batches.lock_batch(session, begun.batch_id)
    queued, last = batches.count_queued(session, begun.batch_id)
    if queued < size:
        part = prepared.part_from(queued)
        if room_to_wait(session, project_id, most_waiting) < len(part):
            raise no_room_to_wait(most_waiting)
        orders = _runs_to_queue(session, begun, part, queued, now=now)
        queue_rows(session, orders, now=max(now, last + 1))
        queued += len(part)
    if queued < size:
        return begun
    batch = batches.get_batch(session, project_id, begun.batch_id)
    warned = dict.fromkeys(warning for _, checked in prepared.runs for warning in checked.warnings)
    runs = tuple(batches.runs_of(session, begun.batch_id))
    answer = api.SubmittedBatch(batch=batch, runs=runs, warnings=tuple(warned)[:_MOST_WARNINGS])
    finish(session, prepared.request, answer)
    return BatchResult(answer, replayed=False)


def _ends(runs: Sequence[tuple[RunSubmit, Checked]]) -> Iterator[int]:
    jobs: set[str] = set()
    sent: set[int] = set()
    left_out = fields.LeftOut()
    cost = 0
    for place, (run, checked) in enumerate(runs):
        job, taken = run.job.model_dump_json(), left_out.of(checked.defaults, checked.parameters)
        own = _cost(run, checked) + (0 if job in jobs else _NEW_VERSION)
        copying, sending = len(taken) // _COPIED_FIELDS, len(taken) // _FIELDS
        if cost and cost + own + (copying if id(taken) in sent else sending) > _PART:
            yield place
            cost = 0
            sent.clear()
        cost += own + (copying if id(taken) in sent else sending)
        jobs.add(job)
        sent.add(id(taken))
    yield len(runs)


def _cost(run: RunSubmit, checked: Checked) -> int:
    rows = len(checked.parameters) + 2 * len(run.labels)
    return 1 + len(json.dumps(checked.parameters)) // _CHARACTERS + rows // _FIELDS


def _idempotent_request(submission: BatchSubmission) -> IdempotentRequest:
    """As of the whole body; of many runs one after the other, since the JSON of all of them is made in one breath."""
    body = submission.body
    names = (submission.project_id, submission.credential, submission.route, submission.key)
    if isinstance(body, SweepSubmit):
        return idempotent_request(*names, body)
    head = body.model_copy(update={"runs": []}).model_dump_json().removesuffix("]}")
    digest = hashlib.sha256(head.encode())
    for place, run in enumerate(body.runs):
        digest.update(f"{',' if place else ''}{run.model_dump_json()}".encode())
    digest.update(b"]}")
    return IdempotentRequest(*names, digest.hexdigest())


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


def _check(session: Session, submission: BatchSubmission, now: int) -> list[Checked]:
    """What each run needs to be queued; every run is looked at before the refusal."""
    body = submission.body
    checker = Checker(session, submission.project_id, now=now)
    checked: list[Checked] = []
    refusals: list[tuple[int, DrumlineError]] = []
    for place, run in enumerate(submission.runs):
        try:
            checked.append(checker.check(run))
        except DrumlineError as error:
            refusals.append((place, error))
    if refusals:
        raise (
            _describe_sweep_refusals(body.sweep, refusals)
            if isinstance(body, SweepSubmit)
            else _describe_refusals(refusals)
        )
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


def _describe_refusals(refusals: Sequence[tuple[int, DrumlineError]]) -> DrumlineError:
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


def _describe_sweep_refusals(sweep: SweepSpec, refusals: Sequence[tuple[int, DrumlineError]]) -> DrumlineError:
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


def _store(session: Session, prepared: Prepared, *, now: int) -> Batch:
    submission, body = prepared.submission, prepared.submission.body
    batch = Batch(
        id=new_id("bat"),
        project_id=submission.project_id,
        name=body.name,
        **principal_columns("submitted_by", submission.submitted_by),
        size=len(prepared.runs),
        jobs=sorted({run.job.name for run, _ in prepared.runs}),
        sweep=body.sweep.model_dump(mode="json") if isinstance(body, SweepSubmit) else None,
        created_at=now,
    )
    session.add(batch)
    session.flush()
    history.record_audit(
        session,
        "batch.submit",
        batch.id,
        principal=submission.submitted_by,
        project_id=submission.project_id,
        now=now,
        body={"runs": batch.size, "jobs": batch.jobs},
    )
    return batch


def _runs_to_queue(
    session: Session, begun: Begun, runs: Sequence[tuple[RunSubmit, Checked]], first: int, *, now: int
) -> list[CheckedRun]:
    submission, versions = begun.prepared.submission, begun.versions
    orders: list[CheckedRun] = []
    for place, (run, checked) in enumerate(runs, first):
        spec = run.job.model_dump_json()
        if spec not in versions:
            versions[spec], _ = ensure_version(
                session, submission.project_id, run.job, by=submission.submitted_by, now=now
            )
        order = CheckedRun(
            submission.project_id, submission.submitted_by, versions[spec], run, checked, batch=(begun.batch_id, place)
        )
        orders.append(order)
    return orders
