"""What is submitted: `/jobs`, names and their versions; `/bundles`, uploading programs and looking into them;
`/batches`, and the two ways to make one, `/runs:batch` and `/runs:sweep`.
"""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated

from fastapi import Body, Depends, Path, Query, Request, Response, status
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import BatchId, Sha256, Text
from drumline.contracts.spec import JobName
from drumline.contracts.sweeps import BatchSubmit, SweepSubmit
from drumline_server.base.callers import Principal
from drumline_server.base.errors import InvalidRequestError
from drumline_server.http.dependencies import (
    DEFAULT_PAGE,
    LARGE,
    AppDep,
    Contains,
    CursorText,
    Key,
    KnownQuery,
    Limit,
    ReaderDep,
    SubmitterDep,
    api_router,
)
from drumline_server.http.json_bodies import PIECE, cut, in_pieces
from drumline_server.http.request_context import AppState
from drumline_server.lifecycle.run_changes import cancel_part
from drumline_server.services import batches, bundle_reading, bundles, jobs, run_changes
from drumline_server.services.jobs import changed_fields
from drumline_server.services.submit_batch import BatchSubmission, Begun, begin, make_runs, prepare, queue_part

router = api_router("/jobs", tags=["jobs"])
Number = Annotated[int, Path(ge=1, lt=2**31)]
Against = Annotated[
    int | None, Query(ge=1, lt=2**31, description="The version to compare with; the one before without.")
]


@router.get("")
async def list_jobs(
    principal: ReaderDep,
    _: KnownQuery,
    app: AppDep,
    q: Contains = "",
    cursor: CursorText = None,
    limit: Limit = DEFAULT_PAGE,
) -> api.Page[api.Job]:
    """The project's jobs, by name."""
    return await app.database.read(
        lambda session: jobs.list_jobs(session, principal.project_id, cursor=cursor, limit=limit, contains=q)
    )


@router.get("/{name}")
async def get_job(name: JobName, principal: ReaderDep, app: AppDep) -> api.Job:
    """One job."""
    return await app.database.read(lambda session: jobs.get_job(session, principal.project_id, name))


@router.get("/{name}/versions")
async def list_versions(
    name: JobName, principal: ReaderDep, app: AppDep, cursor: CursorText = None, limit: Limit = DEFAULT_PAGE
) -> api.Page[api.JobVersion]:
    """The versions of a job, newest first."""
    return await app.database.read(
        lambda session: jobs.list_versions(session, principal.project_id, name, cursor=cursor, limit=limit)
    )


@router.get("/{name}/versions/{number}")
async def get_version(name: JobName, number: Number, principal: ReaderDep, app: AppDep) -> api.JobVersion:
    """One version of a job."""
    return await app.database.read(lambda session: jobs.get_version(session, principal.project_id, name, number))


@router.get("/{name}/versions/{number}/diff", dependencies=[LARGE])
async def diff_versions(
    *, name: JobName, number: Number, principal: ReaderDep, app: AppDep, against: Against = None
) -> api.VersionDiff:
    """What changed in a version: fields of the specification, and the files of its bundle as unified diffs."""
    base = max(1, number - 1) if against is None else against

    def look_up(session: Session) -> list[tuple[api.JobVersion, str]]:
        versions = [jobs.get_version(session, principal.project_id, name, each) for each in (base, number)]
        return [
            (version, bundles.locate_bundle(session, principal.project_id, version.program.bundle))
            for version in versions
        ]

    (old, old_location), (new, new_location) = await app.database.read(look_up)
    sides = (f"v{base}", old_location), (f"v{number}", new_location)
    compared = await bundle_reading.compare_bundles(app.blobs, app.reading, *sides, principal.counts_for)
    return api.VersionDiff(
        job=name,
        old=base,
        new=number,
        fields=changed_fields(old, new),
        files=compared.files,
        files_changed=compared.total,
    )


@router.get("/{name}/changes")
async def list_changes(
    name: JobName, principal: ReaderDep, app: AppDep, cursor: CursorText = None, limit: Limit = DEFAULT_PAGE
) -> api.Page[api.JobChange]:
    """Which version was current when, newest first: who moved it, and whether by a submission or a rollback."""
    return await app.database.read(
        lambda session: jobs.list_changes(session, principal.project_id, name, cursor=cursor, limit=limit)
    )


@router.post("/{name}:rollback")
async def roll_back(name: JobName, body: api.RollbackRequest, principal: SubmitterDep, app: AppDep) -> api.Job:
    """Makes an older version (or a newer one again) the current one. Versions and runs stay as they are."""
    return await app.database.write(
        lambda session: jobs.roll_back(
            session, principal.project_id, name, body.version, by=principal.ref, now=app.clock.now()
        )
    )


bundles_router = api_router("/bundles", tags=["bundles"])
Filename = Annotated[
    str, Query(max_length=200, description="Name of the file, where the body is one Python file: `digits.py`.")
]
_UPLOAD = {
    "requestBody": {
        "required": True,
        "content": {
            "application/zip": {"schema": {"type": "string", "format": "binary"}},
            "text/x-python": {"schema": {"type": "string"}},
        },
    }
}


@bundles_router.post("", status_code=status.HTTP_201_CREATED, openapi_extra=_UPLOAD)
async def upload_bundle(
    *, request: Request, principal: SubmitterDep, app: AppDep, filename: Filename = "program.py"
) -> api.Bundle:
    """Stores a program: a zip, or one Python file. The same content gives the same bundle."""
    upload = bundles.Upload(
        request.headers.get("content-type", ""), filename, request.stream(), app.settings.bundle_bytes
    )
    async with app.shares.turn(request.scope, "upload"):
        return await bundles.receive(_bundles_of(app, principal), upload, principal.counts_for)


def _bundles_of(app: AppState, principal: Principal) -> bundles.ProjectBundles:
    return bundles.ProjectBundles(
        app.database,
        app.blobs,
        app.reading,
        principal.project_id,
        app.settings.project_bundle_bytes,
        principal.ref,
        app.clock,
    )


Offset = Annotated[int, Query(ge=0, lt=2**40, description="Where the piece begins in the bundle, in bytes.")]
Size = Annotated[int, Query(ge=1, lt=2**40, description="Of the whole bundle, a zip, in bytes.")]


@bundles_router.get("/{sha256}/upload")
async def get_upload(sha256: Sha256, principal: SubmitterDep, app: AppDep) -> api.BundleUpload:
    """How far a program has come that is sent piece by piece by this token; whole, if the project has it."""
    return await bundles.show_upload(_bundles_of(app, principal), sha256, principal.counts_for)


@bundles_router.patch("/{sha256}/upload", openapi_extra=PIECE)
async def continue_upload(
    *, sha256: Sha256, request: Request, principal: SubmitterDep, app: AppDep, offset: Offset, size: Size
) -> api.BundleUpload:
    """Takes a zip from byte `offset` on. What came of a request that was cut off is kept for a day."""
    limit_bytes = app.settings.bundle_bytes
    if size > limit_bytes:
        raise bundles.too_large(limit_bytes)
    piece = bundle_reading.Piece(sha256, offset, size, request.stream())
    async with app.shares.turn(request.scope, "upload"):
        return await bundles.receive_piece(_bundles_of(app, principal), piece, principal.counts_for)


@bundles_router.post("/{sha256}/upload/address")
async def get_piece_address(
    sha256: Sha256, principal: SubmitterDep, app: AppDep, offset: Offset, size: Size
) -> api.PieceAddress:
    """Where in the object store the zip is to be sent from byte `offset` on, where `by_address` says so.

    Once all of it is there, `PATCH` with an empty body and `offset` equal to `size` stores the bundle.
    """
    if size > app.settings.bundle_bytes:
        raise bundles.too_large(app.settings.bundle_bytes)
    if offset >= size:
        raise InvalidRequestError("offset", f"{offset} is not below the size, {size}")
    project = _bundles_of(app, principal)
    return await bundles.find_piece_address(project, sha256, offset, size, principal.counts_for)


@bundles_router.get("/{sha256}")
async def get_bundle(sha256: Sha256, principal: ReaderDep, app: AppDep) -> api.Bundle:
    """A stored program with its entrypoints."""
    return await bundles.show_bundle(app.database, principal.project_id, sha256, now=app.clock.now())


@bundles_router.get("/{sha256}/source", response_model=api.BundleSource, dependencies=[LARGE])
async def get_bundle_source(sha256: Sha256, principal: ReaderDep, app: AppDep) -> Response:
    """The text files of a program, for reading and for submitting it again with changes."""
    location = await app.database.read(lambda session: bundles.locate_bundle(session, principal.project_id, sha256))
    source = await bundle_reading.read_source(app.blobs, app.reading, location, principal.counts_for)
    return cut(source, "application/json")


MAX_ROWS = 1_000
"""On one page of a table of outcomes."""
batches_router = api_router(tags=["batches"])

Sort = Annotated[
    Text,
    Query(
        max_length=250,
        description="`index`, `state`, `duration`, `parameters.NAME` or `metrics.NAME`, descending with `-` before it; "
        "`best.NAME` begins with the best.",
    ),
]
Rows = Annotated[int, Query(ge=1, le=MAX_ROWS, description="Rows on the page.")]


async def turn(request: Request, app: AppDep) -> AsyncIterator[None]:
    """One batch of a token is queued after the other: each takes the writer of the database for a while."""
    async with app.shares.turn(request.scope, "batch"):
        yield


@batches_router.post("/runs:batch", status_code=status.HTTP_201_CREATED, dependencies=[Depends(turn)])
async def submit_batch(
    *, body: BatchSubmit, key: Key, principal: SubmitterDep, app: AppDep, response: Response
) -> api.SubmittedBatch:
    """Submits up to 10 000 runs at once: if one is refused none is queued. A refusal names each run and field."""
    return await _submit(body, key, principal, app, response)


@batches_router.post("/runs:sweep", status_code=status.HTTP_201_CREATED, dependencies=[Depends(turn)])
async def submit_sweep(
    *, body: SweepSubmit, key: Key, principal: SubmitterDep, app: AppDep, response: Response
) -> api.SubmittedBatch:
    """Submits one run many times with different parameters: a grid, a list of points, or points drawn at random."""
    return await _submit(body, key, principal, app, response)


@batches_router.get("/batches", response_model=api.Page[api.Batch])
async def list_batches(
    principal: ReaderDep,
    _: KnownQuery,
    app: AppDep,
    q: Contains = "",
    cursor: CursorText = None,
    limit: Limit = DEFAULT_PAGE,
) -> Response:
    """The project's batches with the states of their runs, newest first."""
    page = await app.database.read(
        lambda session: batches.list_batches(session, principal.project_id, cursor=cursor, limit=limit, contains=q)
    )
    return in_pieces(page, "items")


@batches_router.get("/batches/{batch_id}")
async def get_batch(batch_id: BatchId, principal: ReaderDep, app: AppDep) -> api.Batch:
    """One batch. Its runs are `GET /runs?batch=`."""
    return await app.database.read(lambda session: batches.get_batch(session, principal.project_id, batch_id))


@batches_router.post("/batches/{batch_id}:cancel", status_code=status.HTTP_202_ACCEPTED)
async def cancel_batch(
    batch_id: BatchId, principal: SubmitterDep, app: AppDep, body: Annotated[api.CancelRequest | None, Body()] = None
) -> api.Batch:
    """Asks every run of the batch that has not ended to stop, those that wait first; no more of it are queued.

    It answers at once: `cancel.left` tells how many runs are still to be asked.
    """
    grace_s = (body or api.CancelRequest()).grace_s
    request = run_changes.BatchCancellation(principal.project_id, batch_id, principal.ref, grace_s)
    await app.database.write(lambda session: run_changes.cancel_batch(session, request, now=app.clock.now()))
    await app.database.write(lambda session: cancel_part(session, batch_id, now=app.clock.now()))
    return await app.database.read(lambda session: batches.get_batch(session, principal.project_id, batch_id))


@batches_router.get("/batches/{batch_id}/outcomes", response_model=api.Outcomes, dependencies=[LARGE])
async def list_outcomes(
    *,
    batch_id: BatchId,
    principal: ReaderDep,
    _: KnownQuery,
    app: AppDep,
    sort: Sort = "index",
    cursor: CursorText = None,
    limit: Rows = DEFAULT_PAGE,
) -> Response:
    """What came of the batch: a row for each run with its parameters, state and the numbers of its result."""
    page = await app.database.read(
        lambda session: batches.outcomes_page(
            session, principal.project_id, batch_id, sort=sort, cursor=cursor, limit=limit
        )
    )
    return in_pieces(page, "items")


@batches_router.get("/batches/{batch_id}/outcomes.csv", response_class=Response, dependencies=[LARGE])
async def export_outcomes(batch_id: BatchId, principal: ReaderDep, app: AppDep, sort: Sort = "index") -> Response:
    """The whole table of outcomes as CSV."""
    text = await app.database.read(
        lambda session: batches.outcomes_csv(session, principal.project_id, batch_id, sort=sort)
    )
    headers = {"Content-Disposition": f'attachment; filename="{batch_id}.csv"'}
    return cut(text.encode(), "text/csv; charset=utf-8", headers)


async def _submit(
    body: BatchSubmit | SweepSubmit, key: str, principal: Principal, app: AppState, response: Response
) -> api.SubmittedBatch:
    runs = await asyncio.to_thread(make_runs, body)  # without a reader of the database, which others wait for
    request = BatchSubmission(principal.project_id, principal.ref, key, body, principal.key, runs)
    prepared = await app.database.read(lambda session: prepare(session, request, now=app.clock.now()))
    most = app.settings.waiting_runs
    answer = await app.database.write(lambda session: begin(session, prepared, most_waiting=most, now=app.clock.now()))
    while isinstance(answer, Begun):
        next_part = partial(queue_part, begun=answer, most_waiting=most, now=app.clock.now())
        answer = await app.database.write(next_part)
    if answer.replayed:
        response.headers["Idempotency-Replayed"] = "true"
    return answer.submitted
