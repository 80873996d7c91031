"""What lists of runs sort, filter and show, and how people work on many runs: fields, views, bulk changes."""

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, Integer, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from drumline.contracts.api import BulkState
from drumline_server.storage.models.base import Base, one_of

_EXACT_TEXT = Text().with_variant(Text(collation="C"), "postgresql")
"""Compared by code points, on both databases alike."""


class Field(Base):
    """A name that runs of a project have values of, such as `params.lr`."""

    __tablename__ = "field"
    __table_args__ = (UniqueConstraint("project_id", "name"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer(), "sqlite"), primary_key=True)
    """Never used again: rows of values hold it in place of the name."""
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    name: Mapped[str] = mapped_column(_EXACT_TEXT)


class RunField(Base):
    """What one run has under one name: a number, NaN or a text, as `storage.fields.FieldValue` writes it."""

    __tablename__ = "run_field"
    __table_args__ = (
        Index("ix_run_field_value", "field_id", "kind", "number", "text", "run"),
        {"sqlite_with_rowid": False},
    )

    run: Mapped[int] = mapped_column(ForeignKey("run.number"), primary_key=True, autoincrement=False)
    field_id: Mapped[int] = mapped_column(BigInteger, ForeignKey("field.id"), primary_key=True)
    kind: Mapped[int]
    number: Mapped[float]
    text: Mapped[str] = mapped_column(_EXACT_TEXT)


_DUE = "due_at IS NOT NULL"


class RunFigures(Base):
    """Last, least and greatest value of each metric of a run, taken in by ingest in one small row.

    They become fields when they are due: many batches of values then cost the indexed table one write.
    """

    __tablename__ = "run_figures"
    __table_args__ = (
        Index("ix_run_figures_due_at", "due_at", "run", sqlite_where=text(_DUE), postgresql_where=text(_DUE)),
    )

    run: Mapped[int] = mapped_column(ForeignKey("run.number"), primary_key=True, autoincrement=False)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    figures: Mapped[dict[str, Any]]
    """By name: last, least, greatest, and the fence and step of the last."""
    due_at: Mapped[int | None]
    """When they are to become fields; None once they are."""


class RunView(Base):
    """A saved view of the list of runs, by its name."""

    __tablename__ = "run_view"
    __table_args__ = (UniqueConstraint("project_id", "name"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    name: Mapped[str] = mapped_column(_EXACT_TEXT)
    view: Mapped[dict[str, Any]]
    """RunListView."""
    made_by: Mapped[str | None]
    made_by_id: Mapped[str | None]
    created_at: Mapped[int]


_OPEN = "ended_at IS NULL"


class BulkChange(Base):
    """A change of many runs, asked for by one request and done by a loop of the server, a part at a time."""

    __tablename__ = "bulk_change"
    __table_args__ = (
        one_of("state", BulkState),
        Index("ix_bulk_change_open", "created_at", "id", sqlite_where=text(_OPEN), postgresql_where=text(_OPEN)),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    change: Mapped[dict[str, Any]]
    """BulkAction."""
    asked_by: Mapped[str | None]
    asked_by_id: Mapped[str | None]
    state: Mapped[str]
    runs: Mapped[bytes]
    """Numbers of the runs, little-endian int64, as they matched when it was asked for."""
    total: Mapped[int]
    done: Mapped[int] = mapped_column(default=0)
    """How many of them it has looked at, in their order: where it continues after a restart."""
    changed: Mapped[int] = mapped_column(default=0)
    refused: Mapped[list[Any] | None]
    """The first runs that could not be deleted, as `api.Refusal`."""
    created_at: Mapped[int]
    ended_at: Mapped[int | None]


class RunLabel(Base):
    """One label of a run, for filtering lists by index."""

    __tablename__ = "run_label"
    __table_args__ = (Index("ix_run_label_project_id_key_value", "project_id", "key", "value", "run_id"),)

    run_id: Mapped[str] = mapped_column(ForeignKey("run.id"), primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
