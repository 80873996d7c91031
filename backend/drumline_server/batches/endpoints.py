"""`/batches`, and the two ways to make one: `/runs:batch` and `/runs:sweep`."""

from typing import Annotated

from fastapi import Body, Query, Response, status

from drumline.contracts import api
from drumline.contracts.base import Text
from drumline.contracts.ids import BatchId
from drumline.contracts.sweeps import MAX_BATCH, BatchSubmit, SweepSubmit
from drumline_server.auth.dependencies import ReaderDep, SubmitterDep
from drumline_server.auth.principal import Principal
from drumline_server.batches import outcomes, service, submission
from drumline_server.clock import Clock
from drumline_server.db import Database
from drumline_server.dependencies import ClockDep, DatabaseDep, Key, KnownQuery
from drumline_server.edge.pieces import in_pieces
from drumline_server.paging import DEFAULT_PAGE, CursorText, Limit
from drumline_server.routing import api_router
from drumline_server.runs import cancellation

router = api_router(tags=["batches"])

Sort = Annotated[
    Text,
    Query(
        max_length=250,
        description="`index`, `state`, `duration`, `parameters.NAME` or `metrics.NAME`, descending with `-` before it; "
        "`best.NAME` begins with the best.",
    ),
]
Rows = Annotated[int, Query(ge=1, le=MAX_BATCH, description="Rows on the page.")]


@router.post("/runs:batch", status_code=status.HTTP_201_CREATED)
async def submit_batch(
    body: BatchSubmit, key: Key, principal: SubmitterDep, database: DatabaseDep, clock: ClockDep, response: Response
) -> api.SubmittedBatch:
    """Submits up to 1000 runs at once: all of them are queued, or none. A refusal names each run and field."""
    return await _submit(body, key, principal, database, clock, response)


@router.post("/runs:sweep", status_code=status.HTTP_201_CREATED)
async def submit_sweep(
    body: SweepSubmit, key: Key, principal: SubmitterDep, database: DatabaseDep, clock: ClockDep, response: Response
) -> api.SubmittedBatch:
    """Submits one run many times with different parameters: a grid, a list of points, or points drawn at random."""
    return await _submit(body, key, principal, database, clock, response)


@router.get("/batches", response_model=api.Page[api.Batch])
async def list_batches(
    principal: ReaderDep, _: KnownQuery, database: DatabaseDep, cursor: CursorText = None, limit: Limit = DEFAULT_PAGE
) -> Response:
    """The project's batches with the states of their runs, newest first."""
    page = await database.read(
        lambda session: service.list_batches(session, principal.project_id, cursor=cursor, limit=limit)
    )
    return in_pieces(page, "items")


@router.get("/batches/{batch_id}")
async def get_batch(batch_id: BatchId, principal: ReaderDep, database: DatabaseDep) -> api.Batch:
    """One batch. Its runs are `GET /runs?batch=`."""
    return await database.read(lambda session: service.get_batch(session, principal.project_id, batch_id))


@router.post("/batches/{batch_id}:cancel", status_code=status.HTTP_202_ACCEPTED)
async def cancel_batch(
    batch_id: BatchId,
    principal: SubmitterDep,
    database: DatabaseDep,
    clock: ClockDep,
    body: Annotated[api.CancelRequest | None, Body()] = None,
) -> api.Batch:
    """Asks every run of the batch that has not ended to stop; those that wait first, a part at a time."""
    await database.read(lambda session: service.require_batch(session, principal.project_id, batch_id))
    request = cancellation.BatchCancellation(batch_id, principal.name, (body or api.CancelRequest()).grace_s)
    while await database.write(lambda session: cancellation.cancel_some(session, request, now=clock.now())):
        pass
    return await database.read(lambda session: service.get_batch(session, principal.project_id, batch_id))


@router.get("/batches/{batch_id}/outcomes", response_model=api.Outcomes)
async def list_outcomes(
    batch_id: BatchId,
    principal: ReaderDep,
    _: KnownQuery,
    database: DatabaseDep,
    sort: Sort = "index",
    cursor: CursorText = None,
    limit: Rows = DEFAULT_PAGE,
) -> Response:
    """What came of the batch: a row for each run with its parameters, state and the numbers of its result."""
    page = await database.read(
        lambda session: outcomes.outcomes_page(
            session, principal.project_id, batch_id, sort=sort, cursor=cursor, limit=limit
        )
    )
    return in_pieces(page, "items")


@router.get("/batches/{batch_id}/outcomes.csv", response_class=Response)
async def export_outcomes(
    batch_id: BatchId, principal: ReaderDep, database: DatabaseDep, sort: Sort = "index"
) -> Response:
    """The whole table of outcomes as CSV."""
    text = await database.read(
        lambda session: outcomes.outcomes_csv(session, principal.project_id, batch_id, sort=sort)
    )
    headers = {"Content-Disposition": f'attachment; filename="{batch_id}.csv"'}
    return Response(text, media_type="text/csv; charset=utf-8", headers=headers)


async def _submit(
    body: BatchSubmit | SweepSubmit,
    key: str,
    principal: Principal,
    database: Database,
    clock: Clock,
    response: Response,
) -> api.SubmittedBatch:
    request = submission.Submission(principal.project_id, principal.name, key, body, principal.key)
    prepared = await database.read(lambda session: submission.prepare(session, request, now=clock.now()))
    answer = await database.write(lambda session: submission.submit(session, prepared, now=clock.now()))
    if answer.replayed:
        response.headers["Idempotency-Replayed"] = "true"
    return answer.submitted
