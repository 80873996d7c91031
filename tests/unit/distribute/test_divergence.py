"""The copies of mirrored variables are compared on their devices; the odd one is named."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import drumline.distribute as dist
from drumline.distribute.observe.divergence import CopyChecksums, OddCopy, checksum_copies

OPTIMIZER = optax.adam(0.1)


def rewrite_copy(variable: Any, replica: int, value: Any) -> None:
    """What a broken device does: one copy becomes another value, and nobody is told."""
    shards = [np.array(shard.data) for shard in variable._buffer.addressable_shards]
    shards[replica] = np.asarray(value, shards[replica].dtype).reshape(shards[replica].shape)
    devices = [shard.device for shard in variable._buffer.addressable_shards]
    copies = [jax.device_put(copy, device) for copy, device in zip(shards, devices, strict=True)]
    variable._buffer = jax.make_array_from_single_device_arrays(
        variable._buffer.shape, variable._buffer.sharding, copies
    )


def checksums(strategy: dist.Strategy) -> CopyChecksums:
    found = checksum_copies(strategy)
    assert found is not None
    return found


DTYPES = ["float32", "bfloat16", "float16", "int32", "int8", "uint8", "bool", "complex64"]


@pytest.mark.parametrize("aggregation", ["none", "only_first_replica"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_copy_of_which_one_element_was_rewritten_is_named(
    four: dist.MirroredStrategy, dtype: str, aggregation: str
) -> None:
    with four.scope():
        kept = dist.Variable(jnp.ones((3, 5), dtype), name="kept")
        odd = dist.Variable(jnp.ones((4, 2), dtype), aggregation=aggregation, name="odd")
    assert checksums(four).odd_copies() == []
    value = np.ones((4, 2), jnp.dtype(dtype))
    value[3, 1] = 0
    rewrite_copy(odd, 2, value)

    (copy,) = checksums(four).odd_copies()
    assert (copy.name, copy.replica, copy.device) == ("odd", 2, jax.devices()[2])
    assert kept.shape == (3, 5)


def test_the_smallest_change_of_any_element_is_seen(two: dist.MirroredStrategy) -> None:
    with two.scope():
        variable = dist.Variable(np.zeros(7, np.float32), name="v")
    for at in range(7):
        value = np.zeros(7, np.float32)
        value[at] = np.nextafter(np.float32(0), np.float32(1))
        rewrite_copy(variable, 1, value)
        assert [copy.replica for copy in checksums(two).odd_copies()] == [1]
        variable.assign(np.zeros(7, np.float32))
    assert checksums(two).odd_copies() == []


def test_zeros_of_the_other_sign_and_nan_are_compared_by_their_bits(two: dist.MirroredStrategy) -> None:
    with two.scope():
        variable = dist.Variable(np.array([0.0, np.nan], np.float32), name="v")
    assert checksums(two).odd_copies() == []
    rewrite_copy(variable, 1, np.array([-0.0, np.nan], np.float32))
    assert [copy.replica for copy in checksums(two).odd_copies()] == [1]


def test_steps_keep_copies_equal_and_a_step_after_the_check_may_donate_them(four: dist.MirroredStrategy) -> None:
    with four.scope():
        variable = dist.Variable(np.zeros(1000, np.float32), aggregation="mean", name="v")
    begun = []
    for _ in range(5):
        four.run(lambda: variable.assign_add(jnp.ones(1000)))
        begun.append(checksums(four))
    assert [each.odd_copies() for each in begun] == [[]] * 5
    assert float(variable.numpy()[0]) == 5


def test_there_is_nothing_to_compare_on_one_replica_or_without_mirrored_variables(two: dist.MirroredStrategy) -> None:
    alone = dist.MirroredStrategy(jax.devices()[:1])
    with alone.scope():
        held = dist.Variable(1.0)
    with two.scope():
        local = dist.Variable(1.0, synchronization="on_read", aggregation="sum")
    assert checksum_copies(alone) is None
    assert checksum_copies(two) is None
    assert (float(held.numpy()), local.shape) == (1.0, ())


class Comparing:
    """Compares the arguments of every step from the second on, and listens to nothing else."""

    def __init__(self) -> None:
        self.odd: dict[range, list[OddCopy]] = {}

    def ignore(self, record: object) -> None:
        """A record of no matter here."""

    placement = variable_created = step_began = step_ended = collective = reduction = ignore

    def wants_arguments(self, steps: range) -> bool:
        return steps.start > 0

    def arguments_taken(self, steps: range, sums: CopyChecksums) -> None:
        self.odd[steps] = sums.odd_copies()


def rewrite_array(array: jax.Array, replica: int) -> jax.Array:
    shards = [np.array(shard.data) for shard in array.addressable_shards]
    shards[replica].flat[-1] += 1
    copies = [jax.device_put(copy, shard.device) for copy, shard in zip(shards, array.addressable_shards, strict=True)]
    return jax.make_array_from_single_device_arrays(array.shape, array.sharding, copies)


def train(state: Any, x: jax.Array, *, frozen: jax.Array) -> Any:
    weights, memory = state
    gradients = {name: dist.all_reduce("mean", jnp.sum(x) * frozen * weights[name]) for name in weights}
    updates, memory = OPTIMIZER.update(gradients, memory)
    return dist.mirrored((optax.apply_updates(weights, updates), memory)), jnp.sum(x)


@pytest.mark.parametrize("layers", [1, 20], ids=["few leaves", "many leaves"])
@pytest.mark.parametrize("donate", [(), ("state",)], ids=["kept", "donated"])
def test_the_odd_copy_of_state_that_is_handed_through_is_named_by_its_path(
    four: dist.MirroredStrategy, donate: tuple[str, ...], layers: int
) -> None:
    four.observe(observer := Comparing())
    weights = {f"layer{i}": jnp.ones(3) for i in range(layers)}
    state, frozen = (weights, OPTIMIZER.init(weights)), jnp.ones(3)
    options = dist.RunOptions(donate=donate) if donate else None
    for step in range(6):
        if step == 3:
            state[0]["layer0"] = rewrite_array(state[0]["layer0"], 2)
        x = dist.PerReplica.from_components([jnp.ones(2) * replica for replica in range(4)])
        state, _ = four.run(train, args=(state, x), kwargs={"frozen": frozen}, options=options)

    assert [observer.odd[range(step, step + 1)] for step in (1, 2)] == [[], []]
    (first,) = observer.odd[range(3, 4)]
    assert (first.name, first.replica, first.device) == ("state.0.layer0", 2, jax.devices()[2])
    # The other replicas' all-reduced gradients keep the odd copy odd, and nothing else but what is made from it.
    assert {(copy.name, copy.replica) for copy in observer.odd[range(5, 6)]} == {("state.0.layer0", 2)}


def test_arguments_of_several_steps_in_a_program_are_compared_once(two: dist.MirroredStrategy) -> None:
    two.observe(observer := Comparing())
    iterator = iter(two.distribute_dataset([np.ones((4, 3), np.float32)] * 8))
    table = two.run(lambda: dist.mirrored(jnp.ones(3)))
    for attempt in range(2):
        table = rewrite_array(table, 1) if attempt else table
        two.run_steps(lambda table, x: jnp.sum(x @ table), iterator, 4, args=(table,))
    assert [(steps, [copy.name for copy in odd]) for steps, odd in observer.odd.items()] == [
        (range(1, 5), []),
        (range(5, 9), ["table"]),
    ]
