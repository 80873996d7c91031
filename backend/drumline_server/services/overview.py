"""What an operator watches: the overview, whether anything is wrong and whether the fleet is busy; and what Prometheus
reads of this server: its answers, its telemetry, its process, and the fleet as the database has it.

Each server tells its own `drumline_http_*`, `drumline_telemetry_*`, `drumline_stream_clients`, `drumline_connections`,
`drumline_notifications_total` and `process_*`; the rest is of the whole fleet and the same from every server.
"""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import new_id
from drumline.contracts.states import (
    TERMINAL_ATTEMPT,
    TERMINAL_MEMBER,
    TERMINAL_RUN,
    AttemptState,
    DeviceState,
    MemberState,
    RunState,
)
from drumline_server.scheduling.placement import place
from drumline_server.scheduling.snapshot import SchedulingTerms, take_snapshot
from drumline_server.services import fleet, run_lists
from drumline_server.services.explain_start import rules_of, why_waiting, with_scheduler_verdict
from drumline_server.services.runs import view_summary
from drumline_server.storage.database import Database
from drumline_server.storage.models import Attempt, Device, Host, Member, Project, Run

MAX_FIGURE_HOSTS = 1_000
"""Told one by one; of further ones only the sums are told."""
MAX_READ = 5_000
"""Waits, and ends of each project, that one look reads; the next look reads on."""
SETTLED_US = 10_000_000
"""A look leaves out what is younger: a transaction in progress may still commit something older than what is there."""
_US = 1e6
UNFINISHED = [state for state in RunState if state not in TERMINAL_RUN]
_LIVE_ATTEMPT = [state for state in AttemptState if state not in TERMINAL_ATTEMPT]
_LIVE_MEMBER = [state for state in MemberState if state not in TERMINAL_MEMBER]
# Since when each counts would be a series beside it; `process_start_time_seconds` says the same.
disable_created_metrics()  # type: ignore[no-untyped-call] # it has no annotations
TEXT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
"""Of the text that `Figures.read_text` gives."""
_ANSWER_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_LAG_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0)
_WAIT_S = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 28_800.0)
_RUN_S = (1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 28_800.0, 86_400.0, 604_800.0)


MAX_DEVICES = 2_048
MAX_HOSTS = 200
_TROUBLED_BEYOND = 20
_SHOWN = 10
_ATTENTION = 5
_DAY = 86_400_000_000
_WAITING = frozenset({RunState.QUEUED, RunState.RETRY_WAIT})
_RUNNING = frozenset({RunState.PLACED, RunState.RUNNING, RunState.CANCELLING})


class _Hosts(NamedTuple):
    """Those that are shown, and how many there are of all."""

    shown: tuple[api.Host, ...]
    total: int
    silent: int
    failing: int


def _list_hosts(session: Session, project_id: str, suspect_s: float, *, now: int) -> _Hosts:
    """The first by name, and of the others some that need looking at: nobody would ask for those."""
    known = (Host.project_id == project_id, Host.registered_at.is_not(None))
    unheard = func.coalesce(Host.last_heartbeat_at, Host.registered_at) < now - int(suspect_s * 1_000_000)
    silent = or_(Host.lost_at.is_not(None), Host.suspect_since.is_not(None), unheard)
    failing = or_(Host.quarantined_at.is_not(None), Host.flagged_at.is_not(None))
    counted = (func.count(), func.count().filter(silent, ~failing), func.count().filter(failing))
    total, silent_total, failing_total = session.execute(select(*counted).select_from(Host).where(*known)).one()
    first = fleet.list_hosts(session, project_id, cursor=None, limit=MAX_HOSTS, now=now, suspect_s=suspect_s).items
    if total > len(first):
        beyond = select(Host).where(*known, or_(silent, failing), Host.name > first[-1].name).order_by(Host.name)
        rows = session.scalars(beyond.limit(_TROUBLED_BEYOND)).all()
        first += tuple(fleet.one_host(session, host, now=now, suspect_s=suspect_s) for host in rows)
    return _Hosts(first, total, silent_total, failing_total)


def overview(session: Session, project_id: str, terms: SchedulingTerms, *, now: int) -> api.Overview:
    """What the first page shows."""
    total, held = fleet.device_totals(session, project_id)
    hosts = _list_hosts(session, project_id, terms.suspect_s, now=now)
    shown = fleet.list_devices(session, project_id, cursor=None, limit=MAX_DEVICES)
    stalled = run_lists.list_stalled(session, project_id, _ATTENTION)
    failed = run_lists.list_last_failed(session, project_id, _ATTENTION, since=now - _DAY)
    running = run_lists.newest(session, project_id, _RUNNING, _SHOWN)
    rules = rules_of(session, project_id, running, terms, now=now)
    return api.Overview(
        devices_total=total,
        devices_held=held,
        hosts=hosts.shown,
        hosts_total=hosts.total,
        hosts_silent=hosts.silent,
        hosts_failing=hosts.failing,
        devices=shown.items,
        attention=tuple(view_summary(run, None) for run in (*stalled, *failed)),
        stalled_total=run_lists.count_stalled(session, project_id),
        failed_total=run_lists.count_failed(session, project_id, since=now - _DAY),
        queued=_list_queued(session, project_id, terms, now),
        queued_total=run_lists.count_in(session, project_id, _WAITING),
        running=tuple(view_summary(run, rules.get(run.id)) for run in running),
        running_total=run_lists.count_in(session, project_id, _RUNNING),
        recent=tuple(view_summary(run, None) for run in run_lists.list_last_ended(session, project_id, _SHOWN)),
    )


def _list_queued(session: Session, project_id: str, terms: SchedulingTerms, now: int) -> tuple[api.QueuedRun, ...]:
    """Waiting runs in the order in which the scheduler considers them, those in backoff last."""
    snapshot = take_snapshot(session, project_id, terms, now=now)
    starting = {placement.run_id for placement in place(snapshot).placements}
    first = [run.id for run in snapshot.queue[:_SHOWN]]
    places = {run_id: place for place, run_id in enumerate(first, 1)}
    shown: list[api.QueuedRun] = []
    for run in (*run_lists.by_ids(session, first), *run_lists.in_backoff(session, project_id, _SHOWN - len(first))):
        why = why_waiting(session, run, now=now)
        if why is not None:
            if run.id in places:
                why = with_scheduler_verdict(why, starts=run.id in starting).model_copy(
                    update={"position": places[run.id]}
                )
            shown.append(api.QueuedRun(run=view_summary(run, why.rule), why=why))
    return tuple(shown)


@dataclass(slots=True)
class Seen:
    """How far the looks before have read, so that each wait and each end is counted once."""

    attempt_id: str
    ended_at: dict[str, int]
    """By project."""
    since: int

    @classmethod
    def from_now(cls, now: int) -> "Seen":
        """What begins or ends from `now` on."""
        return cls(new_id("att"), {}, now - SETTLED_US)


class HostFigures(NamedTuple):
    """One host."""

    project: str
    host: str
    heartbeat_age_s: float
    members: int
    devices_held: int


@dataclass(frozen=True, slots=True)
class FleetFigures:
    """Of all projects together, but where it says so."""

    runs: dict[str, int]
    """Unfinished ones by state."""
    oldest_queued_s: float
    """For how long the first of the queue waits; 0 for an empty queue."""
    devices: list[tuple[str, str, int]]
    """Platform, state, how many."""
    hosts: list[HostFigures]
    lease_age_s: float
    """The longest that a host with live members has not been heard of; 0 without one."""
    waits_s: list[float]
    """From the submission to the first placement."""
    ends: list[tuple[str, float]]
    """How runs ended that had started, and how long after their start."""


def read_figures(session: Session, seen: Seen, *, now: int) -> FleetFigures:
    """The figures of now. Moves `seen` on."""
    unfinished = select(Run.state, func.count()).where(Run.state.in_(UNFINISHED)).group_by(Run.state)
    present = select(Device.platform, Device.state, func.count()).where(Device.present)
    hosts = _read_hosts(session, now)
    return FleetFigures(
        runs={state: count for state, count in session.execute(unfinished)},
        oldest_queued_s=_oldest_queued_s(session, now),
        devices=[(*row,) for row in session.execute(present.group_by(Device.platform, Device.state))],
        hosts=hosts[:MAX_FIGURE_HOSTS],
        lease_age_s=max((host.heartbeat_age_s for host in hosts if host.members), default=0.0),
        waits_s=_read_waits(session, seen, now - SETTLED_US),
        ends=_read_ends(session, seen, now - SETTLED_US),
    )


def _oldest_queued_s(session: Session, now: int) -> float:
    oldest = session.scalar(select(func.min(Run.created_at)).where(Run.state == RunState.QUEUED))
    return max(0, now - oldest) / _US if oldest is not None else 0.0


def _read_hosts(session: Session, now: int) -> list[HostFigures]:
    """Registered ones, by project and name."""
    held = select(Device.host_id, func.count()).where(Device.present, Device.state == DeviceState.HELD)
    devices = {host_id: count for host_id, count in session.execute(held.group_by(Device.host_id))}
    live = select(Member.host_id, func.count()).join(Attempt, Attempt.id == Member.attempt_id)
    live = live.where(Attempt.state.in_(_LIVE_ATTEMPT), Member.state.in_(_LIVE_MEMBER)).group_by(Member.host_id)
    members = {host_id: count for host_id, count in session.execute(live)}
    query = (
        select(Project.name, Host.name, Host.id, Host.last_heartbeat_at)
        .join(Project, Project.id == Host.project_id)
        .where(Host.last_heartbeat_at.is_not(None))
        .order_by(Project.name, Host.name)
    )
    return [
        HostFigures(
            project, host, max(0, now - (heard_at or now)) / _US, members.get(host_id, 0), devices.get(host_id, 0)
        )
        for project, host, host_id, heard_at in session.execute(query)
    ]


def _read_waits(session: Session, seen: Seen, until: int) -> list[float]:
    query = (
        select(Attempt.id, Attempt.number, Attempt.created_at, Run.created_at)
        .join(Run, Run.id == Attempt.run_id)
        .where(Attempt.id > seen.attempt_id, Attempt.created_at <= until)
        .order_by(Attempt.id)
        .limit(MAX_READ)
    )
    rows = session.execute(query).all()
    if rows:
        seen.attempt_id = rows[-1][0]
    return [(placed_at - queued_at) / _US for _, number, placed_at, queued_at in rows if number == 1]


def _read_ends(session: Session, seen: Seen, until: int) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for project_id in session.scalars(select(Project.id)):  # each has its own index of ends
        query = (
            select(Run.state, Run.started_at, Run.ended_at)
            .where(
                Run.project_id == project_id,
                Run.ended_at > seen.ended_at.get(project_id, seen.since),
                Run.ended_at <= until,
            )
            .order_by(Run.ended_at, Run.id)
            .limit(MAX_READ)
        )
        rows = session.execute(query).all()
        if rows:
            seen.ended_at[project_id] = rows[-1][2] or until
        found += [(row[0], (row[2] - row[1]) / _US) for row in rows if row[1] is not None and row[2] is not None]
    return found


class Figures:
    """The registry of one server."""

    def __init__(self, now: int) -> None:
        own = self.registry = CollectorRegistry()
        ProcessCollector(registry=own)
        PlatformCollector(registry=own)
        answered = ("method", "route", "status")
        self._answers = Counter("drumline_http_requests", "Requests that were answered.", answered, registry=own)
        self._answer_s = Histogram(
            "drumline_http_request_seconds", "Time to the whole answer.", ("route",), registry=own, buckets=_ANSWER_S
        )
        self._events = Counter("drumline_telemetry_events", "Telemetry events that were taken.", registry=own)
        self._refusals = Counter(
            "drumline_refused_members", "Members of which a heartbeat told without their key.", registry=own
        )
        self._lag_s = Histogram(
            "drumline_telemetry_lag_seconds",
            "From the newest event of a batch, by its host's clock, until the batch was stored.",
            registry=own,
            buckets=_LAG_S,
        )
        self._notifications = _Notifications()
        own.register(self._notifications)
        self._streams = Gauge("drumline_stream_clients", "Live streams that are open.", registry=own)
        self._connections = Gauge("drumline_connections", "Connections that are open.", registry=own)
        self._fleet = _Fleet(own)
        self._seen = Seen.from_now(now)
        self._looking = asyncio.Lock()

    def count_answer(self, method: str, route: str, status: int, seconds: float) -> None:
        """Counts one answer; `status` 0 is a request that ended without one."""
        self._answers.labels(method, route, f"{status // 100}xx" if status else "none").inc()
        self._answer_s.labels(route).observe(seconds)

    def count_batch(self, events: int, lag_s: float) -> None:
        """Counts a batch of telemetry; a clock ahead of the server's makes no lag below 0."""
        self._events.inc(events)
        self._lag_s.observe(max(0.0, lag_s))

    def count_refusals(self, members: int) -> None:
        """Counts members of which one heartbeat told without their key."""
        self._refusals.inc(members)

    async def read_text(
        self, database: Database, *, now: int, streams: int, connections: int, notifications: Mapping[str, int]
    ) -> bytes:
        """All figures in the text format of Prometheus. Looks at the database once at a time."""
        self._streams.set(streams)
        self._connections.set(connections)
        self._notifications.counts = notifications

        def read(session: Session) -> FleetFigures:
            return read_figures(session, self._seen, now=now)

        async with self._looking:
            self._fleet.show(await database.read(read))
            return generate_latest(self.registry)


class _Notifications(Collector):
    """Counted elsewhere."""

    def __init__(self) -> None:
        self.counts: Mapping[str, int] = {}

    def collect(self) -> Iterator[CounterMetricFamily]:
        """As they stand."""
        family = CounterMetricFamily(
            "drumline_notifications", "Wake-ups for workers, by what came of them.", labels=["outcome"]
        )
        for outcome, count in self.counts.items():
            family.add_metric([outcome], count)
        yield family


class _Fleet:
    """What the database says of all projects."""

    def __init__(self, own: CollectorRegistry) -> None:
        of_host = ("project", "host")
        self._runs = Gauge("drumline_runs", "Unfinished runs.", ("state",), registry=own)
        self._queue = Gauge("drumline_queue_depth", "Runs that wait for devices.", registry=own)
        self._queued_s = Gauge("drumline_queue_oldest_seconds", "How long the oldest of them waits.", registry=own)
        self._devices = Gauge("drumline_devices", "Devices of registered hosts.", ("platform", "state"), registry=own)
        self._lease_s = Gauge(
            "drumline_lease_age_seconds",
            "The longest that a host with live programs has not been heard of.",
            registry=own,
        )
        self._heard_s = Gauge("drumline_host_heartbeat_age_seconds", "Since its heartbeat.", of_host, registry=own)
        self._members = Gauge("drumline_host_members", "Programs that it has taken or is given.", of_host, registry=own)
        self._held = Gauge("drumline_host_devices_held", "Its devices that runs hold.", of_host, registry=own)
        self._wait_s = Histogram(
            "drumline_scheduling_seconds", "From a submission to its placement.", registry=own, buckets=_WAIT_S
        )
        self._run_s = Histogram(
            "drumline_run_seconds", "From the start of a run to its end.", ("state",), registry=own, buckets=_RUN_S
        )

    def show(self, found: FleetFigures) -> None:
        for gauge in (self._devices, self._heard_s, self._members, self._held):
            gauge.clear()  # a host that is gone has no figures
        for unfinished in UNFINISHED:
            self._runs.labels(unfinished).set(found.runs.get(unfinished, 0))
        self._queue.set(found.runs.get(RunState.QUEUED, 0))
        self._queued_s.set(found.oldest_queued_s)
        for platform, state, count in found.devices:
            self._devices.labels(platform, state).set(count)
        self._lease_s.set(found.lease_age_s)
        for host in found.hosts:
            self._heard_s.labels(host.project, host.host).set(host.heartbeat_age_s)
            self._members.labels(host.project, host.host).set(host.members)
            self._held.labels(host.project, host.host).set(host.devices_held)
        for wait_s in found.waits_s:
            self._wait_s.observe(wait_s)
        for state, run_s in found.ends:
            self._run_s.labels(state).observe(run_s)
