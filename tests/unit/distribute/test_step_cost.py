"""The engine tells an observer that wants it what a step takes on each device, without compiling anything for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist
from drumline.distribute import observe

ROWS, WIDTH = 64, 64
PRODUCT = 2 * ROWS * WIDTH * WIDTH


class Costs:
    """Keeps the costs of steps."""

    wants_cost = True

    def __init__(self) -> None:
        self.steps: list[observe.StepRecord] = []

    def step_ended(self, record: observe.StepRecord) -> None:
        self.steps.append(record)

    def _ignore(self, *_: Any) -> None: ...

    placement = variable_created = step_began = collective = reduction = watched = _ignore


def _costs(
    strategy: dist.Strategy, step: Callable[..., Any], *, calls: int = 1, wants: bool = True
) -> list[observe.StepCost | None]:
    costs = Costs()
    costs.wants_cost = wants
    strategy.observe(costs)
    batch = np.ones((ROWS * strategy.num_replicas_in_sync, WIDTH), np.float32)
    x = next(iter(strategy.distribute_dataset([batch])))
    for _ in range(calls):
        strategy.run(step, args=(x,))
    return [record.cost for record in costs.steps]


@contextmanager
def _compilations() -> Iterator[list[str]]:
    seen: list[str] = []

    def listen(event: str, duration_secs: float, **_: str | int) -> None:
        if event.endswith("backend_compile_duration"):
            seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield seen
    jax.monitoring.unregister_event_duration_listener(listen)


def _square(strategy: dist.Strategy) -> Callable[[Any], Any]:
    with strategy.scope():
        w = dist.Variable(jnp.eye(WIDTH), aggregation="mean")

    def step(x: Any) -> Any:
        gradient = x.T @ (x @ w.value)
        w.assign_sub(1e-6 * dist.all_reduce("mean", gradient))
        return gradient.sum()

    return step


@pytest.mark.parametrize("replicas", [1, 4])
def test_every_call_has_the_flops_of_one_device_whatever_else_its_program_looks_at(replicas: int) -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:replicas])
    costs = _costs(strategy, _square(strategy), calls=2)
    assert len(costs) == 2
    for cost in costs:
        assert cost is not None
        assert cost.flops == pytest.approx(2 * PRODUCT, rel=0.15)  # with what is summed
        assert cost.unknown is None


@pytest.mark.parametrize("replicas", [1, 2])
def test_nothing_is_compiled_to_count(replicas: int) -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:replicas])
    compiled = []
    for wants in (False, True):
        step = _square(strategy)
        with _compilations() as seen:
            _costs(strategy, step, calls=1, wants=wants)
        compiled.append(len(seen))
    assert compiled[0] == compiled[1]


def test_of_several_steps_in_one_program_each_has_its_own_cost() -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:2])
    costs = Costs()
    strategy.observe(costs)
    step = _square(strategy)
    batches = iter(strategy.distribute_dataset([np.ones((2 * ROWS, WIDTH), np.float32)] * 4))
    strategy.run_steps(step, batches, 4)
    assert [record.step for record in costs.steps] == [0, 1, 2, 3]
    for record in costs.steps:
        assert record.cost is not None
        assert record.cost.flops == pytest.approx(2 * PRODUCT, rel=0.15)


def test_what_xla_would_count_too_low_is_not_told() -> None:
    def looped(x: Any) -> Any:
        return jax.lax.scan(lambda c, _: (c @ jnp.eye(WIDTH), None), x, None, length=5)[0].sum()

    def by_number(x: Any) -> Any:
        replica = dist.get_replica_context()
        assert replica is not None
        return x.sum() * [1.0, 2.0][int(replica.replica_id_in_sync_group)]

    strategy = dist.MirroredStrategy(jax.devices()[:2])
    assert _costs(strategy, looped)[-1] == observe.StepCost(None, "loops")
    assert _costs(strategy, by_number)[-1] is None  # a program per replica


def test_replicas_of_several_devices_are_counted_by_device() -> None:
    topology = dist.tpu.initialize_tpu_system(tpu_slice="v3:2x2")
    pairs = dist.tpu.DeviceAssignment.build(topology, computation_shape=[1, 1, 1, 2], num_replicas=2)
    strategy = dist.TPUStrategy(None, pairs)

    def product(x: Any) -> Any:
        halves = strategy.experimental_split_to_logical_devices(x, [2, 1])
        return halves @ jnp.eye(WIDTH)

    cost = _costs(strategy, product)[-1]
    assert cost is not None
    assert cost.flops == pytest.approx(PRODUCT / 2, rel=0.15)
