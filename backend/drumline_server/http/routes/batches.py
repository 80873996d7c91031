"""`/batches`, and the two ways to make one: `/runs:batch` and `/runs:sweep`."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated

from fastapi import Body, Depends, Query, Request, Response, status

from drumline.contracts import api
from drumline.contracts.base import Text
from drumline.contracts.ids import BatchId
from drumline.contracts.sweeps import BatchSubmit, SweepSubmit
from drumline_server.base.callers import Principal
from drumline_server.http.dependencies import (
    DEFAULT_PAGE,
    LARGE,
    AppDep,
    Contains,
    CursorText,
    Key,
    KnownQuery,
    Limit,
    ReaderDep,
    SubmitterDep,
    api_router,
)
from drumline_server.http.json_bodies import cut, in_pieces
from drumline_server.http.request_context import AppState
from drumline_server.lifecycle.cancel import cancel_part
from drumline_server.services import batches, cancel
from drumline_server.services.submit_batch import BatchSubmission, Begun, begin, make_runs, prepare, queue_part

MAX_ROWS = 1_000
"""On one page of a table of outcomes."""
router = api_router(tags=["batches"])

Sort = Annotated[
    Text,
    Query(
        max_length=250,
        description="`index`, `state`, `duration`, `parameters.NAME` or `metrics.NAME`, descending with `-` before it; "
        "`best.NAME` begins with the best.",
    ),
]
Rows = Annotated[int, Query(ge=1, le=MAX_ROWS, description="Rows on the page.")]


async def turn(request: Request, app: AppDep) -> AsyncIterator[None]:
    """One batch of a token is queued after the other: each takes the writer of the database for a while."""
    async with app.shares.turn(request.scope, "batch"):
        yield


@router.post("/runs:batch", status_code=status.HTTP_201_CREATED, dependencies=[Depends(turn)])
async def submit_batch(
    *, body: BatchSubmit, key: Key, principal: SubmitterDep, app: AppDep, response: Response
) -> api.SubmittedBatch:
    """Submits up to 10 000 runs at once: if one is refused none is queued. A refusal names each run and field."""
    return await _submit(body, key, principal, app, response)


@router.post("/runs:sweep", status_code=status.HTTP_201_CREATED, dependencies=[Depends(turn)])
async def submit_sweep(
    *, body: SweepSubmit, key: Key, principal: SubmitterDep, app: AppDep, response: Response
) -> api.SubmittedBatch:
    """Submits one run many times with different parameters: a grid, a list of points, or points drawn at random."""
    return await _submit(body, key, principal, app, response)


@router.get("/batches", response_model=api.Page[api.Batch])
async def list_batches(
    principal: ReaderDep,
    _: KnownQuery,
    app: AppDep,
    q: Contains = "",
    cursor: CursorText = None,
    limit: Limit = DEFAULT_PAGE,
) -> Response:
    """The project's batches with the states of their runs, newest first."""
    page = await app.database.read(
        lambda session: batches.list_batches(session, principal.project_id, cursor=cursor, limit=limit, contains=q)
    )
    return in_pieces(page, "items")


@router.get("/batches/{batch_id}")
async def get_batch(batch_id: BatchId, principal: ReaderDep, app: AppDep) -> api.Batch:
    """One batch. Its runs are `GET /runs?batch=`."""
    return await app.database.read(lambda session: batches.get_batch(session, principal.project_id, batch_id))


@router.post("/batches/{batch_id}:cancel", status_code=status.HTTP_202_ACCEPTED)
async def cancel_batch(
    batch_id: BatchId, principal: SubmitterDep, app: AppDep, body: Annotated[api.CancelRequest | None, Body()] = None
) -> api.Batch:
    """Asks every run of the batch that has not ended to stop, those that wait first; no more of it are queued.

    It answers at once: `cancel.left` tells how many runs are still to be asked.
    """
    grace_s = (body or api.CancelRequest()).grace_s
    request = cancel.BatchCancellation(principal.project_id, batch_id, principal.ref, grace_s)
    await app.database.write(lambda session: cancel.cancel_batch(session, request, now=app.clock.now()))
    await app.database.write(lambda session: cancel_part(session, batch_id, now=app.clock.now()))
    return await app.database.read(lambda session: batches.get_batch(session, principal.project_id, batch_id))


@router.get("/batches/{batch_id}/outcomes", response_model=api.Outcomes, dependencies=[LARGE])
async def list_outcomes(
    *,
    batch_id: BatchId,
    principal: ReaderDep,
    _: KnownQuery,
    app: AppDep,
    sort: Sort = "index",
    cursor: CursorText = None,
    limit: Rows = DEFAULT_PAGE,
) -> Response:
    """What came of the batch: a row for each run with its parameters, state and the numbers of its result."""
    page = await app.database.read(
        lambda session: batches.outcomes_page(
            session, principal.project_id, batch_id, sort=sort, cursor=cursor, limit=limit
        )
    )
    return in_pieces(page, "items")


@router.get("/batches/{batch_id}/outcomes.csv", response_class=Response, dependencies=[LARGE])
async def export_outcomes(batch_id: BatchId, principal: ReaderDep, app: AppDep, sort: Sort = "index") -> Response:
    """The whole table of outcomes as CSV."""
    text = await app.database.read(
        lambda session: batches.outcomes_csv(session, principal.project_id, batch_id, sort=sort)
    )
    headers = {"Content-Disposition": f'attachment; filename="{batch_id}.csv"'}
    return cut(text.encode(), "text/csv; charset=utf-8", headers)


async def _submit(
    body: BatchSubmit | SweepSubmit, key: str, principal: Principal, app: AppState, response: Response
) -> api.SubmittedBatch:
    runs = await asyncio.to_thread(make_runs, body)  # without a reader of the database, which others wait for
    request = BatchSubmission(principal.project_id, principal.ref, key, body, principal.key, runs)
    prepared = await app.database.read(lambda session: prepare(session, request, now=app.clock.now()))
    most = app.settings.waiting_runs
    answer = await app.database.write(lambda session: begin(session, prepared, most_waiting=most, now=app.clock.now()))
    while isinstance(answer, Begun):
        next_part = partial(queue_part, begun=answer, most_waiting=most, now=app.clock.now())
        answer = await app.database.write(next_part)
    if answer.replayed:
        response.headers["Idempotency-Replayed"] = "true"
    return answer.submitted
