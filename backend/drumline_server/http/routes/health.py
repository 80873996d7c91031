"""Whether the process lives, whether it can serve, and what Prometheus reads of it."""

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse, Response
from sqlalchemy import text

from drumline_server.base.errors import DatabaseUnavailableError
from drumline_server.http.dependencies import AppDep, GuardedRoute, ReaderDep
from drumline_server.http.figures import TEXT_TYPE

router = APIRouter(include_in_schema=False, route_class=GuardedRoute)


@router.get("/healthz")
async def healthz() -> PlainTextResponse:
    """The process answers."""
    return PlainTextResponse("ok\n")


@router.get("/readyz")
async def readyz(app: AppDep) -> PlainTextResponse:
    """The database answers too, so requests can be served."""
    try:
        await app.database.read(lambda session: session.execute(text("SELECT 1")).scalar())
    except DatabaseUnavailableError as error:
        return PlainTextResponse(f"{error.detail}\n", 503)
    return PlainTextResponse("ready\n")


@router.get("/metrics")
async def metrics(principal: ReaderDep, app: AppDep) -> Response:
    """Figures for Prometheus; needs a token like everything else. Fleet-wide numbers, of no single project."""
    said = await app.figures.read_text(
        app.database,
        now=app.clock.now(),
        streams=app.live.clients,
        connections=app.connections.count,
        notifications=app.notifier.counts() if app.notifier is not None else {},
    )
    return Response(said, media_type=TEXT_TYPE)
