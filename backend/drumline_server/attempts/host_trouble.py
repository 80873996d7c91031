"""Takes hosts out of service on which run after run fails, before they eat the queue (P14)."""

from collections.abc import Sequence
from typing import Any, Literal

from sqlalchemy import bindparam, func, select
from sqlalchemy.orm import Session

from drumline.contracts.reasons import HOST_FAULTS, HOST_LOSSES
from drumline_server import audit
from drumline_server.models import Device, Host, Member, Run
from drumline_server.run_events import record_event
from drumline_server.wakeups import QUEUE, announce

RUNS = 3
"""So many different runs that failed on a host for reasons that may be its own..."""
WITHIN_US = 600 * 1_000_000
"""...within this time are not the runs' fault."""
_MOST = 200
Verdict = Literal["quarantined", "flagged"]
TROUBLED = (
    select(Member.host_id)
    .where(Member.reason_code.in_(HOST_FAULTS), Member.ended_at > bindparam("failed_since"))
    .group_by(Member.host_id)
    .having(func.count(Member.run_id.distinct()) >= RUNS)
)
"""Hosts that `troubled_hosts` looks at more closely; with `failed_since` as `failed_since` has it."""


def failed_since(now: int) -> int:
    """What failed before that time is forgiven."""
    return now - WITHIN_US


def troubled_hosts(session: Session, *, now: int) -> list[str]:
    """Hosts that `judge_host` would change something about."""
    found = session.scalars(TROUBLED.limit(_MOST), {"failed_since": failed_since(now)}).all()
    hosts = [session.get_one(Host, host_id) for host_id in found]
    return [host.id for host in hosts if _verdict(session, host, _failures(session, host, now)) is not None]


def judge_host(host_id: str, session: Session, *, now: int) -> None:
    """Quarantines a host on which too many runs failed; the only one with devices of its kind is flagged instead."""
    query = select(Host).where(Host.id == host_id).with_for_update()
    host = session.scalars(query, execution_options={"populate_existing": True}).one()
    failures = _failures(session, host, now)
    verdict = _verdict(session, host, failures)
    if verdict is None:
        return
    host.failures = [_shown(member, run) for member, run in failures]
    host.quarantined_at, host.flagged_at = (now, None) if verdict == "quarantined" else (None, now)
    runs = sorted({run.id for _, run in failures})
    for run_id in runs:
        record_event(session, run_id, "host", {"host": host.id, "name": host.name, "state": verdict}, now=now)
    action, project_id = f"host.{verdict}", host.project_id
    audit.record(session, action, host.id, principal="drumline", project_id=project_id, now=now, body={"runs": runs})
    announce(session, f"fleet:{host.id}", QUEUE)


def _verdict(session: Session, host: Host, failures: Sequence[tuple[Member, Run]]) -> Verdict | None:
    if host.quarantined_at is not None or not _is_too_often(failures):
        return None
    if not _is_only_one(session, host):
        return "quarantined"
    return "flagged" if host.flagged_at is None else None


def _failures(session: Session, host: Host, now: int) -> Sequence[tuple[Member, Run]]:
    since = max(failed_since(now), host.released_at or 0)
    query = (
        select(Member, Run)
        .join(Run, Run.id == Member.run_id)
        .where(Member.host_id == host.id, Member.ended_at > since, Member.reason_code.in_(HOST_FAULTS))
        .order_by(Member.ended_at.desc(), Member.id)
        .limit(_MOST)
    )
    return [(member, run) for member, run in session.execute(query)]


def _is_too_often(failures: Sequence[tuple[Member, Run]]) -> bool:
    """One restart or silence of a host ends all that runs there at one moment, and is one incident."""
    incidents = {(member.ended_at if member.reason_code in HOST_LOSSES else member.id) for member, _ in failures}
    return len({run.id for _, run in failures}) >= RUNS and len(incidents) >= RUNS


def _is_only_one(session: Session, host: Host) -> bool:
    """Whether without it some platform has no host left that takes runs."""
    own = select(Device.platform).where(Device.host_id == host.id, Device.present.is_(True)).distinct()
    others = (
        select(Device.platform)
        .join(Host, Host.id == Device.host_id)
        .where(Device.project_id == host.project_id, Device.present.is_(True), Host.id != host.id, *Host.takes_runs())
        .distinct()
    )
    return not set(session.scalars(own)) <= set(session.scalars(others))


def _shown(member: Member, run: Run) -> dict[str, Any]:  # Any: JSON of api.HostFailure
    return {"run": run.id, "job": run.job_name, "reason": member.reason_code, "at": member.ended_at}
