"""`/overview`: what the first page shows."""

from drumline.contracts import api
from drumline_server.http.dependencies import AppDep, ReaderDep, api_router
from drumline_server.scheduling.snapshot import SchedulingTerms
from drumline_server.services import overview

router = api_router(tags=["fleet"])


@router.get("/overview")
async def get_overview(principal: ReaderDep, app: AppDep) -> api.Overview:
    """The fleet, what runs, what waits and why, what failed lately."""
    return await app.database.read(
        lambda session: overview.overview(
            session, principal.project_id, SchedulingTerms.of(app.settings), now=app.clock.now()
        )
    )
