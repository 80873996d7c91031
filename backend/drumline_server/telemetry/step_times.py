"""What the time of a step went into: when the members of a gang come to their collectives, and traced calls.

All members leave a collective at nearly the same moment. From there each counts on its own clock until its devices are
done with the next one, and so the one that waits the least came last. Clocks of two hosts are never compared. Arrivals
are kept as each measured them, and compared step by step.

A traced call of `strategy.run` is stored with what jax.profiler wrote, listed, and read one by one.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from pydantic import BaseModel
from sqlalchemy import select, tuple_, update
from sqlalchemy.orm import Session, undefer

from drumline.contracts import api
from drumline.contracts.base import new_id, to_micros
from drumline.contracts.events import ArrivalsEvent, ProfileEvent
from drumline.contracts.profiles import MAX_PROFILES, MAX_PROFILES_BYTES, DeviceTime, Lanes
from drumline_server.base.callers import decode_cursor, encode_cursor, page_of
from drumline_server.base.errors import NotFoundError
from drumline_server.lifecycle.members import TelemetryWrite
from drumline_server.storage import runs
from drumline_server.storage.blobs import Content
from drumline_server.storage.history import Loss, record_gap
from drumline_server.storage.models import ArrivalRecord, Attempt, Member, PlacementRecord, Profile, Run
from drumline_server.storage.models.base import insert_or_ignore
from drumline_server.storage.runs import hosts_by_id, members_of, require_run, the_attempt
from drumline_server.telemetry.logs import list_lost

KEPT = 32
"""Newest steps of each member that are kept, and compared."""
OLDER = 96
"""Earlier ones, thinned out."""
_MOST_POINTS = 8_192
"""Compared at once, which takes some 10 ms: of a gang with more members fewer steps are."""
LEAST = 8
"""Compared steps below which nobody is named."""
NAMED_PERCENT = 10.0
_NAMED_SHARE = 0.8
"""Of the compared steps a straggler came last in so many: by chance one of two would in half of them."""
_MOST_JUDGED = 16
"""In larger gangs the first member's news alone has all compared: it comes as often as each other's."""
_MS = 1_000


Point = Sequence[int]
"""As `drumline.contracts.arrivals.ArrivalPoint`, in its order: input, own code, dispatch, rest."""
Samples = Mapping[int, Sequence[Point]]
"""By call, the points of one member."""
MOST_BYTES = 2 * MAX_PROFILES_BYTES
"""Of one member, lanes included: its runner keeps to less."""
_QUICKLY = 1
Stored = dict[str, Any]  # Any: what a row has in its columns


class StepTimes(NamedTuple):
    """One member's part in one compared step, in microseconds. `gain_us`: 0 unless it came last."""

    input_us: int
    own_code_us: int
    dispatch_us: int
    wait_us: int
    devices_us: int
    gain_us: int

    @property
    def arrival_us(self) -> int:
        """Until it came, over all collectives of the step."""
        return self.input_us + self.own_code_us + self.dispatch_us

    @property
    def step_us(self) -> int:
        """How long the step took, as this member measured it."""
        return self.arrival_us + self.wait_us + self.devices_us


@dataclass(frozen=True, slots=True)
class Comparison:
    """The steps that every member measured, oldest first; of each the members' times, by rank, and who came last."""

    calls: tuple[int, ...]
    steps: tuple[tuple[StepTimes, ...], ...]
    last: tuple[int, ...]

    def arrived_last(self, rank: int) -> int:
        """In how many of the steps that one did."""
        return self.last.count(rank)

    @property
    def step_ms(self) -> float:
        """What a step takes."""
        return median(one.step_us for step in self.steps for one in step) / _MS

    @property
    def error_ms(self) -> float:
        """By how much members differ in how long the same step took: the ends of its collectives are the same."""
        spreads = [max(one.step_us for one in step) - min(one.step_us for one in step) for step in self.steps]
        return median(spreads) / _MS


def thin_out(samples: Sequence[Any]) -> list[Any]:  # Any: a call and its points
    """At most `OLDER` of them: calls that a power of two divides, so that all members keep the same ones."""
    divisor = 1
    while len(samples) > OLDER:
        divisor *= 2
        samples = [sample for sample in samples if sample[0] % divisor == 0]
    return list(samples)


def shared_calls(members: Sequence[Samples]) -> list[int]:
    """Those that all of the members measured, oldest first."""
    shared = set.intersection(*(set(one) for one in members)) if members else set()
    return [call for call in sorted(shared) if len({len(one[call]) for one in members}) == 1]


def compare(members: Sequence[Samples], calls: Sequence[int] | None = None) -> Comparison:
    """The newest of the calls that all of the members measured, which are in the order of their ranks."""
    calls = shared_calls(members) if calls is None else calls
    if calls:
        most = _MOST_POINTS // (len(members) * len(members[0][calls[-1]]))
        calls = calls[-max(LEAST, min(KEPT, most)) :]
    steps = tuple(_compare_step([one[call] for one in members]) for call in calls)
    last = tuple(max(range(len(step)), key=lambda rank: step[rank].gain_us) for step in steps)
    return Comparison(tuple(calls), steps, last)


def _compare_step(members: Sequence[Sequence[Point]]) -> tuple[StepTimes, ...]:
    waits, gains, devices = [0] * len(members), [0] * len(members), 0
    for points in zip(*members, strict=True):
        rests = [rest for _, _, _, rest in points]
        least, second = sorted(rests)[:2]
        devices += least
        gains[rests.index(least)] += second - least
        waits = [wait + rest - least for wait, rest in zip(waits, rests, strict=True)]
    parts = [list(zip(*points, strict=True)) for points in members]
    return tuple(
        StepTimes(sum(own[0]), sum(own[1]), sum(own[2]), waits[rank], devices, gains[rank])
        for rank, own in enumerate(parts)
    )


def find_straggler(found: Comparison, host_names: Sequence[str]) -> api.Straggler | None:
    """Who came last in four of five steps, where that costs 10 % of a step, and more than the clocks disagree."""
    if len(found.calls) < LEAST:
        return None
    rank = max(set(found.last), key=found.arrived_last)
    last, gain_ms = found.arrived_last(rank), median(step[rank].gain_us for step in found.steps) / _MS
    is_usual = last >= _NAMED_SHARE * len(found.calls)
    if not is_usual or gain_ms <= found.error_ms or 100 * gain_ms < NAMED_PERCENT * found.step_ms:
        return None
    return api.Straggler(
        rank=rank,
        host_name=host_names[rank] if rank < len(host_names) else "",
        gain_percent=100 * gain_ms / found.step_ms,
        gain_ms=gain_ms,
        step_ms=found.step_ms,
        error_ms=found.error_ms,
        arrived_last=last,
        compared=len(found.calls),
    )


def store_arrivals(write: TelemetryWrite, events: Sequence[ArrivalsEvent]) -> None:
    """Keeps the newest steps of the member, and whom the run waits for."""
    session, member = write.session, write.member
    record = session.get(ArrivalRecord, member.id)
    if record is None:
        record = ArrivalRecord(**write.owner, samples=[], recorded_at=write.now)
        session.add(record)
    new = [
        [sample.call, [[p.input_us, p.own_code_us, p.dispatch_us, p.rest_us] for p in sample.points]]
        for event in events
        for sample in event.samples
    ]
    samples = [*record.samples, *new]
    record.samples, record.recorded_at = samples[-KEPT:], write.now
    if len(samples) > KEPT:
        record.older = thin_out([*(record.older or []), *samples[:-KEPT]])
    session.flush()
    gang = members_of(session, write.attempt.id)
    if member.rank and len(gang) > _MOST_JUDGED:
        return
    found = find_straggler(compare(_samples_of(session, gang, ArrivalRecord.samples)), write.run.hosts)
    told = None if found is None else found.model_dump(mode="json")
    if member.rank == 0 or told != write.run.straggler:
        session.execute(update(Run).where(Run.id == write.run.id).values(straggler=told))
        write.record("arrivals", {"straggler": told})


def _samples_of(session: Session, gang: Sequence[Member], *columns: Any) -> list[Samples]:  # Any: of a record
    if len(gang) < 2:  # a program may send whatever it likes
        return []
    query = select(ArrivalRecord.member_id, *columns)
    rows = session.execute(query.where(ArrivalRecord.member_id.in_([one.id for one in gang])))
    kept = {member: dict(sample for column in some for sample in column or ()) for member, *some in rows}
    return [kept.get(one.id, {}) for one in gang]


class ArrivalsOf(NamedTuple):
    """Of the attempt, the newest if unnamed; the newest steps, or those up to a call of `strategy.run`."""

    attempt: str | None
    call: int | None


def read_arrivals(
    session: Session, project_id: str, run_id: str, wanted: ArrivalsOf, *, cursor: str | None, limit: int
) -> api.Arrivals:
    """Of earlier steps at most 8 are compared, as fewer of them are kept. Raises NotFoundError."""
    run = require_run(session, project_id, run_id)
    after = -1 if cursor is None else int(decode_cursor(cursor, int)[0])
    attempt = the_attempt(session, run, wanted.attempt)
    if attempt is None:
        return api.Arrivals(run=run.id, attempt=None, executor=None, unmeasured="nothing_told", compared=0, members=())
    gang = members_of(session, attempt.id)
    samples = _samples_of(session, gang, ArrivalRecord.older, ArrivalRecord.samples)
    calls = shared_calls(samples)
    if wanted.call is None:  # of what the run's own progress says
        found = compare(_samples_of(session, gang, ArrivalRecord.samples))
    else:
        found = compare(samples, [call for call in calls if call <= wanted.call][-LEAST:])
    names = {id_: host.name for id_, host in hosts_by_id(session, [one.host_id for one in gang]).items()}
    shown = [one for one in gang if one.rank > after]
    is_measured = bool(found.calls)
    return api.Arrivals(
        run=run.id,
        attempt=attempt.id,
        executor=_executor(session, attempt),
        unmeasured=None if is_measured else "executor" if len(gang) == 1 else "nothing_told",
        compared=len(found.calls),
        call=found.calls[-1] if is_measured else None,
        calls=tuple(calls),
        step_ms=found.step_ms if is_measured else None,
        error_ms=found.error_ms if is_measured else None,
        straggler=find_straggler(found, [names[one.host_id] for one in gang]),
        members=tuple(_member(one, names[one.host_id], found) for one in shown[:limit]),
        next=encode_cursor(shown[limit - 1].rank) if len(shown) > limit else None,
    )


def _executor(session: Session, attempt: Attempt) -> str | None:
    query = select(PlacementRecord.executor).where(PlacementRecord.attempt_id == attempt.id)
    return session.scalars(query.order_by(PlacementRecord.member_id).limit(1)).first()


def _member(member: Member, host_name: str, found: Comparison) -> api.MemberArrival:
    steps = [step[member.rank] for step in found.steps]
    return api.MemberArrival(
        rank=member.rank,
        host=member.host_id,
        host_name=host_name,
        arrived_last=found.arrived_last(member.rank),
        latest=_times(steps[-1:]),
        median=_times(steps),
    )


def _times(steps: Sequence[StepTimes]) -> api.ArrivalTimes | None:
    """The median of each time."""
    if not steps:
        return None
    return api.ArrivalTimes(
        arrival_ms=median(one.arrival_us for one in steps) / _MS,
        input_ms=median(one.input_us for one in steps) / _MS,
        own_code_ms=median(one.own_code_us for one in steps) / _MS,
        dispatch_ms=median(one.dispatch_us for one in steps) / _MS,
        wait_ms=median(one.wait_us for one in steps) / _MS,
        devices_ms=median(one.devices_us for one in steps) / _MS,
    )


class _Content(BaseModel):
    """What is compressed."""

    devices: tuple[DeviceTime, ...]
    content: Lanes


def store_profiles(write: TelemetryWrite, events: Sequence[ProfileEvent]) -> None:
    """Adds a row for each; beyond what one member may trace they are a gap."""
    newest = select(Profile.nth, Profile.total_bytes).where(Profile.member_id == write.member.id)
    known = write.session.execute(newest.order_by(Profile.seq.desc()).limit(1)).one_or_none()
    nth, total = (known.nth, known.total_bytes) if known else (0, 0)
    rows: list[Stored] = []
    for event in events:
        row = _profile_columns(event)
        total += len(row["content"]) + len(row["file"] or b"")
        if nth == MAX_PROFILES or total > MOST_BYTES:
            break
        nth += 1
        where = {"id": new_id("prf"), "nth": nth, "total_bytes": total, "rank": write.member.rank}
        rows.append({**write.owner, **where, **row})
    insert_or_ignore(write.session, Profile, rows)
    if lost := len(events) - len(rows):
        detail = f"one process may trace {MAX_PROFILES} calls, of {MOST_BYTES} bytes"
        record_gap(write.session, write.member, Loss("profile", lost, detail=detail), now=write.now)
    if rows:
        write.record("profile", {"step": rows[-1]["step"], "count": len(rows)})


def _profile_columns(event: ProfileEvent) -> Stored:
    content = event.model_dump_json(include={"devices", "content"}).encode()
    names = ("computing_ns", "collective_ns", "both_ns", "idle_ns")
    many = len(event.devices)
    means = {name: sum(getattr(each, name) for each in event.devices) // many if many else None for name in names}
    return {
        **means,
        "seq": event.seq,
        "step": event.step,
        "call": event.call,
        "steps": event.steps,
        "span_ns": event.span_ns,
        "devices": many,
        "unmeasured": event.unmeasured,
        "file_bytes": event.file_bytes,
        "file_left_out": event.file_left_out,
        "traced_at": to_micros(event.at),
        "content": zlib.compress(content, _QUICKLY),
        "file": event.read(),
        "times": [[one.device, *(getattr(one, name) for name in names)] for one in event.devices],
    }


def list_profiles(
    session: Session, project_id: str, run_id: str, attempt: str | None, *, cursor: str | None, limit: int
) -> api.Profiles:
    """All of the run, or of one attempt, the newest step first; what was rolled back too. Raises NotFoundError."""
    run = require_run(session, project_id, run_id)
    query = select(Profile).where(Profile.run_id == run.id)
    if attempt is not None:
        runs.the_attempt(session, run, attempt)
        query = query.where(Profile.attempt_id == attempt)
    if cursor is not None:
        query = query.where(tuple_(Profile.step, Profile.id) < tuple_(*decode_cursor(cursor, int, str)))
    rows = session.scalars(query.order_by(Profile.step.desc(), Profile.id.desc()).limit(limit + 1)).all()
    page = page_of(
        rows, limit, item=lambda row: api.Profile.model_validate(_view_profile(row)), key=lambda row: (row.step, row.id)
    )
    lost = list_lost(session, run.id, attempt, "profile") if cursor is None else ()
    return api.Profiles(items=page.items, next=page.next, lost=lost)


def get_lanes(session: Session, project_id: str, run_id: str, profile_id: str) -> api.ProfileLanes:
    """What each device did. Raises NotFoundError."""
    row = _profile_row(session, project_id, run_id, profile_id, Profile.content)
    found = _Content.model_validate_json(zlib.decompress(row.content))
    return api.ProfileLanes.model_validate(
        {
            **_view_profile(row),
            "times": found.devices,
            "operations": found.content.operations,
            "lanes": found.content.lanes,
            "left_out": found.content.left_out,
            "devices_left_out": found.content.devices_left_out,
        }
    )


class ProfileFile(NamedTuple):
    """A zip of what jax.profiler wrote, and how to call it."""

    name: str
    content: Content


def get_file(session: Session, project_id: str, run_id: str, profile_id: str) -> ProfileFile:
    """What jax.profiler wrote. Raises NotFoundError, also where that is left out."""
    row = _profile_row(session, project_id, run_id, profile_id, Profile.file)
    if row.file is None:
        raise NotFoundError("file of profile", profile_id)
    content = Content("file of profile", profile_id, row.file, row.location)
    return ProfileFile(f"{run_id}-step-{row.step}-rank-{row.rank}.zip", content)


def _profile_row(
    session: Session, project_id: str, run_id: str, profile_id: str, held: Any
) -> Profile:  # Any: a column
    require_run(session, project_id, run_id)
    query = select(Profile).where(Profile.id == profile_id, Profile.run_id == run_id).options(undefer(held))
    row = session.scalars(query).one_or_none()
    if row is None:
        raise NotFoundError("profile", profile_id)
    return row


def _view_profile(row: Profile) -> Stored:
    times = ("span_ns", "computing_ns", "collective_ns", "both_ns", "idle_ns", "unmeasured")
    told = ("rank", "step", "call", "steps", "devices", *times, "file_bytes", "file_left_out")
    ids = {"id": row.id, "run": row.run_id, "attempt": row.attempt_id, "at": row.traced_at}
    return {**ids, **{name: getattr(row, name) for name in told}}
