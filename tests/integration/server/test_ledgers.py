"""Ledgers of many runs: what they spent by owner and host, with its cost, and what an earlier attempt had done."""

from typing import Any

import pytest

from drumline.contracts import api
from drumline_server.services.ledger import Period, Rates, View, get_ledger, list_lanes, list_sums
from support.core import Core, Member, Worker

pytestmark = pytest.mark.both_databases
US = 1_000_000


def begin(core: Core, worker: Worker) -> Member:
    core.submit(resources={"replicas": 2})
    core.clock.advance(5)
    core.schedule()
    return worker.take().start()


def tell(member: Member, *stretches: tuple[dict[str, int], int | None]) -> None:
    """What followed one another since the claim, in seconds, and the steps done by then."""
    since, events = 0, []
    for spent, step in stretches:
        until = since + sum(spent.values())
        times: dict[str, Any] = {name: seconds * US for name, seconds in spent.items()}
        events.append(member.event("time", begin_us=since * US, end_us=until * US, spent_us=times, step=step))
        since = until
    member.worker.core.clock.advance(since)
    member.send(*events)


def test_sums_of_ended_runs_are_those_of_their_own_ledgers_with_their_cost(core: Core) -> None:
    worker = core.add_worker()
    member = begin(core, worker)
    tell(member, ({"launch": 2}, None), ({"steps": 30, "input": 10}, 40))
    core.clock.advance(3)
    member.end(waited_s=2.0)
    (device, *_) = core.devices()
    rates = Rates({device.kind: 360.0}, "EUR")
    run, now = member.claimed.run, core.clock.now()
    told = core.read(lambda session: get_ledger(session, core.project_id, run, rates, now=now))
    spent = {line.name.value: (line.wall_s, line.device_s) for line in told.lines}
    assert spent["queue"] == (5.0, 0.0)
    assert {name: spent[name] for name in ("steps", "input", "ending", "server_away")} == {
        "steps": (30.0, 60.0), "input": (10.0, 20.0), "ending": (1.0, 2.0), "server_away": (2.0, 4.0),
    }  # fmt: skip
    assert (told.wall_s, told.device_s, told.cost) == pytest.approx((50.0, 90.0, 9.0))
    period = Period("host", 0, now + 1)
    sums = core.read(lambda session: list_sums(session, core.project_id, period, rates, cursor=None, limit=10)).items
    assert [(each.label, each.runs) for each in sums] == [("without a host", 1), ("alpha", 1)]
    assert (sums[1].device_s, sums[1].cost) == pytest.approx((90.0, 9.0))


def lanes(core: Core, run: str, view: View) -> tuple[api.TimeLane, ...]:
    now = core.clock.now()
    return core.read(
        lambda session: list_lanes(session, core.project_id, run, view, now=now, cursor=None, limit=8)
    ).items


def test_a_lane_has_every_second_once_in_its_order_and_narrow_pieces_together(core: Core) -> None:
    worker = core.add_worker()
    member = begin(core, worker)
    steps = [({"steps": 2}, number) for number in range(1, 4)]
    tell(member, ({"launch": 2}, None), *steps, ({"checkpoint": 1}, 3), ({"steps": 3, "input": 1}, 5))
    core.clock.advance(3)
    member.end(waited_s=2.0)
    run = member.claimed.run
    (lane,) = lanes(core, run, View(0.0, None, 400))
    told = [(piece.begin_s, piece.end_s, piece.attempt, {name.value: us for name, us in piece.spent.items()})
            for piece in lane.pieces]  # fmt: skip
    assert told == [
        (0, 5, None, {"queue": 5}), (5, 7, 1, {"launch": 2}), (7, 13, 1, {"steps": 6}), (13, 14, 1, {"checkpoint": 1}),
        (14, 18, 1, {"steps": 3, "input": 1}), (18, 19, 1, {"ending": 1}), (19, 21, 1, {"server_away": 2}),
    ]  # fmt: skip
    (seen,) = lanes(core, run, View(8.0, 14.5, 400))
    assert [(piece.begin_s, piece.end_s) for piece in seen.pieces] == [(7, 13), (13, 14), (14, 18)]
    (coarse,) = lanes(core, run, View(0.0, None, 2))
    assert [(piece.begin_s, piece.end_s) for piece in coarse.pieces] == [(0, 11), (11, 21)]
    assert sum(sum(piece.spent.values()) for piece in coarse.pieces) == 21
