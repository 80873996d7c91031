"""What Prometheus reads of this server: its answers, its telemetry, its process, and the fleet as the database has it.

Each server tells its own `drumline_http_*`, `drumline_telemetry_*`, `drumline_stream_clients`, `drumline_connections`,
`drumline_notifications_total` and `process_*`; the rest is of the whole fleet and the same from every server.
"""

import asyncio
from collections.abc import Iterator, Mapping

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
from sqlalchemy.orm import Session

from drumline.contracts.states import RunState
from drumline_server.services.overview import UNFINISHED, FleetFigures, Seen, read_figures
from drumline_server.storage.database import Database

# Since when each counts would be a series beside it; `process_start_time_seconds` says the same.
disable_created_metrics()  # type: ignore[no-untyped-call] # it has no annotations
TEXT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
"""Of the text that `Figures.read_text` gives."""
_ANSWER_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_LAG_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0)
_WAIT_S = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 28_800.0)
_RUN_S = (1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 28_800.0, 86_400.0, 604_800.0)


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
