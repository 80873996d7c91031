"""Where the replicas of a run sit: as the scheduler placed them, and as the engine confirmed it."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.events import PlacedReplica
from drumline_server.storage import runs
from drumline_server.storage.models import Attempt, Device, Hold, Host, Member, PlacementRecord, Run, VariableRecord
from drumline_server.storage.runs import require_run


def read_placement(session: Session, project_id: str, run_id: str, attempt_id: str | None) -> api.Placement:
    """The placement of an attempt, the newest if unnamed. Raises NotFoundError."""
    run = require_run(session, project_id, run_id)
    attempt = runs.the_attempt(session, run, attempt_id)
    if attempt is None:
        return _scheduled_placement(run)
    devices = _devices(session, attempt.id)
    records = session.scalars(select(PlacementRecord).where(PlacementRecord.attempt_id == attempt.id)).all()
    confirmed = bool(records) and len(records) == _member_count(session, attempt)
    return api.Placement(
        run=run.id,
        attempt=attempt.id,
        strategy=records[0].strategy if records else run.strategy_kind,
        executor=records[0].executor if records else None,
        confirmed=confirmed,
        devices=tuple(devices),
        replicas=_confirmed_replicas(records) if confirmed else _scheduled_replicas(devices),
        variables=_variables(session, attempt.id),
    )


def _scheduled_placement(run: Run) -> api.Placement:
    return api.Placement(
        run=run.id,
        attempt=None,
        strategy=run.strategy_kind,
        executor=None,
        confirmed=False,
        devices=(),
        replicas=(),
        variables=(),
    )


def _devices(session: Session, attempt_id: str) -> list[api.PlacedDevice]:
    query = (
        select(Hold, Device, Host.name)
        .join(Device, Device.id == Hold.device_id)
        .join(Host, Host.id == Device.host_id)
        .where(Hold.attempt_id == attempt_id)
        .order_by(Hold.replica, Hold.logical, Device.id)
    )
    return [_view_device(hold, device, host_name) for hold, device, host_name in session.execute(query)]


def _view_device(hold: Hold, device: Device, host_name: str) -> api.PlacedDevice:
    return api.PlacedDevice.model_validate(
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
            "replica": hold.replica,
            "logical": hold.logical,
        }
    )


def _member_count(session: Session, attempt: Attempt) -> int:
    return session.scalar(select(func.count()).where(Member.attempt_id == attempt.id)) or 0


def _scheduled_replicas(devices: Iterable[api.PlacedDevice]) -> tuple[PlacedReplica, ...]:
    homes: dict[int, list[str]] = defaultdict(list)
    for device in devices:
        if device.replica is not None:
            homes[device.replica].append(device.device)
    return tuple(PlacedReplica(replica=replica, devices=tuple(homes[replica])) for replica in sorted(homes))


def _confirmed_replicas(records: Sequence[PlacementRecord]) -> tuple[PlacedReplica, ...]:
    """The members' replicas together; several members may name the same one."""
    replicas = [PlacedReplica.model_validate(replica) for record in records for replica in record.replicas]
    return tuple({replica.replica: replica for replica in sorted(replicas, key=lambda one: one.replica)}.values())


def _variables(session: Session, attempt_id: str) -> tuple[api.PlacedVariable, ...]:
    """The program's variables in the order of their making, each with its homes on all members."""
    query = select(VariableRecord).where(VariableRecord.attempt_id == attempt_id)
    homes: dict[str, dict[str, None]] = defaultdict(dict)
    first: dict[str, VariableRecord] = {}
    for row in session.scalars(query.order_by(VariableRecord.seq, VariableRecord.member_id)):
        first.setdefault(row.name, row)
        homes[row.name].update(dict.fromkeys(row.homes))
    return tuple(_variable(row, homes[name]) for name, row in first.items())


def _variable(row: VariableRecord, homes: Iterable[str]) -> api.PlacedVariable:
    return api.PlacedVariable(
        name=row.name,
        shape=tuple(row.shape),
        dtype=row.dtype,
        synchronization=row.synchronization,
        aggregation=row.aggregation,
        homes=tuple(homes),
        size_bytes=row.size_bytes,
    )
