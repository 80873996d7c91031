"""Rows that plans are made of."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Exists, SQLColumnExpression, exists, func, select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.plans import ProbeState
from drumline_server.models import Device, Host, Plan, Reduction
from drumline_server.scheduler.placement import Placement

_ACTIVE = (ProbeState.WAITING, ProbeState.RUNNING)
_AT_ONCE = 100
"""Reductions that are in memory with what they reduced."""


class RecordedReduction(NamedTuple):
    """A reduction without what it reduced; `shape` and `dtype` are those of the first replica's."""

    call: int
    name: str
    op: str
    origin: str
    axis: dict[str, Any]
    counts: list[int]
    shape: list[int]
    dtype: str


def seated(session: Session, placement: Placement) -> tuple[api.PlacedDevice, ...]:
    """The devices of a placement by replica and logical position."""
    seats = {seat.device_id: seat for member in placement.members for seat in member.seats}
    query = select(Device, Host.name).join(Host, Host.id == Device.host_id).where(Device.id.in_(seats))
    devices = [
        api.PlacedDevice.model_validate(
            {
                "device": device.id,
                "host": device.host_id,
                "host_name": host_name,
                "platform": device.platform,
                "index": device.position,
                "kind": device.kind,
                "memory_bytes": device.memory_bytes,
                "coords": device.coords,
                "core_on_chip": device.core_on_chip,
                "simulated": device.simulated,
                "replica": seats[device.id].replica,
                "logical": seats[device.id].logical,
            }
        )
        for device, host_name in session.execute(query)
    ]
    return tuple(sorted(devices, key=lambda device: (device.replica or 0, device.logical or 0)))


def live_hosts(session: Session, project_id: str, silent_since: int) -> Sequence[Host]:
    """Hosts whose worker can be asked for something, by name."""
    query = select(Host).where(
        Host.project_id == project_id,
        Host.draining.is_(False),
        Host.lost_at.is_(None),
        Host.last_heartbeat_at >= silent_since,
    )
    return session.scalars(query.order_by(Host.name)).all()


def probes_on(session: Session, host_ids: Collection[str], now: int) -> dict[str, int]:
    """How many probes each of the hosts has; one past its deadline does not count."""
    query = (
        select(Plan.host_id, func.count())
        .where(Plan.host_id.in_(host_ids), Plan.probe_state.in_(_ACTIVE), Plan.deadline > now)
        .group_by(Plan.host_id)
    )
    return {host_id: count for host_id, count in session.execute(query) if host_id is not None}


def is_active_on(host_id: SQLColumnExpression[str]) -> Exists:
    """The condition that a host may have a plan to probe."""
    return exists().where(Plan.host_id == host_id, Plan.probe_state.in_(_ACTIVE))


def active_on(session: Session, host_id: str, now: int) -> Sequence[Plan]:
    """The plans that a host is to probe, oldest first."""
    query = select(Plan).where(Plan.host_id == host_id, Plan.probe_state.in_(_ACTIVE), Plan.deadline > now)
    return session.scalars(query.order_by(Plan.id)).all()


def host_name(session: Session, host_id: str | None) -> str | None:
    """The name of a host."""
    return None if host_id is None else session.scalar(select(Host.name).where(Host.id == host_id))


def reductions_before(
    session: Session, run_id: str, attempt_id: str, call: int, limit: int
) -> Sequence[RecordedReduction]:
    """Up to `limit` reductions before the call, in order, of the member that recorded the first of them."""
    of_call = func.coalesce(Reduction.call, Reduction.step)
    # A program makes several calls in a step or several steps in a call, so steps alone are too many or too few here.
    found = (Reduction.run_id == run_id, Reduction.attempt_id == attempt_id, of_call < call)
    order = (of_call, Reduction.seq)
    teller = select(Reduction.member_id).where(*found).order_by(*order).limit(1).scalar_subquery()
    columns = (of_call, Reduction.name, Reduction.op, Reduction.origin, Reduction.axis, Reduction.body)
    query = select(*columns).where(*found, Reduction.member_id == teller).order_by(*order).limit(limit)
    rows = session.execute(query.execution_options(yield_per=_AT_ONCE))
    return [_without_values(*row) for row in rows]


def _without_values(
    call: int, name: str, op: str, origin: str, axis: dict[str, Any], body: dict[str, Any]
) -> RecordedReduction:
    first = body["inputs"][0]
    return RecordedReduction(call, name, op, origin, axis, body["counts"], first["shape"], first["dtype"])
