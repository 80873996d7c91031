"""Rows of `job` and `job_version`, with the number of their runs."""

from collections.abc import Iterable, Sequence

from sqlalchemy import bindparam, func, select
from sqlalchemy.orm import Session

from drumline_server.models import Job, JobChange, JobVersion, Run

#: Asked by every submission: made once, because making it costs as much as running it.
_VERSION_WITH_CONTENT = (
    select(JobVersion)
    .join(Job, Job.id == JobVersion.job_id)
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


def jobs_after(session: Session, project_id: str, name: str, limit: int) -> Sequence[Job]:
    """Up to `limit` jobs whose names sort after `name`."""
    query = select(Job).where(Job.project_id == project_id, Job.name > name).order_by(Job.name).limit(limit)
    return session.scalars(query).all()


def find_version(session: Session, job_id: str, content_hash: str) -> JobVersion | None:
    """The job's version of that content."""
    query = select(JobVersion).where(JobVersion.job_id == job_id, JobVersion.content_hash == content_hash)
    return session.scalar(query)


def version_with_content(session: Session, project_id: str, name: str, content_hash: str) -> JobVersion | None:
    """The version of that content of the project's job `name`."""
    return session.scalar(_VERSION_WITH_CONTENT, {"project_id": project_id, "name": name, "content_hash": content_hash})


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
    return {job: (count, newest) for job, count, newest in session.execute(query.group_by(Run.job_id))}


def runs_of_versions(session: Session, version_ids: Iterable[str]) -> dict[str, int]:
    """By version: how many runs it has. Versions without runs are left out."""
    query = select(Run.version_id, func.count()).where(Run.version_id.in_(list(version_ids)))
    return {version: count for version, count in session.execute(query.group_by(Run.version_id))}
