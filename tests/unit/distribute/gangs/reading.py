"""What each replica reads of datasets, whatever the number of processes."""

import json
from pathlib import Path
from typing import Any

import numpy as np

import drumline.distribute as dist
from unit.distribute.gangs.program import plain


def steps_of(strategy: dist.Strategy, dataset: Any) -> list[Any]:
    """Of each step the rows of this process's replicas."""
    return [plain(strategy.local_results(step)) for step in dataset]


def global_batches(policy: str, kind: str) -> list[Any]:
    """Batches of the global size, of a source whose length is known, or is not."""
    strategy = dist.MirroredStrategy()
    rows = np.arange(48, dtype=np.float32)
    if kind == "known":
        dataset = dist.Dataset.from_tensor_slices(rows).batch(16)
    elif kind == "generator":
        dataset = dist.Dataset.from_generator(lambda: (rows[i : i + 16] for i in range(0, 48, 16)))
    else:
        dataset = dist.Dataset.from_tensor_slices(rows).filter(lambda row: row >= 16).batch(16)
    return steps_of(strategy, strategy.distribute_dataset(dataset.with_auto_shard_policy(policy)))


def contexts() -> list[Any]:
    """What a dataset function is told, and the steps of what it returns."""
    strategy = dist.MirroredStrategy()
    told: list[Any] = []

    def make(context: dist.InputContext) -> Any:
        told.append(
            [context.num_input_pipelines, context.input_pipeline_id, context.num_replicas_in_sync,
             context.get_per_replica_batch_size(16)]
        )  # fmt: skip
        shard = dist.Dataset.range(64).shard(context.num_input_pipelines, context.input_pipeline_id)
        return shard.batch(context.get_per_replica_batch_size(16), drop_remainder=True)

    whole = steps_of(strategy, strategy.distribute_datasets_from_function(make))
    options = dist.InputOptions(replication_mode="PER_REPLICA")
    each = steps_of(strategy, strategy.distribute_datasets_from_function(make, options))
    return [told, whole, each]


def files(directory: str, policy: str) -> list[Any]:
    """The numbers in text files, of which each process reads its own."""
    strategy = dist.MirroredStrategy()
    paths = sorted(map(str, Path(directory).glob("*.txt")))
    dataset = dist.Dataset.text_lines(paths).map(lambda line: np.float32(str(line))).batch(16, drop_remainder=True)
    return steps_of(strategy, strategy.distribute_dataset(dataset.with_auto_shard_policy(policy)))


def files_of_contrib(directory: str, shards: bool) -> list[Any]:
    """The same by the older strategy, whose replicas take a whole batch each; and what it says of no files."""
    strategy = dist.contrib.MirroredStrategy(auto_shard_dataset=shards)
    paths = sorted(map(str, Path(directory).glob("*.txt")))
    dataset = dist.Dataset.text_lines(paths).map(lambda line: np.float32(str(line))).batch(2, drop_remainder=True)
    iterator = strategy.make_dataset_iterator(dataset)
    first = plain(strategy.local_results(iterator.get_next()))
    said = ""
    try:
        strategy.make_dataset_iterator(dist.Dataset.range(8).batch(2))
    except ValueError as error:
        said = str(error)
    return [first, said]


def hinted() -> list[Any]:
    """A dataset that says where its shard is taken."""
    strategy = dist.MirroredStrategy()
    rows = dist.Dataset.range(64).shard(dist.SHARD_HINT, dist.SHARD_HINT).batch(16, drop_remainder=True)
    return steps_of(strategy, strategy.distribute_dataset(rows.with_auto_shard_policy("HINT")))


def on_the_host() -> list[Any]:
    """Batches that stay numpy arrays, also of text, and go to a step as they are."""
    strategy = dist.MirroredStrategy()
    rows = (np.arange(16, dtype=np.float32), np.array([f"row {i}" for i in range(16)], object))
    options = dist.InputOptions(fetch_to_device=False)
    found = []
    for numbers, texts in strategy.distribute_dataset(dist.Dataset.from_tensor_slices(rows).batch(16), options):
        doubled = strategy.run(lambda x: x * 2, args=(numbers,))
        found += [plain(strategy.reduce("sum", doubled, axis=0)), texts.num_replicas]
        found.append([text.tolist() for text in strategy.local_results(texts)])
    return found


def per_replica_batches() -> list[Any]:
    """The strategy of older TensorFlow, whose batch is one replica's."""
    strategy = dist.contrib.MirroredStrategy()
    iterator = strategy.make_dataset_iterator(dist.Dataset.range(40).batch(2, drop_remainder=True))
    return [plain(strategy.local_results(iterator.get_next())) for _ in range(2)]


def place(taken: int) -> str:
    """Where an iterator is after some steps."""
    strategy = dist.MirroredStrategy()
    iterator = iter(strategy.distribute_dataset(_shuffled()))
    for _ in range(taken):
        next(iterator)
    return json.dumps(iterator.state())


def rest(place: str) -> list[Any]:
    """The steps after that place."""
    strategy = dist.MirroredStrategy()
    iterator = iter(strategy.distribute_dataset(_shuffled()))
    iterator.restore(json.loads(place))
    return steps_of(strategy, iterator)


def _shuffled() -> dist.Dataset:
    return dist.Dataset.range(64).shuffle(64, seed=5).batch(16)


def explained() -> str:
    """What is told of who reads what."""
    strategy = dist.MirroredStrategy()
    return str(strategy.distribute_dataset(dist.Dataset.range(64).batch(16)).explain())
