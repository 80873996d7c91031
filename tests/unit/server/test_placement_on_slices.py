"""Placement on TPU slices: boxes of one host, and over the hosts of one slice."""

from collections.abc import Collection
from dataclasses import replace

from drumline.slices import Blocks, KnownSlice
from drumline_server.base.shapes import Shape
from drumline_server.scheduling.placement import FreeDevice, Placement, QueuedRun, Release, Snapshot, place

HOUR = 3_600_000_000


def on_slice(host: str, name: str, taken: Collection[int] = ()) -> tuple[FreeDevice, ...]:
    places = [place for each in KnownSlice.parse(name).device_coordinates() for place in each]
    return tuple(
        FreeDevice(f"{host}-{index}", host, "tpu", index, place)
        for index, place in enumerate(places)
        if index not in taken
    )


def on_blocks(name: str, replicas: int, blocks: Blocks) -> QueuedRun:
    return QueuedRun(name, Shape(replicas, blocks.cores, "tpu", "one_host", blocks), HOUR)


def test_a_run_on_a_slice_gets_a_box_and_waits_where_there_is_none() -> None:
    squares = Blocks((2, 2, 1, 1))
    whole = Snapshot(0, on_slice("a", "v5e:2x2"), (), (on_blocks("square", 1, squares),))
    (placement,) = place(whole).placements
    assert [device.device_id for device in placement.members[0].devices] == ["a-0", "a-1", "a-3", "a-2"]
    assert [(device.replica, device.logical) for device in placement.members[0].devices] == [(0, n) for n in range(4)]

    diagonal = on_slice("a", "v5e:2x2", {1, 2})
    pair = Blocks((2, 1, 1, 1))
    assert place(Snapshot(0, diagonal, (), (on_blocks("pair", 1, pair),))).placements == ()
    elsewhere = (*diagonal, *on_slice("b", "v5e:2x2"))
    (placement,) = place(Snapshot(0, elsewhere, (), (on_blocks("pair", 1, pair),))).placements
    assert placement.members[0].host_id == "b"


def slice_of_hosts(name: str) -> tuple[tuple[FreeDevice, ...], dict[str, str]]:
    """All devices of a slice, and the slice of each of its hosts."""
    hosts = KnownSlice.parse(name).device_coordinates()
    devices = tuple(
        FreeDevice(f"{name}.{number}-{index}", f"{name}.{number}", "tpu", index, place)
        for number, host in enumerate(hosts)
        for index, place in enumerate(host)
    )
    return devices, {device.host_id: name for device in devices}


def over_slice(name: str, replicas: int, blocks: Blocks, *, saved: bool = False, members: int = 1) -> QueuedRun:
    shape = Shape(replicas, blocks.cores, "tpu", "one_slice", blocks, is_saved=saved)
    return QueuedRun(name, shape, HOUR, members=members)


def hosts_of(placement: Placement) -> list[tuple[str, int]]:
    return [(member.host_id, len(member.devices)) for member in placement.members]


def test_a_run_that_no_host_holds_gets_a_box_over_the_hosts_of_one_slice() -> None:
    one, first = slice_of_hosts("v4:2x2x2")
    other, second = slice_of_hosts("v5e:4x4")
    fleet = Snapshot(0, (*one, *other), (), (over_slice("r", 4, Blocks((2, 2, 1, 1))),), {}, first | second)

    (placement,) = place(fleet).placements

    assert hosts_of(placement) == [(f"v5e:4x4.{number}", 4) for number in range(4)]
    own = [(device.replica, device.logical) for member in placement.members for device in member.devices]
    assert sorted(own) == [(replica, logical) for replica in range(4) for logical in range(4)]
    assert all(len({device.replica for device in member.devices}) == 1 for member in placement.members)
    alone = replace(fleet, queue=(over_slice("r", 1, Blocks((2, 2, 1, 1))),))
    assert len(place(alone).placements[0].members) == 1
    assert place(replace(fleet, slices={})).placements == ()


def test_hosts_that_call_different_slices_by_one_name_share_no_run() -> None:
    one, _ = slice_of_hosts("v4:2x2x2")
    twice = (*one, *(replace(device, id=f"copy-{device.id}", host_id=f"copy-{device.host_id}") for device in one))
    slices = {device.host_id: "v4:2x2x2" for device in twice}
    assert place(Snapshot(0, twice, (), (over_slice("r", 8, Blocks()),), {}, slices)).placements == ()


def test_a_run_over_a_slice_that_saves_needs_one_store_and_resumes_over_as_many_hosts() -> None:
    devices, slices = slice_of_hosts("v4:2x2x2")
    apart: dict[str, str] = {}
    shared = dict.fromkeys(slices, "volume")
    saves = over_slice("r", 8, Blocks(), saved=True)
    assert place(Snapshot(0, devices, (), (saves,), apart, slices)).placements == ()
    (placement,) = place(Snapshot(0, devices, (), (saves,), shared, slices)).placements
    assert len(placement.members) == 2
    resumed = over_slice("r", 4, Blocks(), saved=True, members=2)
    (again,) = place(Snapshot(0, devices, (), (resumed,), shared, slices)).placements
    assert hosts_of(again) == [("v4:2x2x2.0", 2), ("v4:2x2x2.1", 2)]


def test_the_room_of_a_slice_is_reserved_for_a_run_that_waits_for_all_of_it() -> None:
    devices, slices = slice_of_hosts("v4:2x2x2")
    first, second = sorted(slices)
    free_ones = tuple(device for device in devices if device.host_id == first)
    small = replace(over_slice("small", 4, Blocks()), limit_us=2 * HOUR)
    releases = (Release("x", second, "tpu", 4, HOUR),)
    waiting = Snapshot(0, free_ones, releases, (over_slice("large", 8, Blocks()), small), {}, slices)

    result = place(waiting)

    assert result.placements == ()
    assert result.reservations["tpu"].spare == {first: 0, second: 0}
    brief = replace(waiting, queue=(waiting.queue[0], replace(small, limit_us=HOUR)))
    assert [placement.run_id for placement in place(brief).placements] == ["small"]
