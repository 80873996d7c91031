from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist
from drumline.distribute.checkpoint import Checkpoints
from drumline.distribute.errors import MeanOfMeansWarning, StateLostError

pytestmark = pytest.mark.x64

STRATEGIES: dict[str, Callable[[], dist.Strategy]] = {
    "mirrored_8": lambda: dist.MirroredStrategy(),
    "mirrored_2": lambda: dist.MirroredStrategy(["CPU:0", "CPU:1"]),
    "central": lambda: dist.CentralStorageStrategy(["CPU:0", "CPU:1", "CPU:2"], "CPU:7"),
    "one": lambda: dist.OneDeviceStrategy("CPU:4"),
}


def make_state(strategy: dist.Strategy, value: float) -> dict[str, Any]:
    with strategy.scope():
        return {
            "w": dist.Variable(np.full((2, 3), value, np.float32), aggregation="mean"),
            "seen": dist.Variable(int(value), synchronization="on_read", aggregation="sum"),
            "optimizer": (jnp.full(3, value), {"count": int(value)}),
            "key": jax.random.key(int(value)),
        }


@pytest.mark.parametrize("target", sorted(STRATEGIES))
def test_what_eight_replicas_saved_any_strategy_restores(tmp_path: Path, target: str) -> None:
    source = make_state(STRATEGIES["mirrored_8"](), 0.0)
    source["w"].assign(np.arange(6, dtype=np.float32).reshape(2, 3))
    source["seen"].assign(1797)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(3, source)
    fresh = make_state(STRATEGIES[target](), 5.0)
    with Checkpoints(tmp_path) as checkpoints:
        restored = checkpoints.restore(fresh)
    assert restored["w"] is fresh["w"]
    assert np.asarray(restored["w"]).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert int(restored["seen"]) == 1797
    assert restored["optimizer"][0].tolist() == [0, 0, 0]
    assert restored["optimizer"][1] == {"count": 0}
    assert jax.random.key_data(restored["key"]).tolist() == jax.random.key_data(jax.random.key(0)).tolist()


@pytest.mark.parametrize(
    ("aggregation", "saved", "copies"), [("sum", 10.0, 2.5), ("mean", 5.0, 5.0), ("only_first_replica", 3.0, 3.0)]
)
def test_copies_synchronized_on_read_are_saved_aggregated(
    *,
    tmp_path: Path,
    two: dist.MirroredStrategy,
    four: dist.MirroredStrategy,
    aggregation: str,
    saved: float,
    copies: Any,
) -> None:
    def variable(strategy: dist.Strategy) -> dist.Variable:
        with strategy.scope():
            return dist.Variable(0.0, synchronization="on_read", aggregation=aggregation)

    source, target = variable(two), variable(four)
    two.run(lambda x: source.assign(x), args=(dist.PerReplica.from_components([3.0, 7.0]),))
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(0, [source])
        assert float(source) == saved
        checkpoints.restore([target])
    assert [float(v) for v in target.values] == [copies] * 4
    assert float(target) == saved


def test_what_has_no_single_value_cannot_be_saved(tmp_path: Path, two: dist.MirroredStrategy) -> None:
    with two.scope():
        variable = dist.Variable(0.0, synchronization="on_read")
    with Checkpoints(tmp_path) as checkpoints:
        with pytest.raises(ValueError, match=r"aggregation='none'"):
            checkpoints.save(0, variable)
        with pytest.raises(ValueError, match=r"reduce or gather it first"):
            checkpoints.save(0, dist.PerReplica.from_components([1, 2]))
        with pytest.raises(FileNotFoundError, match=r"no checkpoint of step None"):
            checkpoints.restore(variable)


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    with Checkpoints(tmp_path, keep=2) as checkpoints:
        for step in (1, 5, 9):
            checkpoints.save(step, {"x": np.arange(3) * step})
        assert (checkpoints.steps, checkpoints.latest_step) == ([5, 9], 9)
        assert checkpoints.restore({"x": np.zeros(3, int)}, step=5)["x"].tolist() == [0, 5, 10]


def test_lost_state_names_its_last_checkpoint_and_can_be_restored(tmp_path: Path, two: dist.MirroredStrategy) -> None:
    with two.scope():
        variable = dist.Variable(1.0, aggregation="mean", name="w")
    with Checkpoints(tmp_path) as checkpoints:
        path = checkpoints.save(7, {"w": variable})
        step = lambda: variable.assign_add(1.0)  # noqa: E731
        two.run(step)
        variable.lift_buffer(donate=True).delete()
        with pytest.raises(StateLostError, match=r"Last checkpoint: .*7\.") as caught:
            two.run(step)
        assert caught.value.last_checkpoint == path
        checkpoints.restore({"w": variable})
    two.run(step)
    assert float(variable) == 2


def test_a_mean_of_means_over_uneven_replicas_is_warned_about(two: dist.MirroredStrategy) -> None:
    ragged = dist.PerReplica.from_components([np.asarray([0, 1, 2, 3], np.float32), np.asarray([4, 5], np.float32)])
    means = two.run(lambda x: x.mean(), args=(ragged,))
    with pytest.warns(MeanOfMeansWarning, match=r"made from 4, 2 rows: .*axis=0, or use dist.global_mean"):
        assert two.reduce("mean", means, axis=None) == 3
    shares = two.run(lambda x: dist.global_mean(x), args=(ragged,))
    assert two.reduce("sum", shares, axis=None) == 2.5
    same = two.run(lambda x: dist.all_reduce("sum", x.sum()), args=(ragged,))
    assert two.reduce("mean", same, axis=None) == 15


def test_a_checkpoint_of_the_same_step_replaces_the_older_one(tmp_path: Path) -> None:
    with Checkpoints(tmp_path) as checkpoints:
        for value in (1, 2):
            checkpoints.save(0, {"x": value})
        assert (checkpoints.restore(), checkpoints.steps) == ({"x": 2}, [0])


def test_without_a_state_the_saved_tree_comes_back(tmp_path: Path, two: dist.MirroredStrategy) -> None:
    with two.scope():
        variable = dist.Variable(np.arange(3, dtype=np.float32), aggregation="mean")
    saved = {
        "w": [variable],
        "counts": (1, 2.5, True, None),
        "name": "digits",
        7: {"key": jax.random.key(3)},
        "half": jnp.ones(2, jnp.bfloat16),
    }
    state = {str(key): value for key, value in saved.items()}
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(0, state)
    with Checkpoints(tmp_path) as checkpoints:
        restored = checkpoints.restore()
    assert list(restored) == sorted(state)
    assert restored["w"][0].tolist() == [0, 1, 2]
    assert (restored["counts"], restored["name"]) == ((1, 2.5, True, None), "digits")
    assert [type(value) for value in restored["counts"]] == [int, float, bool, type(None)]
    assert jax.random.key_data(restored["7"]["key"]).tolist() == jax.random.key_data(jax.random.key(3)).tolist()
    assert (restored["half"].dtype, restored["half"].tolist()) == (jnp.bfloat16, [1, 1])


@pytest.mark.parametrize("rest", [{}, {"full": np.arange(3.0)}], ids=["alone", "beside others"])
def test_arrays_without_elements_keep_their_type_and_shape(tmp_path: Path, rest: dict[str, Any]) -> None:
    saved = {"rows": jnp.zeros((0, 3), jnp.bfloat16), "seen": np.zeros(0, np.int64), **rest}
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(0, saved)
        for restored in (checkpoints.restore(), checkpoints.restore(saved)):
            assert {name: (value.dtype, value.shape) for name, value in restored.items()} == {
                name: (value.dtype, value.shape) for name, value in saved.items()
            }


def test_a_state_of_another_structure_is_refused(tmp_path: Path) -> None:
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(0, {"a": 1, "b": "text"})
        with pytest.raises(ValueError, match=r"has 2 leaves, the state to restore 3"):
            checkpoints.restore([1, 2, 3])
        assert checkpoints.restore({"a": 5, "b": ""}) == {"a": 1, "b": "text"}
