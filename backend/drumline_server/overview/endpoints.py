"""`/overview`: what the first page shows."""

from drumline.contracts import api
from drumline_server.auth.dependencies import ReaderDep
from drumline_server.dependencies import ClockDep, DatabaseDep, SettingsDep
from drumline_server.overview import service
from drumline_server.routing import api_router
from drumline_server.scheduler.rounds import Terms

router = api_router(tags=["fleet"])


@router.get("/overview")
async def get_overview(
    principal: ReaderDep, database: DatabaseDep, settings: SettingsDep, clock: ClockDep
) -> api.Overview:
    """The fleet, what runs, what waits and why, what failed lately."""
    return await database.read(
        lambda session: service.overview(session, principal.project_id, Terms.of(settings), now=clock.now())
    )
