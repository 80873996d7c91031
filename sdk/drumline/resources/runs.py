"""A run, seen from outside: where it is, what it does, how it ended."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import IO, TYPE_CHECKING
from urllib.parse import quote

from pydantic import JsonValue

from drumline import errors
from drumline._transport import Body, Params, Transport, iterate_pages
from drumline._validation import typed_errors
from drumline.contracts import api
from drumline.contracts.spec import RunSubmit
from drumline.contracts.stacks import RunStacks
from drumline.contracts.states import TERMINAL_RUN, RunState
from drumline.resources import notebook
from drumline.resources.artifacts import RunArtifact, iterate_artifacts
from drumline.resources.frames import read_points, save_points
from drumline.resources.media import Media
from drumline.resources.profiles import StepProfiles, join_pages
from drumline.resources.reductions import Reductions
from drumline.resources.run_events import CutCallback, stream_events
from drumline.resources.run_logs import (
    LogFollower,
    LogSearch,
    LogSource,
    ask_stacks,
    follow_logs,
    read_logs,
    read_stacks,
    search_logs,
)
from drumline.resources.text import describe_reason, stacks_text
from drumline.resources.waiting import Pauses, wait_until

if TYPE_CHECKING:
    from pandas import DataFrame
    from pyarrow import Table

PAUSES = Pauses(0.05, 1.0)
"""Of a `wait` with a time limit. It asks again and again: a silent stream can't be left in time."""
STACKS_S = 5.0
"""They come within 2 s from hosts that answer."""
_NAMES = 1_000
"""Of metrics, on a page: the most that the server gives."""


class Run:
    """One run. `details` is what the server last said of it; `refresh` asks again."""

    def __init__(self, transport: Transport, details: api.Run) -> None:
        self._transport = transport
        self._path = f"/runs/{quote(details.id, safe='')}"
        self.details = details

    @property
    def id(self) -> str:
        """Such as `run_01J...`."""
        return self.details.id

    @property
    def job(self) -> str:
        """The name of its job."""
        return self.details.job

    @property
    def state(self) -> RunState:
        """Where it was when last asked."""
        return self.details.state

    @property
    def ended(self) -> bool:
        """Whether that state is final."""
        return self.details.state in TERMINAL_RUN

    @property
    def reason(self) -> api.Reason | None:
        """Why it ended, once it has."""
        return self.details.reason

    @property
    def parameters(self) -> dict[str, JsonValue]:
        """What it was given; `{**run.defaults, **run.parameters}` is what its program takes."""
        return self.details.parameters

    @property
    def defaults(self) -> dict[str, JsonValue]:
        """What its program takes for parameters that were not given, as far as its source tells."""
        return {name: value for name, value in self.details.spec.defaults.items() if name not in self.parameters}

    @property
    def progress(self) -> api.Progress:
        """Its steps done, of how many, and how fast, as last known; see docs/glossary.md."""
        return self.details.progress

    @property
    def url(self) -> str:
        """Its page in the dashboard."""
        return f"{self._transport.config.url}/runs/{self.id}"

    @property
    def result(self) -> JsonValue:
        """What `main` returned. Raises RunNotEndedError, RunFailedError or RunCancelledError where there is none."""
        if not self.ended:
            self.refresh()
        match self.state:
            case RunState.SUCCEEDED:
                return self.details.result
            case RunState.FAILED:
                raise errors.RunFailedError(self.id, f"{self.id} failed: {describe_reason(self.reason)}", self.reason)
            case RunState.CANCELLED:
                raise errors.RunCancelledError(self.id, f"{self.id} was cancelled and has no result")
        raise errors.RunNotEndedError(self.id, f"{self.id} is {self.state} and has no result yet", "call wait() first")

    @property
    def placement(self) -> api.Placement:
        """Where its replicas sit."""
        return self._transport.get(f"{self._path}/placement", api.Placement)

    @property
    def planned(self) -> api.PlanComparison:
        """The run beside the plan that it was submitted from. NotFoundError for a run without one."""
        return self._transport.get(f"{self._path}/plan", api.PlanComparison)

    @property
    def attempts(self) -> Iterator[api.Attempt]:
        """Its attempts, newest first."""
        return iterate_pages(self._transport, f"{self._path}/attempts", api.Attempt)

    def checkpoints(self) -> Iterator[api.Checkpoint]:
        """Its registered checkpoints, the one that it would resume from first."""
        return iterate_pages(self._transport, f"{self._path}/checkpoints", api.Checkpoint)

    def ledger(self) -> api.Ledger:
        """Where its time went: every second of its life under a name, in all and by host."""
        return self._transport.get(f"{self._path}/ledger", api.Ledger)

    def usage(self, step: int | None = None) -> Iterator[api.MemberUsage]:
        """What the processes of each member use of its host, and its devices' memory; as of a step, or now."""
        return iterate_pages(self._transport, f"{self._path}/usage", api.MemberUsage, {"step": step})

    def arrivals(self, call: int | None = None) -> api.Arrivals:
        """When each member of its gang comes to the collectives, and whom they wait for; up to a call, or now."""
        return join_pages(self._transport, f"{self._path}/arrivals", api.Arrivals, "members", {"call": call})

    def replica_times(self) -> api.ReplicaTimes:
        """How long each replica computes and waits in its newest traced steps; all pages as one."""
        return join_pages(self._transport, f"{self._path}/replicas", api.ReplicaTimes, "devices")

    def refresh(self) -> "Run":
        """Asks the server again; returns itself."""
        self.details = self._transport.get(self._path, api.Run)
        return self

    def wait(self, timeout: float | None = None) -> "Run":
        """Returns itself once the run ended, however it ended. Raises WaitTimeoutError after `timeout` seconds.

        A restart of the server is waited out; after two minutes without an answer ServerUnreachableError is raised.
        """
        if timeout is None:
            for _ in self.events(after=self.details.last_event):
                pass
        still = f"{self.id} is still"
        wait_until(
            self._transport, self._has_ended, timeout=timeout, pauses=PAUSES, still=lambda: f"{still} {self.state}"
        )
        return self

    def events(self, after: int = 0, *, on_cut: CutCallback | None = None) -> Iterator[api.RunEvent]:
        """What happened and happens to the run after event `after`, ended only by its end.

        A cut is resumed without loss; `on_cut` is told why each came. ServerUnreachableError after two minutes of it.
        """
        may_be_over = self.ended or after > self.details.last_event
        if may_be_over and self.refresh().ended and self.details.last_event <= after:
            return iter(())
        return stream_events(self._transport, self.id, after, on_cut=on_cut)

    def logs(
        self, *, follow: bool = False, start: int = 0, attempt: str | None = None, member: str | None = None
    ) -> Iterator[api.LogSegment]:
        """Its output from byte `start` on (negative: so many bytes before the end); `follow` waits for more.

        Of the newest attempt's first member, unless `attempt` or `member` is named.
        """
        source = LogSource(self._path, attempt, member)
        if follow:
            yield from follow_logs(self._transport, source, self.events(after=self.refresh().details.last_event), start)
            return
        for chunk in read_logs(self._transport, source, start):
            yield from chunk.segments

    def search_logs(  # noqa: PLR0913 - keywords, of which a call names one or two
        self,
        find: str = "",
        *,
        regex: bool = False,
        ignore_case: bool = True,
        since: datetime | None = None,
        until: datetime | None = None,
        stream: api.LogStream | None = None,
        level: api.LogLevel | None = None,
        limit: int | None = None,
        attempt: str | None = None,
        member: str | None = None,
        on_part: Callable[[api.LogSearchPart], None] | None = None,
    ) -> Iterator[api.LogHit]:
        """Lines of its whole output that hold `find`, of all members by rank, as the server finds them.

            for hit in run.search_logs(r"loss.*nan", regex=True, level="warning"):
                print(hit.rank, hit.line, hit.text)

        An expression (`regex`) is one of RE2: no look-ahead, no back-references. `since` and `until` are moments with
        a time zone at which the line was printed, to about a second; `level` is the least grave one, by what the line
        says (`ERROR`, `level=warn`, `"severity": "info"`, absl's `W1126`, the head of a traceback). Without `find`,
        one of these is needed. Of the newest attempt, unless `attempt` or `member` is named; at most `limit` lines.
        `on_part` hears how far it came. Raises InvalidRequestError for what is no expression.
        """
        source = LogSource(self._path, attempt, member)
        wanted = LogSearch(find, regex, ignore_case, since, until, stream, level)
        for part in search_logs(self._transport, source, wanted, limit):
            if on_part:
                on_part(part)
            yield from part.hits

    def follow_output(self) -> LogFollower:
        """For whoever reads the run's events anyway: its output from the first byte on, as they tell of it."""
        return LogFollower(self._transport, LogSource(self._path))

    def stacks(self, timeout: float = STACKS_S) -> list[tuple[api.Member, str]]:
        """Where each process of the newest attempt stands, by rank, as text.

            for member, text in run.stacks():
                print(member.host_name, text)

        A run that lives is asked, as by `ask_stacks`; of one that was found to hang it is what it was doing then.
        Empty where there is neither.
        """
        newest = next(self.attempts, None)
        if newest is None or newest.ended_at is not None:
            return [] if newest is None else list(read_stacks(self._transport, self._path, newest))
        members = {member.id: member for member in newest.members}
        told = self.ask_stacks(timeout).members
        return [(members[each.member], stacks_text(each)) for each in told if each.member in members]

    def ask_stacks(self, timeout: float = STACKS_S) -> RunStacks:
        """Asks every live process where it stands; returns once all have answered, or what came in `timeout` seconds.

        Each answer has the stacks of Python, what the kernel says of the threads, the phase, and the program that the
        last `strategy.run` dispatched with its collectives in order. The program is not disturbed.

        Raises AlreadyEndedError or ConflictError where no process of it lives.
        """
        return ask_stacks(self._transport, self._path, timeout)

    def metrics(
        self,
        *names: str,
        x: str = "step",
        buckets: int = 500,
        start: float | None = None,
        end: float | None = None,
        attempt: str | None = None,
    ) -> api.Metrics:
        """What the program logged, in at most `buckets` buckets over steps (or `x="time"`, in seconds).

        `start` and `end` bound x, both included. Of one attempt by id, else of the run without what was rolled back.
        """
        params = {"names": list(names), "x": x, "buckets": buckets, "from": start, "to": end, "attempt": attempt}
        return self._transport.get(f"{self._path}/metrics", api.Metrics, params)

    def metric_names(self) -> Iterator[api.MetricName]:
        """Each metric of the run by name, with how many points it has and of which steps, over all attempts."""
        return iterate_pages(self._transport, f"{self._path}/metrics/names", api.MetricName, {"limit": _NAMES})

    def save_metrics(self, target: IO[bytes], *names: str, form: str = "csv", attempt: str | None = None) -> None:
        """Writes every point of its metrics, or of those named, as `csv`, `parquet` or `arrow`: a row each.

        Of one attempt by id, else of the run without what was rolled back. Columns: run, attempt, rank, name, step,
        time, value. In CSV a name that a spreadsheet would compute has an apostrophe before it.
        """
        params: Params = {"names": list(names), "attempt": attempt}
        save_points(self._transport, f"{self._path}/metrics.{form}", params, target)

    def to_arrow(self, *names: str, attempt: str | None = None) -> "Table":
        """The same as a table of pyarrow, bit for bit. Raises MissingExtraError without the extra `data`."""
        return read_points(self._transport, f"{self._path}/metrics.arrow", {"names": list(names), "attempt": attempt})

    def to_pandas(self, *names: str, attempt: str | None = None) -> "DataFrame":
        """The same as a frame of pandas. Raises MissingExtraError without the extra `data`."""
        return self.to_arrow(*names, attempt=attempt).to_pandas()

    def reductions(self, name: str | None = None, *, attempt: str | None = None) -> Reductions:
        """Its recorded reductions: `run.reductions("loss").at(step=10)`.

        Of one attempt by id, else of the run without what was rolled back.
        """
        return Reductions(self._transport, self.id, f"{self._path}/reductions", name, attempt)

    def media(self, *, attempt: str | None = None) -> Media:
        """Its histograms, images, texts and tables: `run.media().at("weights", step=10).histogram`.

        Of one attempt by id, else of the run without what was rolled back.
        """
        return Media(self._transport, self.id, f"{self._path}/media", attempt)

    def profiles(self, *, attempt: str | None = None) -> StepProfiles:
        """Its traced steps, newest first: `next(run.profiles()).lanes()`. `record.profile_every` says which are."""
        return StepProfiles(self._transport, f"{self._path}/profiles", attempt)

    def artifacts(self, *, attempt: str | None = None) -> Iterator[RunArtifact]:
        """Files that it keeps, newest first: `next(run.artifacts()).save("model.bin")`."""
        return iterate_artifacts(self._transport, f"{self._path}/artifacts", attempt)

    @property
    def summary(self) -> dict[str, int | float | str]:
        """What its program set by `run.summary`, as last known; NaN and infinities as floats."""
        odd = ("NaN", "Infinity", "-Infinity")
        return {name: float(value) if value in odd else value for name, value in self.details.summary.items()}

    def mark(
        self,
        *,
        labels: Mapping[str, str | None] | None = None,
        note: str | None = None,
        starred: bool | None = None,
        archived: bool | None = None,
    ) -> "Run":
        """Changes labels (None takes one away), note, star, or whether lists show it; what is None stays."""
        with typed_errors():
            patch = api.RunPatch(
                labels=None if labels is None else dict(labels), note=note, starred=starred, archived=archived
            )
        self._transport.send("PATCH", self._path, Body.of(patch), repeatable=True)
        return self.refresh()

    def non_finite(self, *, attempt: str | None = None) -> tuple[api.NonFinite, ...]:
        """Where reductions were NaN or infinite first: by variable the step and the replicas, earliest first.

        Every call of `strategy.run` is looked at. Of one attempt by id, else of the newest that had any.
        """
        return self._transport.get(f"{self._path}/non-finite", api.NonFinites, {"attempt": attempt}).items

    def cancel(self, grace_s: float | None = None) -> "Run":
        """Asks it to stop; it has `grace_s` seconds (its own limit if None) to do so. Returns itself at once.

        Nothing happens to a run that has ended.
        """
        with typed_errors():
            body = Body.of(api.CancelRequest(grace_s=grace_s))
        with suppress(errors.ConflictError):
            self._transport.send("POST", f"{self._path}:cancel", body, repeatable=True)
        return self.refresh()

    def delete(self, why: str = "") -> api.DeletedRun:
        """Deletes the run for good, once it has ended: nobody sees it any more. What it used stays in the ledger.

        Raises ConflictError where it lives, or where another run resumes from it.
        """
        return self._transport.delete(self._path, api.DeletedRun, {"why": why})

    def rerun(
        self, *, wait_for_devices: bool | None = None, from_start: bool = False, idempotency_key: str | None = None
    ) -> "Run":
        """Submits it again with its own version, parameters and options, and returns the new run at once.

        One that resumed from a checkpoint does so again, unless `from_start`. Raises InvalidRequestError where that is
        gone.
        """
        body = Body.of(api.RerunRequest(wait_for_devices=wait_for_devices, from_start=from_start))
        key = idempotency_key or uuid.uuid4().hex
        return Run(self._transport, self._transport.post(f"{self._path}:rerun", api.SubmittedRun, body, key=key).run)

    def _has_ended(self, timeout_s: float) -> bool:
        self.details = self._transport.get_once(self._path, api.Run, timeout_s)
        return self.ended

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """What a notebook shows: as fresh as the server gives it, else as it was."""
        placement, metrics = None, None
        with suppress(errors.DrumlineError):
            self.refresh()
            placement = self.placement
            metrics = self.metrics(buckets=60)
        return {
            "text/plain": notebook.as_text(self.details, self.url),
            "text/html": notebook.as_html(self.details, self.url, placement, metrics),
        }

    def __repr__(self) -> str:
        return f"<Run {self.id} of {self.job}: {self.state}>"


def submit_run(transport: Transport, request: RunSubmit, idempotency_key: str | None) -> Run:
    """Submits a run of a program that the server has."""
    body, key = Body.of(request), idempotency_key or uuid.uuid4().hex
    return Run(transport, transport.post("/runs", api.SubmittedRun, body, key=key).run)
