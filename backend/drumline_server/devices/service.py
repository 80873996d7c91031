"""Hosts and devices as they are shown."""

from collections.abc import Sequence
from typing import Literal

from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import from_micros
from drumline_server.devices import queries
from drumline_server.devices.queries import DeviceFilter, DeviceRow, HostCounts
from drumline_server.models import Host
from drumline_server.paging import decode_cursor, page_of

_SECOND = 1_000_000
_ALL = DeviceFilter()
_DOUBTS = {
    "lease_ran_out": "Its host fell silent while a run held it, and nobody saw the processes die.",
    "death_not_proven": "The worker could not prove that every process of the run that held it is dead.",
}


def list_hosts(
    session: Session, project_id: str, *, cursor: str | None, limit: int, now: int, suspect_s: float
) -> api.Page[api.Host]:
    """Hosts by name. `suspect_s`: a host silent for so long is shown as suspect."""
    after = str(decode_cursor(cursor, str)[0]) if cursor else ""
    rows = queries.hosts_after(session, project_id, after, limit + 1)
    host_ids = [host.id for host in rows]
    counts, runs = queries.device_counts(session, host_ids), queries.runs_on(session, host_ids)

    def shown(host: Host) -> api.Host:
        return _host(host, counts[host.id], runs.get(host.id, ()), now=now, suspect_s=suspect_s)

    return page_of(rows, limit, item=shown, key=lambda host: (host.name,))


def list_devices(
    session: Session, project_id: str, wanted: DeviceFilter = _ALL, *, cursor: str | None, limit: int
) -> api.Page[api.Device]:
    """Devices by host, platform and index."""
    after = decode_cursor(cursor, str, str, int) if cursor else None
    rows = queries.devices_after(session, project_id, wanted, after, limit + 1)
    return page_of(rows, limit, item=_device, key=lambda row: (row.host_name, row.device.platform, row.device.position))


def one_host(session: Session, host: Host, *, now: int, suspect_s: float) -> api.Host:
    """That host."""
    counts, runs = queries.device_counts(session, [host.id]), queries.runs_on(session, [host.id])
    return _host(host, counts[host.id], runs.get(host.id, ()), now=now, suspect_s=suspect_s)


def one_device(session: Session, device_id: str) -> api.Device:
    """That device."""
    return _device(queries.device_row(session, device_id))


def device_totals(session: Session, project_id: str) -> tuple[int, int]:
    """How many devices the project has, and how many of them are held."""
    return queries.device_totals(session, project_id)


def _host(host: Host, counts: HostCounts, runs: Sequence[str], *, now: int, suspect_s: float) -> api.Host:
    return api.Host.model_validate(
        {
            "id": host.id,
            "name": host.name,
            "state": _state(host, now, suspect_s),
            "devices": counts.devices,
            "free_devices": counts.free,
            "platforms": counts.platforms,
            "version": host.version,
            "jax_version": host.jax_version,
            "cpu_count": host.cpu_count,
            "memory_bytes": host.memory_bytes,
            "registered_at": host.registered_at,
            "last_heartbeat_at": host.last_heartbeat_at or host.registered_at,
            "runs": tuple(runs),
            "drain_requested": host.drain_requested_at is not None,
            "trouble": _trouble(host),
            "notices": tuple(host.notices or ()),
        }
    )


def _state(host: Host, now: int, suspect_s: float) -> Literal["live", "suspect", "lost", "draining", "quarantined"]:
    if host.lost_at is not None:
        return "lost"
    heard_at = host.last_heartbeat_at or host.registered_at or 0
    if host.suspect_since is not None or now - heard_at > suspect_s * _SECOND:
        return "suspect"
    if host.quarantined_at is not None:
        return "quarantined"
    return "draining" if host.draining or host.drain_requested_at is not None else "live"


def _trouble(host: Host) -> api.HostTrouble | None:
    since = host.quarantined_at or host.flagged_at
    if since is None:
        return None
    failures = tuple(api.HostFailure.model_validate(failure) for failure in host.failures or ())
    runs = len({failure.run for failure in failures})
    counted = f"{runs} runs failed here within 10 minutes for reasons that may be the host's"
    if host.quarantined_at is not None:
        sentence = f"{counted}, so it takes no more until somebody releases it."
        return api.HostTrouble(kind="quarantined", sentence=sentence, since=from_micros(since), failures=failures)
    sentence = f"{counted}. It still takes runs, as no other host has its kind of devices."
    return api.HostTrouble(kind="flagged", sentence=sentence, since=from_micros(since), failures=failures)


def _device(row: DeviceRow) -> api.Device:
    device = row.device
    return api.Device.model_validate(
        {
            "id": device.id,
            "host": device.host_id,
            "host_name": row.host_name,
            "platform": device.platform,
            "index": device.position,
            "kind": device.kind,
            "memory_bytes": device.memory_bytes,
            "coords": device.coords,
            "core_on_chip": device.core_on_chip,
            "simulated": device.simulated,
            "state": device.state,
            "run": row.run_id,
            "job": row.job_name,
            "replica": row.replica,
            "quarantine": _quarantine(row),
        }
    )


def _quarantine(row: DeviceRow) -> api.Quarantine | None:
    device, doubt = row.device, row.device.quarantine_reason
    if doubt is None or row.quarantined_run is None:
        return None
    return api.Quarantine.model_validate(
        {
            "reason": doubt,
            "sentence": _DOUBTS[doubt],
            "since": device.quarantined_at,
            "run": row.quarantined_run,
            "attempt": device.attempt_id,
            "member": device.quarantine_member,
            "probed_at": device.probed_at,
            "probe_message": device.probe_message,
        }
    )
