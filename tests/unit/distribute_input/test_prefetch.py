import gc
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from itertools import cycle, repeat
from typing import Any

import jax
import numpy as np
import pytest

import drumline.distribute as dist
from drumline.distribute.input.prefetch import Lookahead


def test_results_come_in_order_and_none_ends() -> None:
    source = iter([1, 2, 3])
    ahead = Lookahead(lambda: next(source, None), 2, hand_over_s=0)
    assert [ahead.next() for _ in range(5)] == [1, 2, 3, None, None]


def test_at_most_depth_results_wait() -> None:
    calls = 0
    reached = threading.Event()

    def produce() -> int:
        nonlocal calls
        calls += 1
        if calls == 3:
            reached.set()
        return calls

    ahead = Lookahead(produce, 2, hand_over_s=0)
    assert ahead.next() == 1
    assert reached.wait(10)
    ahead.discard()
    assert calls == 3


def test_depth_zero_reads_when_asked_on_the_callers_thread() -> None:
    threads: list[int] = []

    def produce() -> int:
        threads.append(threading.get_ident())
        return len(threads)

    ahead = Lookahead(produce, 0)
    assert (ahead.next(), ahead.next()) == (1, 2)
    assert set(threads) == {threading.get_ident()}


def test_what_is_made_faster_than_it_is_handed_over_is_made_on_the_callers_thread() -> None:
    threads: list[int] = []

    def produce() -> int:
        threads.append(threading.get_ident())
        return len(threads)

    ahead = Lookahead(produce, 1, hand_over_s=60)
    assert [ahead.next() for _ in range(20)] == [*range(1, 21)]
    assert set(threads) == {threading.get_ident()}


class _Source:
    """Steps that take the given seconds by its own clock; notes on which thread each is made."""

    def __init__(self, seconds: Iterable[float]) -> None:
        self._seconds = iter(seconds)
        self.now = 0.0
        self.threads: list[threading.Thread] = []

    def produce(self) -> int | None:
        self.now += next(self._seconds)
        self.threads.append(threading.current_thread())
        return len(self.threads)

    def first_read_ahead(self, steps: int) -> int | None:
        """The number of the first step of so many that another thread makes, from 0."""
        ahead = Lookahead(self.produce, 1, hand_over_s=1.0, clock=lambda: self.now)
        assert [ahead.next() for _ in range(steps)] == [*range(1, steps + 1)]
        ahead.discard()
        here = [thread is threading.current_thread() for thread in self.threads[:steps]]
        return here.index(False) if False in here else None


def test_slow_steps_are_read_ahead_from_the_fourth() -> None:
    assert _Source(repeat(5.0)).first_read_ahead(10) == 3


@pytest.mark.parametrize(("every", "seconds"), [(2, 5.0), (10, 30.0), (50, 200.0)])
def test_a_source_that_is_slow_every_so_many_steps_is_read_ahead(every: int, seconds: float) -> None:
    source = _Source(cycle([*[0.01] * (every - 1), seconds]))
    started = source.first_read_ahead(every * 3)
    assert started is not None
    assert every < started <= every * 2 + 1


def test_a_source_whose_slow_steps_do_not_make_its_mean_high_is_not_read_ahead() -> None:
    assert _Source(cycle([*[0.01] * 9, 5.0])).first_read_ahead(500) is None


def test_the_first_step_and_one_hiccup_do_not_start_the_reading_ahead() -> None:
    assert _Source([90.0, *[0.1] * 5, 1000.0, *[0.1] * 400]).first_read_ahead(300) is None


def test_a_source_that_becomes_slow_is_read_ahead() -> None:
    started = _Source([*[0.01] * 1000, *[5.0] * 200]).first_read_ahead(1100)
    assert started is not None
    assert 1000 < started < 1050


def test_what_is_made_slower_than_it_is_handed_over_is_read_ahead() -> None:
    reached = threading.Event()
    calls = 0

    def produce() -> int:
        nonlocal calls
        calls += 1
        if calls > 3:
            assert threading.current_thread() is not threading.main_thread()
            reached.set()
        return calls

    ahead = Lookahead(produce, 1, hand_over_s=1e-12)
    assert [ahead.next() for _ in range(3)] == [1, 2, 3]
    assert reached.wait(10)
    assert ahead.next() == 4


def test_the_reading_thread_ends_when_the_iterator_is_dropped() -> None:
    threads: list[threading.Thread] = []

    def produce() -> int:
        threads.append(threading.current_thread())
        return 1

    ahead = Lookahead(produce, 1, hand_over_s=0)
    ahead.next()
    del ahead
    gc.collect()
    threads[0].join(10)
    assert not threads[0].is_alive()


def test_an_error_of_the_dataset_is_raised_by_the_step_it_belongs_to() -> None:
    def batches() -> Iterator[Any]:
        yield np.ones(2)
        raise OSError("disk gone")

    iterator = iter(dist.MirroredStrategy(jax.devices()[:2]).distribute_dataset(batches))
    next(iterator)
    with pytest.raises(OSError, match="disk gone"):
        next(iterator)


@pytest.mark.parametrize("buffer_size", [0, 1])
def test_64_bit_types_of_the_callers_thread_hold_in_the_reading_thread(buffer_size: int) -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:2])
    options = dist.InputOptions(per_replica_buffer_size=buffer_size)
    with jax.enable_x64(True):
        (step,) = strategy.distribute_dataset([np.array([2**40, 1])], options)
    assert step.values[0].tolist() == [2**40]


def test_a_stream_that_went_silent_does_not_keep_the_process_alive() -> None:
    program = """
import threading
import drumline.distribute as dist
import numpy as np

def batches():
    yield from (np.ones(2) for _ in range(2))
    threading.Event().wait()

dist.set_cpu_devices(2)
print(next(iterator := iter(dist.MirroredStrategy().distribute_dataset(batches))).rows, flush=True)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.strip() == "(1, 1)"
