"""Slices as pure functions: which hosts a simulated one has, and which box of free cores a run gets."""

import random
from itertools import product

import pytest
from pydantic import TypeAdapter, ValidationError

from drumline.contracts.chips import SliceName
from drumline.slices import (
    Blocks,
    KnownSlice,
    Place,
    SliceError,
    find_places,
    find_places_over_hosts,
    simulated_hosts,
)


def cores_of(name: str) -> list[Place]:
    return [place for host in KnownSlice.parse(name).device_coordinates() for place in host]


def is_box(places: list[Place]) -> bool:
    """Whether the places are all the points between the lowest and the highest of them."""
    axes = [sorted(axis) for axis in zip(*places, strict=True)]
    return set(places) == set(product(*(range(axis[0], axis[-1] + 1) for axis in axes)))


@pytest.mark.parametrize(
    ("asked", "hosts", "devices", "platform", "kind"),
    [
        ("v4:2x2x4", 4, 4, "tpu", "TPU v4"),
        ("v3:2x2", 1, 8, "tpu", "TPU v3"),
        ("v5e:4x4", 4, 4, "tpu", "TPU v5 lite"),
        ("gpu:8", 1, 8, "gpu", "GPU"),
        ("gpu:3", 1, 3, "gpu", "GPU"),
        ("gpu:16", 2, 8, "gpu", "GPU"),
    ],
)
def test_a_simulated_slice_has_as_many_hosts_as_the_real_one(
    asked: str, hosts: int, devices: int, platform: str, kind: str
) -> None:
    found = simulated_hosts(asked)
    assert len(found) == hosts
    assert {(len(host.places), host.platform, host.kind) for host in found} == {(devices, platform, kind)}
    assert len({host.name for host in found}) == hosts


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("v9:2x2", "no TPU 'v9'"),
        ("gpu:0", "gpu:1"),
        ("gpu:12", "multiple of 8"),
        ("gpu:x", "gpu:1"),
        ("v4:8x8x8", "at most 16"),
        ("gpu:999999", "multiple of 8"),
        ("gpu:800", "at most 16"),
        ("", "names no TPU slice"),
    ],
)
def test_what_cannot_be_simulated_is_named_with_what_can(asked: str, told: str) -> None:
    with pytest.raises(SliceError, match=told):
        simulated_hosts(asked)


def test_runs_on_a_slice_get_boxes_that_share_no_core() -> None:
    """Random runs on random leftovers: each box is free, whole, and as large as its replicas need."""
    source = random.Random(20261123)
    for _ in range(200):
        free = set(cores_of(source.choice(["v4:2x2x4", "v5e:4x4", "v3:4x4", "tpu7x:2x2x2"])))
        while free:
            shape = source.choice([(1, 1, 1, 1), (2, 2, 1, 1), (1, 2, 1, 1), (1, 1, 1, 2), (2, 1, 2, 1)])
            blocks, replicas = Blocks(shape), source.randrange(1, 5)
            found = find_places(free, replicas, blocks)
            if found is None:
                break
            taken = [place for replica in found for place in replica]
            assert len(found) == replicas
            assert all(len(replica) == blocks.cores and is_box(replica) for replica in found)
            assert is_box(taken)
            assert len(set(taken)) == len(taken)
            assert set(taken) <= free
            free -= set(taken)


def test_no_box_is_found_exactly_where_none_is_free() -> None:
    source = random.Random(20261124)
    for _ in range(300):
        free = {core for core in cores_of("v5e:4x4") if source.random() < 0.6}
        boxes = [
            {(x + dx, y + dy, 0, 0) for dx in range(wide) for dy in range(high)}
            for wide, high in ((1, 4), (4, 1), (2, 2))
            for x in range(5 - wide)
            for y in range(5 - high)
        ]
        expected = any(box <= free for box in boxes)
        assert (find_places(free, 4, Blocks()) is not None) == expected


def test_replicas_of_one_core_may_leave_a_part_of_their_box_free() -> None:
    found = find_places(cores_of("v5e:4x4"), 3, None)
    assert found == [[(0, 0, 0, 0)], [(1, 0, 0, 0)], [(2, 0, 0, 0)]]
    five = find_places(cores_of("v5e:4x4"), 5, None)
    assert five is not None
    assert len(five) == 5


def test_blocks_are_read_as_they_were_written() -> None:
    for blocks in (Blocks(), Blocks.of([2, 2, 1, 1], None, "ring", "v4-32"), Blocks.of(None, [1, 1, 2, 1])):
        assert Blocks.parse(str(blocks)) == blocks


def test_a_named_slice_is_filled_or_refused() -> None:
    assert len(Blocks.of([2, 2, 1, 1], None, "auto", "v4:2x2x4").places(4)) == 4
    with pytest.raises(SliceError, match="ask for 4 replicas"):
        Blocks.of([2, 2, 1, 1], None, "auto", "v4:2x2x4").places(3)
    with pytest.raises(SliceError, match="does not fit the mesh"):
        Blocks.of([4, 1, 1, 1], None, "auto", "v4:2x2x4").places(4)


def test_without_a_slice_blocks_stand_in_a_row() -> None:
    assert Blocks((1, 1, 1, 2)).places(2) == [[(0, 0, 0, 0), (0, 0, 0, 1)], [(1, 0, 0, 0), (1, 0, 0, 1)]]
    with pytest.raises(SliceError, match="ask for a multiple"):
        Blocks((1, 1, 1, 1), (2, 1, 1, 1)).places(3)


def test_a_box_over_hosts_has_whole_replicas_on_each_and_as_many_on_all() -> None:
    """Random leftovers of slices of several hosts."""
    source, found_over_hosts = random.Random(20261125), 0
    for _ in range(300):
        hosts = KnownSlice.parse(source.choice(["v4:2x2x4", "v5e:4x4", "v3:4x4", "tpu7x:2x2x2"])).device_coordinates()
        free = {place: f"h{number}" for number, host in enumerate(hosts) for place in host if source.random() < 0.9}
        blocks = Blocks(source.choice([(1, 1, 1, 1), (2, 2, 1, 1), (1, 1, 2, 1), (2, 1, 1, 1)]))
        found = find_places_over_hosts(free, source.randrange(1, 7), blocks)
        if found is None:
            continue
        homes = [{free[place] for place in replica} for replica in found]
        assert all(len(home) == 1 for home in homes)
        counts = [sum(host in home for home in homes) for host in set.union(*homes)]
        assert len(set(counts)) == 1
        taken = [place for replica in found for place in replica]
        assert is_box(taken)
        assert set(taken) <= set(free)
        found_over_hosts += len(counts) > 1
    assert found_over_hosts > 20


def test_a_replica_never_has_cores_of_two_hosts() -> None:
    hosts = KnownSlice.parse("v4:2x2x2").device_coordinates()
    free = {place: str(number) for number, host in enumerate(hosts) for place in host}
    assert find_places_over_hosts(free, 1, Blocks((2, 2, 2, 1))) is None
    assert find_places_over_hosts(free, 4, Blocks((1, 1, 2, 1))) is None
    over_two = find_places_over_hosts(free, 4, Blocks((1, 2, 1, 1)), hosts=2)
    assert over_two is not None
    assert {free[place] for replica in over_two for place in replica} == {"0", "1"}
    assert find_places_over_hosts(free, 4, Blocks((1, 2, 1, 1)), hosts=1) is None


@pytest.mark.parametrize(
    ("name", "wraps", "links"),
    [
        ("v4:2x2x4", (False, False, False), 8 * 2 + 4 * 3),
        ("v4:4x4x4", (True, True, True), 64 * 3),
        ("v5p:4x4x8", (True, True, True), 128 * 3),
        ("v5e:4x4", (False, False, False), 2 * 12),
        ("v5e:8x16", (False, True, False), 7 * 16 + 8 * 16),
        ("v6e:16x16", (True, True, False), 2 * 256),
        ("v3:32x32", (True, True, False), 2 * 1024),
    ],
)
def test_a_slice_tells_its_links_and_where_they_wrap_around(
    name: str, wraps: tuple[bool, bool, bool], links: int
) -> None:
    known = KnownSlice.parse(name)
    found = known.links()
    assert (known.wraps, len(found)) == (wraps, links)
    assert len({frozenset(link) for link in found}) == links
    assert all(sum(a != b for a, b in zip(one, other, strict=True)) == 1 for one, other in found)


@pytest.mark.parametrize("named", ["v4:99999x2x2", "v4:", "h100 8", "v5e:4x4x4x4"])
def test_what_names_no_slice_is_refused_with_what_does(named: str) -> None:
    with pytest.raises(ValidationError, match=r"names no slice; write one such as 'v5e:16x16'"):
        TypeAdapter(SliceName).validate_python(named)
