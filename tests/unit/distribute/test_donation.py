"""State that is handed through a step may give it its memory; what was given can't be read, and says why."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import drumline.distribute as dist

GIVE = dist.RunOptions(donate=("state",))
OPTIMIZER = optax.adam(0.1)


def initial(leaves: int) -> Any:
    weights = [jnp.full((3,), i, jnp.float32) for i in range(leaves)]
    return weights, OPTIMIZER.init(weights)


def step(state: Any, x: jax.Array) -> Any:
    weights, memory = state
    gradients = jax.grad(lambda ws: sum(jnp.mean(x @ w) for w in ws))(weights)
    updates, memory = OPTIMIZER.update(dist.all_reduce("mean", gradients), memory)
    return dist.mirrored((optax.apply_updates(weights, updates), memory)), jnp.mean(x)


def rows(strategy: dist.Strategy) -> Any:
    return next(iter(strategy.distribute_dataset([np.arange(24, dtype=np.float32).reshape(8, 3)])))


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("leaves", [2, 30])
def test_state_that_is_given_away_comes_out_the_same(replicas: int, leaves: int) -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:replicas])
    found = []
    for options in (None, GIVE):
        state, x = initial(leaves), rows(strategy)
        for _ in range(3):
            state, means = strategy.run(step, args=(state, x), options=options)
        found.append((state, strategy.reduce("mean", means, axis=None)))
    jax.tree.map(np.testing.assert_array_equal, *found)
    assert int(found[0][0][1][0].count) == 3


@pytest.mark.parametrize("leaves", [1, 30])
@pytest.mark.parametrize("passed", ["by place", "by name"])
def test_reading_what_was_given_away_names_argument_and_step(
    leaves: int, passed: str, two: dist.MirroredStrategy
) -> None:
    x, first = rows(two), initial(leaves)
    second, _ = two.run(step, args=(first, x))
    np.asarray(first[0][0])  # nothing is given away that isn't named
    if passed == "by place":
        third, _ = two.run(step, args=(second, x), options=GIVE)
    else:
        third, _ = two.run(step, kwargs={"x": x, "state": second}, options=GIVE)
    said = r"argument 'state' was donated to step 1"
    for read in (
        np.asarray,
        lambda v: v.tolist(),
        lambda v: v + 1,
        str,
        lambda v: v[0],
        lambda v: two.reduce("mean", v, axis=0),
    ):
        with pytest.raises(dist.errors.DonatedError, match=said):
            read(second[0][0])
    with pytest.raises(dist.errors.DonatedError, match=said):
        two.run(step, args=(second, x))
    np.asarray(third[0][0])


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_compiled_function_of_the_users_own_is_refused_what_was_given_away(replicas: int) -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:replicas])
    x, (first, _) = rows(strategy), strategy.run(step, args=(initial(2), rows(strategy)))
    doubled = jax.jit(lambda v: v * 2)
    doubled(first[0][0])  # from here on its compiled program is called at once, and Python is not asked
    second, _ = strategy.run(step, args=(first, x), options=GIVE)
    with pytest.raises(dist.errors.DonatedError, match="argument 'state' was donated to step 1"):
        doubled(first[0][0])
    doubled(second[0][0])


def test_memory_of_state_that_is_given_away_is_used_again(two: dist.MirroredStrategy) -> None:
    x = rows(two)
    state, _ = two.run(step, args=(initial(2), x), options=GIVE)
    before = [leaf.addressable_shards[1].data.unsafe_buffer_pointer() for leaf in jax.tree.leaves(state)]
    state, _ = two.run(step, args=(state, x), options=GIVE)
    after = [leaf.addressable_shards[1].data.unsafe_buffer_pointer() for leaf in jax.tree.leaves(state)]
    assert after == before


def test_what_a_step_returns_as_it_is_stays_readable(two: dist.MirroredStrategy) -> None:
    state = {"kept": jnp.arange(3.0), "changed": jnp.zeros(3)}
    for _ in range(2):
        given = state
        state = two.run(
            lambda state: dist.mirrored({"kept": state["kept"], "changed": state["changed"] + 1}),
            args=(state,),
            options=GIVE,
        )
    assert state["kept"].tolist() == [0, 1, 2]
    with pytest.raises(dist.errors.DonatedError):
        np.asarray(given["changed"])


def test_per_replica_state_can_be_given_away(two: dist.MirroredStrategy) -> None:
    state = two.run(lambda: jnp.ones(3))
    following = two.run(lambda state: state + 1, args=(state,), options=GIVE)
    assert following.values[1].tolist() == [2, 2, 2]
    with pytest.raises(dist.errors.DonatedError, match="'state' was donated to step 1"):
        two.reduce("sum", state, axis=None)


def test_a_program_per_replica_leaves_what_it_might_have_kept(two: dist.MirroredStrategy) -> None:
    mpmd = dist.MirroredStrategy(jax.devices()[:2], executor="mpmd")
    state, x = initial(1), rows(mpmd)
    mpmd.run(step, args=(state, x), options=GIVE)
    assert state[0][0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("executor", ["auto", "mpmd"])
def test_a_name_that_is_no_argument_is_refused(executor: str) -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:2], executor=executor)
    with pytest.raises(
        ValueError, match="donate='params' is no argument that step was passed; it was passed 'state', 'x'"
    ):
        strategy.run(step, args=(initial(1), rows(strategy)), options=dist.RunOptions(donate=("params",)))


def test_a_choice_that_is_no_tuple_of_names_is_refused() -> None:
    with pytest.raises(TypeError, match=r"donate='state' is neither .* write donate=\(\"state\",\)"):
        dist.RunOptions(donate="state")  # type: ignore[arg-type]


def test_several_steps_by_one_call_give_nothing_away(two: dist.MirroredStrategy) -> None:
    with pytest.raises(ValueError, match="the same in every step"):
        two.run_steps(step, iter([]), 2, args=(initial(1),), options=GIVE)


def test_a_state_of_many_leaves_is_told_from_one_of_other_shapes(two: dist.MirroredStrategy) -> None:
    @jax.jit
    def total(state: Any) -> Any:
        return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(state))

    small = [jnp.ones(2)] * 20
    for state, expected in ((small, 40), ([jnp.ones(3)] * 20, 60), (small, 40), ([*small[:19], jnp.ones(5)], 43)):
        assert float(two.reduce("mean", two.run(lambda s: total(s), args=(state,)), axis=None)) == expected
    on_one = [jax.device_put(leaf, jax.devices()[1]) for leaf in small]
    assert float(two.reduce("mean", two.run(lambda s: total(s), args=(on_one,)), axis=None)) == 40
    assert float(two.reduce("mean", two.run(lambda s: total(s), args=([2] * 20,)), axis=None)) == 40


@pytest.mark.parametrize("is_placed", [False, True])
@pytest.mark.parametrize("where", ["same argument", "other argument", "captured"])
def test_an_array_that_goes_in_twice_is_not_given_away(where: str, is_placed: bool) -> None:
    """XLA would end the process."""
    strategy = dist.MirroredStrategy(jax.devices()[:2])
    array = strategy.run(lambda: dist.mirrored(jnp.ones(3))) if is_placed else jnp.ones(3)

    def step(state: Any, other: Any) -> Any:
        return dist.mirrored(jax.tree.map(lambda leaf: leaf + other + (array if where == "captured" else 0), state))

    state = [array, array] if where == "same argument" else [array]
    other = array if where == "other argument" else 1.0
    with pytest.raises(ValueError, match="second time"):
        strategy.run(step, args=(state, other), options=dist.RunOptions(donate=("state",)))
    assert array.tolist() == [1, 1, 1]


def test_the_host_waits_for_steps_that_put_out_nothing_but_what_the_next_one_takes(two: dist.MirroredStrategy) -> None:
    per_replica = dist.PerReplica.from_components([jnp.zeros(3), jnp.zeros(3)])
    for state, hand_on in (
        (jnp.zeros(3), lambda state: dist.mirrored(state + 1)),
        (per_replica, lambda state: state + 1),
    ):
        for _ in range(6):
            state = two.run(hand_on, args=(state,), options=GIVE)
        assert not any(token.is_deleted() for token in two.window._pending)
