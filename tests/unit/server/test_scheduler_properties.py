"""What holds of every placement, whatever the fleet and the queue."""

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from drumline_server.base.shapes import Shape
from drumline_server.scheduling.placement import (
    AGEING_MAX,
    Ageing,
    FreeDevice,
    Placement,
    QueuedRun,
    Release,
    Snapshot,
    in_order,
    place,
)

UNIT = 60
PLATFORMS = ("cpu", "gpu")
pools = st.tuples(st.sampled_from("abcd"), st.sampled_from(PLATFORMS))
fleets = st.dictionaries(pools, st.integers(1, 8), max_size=8)
shapes = st.builds(
    Shape,
    st.integers(1, 20),
    st.integers(1, 3),
    st.sampled_from(["any", *PLATFORMS]),
    st.sampled_from(["pack", "balance", "one_host"]),
)
limits = st.none() | st.integers(1, 400)
holders = st.lists(st.tuples(pools, st.integers(1, 8), limits), max_size=6)
queues = st.lists(st.tuples(shapes, limits, st.none() | st.sampled_from("abcd")), max_size=10)


def free_devices(fleet: dict[tuple[str, str], int]) -> tuple[FreeDevice, ...]:
    return tuple(
        FreeDevice(f"{host}-{platform}-{index}", host, platform, index)
        for (host, platform), count in fleet.items()
        for index in range(count)
    )


def releases_of(held: list[tuple[tuple[str, str], int, int | None]]) -> tuple[Release, ...]:
    return tuple(
        Release(f"holder-{number}", host, platform, count, at)
        for number, ((host, platform), count, at) in enumerate(held)
    )


def queue_of(queue: list[tuple[Shape, int | None, str | None]]) -> tuple[QueuedRun, ...]:
    return tuple(QueuedRun(f"r{number}", *fields) for number, fields in enumerate(queue))


@given(fleets, holders, queues)
def test_no_device_is_given_twice_and_every_gang_is_whole(
    fleet: dict[tuple[str, str], int],
    held: list[tuple[tuple[str, str], int, int | None]],
    queue: list[tuple[Shape, int | None, str | None]],
) -> None:
    devices, runs = free_devices(fleet), queue_of(queue)

    placements = place(Snapshot(0, devices, releases_of(held), runs)).placements

    by_id, by_run = {device.id: device for device in devices}, {run.id: run for run in runs}
    taken = [device.device_id for placement in placements for member in placement.members for device in member.devices]
    assert len(taken) == len(set(taken))
    for placement in placements:
        _check_gang(placement, by_run[placement.run_id].shape, by_id)


def _check_gang(placement: Placement, shape: Shape, by_id: dict[str, FreeDevice]) -> None:
    assigned = [(member.host_id, device) for member in placement.members for device in member.devices]
    platforms = {by_id[device.device_id].platform for _, device in assigned}
    assert all(by_id[device.device_id].host_id == host for host, device in assigned)
    assert [(device.replica, device.logical) for _, device in assigned] == [
        (replica, logical) for replica in range(shape.replicas) for logical in range(shape.devices_per_replica)
    ]
    assert len(platforms) == 1
    assert shape.platform in ("any", *platforms)
    assert len({(host, device.replica) for host, device in assigned}) == shape.replicas
    hosts = [member.host_id for member in placement.members]
    assert len(hosts) == len(set(hosts))
    assert len(hosts) == 1 or not shape.is_one_host


@given(fleets, holders, shapes, queues)
@settings(max_examples=300)
def test_whatever_passes_a_blocked_gang_it_starts_as_soon_as_if_nothing_had(
    fleet: dict[tuple[str, str], int],
    held: list[tuple[tuple[str, str], int, int | None]],
    gang: Shape,
    queue: list[tuple[Shape, int | None, str | None]],
) -> None:
    devices, holds, first = free_devices(fleet), releases_of(held), QueuedRun("first", gang, None)
    behind = {run.id: run for run in queue_of(queue)}

    placements = place(Snapshot(0, devices, holds, (first, *behind.values()))).placements

    passed = {placement.run_id: placement for placement in placements if placement.run_id != "first"}
    still_free = {device.id for device in devices} - {
        device.device_id for placement in passed.values() for member in placement.members for device in member.devices
    }
    for at in [0, *sorted({hold.at for hold in holds if hold.at is not None}), None]:
        alone = _after(devices, holds, at)
        if _starts(first, alone):
            ended = {name for name in passed if _is_over(behind[name].limit_us, at)}
            back = [device.device_id for name in ended for member in passed[name].members for device in member.devices]
            now_free = still_free | set(back)
            assert _starts(first, tuple(device for device in alone if device.id in now_free or device.id[0] == "+"))
            return


def _is_over(until: int | None, at: int | None) -> bool:
    return until is not None and at is not None and until <= at


def _after(devices: tuple[FreeDevice, ...], holds: tuple[Release, ...], at: int | None) -> tuple[FreeDevice, ...]:
    """Everything that is free once the runs that hold devices ended, those known to end by `at` or, if None, all."""
    back = [
        FreeDevice(f"+{hold.run_id}-{index}", hold.host_id, hold.platform, 100 + index)
        for hold in holds
        if at is None or _is_over(hold.at, at)
        for index in range(hold.devices)
    ]
    return (*devices, *back)


def _starts(run: QueuedRun, devices: tuple[FreeDevice, ...]) -> bool:
    return bool(place(Snapshot(0, devices, (), (run,))).placements)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4), st.integers(1, 5)), min_size=1, max_size=8),
    st.integers(5, 8),
)
@settings(max_examples=40, deadline=None)
def test_ageing_bounds_the_wait_of_a_large_gang_behind_an_endless_stream_of_higher_priority(
    stream: list[tuple[int, int, int]], size: int
) -> None:
    """A run of up to five points more priority arrives every unit; after five units none of them goes first."""
    devices = tuple(FreeDevice(f"d{index}", "a", "cpu", index) for index in range(8))
    gang = QueuedRun("gang", Shape(size, 1, "cpu", "pack"), UNIT, priority=0, created_at=0)
    queue, names = [gang], iter(range(10_000))
    running: dict[str, tuple[int, set[str]]] = {}
    bound = 5 + 5 * 5 + 5  # five arrivals may be ahead at most, each holds the devices for five units, and one ends
    for tick in range(bound + 1):
        now = tick * UNIT
        points, replicas, duration = stream[tick % len(stream)]
        shape = Shape(replicas, 1, "cpu", "pack")
        queue.append(QueuedRun(f"r{next(names)}", shape, duration * UNIT, priority=points, created_at=now))
        running = {name: held for name, held in running.items() if held[0] > now}
        taken = {device for _, devices_held in running.values() for device in devices_held}
        holds = tuple(Release(name, "a", "cpu", len(held), until) for name, (until, held) in running.items())
        ordered = in_order(queue, Ageing(UNIT), now)
        started = place(Snapshot(now, tuple(d for d in devices if d.id not in taken), holds, ordered)).placements
        until = {run.id: now + (run.limit_us or 0) for run in queue}
        for placement in started:
            held = {device.device_id for member in placement.members for device in member.devices}
            running[placement.run_id] = (until[placement.run_id], held)
        if "gang" in running:
            return
        queue = [run for run in queue if run.id not in running]
    raise AssertionError(f"the gang waited for more than {bound} units")


@given(st.integers(-1000, 1000), st.integers(-1000, 1000), st.integers(0, 5000), st.integers(0, 5000))
def test_run_of_less_priority_goes_first_exactly_when_it_waited_so_many_units_longer(
    low: int, high: int, low_waited: int, high_waited: int
) -> None:
    now = 5000 * UNIT
    shape = Shape(1, 1, "cpu", "pack")
    one = QueuedRun("a", shape, None, priority=low, created_at=now - low_waited * UNIT)
    other = replace(one, id="b", priority=high, created_at=now - high_waited * UNIT)

    first, _ = in_order((one, other), Ageing(UNIT), now)

    ahead = low + min(low_waited, AGEING_MAX), low_waited
    behind = high + min(high_waited, AGEING_MAX), high_waited
    assert first.id == ("a" if ahead >= behind else "b")


@given(shapes)
def test_shape_is_read_as_it_was_written(shape: Shape) -> None:
    assert Shape.parse(str(shape)) == shape
    assert Counter(str(shape))[" "] == 2
