"""What a program over several processes must not do, or must be told of, each process by itself."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import drumline.distribute as dist
from unit.distribute.gangs.program import own_numbers, refused

RANK = jax.process_index()
ODD = jax.process_count() - 1
IS_ODD = RANK == ODD


def other_variable() -> str:
    """The last process starts a variable at another value."""
    strategy = dist.MirroredStrategy()
    with strategy.scope():
        return refused(lambda: dist.Variable(jnp.full((2,), 7.0 if IS_ODD else 1.0), name="w"))


def other_argument() -> str:
    """The last process hands another learning rate to the step."""
    strategy = dist.MirroredStrategy()
    rate = {"rate": 0.2 if IS_ODD else 0.1}
    return refused(lambda: strategy.run(lambda x, options: x * options["rate"], args=(own_numbers(strategy), rate)))


def other_array() -> str:
    """The last process hands in another array."""
    strategy = dist.MirroredStrategy()
    return refused(lambda: strategy.run(lambda x: x.sum(), kwargs={"x": np.full(3, float(IS_ODD))}))


def other_program() -> list[str]:
    """The last process traces another step; the next step, which is the same, runs."""
    strategy = dist.MirroredStrategy()
    numbers = own_numbers(strategy)
    said = refused(lambda: strategy.run((lambda x: x * 2) if IS_ODD else (lambda x: x + 2), args=(numbers,)))
    total = strategy.reduce("sum", strategy.run(lambda x: x + 1, args=(numbers,)), axis=None)
    return [said, str(float(total))]


def other_constant() -> str:
    """The last process captured another array."""
    strategy = dist.MirroredStrategy()
    table = np.arange(5.0) + IS_ODD
    return refused(lambda: strategy.run(lambda x: x + jnp.asarray(table).sum(), args=(own_numbers(strategy),)))


def fails() -> str:
    """The step of the last process raises while it is traced."""
    strategy = dist.MirroredStrategy()

    def step() -> Any:
        if IS_ODD:
            raise ZeroDivisionError("by zero")
        return jnp.ones(())

    try:
        strategy.run(step)
    except (ZeroDivisionError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return "not refused"


def elsewhere() -> str:
    """The last process makes a variable where the others step."""
    strategy = dist.MirroredStrategy()

    def make() -> Any:
        with strategy.scope():
            return dist.Variable(jnp.zeros(3), name="extra")

    return refused(make if IS_ODD else (lambda: strategy.run(lambda: jnp.ones(()))))


def other_values() -> str:
    """Per-replica values of two shapes."""
    strategy = dist.MirroredStrategy()
    return refused(lambda: strategy.distribute_values_from_function(lambda _: np.zeros(2 + IS_ODD)))


def one_process_only() -> list[str]:
    """What other executors and strategies say, and a step whose Python needs the replica's number."""
    strategy = dist.MirroredStrategy()

    def by_number() -> Any:
        context = dist.get_replica_context()
        assert context is not None
        return jnp.ones(()) if int(context.replica_id_in_sync_group) else jnp.zeros(())

    return [
        refused(lambda: dist.MirroredStrategy(executor="pmap")),
        refused(lambda: dist.MirroredStrategy(executor="mpmd")),
        refused(lambda: dist.CentralStorageStrategy(jax.devices())),
        refused(lambda: strategy.run(by_number)),
        refused(lambda: dist.MirroredStrategy([device for device in jax.devices() if device.process_index != RANK])),
        f"{dist.MirroredStrategy(jax.local_devices()).num_replicas_in_sync}",
    ]


def ragged(rows: int) -> list[Any]:
    """A batch that does not divide, or the last one of a dataset: the steps before it, and what it says."""
    strategy = dist.MirroredStrategy()
    options = dist.InputOptions(last_batch="exact")
    batches = iter(strategy.distribute_dataset(dist.Dataset.range(rows).batch(16), options))
    seen: list[Any] = []
    said = refused(lambda: seen.extend(batches))
    return [len(seen), said]


def shorter(batches: int) -> list[Any]:
    """The generator of the last process has a batch less: how many steps all take, and what they are told."""
    strategy = dist.MirroredStrategy()

    def generate(context: dist.InputContext) -> Any:
        for number in range(batches - (context.input_pipeline_id == context.num_input_pipelines - 1)):
            yield from [np.full((2,), number, np.float32)] * len(strategy.local_replicas)

    dataset = strategy.distribute_datasets_from_function(
        lambda context: dist.Dataset.from_generator(lambda: generate(context))
    )
    iterator = iter(dataset)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        sums = [float(strategy.reduce("sum", x, axis=0)) for x in iterator]
    return [
        sums,
        sorted({str(one.message)[:60] for one in told if "ended before" in str(one.message)}),
        iterator.dropped_rows,
    ]


def other_length() -> str:
    """Each process has its own array for what all are to read whole."""
    strategy = dist.MirroredStrategy()
    return refused(lambda: strategy.distribute_dataset(dist.Dataset.range(32 + 16 * IS_ODD).batch(16)))
