"""What one program of a user computes, whatever the number of processes that its eight replicas lie in."""

from dataclasses import asdict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import drumline.distribute as dist
from drumline.distribute.errors import DistributeError
from drumline.distribute.observe.summaries import PAIRS

ROWS = np.random.default_rng(0).normal(size=(64, 5)).astype(np.float32)
LABELS = (ROWS @ np.arange(5, dtype=np.float32) > 0).astype(np.float32)


def plain(value: Any) -> Any:
    """The numbers of arrays, as JSON has them."""
    return jax.tree.map(lambda leaf: np.asarray(leaf).astype(float).round(5).tolist(), value)


def refused(call: Any) -> str:
    """What an engine's error says."""
    try:
        call()
    except DistributeError as error:
        return f"{type(error).__name__}: {error}"
    return "not refused"


def own_numbers(strategy: dist.Strategy) -> Any:
    """A per-replica value: the replica's number, from 0."""
    return strategy.distribute_values_from_function(lambda context: np.float32(context.replica_id_in_sync_group))


def replica_number() -> Any:
    """In a step: which replica it is."""
    context = dist.get_replica_context()
    assert context is not None
    return context.replica_id_in_sync_group


def placed() -> dict[str, Any]:
    """Which devices, replicas and values are whose."""
    strategy = dist.MirroredStrategy()
    numbers = own_numbers(strategy)
    pairs = strategy.run(lambda x: (x, x + 1), args=(numbers,))
    return {
        "replicas": strategy.num_replicas_in_sync,
        "own": list(strategy.local_replicas),
        "local": plain(strategy.local_results(numbers)),
        "local pairs": plain(strategy.local_results(pairs)),
        "stacked": list(numbers.stacked.shape) if numbers.stacked is not None else None,
        "ids": plain(strategy.local_results(strategy.run(replica_number))),
        "shown": str(numbers),
        "workers": list(strategy.extended.worker_devices),
    }


def combined() -> dict[str, Any]:
    """Reductions and gathers, in steps and outside."""
    strategy = dist.MirroredStrategy()
    numbers = own_numbers(strategy)
    rows = strategy.run(lambda x: x * 10 + jnp.arange(3, dtype=jnp.float32), args=(numbers,))

    def collectives(x: Any) -> Any:
        total = dist.all_reduce("sum", x)
        merged = dist.merge_call(lambda s, v: s.reduce("mean", v, axis=None), args=(x,))
        return total, dist.all_gather(x[None], axis=0).sum(), merged, dist.all_reduce("mean", {"a": x})

    inside = strategy.run(collectives, args=(numbers,))
    return {
        "sum": plain(strategy.reduce("sum", numbers, axis=None)),
        "mean": plain(strategy.reduce("mean", rows, axis=0)),
        "gather": plain(strategy.gather(rows, axis=0)),
        "gather of what all have": plain(strategy.gather(strategy.run(lambda: dist.mirrored(jnp.ones((1,)))), axis=0)),
        "inside": [plain(strategy.reduce("mean", leaf, axis=None)) for leaf in jax.tree.leaves(inside)],
        "whole": all(leaf.is_fully_replicated for leaf in [strategy.gather(rows, axis=0)]),
        "scalars": refused(lambda: strategy.gather(numbers, axis=0)),
    }


def slices() -> dict[str, Any]:
    """Rows of an embedding."""
    strategy = dist.MirroredStrategy()
    numbers = own_numbers(strategy)
    with strategy.scope():
        table = dist.Variable(jnp.zeros((9, 2)), aggregation="sum")

    def step(x: Any) -> Any:
        rows = dist.IndexedSlices(jnp.ones((1, 2)) * x, x.astype(jnp.int32)[None], (9, 2))
        table.scatter_add(rows)
        return rows

    rows = strategy.run(step, args=(numbers,))
    total = strategy.reduce("sum", rows, axis=None)
    written = plain(table.value)
    table.scatter_add(total)
    return {
        "rows": plain(total.values), "at": plain(total.indices), "written": written, "again": plain(table.value),
        "dense": plain(strategy.reduce("sum", rows, axis=0)),
    }  # fmt: skip


def variables() -> dict[str, Any]:
    """Every kind of variable, written in a step and outside."""
    strategy = dist.MirroredStrategy()
    numbers = own_numbers(strategy)
    told: dict[str, Any] = {}
    for synchronization in ("on_write", "on_read"):
        for aggregation in ("sum", "mean", "only_first_replica", "none"):
            with strategy.scope():
                made = dist.Variable(jnp.full((2,), 3.0), synchronization=synchronization, aggregation=aggregation)
            strategy.run(lambda x, made=made: made.assign(x + jnp.ones(2)), args=(numbers,))
            seen = (
                [refused(lambda made=made: made.value)]
                if (synchronization, aggregation) == ("on_read", "none")
                else [plain(made.value)]
            )
            strategy.run(lambda x, made=made: made.assign_add(jnp.ones(2) * x), args=(numbers,))
            copies = plain(strategy.gather(made, axis=0))
            seen += [copies, len(strategy.local_results(made)) == len(strategy.local_replicas)]
            made.assign(jnp.full((2,), 16.0))
            seen.append(plain(strategy.gather(made, axis=0)))
            told[f"{synchronization} {aggregation}"] = seen
    return told


def updates() -> dict[str, Any]:
    """``extended``: what libraries build on."""
    strategy = dist.MirroredStrategy()
    numbers = own_numbers(strategy)
    extended = strategy.extended
    with strategy.scope():
        weight = dist.Variable(jnp.ones((2,)), aggregation="mean")
        own = dist.Variable(jnp.zeros(()), synchronization="on_read", aggregation="sum")
        total = extended.reduce_to("sum", numbers, weight)
        extended.update(weight, lambda v, d: v.assign_add(d * jnp.ones(2)), args=(total,))
        extended.update(own, lambda v, d: v.assign(d), args=(numbers,))
        first = extended.batch_reduce_to("mean", [(numbers, "CPU:0"), (numbers, weight)])
        spread = extended.broadcast_to(jnp.float32(7), weight)
    strategy.run(lambda: weight.assign_add(jnp.ones(2)))
    return {
        "weight": plain(weight.value),
        "own": plain(own.value),
        "first": plain(first[0]),
        "second": plain(first[1].value),
        "spread": plain(spread.values[0]),
        "created": extended.variable_created_in_scope(weight),
        "between": extended.experimental_between_graph,
    }


def losses(policy: str = "DATA") -> list[float]:
    """Training by gradient descent, over two epochs of a dataset whose batches the replicas share."""
    strategy = dist.MirroredStrategy()
    with strategy.scope():
        weights = dist.Variable(jnp.zeros(5), aggregation="mean")
        bias = dist.Variable(jnp.zeros(()), aggregation="mean")
        seen = dist.Variable(jnp.zeros((), jnp.int32), synchronization="on_read", aggregation="sum")

    def loss_of(w: Any, b: Any, x: Any, y: Any) -> Any:
        return jnp.mean(jnp.logaddexp(0, x @ w + b) - y * (x @ w + b))

    def step(x: Any, y: Any, rate: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of, (0, 1))(weights.value, bias.value, x, y)
        grads = dist.all_reduce("mean", grads)
        weights.assign_sub(rate * grads[0])
        bias.assign_sub(rate * grads[1])
        seen.assign_add(jnp.int32(x.shape[0]))
        return loss

    dataset = dist.Dataset.from_tensor_slices((ROWS, LABELS)).shuffle(64, seed=1).batch(16)
    batches = strategy.distribute_dataset(dataset.with_auto_shard_policy(policy))
    found = []
    for _ in range(2):
        for x, y in batches:
            per_replica = strategy.run(step, args=(x, y, jnp.float32(0.5)))
            found.append(float(strategy.reduce("mean", per_replica, axis=None)))
    assert int(seen.value) == 128
    return found


def arguments() -> dict[str, Any]:
    """Arguments that all replicas share, of every kind, and results that come back in."""
    strategy = dist.MirroredStrategy()
    numbers = own_numbers(strategy)
    key = jax.random.key(3)
    host = np.arange(3, dtype=np.int64)

    def step(x: Any, k: Any, h: Any, number: Any, state: Any) -> Any:
        noise = jax.random.uniform(dist.replica_key(k))
        new = {"count": state["count"] + 1, "total": state["total"] + dist.all_reduce("sum", x)}
        return dist.mirrored(new), x * number + h.sum() + noise

    state = {"count": jnp.zeros((), jnp.int32), "total": jnp.zeros(())}
    for _ in range(3):
        state, out = strategy.run(step, args=(numbers, key, host, 2.0, state))
    back = strategy.run(lambda x: x - 1, args=(out,))
    return {"state": plain(state), "out": plain(strategy.gather(strategy.run(lambda x: x[None], args=(back,)), axis=0))}


def losses_of_functional_style() -> list[float]:
    """State handed in and returned, with an optimizer of a library."""
    import optax

    strategy = dist.MirroredStrategy()
    optimizer = optax.adam(0.1)
    parameters = {"w": jnp.zeros(5), "b": jnp.zeros(())}
    state = (parameters, optimizer.init(parameters))

    def step(state: Any, x: Any, y: Any) -> Any:
        parameters, moments = state
        loss, grads = jax.value_and_grad(lambda p: jnp.mean((x @ p["w"] + p["b"] - y) ** 2))(parameters)
        changes, moments = optimizer.update(dist.all_reduce("mean", grads), moments)
        return dist.mirrored((optax.apply_updates(parameters, changes), moments)), loss

    found = []
    for x, y in strategy.distribute_dataset(dist.Dataset.from_tensor_slices((ROWS, LABELS)).batch(32)):
        state, loss = strategy.run(step, args=(state, x, y))
        found.append(float(strategy.reduce("mean", loss, axis=None)))
    return found


def made_in_step() -> list[Any]:
    """A variable made in a step, an update of one made outside of every scope, and a step that accumulates."""
    strategy = dist.MirroredStrategy()
    outside = dist.Variable(jnp.ones(()))
    made: list[dist.Variable] = []

    def step() -> Any:
        if not made:
            made.append(dist.Variable(jnp.full((2,), 5.0), aggregation="mean"))
        made[0].assign_add(jnp.ones(2))
        outside.assign_add(1.0)
        return made[0].value

    for _ in range(2):
        strategy.run(step)
    return [plain(made[0].value), plain(outside.value)]


def multi_worker() -> list[Any]:
    """TensorFlow's other names for a strategy over processes, and the devices that they take."""
    options = dist.CommunicationOptions(bytes_per_pack=50, implementation="RING")
    named = dist.MultiWorkerMirroredStrategy(communication_options=options)
    older = dist.contrib.MirroredStrategy(num_gpus_per_worker=1)
    before = older.num_replicas_in_sync
    tasks = {"worker": [f"host{i}.example:2222" for i in range(jax.process_count())]}
    older.configure(cluster_spec=tasks, task_type="worker", task_id=jax.process_index())
    total = older.reduce("sum", older.run(lambda: jnp.ones(())), axis=None)
    other = {"worker": [f"host{i}.example:2222" for i in range(jax.process_count() + 1)]}
    return [
        named.num_replicas_in_sync, before, older.num_replicas_in_sync, float(total),
        refused(lambda: older.configure(cluster_spec=other)),
        refused(lambda: older.configure(cluster_spec=tasks)),
    ]  # fmt: skip


def own_task() -> list[Any]:
    """Which task each process is to a program that asks its strategy, where nobody told addresses."""
    resolver = dist.MultiWorkerMirroredStrategy().cluster_resolver
    return [resolver.task_type, resolver.task_id, resolver.cluster_spec().as_dict(), resolver.master()]


class Seen:
    """Keeps what the engine tells of reductions."""

    def __init__(self) -> None:
        self.placements: list[Any] = []
        self.homes: list[Any] = []
        self.steps: list[Any] = []
        self.reductions: list[Any] = []

    def placement(self, record: Any) -> None:
        """Which devices each replica has."""
        self.placements.append([[device.process_index for device in one.devices] for one in record.replicas])

    def variable_created(self, record: Any) -> None:
        """Where its copies are."""
        self.homes.append(len(record.home))

    def step_began(self, step: int) -> None:
        """A step."""

    def step_ended(self, record: Any) -> None:
        """Its rows."""
        self.steps.append([record.rows, record.examples])

    def collective(self, record: Any) -> None:
        """One in lock-step."""

    def reduction(self, record: Any) -> None:
        """All its inputs."""
        inputs = [dist.observe.summarize(value).values for value in record.inputs]
        self.reductions.append([record.origin, record.op, inputs, list(record.counts), record.denominator])


def interval_of_large_arrays() -> dict[str, Any]:
    """What this process measured of recording them, and what it was agreed to do."""
    strategy = dist.MirroredStrategy()
    strategy.observe(Seen(), reductions_every=3)
    numbers = own_numbers(strategy)
    for _ in range(3 + 2 * (PAIRS + 1)):
        strategy.run(lambda x: dist.all_reduce("sum", jnp.zeros((40, 50)) + x), args=(numbers,))
    told = asdict(strategy._observation.large.told)
    strategy.observe(None)
    return told


def observed() -> list[Any]:
    """What an observer sees of two steps, the first of them sampled."""
    strategy = dist.MirroredStrategy()
    seen = Seen()
    strategy.observe(seen, reductions_every=2)
    with strategy.scope():
        weight = dist.Variable(jnp.zeros(()), aggregation="mean")
    rows = dist.Dataset.range(32).map(lambda row: np.float32(row)).batch(16)
    for x in strategy.distribute_dataset(rows):
        losses = strategy.run(lambda x: weight.assign_add(dist.all_reduce("sum", x.sum())).value + x, args=(x,))
        strategy.reduce("mean", losses, axis=0, name="loss")
    places = [len(place) for place in seen.placements]
    return [places, seen.homes, seen.steps, seen.reductions]


def several_steps() -> list[Any]:
    """``run_steps``: several steps in one call, fewer at the end."""
    strategy = dist.MirroredStrategy()
    with strategy.scope():
        total = dist.Variable(jnp.zeros(()), aggregation="sum")
    rows = dist.Dataset.range(80).map(lambda row: np.float32(row)).batch(16)
    iterator = iter(strategy.distribute_dataset(rows))

    def step(x: Any) -> Any:
        total.assign_add(x.sum())
        return x.sum()

    found = []
    while ran := strategy.run_steps(step, iterator, 3):
        found.append([ran.count, plain(strategy.reduce("sum", ran.results, axis=None)), plain(total.value)])
    return found


def logical_devices() -> list[Any]:
    """Replicas of two devices each: a value that is split, reductions, variables, and a batch."""
    topology = dist.tpu.initialize_tpu_system(tpu_slice="v3:2x2")
    assignment = dist.tpu.DeviceAssignment.build(topology, computation_shape=[1, 1, 1, 2], num_replicas=4)
    strategy = dist.TPUStrategy(experimental_device_assignment=assignment)
    with strategy.scope():
        weight = dist.Variable(jnp.ones((4, 4)), aggregation="mean")

    def step(x: Any) -> Any:
        half = strategy.split_to_logical_devices(x @ weight.value, [1, 2])
        weight.assign_add(jnp.full((4, 4), dist.all_reduce("sum", half.sum())))
        return half.sum()

    rows = dist.Dataset.from_tensor_slices(np.arange(64, dtype=np.float32).reshape(16, 4)).batch(8)
    found = [strategy.num_replicas_in_sync]
    for x in strategy.distribute_dataset(rows):
        sums = strategy.run(step, args=(x,))
        found += [plain(strategy.reduce("sum", sums, axis=None)), plain(weight.value[0, 0])]
    return [*found, len(strategy.local_results(sums)) == len(strategy.local_replicas)]


class Programs(Seen):
    """Keeps the collectives of each program."""

    def __init__(self) -> None:
        super().__init__()
        self.collectives: list[Any] = []

    def program_dispatched(self, steps: range, program: Any) -> None:
        """By kind: bytes, how often in a step, and whether replicas of several processes take part."""
        told = [[one.kind, one.op, one.bytes, one.times, one.crosses] for one in program.collectives]
        self.collectives.append([program.name.rpartition(".")[2], told])


def exchanged() -> list[Any]:
    """What two steps exchange: with all replicas, and with those next to each only."""
    strategy, seen = dist.MirroredStrategy(), Programs()
    strategy.observe(seen)
    with strategy.scope():
        weight = dist.Variable(jnp.zeros((3, 2)), aggregation="mean")
    pairs = [[replica, replica ^ 1] for replica in range(8)]

    def train(x: Any) -> Any:
        weight.assign_add(jnp.ones((3, 2)) * x)
        return jax.lax.fori_loop(0, 4, lambda _, y: dist.all_reduce("sum", y), x)

    def shift(x: Any) -> Any:
        near = jax.lax.ppermute(x, "replica", pairs)
        far = jax.lax.ppermute(x, "replica", [(replica, (replica + 1) % 8) for replica in range(8)])
        return near + far, jax.lax.all_gather(x, "replica", axis_index_groups=pairs[::2])

    for step in (train, shift):
        strategy.run(step, args=(own_numbers(strategy),))
    return seen.collectives
