"""What a program logged beside numbers, as the API tells it."""

from drumline.contracts.base import AttemptId, MediaId, Reply, RunId, Timestamp
from drumline.contracts.media import HistogramValue, MediaKind, TableValue


class MediaSeries(Reply):
    """Values of one kind under one name, over steps."""

    name: str
    kind: MediaKind
    values: int
    first_step: int
    last_step: int


class MediaEntry(Reply):
    """One value as a row of a list."""

    id: MediaId
    run: RunId
    attempt: AttemptId
    rank: int
    """Of the process that logged it."""
    name: str
    kind: MediaKind
    step: int
    at: Timestamp
    """By the clock of its host."""
    size_bytes: int
    """As stored: of an image its PNG, of others compressed."""
    width: int | None = None
    """Of an image, in pixels."""
    height: int | None = None


class MediaValue(MediaEntry):
    """One value whole. An image has its PNG at `/runs/{run}/media/{id}/png`."""

    histogram: HistogramValue | None = None
    text: str | None = None
    table: TableValue | None = None
    nth: int = 1
    """Which one of its name and kind in its step, from 1."""
    of: int = 1
    """How many there are."""
    previous_step: int | None = None
    """The nearest step before it with a value of its name and kind."""
    next_step: int | None = None


class HistogramSteps(Reply):
    """Histograms of one name over steps, as many as can be drawn: evenly chosen, the first and the last among them."""

    name: str
    values: int
    """How many there are in all."""
    steps: tuple[int, ...]
    """Of each histogram, ascending."""
    histograms: tuple[HistogramValue, ...]
