"""Whether the process lives, whether it can serve, and counts of what it does."""

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse
from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from drumline.contracts.states import TERMINAL_RUN
from drumline_server.base.errors import DatabaseUnavailableError
from drumline_server.http.dependencies import AppDep, GuardedRoute, ReaderDep
from drumline_server.storage.models import Device, Run

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
async def metrics(principal: ReaderDep, app: AppDep) -> PlainTextResponse:
    """Counts for Prometheus; needs a token like everything else. Fleet-wide numbers, of no single project."""
    gauges = await app.database.read(_gauges)
    gauges["drumline_stream_clients"] = app.live.clients
    gauges["drumline_connections"] = app.connections.count
    if app.notifier is not None:
        for outcome, count in app.notifier.counts().items():
            gauges[f'drumline_notifications_total{{outcome="{outcome}"}}'] = float(count)
    return PlainTextResponse(app.statistics.text(gauges), media_type="text/plain; version=0.0.4")


def _gauges(session: Session) -> dict[str, float]:
    runs = session.execute(select(Run.state, func.count()).where(Run.state.not_in(TERMINAL_RUN)).group_by(Run.state))
    devices = session.execute(select(Device.state, func.count()).where(Device.present).group_by(Device.state))
    return {
        **{f'drumline_runs{{state="{state}"}}': float(count) for state, count in runs},
        **{f'drumline_devices{{state="{state}"}}': float(count) for state, count in devices},
    }
