"""Lists of runs: fields to sort and filter by, groups, views, and changes of one run or of many."""

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from drumline.contracts.api.access import PrincipalRef
from drumline.contracts.base import AtMost, BulkChangeId, Contract, Reply, RunId, Text, Timestamp, Title
from drumline.contracts.spec import LabelKey, LabelValue

MAX_WHERE = 2_000
"""Characters of a filter."""
MAX_FIELD_NAME = 240
MAX_COLUMNS = 30
MAX_NOTE = 2_000
MAX_BULK = 10_000
"""Runs that one request may change."""
MAX_NAMED = 1_000
"""Runs that one request may name one by one."""

Where = Annotated[Text, Field(max_length=MAX_WHERE, description="Such as `params.lr > 0.1 and loss < 0.3`.")]
FieldName = Annotated[Text, StringConstraints(min_length=1, max_length=MAX_FIELD_NAME)]
FieldKind = Literal["number", "text", "time", "duration", "flag"]
Note = Annotated[Text, StringConstraints(max_length=MAX_NOTE)]
Why = Annotated[Text, StringConstraints(max_length=200)]


class DeletedRun(Reply):
    """What is left of a run that was deleted, beside its part of the ledger."""

    run: RunId
    job: str
    deleted_at: Timestamp
    deleted_by: PrincipalRef
    why: str


class Refusal(Reply):
    """A run that could not be deleted, and what to do."""

    run: RunId
    detail: str
    hint: str


class RetentionChange(Contract):
    """How long a project is to keep ended runs; starred ones it always keeps. What is left out is without a bound."""

    days: Annotated[int, Field(ge=1, le=36_500)] | None = None
    """A run is deleted so long after its end."""
    telemetry_bytes: Annotated[int, Field(ge=1, lt=2**53)] | None = None
    """Of all ended runs together, as stored in the database; beyond it the oldest are deleted."""


class Retention(Reply):
    """How long a project keeps ended runs; None for ever."""

    days: int | None
    telemetry_bytes: int | None
    measured_bytes: int
    """Telemetry of the ended runs that were measured; they are where `telemetry_bytes` is set."""


class RunPatch(Contract):
    """What is to change of a run after the fact; what is left out stays as it is."""

    labels: Annotated[dict[LabelKey, LabelValue | None], AtMost(128)] | None = None
    """Labels to set, and with `null` those to take away; others stay."""
    note: Note | None = None
    starred: bool | None = None
    archived: bool | None = None
    """Lists leave archived runs out unless asked."""


class RunField(Reply):
    """A name that runs can be sorted and filtered by."""

    name: str
    """As it is written in a filter."""
    kind: FieldKind


class RunFields(Reply):
    """Names that begin with, or contain, what was asked for; the nearest first."""

    items: tuple[RunField, ...]
    more: bool
    """Whether there are others."""


class RunCount(Reply):
    """How many runs match."""

    matching: int


class RunGroup(Reply):
    """Runs that have the same value of a field."""

    value: int | float | str | None
    """None: they have none."""
    where: str
    """The filter that leaves only these."""
    runs: int


class RunGroups(Reply):
    """The largest groups of runs by a field, the largest first."""

    items: tuple[RunGroup, ...]
    others: int
    """Runs in smaller groups, which are left out."""


class RunListView(Contract):
    """How a list of runs is shown."""

    where: Where = ""
    sort: Annotated[Text, StringConstraints(max_length=MAX_FIELD_NAME + 1)] = ""
    """A field, with `-` before it the greatest first."""
    columns: Annotated[tuple[FieldName, ...], AtMost(MAX_COLUMNS)] = ()
    group: Annotated[Text, StringConstraints(max_length=MAX_FIELD_NAME)] = ""
    archived: bool = False


ViewName = Annotated[Title, StringConstraints(min_length=1, max_length=80, pattern=r"^[^/]+$", strip_whitespace=True)]


class RunView(Reply):
    """A saved view of the list of runs."""

    name: str
    view: RunListView
    made_by: PrincipalRef
    created_at: Timestamp


class BulkAction(Contract):
    """What is done to each of many runs."""

    kind: Literal["cancel", "archive", "unarchive", "star", "unstar", "label", "note", "delete"]
    labels: Annotated[dict[LabelKey, LabelValue | None], AtMost(128)] = Field(default_factory=dict)
    """Of `label`: as in RunPatch."""
    note: Note = ""
    """Of `note`."""
    grace_s: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] | None = None
    """Of `cancel`; each run has its own where it is left out."""
    why: Why = ""
    """Of `delete`: kept in the audit log."""

    @model_validator(mode="after")
    def _says_what(self) -> Self:
        if self.kind == "label" and not self.labels:
            raise ValueError("names no label to set or take away; send labels")
        return self


class BulkRequest(Contract):
    """A change of many runs: of those named, or of all that match a filter when it is asked for."""

    action: BulkAction
    runs: Annotated[tuple[RunId, ...], AtMost(MAX_NAMED)] = ()
    where: Where | None = None
    """With an empty text: all of the project."""
    archived: bool = False
    """Whether archived runs match too; those named always do."""

    @model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        if bool(self.runs) == (self.where is not None):
            raise ValueError("send either runs, at least one, or where")
        return self


class BulkState(StrEnum):
    """Whether a bulk change is over."""

    RUNNING = "RUNNING"
    DONE = "DONE"


class BulkChange(Reply):
    """A change of many runs, and how far it is."""

    id: BulkChangeId
    action: BulkAction
    state: BulkState
    total: int
    done: int
    """Runs looked at so far."""
    changed: int
    """Of those, what was not so already: a run that has ended cannot be cancelled."""
    refused: tuple[Refusal, ...] = ()
    """Of `delete`: the first 20 runs that are kept, as they live or another one resumes from them."""
    asked_by: PrincipalRef
    created_at: Timestamp
    ended_at: Timestamp | None
