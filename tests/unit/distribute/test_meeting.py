"""A gang that does not come together ends in an error that names who is absent; the interpreter lives on."""

import subprocess
import sys
import time

import pytest

from drumline_worker.agent.agent_context import CoordinatorPort

PROGRAM = """
import os, sys
import jax
import drumline.distribute as dist
address, rank, count, timeout_s = sys.argv[1], *map(int, sys.argv[2:5])
host, _, port = address.rpartition(":")
cluster = dist.ClusterSpec({"worker": [address, *(f"b{i}.example:1" for i in range(1, count))]})
settings = ("jax_cpu_collectives_implementation", "jax_enable_preemption_service", "jax_cuda_visible_devices")
before = [jax.config.values[name] for name in settings]
try:
    dist.initialize(dist.cluster_resolver.SimpleClusterResolver(cluster, "", "worker", rank), timeout_s=timeout_s)
    print(f"met {jax.process_index()} of {jax.process_count()}")
    jax.distributed.shutdown()
except dist.errors.ClusterError as error:
    print(error)
    print("as before", before == [jax.config.values[name] for name in settings], len(jax.devices("cpu")) > 0)
"""


def start(address: str, rank: int, count: int, timeout_s: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, address, str(rank), str(count), str(timeout_s)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ends(*tasks: subprocess.Popen[str]) -> list[tuple[int, list[str]]]:
    try:
        said = [task.communicate(timeout=240)[0].splitlines() for task in tasks]
    finally:
        for task in tasks:
            task.kill()
    return [(task.returncode, lines) for task, lines in zip(tasks, said, strict=True)]


def test_who_is_absent_is_named_when_a_meeting_times_out_and_the_interpreter_lives_on() -> None:
    place = CoordinatorPort("127.0.0.1")
    [first] = ends(start(place.coordinator, 0, 3, 2))
    [second] = ends(start(place.coordinator, 1, 3, 2))
    place.close()

    met = f"of 3 did not meet the others at {place.coordinator}: after 2 s"
    assert first == (
        0, [f"process 0 {met} processes 1, 2 had not called dist.initialize()", "as before True True"]
    )  # fmt: skip
    assert (second[0], second[1][1]) == (0, "as before True True")
    assert second[1][0].startswith(f"process 1 {met} process 0 had not called dist.initialize() (")


def test_the_one_that_is_absent_is_named_by_all_that_came() -> None:
    place = CoordinatorPort("127.0.0.1")
    # Both are there long before either gives up.
    said = ends(start(place.coordinator, 0, 3, 30), start(place.coordinator, 1, 3, 60))
    place.close()

    for code, lines in said:
        assert code == 0, lines
        assert "process 2 had not called dist.initialize()" in lines[0]


def test_processes_that_come_late_meet_and_junk_at_the_port_is_passed_over() -> None:
    import socket

    place = CoordinatorPort("127.0.0.1")
    tasks = [start(place.coordinator, 1, 2, 120), start(place.coordinator, 0, 2, 120)]
    port = int(place.coordinator.rpartition(":")[2])
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as stranger:
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            break
        except OSError:
            time.sleep(0.01)
    said = ends(*tasks)
    place.close()

    assert [(code, lines[-1:]) for code, lines in said] == [(0, ["met 1 of 2"]), (0, ["met 0 of 2"])], said


@pytest.mark.parametrize(
    ("rank", "count", "text"),
    [(1, 3, "process 0 has a gang of 2"), (1, 2, "another process is process 1 already")],
)
def test_a_process_that_is_none_of_the_gang_is_turned_away(rank: int, count: int, text: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    import drumline.distribute as dist
    from drumline.distribute.cluster.barrier import wait_for_all
    from drumline.distribute.errors import ClusterError

    place = CoordinatorPort("127.0.0.1")
    gangs = [dist.Gang(place.coordinator, 3 if count == 2 else 2, process) for process in (0, 1)]
    if count == 2:
        gangs.append(gangs[1])
    else:
        gangs[1] = dist.Gang(place.coordinator, count, rank)
    with ThreadPoolExecutor(3) as threads:
        ended = [threads.submit(wait_for_all, gang, 3) for gang in gangs]
        errors = [future.exception() for future in ended]
    place.close()
    assert all(isinstance(error, ClusterError) for error in errors)
    assert any(text in str(error) for error in errors), errors


def test_a_process_with_another_version_is_named_to_all_with_both_versions() -> None:
    from concurrent.futures import ThreadPoolExecutor

    import drumline.distribute as dist
    from drumline.distribute.cluster.barrier import Difference, NotMetError, wait_for_all

    place = CoordinatorPort("127.0.0.1")
    versions = [{"python": "3.11", "jax": version} for version in ("0.10.2", "0.10.2", "0.10.1")]
    with ThreadPoolExecutor(3) as threads:
        ended = [
            threads.submit(wait_for_all, dist.Gang(place.coordinator, 3, process), 20, facts)
            for process, facts in enumerate(versions)
        ]
        errors = [future.exception() for future in ended]
    place.close()

    for error in errors:
        assert isinstance(error, NotMetError)
        assert error.differences == (Difference(2, "jax", "0.10.1", "0.10.2"),)
        assert "process 2 has jax 0.10.1, most others 0.10.2" in str(error)


@pytest.mark.parametrize(
    ("facts", "named"),
    [
        ([{"jax": "1"}, {"jax": "2"}], [(1, "2", "1")]),
        ([{"jax": "1"}, {"jax": "2"}, {"jax": "2"}], [(0, "1", "2")]),
        ([{"jax": "1"}, {}, {"jax": "1"}], [(1, "unknown", "1")]),
        ([{"jax": "1"}, {"jax": "1"}], []),
    ],
)
def test_of_versions_that_differ_those_are_named_that_fewer_have(
    facts: list[dict[str, str]], named: list[tuple[int, str, str]]
) -> None:
    from drumline.distribute.cluster.barrier import find_differences

    found = find_differences(dict(enumerate(facts)))

    assert [(each.process_id, each.value, each.usual) for each in found] == named


def test_every_absent_process_is_told_to_whoever_came() -> None:
    from concurrent.futures import ThreadPoolExecutor

    import drumline.distribute as dist
    from drumline.distribute.cluster.barrier import NotMetError, wait_for_all

    place = CoordinatorPort("127.0.0.1")
    with ThreadPoolExecutor(2) as threads:
        ended = [threads.submit(wait_for_all, dist.Gang(place.coordinator, 4, rank), 2) for rank in (0, 2)]
        errors = [future.exception() for future in ended]
    place.close()

    assert [error.absent for error in errors if isinstance(error, NotMetError)] == [(1, 3), (1, 3)]


@pytest.mark.parametrize(
    ("own", "of_process_0", "found"),
    [
        ("10.0.0.2", "10.0.0.1", "10.0.0.2"),
        ("127.0.1.1", "10.0.0.1", "10.0.0.1"),  # on the machine of process 0, whose name resolves to a loopback
        ("::1", "fd00::1", "fd00::1"),
        ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "nowhere", "127.0.0.1"),
    ],
)
def test_a_process_is_reached_at_an_address_that_other_machines_know(own: str, of_process_0: str, found: str) -> None:
    from drumline.distribute.cluster.barrier import address_for_others

    assert address_for_others(own, of_process_0) == found


def test_who_met_knows_the_address_of_its_way_to_process_0() -> None:
    from concurrent.futures import ThreadPoolExecutor

    import drumline.distribute as dist
    from drumline.distribute.cluster.barrier import wait_for_all

    place = CoordinatorPort("127.0.0.2")
    with ThreadPoolExecutor(3) as threads:
        met = [threads.submit(wait_for_all, dist.Gang(place.coordinator, 3, rank), 20) for rank in range(3)]
        addresses = [future.result() for future in met]
    place.close()

    assert addresses == ["127.0.0.2", "127.0.0.2", "127.0.0.2"]


@pytest.mark.parametrize("guest_s", [0.7, 1.6])
def test_who_gives_up_before_process_0_does_names_the_absent_and_is_not_named_itself(guest_s: float) -> None:
    """Its limit began earlier: before process 0 has told who is absent for the first time, or after."""
    from concurrent.futures import ThreadPoolExecutor

    import drumline.distribute as dist
    from drumline.distribute.cluster.barrier import NotMetError, wait_for_all

    place = CoordinatorPort("127.0.0.1")
    with ThreadPoolExecutor(2) as threads:
        limits = {0: 2.5, 2: guest_s}
        ended = [threads.submit(wait_for_all, dist.Gang(place.coordinator, 4, rank), s) for rank, s in limits.items()]
        errors = [future.exception() for future in ended]
    place.close()

    assert [error.absent for error in errors if isinstance(error, NotMetError)] == [(1, 3), (1, 3)]
