import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grain
import jax
import numpy as np
import pytest

import drumline.distribute as dist
from drumline.distribute.input.parallel import ChoiceLog

Build = Callable[[], Any]


def text_file(folder: Path) -> str:
    path = folder / "lines.txt"
    path.write_text("".join(f"{line}\n" for line in range(11)))
    return str(path)


def interleaved(threads: int | None) -> dist.Dataset:
    return (
        dist.Dataset.range(6)
        .interleave(lambda x: dist.Dataset.range(10 * int(x), 11 * int(x)), 2, 3, num_parallel_calls=threads)
        .batch(4)
    )


BUILDS: dict[str, Build] = {
    "slices": lambda: dist.Dataset.range(11).batch(4),
    "sizes cycling across batches": lambda: dist.Dataset.range(11).batch(4).with_auto_shard_policy("off"),
    "repeated": lambda: dist.Dataset.range(5).repeat(3).batch(4),
    "mapped, prefetched": lambda: dist.Dataset.range(11).batch(4).map(lambda x: x + 1).prefetch(2),
    "unbatched and batched again": lambda: dist.Dataset.range(11).batch(3).unbatch().batch(4),
    "generator": lambda: dist.Dataset.from_generator(lambda: (np.arange(n) for n in (4, 3, 5, 1))),
    "generator, repeated, skipped": lambda: dist.Dataset.from_generator([np.arange(3)] * 4).skip(1).repeat(2).take(5),
    "generator, sharded": lambda: dist.Dataset.from_generator([np.arange(n) for n in range(1, 9)]).shard(2, 1),
    "shuffled": lambda: dist.Dataset.range(11).shuffle(11).repeat(2).batch(4),
    "shuffled in windows": lambda: dist.Dataset.from_generator([np.arange(3)] * 4).unbatch().shuffle(5).batch(4),
    "zipped, of different kinds": lambda: (
        dist.Dataset.zip(dist.Dataset.range(11).shuffle(11), dist.Dataset.from_generator(range(11)))
        .map(lambda x, y: 100 * x + y)
        .batch(4)
    ),
    "filtered": lambda: dist.Dataset.range(20).filter(lambda x: x % 3 > 0).batch(4),
    "taken while": lambda: dist.Dataset.range(20).take_while(lambda x: x < 9).repeat(2).batch(4),
    "numbered": lambda: dist.Dataset.range(5).enumerate(7).map(lambda i, x: i * 100 + x).repeat(2).batch(4),
    "cached": lambda: dist.Dataset.range(5).map(lambda x: x + 1).cache().repeat(3).batch(4),
    "concatenated": lambda: dist.Dataset.range(5).concatenate(dist.Dataset.from_generator(range(3))).repeat(2).batch(4),
    "windows that overlap": lambda: (
        dist.Dataset.range(11).window(4, shift=2, stride=2).flat_map(lambda window: window.batch(4))
    ),
    "windows with gaps": lambda: dist.Dataset.range(17).window(2, shift=5).flat_map(lambda window: window.batch(2)),
    "flat_map": lambda: dist.Dataset.range(1, 6).flat_map(lambda x: dist.Dataset.range(int(x))).batch(4),
    "interleave": lambda: interleaved(None),
    "parallel interleave": lambda: interleaved(3),
    "parallel map": lambda: dist.Dataset.range(11).map(lambda x: x + 1, num_parallel_calls=3).repeat(2).batch(4),
    "declared generator": lambda: dist.Dataset.from_generator(range(11), output_types=np.int32).batch(4),
    "grain": lambda: grain.MapDataset.range(11).shuffle(seed=1).batch(4),
}


def shown(step: Any) -> list[Any]:
    return [np.asarray(value).tolist() for value in step.values]


@pytest.mark.parametrize("name", BUILDS)
@pytest.mark.parametrize("buffer_size", [0, 1, 3])
def test_a_restored_iterator_gives_exactly_the_remaining_steps(name: str, buffer_size: int) -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:3])
    options = dist.InputOptions(per_replica_buffer_size=buffer_size)

    def fresh() -> Any:
        return iter(strategy.distribute_dataset(BUILDS[name](), options))

    everything = [shown(step) for step in fresh()]
    for taken in range(len(everything) + 1):
        interrupted = fresh()
        for _ in range(taken):
            next(interrupted)
        state = json.loads(json.dumps(interrupted.state()))
        continued = fresh()
        next(continued)
        continued.restore(state)
        assert [shown(step) for step in continued] == everything[taken:]


def test_a_later_pass_over_a_shuffled_dataset_is_restored_in_its_own_order() -> None:
    dataset = dist.MirroredStrategy(jax.devices()[:2]).distribute_dataset(dist.Dataset.range(40).shuffle(40).batch(4))
    first, second = iter(dataset), iter(dataset)
    assert shown(next(first)) != shown(next(second))
    state = second.state()
    remaining = [shown(step) for step in second]
    first.restore(state)
    assert [shown(step) for step in first] == remaining


def test_datasets_from_functions_and_files_are_restored_too(tmp_path: Path) -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:2])
    path = text_file(tmp_path)

    def fresh() -> Any:
        return iter(strategy.distribute_datasets_from_function(lambda _: dist.Dataset.text_lines(path).batch(2)))

    interrupted = fresh()
    next(interrupted)
    continued = fresh()
    continued.restore(interrupted.state())
    assert [shown(step) for step in continued] == [shown(step) for step in interrupted]


def test_a_place_beyond_the_end_of_an_iterable_is_refused() -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:2])
    long, short = ([np.ones(2)] * length for length in (4, 1))
    iterator = iter(strategy.distribute_dataset(long))
    for _ in range(3):
        next(iterator)
    with pytest.raises(ValueError, match="ends after 1"):
        iter(strategy.distribute_dataset(short)).restore(iterator.state())


def places_of(dataset: dist.Dataset) -> Any:
    """Its iterator, which says where it is."""
    return iter(dataset)


def slow_at_odds(x: Any) -> Any:
    """Takes longer for some, so that later ones are done before; which, differs from one pass to the next."""
    time.sleep(random.choice((0, 0, 0.002)))
    return x


def without_order() -> dist.Dataset:
    return dist.Dataset.range(12).map(slow_at_odds, num_parallel_calls=4, deterministic=False)


def of_datasets(dataset: dist.Dataset, deterministic: bool) -> dist.Dataset:
    def open_two(x: Any) -> dist.Dataset:
        return dist.Dataset.range(2 * int(x), 2 * int(x) + 2).map(slow_at_odds)

    return dataset.interleave(open_two, 3, num_parallel_calls=2, deterministic=deterministic)


WITHOUT_ORDER: dict[str, Callable[[], dist.Dataset]] = {
    "rows of batches": lambda: without_order().batch(5).unbatch(),
    "its datasets, without order": lambda: of_datasets(without_order(), deterministic=False),
    "its datasets, in order": lambda: of_datasets(without_order(), deterministic=True),
    "rows of batches of datasets": lambda: of_datasets(without_order(), deterministic=False).batch(5).unbatch(),
    "map after map": lambda: without_order().map(slow_at_odds, 3, False).batch(4).unbatch(),
    "shuffled": lambda: without_order().shuffle(5, seed=1).batch(3).unbatch(),
    "cached": lambda: without_order().cache(),
    "cached zip": lambda: dist.Dataset.zip(without_order()).map(lambda x: x).cache(),
    "cached datasets without order": lambda: dist.Dataset.range(3).flat_map(lambda _: without_order()).cache(),
    "read ahead": lambda: without_order().batch(5).unbatch().prefetch(2),
}


@pytest.mark.parametrize("made", WITHOUT_ORDER.values(), ids=WITHOUT_ORDER.keys())
def test_an_iterator_without_order_gives_every_element_once_also_when_restored(
    made: Callable[[], dist.Dataset],
) -> None:
    """Twice, and by a place that was written down only after its iterator went on."""
    whole = sorted(int(element) for element in made())
    for restored_after in range(9):
        for goes_on in (0, 2):
            first, second, third = (places_of(made()) for _ in range(3))
            elements = [int(next(first)) for _ in range(restored_after)]
            place = first.get_state()
            for _ in range(goes_on):
                next(first)
            second.set_state(json.loads(json.dumps(place)))
            elements.append(int(next(second)))
            third.set_state(json.loads(json.dumps(second.get_state())))
            assert sorted([*elements, *map(int, third)]) == whole


def test_places_that_nobody_holds_are_forgotten() -> None:
    """Also by an iterator that never chooses, as one without threads."""
    log = ChoiceLog()
    for _ in range(100):
        kept = log.place()
    assert len(log._held) <= 2
    log.note(3)
    assert (kept, len(log._held)) == ([3], 1)


def test_rows_of_steps_without_order_come_once_also_when_restored() -> None:
    """A step ends within an element of up to three rows."""
    strategy = dist.MirroredStrategy(jax.devices()[:2])

    def fresh() -> Any:
        dataset = dist.Dataset.range(10).map(lambda x: np.full(int(x) % 3 + 1, int(x)))
        without = dataset.map(slow_at_odds, num_parallel_calls=4, deterministic=False)
        return iter(strategy.distribute_dataset(without.with_auto_shard_policy("off")))

    def rows(step: Any) -> list[int]:
        return [int(row) for part in strategy.local_results(step) for row in part]

    whole = sorted(row for x in range(10) for row in [x] * (x % 3 + 1))
    for restored_after in range(1, 6):
        interrupted, continued = fresh(), fresh()
        read = [row for _ in range(restored_after) for row in rows(next(interrupted))]
        continued.restore(json.loads(json.dumps(interrupted.state())))
        assert sorted([*read, *(row for step in continued for row in rows(step))]) == whole


def uneven(policy: str) -> dist.Dataset:
    """Batches of 4, 4 and 3 rows, twice: rule B's second turn begins within a batch."""
    return dist.Dataset.range(11).batch(4).repeat(2).with_auto_shard_policy(policy)


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_place_within_a_batch_is_continued_where_each_batch_is_a_step_by_the_batchs_rest(replicas: int) -> None:
    saving = iter(dist.MirroredStrategy(jax.devices()[:3]).distribute_dataset(uneven("off")))
    taken = [row for _ in range(3) for replica in shown(next(saving)) for row in replica]
    assert taken == [*range(11), 0]

    strategy = dist.MirroredStrategy(jax.devices()[:replicas])
    resumed = iter(strategy.distribute_dataset(uneven("auto")))
    resumed.restore(saving.state())
    again = iter(strategy.distribute_dataset(uneven("auto")))
    again.restore(json.loads(json.dumps(resumed.state())))  # nothing was taken: the place is as it was
    for iterator in (resumed, again):
        steps = [[row for value in strategy.local_results(step) for row in value.tolist()] for step in iterator]
        assert steps == [[1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]


def test_a_place_within_a_batch_that_is_shorter_now_is_refused() -> None:
    saving = iter(dist.MirroredStrategy(jax.devices()[:3]).distribute_dataset(uneven("off")))
    for _ in range(3):
        next(saving)
    one_row = iter(dist.MirroredStrategy(jax.devices()[:2]).distribute_dataset(dist.Dataset.range(22).batch(1)))
    with pytest.raises(ValueError, match="1 rows into a batch that has 1"):
        one_row.restore(saving.state())
