"""Batches: runs that were submitted together, and what came of them."""

from typing import Literal

from pydantic import Field, JsonValue

from drumline.contracts.api.access import PrincipalRef
from drumline.contracts.api.pages import Page
from drumline.contracts.api.runs import RunWarning
from drumline.contracts.base import BatchId, NotFinite, ProjectId, Reply, RunId, Timestamp
from drumline.contracts.reasons import EndReason
from drumline.contracts.states import RunState
from drumline.contracts.sweeps import SweepSpec


class BatchCancel(Reply):
    """How far the cancellation of a whole batch is."""

    requested_at: Timestamp
    requested_by: PrincipalRef = PrincipalRef()
    left: int
    """Runs that are still to be asked to stop: a large batch is cancelled in parts."""


class Batch(Reply):
    """A batch, and how many of its runs are in which state."""

    id: BatchId
    project: ProjectId
    name: str
    jobs: tuple[str, ...]
    size: int
    states: dict[RunState, int]
    """States that no run is in are left out."""
    deleted: int = 0
    """Runs of it that were deleted; they are in no state."""
    sweep: SweepSpec | None
    """How its runs were declared; None for a batch of single submissions."""
    submitted_by: str
    """The name of its owner."""
    owner: PrincipalRef = PrincipalRef()
    created_at: Timestamp
    complete: bool = True
    """Whether all of its runs are queued; a large batch is queued in parts."""
    hint: str = ""
    """What to do where the batch stays incomplete."""
    cancel: BatchCancel | None = None
    """None where nobody asked all of it to stop."""


class SubmittedBatch(Reply):
    """Answer to `POST /runs:batch` and `POST /runs:sweep`."""

    batch: Batch
    runs: tuple[RunId, ...]
    """In the order of the batch."""
    warnings: tuple[RunWarning, ...] = ()
    """What its user may not have meant, each once (at most 20)."""


class OutcomeMetric(Reply):
    """A number that results of the batch have."""

    name: str
    """Names of nested objects are joined by dots: `test.accuracy`."""
    better: Literal["lower", "higher"]
    """Which is better, as the name suggests; what `sort=best.NAME` goes by."""


class Outcome(Reply):
    """One run of a batch as a row: parameters, state and the numbers of its result."""

    run: RunId
    index: int
    """Its place in the batch, from 0."""
    state: RunState
    reason: EndReason | None
    parameters: dict[str, JsonValue]
    """Those that were given, and defaults of the program for the others."""
    given: tuple[str, ...] | None = None
    """Which of them were given; None of a server that does not tell."""
    metrics: dict[str, int | float]
    not_finite: dict[str, NotFinite] = Field(default_factory=dict)
    """Values of its result that are NaN or infinite: none of them is best."""
    duration_s: float | None
    """From the start of the program to its end; None before the end."""


class Outcomes(Page[Outcome]):
    """A page of the table of outcomes, and the columns of the whole."""

    total: int
    parameters: tuple[str, ...]
    """Parameters that differ between runs of the batch."""
    metrics: tuple[OutcomeMetric, ...]
