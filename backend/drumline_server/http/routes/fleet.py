"""`/hosts` and `/devices`: what there is to run on; `/overview`: what runs there; `/worker`: what agents call with
their own token, and the artifacts that they bring.
"""

from typing import Annotated, Literal

from fastapi import Depends, Query, Request, Response, status
from fastapi.responses import FileResponse, RedirectResponse
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.artifacts import ArtifactUpload
from drumline.contracts.base import (
    ArtifactId,
    AttemptId,
    DeviceId,
    HostId,
    MemberId,
    PlanId,
    RunId,
    Sha256,
    Text,
    to_micros,
)
from drumline.contracts.events import EventBatch, MemberAck, MemberEnd
from drumline.contracts.plans import PlanReport, PlanTaken
from drumline.contracts.retention import ExpiredRuns, StoredRuns
from drumline.contracts.stacks import StacksReport
from drumline.contracts.states import DeviceState
from drumline.contracts.worker_api import (
    OLDEST_PROTOCOL,
    Claim,
    Claimed,
    DeviceCheckReports,
    Enroll,
    Enrolled,
    Heartbeat,
    HeartbeatReply,
    Register,
    Registered,
)
from drumline_server.base.callers import Principal
from drumline_server.http.dependencies import (
    DEFAULT_PAGE,
    EXPORT,
    AppDep,
    CursorText,
    Direct,
    EnrolmentDep,
    KnownQuery,
    Limit,
    MemberKeyDep,
    OperatorDep,
    ReaderDep,
    WorkerDep,
    api_router,
)
from drumline_server.http.json_bodies import PIECE, send_content
from drumline_server.http.request_context import AppState
from drumline_server.lifecycle import checkpoints, finish, probes, registration
from drumline_server.lifecycle import members as claim_lifecycle
from drumline_server.lifecycle.heartbeat import is_idle, record_heartbeat, record_standing
from drumline_server.lifecycle.stored import ArtifactTerms, Kept, lose_rest
from drumline_server.scheduling.snapshot import SchedulingTerms
from drumline_server.services import access, bundles, fleet, identity, overview
from drumline_server.services.fleet import DeviceFilter
from drumline_server.telemetry import ingest, media

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


workers_router = api_router("/worker", tags=["worker"])
_DAY_US = 86_400 * 1_000_000


@workers_router.post("/enroll")
async def enroll(body: Enroll, ticket: EnrolmentDep, app: AppDep) -> Enrolled:
    """Takes a machine into the project of its single-use token; the answer holds the host's own token."""
    return await app.database.write(lambda session: access.enroll(session, ticket.token, body, now=app.clock.now()))


@workers_router.post("/register")
async def register(body: Register, worker: WorkerDep, app: AppDep) -> Registered:
    """Begins a new incarnation of a host's worker: its devices, and the members it finds alive."""
    terms = registration.worker_terms(app.settings)

    def begin(session: Session) -> Registered:
        now = app.clock.now()
        identity.require_live(session, worker.token_id, now=now)
        return registration.register(session, worker.host_id, body, terms, now=now)

    return await app.database.write(begin)


@workers_router.post("/heartbeat")
async def heartbeat(body: Heartbeat, worker: WorkerDep, app: AppDep) -> HeartbeatReply:
    """Keeps a host's lease; the answer says what to claim, to cancel and to kill."""
    registration.require_protocol(OLDEST_PROTOCOL if body.protocol is None else body.protocol)
    if is_idle(body):
        reply = await app.idle_heartbeats.submit((worker.host_id, body))
        if reply is not None:
            return reply
    reply = await app.database.write(
        lambda session: record_heartbeat(session, worker.host_id, body, now=app.clock.now())
    )
    app.figures.count_refusals(len(reply.refused))
    return reply


@workers_router.post("/members/{member_id}/claim")
async def claim(member_id: MemberId, body: Claim, worker: WorkerDep, app: AppDep) -> Claimed:
    """Takes a member to run. The same claim by the same incarnation is answered again."""
    claimed = await app.database.write(
        lambda session: claim_lifecycle.claim(session, worker.host_id, member_id, body, now=app.clock.now())
    )
    return claimed.model_copy(update={"artifact_bytes": app.settings.artifact_bytes})


@workers_router.post("/members/{member_id}/events")
async def ingest_events(
    member_id: MemberId, body: EventBatch, worker: WorkerDep, app: AppDep, member_key: MemberKeyDep = None
) -> MemberAck:
    """Stores a batch of telemetry; what was stored before is ignored."""
    ack = await app.database.write(
        lambda session: ingest.store_batch(
            session, worker.host_id, member_id, body, key=member_key, now=app.clock.now()
        )
    )
    app.figures.count_batch(len(body.events), (app.clock.now() - to_micros(body.events[-1].at)) / 1e6)
    return ack


@workers_router.post("/members/{member_id}/stacks", status_code=status.HTTP_204_NO_CONTENT)
async def report_stacks(
    member_id: MemberId, body: StacksReport, worker: WorkerDep, app: AppDep, member_key: MemberKeyDep = None
) -> None:
    """Tells where a member stands, as a heartbeat's answer asked."""
    await app.database.write(
        lambda session: record_standing(session, worker.host_id, member_id, body, key=member_key, now=app.clock.now())
    )


@workers_router.post("/members/{member_id}/end")
async def end_member(
    member_id: MemberId, body: MemberEnd, worker: WorkerDep, app: AppDep, member_key: MemberKeyDep = None
) -> MemberAck:
    """Reports how a member ended; its telemetry may still follow up to `last_seq`."""
    taken = await app.database.write(
        lambda session: finish.end_member(session, worker.host_id, member_id, body, key=member_key, now=app.clock.now())
    )
    if taken.fenced is not None:
        raise taken.fenced
    return taken.ack


@workers_router.post("/probes", status_code=status.HTTP_204_NO_CONTENT)
async def report_device_checks(body: DeviceCheckReports, worker: WorkerDep, app: AppDep) -> None:
    """Tells what checks of quarantined devices found; the server decides which are free."""
    await app.database.write(
        lambda session: probes.record_device_checks(session, worker.host_id, body, now=app.clock.now())
    )


@workers_router.post("/checkpoints")
async def expire_checkpoints(body: StoredRuns, worker: WorkerDep, app: AppDep) -> ExpiredRuns:
    """Says of which runs a worker need keep no checkpoint any more; nobody can resume from those from now on."""
    ended_before = app.clock.now() - app.settings.checkpoint_days * _DAY_US
    return await app.database.write(
        lambda session: checkpoints.expire_checkpoints(session, worker.host_id, body, ended_before=ended_before)
    )


@workers_router.post("/plans/{plan_id}/report")
async def report_plan(plan_id: PlanId, body: PlanReport, worker: WorkerDep, app: AppDep) -> PlanTaken:
    """Takes what a probe found for a plan; a plan that has its answer already keeps it."""
    now = app.clock.now()
    return await app.database.write(
        lambda session: probes.record_plan_report(
            session, worker.host_id, plan_id, body, SchedulingTerms.of(app.settings).silent_since(now), now=now
        )
    )


def terms_of(app: AppState) -> ArtifactTerms:
    """What artifacts this server stores."""
    return ArtifactTerms(app.settings.artifact_bytes, app.settings.project_artifact_bytes)


def content_of(
    member_id: MemberId, sha256: Sha256, worker: WorkerDep, app: AppDep, member_key: MemberKeyDep = None
) -> bundles.HostContent:
    """A content that the host sends for artifacts of a member."""
    kept = Kept(worker.host_id, member_id, sha256, member_key)
    return bundles.HostContent(app.database, app.blobs, kept, terms_of(app), app.clock)


ContentDep = Annotated[bundles.HostContent, Depends(content_of)]
Offset = Annotated[int, Query(ge=0, lt=2**40, description="Where the piece begins in the content, in bytes.")]


@workers_router.get("/members/{member_id}/artifacts/{sha256}")
async def get_artifact_upload(content: ContentDep) -> ArtifactUpload:
    """How far a content has come that a member's artifacts wait for, or what became of it."""
    return await content.answer()


@workers_router.patch("/members/{member_id}/artifacts/{sha256}", openapi_extra=PIECE)
async def continue_artifact(*, content: ContentDep, request: Request, app: AppDep, offset: Offset) -> ArtifactUpload:
    """Takes a content from byte `offset` on; once all of it is there it is compared with its digest and stored."""
    async with app.shares.turn(request.scope, "upload"):
        return await bundles.receive_content(content, offset, request.stream())


@workers_router.post("/members/{member_id}/artifacts/{sha256}/address")
async def get_artifact_address(content: ContentDep, offset: Offset) -> api.PieceAddress:
    """Where in the object store the content is to be sent from byte `offset` on, where `by_address` says so.

    Once all of it is there, `PATCH` with an empty body and `offset` equal to its size stores it.
    """
    return await bundles.find_content_address(content, offset)


@workers_router.post("/members/{member_id}/artifacts:end", status_code=status.HTTP_204_NO_CONTENT)
async def end_artifacts(member_id: MemberId, worker: WorkerDep, app: AppDep, member_key: MemberKeyDep = None) -> None:
    """Tells that the host has no more of a member's artifacts: those that still wait for bytes are lost."""
    await app.database.write(
        lambda session: lose_rest(
            session, worker.host_id, member_id, terms_of(app), key=member_key, now=app.clock.now()
        )
    )


@workers_router.get("/bundles/{sha256}", response_class=FileResponse, response_model=None)
async def fetch_bundle(
    sha256: Sha256, worker: WorkerDep, app: AppDep, direct: Direct = False
) -> FileResponse | RedirectResponse:
    """The zip of a program that a run of this host's project uses, or 307 to where in an object store it is."""
    location = await app.database.read(lambda session: bundles.location_for_host(session, worker.host_id, sha256))
    return await send_content(app.blobs, location, "application/zip", direct=direct)


artifacts_router = api_router("/runs/{run_id}", tags=["telemetry"])


@artifacts_router.get("/artifacts")
async def list_artifacts(
    *,
    run_id: RunId,
    principal: ReaderDep,
    _: KnownQuery,
    app: AppDep,
    attempt: AttemptId | None = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_PAGE,
) -> api.Page[api.Artifact]:
    """Files and directories that the program keeps with the run, newest first, and how far they have come."""
    return await app.database.read(
        lambda session: media.list_artifacts(session, principal.project_id, run_id, attempt, cursor=cursor, limit=limit)
    )


@artifacts_router.get(
    "/artifacts/{artifact_id}/file",
    dependencies=[EXPORT],
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def get_artifact_file(
    run_id: RunId, artifact_id: ArtifactId, principal: ReaderDep, app: AppDep, direct: Direct = False
) -> Response:
    """The file, or the zip of a directory; or 307 to where in an object store it is."""
    kept, location = await app.database.read(
        lambda session: media.get_artifact(session, principal.project_id, run_id, artifact_id)
    )
    if location is None:
        raise media.not_there(kept)
    name, form = (f"{kept.name}.zip", "zip") if kept.is_directory else (kept.name, "octet-stream")
    return await send_content(app.blobs, location, f"application/{form}", direct=direct, name=name)
