"""What a run did over time: its metrics as curves and as files, where its time went, and its news as they come."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import Depends, Header, Query, Response
from fastapi.responses import StreamingResponse

from drumline.contracts import api
from drumline.contracts.base import AttemptId, RunId, Text, Timestamp, to_micros
from drumline.contracts.events import MetricName
from drumline_server.base.errors import InvalidRequestError
from drumline_server.http.dependencies import (
    DEFAULT_PAGE,
    EXPORT,
    LARGE,
    AppDep,
    CursorText,
    KnownQuery,
    Limit,
    ReaderDep,
    api_router,
)
from drumline_server.http.json_bodies import in_pieces
from drumline_server.http.request_context import AppState
from drumline_server.live.streams import Subscriber, parse_positions, parse_topics, to_opening
from drumline_server.services import identity, ledger
from drumline_server.services import runs as details
from drumline_server.services.ledger import MAX_LANES, MAX_PIECES, By, Period, Rates, UsageOf, View
from drumline_server.storage.database import Database
from drumline_server.telemetry import comparison, export, metrics
from drumline_server.telemetry.buckets import EXACT, Axis, Span
from drumline_server.telemetry.export import Format, write_table

router = api_router(tags=["telemetry"])

_SAFE = 2**53
Bound = Annotated[float | None, Query(ge=-_SAFE, le=_SAFE, allow_inf_nan=False)]
Names = Annotated[list[MetricName], Query(max_length=metrics.MAX_NAMES, description="Metrics to show; all if none.")]
Search = Annotated[Text, Query(max_length=200, description="What the names hold, ignoring case.")]
Group = Annotated[
    Text | None, Query(max_length=200, description="What the names have before the first `/`; nothing if it is empty.")
]
Buckets = Annotated[int, Query(ge=1, le=2_000)]
Columns = Annotated[
    list[api.CurveColumn],
    Query(max_length=len(api.CURVE_COLUMNS), description="Columns beside x and bucket; others are empty. All if none."),
]
Runs = Annotated[
    list[RunId], Query(min_length=1, max_length=comparison.MAX_RUNS, description="Runs to show, in this order.")
]


@router.get("/runs/{run_id}/metrics", response_model=api.Metrics)
async def get_metrics(
    *,
    run_id: RunId,
    principal: ReaderDep,
    _: KnownQuery,
    app: AppDep,
    names: Names = [],  # noqa: B006 - FastAPI copies defaults
    x: Literal["step", "time"] = "step",
    start: Annotated[Bound, Query(alias="from")] = None,
    end: Annotated[Bound, Query(alias="to")] = None,
    buckets: Buckets = 600,
    attempt: AttemptId | None = None,
    first: Annotated[int | None, Query(ge=1, le=metrics.MAX_NAMES, description="Only so many of them.")] = None,
) -> Response:
    """Curves of the run's metrics in at most `buckets` buckets; no value, however short its spike, is hidden.

    Of the attempt named, else of the run as a whole: where an attempt resumed from a checkpoint, what was logged after
    that before is cut. The `first` metrics are those that a page begins with: group by group, speed last.
    """
    window = metrics.Window(tuple(names), x, start, end, buckets, attempt, first=first)
    found = await app.database.read(lambda session: metrics.read_metrics(session, principal.project_id, run_id, window))
    return in_pieces(found, "series")


@router.get("/runs/{run_id}/metrics/names", response_model=api.Page[api.MetricName])
async def list_metric_names(
    *,
    run_id: RunId,
    principal: ReaderDep,
    _: KnownQuery,
    app: AppDep,
    search: Search = "",
    group: Group = None,
    cursor: CursorText = None,
    limit: Annotated[int, Query(ge=1, le=1_000, description="Names on the page.")] = 200,
) -> Response:
    """The names of the run's metrics, by name, with how much there is of each; it may have thousands."""
    sought = comparison.Sought(search, group)
    page = await app.database.read(
        lambda session: comparison.list_names(session, principal.project_id, run_id, sought, cursor=cursor, limit=limit)
    )
    return in_pieces(page, "items")


@router.get("/runs/{run_id}/metrics/groups")
async def list_metric_groups(
    run_id: RunId, principal: ReaderDep, _: KnownQuery, app: AppDep, search: Search = ""
) -> api.MetricGroups:
    """How many metrics begin with each word before a `/`, and which steps all of them span."""
    sought = comparison.Sought(search)
    return await app.database.read(
        lambda session: comparison.read_groups(session, principal.project_id, run_id, sought)
    )


@router.get("/runs:details", response_model=api.Page[api.Run])
async def compare_runs(runs: Runs, principal: ReaderDep, _: KnownQuery, app: AppDep) -> Response:
    """Several runs whole, in the order asked for: what they were given and what came out, to be put side by side.

    Of a run that waits the reason is told; what would let it start is told by `/runs/{run_id}`.
    """
    found: list[api.Run] = []
    for run in dict.fromkeys(runs):  # each is a read of its own: nobody waits for all of them
        read = partial(details.get_whole_run, project_id=principal.project_id, run_id=run, now=app.clock.now())
        found.append(await app.database.read(read))
    return in_pieces(api.Page[api.Run](items=tuple(found)), "items")


@router.get("/runs:metric-names", response_model=api.Page[api.SharedName])
async def list_shared_names(
    *,
    runs: Runs,
    principal: ReaderDep,
    _: KnownQuery,
    app: AppDep,
    search: Search = "",
    cursor: CursorText = None,
    limit: Annotated[int, Query(ge=1, le=1_000, description="Names on the page.")] = 200,
) -> Response:
    """The names that any of the runs logged, by name, with how many of them did. Unknown runs add none."""
    sought = comparison.Sought(search)
    page = await app.database.read(
        lambda session: comparison.list_shared(session, principal.project_id, runs, sought, cursor=cursor, limit=limit)
    )
    return in_pieces(page, "items")


@router.get("/runs:metrics", response_model=api.ComparedMetrics)
async def compare_metrics(
    *,
    runs: Runs,
    names: Annotated[list[MetricName], Query(min_length=1, max_length=comparison.MAX_NAMES)],
    principal: ReaderDep,
    _: KnownQuery,
    app: AppDep,
    x: Literal["step", "time", "relative"] = "step",
    start: Annotated[Bound, Query(alias="from")] = None,
    end: Annotated[Bound, Query(alias="to")] = None,
    buckets: Buckets = 600,
    columns: Columns = [],  # noqa: B006 - FastAPI copies defaults
    whole: Annotated[list[RunId], Query(max_length=comparison.MAX_RUNS, description="Runs with all columns.")] = [],  # noqa: B006
    digits: Annotated[int, Query(ge=1, le=EXACT, description="Significant digits of min, max, mean and last.")] = EXACT,
) -> Response:
    """Curves of several runs on one axis with the same buckets: by step, by time, or by time since each run began.

    Each run as a whole, without what was rolled back. A run that logged none of the metrics has no curve. A picture of
    many lines needs `columns=mean` of a few `digits` only, and `whole` for those with a band.
    """
    kept = frozenset(columns or api.CURVE_COLUMNS)
    wanted = comparison.Comparison(tuple(dict.fromkeys(names)), x, start, end, buckets, kept, frozenset(whole), digits)
    read, project_id = app.database.read, principal.project_id
    asked, most = list(dict.fromkeys(runs)), wanted.runs_at_once
    parts = [asked[at : at + most] for at in range(0, len(asked), most)]  # a read each: nobody waits for all of them
    spans: list[Span] = []
    for some in parts:
        spans += await read(partial(comparison.find_spans, project_id=project_id, run_ids=some, comparison=wanted))
    axis = comparison.make_axis(spans, wanted)
    found: list[tuple[api.ComparedRun, list[api.ComparedCurve]]] = []
    for some in parts:
        drawn = partial(comparison.read_compared, project_id=project_id, run_ids=some, comparison=wanted, axis=axis)
        found += await read(drawn)
    return in_pieces(_answer(x, axis, found), "curves")


@router.get("/runs/{run_id}/metrics.{form}", response_class=Response, dependencies=[LARGE, EXPORT])
async def export_metrics(
    *,
    run_id: RunId,
    form: Format,
    principal: ReaderDep,
    _: KnownQuery,
    app: AppDep,
    names: Names = [],  # noqa: B006 - FastAPI copies defaults
    attempt: AttemptId | None = None,
) -> Response:
    """Every point of the run's metrics as CSV, Parquet or a stream of Arrow, a row each, by name and as logged.

    Of the attempt named, else of the run as a whole, without what was rolled back.
    """
    read = partial(export.find_sources, project_id=principal.project_id, run_id=run_id, names=names, attempt=attempt)
    return _file(app.database, await app.database.read(read), form, run_id)


@router.get("/runs:metrics.{form}", response_class=Response, dependencies=[LARGE, EXPORT])
async def export_metrics_of_runs(
    *,
    runs: Runs,
    form: Format,
    principal: ReaderDep,
    _: KnownQuery,
    app: AppDep,
    names: Names = [],  # noqa: B006
) -> Response:
    """Every point of the metrics of several runs in one file, run by run."""
    sources: list[export.Source] = []
    for run in dict.fromkeys(runs):
        read = partial(export.find_sources, project_id=principal.project_id, run_id=run, names=names, attempt=None)
        sources += await app.database.read(read)
    return _file(app.database, sources, form, "metrics")


def _file(database: Database, sources: list[export.Source], form: Format, name: str) -> StreamingResponse:
    blocks = (database.read_now(partial(export.read_blocks, stretches=stretches)) for stretches in export.cut(sources))
    headers = {"Content-Disposition": f'attachment; filename="{name}.{form}"'}
    return StreamingResponse(write_table(blocks, form), media_type=form.media_type, headers=headers)


def _answer(
    x: Literal["step", "time", "relative"], axis: Axis, found: list[tuple[api.ComparedRun, list[api.ComparedCurve]]]
) -> api.ComparedMetrics:
    return api.ComparedMetrics(
        x=x,
        start=axis.edges[0] if axis.edges else None,
        end=axis.edges[-1] if axis.edges else None,
        bucket_width=axis.width,
        runs=tuple(run for run, _ in found),
        curves=tuple(curve for _, curves in found for curve in curves),
    )


ledger_router = api_router(tags=["ledger"])

Moment = Annotated[Timestamp | None, Query(description="With its time zone, as 2026-01-31T00:00:00Z.")]
_PERIOD = timedelta(days=30)
_LONGEST_S = 1e10
Seconds = Annotated[float, Query(ge=0, le=_LONGEST_S, allow_inf_nan=False)]


@ledger_router.get("/runs/{run_id}/ledger")
async def get_ledger(run_id: RunId, principal: ReaderDep, app: AppDep) -> api.Ledger:
    """Where the run's time went: every second of its life under a name, in all and by host."""
    return await app.database.read(
        lambda session: ledger.get_ledger(
            session, principal.project_id, run_id, Rates.of(app.settings), now=app.clock.now()
        )
    )


@ledger_router.get("/runs/{run_id}/timeline")
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
        lambda session: ledger.list_lanes(
            session, principal.project_id, run_id, view, now=app.clock.now(), cursor=cursor, limit=limit
        )
    )


@ledger_router.get("/runs/{run_id}/usage")
async def list_usage(
    *,
    run_id: RunId,
    principal: ReaderDep,
    _: KnownQuery,
    app: AppDep,
    attempt: AttemptId | None = None,
    step: Annotated[int | None, Query(ge=0, lt=2**53, description="As of then; the newest if none is named.")] = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_PAGE,
) -> api.Page[api.MemberUsage]:
    """What the processes of each member use of its host, and its devices' memory: of the newest attempt, or of one."""
    wanted = UsageOf(attempt, step)
    return await app.database.read(
        lambda session: ledger.list_usage(session, principal.project_id, run_id, wanted, cursor=cursor, limit=limit)
    )


@ledger_router.get("/ledger")
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


stream_router = api_router(tags=["stream"])

RECHECK_S = 30.0
"""How long a stream may outlive a credential that expires, or that another server revokes."""
KEEP_ALIVE_S = 15.0
"""A stream without news says that it is open, or what stands between would close it."""
_TEXT = {"type": "string"}
_FIELDS = {"data": _TEXT, "event": _TEXT, "id": _TEXT, "retry": {"type": "integer", "minimum": 0}}
_MESSAGES = {"itemSchema": {"type": "object", "properties": _FIELDS}}
_RESPONSES: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": _MESSAGES}}}  # Any: as OpenAPI
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class _EventStream(StreamingResponse):
    """Not FastAPI's: that passes each message through three tasks, which costs more than all else of a stream."""

    media_type = "text/event-stream"


async def subscribe(
    principal: ReaderDep,
    app: AppDep,
    topics: Annotated[str, Query(max_length=4_000, description="`run:<id>,runs,fleet`")],
    begin: Annotated[str, Query(alias="from", max_length=4_000, description="`<run id>=<event number>,...`")] = "",
    last_event_id: Annotated[str, Header(max_length=4_000)] = "",
) -> AsyncIterator[Subscriber]:
    """A place in the hub for as long as the stream is open; refusals come before the stream begins."""
    positions = parse_positions(last_event_id, "Last-Event-ID") or parse_positions(begin, "from")
    subscriber = await app.live.join(principal, parse_topics(topics), positions)
    try:
        yield subscriber
    finally:
        app.live.leave(subscriber)


@stream_router.get("/stream", response_class=_EventStream, responses=_RESPONSES)
async def stream(subscriber: Annotated[Subscriber, Depends(subscribe)], app: AppDep) -> StreamingResponse:
    """Events of runs (`event: run`) and hints that a list changed (`event: hint`).

    `id:` names the newest event of each run of the stream: give it back as `Last-Event-ID` to continue without a gap.
    After `event: resync` fetch again what is shown. A stream of runs alone ends after the last event of the last.
    """
    return _EventStream(_pieces(subscriber, app), headers=_HEADERS)


async def _pieces(subscriber: Subscriber, app: AppState) -> AsyncIterator[bytes]:
    """The stream's bytes as they come: all that is owed in few pieces, since each costs more than what it holds."""
    yield to_opening(subscriber.positions)
    now = asyncio.get_running_loop().time
    checked_at = said_at = now()

    async def is_welcome() -> bool:
        nonlocal checked_at
        if not subscriber.is_doubted and now() - checked_at <= RECHECK_S:
            return True
        subscriber.is_doubted, checked_at = False, now()
        who, idle_s, at = subscriber.principal, app.settings.session_idle_s, app.clock.now()
        return await app.database.read(partial(identity.is_still_good, principal=who, idle_s=idle_s, now=at))

    while not subscriber.closing:
        piece = b""
        async for piece in app.live.owed(subscriber):
            # A slow reader is owed what was read long after its credential was revoked.
            if not await is_welcome():
                return
            yield piece
            said_at = now()
        if subscriber.is_over or not await is_welcome():
            return
        if piece:
            continue
        # What wakes a stream may be news of others: it has been silent all the same.
        await subscriber.wait(max(0.0, said_at + KEEP_ALIVE_S - now()))
        if now() - said_at >= KEEP_ALIVE_S:
            yield b": ping\n\n"
            said_at = now()
