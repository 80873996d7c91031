"""Whom a run over several hosts waits for: as its members measured it, each on its own clock."""

from itertools import pairwise

import pytest

from drumline.contracts import api
from drumline.contracts.reasons import EndReason
from drumline.contracts.states import RunState
from drumline_server.telemetry.step_times import KEPT, LEAST, OLDER, ArrivalsOf, read_arrivals
from support.core import Core, Member

STEP_US = 100_000


def gang(core: Core) -> tuple[str, list[Member]]:
    """A run over three hosts."""
    workers = [core.add_worker(name, devices=4) for name in ("alpha", "beta", "gamma")]
    run = core.submit(resources={"replicas": 12}, retries={"user": 1, "infrastructure": 1}).id
    core.schedule()
    return run, [worker.take().start() for worker in workers]


def tell(member: Member, calls: range, own_code_us: int, *, step_us: int = STEP_US) -> None:
    """Steps in which the member computes so long before it comes."""
    rest_us = step_us - own_code_us - 1_000
    point = {"input_us": 1_000, "own_code_us": own_code_us, "dispatch_us": 0, "rest_us": rest_us}
    for start in range(calls.start, calls.stop, 64):
        some = calls[start - calls.start :][:64]
        member.send(member.event("arrivals", samples=[{"call": call, "points": [point]} for call in some]))


def read(core: Core, run: str, cursor: str | None = None, limit: int = 50, call: int | None = None) -> api.Arrivals:
    wanted = ArrivalsOf(None, call)
    return core.read(lambda session: read_arrivals(session, core.project_id, run, wanted, cursor=cursor, limit=limit))


@pytest.mark.both_databases
def test_the_member_that_waits_least_is_named_with_what_the_others_wait_for_it(core: Core) -> None:
    run, (first, second, third) = gang(core)
    assert read(core, run).unmeasured == "nothing_told"
    tell(first, range(80), 4_000)
    tell(second, range(80), 60_000)
    tell(third, range(80), 10_000)

    found = read(core, run)
    assert (found.unmeasured, found.compared, found.call, found.step_ms, found.error_ms) == (None, KEPT, 79, 100, 0)
    assert [one.arrived_last for one in found.members] == [0, KEPT, 0]
    middle = [one.median for one in found.members]
    assert [one and (one.arrival_ms, one.input_ms, one.own_code_ms, one.wait_ms) for one in middle] == [
        (5, 1, 4, 56), (61, 1, 60, 0), (11, 1, 10, 50)
    ]  # fmt: skip
    assert {one and one.devices_ms for one in middle} == {39}
    assert found.straggler is not None
    assert (found.straggler.host_name, found.straggler.gain_ms, found.straggler.gain_percent) == ("beta", 50, 50)
    assert core.run(run).progress.straggler == found.straggler == core.runs().items[0].progress.straggler

    page = read(core, run, limit=2)
    assert [one.rank for one in page.members] == [0, 1]
    assert [one.rank for one in read(core, run, page.next, 2).members] == [2]


@pytest.mark.both_databases
def test_who_came_last_at_an_earlier_step_can_still_be_asked_for(core: Core) -> None:
    run, (first, second, third) = gang(core)
    late, slow = 60_000, 4_000
    for start in range(0, 10_240, 64):  # all tell in turns, as they do
        calls, was_early = range(start, start + 64), start < 5_120
        tell(first, calls, slow)
        tell(second, calls, late if was_early else slow)
        tell(third, calls, slow if was_early else late)

    now = read(core, run)
    assert now.straggler is not None
    assert (now.straggler.host_name, now.compared, now.call) == ("gamma", KEPT, 10_239)
    assert now.calls[-KEPT:] == tuple(range(10_208, 10_240))
    assert now.calls[0] == 0
    assert OLDER / 2 < len(now.calls) - KEPT <= OLDER
    assert len({after - before for before, after in pairwise(now.calls[: OLDER // 2])}) == 1

    then = read(core, run, call=5_000)
    assert then.straggler is not None
    assert (then.straggler.host_name, then.compared, then.calls) == ("beta", LEAST, now.calls)
    assert then.call is not None
    assert 4_700 < then.call <= 5_000
    assert core.run(run).progress.straggler == now.straggler


def test_only_steps_that_all_members_measured_are_compared(core: Core) -> None:
    run, members = gang(core)
    for member, calls in zip(members, (range(0, 40, 2), range(0, 40, 4), range(40)), strict=True):
        samples = [{"call": call, "points": [dict.fromkeys(_NAMES, 1_000)]} for call in calls]
        member.send(member.event("arrivals", samples=samples))

    assert (read(core, run).compared, read(core, run).call) == (8, 36)  # the third keeps the last 32


_NAMES = ("input_us", "own_code_us", "dispatch_us", "rest_us")


@pytest.mark.parametrize(
    ("late_us", "third_step_us", "is_named"),
    [
        pytest.param((60_000,) * 10, STEP_US, True, id="always"),
        pytest.param((60_000,) * 7 + (4_000,) * 3, STEP_US, False, id="in 7 of 10 steps"),
        pytest.param((12_000,) * 10, STEP_US, False, id="by 8 % of a step"),
        pytest.param((30_000,) * 10, STEP_US + 40_000, False, id="by less than the clocks disagree"),
    ],
)
def test_nobody_is_named_for_little_or_by_chance(
    core: Core, late_us: tuple[int, ...], third_step_us: int, is_named: bool
) -> None:
    run, (first, second, third) = gang(core)
    for call, late in enumerate(late_us):
        this = range(call, call + 1)
        tell(first, this, 4_000 if late > 4_000 else 60_000)
        tell(second, this, late)
        tell(third, this, 4_000, step_us=third_step_us)
    assert (core.run(run).progress.straggler is not None) is is_named


def test_a_run_that_waits_for_its_next_attempt_waits_for_no_member(core: Core) -> None:
    run, members = gang(core)
    for member, own_code_us in zip(members, (4_000, 60_000, 4_000), strict=True):
        tell(member, range(10), own_code_us)
    assert core.run(run).progress.straggler is not None

    for member in members:
        member.end(EndReason.KILLED, signal=9, exit_code=None)

    assert core.run(run).state is RunState.RETRY_WAIT
    assert core.run(run).progress.straggler is None


def test_of_one_process_no_member_is_measured_and_it_is_said_why(core: Core) -> None:
    worker = core.add_worker()
    run = core.submit(resources={"replicas": 8}).id
    assert read(core, run).unmeasured == "nothing_told"
    core.schedule()
    member = worker.take().start()
    replicas = [{"replica": 0, "devices": [member.claimed.devices[0].device]}]
    member.send(member.event("placement", strategy="MirroredStrategy", executor="pmap", replicas=replicas))

    found = read(core, run)
    assert (found.unmeasured, found.executor, found.straggler) == ("executor", "pmap", None)
    assert [(one.rank, one.latest, one.median) for one in found.members] == [(0, None, None)]
