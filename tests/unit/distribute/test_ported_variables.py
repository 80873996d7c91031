"""Variables in programs that come from TensorFlow: what TensorFlow 2.21 gave, unless a test says why not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist
from drumline.distribute.errors import InvalidTypeError, InvalidValueError

KINDS: dict[str, Callable[..., dist.Strategy]] = {
    "mirrored": lambda **kw: dist.MirroredStrategy(jax.devices()[:2], **kw),
    "pmap": lambda **kw: dist.MirroredStrategy(jax.devices()[:2], executor="pmap"),
    "mpmd": lambda **kw: dist.MirroredStrategy(jax.devices()[:2], executor="mpmd"),
    "central": lambda **kw: dist.CentralStorageStrategy(jax.devices()[:2], jax.devices()[0]),
}


@pytest.fixture(params=KINDS)
def strategy(request: pytest.FixtureRequest) -> dist.Strategy:
    """Two replicas, by every executor and strategy."""
    return KINDS[request.param]()


def per_replica(strategy: dist.Strategy, *values: Any) -> Any:
    """One float32 array per replica."""
    return strategy.distribute_values_from_function(
        lambda c: jnp.asarray(values[c.replica_id_in_sync_group], jnp.float32)
    )


def made(strategy: dist.Strategy, value: Any, **kind: Any) -> dist.Variable:
    """A variable of the strategy."""
    with strategy.scope():
        return dist.Variable(value, **kind)


def test_variables_compare_by_value(strategy: dist.Strategy) -> None:
    step = made(strategy, 2)
    assert (bool(step == 2), bool(step != 2), bool(step == 3), bool(step != 3)) == (True, False, False, True)
    assert bool(step == made(strategy, 2))
    rows = made(strategy, [1.0, 2.0])
    assert (rows == [1.0, 3.0]).tolist() == [True, False]
    assert (np.asarray([1.0, 3.0], np.float32) == rows).tolist() == [True, False]
    with strategy.scope():
        total = strategy.extended.reduce_to("sum", per_replica(strategy, 1.0, 2.0), step)
    assert bool(total == 3.0)


def test_variables_compare_by_value_in_a_step(strategy: dist.Strategy) -> None:
    variable = made(strategy, 1.0, aggregation="sum")
    same = strategy.run(lambda x: variable == x, (per_replica(strategy, 1.0, 2.0),))
    assert [bool(one) for one in strategy.local_results(same)] == [True, False]


def test_a_variable_is_a_key_whatever_its_value(strategy: dist.Strategy) -> None:
    one, other = made(strategy, 1.0), made(strategy, 1.0)
    names = {one: "one", other: "other"}
    one.assign(5.0)
    assert (names[one], names[other], len({one, other})) == ("one", "other", 2)
    others: list[Any] = [None, "text", ["a", "b"], [[1], [1, 2]], object()]
    assert [(one == other, one != other) for other in others] == [(False, True)] * len(others)


def test_several_variables_made_in_a_step_are_told_apart(strategy: dist.Strategy) -> None:
    def step(x: Any) -> Any:
        one, other = dist.Variable(1.0, aggregation="sum"), dist.Variable(1.0, aggregation="sum")
        one.assign_add(x)
        return one.value, other.value

    for total in (4.0, 7.0):
        one, other = strategy.run(step, (per_replica(strategy, 1.0, 2.0),))
        assert [float(v) for v in strategy.local_results(one)] == [total] * 2
        assert [float(v) for v in strategy.local_results(other)] == [1.0] * 2


@pytest.mark.parametrize(
    "kind", [{}, {"aggregation": "sum"}, {"synchronization": "on_read", "aggregation": "mean"}], ids=str
)
@pytest.mark.parametrize("value", [1.0, [1.0], [[1.0, 1.0]], np.ones((2, 1))], ids=str)
@pytest.mark.parametrize("method", ["assign", "assign_add", "assign_sub"])
def test_a_value_of_another_shape_is_not_assigned(
    method: str, value: Any, kind: dict[str, Any], two: dist.MirroredStrategy
) -> None:
    variable = made(two, jnp.zeros(2), **kind)

    def step(x: Any) -> None:
        getattr(variable, method)(x)

    attempts: list[Callable[[], Any]] = [
        lambda: getattr(variable, method)(value),
        lambda: two.run(step, (jnp.asarray(value, jnp.float32),)),
        lambda: two.run(step, (per_replica(two, value, value),)),
    ]
    for attempt in attempts:
        with pytest.raises(InvalidValueError, match=r"shape .* to .*Variable.*: the shapes must be equal"):
            attempt()
    assert [copy.tolist() for copy in variable.values] == [[0, 0], [0, 0]]


@pytest.mark.parametrize(
    ("initial", "value", "error"),
    [
        (0.0, 1j, TypeError),
        (False, 2, TypeError),
        (False, 0.5, TypeError),
        (0, 3.5, TypeError),
        (np.uint8(0), -1, ValueError),
        (np.int32(0), 2**40, ValueError),
        (0.0, "a", TypeError),
        (0.0, None, TypeError),
    ],
)
def test_a_value_that_would_be_changed_is_refused_by_name(
    initial: Any, value: Any, error: type[Exception], two: dist.MirroredStrategy
) -> None:
    variable = made(two, initial)
    with pytest.raises(error) as caught:
        variable.assign(value)
    assert isinstance(caught.value, dist.errors.DistributeError)
    assert variable.numpy() == initial


def test_bools_go_into_numbers_and_bools(strategy: dist.Strategy) -> None:
    count, flag = made(strategy, 0), made(strategy, False)
    count.assign(True)
    flag.assign(True)
    assert (int(count), bool(flag & True), bool(flag | False), bool(~flag), bool(flag ^ True)) == (1, 1, 1, 0, 0)


def test_variables_are_printed_and_index_as_numbers(strategy: dist.Strategy) -> None:
    loss, index = made(strategy, 1.25), made(strategy, 2)
    assert (f"{loss:.1f}", [10, 11, 12][index], float(round(loss))) == ("1.2", 12, 1.0)
    assert f"{loss}" == str(loss)


def test_copies_of_variables_are_gathered(two: dist.MirroredStrategy) -> None:
    own = made(two, [1.0], synchronization="on_read", aggregation="sum")
    two.run(lambda x: own.assign_add(x), (per_replica(two, [1.0], [2.0]),))
    assert two.gather(own, axis=0).tolist() == [2, 3]
    mirrored = made(two, [1.0, 2.0], aggregation="sum")
    assert two.gather({"v": mirrored}, axis=0)["v"].tolist() == [1, 2, 1, 2]


def test_what_is_held_once_is_gathered_as_it_is() -> None:
    strategy = KINDS["central"]()
    variable = made(strategy, [1.0], aggregation="sum")
    assert strategy.gather(variable, axis=0) is variable


@pytest.mark.parametrize(
    ("aggregation", "op", "expected"),
    [
        ("sum", "mul", 64.0),
        ("sum", "div", 1.0),
        ("mean", "mul", 16.0),
        ("mean", "div", 4.0),
        ("sum", "add", 14.0),
        ("mean", "sub", 5.0),
        ("only_first_replica", "mul", 16.0),
    ],
)
def test_a_row_that_several_replicas_scatter_to_takes_each_of_them(
    strategy: dist.Strategy, aggregation: str, op: str, expected: float
) -> None:
    """MirroredStrategy's results; TensorFlow's CentralStorage ignores the aggregation there."""
    variable = made(strategy, [8.0, 8.0, 8.0], aggregation=aggregation)

    def step(x: Any) -> None:
        getattr(variable, f"scatter_{op}")(dist.IndexedSlices(x.reshape(1), jnp.asarray([1])))

    strategy.run(step, (per_replica(strategy, 2.0, 4.0),))
    assert variable.value.tolist() == [8, expected, 8]


def test_rows_of_different_number_multiply_rows(two: dist.MirroredStrategy) -> None:
    variable = made(two, [8.0, 8.0, 8.0], aggregation="sum")
    value = per_replica(two, [2.0, 3.0], [4.0])
    rows = two.distribute_values_from_function(
        lambda c: jnp.asarray([[0, 1], [1]][c.replica_id_in_sync_group], jnp.int32)
    )
    two.run(lambda x, at: variable.scatter_mul(dist.IndexedSlices(x, at)), (value, rows))
    assert two.last_executor == "mpmd"
    assert variable.value.tolist() == [16, 96, 8]


def test_indexed_slices_of_lists_are_taken(strategy: dist.Strategy) -> None:
    variable = made(strategy, [0.0, 0.0, 0.0])
    variable.scatter_update(dist.IndexedSlices([5.0], [1]))
    assert variable.value.tolist() == [0, 5, 0]
    with pytest.raises(InvalidValueError, match=r"one index per row"):
        variable.scatter_update(dist.IndexedSlices([5.0], [1, 2]))
    with pytest.raises(InvalidTypeError, match=r"name no rows"):
        variable.scatter_update(dist.IndexedSlices([5.0], [1.0]))


def apply_gradients(strategy: dist.Strategy, pairs: Any) -> None:
    """As Keras' optimizers do, in a merge."""
    for gradient, variable in pairs:
        strategy.extended.update(variable, lambda copy, g: copy.assign_sub(0.1 * g), args=(gradient,), group=False)


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_an_all_reduced_gradient_is_applied_in_a_merge(strategy: dist.Strategy, scale: float) -> None:
    weights = made(strategy, [1.0, 1.0], aggregation="mean")

    def step(x: Any) -> None:
        gradient = scale * dist.all_reduce("sum", x)
        dist.merge_call(apply_gradients, args=([(gradient, weights)],))

    strategy.run(step, (per_replica(strategy, [1.0, 2.0], [3.0, 4.0]),))
    assert weights.value.tolist() == pytest.approx([1 - 0.4 * scale, 1 - 0.6 * scale])


def test_an_all_reduced_gradient_of_a_ragged_batch_is_applied_in_a_merge(two: dist.MirroredStrategy) -> None:
    weights = made(two, 1.0, aggregation="mean")

    def step(x: Any) -> None:
        dist.merge_call(apply_gradients, args=([(dist.all_reduce("sum", x.sum()), weights)],))

    two.run(step, (per_replica(two, [1.0, 2.0], [3.0]),))
    assert two.last_executor == "mpmd"
    assert [float(copy) for copy in weights.values] == pytest.approx([0.4, 0.4])


def test_an_all_reduced_value_is_assigned_in_a_merge(strategy: dist.Strategy) -> None:
    best = made(strategy, 0.0, aggregation="mean")

    def step(x: Any) -> None:
        dist.merge_call(lambda s, total: best.assign(total), args=(dist.all_reduce("sum", x) / 2,))

    strategy.run(step, (per_replica(strategy, 1.0, 2.0),))
    assert float(best) == 1.5


@pytest.mark.parametrize("executor", ["auto", "pmap", "mpmd"])
def test_a_replica_s_own_gradient_is_not_applied_in_a_merge(executor: str) -> None:
    """TensorFlow lets the copies of the variable differ from then on."""
    strategy = dist.MirroredStrategy(jax.devices()[:2], executor=executor)
    weights = made(strategy, [1.0, 1.0], aggregation="mean")

    def step(x: Any) -> None:
        own = x + dist.all_reduce("sum", x)
        dist.merge_call(apply_gradients, args=([(own, weights)],))

    with pytest.raises(InvalidValueError, match=r"whose copies must stay equal.* reduce it first"):
        strategy.run(step, (per_replica(strategy, [1.0, 2.0], [3.0, 4.0]),))
    assert [copy.tolist() for copy in weights.values] == [[1, 1], [1, 1]]


def own_number() -> np.float32:
    """1 on replica 0, 2 on replica 1; needs a program per replica."""
    context: Any = dist.get_replica_context()
    return np.float32(int(context.replica_id_in_sync_group) + 1)


def test_numbers_that_differ_between_programs_are_merged(two: dist.MirroredStrategy) -> None:
    merges: list[tuple[Callable[[dist.Strategy, Any], Any], float]] = [
        (lambda s, n: s.reduce("mean", n, axis=None), 1.5),
        (lambda s, n: s.reduce("sum", n, axis=None), 3.0),
        (lambda s, n: sum(s.local_results(n)), 3.0),
    ]
    for merge, expected in merges:
        result = two.run(lambda m: dist.merge_call(m, args=(own_number(),)), (merge,))
        assert [float(one) for one in two.local_results(result)] in ([expected], [expected] * 2)
    texts = two.run(lambda: dist.merge_call(lambda s, text: text, args=(f"replica {int(own_number())}",)))
    assert two.local_results(texts) == ("replica 1", "replica 2")


def test_the_rows_of_ragged_batches_are_merged(two: dist.MirroredStrategy) -> None:
    def step(x: Any) -> Any:
        return dist.merge_call(lambda s, n: s.reduce("sum", n, axis=None), args=(x.shape[0],))

    rows = two.run(step, (per_replica(two, [1.0, 2.0], [3.0]),))
    assert [float(one) for one in two.local_results(rows)] in ([3.0], [3.0] * 2)


def test_numbers_that_differ_between_programs_update_no_variable(two: dist.MirroredStrategy) -> None:
    weights = made(two, 1.0, aggregation="mean")
    merges: list[Callable[[dist.Strategy, Any], Any]] = [
        lambda s, n: apply_gradients(s, [(n, weights)]),
        lambda s, n: weights.assign(n) and None,
    ]
    for merge in merges:
        with pytest.raises(InvalidValueError, match=r"whose copies must stay equal.* reduce it first"):
            two.run(lambda m: dist.merge_call(m, args=(own_number(),)), (merge,))
    assert [float(copy) for copy in weights.values] == [1, 1]


def assign(strategy: dist.Strategy, variable: dist.Variable, value: Any) -> None:
    variable.assign(value)


def scaled_by_own_number(total: Any) -> Any:
    return total * own_number()


def scaled_by_own_number_in_a_loop(total: Any) -> Any:
    number = own_number()
    return jax.lax.fori_loop(0, 2, lambda _, value: value * number, total)


def scaled_by_an_array_in_a_nested_function(total: Any) -> Any:
    numbers = np.full(2, own_number())
    return jax.jit(lambda value: (value * numbers)[0])(total)


@pytest.mark.parametrize(
    "own", [scaled_by_own_number, scaled_by_own_number_in_a_loop, scaled_by_an_array_in_a_nested_function]
)
def test_a_total_scaled_by_the_replica_s_own_number_updates_no_variable(
    two: dist.MirroredStrategy, own: Callable[[Any], Any]
) -> None:
    weights = made(two, 1.0, aggregation="mean")

    def step(x: Any) -> None:
        dist.merge_call(assign, args=(weights, own(dist.all_reduce("sum", x))))

    with pytest.raises(InvalidValueError, match=r"whose copies must stay equal.* reduce it first"):
        two.run(step, (per_replica(two, 1.0, 2.0),))
    assert [float(copy) for copy in weights.values] == [1, 1]


def test_a_total_divided_by_the_replica_s_own_rows_updates_no_variable(two: dist.MirroredStrategy) -> None:
    weights = made(two, 1.0, aggregation="mean")

    def step(x: Any) -> None:
        mean = dist.all_reduce("sum", x.sum()) / x.shape[0]
        dist.merge_call(assign, args=(weights, mean))

    with pytest.raises(InvalidValueError, match=r"whose copies must stay equal.* reduce it first"):
        two.run(step, (per_replica(two, [1.0, 2.0], [3.0]),))
    assert [float(copy) for copy in weights.values] == [1, 1]


def test_what_every_program_makes_of_totals_alike_updates_a_variable(two: dist.MirroredStrategy) -> None:
    """The programs differ elsewhere: in their shapes, and in what only one replica does."""
    weights, seen = made(two, 1.0, aggregation="mean"), made(two, 0.0, aggregation="mean")
    rate = np.float32(0.5)

    def add_totals(total: Any, row: Any) -> tuple[Any, None]:
        return total + dist.all_reduce("sum", row), None

    def step(x: Any, scale: Any) -> Any:
        own = x * 2 if x.shape[0] == 2 else x + x + x
        total = dist.all_reduce("sum", own.sum())
        new = jax.lax.fori_loop(0, 2, lambda _, value: value * rate, weights.value - scale * total)
        seen.assign(dist.all_reduce("sum", seen.value))
        again, _ = jax.lax.scan(add_totals, new, jnp.full(2, x.sum()))
        dist.merge_call(assign, args=(weights, again))
        return own.sum() / x.shape[0]

    two.run(step, (per_replica(two, [1.0, 2.0], [3.0]), jnp.float32(2)))
    assert [float(copy) for copy in weights.values] == [(1 - 2 * (6 + 9)) / 4 + 2 * (3 + 3)] * 2


def test_rows_of_all_replicas_update_a_variable_in_a_merge(strategy: dist.Strategy) -> None:
    table = made(strategy, np.zeros((4, 1), np.float32), aggregation="sum")

    def apply(s: dist.Strategy, values: Any, rows: Any) -> None:
        s.extended.update(table, lambda t, v, i: t.scatter_sub(dist.IndexedSlices(v, i)), args=(values, rows))

    def step(ids: Any) -> None:
        rows = dist.all_reduce("mean", dist.IndexedSlices(jnp.ones((2, 1)), ids, (4, 1)))
        dist.merge_call(apply, args=rows.parts())

    ids = strategy.distribute_values_from_function(
        lambda c: jnp.asarray([[0, 1], [1, 3]][c.replica_id_in_sync_group], jnp.int32)
    )
    strategy.run(step, (ids,))
    assert [copy.tolist() for copy in table.values] == [[[-0.5], [-1.0], [0.0], [-0.5]]] * len(table.values)


@pytest.mark.parametrize("value", [1.0, 1, True])
def test_a_step_may_return_a_constant_array(strategy: dist.Strategy, value: Any) -> None:
    result = strategy.run(lambda: {"c": jnp.asarray(value)})["c"]
    results = strategy.local_results(result)
    assert [(one.dtype, one.tolist()) for one in results] == [(jnp.asarray(value).dtype, value)] * 2
    if value is not True:
        assert strategy.reduce("sum", result, axis=None) == 2
