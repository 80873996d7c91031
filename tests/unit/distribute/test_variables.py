from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import drumline.distribute as dist
from drumline.distribute.errors import (
    ContextError,
    DivergingCopiesWarning,
    InvalidValueError,
    StateLostError,
)

pytestmark = pytest.mark.x64(often=False)


def replica_id() -> Any:
    context = dist.get_replica_context()
    assert context is not None
    return jnp.asarray(context.replica_id_in_sync_group, jnp.float32)


def make(strategy: dist.Strategy, initial: Any = 10.0, **kwargs: Any) -> dist.Variable:
    with strategy.scope():
        return dist.Variable(initial, **kwargs)


def copies(variable: dist.Variable) -> list[Any]:
    return [np.asarray(value).tolist() for value in variable.values]


@pytest.mark.parametrize(
    ("aggregation", "op", "expected"),
    [
        ("sum", "assign", 9.0),
        ("mean", "assign", 3.0),
        ("only_first_replica", "assign", 1.0),
        ("sum", "assign_add", 19.0),
        ("mean", "assign_add", 13.0),
        ("only_first_replica", "assign_add", 11.0),
        ("sum", "assign_sub", 1.0),
        ("mean", "assign_sub", 7.0),
        ("only_first_replica", "assign_sub", 9.0),
    ],
)
@pytest.mark.parametrize("kind", ["mirrored", "central", "central_elsewhere"])
def test_differing_writes_become_one_by_aggregation(kind: str, aggregation: str, op: str, expected: float) -> None:
    devices = jax.devices()[:3]
    makers: dict[str, Callable[[], dist.Strategy]] = {
        "mirrored": lambda: dist.MirroredStrategy(devices),
        "central": lambda: dist.CentralStorageStrategy(devices, devices[0]),
        "central_elsewhere": lambda: dist.CentralStorageStrategy(devices, jax.devices()[7]),
    }
    strategy = makers[kind]()
    variable = make(strategy, aggregation=aggregation)

    def step() -> Any:
        getattr(variable, op)(2 * replica_id() + 1)
        return variable.value

    assert [float(value) for value in strategy.run(step).values] == [expected] * 3
    assert copies(variable) == [expected] * (3 if kind == "mirrored" else 1)
    assert float(variable) == expected


def test_without_aggregation_copies_diverge_with_a_warning(three: dist.MirroredStrategy) -> None:
    variable = make(three)
    with pytest.warns(DivergingCopiesWarning, match=r"its copies will differ"):
        three.run(lambda: variable.assign_add(replica_id()))
    assert copies(variable) == [10, 11, 12]
    assert float(variable) == 10


def test_without_aggregation_uniform_writes_keep_copies_equal_and_do_not_warn(three: dist.MirroredStrategy) -> None:
    variable = make(three)

    def step(x: Any) -> None:
        variable.assign_add(dist.all_reduce("sum", x))

    three.run(step, args=(dist.PerReplica.from_components([1.0, 2.0, 3.0]),))
    assert copies(variable) == [16] * 3


def test_central_storage_needs_an_aggregation_to_be_written_by_replicas() -> None:
    strategy = dist.CentralStorageStrategy(jax.devices()[:2])
    variable = make(strategy)
    with pytest.raises(ValueError, match=r"aggregation='sum', 'mean' or 'only_first_replica'"):
        strategy.run(lambda: variable.assign(replica_id()))


def test_on_read_copies_are_aggregated_when_read_outside(three: dist.MirroredStrategy) -> None:
    for aggregation, expected in (("sum", 33.0), ("mean", 11.0), ("only_first_replica", 10.0)):
        variable = make(three, synchronization="on_read", aggregation=aggregation)
        three.run(lambda v: v.assign_add(replica_id()), args=(variable,))
        assert copies(variable) == [10, 11, 12]
        assert float(variable) == expected
        assert not variable.trainable


def test_on_read_without_aggregation_cannot_be_read_outside(three: dist.MirroredStrategy) -> None:
    variable = make(three, synchronization="on_read")
    three.run(lambda: variable.assign(replica_id()))
    assert copies(variable) == [0, 1, 2]
    with pytest.raises(ValueError, match=r"read \.values"):
        variable.value  # noqa: B018


@pytest.mark.parametrize(("aggregation", "expected"), [("mean", 11.0), ("only_first_replica", 11.0)])
def test_the_same_constant_from_all_replicas_is_applied_once(
    three: dist.MirroredStrategy, aggregation: str, expected: float
) -> None:
    variable = make(three, aggregation=aggregation)
    three.run(lambda: variable.assign_add(1.0))
    assert copies(variable) == [expected] * 3


def test_the_sum_of_one_shared_constant_is_refused(three: dist.MirroredStrategy) -> None:
    variable = make(three, aggregation="sum")
    with pytest.raises(ValueError, match=r"the same value 1.0 on every replica"):
        three.run(lambda: variable.assign_add(1.0))
    three.run(lambda x: variable.assign_add(x), args=(dist.PerReplica.from_components([1.0, 1.0, 1.0]),))
    assert float(variable) == 13


def test_the_sum_of_one_shared_constant_is_refused_on_ragged_batches_too(three: dist.MirroredStrategy) -> None:
    variable = make(three, aggregation="sum")
    ragged = dist.PerReplica.from_components([np.zeros(n, np.float32) for n in (2, 1, 0)])
    with pytest.raises(ValueError, match=r"the same value"):
        three.run(lambda x: variable.assign_add(1.0), args=(ragged,))
    three.run(lambda x: variable.assign_add(x.shape[0]), args=(ragged,))
    assert float(variable) == 13


def test_every_replica_updates_a_plain_variable(three: dist.MirroredStrategy) -> None:
    plain = dist.Variable(1.0)
    three.run(lambda: plain.assign_add(2.0))
    assert float(plain) == 7
    three.run(lambda: plain.assign_add(replica_id()))
    assert float(plain) == 10


def test_kinds_that_cannot_work_are_refused_at_creation(two: dist.MirroredStrategy) -> None:
    with two.scope():
        with pytest.raises(ValueError, match=r"synchronization='none' has no meaning"):
            dist.Variable(1.0, synchronization="none")
        with pytest.raises(ValueError, match=r"needs a floating dtype, not int\d\d"):
            dist.Variable(1, aggregation="mean")
        with pytest.raises(ValueError, match=r"use one of auto, none, on_write, on_read"):
            dist.Variable(1.0, synchronization="sometimes")
        with pytest.raises(NotImplementedError, match=r"layout='mirrored' only"):
            dist.Variable(1.0, layout="sharded")  # type: ignore[arg-type]


def test_the_initializer_is_called_once(three: dist.MirroredStrategy) -> None:
    calls = []

    def initializer() -> Any:
        calls.append(1)
        return np.float32(4)

    variable = make(three, initializer)
    assert (len(calls), copies(variable)) == (1, [4] * 3)


def test_cross_replica_writes_reach_every_copy(three: dist.MirroredStrategy) -> None:
    for aggregation in ("sum", "mean", "only_first_replica", "none"):
        variable = make(three, aggregation=aggregation)
        variable.assign(5.0).assign_add(1.0)
        assert copies(variable) == [6] * 3


def test_cross_replica_assignment_of_a_summed_variable_is_shared_out_exactly(three: dist.MirroredStrategy) -> None:
    whole = make(three, 0, synchronization="on_read", aggregation="sum")
    whole.assign(7)
    assert (copies(whole), int(whole)) == ([3, 2, 2], 7)
    real = make(three, 0.0, synchronization="on_read", aggregation="sum")
    real.assign(9.0)
    assert copies(real) == [3, 3, 3]
    with pytest.raises(ValueError, match=r"outside a step"):
        real.assign_add(1.0)


def test_a_value_read_outside_survives_the_next_step(two: dist.MirroredStrategy) -> None:
    variable = make(two, np.asarray([1, 2], np.float32), aggregation="mean")
    before, raw = variable.value, variable.values
    for _ in range(2):
        two.run(lambda: variable.assign_add(np.ones(variable.shape)))
    assert before.tolist() == [1, 2]
    assert raw[1].tolist() == [1, 2]
    assert copies(variable) == [[3, 4]] * 2


@pytest.mark.parametrize(("kind", "aggregation"), [("mirrored", "mean"), ("mirrored", "none"), ("central", "mean")])
def test_waiting_for_variables_waits_and_gives_no_value_out(kind: str, aggregation: str) -> None:
    devices = jax.devices()[:2]
    strategy = dist.MirroredStrategy(devices) if kind == "mirrored" else dist.CentralStorageStrategy(devices)
    variable = make(strategy, np.asarray([1, 2], np.float32), aggregation=aggregation)
    many = 3_000_000  # enough that the step is not done when it has been sent

    def step(times: jax.Array) -> None:
        added = jnp.ones(2, jnp.float32) * lax.fori_loop(0, times, lambda _, x: x + 1.0, jnp.float32(0))
        variable.assign_add(dist.all_reduce("mean", added))

    strategy.run(step, args=(jnp.int32(0),))  # compiles
    strategy.run(step, args=(jnp.int32(many),))
    held: Any = variable.lift_buffer(donate=False)
    assert jax.block_until_ready({"weights": [variable]}) == {"weights": [variable]}
    assert held.is_ready()
    strategy.run(step, args=(jnp.int32(0),))
    assert held.is_deleted()
    assert copies(variable)[0] == [many + 1, many + 2]


def test_the_users_initial_array_survives_donation(two: dist.MirroredStrategy) -> None:
    initial = jnp.arange(3.0)
    variable = make(two, initial, aggregation="mean")
    for _ in range(3):
        two.run(lambda: variable.assign_add(np.ones(variable.shape)))
    assert initial.tolist() == [0, 1, 2]


def test_a_failed_step_after_donation_says_which_state_is_lost(two: dist.MirroredStrategy) -> None:
    variable = make(two, np.asarray([1, 2], np.float32), aggregation="mean", name="weights")
    step = lambda: variable.assign_add(np.ones(variable.shape))  # noqa: E731
    two.run(step)
    variable.lift_buffer(donate=True).delete()  # what XLA does to a donated buffer
    with pytest.raises(StateLostError, match=r"lost: weights"):
        two.run(step)


def test_a_variable_made_inside_run_has_replica_0s_value_and_lives_on(two: dist.MirroredStrategy) -> None:
    made = []

    def step(x: Any) -> Any:
        variable = dist.Variable(replica_id() + 5, aggregation="mean")
        made.append(variable)
        variable.assign_add(1.0)
        return variable.value

    x = dist.PerReplica.from_components([1.0, 2.0])
    assert [float(v) for v in two.run(step, args=(x,)).values] == [6, 6]
    assert [float(v) for v in two.run(step, args=(x,)).values] == [7, 7]
    assert [float(v) for v in two.run(step, args=(x,)).values] == [8, 8]
    assert len({id(variable) for variable in made}) == 1
    ragged = dist.PerReplica.from_components([np.zeros(2), np.zeros(1)])
    assert [float(v) for v in two.run(step, args=(ragged,)).values] == [9, 9]
    assert copies(made[0]) == [9, 9]


def test_a_variable_made_in_a_ragged_step_is_one_for_all_replicas(two: dist.MirroredStrategy) -> None:
    def step(x: Any) -> Any:
        return dist.Variable(replica_id() + 5, aggregation="mean").assign_add(1.0).value

    ragged = dist.PerReplica.from_components([np.zeros(2), np.zeros(1)])
    assert [float(v) for v in two.run(step, args=(ragged,)).values] == [6, 6]
    assert [float(v) for v in two.run(step, args=(ragged,)).values] == [7, 7]


def test_operators_work_on_the_value(two: dist.MirroredStrategy) -> None:
    variable = make(two, np.asarray([1, 2], np.float32), aggregation="mean")
    assert (variable + 1).tolist() == [2, 3]
    assert (2 * variable - variable / 2).tolist() == [1.5, 3]
    assert (float(variable @ variable), float(variable[1]), len(variable)) == (5, 2, 2)
    assert bool(variable[0] < variable[1])
    assert jnp.sum(variable.value) == 3
    assert np.asarray(variable).tolist() == [1, 2]
    assert [float(v) for v in two.run(lambda: (variable * 2).sum()).values] == [6, 6]


def test_a_value_that_would_be_cut_off_is_refused(two: dist.MirroredStrategy) -> None:
    variable = make(two, 1, aggregation="sum")
    with pytest.raises(InvalidValueError, match=r"holds int\d\d; a float\d\d value would be cut off"):
        variable.assign(1.5)
    with pytest.raises(ValueError, match=r"cut off"):
        two.run(lambda: variable.assign_add(replica_id()))


def test_a_variable_of_another_strategy_cannot_be_used_in_a_step(two: dist.MirroredStrategy) -> None:
    other = make(dist.MirroredStrategy(jax.devices()[2:4]), aggregation="mean")
    with pytest.raises(ContextError, match=r"create it in this strategy's scope"):
        two.run(lambda: other.value)


def test_deepcopy_works_under_the_same_strategy_only(two: dist.MirroredStrategy, three: dist.MirroredStrategy) -> None:
    variable = make(two, aggregation="mean")
    with two.scope():
        twin = copy.deepcopy(variable)
    twin.assign(1.0)
    assert (float(variable), float(twin)) == (10, 1)
    with three.scope(), pytest.raises(RuntimeError, match=r"under its own strategy only"):
        copy.deepcopy(variable)


def test_two_strategies_of_different_size_work_side_by_side(
    two: dist.MirroredStrategy, three: dist.MirroredStrategy
) -> None:
    first, second = make(two, 0.0, aggregation="sum"), make(three, 0.0, aggregation="sum")
    for _ in range(5):
        two.run(lambda: first.assign_add(replica_id()))
        three.run(lambda: second.assign_add(replica_id()))
    assert (float(first), float(second)) == (5, 15)


def test_the_handle_is_a_replicas(two: dist.MirroredStrategy) -> None:
    variable = make(two, aggregation="mean")
    with two.scope(), pytest.raises(ValueError, match=r"one handle per replica"):
        variable.handle  # noqa: B018


def test_a_merge_sees_the_aggregate_of_copies_synchronized_on_read(three: dist.MirroredStrategy) -> None:
    summed = make(three, 0.0, synchronization="on_read", aggregation="sum")

    def merge(strategy: Any) -> Any:
        total = summed.value
        summed.assign(9.0)
        return total

    def step(x: Any) -> Any:
        summed.assign_add(x)
        return dist.merge_call(merge)

    assert float(three.run(step, args=(dist.PerReplica.from_components([1.0, 2.0, 4.0]),))) == 7
    assert copies(summed) == [3, 3, 3]


def test_copies_that_diverged_later_are_not_taken_for_equal(three: dist.MirroredStrategy) -> None:
    diverging, mean = make(three, 0.0), make(three, 0.0, aggregation="mean")

    def copy_over() -> None:
        mean.assign(diverging.value)

    three.run(copy_over)
    with pytest.warns(DivergingCopiesWarning, match=r"its copies will differ"):
        three.run(lambda: diverging.assign(replica_id()))
    three.run(copy_over)
    assert copies(mean) == [1, 1, 1]


def test_a_plain_variable_can_be_read_in_steps_of_several_strategies(
    two: dist.MirroredStrategy, three: dist.MirroredStrategy
) -> None:
    rate = dist.Variable(2.0)
    for expected in (2.0, 5.0):
        rate.assign(expected)
        assert [float(v) for v in two.run(lambda: rate.value * 1).values] == [expected] * 2
        assert [float(v) for v in three.run(lambda: rate.value * 1).values] == [expected] * 3
