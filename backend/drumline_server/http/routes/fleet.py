"""`/hosts` and `/devices`: what there is to run on; `/overview`: what runs there."""

from typing import Annotated, Literal

from fastapi import Query

from drumline.contracts import api
from drumline.contracts.base import Text
from drumline.contracts.ids import DeviceId, HostId
from drumline.contracts.states import DeviceState
from drumline_server.base.callers import Principal
from drumline_server.http.dependencies import (
    DEFAULT_PAGE,
    AppDep,
    CursorText,
    KnownQuery,
    Limit,
    OperatorDep,
    ReaderDep,
    api_router,
)
from drumline_server.scheduling.snapshot import SchedulingTerms
from drumline_server.services import fleet, overview
from drumline_server.services.fleet import DeviceFilter

router = api_router(tags=["fleet"])


@router.get("/overview")
async def get_overview(principal: ReaderDep, app: AppDep) -> api.Overview:
    """The fleet, what runs, what waits and why, what failed lately."""
    return await app.database.read(
        lambda session: overview.overview(
            session, principal.project_id, SchedulingTerms.of(app.settings), now=app.clock.now()
        )
    )


@router.get("/hosts")
async def list_hosts(
    *, principal: ReaderDep, _: KnownQuery, app: AppDep, cursor: CursorText = None, limit: Limit = DEFAULT_PAGE
) -> api.Page[api.Host]:
    """The machines that have a worker, by name."""
    return await app.database.read(
        lambda session: fleet.list_hosts(
            session,
            principal.project_id,
            cursor=cursor,
            limit=limit,
            now=app.clock.now(),
            suspect_s=app.settings.times.suspect_s,
        )
    )


@router.get("/devices")
async def list_devices(
    *,
    principal: ReaderDep,
    _: KnownQuery,
    app: AppDep,
    host: HostId | None = None,
    platform: Literal["cpu", "gpu", "tpu"] | None = None,
    state: DeviceState | None = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_PAGE,
) -> api.Page[api.Device]:
    """The devices of the hosts, by host and index, with the run that holds each."""
    wanted = DeviceFilter(host=host, platform=platform, state=state)
    return await app.database.read(
        lambda session: fleet.list_devices(session, principal.project_id, wanted, cursor=cursor, limit=limit)
    )


@router.get("/links")
async def list_links(
    *,
    principal: ReaderDep,
    _: KnownQuery,
    app: AppDep,
    slice_name: Annotated[Text, Query(alias="slice", min_length=1, max_length=100)],
    cursor: CursorText = None,
    limit: Limit = DEFAULT_PAGE,
) -> api.Page[api.ChipLink]:
    """The links between the chips of a TPU slice, which its hosts name (`Host.slice`)."""
    return await app.database.read(
        lambda session: fleet.list_links(session, principal.project_id, slice_name, cursor=cursor, limit=limit)
    )


@router.post("/hosts/{host_id}:drain")
async def drain_host(host_id: HostId, principal: OperatorDep, app: AppDep) -> api.Host:
    """Gives the host no more runs; programs that run there stop in their grace and resume elsewhere."""
    order = _action(principal, host_id, app.clock.now())
    return await app.database.write(
        lambda session: fleet.drain_host(session, order, suspect_s=app.settings.times.suspect_s)
    )


@router.post("/hosts/{host_id}:undrain")
async def undrain_host(host_id: HostId, principal: OperatorDep, app: AppDep) -> api.Host:
    """Lets a drained host take runs again."""
    order = _action(principal, host_id, app.clock.now())
    return await app.database.write(
        lambda session: fleet.undrain_host(session, order, suspect_s=app.settings.times.suspect_s)
    )


@router.post("/hosts/{host_id}:release")
async def release_host(host_id: HostId, principal: OperatorDep, app: AppDep) -> api.Host:
    """Ends the quarantine, or the flag, of a host on which too many runs failed."""
    order = _action(principal, host_id, app.clock.now())
    return await app.database.write(
        lambda session: fleet.release_host(session, order, suspect_s=app.settings.times.suspect_s)
    )


@router.post("/devices/{device_id}:release")
async def release_device(device_id: DeviceId, principal: OperatorDep, app: AppDep) -> api.Device:
    """Frees a quarantined device, on the word of an operator that its last holder is dead."""
    order = _action(principal, device_id, app.clock.now())
    return await app.database.write(lambda session: fleet.release_device(session, order))


def _action(principal: Principal, target: str, now: int) -> fleet.OperatorAction:
    return fleet.OperatorAction(principal.project_id, target, principal.ref, now)
