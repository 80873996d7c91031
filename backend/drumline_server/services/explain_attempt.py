"""What a run waits for whose devices are given: claims, the start, its own stopping, the last of its telemetry."""

from collections.abc import Sequence
from typing import Literal

from pydantic import JsonValue
from sqlalchemy import select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import from_micros
from drumline.contracts.events import WAITING_FOR_TELEMETRY
from drumline.contracts.reasons import EndReason
from drumline.contracts.states import TERMINAL_ATTEMPT, TERMINAL_MEMBER, AttemptState, MemberState, RunState
from drumline.wording import size_text
from drumline_server.storage import runs
from drumline_server.storage.models import Attempt, Host, Incarnation, Member, Run

Row = tuple[Member, str]
"""A member and the name of its host."""
Rule = Literal["finishing", "stopping", "claiming", "starting", "telemetry"]


def why_attempt(session: Session, run: Run, *, now: int) -> api.Why | None:
    """The rule for a run that is placed, stopping, finishing or cut off from its host; None for one that runs."""
    query = select(Attempt).where(Attempt.id == run.attempt_id, Attempt.state.not_in(TERMINAL_ATTEMPT))
    attempt = session.scalar(query)
    if attempt is None:
        return None
    moved = _why_moved(session, attempt, now)
    if moved is not None:
        return moved
    members = _members(session, attempt)
    match rule_of_attempt(run.state, attempt.state):
        case "finishing":
            return _why_finishing(members)
        case "stopping":
            return _why_stopping(run, members)
        case "claiming":
            return _why_unclaimed(attempt, members, now)
        case "starting":
            sentence = "Has its devices; the workers are starting it."
            return api.Why(rule="starting", sentence=sentence, evidence={"hosts": list(run.hosts)})
    return _why_made_to_wait(members)


def rule_of_attempt(run_state: str, attempt_state: str, *, is_made_to_wait: bool = False) -> Rule | None:
    """The rule for a run in that state with a live attempt in that one; None for one that runs.

    `is_made_to_wait` says whether a program of it waits for its telemetry to be taken.
    """
    if attempt_state == AttemptState.FINISHING:
        return "finishing"
    if run_state == RunState.CANCELLING:
        return "stopping"
    if run_state == RunState.RUNNING and is_made_to_wait:
        return "telemetry"
    if run_state != RunState.PLACED:
        return None
    return "claiming" if attempt_state == AttemptState.DISPATCHED else "starting"


def _members(session: Session, attempt: Attempt) -> list[Row]:
    query = (
        select(Member, Host.name)
        .join(Host, Host.id == Member.host_id)
        .where(Member.attempt_id == attempt.id)
        .order_by(Member.rank)
    )
    return [(member, name) for member, name in session.execute(query)]


def _why_moved(session: Session, attempt: Attempt, now: int) -> api.Why | None:
    """For members that may be alive on a machine, or in a data directory, that their host has moved from."""
    query = (
        select(Host.name, Incarnation)
        .join(Member, Member.host_id == Host.id)
        .join(Incarnation, Incarnation.id == Member.incarnation_id)
        .where(Member.attempt_id == attempt.id, *runs.is_left_behind())
        .order_by(Member.rank)
    )
    left = [(name, incarnation.lease_ends_at() or now) for name, incarnation in session.execute(query)]
    if not left:
        return None
    hosts, until = [name for name, _ in left], max(ends_at for _, ends_at in left)
    return api.Why(
        rule="host_moved",
        sentence=f"{_join_names(hosts)} has moved to another machine or data directory, and the program may be alive "
        f"where it was: counts as dead in {max(0, until - now) / 1e6:.0f} s.",
        evidence={"hosts": list(hosts), "until": from_micros(until).isoformat()},
        remedy="Nothing has to be done: it resumes then, or as soon as the worker of before proves the program's end.",
    )


def _why_unclaimed(attempt: Attempt, members: Sequence[Row], now: int) -> api.Why:
    absent = [name for member, name in members if member.state == MemberState.PENDING]
    left_s = max(0, attempt.claim_deadline - now) / 1e6
    return api.Why(
        rule="claiming",
        sentence=f"Has its devices; waits for the worker of {_join_names(absent)} to take it.",
        evidence={"missing": list(absent), "members": len(members)},
        remedy=f"If that does not happen within {left_s:.0f} s, it goes back into the queue.",
    )


def _by_whom(run: Run) -> str:
    asked = run.stop_reason == EndReason.CANCELLED and run.cancel_requested_by is not None
    return f" by {run.cancel_requested_by}" if asked else ""


def _why_stopping(run: Run, members: Sequence[Row]) -> api.Why:
    alive = [name for member, name in members if member.state not in TERMINAL_MEMBER]
    grace_s = run.limits["grace_s"] if run.cancel_grace_s is None else run.cancel_grace_s
    return api.Why(
        rule="stopping",
        sentence=f"Was asked to stop{_by_whom(run)}; waits for the program on {_join_names(alive)} to end.",
        evidence={
            "hosts": list(alive),
            "grace_s": grace_s,
            "since": None if run.cancel_requested_at is None else from_micros(run.cancel_requested_at).isoformat(),
        },
        remedy=f"The program has {grace_s:g} s for it and is killed then.",
    )


def _why_finishing(members: Sequence[Row]) -> api.Why:
    alive = [name for member, name in members if member.state not in TERMINAL_MEMBER]
    if alive:
        return api.Why(
            rule="finishing",
            sentence=f"Is decided; waits for the program on {_join_names(alive)} to end.",
            evidence={"hosts": list(alive)},
        )
    late = [(member, name) for member, name in members if (member.last_seq or 0) > member.acked_seq]
    evidence: dict[str, JsonValue] = {
        "missing_records": {name: (member.last_seq or 0) - member.acked_seq for member, name in late}
    }
    unsent = {name: member.unsent_bytes for member, name in late if member.unsent_bytes}
    if unsent:
        evidence["unsent_bytes"] = dict(unsent)
    size = f" {size_text(sum(unsent.values()))} of" if unsent else ""
    return api.Why(
        rule="finishing",
        sentence=f"The program has ended; {_join_names([name for _, name in late])} is sending{size} telemetry.",
        evidence=evidence,
        remedy="Nothing has to be done, and its devices are free. What a lost host has not sent is recorded as a gap.",
    )


def _why_made_to_wait(members: Sequence[Row]) -> api.Why | None:
    """For a program that runs, but of which a host can take no more before the server has."""
    live = [(member, name) for member, name in members if member.state not in TERMINAL_MEMBER]
    waiting = [name for member, name in live if member.phase == WAITING_FOR_TELEMETRY]
    if not waiting:
        return None
    return api.Why(
        rule="telemetry",
        sentence=f"The program waits for its telemetry to be taken: what {_join_names(waiting)} keeps for it is full.",
        evidence={"hosts": list(waiting)},
        remedy="It resumes as the server takes what there is; no limit of its steps counts meanwhile. A greater "
        "DRUMLINE_WORKER_SPOOL_BYTES of the worker takes more.",
    )


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
