"""What a large gang told of itself: as much as is kept of each of its members."""

import json
from collections import defaultdict

from sqlalchemy import insert, literal, select
from sqlalchemy.orm import Session

from drumline.contracts.arrivals import MAX_ARRIVAL_POINTS
from drumline.contracts.base import new_id
from drumline.contracts.usage import MAX_DEVICES_USED
from drumline_server.storage.models import ArrivalRecord, Hold, Profile, Stretch
from drumline_server.storage.models import Member as MemberRow
from drumline_server.telemetry.comparison import MOST_TRACED
from drumline_server.telemetry.step_times import KEPT, OLDER


def tell_of_gang(session: Session, run_id: str) -> None:
    """What each member of the gang came to, used and traced, as much as is kept."""
    owner = ("member_id", "project_id", "run_id", "attempt_id")
    of_gang = select(MemberRow.id, MemberRow.project_id, MemberRow.run_id, MemberRow.attempt_id).where(
        MemberRow.run_id == run_id
    )
    points = [[10**15] * 4] * MAX_ARRIVAL_POINTS
    older, arrived = ([[call, points] for call in calls] for calls in (range(OLDER), range(OLDER, OLDER + KEPT)))
    told = [literal(json.dumps(samples)) for samples in (arrived, older)]
    rows = of_gang.add_columns(*told, literal(1))
    session.execute(insert(ArrivalRecord).from_select([*owner, "samples", "older", "recorded_at"], rows))
    memory = {"device": f"dev_{'0' * 26}", "used_bytes": 2**50, "peak_bytes": 2**50, "limit_bytes": 2**50}
    used = {"processor_percent": 1e5, "memory_bytes": 2**50, "processes": 9, "devices": [memory] * MAX_DEVICES_USED}
    times = of_gang.add_columns(*map(literal, (0, 10**6, '{"steps": 1000000}', json.dumps(used))))
    session.execute(insert(Stretch).from_select([*owner, "begin_us", "end_us", "spent", "usage"], times))
    members = [row._asdict() for row in session.execute(of_gang)]
    held: dict[str, list[str]] = defaultdict(list)
    by_member = select(Hold.member_id, Hold.device_id).where(Hold.member_id.in_([row["id"] for row in members]))
    for member, device in session.execute(by_member):
        held[member].append(device)
    counts = {"total_bytes": 1, "rank": 0, "steps": 1, "span_ns": 2**42, "devices": 1, "file_bytes": 0}
    session.execute(insert(Profile), [
        {
            **{name: row[name] for name in owner[1:]}, **counts, "member_id": row["id"], "id": new_id("prf"),
            "seq": step + 1, "nth": step + 1, "step": step, "call": step, "traced_at": 1, "content": b"",
            "times": [[device, 2**41, 2**41, 0, 0] for device in held[row["id"]]],
        }
        for row in members
        for step in range(MOST_TRACED)
    ])  # fmt: skip
