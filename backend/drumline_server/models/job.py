"""Programs and jobs: bundles by content, job names, immutable versions."""

from typing import Any

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from drumline_server.models.base import Base


class Bundle(Base):
    """A program of a project; the bytes are in the blob store under `sha256`."""

    __tablename__ = "bundle"

    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"), primary_key=True)
    sha256: Mapped[str] = mapped_column(primary_key=True)
    size_bytes: Mapped[int]
    files: Mapped[int]
    entrypoints: Mapped[list[Any]]
    created_at: Mapped[int]


class Job(Base):
    """A name in a project."""

    __tablename__ = "job"
    __table_args__ = (UniqueConstraint("project_id", "name"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    name: Mapped[str]
    latest_version: Mapped[int]
    current_version: Mapped[int]
    created_at: Mapped[int]


class JobVersion(Base):
    """What runs: never changed, identified by the hash of its content."""

    __tablename__ = "job_version"
    __table_args__ = (UniqueConstraint("job_id", "number"), UniqueConstraint("job_id", "content_hash"))

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    job_id: Mapped[str] = mapped_column(ForeignKey("job.id"))
    number: Mapped[int]
    content_hash: Mapped[str]
    bundle: Mapped[str]
    entrypoint: Mapped[str]
    strategy: Mapped[dict[str, Any]]
    record: Mapped[dict[str, Any]]
    checkpoint: Mapped[dict[str, Any]]
    created_at: Mapped[int]


class JobChange(Base):
    """One move of a job's current version. Rows are only ever added."""

    __tablename__ = "job_change"

    job_id: Mapped[str] = mapped_column(ForeignKey("job.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    at: Mapped[int]
    by: Mapped[str]
    cause: Mapped[str]
    from_version: Mapped[int | None]
    to_version: Mapped[int]
