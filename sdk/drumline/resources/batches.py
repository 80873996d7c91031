"""A batch of runs, and the table of what came of them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote

from drumline._transport import Body, Params, Transport, iterate_pages
from drumline._validation import typed_errors
from drumline.contracts import api
from drumline.contracts.records import MAX_JSON_BYTES, RECORDS_MEDIA_TYPE, frame
from drumline.contracts.states import TERMINAL_RUN
from drumline.contracts.sweeps import BatchSubmit
from drumline.resources.frames import number_of, to_table
from drumline.resources.waiting import Pauses, wait_until

if TYPE_CHECKING:
    from pandas import DataFrame
    from pyarrow import Table

PAUSES = Pauses(0.1, 5.0)


class Batch:
    """One batch. `details` is what the server last said of it; `refresh` asks again.

    batch = client.sweep("digits.py", {"learning_rate": [0.1, 0.01], "epochs": [5, 10]})
    best = next(batch.wait().outcomes(sort="best.accuracy"))
    print(best.parameters, best.metrics)
    """

    def __init__(self, transport: Transport, details: api.Batch, warnings: tuple[api.RunWarning, ...] = ()) -> None:
        self._transport = transport
        self.warnings = warnings
        """What was not meant, perhaps, as the answer to its submission says."""
        self._path = f"/batches/{quote(details.id, safe='')}"
        self.details = details

    @property
    def id(self) -> str:
        """Such as `bat_01J...`."""
        return self.details.id

    @property
    def url(self) -> str:
        """Its page in the dashboard."""
        return f"{self._transport.config.url}/batches/{self.id}"

    @property
    def ended(self) -> bool:
        """Whether all of its runs had ended when last asked."""
        return self.live == 0

    @property
    def live(self) -> int:
        """How many of its runs had not ended when last asked, those that were still to be queued among them."""
        ended = sum(count for state, count in self.details.states.items() if state in TERMINAL_RUN)
        return self.details.size - self.details.deleted - ended

    def refresh(self) -> "Batch":
        """Asks the server again; returns itself."""
        self.details = self._transport.get(self._path, api.Batch)
        return self

    def wait(self, timeout: float | None = None) -> "Batch":
        """Returns itself once all runs ended, however they ended. Raises WaitTimeoutError after `timeout` seconds.

        A restart of the server is waited out; after two minutes without an answer ServerUnreachableError is raised.
        """
        wait_until(
            self._transport,
            self._has_ended,
            timeout=timeout,
            pauses=PAUSES,
            still=lambda: f"{self.live} runs of {self.id} have not ended",
        )
        return self

    def runs(self) -> Iterator[api.RunSummary]:
        """Its runs in their order."""
        params = {"batch": self.id, "sort": "created"}
        return iterate_pages(self._transport, "/runs", api.RunSummary, params)

    def outcomes(self, *, sort: str = "index") -> Iterator[api.Outcome]:
        """A row for each run: its parameters, state and the numbers of its result, fetched page by page.

        `sort` is `index`, `state`, `duration`, `parameters.NAME` or `metrics.NAME`, descending with `-` before it;
        `best.NAME` begins with the best. Raises InvalidRequestError for anything else.
        """
        params: Params = {"sort": sort, "limit": 1000}
        while True:
            page = self.outcomes_page(params)
            yield from page.items
            if page.next is None:
                return
            params = {**params, "cursor": page.next}

    def outcomes_page(self, params: Params) -> api.Outcomes:
        """One page of the table with the names of its columns; `params` are those of the REST API."""
        return self._transport.get(f"{self._path}/outcomes", api.Outcomes, params)

    def csv(self, *, sort: str = "index") -> str:
        """The whole table as CSV, safe to open in a spreadsheet."""
        return self._transport.send("GET", f"{self._path}/outcomes.csv", params={"sort": sort}).text

    def to_arrow(self, *, sort: str = "index") -> "Table":
        """The table of outcomes as one of pyarrow: `parameters.NAME` and `metrics.NAME` are columns.

        Of parameters that were not given it has what the program took by default.
        Raises MissingExtraError without the extra `data`.
        """
        return to_table(_row(outcome) for outcome in self.outcomes(sort=sort))

    def to_pandas(self, *, sort: str = "index") -> "DataFrame":
        """The same as a frame of pandas. Raises MissingExtraError without the extra `data`."""
        return self.to_arrow(sort=sort).to_pandas()

    def cancel(self, grace_s: float | None = None) -> "Batch":
        """Asks every run that has not ended to stop; returns itself at once."""
        with typed_errors():
            body = Body.of(api.CancelRequest(grace_s=grace_s))
        self._transport.send("POST", f"{self._path}:cancel", body, repeatable=True)
        return self.refresh()

    def _has_ended(self, timeout_s: float) -> bool:
        self.details = self._transport.get_once(self._path, api.Batch, timeout_s)
        return self.ended

    def __repr__(self) -> str:
        return f"<Batch {self.id} of {self.details.size} runs, {self.live} live>"


def _row(outcome: api.Outcome) -> dict[str, object]:
    metrics = {**outcome.metrics, **{name: number_of(value) for name, value in outcome.not_finite.items()}}
    return {
        "run": outcome.run,
        "index": outcome.index,
        "state": str(outcome.state),
        "reason": outcome.reason and str(outcome.reason),
        "duration_s": outcome.duration_s,
        **{f"parameters.{name}": value for name, value in outcome.parameters.items()},
        **{f"metrics.{name}": value for name, value in metrics.items()},
    }


def batch_body(batch: BatchSubmit) -> Body:
    """A batch as it is sent: one JSON text where it is short enough, else a record for each run."""
    whole = Body.of(batch)
    if len(whole.content) <= MAX_JSON_BYTES:
        return whole
    head = batch.model_dump_json(exclude={"runs"}).encode()
    records = (run.model_dump_json().encode() for run in batch.runs)
    return Body(frame(head, records), RECORDS_MEDIA_TYPE)
