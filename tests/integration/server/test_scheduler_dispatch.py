"""Applying placements: all of a gang or nothing, whoever else schedules at the same time."""

import pytest
from sqlalchemy import select

from drumline.contracts.reasons import EndReason
from drumline.contracts.states import DeviceState, RunState
from drumline_server.scheduling.dispatch import dispatch
from drumline_server.scheduling.placement import Placement, place
from drumline_server.scheduling.snapshot import take_snapshot
from drumline_server.storage.models import Hold
from support.core import CLAIM_S, GANG, TERMS, Core


def planned(core: Core) -> list[Placement]:
    now = core.clock.now()
    return list(core.read(lambda session: place(take_snapshot(session, core.project_id, TERMS, now=now))).placements)


def apply(core: Core, placement: Placement) -> bool:
    return core.write(lambda session: dispatch(session, placement, claim_s=CLAIM_S, now=core.clock.now()))


def test_placed_run_has_attempt_member_and_holds(core: Core) -> None:
    core.add_worker()
    run = core.submit(resources={"replicas": 3})

    assert core.schedule() == [run.id]

    shown = core.run(run.id)
    holds = core.read(lambda session: list(session.scalars(select(Hold).order_by(Hold.replica))))
    assert (shown.state, shown.attempts, shown.hosts) == (RunState.PLACED, 0, ("alpha",))
    assert [hold.replica for hold in holds] == [0, 1, 2]
    assert core.device_states() == ["HELD"] * 3 + ["FREE"] * 5


def test_placement_of_a_run_that_was_cancelled_meanwhile_changes_nothing(core: Core) -> None:
    core.add_worker()
    run = core.submit(resources={"replicas": 3})
    (placement,) = planned(core)
    core.cancel(run.id)

    assert not apply(core, placement)
    assert core.device_states() == ["FREE"] * 8
    assert core.attempts(run.id) == ()


def test_placement_on_a_device_that_was_taken_meanwhile_changes_nothing(core: Core) -> None:
    core.add_worker(devices=2)
    first = core.submit(resources={"replicas": 2}, priority=1)
    (placement,) = planned(core)
    second = core.submit(resources={"replicas": 1}, priority=2)
    assert core.schedule() == [second.id]

    assert not apply(core, placement)
    assert core.run(first.id).state is RunState.QUEUED
    assert core.run(first.id).last_event == 1
    assert core.device_states() == [DeviceState.HELD, DeviceState.FREE]


def test_higher_priority_goes_first_and_then_the_older(core: Core) -> None:
    core.add_worker(devices=2)
    core.submit(priority=0)
    core.clock.advance(1)
    low = core.submit(priority=0)
    core.clock.advance(1)
    high = core.submit(priority=9)

    assert core.schedule()[0] == high.id
    why = core.run(low.id).why
    assert why is not None
    assert (why.rule, why.position) == ("devices_busy", 1)


def test_run_is_retried_on_another_host(core: Core) -> None:
    first = core.add_worker("alpha")
    run = core.submit()
    core.schedule()
    first.take().start().end(EndReason.KILLED)
    core.add_worker("beta")
    core.clock.advance(5)
    first.beat()
    core.reap()

    assert core.schedule() == [run.id]
    assert core.run(run.id).hosts == ("beta",)


def test_projects_do_not_share_hosts(core: Core) -> None:
    stranger = core.add_project("stranger")
    core.add_worker(project_id=stranger)
    run = core.submit(wait_for_devices=True)

    assert core.schedule() == []
    why = core.run(run.id).why
    assert why is not None
    assert why.rule == "no_hosts"


def test_host_that_fell_silent_gets_no_new_run(core: Core) -> None:
    core.add_worker()
    core.submit()
    core.clock.advance(16)

    assert core.schedule() == []


@pytest.mark.parametrize(
    "options",
    [{}, {"executor": "spmd"}, {"batch": "per_replica"}, {"cross_device_ops": "hierarchical"}, {"collectives": "jax"}],
    ids=str,
)
def test_gang_over_two_hosts_has_a_member_on_each_and_replicas_numbered_through(
    core: Core, options: dict[str, str]
) -> None:
    workers = [core.add_worker(name, devices=2) for name in ("alpha", "beta")]
    run = core.submit(job={"strategy": {"kind": "mirrored", **options}}, resources={"replicas": 4})

    assert core.schedule() == [run.id]

    members = core.attempts(run.id)[0].members
    claimed = {member.rank: workers[member.rank].take().claimed for member in members}
    assert [(member.rank, member.host_name) for member in members] == [(0, "alpha"), (1, "beta")]
    assert core.run(run.id).hosts == ("alpha", "beta")
    assert {rank: [device.replica for device in claim.devices] for rank, claim in claimed.items()} == {
        0: [0, 1],
        1: [2, 3],
    }
    assert {claim.rendezvous.size for claim in claimed.values()} == {2}


@pytest.mark.parametrize(
    "strategy",
    [
        {"kind": "central_storage"},
        {"kind": "mirrored", "executor": "mpmd"},
        {"kind": "mirrored", "executor": "pmap", "collectives": "jax"},
        {"kind": "tpu"},
    ],
)
def test_strategy_that_cannot_span_hosts_waits_for_one(core: Core, strategy: dict[str, str]) -> None:
    for name in ("alpha", "beta"):
        core.add_worker(name, devices=2)
    core.submit(resources={"replicas": 4}, job={"strategy": strategy}, wait_for_devices=True)

    assert core.schedule() == []


def test_gang_of_which_one_host_is_drained_meanwhile_is_not_placed_at_all(core: Core) -> None:
    alpha, beta = (core.add_worker(name, devices=2) for name in ("alpha", "beta"))
    run = core.submit(job=GANG, resources={"replicas": 4})
    (placement,) = planned(core)
    beta.beat(draining=True)
    alpha.beat()

    assert not apply(core, placement)
    assert core.device_states() == ["FREE"] * 4
    assert core.attempts(run.id) == ()
