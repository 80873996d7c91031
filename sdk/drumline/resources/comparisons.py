"""Curves of several runs on one axis, as `client.compare` gives them: the same bucket is the same stretch in each."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal, Protocol

from drumline._transport import Transport
from drumline._validation import refuse, require_id
from drumline.contracts import api
from drumline.resources.frames import to_table

if TYPE_CHECKING:
    from pandas import DataFrame
    from pyarrow import Table

SharedAxis = Literal["step", "time", "relative"]


class Identified(Protocol):
    """A run of the client, or one that a list has."""

    @property
    def id(self) -> str:
        """Its id."""
        ...


class Comparison:
    """Metrics of several runs in buckets that they share; `details` has them as the server told them."""

    def __init__(self, details: api.ComparedMetrics) -> None:
        self.details = details

    def to_arrow(self) -> "Table":
        """A row for each bucket of each curve that has a value, as a table of pyarrow.

        Columns: run, name, bucket, x, min, max, mean, last, count, not_finite. The same number of a bucket is the same
        stretch of x in every curve. Raises MissingExtraError without the extra `data`.
        """
        return to_table(self._rows())

    def to_pandas(self) -> "DataFrame":
        """The same as a frame of pandas: `frame.pivot(index="bucket", columns="run", values="mean")` for one metric.

        Raises MissingExtraError without the extra `data`.
        """
        return self.to_arrow().to_pandas()

    def _rows(self) -> Iterator[dict[str, object]]:
        for curve in self.details.curves:
            points = curve.points
            for at, bucket in enumerate(points.bucket):
                yield {
                    "run": curve.run,
                    "name": curve.name,
                    "bucket": bucket,
                    "x": points.x[at],
                    **{name: getattr(points, name)[at] for name in api.CURVE_COLUMNS},
                }

    def __repr__(self) -> str:
        return f"<Comparison of {len(self.details.runs)} runs, {len(self.details.curves)} curves over {self.details.x}>"


def ask_comparison(
    transport: Transport,
    runs: Iterable[str | Identified],
    names: tuple[str, ...],
    *,
    x: SharedAxis,
    buckets: int,
    bounds: tuple[float | None, float | None],
) -> Comparison:
    """What `client.compare` gives."""
    if isinstance(runs, str):
        refuse("runs", runs, "pass a list of runs or of their ids")
    ids = [require_id(run if isinstance(run, str) else run.id, "runs", "the id of a run") for run in runs]
    if not ids:
        refuse("runs", ids, "name at least one run")
    if not names:
        refuse("names", names, 'name the metrics to compare, such as "loss"')
    start, end = bounds
    params = {"runs": ids, "names": [*names], "x": x, "buckets": buckets, "from": start, "to": end}
    return Comparison(transport.get("/runs:metrics", api.ComparedMetrics, params))
