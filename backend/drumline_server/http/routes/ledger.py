"""Where the time of runs went: `/ledger` of many, `/runs/{id}/ledger` and `/runs/{id}/timeline` of one."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import Query

from drumline.contracts import api
from drumline.contracts.base import Timestamp, to_micros
from drumline.contracts.ids import RunId
from drumline_server.base.errors import InvalidRequestError
from drumline_server.http.dependencies import (
    DEFAULT_PAGE,
    AppDep,
    CursorText,
    KnownQuery,
    Limit,
    ReaderDep,
    api_router,
)
from drumline_server.services import ledger, timeline
from drumline_server.services.ledger import By, Period, Rates
from drumline_server.services.timeline import MAX_LANES, MAX_PIECES, View

router = api_router(tags=["ledger"])

Moment = Annotated[Timestamp | None, Query(description="With its time zone, as 2026-01-31T00:00:00Z.")]
_PERIOD = timedelta(days=30)
_LONGEST_S = 1e10
Seconds = Annotated[float, Query(ge=0, le=_LONGEST_S, allow_inf_nan=False)]


@router.get("/runs/{run_id}/ledger")
async def get_ledger(run_id: RunId, principal: ReaderDep, app: AppDep) -> api.Ledger:
    """Where the run's time went: every second of its life under a name, in all and by host."""
    return await app.database.read(
        lambda session: ledger.get_ledger(
            session, principal.project_id, run_id, Rates.of(app.settings), now=app.clock.now()
        )
    )


@router.get("/runs/{run_id}/timeline")
async def list_lanes(
    *,
    run_id: RunId,
    principal: ReaderDep,
    _: KnownQuery,
    app: AppDep,
    start: Annotated[Seconds, Query(alias="from", description="In seconds since the run was submitted.")] = 0.0,
    end: Annotated[Seconds | None, Query(alias="to")] = None,
    pieces: Annotated[int, Query(ge=1, le=MAX_PIECES, description="Of a lane; what is shorter is joined.")] = 200,
    cursor: CursorText = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LANES, description="Lanes on the page.")] = 8,
) -> api.Page[api.TimeLane]:
    """What each place of the run's gang did, piece after piece: every second under its name."""
    if end is not None and start >= end:
        raise InvalidRequestError("from", f"is {start:g}, not before to, {end:g}")
    view = View(start, end, pieces)
    return await app.database.read(
        lambda session: timeline.list_lanes(
            session, principal.project_id, run_id, view, now=app.clock.now(), cursor=cursor, limit=limit
        )
    )


@router.get("/ledger")
async def list_ledgers(
    *,
    principal: ReaderDep,
    _: KnownQuery,
    app: AppDep,
    by: By = "owner",
    start: Annotated[Moment, Query(alias="from")] = None,
    end: Annotated[Moment, Query(alias="to")] = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_PAGE,
) -> api.Page[api.LedgerSum]:
    """Where the time of the project's runs went that ended in a period, the last 30 days if none is named."""
    until = end or datetime.fromtimestamp(app.clock.now() / 1e6, UTC)
    since = start or until - _PERIOD
    if since >= until:
        raise InvalidRequestError("from", f"is {since.isoformat()}, not before to, {until.isoformat()}")
    period = Period(by, to_micros(since), to_micros(until))
    return await app.database.read(
        lambda session: ledger.list_sums(
            session, principal.project_id, period, Rates.of(app.settings), cursor=cursor, limit=limit
        )
    )
