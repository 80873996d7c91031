"""Who of a gang runs another program, or returns while others step: found past all collectives, and named."""

import subprocess
import sys
import time
from typing import Any

import pytest

from drumline.distribute.errors import ProcessesDifferError
from drumline_worker.agent.agent_context import CoordinatorPort
from drumline_worker.runner.gang_watch import Told, find_difference, find_odd

A, B = ("aaaa", "train"), ("bbbb", "evaluate")


def told(steps: int, *programs: tuple[int, tuple[str, str]], has_returned: bool = False, **exchanges: Any) -> Told:
    """Any: the fields of `Told` that are about exchanges."""
    return Told(steps, has_returned, tuple((first, *program) for first, program in programs), **exchanges)


def name(rank: int) -> str:
    return f"rank {rank} on host{rank}"


@pytest.mark.parametrize(
    "gang",
    [
        [told(0), told(0)],
        [told(5, (0, A)), told(900, (0, A))],
        [told(5, (0, A)), told(9, (0, A), (7, B))],
        [told(9, (0, A), (7, B)), told(9, (0, A), (7, B))],
        [told(9, (0, A), has_returned=True), told(9, (0, A))],
        [told(9, (0, A), has_returned=True), told(8, (0, A))],
        [told(90, (80, A)), told(90, (10, B), (80, A))],
    ],
    ids=["none began", "one is ahead", "ahead in the next program", "alike", "returned first", "late", "forgotten"],
)
def test_a_gang_whose_members_do_the_same_is_left_alone(gang: list[Told]) -> None:
    assert find_odd(dict(enumerate(gang)), name) is None


def test_who_runs_another_program_is_named_with_both_programs_and_the_step() -> None:
    gang = [told(9, (0, A)), told(9, (0, A), (4, B)), told(5, (0, A))]

    assert find_odd(dict(enumerate(gang)), name) == (
        "Rank 1 on host1 runs another program than rank 0 on host0 in step 4: evaluate (bbbb), there train (aaaa). "
        "All members must run the same steps in the same order."
    )


def test_of_two_the_odd_one_is_who_leaves_what_both_did() -> None:
    gang = [told(9, (0, A), (4, B)), told(9, (0, A))]

    found = find_odd(dict(enumerate(gang)), name)
    assert found is not None
    assert found.startswith("Rank 0 on host0 runs another program than rank 1 on host1 in step 4: evaluate (bbbb)")


def test_the_odd_one_is_who_does_what_fewer_do() -> None:
    gang = [told(9, (0, B)), told(9, (0, A)), told(5, (0, A))]

    found = find_odd(dict(enumerate(gang)), name)
    assert found is not None
    assert found.startswith("Rank 0 on host0 runs another program than rank 1 on host1 in step 0:")


def test_nobody_is_named_while_those_who_have_not_told_decide_who_is_odd() -> None:
    odd, usual, silent = told(1, (0, B)), told(1, (0, A)), told(0)

    assert find_odd({0: odd, 2: usual}, name, size=4) is None
    assert find_odd({0: odd, 1: silent, 2: usual}, name, size=3) is None
    found = find_odd({0: odd, 2: usual, 3: usual}, name, size=4)
    assert found is not None
    assert found.startswith("Rank 0 on host0 runs another program than rank 2 on host2 in step 0:")
    assert find_odd({0: odd, 2: usual}, name) is not None  # who never tells is not waited for for ever


def test_who_returns_while_others_still_step_is_named() -> None:
    gang = [told(9, (0, A)), told(8, (0, A), has_returned=True)]

    assert find_odd(dict(enumerate(gang)), name) == (
        "Rank 1 on host1 returned after 8 steps of the strategy, while rank 0 on host0 began step 8. "
        "All members must call strategy.run equally often."
    )


def test_who_waits_alone_for_all_members_is_named_with_what_it_waits_at() -> None:
    gang = [
        told(8, (0, A), exchanges=3, before_step=3),
        told(7, (0, A), exchanges=4, before_step=3, recent=("a", "b", "c", "variable 'extra'")),
    ]

    assert find_odd(dict(enumerate(gang)), name) == (
        "Rank 1 on host1 waits for all members at variable 'extra', and rank 0 on host0 began step 7 without it. All "
        "members must make the same variables, and call the strategy alike, in the same order."
    )


def test_who_alone_passes_by_what_most_wait_at_is_named() -> None:
    waiting = told(7, (0, A), exchanges=2, before_step=1, recent=("step 0", "checkpoint of step 7"))
    gang = [waiting, told(8, (0, A), exchanges=1, before_step=1), waiting]

    found = find_odd(dict(enumerate(gang)), name)
    assert found is not None
    assert found.startswith("Rank 1 on host1 began step 7 without checkpoint of step 7, at which rank 0 on host0 waits")


def test_who_builds_a_program_alone_is_named_before_it_is_built() -> None:
    builds = told(7, (0, A), exchanges=3, recent=("step 0", "variable 'w'", "step 7"), before_step=2)
    runs = told(9, (0, A), exchanges=2, recent=("step 0", "variable 'w'"), before_step=2)

    assert find_odd({0: runs, 1: builds, 2: runs}, name) == (
        "Rank 1 on host1 builds a program for step 7, in which rank 0 on host0 runs the one that it had: train (aaaa). "
        "All members must run the same steps in the same order."
    )


def test_who_waits_before_the_first_step_is_named_too() -> None:
    gang = [
        told(1, (0, A), exchanges=1, before_step=1),
        told(0, exchanges=2, recent=("variable 'w'", "variable 'extra'")),
    ]

    found = find_odd(dict(enumerate(gang)), name)
    assert found is not None
    assert found.startswith("Rank 1 on host1 waits for all members at variable 'extra', and rank 0 on host0 began")


def test_of_as_many_that_wait_as_pass_by_the_others_decide_who_is_odd() -> None:
    waiting = told(7, (0, A), exchanges=2, before_step=1, recent=("step 0", "variable 'extra'"))
    passing = told(8, (0, A), exchanges=1, before_step=1)
    behind = told(6, (0, A), exchanges=1, before_step=1)

    assert find_odd({0: waiting, 1: passing, 2: behind}, name) is None
    found = find_odd({0: waiting, 1: passing, 2: waiting}, name)
    assert found is not None
    assert found.startswith("Rank 1 on host1 began step 7 without variable 'extra'")


@pytest.mark.parametrize(
    "other",
    [
        {"steps": 8, "exchanges": 4, "before_step": 4},
        {"steps": 7, "exchanges": 3, "before_step": 3},
        {"steps": 6, "exchanges": 2, "before_step": 2},
        {"steps": 9, "exchanges": 3, "before_step": None},
    ],
    ids=["came too", "on its way", "behind", "steps on another thread"],
)
def test_who_waits_for_members_that_may_still_come_is_left_alone(other: dict[str, Any]) -> None:
    waiting = told(7, (0, A), exchanges=4, before_step=3, recent=("variable 'extra'",))

    assert find_odd({0: Told(programs=((0, *A),), **other), 1: waiting}, name) is None


def test_the_engine_s_own_word_for_members_that_differ_is_found_behind_what_the_program_raises() -> None:
    difference = ProcessesDifferError("step 0: its program of process 1 is not", (1,))
    with pytest.raises(ValueError, match="training failed") as raised:
        raise ValueError("training failed") from difference

    assert find_difference(raised.value) is difference
    assert find_difference(ValueError("training failed")) is None
    assert find_difference(ProcessesDifferError("nobody reads this series any more")) is None


MEMBER = """
import os, sys, threading, time
import jax
import jax.numpy as jnp
import drumline.distribute as dist
from drumline.contracts.worker_api import Rendezvous
from drumline_worker.runner.gang_watch import GangWatch, gang_store
address, rank, fault = sys.argv[1], int(sys.argv[2]), sys.argv[3]
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(address, 2, rank)
ended = threading.Event()
def tell(line):
    # In one write, on a line of its own: Gloo's threads print to the same pipe meanwhile.
    os.write(1, f"\\n> {line}\\n".encode())
def end(message):
    tell(message)
    if strategy.num_replicas_in_sync > len(jax.local_devices()):
        leave()  # the program itself waits for ever
    ended.set()
def leave():
    time.sleep(3 - 3 * rank)  # the service goes last
    os._exit(0)
watch = GangWatch(gang_store(), Rendezvous(rank=rank, size=2, hosts=("alpha", "beta")), end)
watch.start()
class Follower:
    def program_dispatched(self, steps, program):
        watch.dispatched(steps, program.digest, program.name)
    def __getattr__(self, name):
        return lambda *_: None
strategy = dist.MirroredStrategy(None if "over both" in fault or "alone" in fault else jax.local_devices())
strategy.observe(Follower())
def train(x):
    return dist.all_reduce("sum", jnp.tanh(x) * 2)
def evaluate(x):
    return dist.all_reduce("sum", jnp.tanh(x) * 3)
if "run_steps" in fault:
    batches = iter(strategy.distribute_dataset(dist.Dataset.from_tensor_slices(jnp.ones((400, 3))).batch(2)))
    odd = rank == 1 and "other" in fault
    for part in range(3):
        done = strategy.run_steps(evaluate if odd and part == 1 else train, batches, 8)
        assert done.count == 8
    jax.block_until_ready(done.results)
    if "early" not in fault or rank == 1:
        watch.returned()
    else:
        strategy.run_steps(train, batches, 8)
elif "over both" in fault:
    at = 7 if "later" in fault else 0
    for step in range(20):
        fn = evaluate if rank == 1 and step == at and "argument" not in fault else train
        try:
            jax.block_until_ready(strategy.run(fn, args=(jnp.ones(3) * (1 + rank * ("argument" in fault)),)))
        except dist.errors.ProcessesDifferError as error:
            tell(watch.describe(error))
            leave()
        except (ValueError, jax.errors.JaxRuntimeError):
            break  # the other member has gone: its watch was faster
elif "alone" in fault:
    other = None
    for step in range(20):
        if rank == 1 and step == 7 and "variable" in fault:
            with strategy.scope():
                dist.Variable(jnp.zeros(3), name="extra")
        fn = train
        if rank == 1 and step == 7 and "again" in fault:
            def fn(x):
                return train(x)
            fn.__qualname__ = "train"
        try:
            jax.block_until_ready(strategy.run(fn, args=(jnp.ones(3),)))
        except (ValueError, jax.errors.JaxRuntimeError):
            break  # the other member has gone: its watch was faster
single = fault in ("none", "program", "early")
for step in range((20 if fault != "early" or rank == 0 else 12) if single else 0):
    strategy.run(evaluate if fault == "program" and rank == 1 and step == 7 else train, args=(jnp.ones(3),))
if single and (fault != "early" or rank == 1):
    watch.returned()
tell("odd" if ended.wait(3 if fault == "none" else 20) else "alike")
leave()
"""


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("none", ""),
        ("program", "Rank 1 on beta runs another program than rank 0 on alpha in step 7: evaluate ("),
        ("early", "Rank 1 on beta returned after 12 steps of the strategy, while rank 0 on alpha began step 1"),
        ("over both, later", "Rank 1 on beta runs another program than rank 0 on alpha in step 7: evaluate ("),
        ("over both, first", "Rank 1 on beta runs another program than rank 0 on alpha in step 0: evaluate ("),
        ("over both, argument", "Rank 1 on beta: step 0: args[0] of process 1 is not that of the other processes ("),
        (
            "a variable alone",
            "Rank 1 on beta waits for all members at variable 'extra', and rank 0 on alpha began step 7",
        ),
        (
            "again, alone",
            (  # as the watch looks before the other step is told as begun, or after
                "Rank 1 on beta builds a program for step 7, in which rank 0 on alpha runs the one that it had: ",
                "Rank 1 on beta waits for all members at step 7, and rank 0 on alpha began step 7 with",
            ),
        ),
        ("run_steps, other", "Rank 1 on beta runs another program than rank 0 on alpha in step 8: evaluate ("),
        (
            "run_steps, early",
            "Rank 1 on beta returned after 24 steps of the strategy, while rank 0 on alpha began step 31",
        ),
    ],
)
def test_processes_of_a_gang_find_the_odd_one_through_jax_s_service(fault: str, says: str | tuple[str, ...]) -> None:
    place = CoordinatorPort("127.0.0.1")
    members = [
        subprocess.Popen(
            [sys.executable, "-c", MEMBER, place.coordinator, str(rank), fault], stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    began_at = time.monotonic()
    try:
        said = [
            [line[2:] for line in member.communicate(timeout=120)[0].splitlines() if line.startswith("> ")]
            for member in members
        ]
    finally:
        for member in members:
            member.kill()
        place.close()

    assert time.monotonic() - began_at < 120
    if fault == "none":
        assert said == [["alike"], ["alike"]]
    else:
        assert all(lines[0].startswith(says) for lines in said), said
