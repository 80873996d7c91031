"""Ragged steps: replicas of equal shapes share one trace and one program."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist


def batch(*rows: int) -> dist.PerReplica:
    return dist.PerReplica.from_components([np.arange(n, dtype=np.float32) + 10 * r for r, n in enumerate(rows)])


def test_the_step_is_traced_and_compiled_once_per_shape(four: dist.MirroredStrategy) -> None:
    traced, compiled = [], []

    def step(x: Any) -> Any:
        traced.append(x.shape)
        return jnp.sin(x).sum() + dist.all_reduce("sum", x.sum())

    def note(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(duration_secs)

    four.run(step, args=(batch(5, 5, 5, 2),))  # the sum over the devices is compiled once per replica count
    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        four.run(step, args=(batch(7, 7, 7, 3),))
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
    assert traced == [(5,), (2,), (7,), (3,)]
    assert len(compiled) == 4  # before and after the all-reduce, for each of two shapes


@pytest.mark.x64
@pytest.mark.parametrize("rows", [(3, 3, 3, 1), (3, 1, 3, 1), (0, 3, 3, 3), (2, 2, 2, 2)])
def test_replicas_that_share_a_program_keep_their_own_values_and_numbers(rows: tuple[int, ...]) -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:4], executor="mpmd")
    with strategy.scope():
        local = dist.Variable(np.float32(0), synchronization="on_read", aggregation="sum")

    def step(x: Any) -> Any:
        context = dist.get_replica_context()
        assert context is not None
        local.assign_add(x.sum())
        number = jax.lax.axis_index("replica")
        drawn = jax.random.uniform(dist.replica_key(jax.random.key(0)))
        return x * 2, context.replica_id_in_sync_group, number, dist.all_reduce("sum", number), drawn

    components = batch(*rows)
    for _ in range(2):
        doubled, ids, numbers, total, drawn = strategy.run(step, args=(components,))
    expected = [np.asarray(part) * 2 for part in components.values]
    assert [part.tolist() for part in doubled.values] == [part.tolist() for part in expected]
    assert [int(v) for v in ids.values] == [int(v) for v in numbers.values] == [0, 1, 2, 3]
    assert [int(v) for v in total.values] == [6] * 4
    assert [float(v) for v in local.values] == [float(part.sum()) for part in expected]
    keys = [jax.random.fold_in(jax.random.key(0), r) for r in range(4)]
    assert [float(v) for v in drawn.values] == [float(jax.random.uniform(key)) for key in keys]


def test_a_branch_on_the_replica_number_traces_every_replica(four: dist.MirroredStrategy) -> None:
    def step(x: Any) -> Any:
        context = dist.get_replica_context()
        assert context is not None
        return x.sum() if context.replica_id_in_sync_group == 1 else -x.sum()

    results = four.run(step, args=(batch(2, 2, 2, 1),))
    assert [float(v) for v in results.values] == [-1, 21, -41, -30]


def test_merged_results_of_different_shapes_go_back_to_their_replicas(four: dist.MirroredStrategy) -> None:
    def step(x: Any) -> Any:
        return dist.merge_call(lambda strategy, v: dist.PerReplica.from_components([2 * c for c in v.values]), (x,))

    results = four.run(step, args=(batch(2, 2, 2, 1),))
    assert [v.tolist() for v in results.values] == [[0, 2], [20, 22], [40, 42], [60]]


def test_a_loop_around_a_collective_takes_each_replica_its_own_way(four: dist.MirroredStrategy) -> None:
    def step(x: Any) -> Any:
        def body(carry: Any, _: Any) -> Any:
            return dist.all_reduce("sum", carry), None

        carry, _ = jax.lax.scan(body, x.sum(), None, length=2)
        return carry

    results = four.run(step, args=(batch(2, 2, 2, 1),))
    assert [float(v) for v in results.values] == [4 * (1 + 21 + 41 + 30)] * 4


@pytest.mark.x64
def test_numbers_and_constants_of_shared_programs(four: dist.MirroredStrategy) -> None:
    table = jnp.arange(3.0)
    numbers = dist.PerReplica.from_components([1, 2, 3, 4])

    @jax.jit
    def nested(x: Any) -> Any:
        return dist.all_reduce("sum", (x.sum() * table).sum() + jnp.asarray([1.0, 2.0])[0])

    def step(x: Any, n: Any, plain: Any) -> Any:
        return nested(x) + n * plain

    results = four.run(step, args=(batch(2, 2, 2, 1), numbers, 0.5))
    total = 3 * (1 + 21 + 41 + 30) + 4
    assert [float(v) for v in results.values] == [total + 0.5, total + 1.0, total + 1.5, total + 2.0]
