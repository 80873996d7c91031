"""The runs of a project that match a filter: iterated, counted, grouped, and changed together."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Literal

from drumline._transport import Body, Transport, iterate_pages
from drumline._validation import refuse, typed_errors
from drumline.contracts import api
from drumline.contracts.api.pages import MAX_PAGE
from drumline.contracts.base import is_id
from drumline.contracts.problems import Problem, ProblemCode
from drumline.errors import NotFoundError
from drumline.resources.comparisons import Comparison, Identified, SharedAxis, ask_comparison
from drumline.resources.frames import number_of, to_table
from drumline.wording import name_some

if TYPE_CHECKING:
    from pandas import DataFrame
    from pyarrow import Table

_ASK_AGAIN_S = 0.2
NEWEST = 500
"""Runs among which the end of an id is looked for."""

Action = Literal["cancel", "archive", "unarchive", "star", "unstar", "label", "note", "delete"]


class RunList:
    """Runs that match a filter. Iterating fetches them page by page: `for run in client.runs("loss < 0.3")`."""

    def __init__(self, transport: Transport, where: str, sort: str, columns: Sequence[str], archived: bool) -> None:
        if not isinstance(where, str):
            refuse("where", where, 'pass a filter, such as "params.lr > 0.1 and loss < 0.3"')
        if isinstance(columns, str):
            refuse("columns", columns, 'pass a list, such as ["params.lr", "loss"]')
        self._transport = transport
        self._where = where
        self._archived = archived
        self._columns = [*columns]
        self._params = {"where": where, "sort": sort, "column": self._columns, "archived": archived}

    def __iter__(self) -> Iterator[api.RunSummary]:
        """Each run in order; `run.fields` has what it has in the columns asked for."""
        return iterate_pages(self._transport, "/runs", api.RunSummary, self._params)

    def to_arrow(self) -> "Table":
        """A row for each, with the columns asked for, as a table of pyarrow: `client.runs(columns=["params.lr"])`.

        Raises MissingExtraError without the extra `data`.
        """
        return to_table(_row(run, self._columns) for run in self)

    def to_pandas(self) -> "DataFrame":
        """The same as a frame of pandas. Raises MissingExtraError without the extra `data`."""
        return self.to_arrow().to_pandas()

    def count(self) -> int:
        """How many there are."""
        return self._transport.get("/runs:count", api.RunCount, self._matched()).matching

    def groups(self, by: str, limit: int = 50) -> api.RunGroups:
        """The largest groups of them by the value of a field."""
        return self._transport.get("/runs:groups", api.RunGroups, {**self._matched(), "by": by, "limit": limit})

    def cancel(self, grace_s: float | None = None) -> api.BulkChange:
        """Asks each to stop. Returns once all were asked."""
        return self._change("cancel", grace_s=grace_s)

    def mark(
        self,
        *,
        labels: Mapping[str, str | None] | None = None,
        note: str | None = None,
        starred: bool | None = None,
        archived: bool | None = None,
    ) -> list[api.BulkChange]:
        """Changes labels (None takes one away), note, star, or whether lists show them; what is None stays.

        Of at most 10 000 runs. Which they are is settled by each change when it is asked for, the archive last.
        """
        changes = []
        if labels:
            changes.append(self._change("label", labels=dict(labels)))
        if note is not None:
            changes.append(self._change("note", note=note))
        if starred is not None:
            changes.append(self._change("star" if starred else "unstar"))
        if archived is not None:
            changes.append(self._change("archive" if archived else "unarchive"))
        return changes

    def delete(self, why: str = "") -> api.BulkChange:
        """Deletes each that has ended, for good; `refused` of the answer names those that are kept. At most 10 000."""
        return self._change("delete", why=why)

    def _change(self, kind: Action, **more: object) -> api.BulkChange:
        with typed_errors():
            action = api.BulkAction.model_validate({"kind": kind, **more})
            request = api.BulkRequest(action=action, where=self._where, archived=self._archived)
        change = self._transport.post("/runs:change", api.BulkChange, Body.of(request))
        while change.state != api.BulkState.DONE:
            time.sleep(_ASK_AGAIN_S)
            change = self._transport.get(f"/bulk-changes/{change.id}", api.BulkChange)
        return change

    def _matched(self) -> dict[str, str | bool]:
        return {"where": self._where, "archived": self._archived}


def _row(run: api.RunSummary, columns: Sequence[str]) -> dict[str, object]:
    """A column that every row has stays what it is, also where it is asked for: whether starred, not since when."""
    usual = {
        "run": run.id,
        "job": run.job,
        "version": run.version,
        "owner": run.owner.name,
        "state": str(run.state),
        "reason": run.reason and str(run.reason.code),
        "strategy": run.strategy,
        "replicas": run.replicas,
        "created_at": run.created_at,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "starred": run.starred,
        "note": run.note,
        "labels": dict(run.labels),
    }
    return {**usual, **{name: number_of(run.fields.get(name)) for name in columns if name not in usual}}


def find_run_id(transport: Transport, text: str) -> str:
    """`text` where it is the id of a run, else that of the newest runs whose id ends so, as the dashboard shortens it.

    Raises NotFoundError where none does, OptionError where several do.
    """
    if is_id(text, "run"):
        return text
    ending = text.removeprefix("r-").removeprefix("run_").upper()
    newest = islice(iterate_pages(transport, "/runs", api.RunSummary, {"limit": MAX_PAGE}), NEWEST if ending else 0)
    found = [run.id for run in newest if run.id.endswith(ending)]
    if len(found) > 1:
        refuse("run_id", text, f"{len(found)} runs end so: {name_some(found)}; give the whole id of one")
    if not found:
        detail = f"no run is called {text!r:.80}"
        hint = "give its id (run_...) or the end of it, as `drumline ps` and client.list() have them"
        raise NotFoundError(
            Problem(title="Not Found", status=404, code=ProblemCode.NOT_FOUND, detail=detail, hint=hint)
        )
    return found[0]


class RunLists:
    """What a client asks of many runs at once."""

    _transport: Transport

    def runs(
        self, where: str = "", *, sort: str = "-created", columns: Sequence[str] = (), archived: bool = False
    ) -> RunList:
        """The runs that match a filter, such as `"params.lr > 0.1 and loss < 0.3"`: docs/design/lists.md."""
        return RunList(self._transport, where, sort, columns, archived)

    def compare(
        self,
        runs: Iterable[str | Identified],
        *names: str,
        x: SharedAxis = "step",
        buckets: int = 500,
        start: float | None = None,
        end: float | None = None,
    ) -> Comparison:
        """Metrics of up to 100 runs, or of their ids, on one axis: `client.compare(batch.runs(), "loss").to_pandas()`.

        `x` is `step`, `time` (seconds since 1970) or `relative` (since each run began); `start` and `end` bound it,
        both included. All curves have the same buckets, at most `buckets`. Raises OptionError, NotFoundError; and
        InvalidRequestError for more than the server compares at once.
        """
        return ask_comparison(self._transport, runs, names, x=x, buckets=buckets, bounds=(start, end))

    def retention(self) -> api.Retention:
        """How long the project keeps ended runs, and how much telemetry of them; None for ever."""
        return self._transport.get("/retention", api.Retention)

    def set_retention(self, *, days: int | None = None, telemetry_bytes: int | None = None) -> api.Retention:
        """Has the project keep ended runs so long, and so much telemetry of them; what is beyond is deleted.

        Starred runs stay. None is no bound: `set_retention()` keeps everything. Needs the role admin.
        """
        with typed_errors():
            body = Body.of(api.RetentionChange(days=days, telemetry_bytes=telemetry_bytes))
        return self._transport.put("/retention", api.Retention, body)
