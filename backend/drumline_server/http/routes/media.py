"""What a program logs beside numbers: histograms, images, texts and tables."""

from typing import Annotated

from fastapi import Query, Response

from drumline.contracts import api
from drumline.contracts.events import MetricName
from drumline.contracts.ids import AttemptId, MediaId, RunId
from drumline.contracts.media import MediaKind
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
from drumline_server.telemetry import media
from drumline_server.telemetry.media import Series

router = api_router("/runs/{run_id}/media", tags=["telemetry"])

_SANDBOX = {"Content-Security-Policy": "sandbox; default-src 'none'"}
Step = Annotated[int | None, Query(ge=0, lt=2**53)]


@router.get("")
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


@router.get("/values")
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


@router.get("/at")
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
    return await app.database.read(
        lambda session: media.read_at(session, principal.project_id, run_id, series, step=step, nth=nth)
    )


@router.get("/histograms", response_model=api.HistogramSteps)
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


@router.get("/{media_id}")
async def get_media(run_id: RunId, media_id: MediaId, principal: ReaderDep, app: AppDep) -> api.MediaValue:
    """One value: a histogram, a text or a table with what it holds, of an image its size."""
    return await app.database.read(lambda session: media.get_value(session, principal.project_id, run_id, media_id))


@router.get(
    "/{media_id}/png",
    response_class=Response,
    responses={200: {"content": {"image/png": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def get_image(run_id: RunId, media_id: MediaId, principal: ReaderDep, app: AppDep) -> Response:
    """An image as PNG."""
    png = await app.database.read(lambda session: media.get_png(session, principal.project_id, run_id, media_id))
    return cut(png, "image/png", _SANDBOX)
