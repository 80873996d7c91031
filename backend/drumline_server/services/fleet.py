"""Hosts and devices: as they are shown, and what operators do with them. Each act may be asked for twice."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from sqlalchemy import Select, case, func, select, tuple_
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import from_micros
from drumline.contracts.problems import ProblemCode
from drumline.contracts.states import DeviceState
from drumline.slices import KnownSlice
from drumline_server.base.callers import decode_cursor, page_of
from drumline_server.base.errors import DrumlineError, NotFoundError
from drumline_server.lifecycle.aftermath import FREED
from drumline_server.lifecycle.transitions import transition_device
from drumline_server.storage import history
from drumline_server.storage.models import Device, Hold, Host, Member, Run, principal_in, set_principal
from drumline_server.storage.notifications import QUEUE, announce, host_list


class DeviceRow(NamedTuple):
    """A device with its host's name and, where it is held, by what."""

    device: Device
    host_name: str
    run_id: str | None
    replica: int | None
    job_name: str | None
    quarantined_run: str | None
    """The run of the member that is not proven dead."""


class HostCounts(NamedTuple):
    """What a host has: devices that are there, those free, and their platforms."""

    devices: int
    free: int
    platforms: tuple[str, ...]
    simulated: int = 0
    """Of its devices."""


@dataclass(frozen=True, slots=True)
class DeviceFilter:
    """Which devices to list."""

    host: str | None = None
    platform: str | None = None
    state: str | None = None


def hosts_after(session: Session, project_id: str, name: str, count: int) -> Sequence[Host]:
    """Hosts that have registered, by name, those after `name`."""
    query = select(Host).where(Host.project_id == project_id, Host.registered_at.is_not(None), Host.name > name)
    return session.scalars(query.order_by(Host.name).limit(count)).all()


def device_counts(session: Session, host_ids: Sequence[str]) -> dict[str, HostCounts]:
    """What each of the hosts has now."""
    free = func.sum(case((Device.state == DeviceState.FREE, 1), else_=0))
    simulated = func.sum(case((Device.simulated, 1), else_=0))
    query = (
        select(Device.host_id, Device.platform, func.count(), free, simulated)
        .where(Device.host_id.in_(host_ids), Device.present)
        .group_by(Device.host_id, Device.platform)
        .order_by(Device.platform)
    )
    counts: dict[str, HostCounts] = {host_id: HostCounts(0, 0, ()) for host_id in host_ids}
    for host_id, platform, devices, free_devices, of_simulated in session.execute(query):
        before = counts[host_id]
        counts[host_id] = HostCounts(
            before.devices + devices,
            before.free + int(free_devices),
            (*before.platforms, platform),
            before.simulated + int(of_simulated),
        )
    return counts


def runs_on(session: Session, host_ids: Sequence[str]) -> dict[str, list[str]]:
    """The runs that hold devices of each host."""
    query = (
        select(Device.host_id, Hold.run_id)
        .join(Hold, Hold.device_id == Device.id)
        .where(Device.host_id.in_(host_ids), Hold.released_at.is_(None))
        .distinct()
        .order_by(Device.host_id, Hold.run_id)
    )
    runs: dict[str, list[str]] = defaultdict(list)
    for host_id, run_id in session.execute(query):
        runs[host_id].append(run_id)
    return runs


def devices_after(
    session: Session, project_id: str, wanted: DeviceFilter, after: tuple[int | str, ...] | None, count: int
) -> Sequence[DeviceRow]:
    """Devices that are there, by host name, platform and index, those after that key."""
    key = (Host.name, Device.platform, Device.position)
    query = _rows().where(Device.project_id == project_id, Device.present)
    if wanted.host is not None:
        query = query.where(Device.host_id == wanted.host)
    if wanted.platform is not None:
        query = query.where(Device.platform == wanted.platform)
    if wanted.state is not None:
        query = query.where(Device.state == wanted.state)
    if after is not None:
        query = query.where(tuple_(*key) > after)
    return [DeviceRow(*row) for row in session.execute(query.order_by(*key).limit(count))]


def device_row(session: Session, device_id: str) -> DeviceRow:
    """That device."""
    return DeviceRow(*session.execute(_rows().where(Device.id == device_id)).one())


def _rows() -> Select[*tuple[Any, ...]]:  # Any: the columns of a DeviceRow
    return (
        select(Device, Host.name, Hold.run_id, Hold.replica, Run.job_name, Member.run_id)
        .join(Host, Host.id == Device.host_id)
        .outerjoin(Hold, (Hold.device_id == Device.id) & Hold.released_at.is_(None))
        .outerjoin(Run, Run.id == Hold.run_id)
        .outerjoin(Member, Member.id == Device.quarantine_member)
    )


def _totals(session: Session, project_id: str) -> tuple[int, int]:
    """How many devices there are, and how many of them are held."""
    held = func.sum(case((Device.state == DeviceState.HELD, 1), else_=0))
    query = select(func.count(), held).where(Device.project_id == project_id, Device.present)
    total, held_devices = session.execute(query).one()
    return total, int(held_devices or 0)


_SECOND = 1_000_000
Place3 = tuple[int, int, int]
"""Where a chip is on its slice."""
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
    rows = hosts_after(session, project_id, after, limit + 1)
    host_ids = [host.id for host in rows]
    counts, runs = device_counts(session, host_ids), runs_on(session, host_ids)

    def shown(host: Host) -> api.Host:
        return _host(host, counts[host.id], runs.get(host.id, ()), now=now, suspect_s=suspect_s)

    return page_of(rows, limit, item=shown, key=lambda host: (host.name,))


def list_devices(
    session: Session, project_id: str, wanted: DeviceFilter = _ALL, *, cursor: str | None, limit: int
) -> api.Page[api.Device]:
    """Devices by host, platform and index."""
    after = decode_cursor(cursor, str, str, int) if cursor else None
    rows = devices_after(session, project_id, wanted, after, limit + 1)
    return page_of(rows, limit, item=_device, key=lambda row: (row.host_name, row.device.platform, row.device.position))


def list_links(
    session: Session, project_id: str, slice_name: str, *, cursor: str | None, limit: int
) -> api.Page[api.ChipLink]:
    """The links between the chips of a slice: x fastest, then y and z, of each chip those to the next along x, y, z.

    Raises NotFoundError for a slice that no host is of.
    """
    after = max(0, int(decode_cursor(cursor, int)[0])) if cursor else 0
    of_slice = (Host.project_id == project_id, Host.slice_name == slice_name, Host.registered_at.is_not(None))
    topology = session.scalar(select(func.min(Host.slice_topology)).where(*of_slice))
    if not topology:
        raise NotFoundError("slice", slice_name)
    chips = select(Device.coords, Device.host_id).join(Host, Host.id == Device.host_id)
    rows = session.execute(chips.where(*of_slice, Device.present, Device.platform == "tpu"))
    hosts = {tuple(coords): host for coords, host in rows if coords is not None}
    links = KnownSlice.parse(topology).links()
    found = [(number, one, other) for number, (one, other) in enumerate(links[after : after + limit + 1], after + 1)]

    def shown(link: tuple[int, Place3, Place3]) -> api.ChipLink:
        _, one, other = link
        return api.ChipLink(chips=(one, other), hosts=(hosts.get(one), hosts.get(other)), wraps=other < one)

    return page_of(found, limit, item=shown, key=lambda link: (link[0],))


def one_host(session: Session, host: Host, *, now: int, suspect_s: float) -> api.Host:
    """That host."""
    counts, runs = device_counts(session, [host.id]), runs_on(session, [host.id])
    return _host(host, counts[host.id], runs.get(host.id, ()), now=now, suspect_s=suspect_s)


def one_device(session: Session, device_id: str) -> api.Device:
    """That device."""
    return _device(device_row(session, device_id))


def device_totals(session: Session, project_id: str) -> tuple[int, int]:
    """How many devices the project has, and how many of them are held."""
    return _totals(session, project_id)


def _host(host: Host, counts: HostCounts, runs: Sequence[str], *, now: int, suspect_s: float) -> api.Host:
    return api.Host.model_validate(
        {
            "id": host.id,
            "name": host.name,
            "state": _state(host, now, suspect_s),
            "devices": counts.devices,
            "free_devices": counts.free,
            "platforms": counts.platforms,
            "simulated_devices": counts.simulated,
            "version": host.version,
            "protocol": host.protocol,
            "jax_version": host.jax_version,
            "checkpoint_store": host.checkpoint_store,
            "slice": _slice(host),
            "cpu_count": host.cpu_count,
            "memory_bytes": host.memory_bytes,
            "registered_at": host.registered_at,
            "last_heartbeat_at": host.last_heartbeat_at or host.registered_at,
            "runs": tuple(runs),
            "drain_requested": host.drain_requested_at is not None,
            "drain_requested_by": None if host.drain_requested_at is None else principal_in(host, "drain_requested_by"),
            "trouble": _trouble(host),
            "warnings": tuple(host.warnings or ()),
        }
    )


def _slice(host: Host) -> api.HostSlice | None:
    if not host.slice_topology:
        return None
    known = KnownSlice.parse(host.slice_topology)
    return api.HostSlice(name=host.slice_name, topology=str(known), chips=known.chips, wraps=known.wraps)


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


@dataclass(frozen=True, slots=True)
class OperatorAction:
    """Who wants something done to which host or device of a project, and when (microseconds)."""

    project_id: str
    target: str
    principal: api.PrincipalRef
    now: int


def drain_host(session: Session, order: OperatorAction, *, suspect_s: float) -> api.Host:
    """No more runs for the host; its worker asks those that run to stop, and they resume elsewhere (P18)."""
    host = _require_host(session, order)
    if host.drain_requested_at is None:
        host.drain_requested_at = order.now
        set_principal(host, "drain_requested_by", order.principal)
        _note(session, order, "host.drain", host.id)
    return one_host(session, host, now=order.now, suspect_s=suspect_s)


def undrain_host(session: Session, order: OperatorAction, *, suspect_s: float) -> api.Host:
    """The host takes runs again."""
    host = _require_host(session, order)
    if host.drain_requested_at is not None:
        host.drain_requested_at = None
        set_principal(host, "drain_requested_by", None)
        _note(session, order, "host.undrain", host.id)
    return one_host(session, host, now=order.now, suspect_s=suspect_s)


def release_host(session: Session, order: OperatorAction, *, suspect_s: float) -> api.Host:
    """Ends the quarantine or the flag of a host; what failed there before counts no more (P14)."""
    host = _require_host(session, order)
    if host.quarantined_at is not None or host.flagged_at is not None:
        host.quarantined_at = host.flagged_at = host.failures = None
        host.released_at = order.now
        _note(session, order, "host.release", host.id)
    return one_host(session, host, now=order.now, suspect_s=suspect_s)


def release_device(session: Session, order: OperatorAction) -> api.Device:
    """Frees a quarantined device: the operator knows that its last holder is dead (P10).

    Raises NotFoundError; DrumlineError conflict for one that a run holds.
    """
    query = select(Device).where(Device.id == order.target, Device.project_id == order.project_id).with_for_update()
    device = session.scalar(query, execution_options={"populate_existing": True})
    if device is None:
        raise NotFoundError("device", order.target)
    if device.state == DeviceState.QUARANTINED:
        transition_device(session, device, DeviceState.FREE, columns=FREED)
        _note(session, order, "device.release", device.host_id)
    elif device.state != DeviceState.FREE:
        raise DrumlineError(
            ProblemCode.CONFLICT,
            f"Device {device.id} is {device.state}, not quarantined.",
            hint="It becomes free when its run ends; cancel the run to end it now.",
            context={"device": device.id, "state": device.state},
        )
    return one_device(session, device.id)


def _require_host(session: Session, order: OperatorAction) -> Host:
    query = select(Host).where(
        Host.id == order.target, Host.project_id == order.project_id, Host.registered_at.is_not(None)
    )
    host = session.scalar(query.with_for_update(), execution_options={"populate_existing": True})
    if host is None:
        raise NotFoundError("host", order.target)
    return host


def _note(session: Session, order: OperatorAction, action: str, host_id: str) -> None:
    session.flush()
    history.record_audit(
        session, action, order.target, principal=order.principal, project_id=order.project_id, now=order.now
    )
    announce(session, host_list(host_id), QUEUE)
