"""`/jobs`: names and their versions."""

from typing import Annotated

from fastapi import Path, Query
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.spec import JobName
from drumline_server.http.dependencies import (
    DEFAULT_PAGE,
    LARGE,
    AppDep,
    Contains,
    CursorText,
    KnownQuery,
    Limit,
    ReaderDep,
    SubmitterDep,
    api_router,
)
from drumline_server.services import bundles, jobs
from drumline_server.services.jobs import changed_fields

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
    compared = await bundles.compare_bundles(app.blobs, app.reading, *sides, principal.counts_for)
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
