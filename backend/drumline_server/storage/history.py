"""Writes what happened, in the transaction of the act: events of runs, gaps in their telemetry, the audit trail.

The number of an event is taken from the run's row, which also orders its writers.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.orm import Session

from drumline.contracts.api import PrincipalRef
from drumline.contracts.base import new_id
from drumline.contracts.programs import MemberTick
from drumline.wording import plural
from drumline_server.storage.models import Audit, Gap, LogChunk, Member, Run, RunEvent, principal_columns, table_of
from drumline_server.storage.notifications import announce, run_events

_RUN = table_of(Run)
_INSERT = insert(table_of(RunEvent))
_TAKE_NUMBER = (
    update(_RUN)
    .where(_RUN.c.id == bindparam("run"))
    .values(event_seq=_RUN.c.event_seq + 1)
    .returning(_RUN.c.event_seq, _RUN.c.project_id)
)
_LOCK = (
    select(Run)
    .where(Run.id == bindparam("run"), Run.deleted_at.is_(None))
    # Rows that only refer to the run are written meanwhile: who holds some of those, as the loop that makes fields of
    # metrics does, would wait for the run, and the run's holder for them.
    .with_for_update(key_share=True)
    .execution_options(populate_existing=True)
)


def record_event(
    session: Session,
    run_id: str,
    kind: str,
    body: Mapping[str, Any],  # Any: the compact JSON that the kind has in the stream
    *,
    now: int,
    attempt_id: str | None = None,
) -> int:
    """Adds an event to a run and returns its `seq`; it is announced after the commit."""
    session.flush()
    # The UPDATE locks the run's row: numbers are committed in their order, by which streams resume.
    taken = session.execute(_TAKE_NUMBER, {"run": run_id}).one()
    session.execute(
        _INSERT,
        {
            "run_id": run_id,
            "seq": taken.event_seq,
            "project_id": taken.project_id,
            "at": now,
            "kind": kind,
            "attempt_id": attempt_id,
            "body": dict(body),
        },
    )
    announce(session, run_events(run_id))
    return int(taken.event_seq)


def record_first_events(
    session: Session,
    runs: Sequence[Mapping[str, Any]],  # Any: values of columns
    kind: str,
    body: Mapping[str, Any],
) -> None:
    """Adds event 1 to each of `runs`, rows that this transaction makes with `event_seq` 1, at their `created_at`."""
    session.execute(
        _INSERT,
        [
            {
                "run_id": run["id"],
                "seq": 1,
                "project_id": run["project_id"],
                "at": run["created_at"],
                "kind": kind,
                "attempt_id": None,
                "body": dict(body),
            }
            for run in runs
        ],
    )
    announce(session, *(run_events(run["id"]) for run in runs))


def lock_run(session: Session, run_id: str) -> Run | None:
    """The run, which no other transaction changes before this one ends. Take it before attempts and members.

    None for one that is not there, or was deleted.
    """
    return session.scalar(_LOCK, {"run": run_id})


_INSERT_ACTS = insert(table_of(Audit))


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """`principal` did `action` (such as `token.create`) to `target`, from the address `client`."""

    action: str
    target: str
    principal: PrincipalRef
    project_id: str | None
    client: str = ""
    body: Mapping[str, Any] | None = None  # Any: JSON of the act; never a secret


def record_audit(
    session: Session,
    action: str,
    target: str,
    *,
    principal: PrincipalRef,
    project_id: str | None,
    now: int,
    client: str = "",
    body: Mapping[str, Any] | None = None,  # Any: as in AuditEntry
) -> None:
    """Adds one act."""
    record_audits(session, [AuditEntry(action, target, principal, project_id, client, body)], now=now)


def record_audits(session: Session, acts: Iterable[AuditEntry], *, now: int) -> None:
    """Adds acts of one moment."""
    session.execute(
        _INSERT_ACTS,
        [
            {
                "id": new_id("aud"),
                "at": now,
                "action": act.action,
                "target": act.target,
                **principal_columns("principal", act.principal),
                "project_id": act.project_id,
                "client": act.client,
                "body": dict(act.body or {}),
            }
            for act in acts
        ],
    )


What = Literal["log", "metrics", "reduction", "media", "profile", "artifact", "spool", "result"]
IN_METRICS = frozenset({"metrics", "spool"})
"""Losses that may have held metrics."""
GAP, UNKNOWN_GAP = "gap", "unknown_gap"
"""Streams of chunks that say what is lost: of so many bytes as they stand for, or of nobody knows how many."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What is lost: how many records of a kind, and how many bytes; None where that is not known."""

    what: What
    count: int | None
    size_bytes: int | None = None
    detail: str = ""
    first_byte: int | None = None
    next_byte: int | None = None


def record_gap(session: Session, member: Member, loss: Loss, *, now: int) -> None:
    """Adds a gap after the newest metric, and tells the stream. The run is locked."""
    session.add(
        Gap(
            id=new_id("gap"),
            project_id=member.project_id,
            run_id=member.run_id,
            attempt_id=member.attempt_id,
            member_id=member.id,
            what=loss.what,
            count=loss.count,
            size_bytes=loss.size_bytes,
            detail=loss.detail,
            first_byte=loss.first_byte,
            next_byte=loss.next_byte,
            after_step=member.logged_step,
            after_at=member.logged_at,
            recorded_at=now,
        )
    )
    if loss.what in IN_METRICS:
        member.open_gaps += 1
    body: dict[str, str | int] = {"what": loss.what, "member": member.id}
    known = {"count": loss.count, "size_bytes": loss.size_bytes}
    body |= {name: number for name, number in known.items() if number is not None}
    record_event(session, member.run_id, "gap", body, now=now, attempt_id=member.attempt_id)


def record_lost_rest(session: Session, member: Member, detail: str, *, now: int) -> None:
    """Records what the server will never have of a member: of a host that is gone, or that has not sent all in time."""
    tick = None if member.tick is None else MemberTick.model_validate(member.tick)
    last_seq = tick.spooled_seq if member.last_seq is None and tick else member.last_seq
    missing = max(0, (last_seq or 0) - member.acked_seq)
    if missing or member.last_seq is None:
        record_gap(session, member, Loss("spool", missing or None, detail=detail), now=now)
    written = tick.output_bytes if member.output_bytes is None and tick else member.output_bytes
    lost = None if written is None else written - member.log_bytes
    if lost is None or lost > 0:
        record_lost_output(session, member, lost, detail, now=now)
    elif member.last_seq is None:
        record_lost_output(session, member, None, detail, now=now)


def record_lost_output(session: Session, member: Member, lost_bytes: int | None, detail: str, *, now: int) -> None:
    """Records that output is lost after all that is stored, also in the text itself."""
    chunk = record_lost_chunk(session, member, lost_bytes, detail, ends_line=ends_with_line(session, member), now=now)
    session.add(LogChunk(**chunk))
    body = {"member": member.id, "first_byte": chunk["first_byte"], "next_byte": chunk["next_byte"]}
    record_event(session, member.run_id, "log", body, now=now, attempt_id=member.attempt_id)


def record_lost_chunk(
    session: Session, member: Member, lost_bytes: int | None, detail: str, *, ends_line: bool, now: int
) -> Mapping[str, Any]:  # Any: columns of a chunk
    """Records a gap after the stored output; returns the chunk that says so there, still to be stored."""
    size = "output of unknown size" if lost_bytes is None else f"{plural(lost_bytes, 'byte')} of output"
    because = f": {' '.join(detail.split())}" if detail else ""
    content = f"{'' if ends_line else chr(10)}[drumline: {size} lost here{because}]\n".encode()
    first_byte = member.log_bytes
    next_byte = first_byte + (len(content) if lost_bytes is None else lost_bytes)
    loss = Loss("log", None, lost_bytes, detail, first_byte, next_byte)
    record_gap(session, member, loss, now=now)
    chunk = {
        "member_id": member.id,
        "attempt_id": member.attempt_id,
        "run_id": member.run_id,
        "project_id": member.project_id,
        "first_byte": first_byte,
        "stream": UNKNOWN_GAP if lost_bytes is None else GAP,
        "at": now,
        "next_byte": next_byte,
        "first_line": member.log_lines + 1,
        "newlines": content.count(b"\n"),
        "content": content,
    }
    member.log_bytes = next_byte
    member.log_lines += content.count(b"\n")
    return chunk


def ends_with_line(session: Session, member: Member) -> bool:
    """Whether the stored output ends with a line, or there is none."""
    query = select(LogChunk.content).where(LogChunk.member_id == member.id).order_by(LogChunk.first_byte.desc())
    newest = session.scalar(query.limit(1))
    return newest is None or newest.endswith(b"\n")
