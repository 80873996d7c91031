"""Placement: whole gangs on real devices, in order of the queue, without starving the large."""

import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType

import pytest

from drumline.slices import Blocks
from drumline_server.base.shapes import Shape
from drumline_server.scheduling.placement import FreeDevice, Placement, QueuedRun, Release, Snapshot, place

HOUR = 3_600_000_000


def free(host: str, count: int, platform: str = "cpu", first: int = 0) -> tuple[FreeDevice, ...]:
    return tuple(
        FreeDevice(f"{host}-{platform}-{index}", host, platform, index) for index in range(first, first + count)
    )


def run(
    name: str,
    replicas: int,
    *,
    devices_per_replica: int = 1,
    platform: str = "any",
    spread: str = "pack",
    limit_us: int | None = HOUR,
    avoid: str | None = None,
) -> QueuedRun:
    return QueuedRun(name, Shape(replicas, devices_per_replica, platform, spread), limit_us, avoid)


def held(host: str, count: int, *, at: int | None = HOUR, by: str = "holder", platform: str = "cpu") -> Release:
    return Release(by, host, platform, count, at)


def placed(devices: tuple[FreeDevice, ...], *queue: QueuedRun, releases: tuple[Release, ...] = ()) -> list[Placement]:
    return list(place(Snapshot(now=0, free=devices, releases=releases, queue=queue)).placements)


def where(placements: list[Placement]) -> dict[str, str]:
    """The hosts of each run, by rank."""
    return {placement.run_id: " ".join(member.host_id for member in placement.members) for placement in placements}


def sizes(placement: Placement) -> dict[str, int]:
    """Devices by host."""
    return {member.host_id: len(member.devices) for member in placement.members}


def test_gang_takes_devices_in_order_with_replicas_and_logical_positions() -> None:
    (placement,) = placed(free("a", 4), run("r", 2, devices_per_replica=2))

    (member,) = placement.members
    assert [(device.device_id, device.replica, device.logical) for device in member.devices] == [
        ("a-cpu-0", 0, 0),
        ("a-cpu-1", 0, 1),
        ("a-cpu-2", 1, 0),
        ("a-cpu-3", 1, 1),
    ]


def test_gang_too_large_for_any_host_has_a_member_on_each_of_several_and_replicas_numbered_through() -> None:
    (placement,) = placed((*free("a", 2), *free("b", 4)), run("r", 3, devices_per_replica=2))

    assert [
        (member.host_id, [(device.replica, device.logical) for device in member.devices])
        for member in placement.members
    ] == [("b", [(0, 0), (0, 1), (1, 0), (1, 1)]), ("a", [(2, 0), (2, 1)])]


def test_gang_is_never_split_over_platforms() -> None:
    assert placed((*free("a", 4), *free("b", 4, "gpu")), run("r", 5)) == []


def test_replica_is_never_split_over_hosts_however_many_devices_there_are_in_sum() -> None:
    assert placed((*free("a", 3), *free("b", 3)), run("r", 3, devices_per_replica=2)) == []


@pytest.mark.parametrize(
    ("spread", "shares"),
    [("pack", {"a": 6, "c": 1}), ("balance", {"a": 4, "b": 3}), ("one_host", None)],
)
def test_spread_decides_how_a_gang_is_split(spread: str, shares: dict[str, int] | None) -> None:
    placements = placed((*free("a", 6), *free("b", 5), *free("c", 2)), run("r", 7, spread=spread))

    assert [sizes(placement) for placement in placements] == ([shares] if shares else [])


def test_equal_shares_give_way_to_a_host_with_little_room() -> None:
    (placement,) = placed((*free("a", 6), *free("b", 5), *free("c", 2)), run("r", 13, spread="balance"))

    assert sizes(placement) == {"a": 6, "b": 5, "c": 2}


def test_one_host_is_preferred_to_several_whatever_the_spread() -> None:
    devices = (*free("a", 8), *free("b", 2), *free("c", 2))

    assert where(placed(devices, run("r", 4, spread="balance"))) == {"r": "a"}


@pytest.mark.parametrize(
    ("fleet", "members", "shares"),
    [
        ({"a": 8, "b": 2, "c": 2}, 2, {"a": 2, "b": 2}),
        ({"a": 8, "b": 2, "c": 1}, 3, {"a": 2, "b": 1, "c": 1}),
        ({"a": 3, "b": 1}, 2, {"a": 3, "b": 1}),
        ({"a": 8}, 2, {"a": 4}),
        ({"a": 2, "b": 1, "c": 1}, 2, {"a": 2, "b": 1, "c": 1}),
        ({"a": 8, "b": 8, "c": 8, "d": 8, "e": 8}, 5, {"a": 4}),
    ],
    ids=str,
)
def test_what_so_many_members_saved_goes_on_over_as_many_hosts_where_it_can(
    fleet: dict[str, int], members: int, shares: dict[str, int]
) -> None:
    devices = tuple(device for host, count in fleet.items() for device in free(host, count))
    (placement,) = placed(devices, replace(run("r", 4), members=members))

    assert sizes(placement) == shares
    assert where(placed(devices, replace(run("r", 2, spread="one_host"), members=members))) == {
        "r": min((host for host in fleet if fleet[host] >= 2), key=lambda host: (fleet[host], host))
    }


@pytest.mark.parametrize(("spread", "host"), [("pack", "small"), ("one_host", "small"), ("balance", "big")])
def test_spread_chooses_between_hosts_that_fit(spread: str, host: str) -> None:
    devices = (*free("big", 8), *free("small", 2))

    assert where(placed(devices, run("r", 2, spread=spread))) == {"r": host}


@pytest.mark.parametrize(("hosts", "chosen"), [(("a", "b"), "b"), (("a",), "a")])
def test_host_of_the_last_failure_is_taken_only_if_no_other_fits(hosts: tuple[str, ...], chosen: str) -> None:
    devices = tuple(device for host in hosts for device in free(host, 2))

    assert where(placed(devices, run("r", 2, avoid="a"))) == {"r": chosen}


def test_any_platform_prefers_accelerators_and_a_named_one_is_kept() -> None:
    devices = (*free("a", 2), *free("a", 2, "gpu"))
    placements = placed(devices, run("any", 1), run("cpu", 1, platform="cpu"), run("tpu", 1, platform="tpu"))

    assert [(placement.run_id, placement.members[0].devices[0].device_id) for placement in placements] == [
        ("any", "a-gpu-0"),
        ("cpu", "a-cpu-0"),
    ]


def test_queue_is_served_in_order() -> None:
    placements = placed(free("a", 3), run("first", 2), run("second", 1), run("third", 1))

    assert [placement.run_id for placement in placements] == ["first", "second"]


def test_long_run_does_not_pass_a_blocked_gang_on_its_host() -> None:
    holds = (held("a", 4),)

    assert placed(free("a", 4), run("large", 8), run("small", 1, limit_us=2 * HOUR), releases=holds) == []


def test_short_run_fills_the_gap_before_the_gang_can_start() -> None:
    holds = (held("a", 4),)
    placements = placed(free("a", 4), run("large", 8), run("short", 1, limit_us=HOUR // 2), releases=holds)

    assert where(placements) == {"short": "a"}


def test_run_that_leaves_the_gangs_room_alone_may_pass_but_not_more_than_that() -> None:
    holds = (held("a", 4),)
    queue = (run("large", 6), *(run(name, 1, limit_us=2 * HOUR) for name in ("spare-1", "spare-2", "too-much")))

    assert where(placed(free("a", 4), *queue, releases=holds)) == {"spare-1": "a", "spare-2": "a"}


def test_nobody_takes_a_gangs_room_while_nobody_knows_when_it_will_be_complete() -> None:
    holds = (held("a", 4, at=None),)
    queue = (run("large", 6), run("short", 1, limit_us=1), run("spare", 1), run("too-much", 1))

    assert where(placed(free("a", 4), *queue, releases=holds)) == {"short": "a", "spare": "a"}


def test_gang_over_several_hosts_has_room_kept_on_each_of_them() -> None:
    devices = (*free("a", 3), *free("b", 2), *free("c", 2))
    queue = (run("large", 8), run("small", 2, limit_us=None), run("last", 1, limit_us=None))
    holds = (held("a", 1), held("b", 2), held("c", 2, at=2 * HOUR))

    assert where(placed(devices, *queue, releases=holds)) == {"small": "c"}


def test_gang_of_one_platform_keeps_nothing_on_another() -> None:
    devices = (*free("a", 4), *free("a", 4, "gpu"))
    holds = (held("a", 4, platform="gpu", at=None),)

    assert where(placed(devices, run("large", 8, platform="gpu"), run("cpu", 4, platform="cpu"), releases=holds)) == {
        "cpu": "a"
    }


def test_blocked_gangs_of_two_platforms_both_have_their_room_kept() -> None:
    devices = (*free("a", 4), *free("a", 4, "gpu"))
    holds = (held("a", 4, platform="gpu"), held("a", 4))
    large = (run("gpu", 8, platform="gpu"), run("cpu", 8, platform="cpu"))
    small = (run("x", 1, platform="gpu", limit_us=None), run("y", 1, platform="cpu", limit_us=None))

    assert placed(devices, *large, *small, releases=holds) == []


def test_runs_on_other_hosts_are_not_held_back_by_a_blocked_gang() -> None:
    holds = (held("a", 4),)
    devices = (*free("a", 4), *free("b", 2))

    assert where(placed(devices, run("large", 8), run("small", 2), releases=holds)) == {"small": "b"}


def test_gang_that_no_host_could_ever_hold_keeps_nothing_from_others() -> None:
    assert where(placed(free("a", 4), run("huge", 100), run("small", 4))) == {"small": "a"}


def test_waiting_runs_whose_limits_all_differ_cost_no_more_than_ones_that_are_equal() -> None:
    def calls(limits: range | list[int | None]) -> int:
        waiting = tuple(run(f"r{number}", 8, platform="cpu", limit_us=limit) for number, limit in enumerate(limits))
        holders = tuple(held(f"h{number}", 5, at=1000 + number, by=f"x{number}") for number in range(20))
        fleet = tuple(device for number in range(20) for device in free(f"h{number}", 3))
        return _calls_of_python(lambda: placed(fleet, *waiting, releases=holders))

    equal = calls([HOUR] * 1000)

    assert calls(range(1, 1001)) <= 1.2 * equal
    assert calls([None if number % 2 else number for number in range(1, 1001)]) <= 1.2 * equal


def _calls_of_python(act: Callable[[], object]) -> int:
    """How many functions are entered: unlike seconds, the same on every machine."""
    entered = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal entered
        entered += event == "call"

    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return entered


def test_simulated_devices_compute_for_runs_of_at_most_64() -> None:
    simulated = tuple(replace(device, simulated=True) for device in free("a", 80))
    assert len(place(Snapshot(0, simulated, (), (run("small", 64),))).placements) == 1
    assert place(Snapshot(0, simulated, (), (run("large", 65),))).placements == ()
    assert len(place(Snapshot(0, free("a", 80), (), (run("real", 65),))).placements) == 1


def split(
    devices: tuple[FreeDevice, ...], stores: dict[str, str], replicas: int = 4, *, spread: str = "pack", saved: bool
) -> list[str] | None:
    """The hosts that a run is split over, by rank; None where it waits."""
    shape = Shape(replicas, 1, "cpu", spread, is_saved=saved)
    placements = place(Snapshot(0, devices, (), (QueuedRun("r", shape, HOUR),), stores)).placements
    return [member.host_id for member in placements[0].members] if placements else None


@pytest.mark.parametrize("spread", ["pack", "balance"])
@pytest.mark.parametrize("saved", [False, True])
def test_a_run_that_must_be_split_goes_to_hosts_of_one_store(spread: str, saved: bool) -> None:
    fleet = (*free("a", 3), *free("b", 2), *free("c", 2), *free("d", 3))

    assert split(fleet, {"b": "vol_x", "c": "vol_x", "d": "vol_y"}, spread=spread, saved=saved) == ["b", "c"]


def test_of_two_stores_with_room_the_one_with_fewer_hosts_is_taken() -> None:
    fleet = (*free("a", 2), *free("b", 1), *free("c", 1), *free("d", 2), *free("e", 2))
    stores = {"a": "vol_x", "b": "vol_x", "c": "vol_x", "d": "vol_y", "e": "vol_y"}

    assert split(fleet, stores, saved=True) == ["d", "e"]


def test_hosts_without_one_store_take_only_a_run_that_asks_for_no_checkpoints() -> None:
    fleet = (*free("a", 2), *free("b", 2))

    assert split(fleet, {"b": "vol_x"}, saved=False) == ["a", "b"]
    assert split(fleet, {"b": "vol_x"}, saved=True) is None


def test_a_run_that_asks_for_checkpoints_needs_no_shared_store_on_one_host() -> None:
    assert split((*free("a", 2), *free("b", 4)), {}, saved=True) == ["b"]


def test_the_room_of_hosts_of_one_store_is_reserved_for_a_run_that_saves() -> None:
    saves = QueuedRun("saves", Shape(4, 1, "cpu", "pack", is_saved=True), HOUR)
    small = QueuedRun("small", Shape(2, 1, "cpu", "pack"), 2 * HOUR)
    fleet = (*free("a", 2), *free("b", 2))
    stores = {"b": "vol_x", "c": "vol_x"}

    result = place(Snapshot(0, fleet, (held("c", 2),), (saves, small), stores))

    assert result.reservations["cpu"].spare == {"b": 0, "c": 0}
    assert where(list(result.placements)) == {"small": "a"}


def test_the_shape_of_a_run_that_saves_is_read_as_it_was_written() -> None:
    blocks = Blocks((2, 1, 1, 1), (1, 1, 1, 1), "auto", "")
    for shape in (Shape(4, 1, "cpu", "pack", is_saved=True), Shape(2, 2, "tpu", "pack", blocks, is_saved=True)):
        assert Shape.parse(str(shape)) == shape
