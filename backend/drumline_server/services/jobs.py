"""Jobs as the API shows them, the versions that submissions make, and what differs between two."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from pydantic import JsonValue
from sqlalchemy import bindparam, func, select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import new_id
from drumline.contracts.spec import JobSpec, ProgramRef
from drumline.program import known_defaults
from drumline_server.base.callers import decode_cursor, page_of
from drumline_server.base.errors import NotFoundError
from drumline_server.services import bundles
from drumline_server.storage import history
from drumline_server.storage.models import Bundle, Job, JobChange, JobVersion, Run, principal_columns, principal_in
from drumline_server.storage.models.base import insert_or_ignore

_COMPARED = ("program", "strategy", "record", "checkpoint")


def changed_fields(old: api.JobVersion, new: api.JobVersion) -> tuple[api.FieldChange, ...]:
    """The fields that differ, by path; a field that one side does not have is None there."""
    before, after = _flat(old), _flat(new)
    return tuple(
        api.FieldChange(path=path, old=before.get(path), new=after.get(path))
        for path in dict.fromkeys([*before, *after])
        if before.get(path) != after.get(path)
    )


def _flat(version: api.JobVersion) -> dict[str, JsonValue]:
    content = version.model_dump(mode="json", include=set(_COMPARED))
    return dict(_leaves({part: content[part] for part in _COMPARED}, ""))


def _leaves(value: dict[str, JsonValue], prefix: str) -> Iterator[tuple[str, JsonValue]]:
    for name, item in value.items():
        if isinstance(item, dict):
            yield from _leaves(item, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", item


#: Asked by every submission: made once, because making it costs as much as running it.
_VERSION_WITH_CONTENT = (
    select(JobVersion, Bundle.sha256.is_not(None) & Bundle.unnamed_since.is_(None))
    .join(Job, Job.id == JobVersion.job_id)
    .outerjoin(Bundle, (Bundle.project_id == JobVersion.project_id) & (Bundle.sha256 == JobVersion.bundle))
    .where(
        Job.project_id == bindparam("project_id"),
        Job.name == bindparam("name"),
        JobVersion.content_hash == bindparam("content_hash"),
    )
)


def find_job(session: Session, project_id: str, name: str) -> Job | None:
    """The project's job of that name."""
    return session.scalar(select(Job).where(Job.project_id == project_id, Job.name == name))


def lock_job(session: Session, project_id: str, name: str) -> Job | None:
    """Like `find_job`; nobody else numbers a version of it before this transaction ends."""
    return session.scalar(select(Job).where(Job.project_id == project_id, Job.name == name).with_for_update())


def jobs_after(session: Session, project_id: str, name: str, limit: int, *, contains: str = "") -> Sequence[Job]:
    """Up to `limit` jobs whose names sort after `name`, and hold `contains` in any case."""
    query = select(Job).where(Job.project_id == project_id, Job.name > name).order_by(Job.name).limit(limit)
    if contains:
        query = query.where(Job.name.icontains(contains, autoescape=True))
    return session.scalars(query).all()


def find_version(session: Session, job_id: str, content_hash: str) -> JobVersion | None:
    """The job's version of that content."""
    query = select(JobVersion).where(JobVersion.job_id == job_id, JobVersion.content_hash == content_hash)
    return session.scalar(query)


def numbered_version(session: Session, job_id: str, number: int) -> JobVersion | None:
    """The job's version of that number."""
    return session.scalar(select(JobVersion).where(JobVersion.job_id == job_id, JobVersion.number == number))


def versions_before(session: Session, job_id: str, number: int, limit: int) -> Sequence[JobVersion]:
    """Up to `limit` versions with smaller numbers, newest first."""
    query = select(JobVersion).where(JobVersion.job_id == job_id, JobVersion.number < number)
    return session.scalars(query.order_by(JobVersion.number.desc()).limit(limit)).all()


def newest_change(session: Session, job_id: str) -> int:
    """The number of the newest move of the job's current version; 0 before the first."""
    return session.scalar(select(func.max(JobChange.number)).where(JobChange.job_id == job_id)) or 0


def changes_before(session: Session, job_id: str, number: int, limit: int) -> Sequence[JobChange]:
    """Up to `limit` moves of the current version with smaller numbers, newest first."""
    query = select(JobChange).where(JobChange.job_id == job_id, JobChange.number < number)
    return session.scalars(query.order_by(JobChange.number.desc()).limit(limit)).all()


def runs_of_jobs(session: Session, job_ids: Iterable[str]) -> dict[str, tuple[int, int]]:
    """By job: how many runs it has, and when the newest was submitted. Jobs without runs are left out."""
    query = select(Run.job_id, func.count(), func.max(Run.created_at)).where(Run.job_id.in_(list(job_ids)))
    query = query.where(Run.deleted_at.is_(None))
    return {job: (count, newest) for job, count, newest in session.execute(query.group_by(Run.job_id))}


def runs_of_versions(session: Session, version_ids: Iterable[str]) -> dict[str, int]:
    """By version: how many runs it has. Versions without runs are left out."""
    query = select(Run.version_id, func.count()).where(Run.version_id.in_(list(version_ids)))
    query = query.where(Run.deleted_at.is_(None))
    return {version: count for version, count in session.execute(query.group_by(Run.version_id))}


_NEWEST = 2**62


def content_hash(spec: JobSpec) -> str:
    """The identity of a version: everything of the spec but the job's name."""
    content = spec.model_dump(mode="json", exclude={"name"})
    # Versions that are older than an option keep their identity.
    if content["strategy"].get("collectives") == "strategy":
        del content["strategy"]["collectives"]
    if content["record"]["on_divergence"] == "warn":
        del content["record"]["on_divergence"]
    if content["record"]["large_reductions_every"] is None:
        del content["record"]["large_reductions_every"]
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"


def ensure_version(
    session: Session, project_id: str, spec: JobSpec, *, by: api.PrincipalRef, now: int
) -> tuple[JobVersion, bool]:
    """The version with the content of `spec`, made if the job has none; and whether it was made.

    Makes the job too, where the project has none of that name. A version that is made becomes the job's current one;
    one that is there already does not: a rollback holds until something new comes. No sweep takes its bundle.
    Raises DrumlineError bundle_not_found.
    """
    digest = content_hash(spec)
    of_content = {"project_id": project_id, "name": spec.name, "content_hash": digest}
    found = session.execute(_VERSION_WITH_CONTENT, of_content).first()
    if found is None or not found[1]:
        bundles.take_bundle(session, project_id, spec.program.bundle)
    if found is not None:
        know_defaults(session, found[0])
        return found[0], False
    job = _lock_job(session, project_id, spec.name, by=by, now=now)
    known = find_version(session, job.id, digest)
    if known is not None:
        return known, False
    job.latest_version += 1
    version = JobVersion(
        id=new_id("ver"),
        project_id=project_id,
        job_id=job.id,
        number=job.latest_version,
        content_hash=digest,
        bundle=spec.program.bundle,
        entrypoint=spec.program.entrypoint,
        **{part: getattr(spec, part).model_dump(mode="json") for part in ("strategy", "record", "checkpoint")},
        defaults=_defaults_of(session, project_id, spec.program),
        created_at=now,
        **principal_columns("created_by", by),
    )
    session.add(version)
    _make_current(session, job, version.number, by=by, cause="submit", now=now)
    session.flush()
    return version, True


def _defaults_of(session: Session, project_id: str, called: ProgramRef) -> dict[str, JsonValue]:
    """What the program takes for parameters that are left out, where that is no None and its source tells it."""
    offered = bundles.get_bundle(session, project_id, called.bundle).entrypoints
    found = next((each for each in offered if each.entrypoint == called.entrypoint), None)
    return {} if found is None else known_defaults(found)


def know_defaults(session: Session, version: JobVersion) -> None:
    """Keeps them with a version whose bundle is there, and was gone when versions got theirs."""
    if version.defaults is None:
        called = ProgramRef(bundle=version.bundle, entrypoint=version.entrypoint)
        version.defaults = _defaults_of(session, version.project_id, called)


def roll_back(session: Session, project_id: str, name: str, number: int, *, by: api.PrincipalRef, now: int) -> api.Job:
    """Makes version `number` the job's current one and writes down who did; nothing where it is already.

    Versions and runs stay as they are, so rolling back is itself undone by rolling "back" to a newer version.
    Raises NotFoundError, and DrumlineError bundle_not_found where the version's program was deleted.
    """
    _existing_job(session, project_id, name)
    version = _existing_version(session, project_id, name, number)
    job = lock_job(session, project_id, name)
    assert job is not None
    if job.current_version != version.number:
        bundles.take_bundle(session, project_id, version.bundle)
        body = {"from": job.current_version, "to": version.number}
        _make_current(session, job, version.number, by=by, cause="rollback", now=now)
        history.record_audit(session, "job.rollback", job.id, principal=by, project_id=project_id, now=now, body=body)
        session.flush()
    return _job(job, runs_of_jobs(session, [job.id]))


def list_changes(
    session: Session, project_id: str, name: str, *, cursor: str | None, limit: int
) -> api.Page[api.JobChange]:
    """A page of the moves of a job's current version, newest first. Raises NotFoundError."""
    job = _existing_job(session, project_id, name)
    before = int(decode_cursor(cursor, int)[0]) if cursor else _NEWEST
    rows = changes_before(session, job.id, before, limit + 1)
    return page_of(
        rows,
        limit,
        item=_change,
        key=lambda change: (change.number,),
    )


def list_jobs(
    session: Session, project_id: str, *, cursor: str | None, limit: int, contains: str = ""
) -> api.Page[api.Job]:
    """A page of jobs by name, of those whose name holds `contains`."""
    after = str(decode_cursor(cursor, str)[0]) if cursor else ""
    rows = jobs_after(session, project_id, after, limit + 1, contains=contains)
    runs = runs_of_jobs(session, [job.id for job in rows])
    return page_of(rows, limit, item=lambda job: _job(job, runs), key=lambda job: (job.name,))


def get_job(session: Session, project_id: str, name: str) -> api.Job:
    """One job. Raises NotFoundError."""
    job = _existing_job(session, project_id, name)
    return _job(job, runs_of_jobs(session, [job.id]))


def list_versions(
    session: Session, project_id: str, name: str, *, cursor: str | None, limit: int
) -> api.Page[api.JobVersion]:
    """A page of a job's versions, newest first. Raises NotFoundError."""
    job = _existing_job(session, project_id, name)
    before = int(decode_cursor(cursor, int)[0]) if cursor else _NEWEST
    rows = versions_before(session, job.id, before, limit + 1)
    runs = runs_of_versions(session, [version.id for version in rows])
    return page_of(
        rows,
        limit,
        item=lambda version: view_version(version, name, runs.get(version.id, 0)),
        key=lambda version: (version.number,),
    )


def get_version(session: Session, project_id: str, name: str, number: int) -> api.JobVersion:
    """One version. Raises NotFoundError."""
    version = _existing_version(session, project_id, name, number)
    return view_version(version, name, runs_of_versions(session, [version.id]).get(version.id, 0))


def view_version(version: JobVersion, job_name: str, runs: int | None = None) -> api.JobVersion:
    """A version as the API shows it, with the number of its runs where somebody counted them."""
    return api.JobVersion.model_validate(
        {
            "id": version.id,
            "job": job_name,
            "number": version.number,
            "content_hash": version.content_hash,
            "program": ProgramRef(bundle=version.bundle, entrypoint=version.entrypoint),
            "strategy": version.strategy,
            "record": version.record,
            "checkpoint": version.checkpoint,
            "defaults": version.defaults or {},
            "created_at": version.created_at,
            "created_by": principal_in(version, "created_by"),
            "runs": runs,
        }
    )


def _lock_job(session: Session, project_id: str, name: str, *, by: api.PrincipalRef, now: int) -> Job:
    row = {
        "id": new_id("job"),
        "project_id": project_id,
        "name": name,
        "latest_version": 0,
        "current_version": 0,
        "created_at": now,
        **principal_columns("created_by", by),
    }
    insert_or_ignore(session, Job, [row])
    job = lock_job(session, project_id, name)
    assert job is not None
    return job


def _make_current(
    session: Session, job: Job, number: int, *, by: api.PrincipalRef, cause: Literal["submit", "rollback"], now: int
) -> None:
    """Moves the pointer of a locked job and adds to its history."""
    change = JobChange(
        job_id=job.id,
        number=newest_change(session, job.id) + 1,
        project_id=job.project_id,
        at=now,
        **principal_columns("by", by),
        cause=cause,
        from_version=job.current_version or None,
        to_version=number,
    )
    session.add(change)
    job.current_version = number


def _existing_version(session: Session, project_id: str, name: str, number: int) -> JobVersion:
    job = _existing_job(session, project_id, name)
    version = numbered_version(session, job.id, number)
    if version is None:
        raise NotFoundError(
            f"version of job {name} with number", str(number), hint=f"It has versions 1 to {job.latest_version}."
        )
    return version


def _existing_job(session: Session, project_id: str, name: str) -> Job:
    job = find_job(session, project_id, name)
    if job is None:
        raise NotFoundError("job", name)
    return job


def _change(change: JobChange) -> api.JobChange:
    shown = api.JobChange.model_validate(change, from_attributes=True)
    return shown.model_copy(update={"principal": principal_in(change, "by")})


def _job(job: Job, runs: dict[str, tuple[int, int]]) -> api.Job:
    count, newest = runs.get(job.id, (0, None))
    return api.Job.model_validate(
        {
            "id": job.id,
            "name": job.name,
            "project": job.project_id,
            "latest_version": job.latest_version,
            "current_version": job.current_version,
            "runs": count,
            "created_at": job.created_at,
            "created_by": principal_in(job, "created_by"),
            "last_run_at": newest,
        }
    )
