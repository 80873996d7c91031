"""The nearest possible shape is found by a few looks at the hosts, whatever they have."""

import random
import time
from dataclasses import replace

from drumline_server.base.shapes import Shape
from drumline_server.scheduling.capacity import HostCapacity, best_platform, nearest_possible
from support.turns import hold_limit_s

MOST_DEVICES = 4096


def hosts_of(*devices: int, platform: str = "cpu") -> list[HostCapacity]:
    return [HostCapacity(f"hst_{n}", f"h{n}", platform, count, count, 0, None) for n, count in enumerate(devices)]


def test_the_worst_shape_on_many_large_hosts_costs_little() -> None:
    hosts = hosts_of(*([MOST_DEVICES] * 500))
    shape = Shape(10**6, MOST_DEVICES + 1, "any", "pack")
    began = time.thread_time()

    nearest = nearest_possible(shape, lambda _: hosts)

    assert time.thread_time() - began < hold_limit_s()
    assert nearest == replace(shape, devices_per_replica=2)


def test_it_is_what_a_look_at_every_size_finds() -> None:
    source = random.Random(7)
    for _ in range(300):
        hosts = hosts_of(*(source.randrange(1, 12) for _ in range(source.randrange(1, 5))))
        spread = source.choice(["pack", "one_host"])
        shape = Shape(source.randrange(1, 30), source.randrange(12, 20), "cpu", spread)
        sizes = [
            replace(shape, replicas=replicas, devices_per_replica=devices)
            for replicas in (shape.replicas, 1)
            for devices in range(12, 0, -1)
        ]
        wanted = next((each for each in sizes if best_platform(hosts, each).replicas >= each.replicas), None)

        assert nearest_possible(shape, dict.fromkeys((shape.platform, "any"), hosts).__getitem__) == wanted
