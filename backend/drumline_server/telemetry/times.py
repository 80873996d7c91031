"""Stores what members' time went into: each stretch, and what it comes to by name."""

from collections.abc import Mapping, Sequence

from sqlalchemy import func, select

from drumline.contracts.events import TimeEvent
from drumline.contracts.spent import Spent
from drumline_server.lifecycle.members import TelemetryWrite
from drumline_server.storage.models import Attempt, Stretch
from drumline_server.storage.models.base import insert_or_ignore


def store_times(write: TelemetryWrite, events: Sequence[TimeEvent]) -> None:
    """Adds the stretches that follow what is stored; steps that an earlier attempt had done already get their name."""
    member = write.member
    reached, done = _steps_reached(write), _steps_done(write)
    until_us, total = member.spent_until_us, dict(member.spent or {})
    rows = []
    for event in events:
        length_us = event.end_us - event.begin_us
        if event.begin_us < until_us or sum(event.spent_us.values()) != length_us:
            continue  # of no worker of ours: a second counts once, and whole
        step = done if event.step is None else event.step
        spent = _with_redone(event.spent_us, done, step, reached)
        for name, us in spent.items():
            total[name] = total.get(name, 0) + us
        rows.append(
            {
                **write.owner,
                "begin_us": event.begin_us,
                "end_us": event.end_us,
                "step": event.step,
                "spent": spent,
            }
        )
        if event.begin_us > until_us:
            total[Spent.UNEXPLAINED] = total.get(Spent.UNEXPLAINED, 0) + event.begin_us - until_us
        until_us, done = event.end_us, step
    insert_or_ignore(write.session, Stretch, rows)
    member.spent, member.spent_until_us = total, until_us


def _steps_reached(write: TelemetryWrite) -> int:
    """Steps that earlier attempts had done."""
    if write.attempt.number == 1:
        return 0
    earlier = select(Attempt.id).where(Attempt.run_id == write.run.id, Attempt.id != write.attempt.id)
    return write.session.scalar(select(func.max(Stretch.step)).where(Stretch.attempt_id.in_(earlier))) or 0


def _steps_done(write: TelemetryWrite) -> int:
    """Steps done at the end of what is stored of the member."""
    newest = select(Stretch.step).where(Stretch.member_id == write.member.id).order_by(Stretch.begin_us.desc()).limit(1)
    return write.session.scalar(newest) or 0


def _with_redone(spent: Mapping[Spent, int], begin: int, end: int, reached: int) -> dict[str, int]:
    """Within a stretch steps take equally long, as far as anybody knows."""
    names = {name.value: us for name, us in spent.items()}
    steps_us = names.get(Spent.STEPS, 0)
    if not steps_us or begin >= reached:
        return names
    share = 1.0 if end <= reached else (reached - begin) / (end - begin)
    redone_us = int(steps_us * share)
    names |= {Spent.STEPS.value: steps_us - redone_us, Spent.REDONE_STEPS.value: redone_us}
    return {name: us for name, us in names.items() if us}
