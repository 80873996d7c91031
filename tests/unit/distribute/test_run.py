from __future__ import annotations

import functools
import gc
import warnings
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

import drumline.distribute as dist
from drumline.distribute.errors import DivergingCopiesWarning, InvalidValueError, MissingReplicaError, RetraceWarning

pytestmark = pytest.mark.x64(often=False)


def per_replica(*components: Any) -> dist.PerReplica:
    return dist.PerReplica.from_components([np.asarray(value) for value in components])


def host(value: Any) -> list[Any]:
    return [np.asarray(component).tolist() for component in value.values]


def test_every_replica_gets_its_own_component(two: dist.MirroredStrategy) -> None:
    assert host(two.run(lambda x: x + 1, args=(per_replica([1, 2], [3, 4]),))) == [[2, 3], [4, 5]]


def test_plain_arguments_go_to_every_replica_whole(two: dist.MirroredStrategy) -> None:
    result = two.run(lambda x, scale, y: x * scale + y, args=(per_replica(1.0, 2.0), 10), kwargs={"y": np.float32(0.5)})
    assert host(result) == [10.5, 20.5]


def test_structures_lie_outside_of_per_replica_values(two: dist.MirroredStrategy) -> None:
    batch = {"a": per_replica([1], [3]), "b": (per_replica(2.0, 4.0), None)}
    result = two.run(lambda batch: {"out": (batch["a"] * 2, batch["b"][0])}, args=(batch,))
    assert host(result["out"][0]) == [[2], [6]]
    assert host(result["out"][1]) == [2.0, 4.0]


def test_the_same_object_on_all_replicas_is_returned_bare(two: dist.MirroredStrategy) -> None:
    shared = np.arange(3)
    closed_over = jnp.ones(2)
    result = two.run(lambda x: (7, None, "name", x, closed_over), args=(shared,))
    assert result[:3] == (7, None, "name")
    assert result[3] is shared
    assert result[4] is closed_over


def test_outputs_marked_mirrored_leave_as_one_replicated_array(four: dist.MirroredStrategy) -> None:
    def step(state: Any, x: Any) -> Any:
        return dist.mirrored({"w": state["w"] + dist.all_reduce("sum", x)}), x

    state, echoed = four.run(step, args=({"w": jnp.zeros(())}, per_replica(1.0, 2.0, 3.0, 4.0)))
    assert isinstance(state["w"], jax.Array)
    assert state["w"].sharding.is_fully_replicated
    assert float(state["w"]) == 10
    assert host(echoed) == [1, 2, 3, 4]
    state, _ = four.run(step, args=(state, per_replica(1.0, 2.0, 3.0, 4.0)))
    assert float(state["w"]) == 20


def test_with_one_replica_nothing_is_wrapped() -> None:
    one = dist.MirroredStrategy(jax.devices()[:1])
    assert one.run(lambda x: x + 1, args=(np.float32(1),)) == 2
    assert one.run(lambda x: x + 1, args=(per_replica([1.0]),)).tolist() == [2]
    assert dist.OneDeviceStrategy("CPU:2").run(lambda: jnp.zeros(())).devices() == {jax.devices()[2]}


def test_the_default_strategy_calls_the_function_as_it_is() -> None:
    assert dist.get_strategy().run(lambda x: x + 1, args=(1,)) == 2


def test_strings_bools_and_callables_are_part_of_the_program(two: dist.MirroredStrategy) -> None:
    def step(x: Any, mode: str, flip: bool, fn: Any) -> Any:
        return fn(-x if flip else x) if mode == "on" else x

    assert host(two.run(step, args=(per_replica(1.0, 2.0), "on", True, jnp.abs))) == [1, 2]
    assert host(two.run(step, args=(per_replica(1.0, 2.0), "on", False, jnp.negative))) == [-1, -2]


def test_static_argnames_make_numbers_part_of_the_program(two: dist.MirroredStrategy) -> None:
    options = dist.RunOptions(static_argnames=("n",))
    result = two.run(lambda x, n: jnp.arange(n) + x, args=(per_replica(1, 2), 3), options=options)
    assert host(result) == [[1, 2, 3], [2, 3, 4]]
    with pytest.raises(InvalidValueError, match=r"missing_name"):
        two.run(lambda x: x, args=(1,), options=dist.RunOptions(static_argnames=("missing_name",)))


def test_args_that_are_no_tuple_are_refused(two: dist.MirroredStrategy) -> None:
    with pytest.raises(ValueError, match=r"args must be a tuple.*args=\(batch,\)"):
        two.run(lambda x: x, args=per_replica(1, 2))  # type: ignore[arg-type]


def test_values_made_for_another_replica_count_are_refused(two: dist.MirroredStrategy) -> None:
    with pytest.raises(MissingReplicaError, match=r"made for 3 replicas, this strategy has 2") as caught:
        two.run(lambda x: x, args=(per_replica(1, 2, 3),))
    assert isinstance(caught.value, (ValueError, IndexError))


def test_an_error_in_the_step_is_raised_as_it_is(two: dist.MirroredStrategy) -> None:
    def step(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match=r"mine"):
        two.run(step, args=(per_replica(1, 2),))


def test_several_replicas_without_rows_compute_on_several_inputs() -> None:
    four = dist.MirroredStrategy(jax.devices()[:4])
    rows = np.ones((2, 3), np.float32)
    (batch,) = four.distribute_dataset([(rows, 2 * rows)])

    def step(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.sum(x) + jnp.sum(y), x * y

    totals, products = four.run(step, args=batch)
    assert [float(total) for total in four.local_results(totals)] == [9, 9, 0, 0]
    assert [product.shape for product in four.local_results(products)] == [(1, 3), (1, 3), (0, 3), (0, 3)]
    assert float(four.reduce("sum", four.run(lambda x, y: jnp.sum(x) + jnp.sum(y), args=batch), axis=None)) == 18


def test_a_step_that_fails_where_a_replica_has_no_rows_is_told_so(three: dist.MirroredStrategy) -> None:
    (batch,) = three.distribute_dataset([np.ones((2, 2, 2), np.float32)])

    with pytest.raises(ZeroDivisionError) as caught:
        three.run(lambda x: x.reshape(len(x), -1), args=(batch,))
    said = "This replica's part of the batch has no rows, as the batch has fewer than there are replicas."
    assert any(note.startswith(said) for note in caught.value.__notes__)

    (full,) = three.distribute_dataset([np.ones((3, 2, 2), np.float32)])
    with pytest.raises(ZeroDivisionError) as caught:
        three.run(lambda x: x * (1 // 0), args=(full,))
    assert not any("no rows" in note for note in getattr(caught.value, "__notes__", ()))


def test_ragged_and_empty_replicas_run_with_their_true_shapes(three: dist.MirroredStrategy) -> None:
    batch = per_replica(np.asarray([1, 2], np.float32), np.asarray([3], np.float32), np.zeros(0, np.float32))
    means, rows, echoed = three.run(lambda x: (jnp.mean(x), jnp.int32(x.shape[0]), x), args=(batch,))
    assert host(means)[:2] == [1.5, 3.0]
    assert np.isnan(host(means)[2])
    assert host(rows) == [2, 1, 0]
    assert host(echoed) == [[1, 2], [3], []]
    assert three.last_executor == "mpmd"


def test_python_objects_per_replica_reach_their_replica(two: dist.MirroredStrategy) -> None:
    words = dist.PerReplica.from_components(["a", "bb"])
    result = two.run(lambda word, x: (word, x * len(word)), args=(words, per_replica(1, 2)))
    assert result[0].values == ("a", "bb")
    assert host(result[1]) == [1, 4]


def test_python_control_flow_on_the_replica_id_runs_a_program_per_replica(two: dist.MirroredStrategy) -> None:
    def step(x: Any) -> Any:
        replica = dist.get_replica_context()
        assert replica is not None
        return x * 10 if replica.replica_id_in_sync_group == 0 else x

    assert host(two.run(step, args=(per_replica(1, 2),))) == [10, 2]
    assert two.last_executor == "mpmd"


def test_the_replica_id_is_an_int32_per_replica(four: dist.MirroredStrategy) -> None:
    def step() -> Any:
        context = dist.get_replica_context()
        assert context is not None
        return context.replica_id_in_sync_group, context.num_replicas_in_sync

    ids, count = four.run(step)
    assert host(ids) == [0, 1, 2, 3]
    assert ids.values[0].dtype == np.int32
    assert count == 4


def test_a_function_is_traced_once_per_signature(two: dist.MirroredStrategy) -> None:
    traces = []

    def step(x: Any) -> Any:
        traces.append(x.shape)
        return x

    for rows in (2, 2, 3, 2, 3):
        two.run(step, args=(per_replica(*np.zeros((2, rows))),))
    assert traces == [(2,), (3,)]


def test_an_equal_lambda_made_per_step_needs_no_new_trace(two: dist.MirroredStrategy) -> None:
    traces = []
    for _ in range(5):
        two.run(lambda x: (traces.append(x), x)[1], args=(per_replica(1, 2),))  # type: ignore[func-returns-value]
    assert len(traces) == 1


def test_a_changed_closed_over_number_is_seen_and_warned_about(two: dist.MirroredStrategy) -> None:
    def scaled(factor: float) -> Any:
        return two.run(lambda x: x * factor, args=(per_replica(1.0, 2.0),))

    assert host(scaled(2.0)) == [2, 4]
    assert host(scaled(3.0)) == [3, 6]
    with pytest.warns(RetraceWarning, match=r"traced 3 times for the same shapes"):
        assert host(scaled(4.0)) == [4, 8]


def test_partials_and_methods_are_told_apart(two: dist.MirroredStrategy) -> None:
    class Model:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        def step(self, x: Any) -> Any:
            return x * self.scale

    first, second = Model(2.0), Model(3.0)
    x = per_replica(1.0, 2.0)
    assert host(two.run(first.step, args=(x,))) == [2, 4]
    assert host(two.run(second.step, args=(x,))) == [3, 6]
    assert host(two.run(functools.partial(jnp.multiply, 4.0), args=(x,))) == [4, 8]
    assert host(two.run(functools.partial(jnp.multiply, 5.0), args=(x,))) == [5, 10]


def test_a_compiled_step_is_forgotten_with_what_it_closed_over(two: dist.MirroredStrategy) -> None:
    class Model:
        def step(self, x: Any) -> Any:
            return x

    model = Model()
    alive = weakref.ref(model)
    two.run(model.step, args=(per_replica(1, 2),))
    del model
    gc.collect()
    assert alive() is None


def test_a_typed_key_is_the_same_everywhere_and_replica_key_is_not(two: dist.MirroredStrategy) -> None:
    def step(key: Any) -> Any:
        return jax.random.uniform(key), jax.random.uniform(dist.replica_key(key))

    same, own = two.run(step, args=(jax.random.key(0),))
    assert len(set(map(float, same.values))) == 1
    assert len(set(map(float, own.values))) == 2


def test_a_64_bit_integer_that_does_not_fit_is_refused(two: dist.MirroredStrategy) -> None:
    too_wide = pytest.raises(ValueError, match=r"int64 value 5000000000 does not fit int32; .*jax_enable_x64")
    with jax.enable_x64(False), too_wide:
        two.run(lambda x: x, args=(np.int64(5_000_000_000),))


def test_64_bit_integers_are_kept_under_x64(two: dist.MirroredStrategy, x64: None) -> None:
    result = two.run(lambda x: x + 1, args=(np.int64(5_000_000_000),))
    assert host(result) == [5_000_000_001] * 2


def test_a_plain_array_is_replicated_once(two: dist.MirroredStrategy) -> None:
    array = jnp.arange(3.0)
    two.run(lambda x: x.sum(), args=(array,))
    assert two.replicated.place(array) is two.replicated.place(array)


def test_lax_collectives_of_user_code_work(four: dist.MirroredStrategy) -> None:
    def step(x: Any) -> Any:
        shifted = lax.ppermute(x, "replica", [(r, (r + 1) % 4) for r in range(4)])
        return lax.psum(x, "replica"), lax.pmax(x, "replica"), shifted, lax.psum_scatter(jnp.full(4, x), "replica")

    total, largest, shifted, scattered = four.run(step, args=(per_replica(1.0, 2.0, 3.0, 4.0),))
    assert host(total) == [10] * 4
    assert host(largest) == [4] * 4
    assert host(shifted) == [4, 1, 2, 3]
    assert host(scattered) == [10] * 4


def test_steps_without_outputs_are_bounded_in_flight_too(two: dist.MirroredStrategy) -> None:
    with two.scope():
        count = dist.Variable(0, aggregation="sum")

    def step(x: Any) -> None:
        count.assign_add(x)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(20):
            two.run(step, args=(per_replica(1, 2),))
    assert int(count) == 60


def test_marking_what_differs_as_mirrored_is_warned_about(two: dist.MirroredStrategy) -> None:
    with pytest.warns(DivergingCopiesWarning, match=r"1 of 2 outputs marked by dist.mirrored may differ"):
        two.run(lambda x: dist.mirrored((x, dist.all_reduce("sum", x))), args=(per_replica(1.0, 2.0),))


def test_an_optax_training_step_in_functional_style_equals_one_replica(four: dist.MirroredStrategy) -> None:
    optimizer = optax.adam(1e-2)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 3)).astype("float32"), rng.normal(size=8).astype("float32")

    def step(state: Any, x: Any, y: Any) -> Any:
        params, optimizer_state = state

        def loss(params: Any) -> Any:
            return dist.global_mean((x @ params["w"] + params["b"] - y) ** 2)

        value, gradients = jax.value_and_grad(loss)(params)
        value, gradients = dist.all_reduce("sum", (value, gradients))
        updates, optimizer_state = optimizer.update(gradients, optimizer_state, params)
        return dist.mirrored(((optax.apply_updates(params, updates), optimizer_state), value))

    results = []
    for strategy in (four, dist.OneDeviceStrategy("CPU:0")):
        params = {"w": jnp.zeros(3), "b": jnp.zeros(())}
        state: Any = (params, optimizer.init(params))
        pieces = np.split(x, 4), np.split(y, 4)
        batch = [dist.PerReplica.from_components(p) for p in pieces] if strategy is four else [x, y]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(5):
                state, value = strategy.run(step, args=(state, *batch))
        assert isinstance(value, jax.Array)
        results.append(jax.tree.map(np.asarray, state))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), *results)


def test_the_replica_id_can_index_python_lists(two: dist.MirroredStrategy) -> None:
    def step(x: Any) -> Any:
        context = dist.get_replica_context()
        assert context is not None
        return x * [10, 100][context.replica_id_in_sync_group]

    assert host(two.run(step, args=(per_replica(1, 2),))) == [10, 200]


def test_run_inside_a_jitted_function_is_refused(two: dist.MirroredStrategy) -> None:
    with pytest.raises(RuntimeError, match=r"run was called inside a traced function"):
        jax.jit(lambda x: two.run(lambda x: x, args=(x,)))(1.0)
