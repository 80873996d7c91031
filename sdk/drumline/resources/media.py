"""What a run logged beside numbers: histograms, images, texts and tables, by name and step."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from drumline._transport import Params, Transport, iterate_pages
from drumline.contracts.api import HistogramSteps, MediaEntry, MediaSeries, MediaValue
from drumline.contracts.media import Cell, HistogramValue, MediaKind
from drumline.errors import RunError
from drumline.resources.frames import to_table

if TYPE_CHECKING:
    from pandas import DataFrame
    from pyarrow import Table


class LoggedValue:
    """One value that was logged. `details` is what the server said of it."""

    def __init__(self, transport: Transport, path: str, details: MediaEntry) -> None:
        self._transport = transport
        self._path = f"{path}/{details.id}"
        self.details = details

    @property
    def name(self) -> str:
        """What it was logged under."""
        return self.details.name

    @property
    def kind(self) -> MediaKind:
        """`histogram`, `image`, `text` or `table`."""
        return self.details.kind

    @property
    def step(self) -> int:
        """The program's step."""
        return self.details.step

    @property
    def histogram(self) -> HistogramValue:
        """Bins of equal width from `min` to `max`, with the counts of NaN and infinities. RunError for other kinds."""
        found = self._whole().histogram
        return found if found is not None else self._refuse("histogram")

    @property
    def text(self) -> str:
        """The text. RunError for other kinds."""
        found = self._whole().text
        return found if found is not None else self._refuse("text")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a table. RunError for other kinds."""
        found = self._whole().table
        return found.columns if found is not None else self._refuse("table")

    @property
    def rows(self) -> list[list[Cell]]:
        """The rows of a table, bit for bit. RunError for other kinds."""
        found = self._whole().table
        if found is None:
            return self._refuse("table")
        rows = [[*row] for row in found.rows]
        for odd in found.not_finite:
            rows[odd.row][odd.column] = float(odd.value)
        return rows

    @property
    def png(self) -> bytes:
        """An image as PNG. RunError for other kinds."""
        if self.kind != "image":
            return self._refuse("image")
        return self._transport.send("GET", f"{self._path}/png").content

    def save(self, path: str | Path) -> None:
        """Writes an image's PNG to a file."""
        Path(path).write_bytes(self.png)

    def to_arrow(self) -> "Table":
        """A table as one of pyarrow. Raises MissingExtraError without the extra `data`."""
        columns = self.columns
        names = [name if name not in columns[:place] else f"{name}.{place}" for place, name in enumerate(columns)]
        return to_table(dict(zip(names, row, strict=True)) for row in self.rows)

    def to_pandas(self) -> "DataFrame":
        """The same as a frame of pandas."""
        return self.to_arrow().to_pandas()

    def _whole(self) -> MediaValue:
        if not isinstance(self.details, MediaValue):
            self.details = self._transport.get(self._path, MediaValue)
        return self.details

    def _refuse(self, kind: str) -> NoReturn:
        raise RunError(self.details.run, f"{self.name!r} of step {self.step} is a {self.kind}, and no {kind}")

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name!r} of step {self.step}>"


class Media:
    """Iterates the names that a run logged media under, each with its kind and steps.

    for value in run.media().values("weights"):
        print(value.step, value.histogram.counts)
    """

    def __init__(self, transport: Transport, run_id: str, path: str, attempt: str | None) -> None:
        self._transport = transport
        self._run_id = run_id
        self._path = path
        self._attempt = attempt

    def __iter__(self) -> Iterator[MediaSeries]:
        return iterate_pages(self._transport, self._path, MediaSeries, {"attempt": self._attempt})

    def values(self, name: str, kind: MediaKind | None = None) -> Iterator[LoggedValue]:
        """The values under `name` by step, oldest first. RunError where there are none, or of several kinds."""
        params = self._params(name, kind)
        for entry in iterate_pages(self._transport, f"{self._path}/values", MediaEntry, params):
            yield LoggedValue(self._transport, self._path, entry)

    def at(self, name: str, step: int | None = None, *, kind: MediaKind | None = None, nth: int = 1) -> LoggedValue:
        """The newest value at `step` or before it, else the first one; without a step the newest of all.

        Of several at one step the `nth`. RunError as `values`.
        """
        params = {**self._params(name, kind), "step": step, "nth": nth}
        return LoggedValue(self._transport, self._path, self._transport.get(f"{self._path}/at", MediaValue, params))

    def histograms(self, name: str, most: int = 100) -> HistogramSteps:
        """At most so many histograms over all steps, evenly chosen, for a heat map; from 2 to 200."""
        params = {"name": name, "most": most, "attempt": self._attempt}
        return self._transport.get(f"{self._path}/histograms", HistogramSteps, params)

    def _params(self, name: str, kind: MediaKind | None) -> Params:
        return {"name": name, "kind": kind or self._kind_of(name), "attempt": self._attempt}

    def _kind_of(self, name: str) -> MediaKind:
        kinds = [series.kind for series in self if series.name == name]
        if len(kinds) == 1:
            return kinds[0]
        what = f"it logged {name!r} as {' and '.join(kinds)}" if kinds else f"it logged no media under {name!r}"
        raise RunError(self._run_id, what, "name the kind" if kinds else "run.media() gives the names")
