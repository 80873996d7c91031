"""What a run shows of itself but its metrics: placement, reductions, output, media, checkpoints."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Query, Response
from fastapi.responses import StreamingResponse

from drumline.contracts import api
from drumline.contracts.base import AttemptId, MediaId, MemberId, ProfileId, ReductionId, RunId, Timestamp
from drumline.contracts.events import MetricName, Name
from drumline.contracts.media import MediaKind
from drumline.contracts.records import RECORDS_MEDIA_TYPE
from drumline_server.http.dependencies import (
    DEFAULT_PAGE,
    AppDep,
    CursorText,
    KnownQuery,
    Limit,
    ReaderDep,
    api_router,
)
from drumline_server.http.json_bodies import cut, in_pieces
from drumline_server.lifecycle import checkpoints
from drumline_server.services import plan_comparison
from drumline_server.telemetry import comparison, ingest, logs, media, reductions, step_times
from drumline_server.telemetry.log_search import LogQuery, find_sources
from drumline_server.telemetry.log_search_child import MAX_PATTERN
from drumline_server.telemetry.media import Series

router = api_router("/runs/{run_id}", tags=["telemetry"])

_SAFE = 2**53
Step = Annotated[int | None, Query(ge=0, lt=_SAFE)]
FromByte = Annotated[
    int, Query(alias="from", gt=-_SAFE, lt=_SAFE, description="First byte to show; -N shows the last N bytes.")
]
_WITH_ZONE = "With its time zone, as 2026-01-31T00:00:00Z; to about a second."
_SANDBOX = "sandbox; default-src 'none'"


@router.get("/placement", response_model=api.Placement)
async def get_placement(run_id: RunId, principal: ReaderDep, app: AppDep, attempt: AttemptId | None = None) -> Response:
    """Which replica sits on which device: of the newest attempt, or of the one named."""
    found = await app.database.read(
        lambda session: plan_comparison.read_placement(session, principal.project_id, run_id, attempt)
    )
    return in_pieces(found, "devices")


@router.get("/arrivals")
async def get_arrivals(
    *,
    run_id: RunId,
    principal: ReaderDep,
    _: KnownQuery,
    app: AppDep,
    attempt: AttemptId | None = None,
    call: Annotated[int | None, Query(ge=0, lt=_SAFE, description="As of then; the newest if none is named.")] = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_PAGE,
) -> api.Arrivals:
    """When each member of a gang comes to its collectives, and whom they wait for: of the newest attempt, or of one."""
    wanted = step_times.ArrivalsOf(attempt, call)
    return await app.database.read(
        lambda session: step_times.read_arrivals(
            session, principal.project_id, run_id, wanted, cursor=cursor, limit=limit
        )
    )


@router.get("/replicas")
async def get_replica_times(
    *,
    run_id: RunId,
    principal: ReaderDep,
    _: KnownQuery,
    app: AppDep,
    attempt: AttemptId | None = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_PAGE,
) -> api.ReplicaTimes:
    """How long each replica computes and waits in the newest traced steps: of the newest attempt, or of one."""
    return await app.database.read(
        lambda session: comparison.read_replica_times(
            session, principal.project_id, run_id, attempt, cursor=cursor, limit=limit
        )
    )


@router.get("/reductions")
async def list_reductions(
    *,
    run_id: RunId,
    principal: ReaderDep,
    _: KnownQuery,
    app: AppDep,
    name: Name | None = None,
    step_from: Step = None,
    step_to: Step = None,
    attempt: AttemptId | None = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_PAGE,
) -> api.Page[api.ReductionSummary]:
    """Recorded reductions by step: of the attempt named, else of the run without what was rolled back."""
    wanted = reductions.ReductionFilter(name, step_from, step_to, attempt)
    return await app.database.read(
        lambda session: reductions.list_reductions(
            session, principal.project_id, run_id, wanted, cursor=cursor, limit=limit
        )
    )


@router.get("/reductions/names", response_model=api.ReductionNames)
async def list_reduction_names(
    run_id: RunId, principal: ReaderDep, _: KnownQuery, app: AppDep, attempt: AttemptId | None = None
) -> Response:
    """Which reductions there are, and at which steps: of the attempt named, else of the run as it counts."""
    found = await app.database.read(
        lambda session: reductions.reduction_names(session, principal.project_id, run_id, attempt)
    )
    return in_pieces(found, "names")


@router.get("/reductions/{reduction_id}")
async def get_reduction(run_id: RunId, reduction_id: ReductionId, principal: ReaderDep, app: AppDep) -> api.Reduction:
    """One reduction: what each replica put in, and what came out."""
    return await app.database.read(
        lambda session: reductions.get_reduction(session, principal.project_id, run_id, reduction_id)
    )


@router.get(
    "/reductions/{reduction_id}/values",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def get_reduction_values(run_id: RunId, reduction_id: ReductionId, principal: ReaderDep, app: AppDep) -> Response:
    """Every element of each replica's input and then of the output, row-major and little-endian, bit for bit.

    404 where `whole_bytes` of the reduction is null.
    """
    elements = await app.database.read(
        lambda session: reductions.read_elements(session, principal.project_id, run_id, reduction_id)
    )
    headers = {"Content-Security-Policy": _SANDBOX, "Content-Disposition": f'attachment; filename="{reduction_id}.bin"'}
    return cut(elements, "application/octet-stream", headers)


@router.get("/non-finite")
async def list_non_finite(
    run_id: RunId, principal: ReaderDep, _: KnownQuery, app: AppDep, attempt: AttemptId | None = None
) -> api.NonFinites:
    """Where reductions were NaN or infinite first, by name: step, replicas, counts."""
    return await app.database.read(
        lambda session: ingest.list_non_finite(session, principal.project_id, run_id, attempt)
    )


@router.get("/logs")
async def get_logs(
    *,
    run_id: RunId,
    principal: ReaderDep,
    _: KnownQuery,
    app: AppDep,
    start: FromByte = 0,
    limit: Annotated[int, Query(ge=64, le=1_048_576, description="At most so many bytes.")] = 262_144,
    attempt: AttemptId | None = None,
    member: MemberId | None = None,
) -> api.Logs:
    """Output of one member, by default rank 0 of the newest attempt, from a byte on."""
    wanted = logs.LogRange(attempt, member, start, limit)
    return await app.database.read(lambda session: logs.read_logs(session, principal.project_id, run_id, wanted))


class _Records(StreamingResponse):
    """A record of JSON a line."""

    media_type = RECORDS_MEDIA_TYPE


@router.get("/logs/search", response_class=_Records, responses={200: {"model": api.LogSearchPart}})
async def search_logs(
    *,
    run_id: RunId,
    principal: ReaderDep,
    _: KnownQuery,
    app: AppDep,
    find: Annotated[str, Query(max_length=MAX_PATTERN, description="What the lines hold.")] = "",
    regex: Annotated[bool, Query(description="An expression as of RE2, instead of plain text.")] = False,
    ignore_case: bool = True,
    since: Annotated[Timestamp | None, Query(description=f"Printed then or later. {_WITH_ZONE}")] = None,
    until: Annotated[Timestamp | None, Query(description=f"Printed then or before. {_WITH_ZONE}")] = None,
    stream: api.LogStream | None = None,
    level: Annotated[
        api.LogLevel | None, Query(description="As grave as that or graver, by what the line says.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=50_000, description="At most so many lines.")] = 1_000,
    attempt: AttemptId | None = None,
    member: MemberId | None = None,
    cursor: CursorText = None,
) -> StreamingResponse:
    """Lines of the whole output that hold a text or an expression, as they are found: a record a line.

    All that is asked for must hold; without `find`, one of since, until, stream and level is needed. Of all members of
    the newest attempt, or of the one named. Whoever stops reading ends the search; `cursor` of the last record
    continues it.
    """
    wanted = LogQuery(find, regex, ignore_case, attempt, member, limit, cursor, since, until, stream, level)
    wanted.check()
    app.log_searches.require_room(principal.counts_for)
    sources = await app.database.read(lambda session: find_sources(session, principal.project_id, run_id, wanted))
    parts = app.log_searches.search(app.database, sources, wanted, principal.counts_for)
    return _Records(_lines(parts))


async def _lines(parts: AsyncIterator[api.LogSearchPart]) -> AsyncIterator[bytes]:
    async for part in parts:
        yield part.model_dump_json().encode() + b"\n"


@router.get(
    "/logs/raw",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def download_logs(
    run_id: RunId, principal: ReaderDep, app: AppDep, attempt: AttemptId | None = None, member: MemberId | None = None
) -> StreamingResponse:
    """The whole output of one member as a file."""
    wanted = logs.LogRange(attempt, member, 0, 0)
    found = await app.database.read(lambda session: logs.find_member(session, principal.project_id, run_id, wanted))
    output: AsyncIterator[bytes] = logs.raw_output(app.database, found)
    headers = {"Content-Disposition": f'attachment; filename="{run_id}.log"', "Content-Security-Policy": _SANDBOX}
    return StreamingResponse(output, media_type="text/plain; charset=utf-8", headers=headers)


@router.get("/media")
async def list_media(
    *,
    run_id: RunId,
    principal: ReaderDep,
    _: KnownQuery,
    app: AppDep,
    attempt: AttemptId | None = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_PAGE,
) -> api.Page[api.MediaSeries]:
    """Names and kinds of what was logged, with their steps: of the attempt named, else of the run as it counts."""
    return await app.database.read(
        lambda session: media.list_series(session, principal.project_id, run_id, attempt, cursor=cursor, limit=limit)
    )


@router.get("/media/values")
async def list_media_values(
    *,
    run_id: RunId,
    name: MetricName,
    kind: MediaKind,
    principal: ReaderDep,
    _: KnownQuery,
    app: AppDep,
    attempt: AttemptId | None = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_PAGE,
) -> api.Page[api.MediaEntry]:
    """The values under one name by step, each with its id."""
    series = Series(name, kind, attempt)
    return await app.database.read(
        lambda session: media.list_entries(session, principal.project_id, run_id, series, cursor=cursor, limit=limit)
    )


@router.get("/media/at")
async def get_media_at(
    *,
    run_id: RunId,
    name: MetricName,
    kind: MediaKind,
    principal: ReaderDep,
    _: KnownQuery,
    app: AppDep,
    step: Step = None,
    nth: Annotated[int, Query(ge=1, le=10_000, description="Which one of its step.")] = 1,
    attempt: AttemptId | None = None,
) -> api.MediaValue:
    """The newest value at a step or before it, else the first one; without a step the newest of all."""
    series = Series(name, kind, attempt)
    found = await app.database.read(
        lambda session: media.read_at(session, principal.project_id, run_id, series, step=step, nth=nth)
    )
    return await found.view(app.blobs)


@router.get("/media/histograms", response_model=api.HistogramSteps)
async def list_histograms(
    *,
    run_id: RunId,
    name: MetricName,
    principal: ReaderDep,
    _: KnownQuery,
    app: AppDep,
    most: Annotated[int, Query(ge=2, le=200, description="At most so many, evenly chosen over the steps.")] = 100,
    attempt: AttemptId | None = None,
) -> Response:
    """Histograms of one name over all steps."""
    series = Series(name, "histogram", attempt)
    found = await app.database.read(
        lambda session: media.read_histograms(session, principal.project_id, run_id, series, most=most)
    )
    return in_pieces(found, "histograms")


@router.get("/media/{media_id}")
async def get_media(run_id: RunId, media_id: MediaId, principal: ReaderDep, app: AppDep) -> api.MediaValue:
    """One value: a histogram, a text or a table with what it holds, of an image its size."""
    found = await app.database.read(lambda session: media.get_value(session, principal.project_id, run_id, media_id))
    return await found.view(app.blobs)


@router.get(
    "/media/{media_id}/png",
    response_class=Response,
    responses={200: {"content": {"image/png": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def get_image(run_id: RunId, media_id: MediaId, principal: ReaderDep, app: AppDep) -> Response:
    """An image as PNG."""
    png = await app.database.read(lambda session: media.get_png(session, principal.project_id, run_id, media_id))
    return cut(await png.read(app.blobs), "image/png", {"Content-Security-Policy": _SANDBOX})


@router.get("/profiles")
async def list_profiles(
    *,
    run_id: RunId,
    principal: ReaderDep,
    _: KnownQuery,
    app: AppDep,
    attempt: AttemptId | None = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_PAGE,
) -> api.Profiles:
    """Calls of `strategy.run` that were traced (`record.profile_every`), the newest step first; those lost beside."""
    return await app.database.read(
        lambda session: step_times.list_profiles(
            session, principal.project_id, run_id, attempt, cursor=cursor, limit=limit
        )
    )


@router.get("/profiles/{profile_id}", response_model=api.ProfileLanes)
async def get_profile(run_id: RunId, profile_id: ProfileId, principal: ReaderDep, app: AppDep) -> Response:
    """What each device did in a traced call: operations by their begin, and the time of each kind."""
    found = await app.database.read(
        lambda session: step_times.get_lanes(session, principal.project_id, run_id, profile_id)
    )
    return in_pieces(found, "lanes")


@router.get(
    "/profiles/{profile_id}/file",
    response_class=Response,
    responses={200: {"content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def get_profile_file(run_id: RunId, profile_id: ProfileId, principal: ReaderDep, app: AppDep) -> Response:
    """What jax.profiler wrote: a zip for `tensorboard --logdir` or xprof, in it a `.trace.json.gz` for Perfetto."""
    file = await app.database.read(
        lambda session: step_times.get_file(session, principal.project_id, run_id, profile_id)
    )
    headers = {"Content-Security-Policy": _SANDBOX, "Content-Disposition": f'attachment; filename="{file.name}"'}
    return cut(await file.content.read(app.blobs), "application/zip", headers)


@router.get("/gaps")
async def list_gaps(
    *,
    run_id: RunId,
    principal: ReaderDep,
    app: AppDep,
    attempt: AttemptId | None = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_PAGE,
) -> api.Page[api.Gap]:
    """What is lost of the run's telemetry, with its size and where it stood: of all attempts, or of the one named."""
    return await app.database.read(
        lambda session: logs.list_gaps(session, principal.project_id, run_id, attempt, cursor=cursor, limit=limit)
    )


@router.get("/checkpoints")
async def list_checkpoints(
    run_id: RunId, principal: ReaderDep, app: AppDep, cursor: CursorText = None, limit: Limit = DEFAULT_PAGE
) -> api.Page[api.Checkpoint]:
    """Checkpoints of the run, the one that it would resume from first."""
    return await app.database.read(
        lambda session: checkpoints.list_checkpoints(session, principal.project_id, run_id, cursor=cursor, limit=limit)
    )
