"""What must hold of what the database holds, each invariant once: for simulator, state machine, fuzzing and chaos.

An invariant is a function that yields a sentence for each breach. Those of `ALWAYS` hold after every commit, those of
`SINCE` beside what an earlier look saw, those of `ON_STEADY_CLOCKS` where no server's clock is set back, those of
`AT_REST` once every run has ended and its hosts have sent what they had."""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from sqlalchemy.orm import Session

from drumline.contracts.reasons import REASONS, Category, EndReason
from drumline.contracts.states import (
    ATTEMPT_TRANSITIONS,
    MEMBER_TRANSITIONS,
    RUN_TRANSITIONS,
    TERMINAL_MEMBER,
    TERMINAL_RUN,
    AttemptState,
    DeviceState,
    MemberState,
    RunState,
)
from support.facts import AttemptRow, Facts, HoldRow, MemberRow, Reader, StoredEvents, rows_of

BEGUN = frozenset({MemberState.CLAIMED, MemberState.STARTING, MemberState.RUNNING})
"""Of members whose program runs or is about to, as far as the server knows."""
STAMP_US = 2_000_000
"""Transactions are stamped before they wait for their turn, so that of two the later may have the earlier stamp."""
_TRANSITIONS: Mapping[str, Mapping[str, Collection[str]]] = {
    "state": {str(source): targets for source, targets in RUN_TRANSITIONS.items()},
    "attempt": {str(source): targets for source, targets in ATTEMPT_TRANSITIONS.items()},
    "member": {str(source): targets for source, targets in MEMBER_TRANSITIONS.items()},
}
"""By kind of event."""


# what holds after every commit


def events_are_gapless(facts: Facts) -> Iterator[str]:
    """A run's events are numbered from 1 to the number that its row gave out last."""
    stored = {row.run_id: row for row in facts.stored_events}
    for run in facts.runs.values():
        events = stored.get(run.id, StoredEvents(run.id, 0, 0))
        if not events.stored == events.newest == run.event_seq:
            yield f"{run.id} gave out {run.event_seq} numbers, and has {events.stored} events up to {events.newest}"


def one_live_attempt(facts: Facts) -> Iterator[str]:
    """A run has at most one attempt that is not over."""
    for run_id, attempts in facts.attempts_of.items():
        live = [attempt.id for attempt in attempts if attempt.is_live]
        if len(live) > 1:
            yield f"{run_id} has two live attempts: {live}"


def fences_count_attempts(facts: Facts) -> Iterator[str]:
    """Each attempt raises the fence by one."""
    for run in facts.runs.values():
        fences = [attempt.fence for attempt in facts.attempts_of.get(run.id, ())]
        if fences != list(range(1, run.fence + 1)):
            yield f"{run.id} has fence {run.fence} and attempts with {fences}"


def holds_are_disjoint(facts: Facts) -> Iterator[str]:
    """A device has at most one holder."""
    holders: dict[str, str] = {}
    for hold in facts.open_holds:
        if hold.device_id in holders:
            yield f"{hold.device_id} is held by {holders[hold.device_id]} and {hold.member_id}"
        holders[hold.device_id] = hold.member_id


def held_devices_have_a_live_holder(facts: Facts) -> Iterator[str]:
    """Who holds a device has an open hold of it, and is not over; a free device has none."""
    holders = {hold.device_id: hold.attempt_id for hold in facts.open_holds}
    for device in facts.devices.values():
        holder = holders.get(device.id)
        if device.state == DeviceState.FREE and holder is not None:
            yield f"{device.id} is free, and held by {holder}"
        if device.state != DeviceState.HELD:
            continue
        if holder != device.attempt_id:
            yield f"{device.id} is HELD by {device.attempt_id} without a hold"
        attempt = facts.attempts.get(device.attempt_id or "")
        if attempt is None or not attempt.is_live:
            yield f"{device.id} is HELD by {device.attempt_id}, which has ended"


def devices_are_freed_on_proof_alone(facts: Facts) -> Iterator[str]:
    """What a member that began uses stays its attempt's until the member is over."""
    for hold in facts.open_holds:
        device, member = facts.devices[hold.device_id], facts.members[hold.member_id]
        is_kept = device.state == DeviceState.HELD and device.attempt_id == hold.attempt_id
        if member.state in BEGUN and not is_kept:
            yield f"{member.id} runs on {device.id}, which is {device.state} for {device.attempt_id}"


def live_runs_have_a_timer(facts: Facts) -> Iterator[str]:
    """Something will happen to a run that is not over, even if everybody else falls silent."""
    for run in facts.runs.values():
        live = [attempt for attempt in facts.attempts_of.get(run.id, ()) if attempt.is_live]
        if run.state in TERMINAL_RUN or run.state in (RunState.QUEUED, RunState.RETRY_WAIT):
            if live:
                yield f"{run.id} is {run.state} with the live attempt {live[0].id}"
            if run.state == RunState.RETRY_WAIT and run.retry_at is None:
                yield f"{run.id} waits for a retry, and nothing says when"
        elif not live:
            yield f"{run.id} is {run.state} without a live attempt"
        elif not _ends_by_itself(live[0], facts.members_of.get(live[0].id, ())):
            yield f"{run.id} is {run.state}, {live[0].id} is {live[0].state}, and nothing will ever end it"


def _ends_by_itself(attempt: AttemptRow, members: Sequence[MemberRow]) -> bool:
    is_waited_for = attempt.state == AttemptState.DISPATCHED and attempt.claim_deadline is not None
    is_leased = any(member.state in BEGUN and member.has_lease for member in members)
    are_gone = all(member.state in TERMINAL_MEMBER for member in members)
    drains = attempt.state == AttemptState.FINISHING and are_gone and attempt.finishing_at is not None
    return is_waited_for or is_leased or drains


def budgets_are_kept(facts: Facts) -> Iterator[str]:
    """A run fails at most once more than its retries, by its own count and by the reasons of its attempts."""
    for run in facts.runs.values():
        by_user = by_us = 0
        for attempt in facts.attempts_of.get(run.id, ()):
            if attempt.state in (AttemptState.FAILED, AttemptState.LOST) and attempt.reason_code is not None:
                category = REASONS[EndReason(attempt.reason_code)].category
                by_user += category is Category.USER
                by_us += category is Category.INFRASTRUCTURE
        failures = {"user": max(by_user, run.user_failures), "infrastructure": max(by_us, run.infrastructure_failures)}
        budget = json.loads(run.retries)
        if any(count > budget[kind] + 1 for kind, count in failures.items()):
            yield f"{run.id} failed {failures} times, with a budget of {budget}"


def one_attempt_succeeds(facts: Facts) -> Iterator[str]:
    """A run has SUCCEEDED by its newest attempt and by no other.

    Of a run that returned after its time limit the attempt succeeded, and the run has FAILED.
    """
    for run in facts.runs.values():
        if run.stop_reason == EndReason.RUN_LIMIT and run.state == RunState.FAILED:
            continue
        won = [row.id for row in facts.attempts_of.get(run.id, ()) if row.state == AttemptState.SUCCEEDED]
        if won != ([run.attempt_id] if run.state == RunState.SUCCEEDED else []):
            yield f"{run.id} is {run.state}, and these of its attempts succeeded: {won}"


def telemetry_ends_with_its_member(facts: Facts) -> Iterator[str]:
    """No event of a member comes after its last."""
    for member in facts.members.values():
        if member.last_seq is not None and member.acked_seq > member.last_seq:
            yield f"{member.id} sent {member.acked_seq} events, but ended with {member.last_seq}"


def output_is_stored_once(facts: Facts) -> Iterator[str]:
    """No byte of a member's output is in two chunks."""
    for overlap in facts.overlaps:
        yield f"{overlap.member_id} has bytes {overlap.first_byte} to {overlap.end_byte} of its output twice"


# what holds beside an earlier look


@dataclass
class Seen:
    """What was there at earlier looks."""

    states: dict[str, str] = field(default_factory=dict)
    """Of runs, attempts and members, as their events tell them."""
    seqs: dict[str, int] = field(default_factory=dict)
    """The newest event of each run."""
    fences: dict[str, int] = field(default_factory=dict)
    acked: dict[str, int] = field(default_factory=dict)
    """How far each member's telemetry was taken."""
    ends: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    """State and result of runs that are over."""


def events_follow_the_transitions(facts: Facts, seen: Seen) -> Iterator[str]:
    """The events of each run, attempt and member are a path in its table of transitions, so no end is left again."""
    for event in facts.events:
        if event.seq != seen.seqs.get(event.run_id, 0) + 1:
            yield f"event {event.seq} of {event.run_id} follows event {seen.seqs.get(event.run_id, 0)}"
        seen.seqs[event.run_id] = event.seq
        if event.kind in _TRANSITIONS:
            name = event.run_id if event.kind == "state" else event.body[event.kind]
            before, after = seen.states.get(name), event.body["state"]
            is_repeated = before == after and event.kind == "member"  # a phase that is no state
            if before is not None and not is_repeated and after not in _TRANSITIONS[event.kind][before]:
                yield f"{name} moved from {before} to {after}"
            seen.states[name] = after


def states_are_as_events_tell(facts: Facts, seen: Seen) -> Iterator[str]:
    """Whoever follows the events of a run knows its state, and that of its attempts and members."""
    for rows in (facts.runs, facts.attempts, facts.members):
        for name, row in rows.items():
            told = seen.states.get(name, MemberState.PENDING)
            if row.state != told:
                yield f"{name} is {row.state}, its events say {told}"


def fences_never_fall(facts: Facts, seen: Seen) -> Iterator[str]:
    """A fence grows or stays."""
    for run in facts.runs.values():
        if run.fence < seen.fences.get(run.id, 0):
            yield f"the fence of {run.id} fell from {seen.fences[run.id]} to {run.fence}"
        seen.fences[run.id] = run.fence


def telemetry_never_goes_back(facts: Facts, seen: Seen) -> Iterator[str]:
    """What was acknowledged stays so."""
    for member in facts.members.values():
        if member.acked_seq < seen.acked.get(member.id, 0):
            yield f"telemetry of {member.id} went back from {seen.acked[member.id]} to {member.acked_seq}"
        seen.acked[member.id] = member.acked_seq


def ends_are_final(facts: Facts, seen: Seen) -> Iterator[str]:
    """A run that is over stays, with its state and its result, unless somebody deletes it."""
    for name, end in seen.ends.items():
        run = facts.runs.get(name)
        if run is None and name in facts.deleted:
            continue
        if run is None or (run.state, run.result) != end:
            yield f"{name} had ended as {end}, and is {run and (run.state, run.result)}"
    seen.ends.update((run.id, (run.state, run.result)) for run in facts.runs.values() if run.state in TERMINAL_RUN)


# what holds where no clock is set back


def attempts_follow_each_other(facts: Facts) -> Iterator[str]:
    """An attempt begins when the one before has ended."""
    for attempts in facts.attempts_of.values():
        for earlier, later in pairwise(attempts):
            if earlier.ended_at is None or earlier.ended_at > later.created_at + STAMP_US:
                yield f"{earlier.id} had not ended when {later.id} was placed"


def holds_follow_each_other(facts: Facts) -> Iterator[str]:
    """At no time had a device two holders."""
    holds: defaultdict[str, list[HoldRow]] = defaultdict(list)
    for hold in sorted(facts.holds, key=lambda hold: (hold.held_at, hold.released_at or math.inf)):
        holds[hold.device_id].append(hold)
    for device, held in holds.items():
        for earlier, later in pairwise(held):
            if earlier.released_at is None or earlier.released_at > later.held_at + STAMP_US:
                yield f"{device} was held by {earlier.attempt_id} and {later.attempt_id} at once"


# what holds when all is over


def every_end_was_heard(facts: Facts) -> Iterator[str]:
    """Of a member that reported its end all telemetry has come."""
    for member in facts.members.values():
        if member.state == MemberState.EXITED and member.last_seq is not None and member.acked_seq < member.last_seq:
            yield f"{member.id} was heard up to {member.acked_seq} of {member.last_seq}"


def results_are_of_success(facts: Facts) -> Iterator[str]:
    """No run has a result that ended otherwise; a host that is lost between a result and its end leaves one."""
    for run in facts.runs.values():
        if run.result is not None and run.state in TERMINAL_RUN and run.state != RunState.SUCCEEDED:
            yield f"{run.id} is {run.state} and has a result"


Invariant = Callable[[Facts], Iterator[str]]
ALWAYS: tuple[Invariant, ...] = (
    events_are_gapless,
    one_live_attempt,
    fences_count_attempts,
    holds_are_disjoint,
    held_devices_have_a_live_holder,
    devices_are_freed_on_proof_alone,
    live_runs_have_a_timer,
    budgets_are_kept,
    one_attempt_succeeds,
    telemetry_ends_with_its_member,
    output_is_stored_once,
)
SINCE: tuple[Callable[[Facts, Seen], Iterator[str]], ...] = (
    events_follow_the_transitions,
    states_are_as_events_tell,
    fences_never_fall,
    telemetry_never_goes_back,
    ends_are_final,
)
ON_STEADY_CLOCKS: tuple[Invariant, ...] = (attempts_follow_each_other, holds_follow_each_other)
AT_REST: tuple[Invariant, ...] = (every_end_was_heard, results_are_of_success)


class Watch:
    """Looks at a database again and again."""

    def __init__(self) -> None:
        self.seen = Seen()

    def look(self, reader: Reader) -> Facts:
        """What is there now. Each look is to be checked before the next: its events are not read again."""
        return reader.read(self.seen.seqs)

    def broken(self, facts: Facts) -> Iterator[str]:
        """A sentence for each breach of what always holds."""
        for since in SINCE:
            yield from since(facts, self.seen)
        for invariant in ALWAYS:
            yield from invariant(facts)


def breaches(session: Session, *more: Invariant) -> list[str]:
    """What is broken in the whole database, looked at for the first time: what always holds, and `more`."""
    watch = Watch()
    facts = watch.look(Reader(rows_of(session)))
    return [*watch.broken(facts), *(breach for invariant in more for breach in invariant(facts))]
