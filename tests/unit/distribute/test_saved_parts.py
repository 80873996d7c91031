"""A state of several processes: each gets back what it wrote, and arrays over all of them fit any number and layout."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.jax_processes import run_processes

SOURCE = '''
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

import drumline.distribute as dist
from drumline.distribute.errors import InvalidValueError, UnsupportedError
from drumline.distribute.saved_state import read_state, write_state

MESH = jax.sharding.Mesh(np.array(jax.devices()), ("d",))
EVERYWHERE = jax.sharding.NamedSharding(MESH, jax.P())


class Rows:
    """Rows that every process reads for itself, from a place of its own."""

    def __init__(self, place):
        self.place = place

    def state(self):
        return {"place": self.place}

    def restore(self, state):
        self.place = state["place"]


def over_all(values, *spec):
    sharding = jax.sharding.NamedSharding(MESH, jax.P(*spec))
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])


def arrays(scale):
    matrix = scale * np.arange(24, dtype=np.float32).reshape(4, 6)
    return {
        "rows": over_all(matrix, "d"),
        "replicated": over_all(matrix.astype(ml_dtypes.bfloat16)),
        "scalar": over_all(np.float32(scale * 7)),
        "key": jax.random.wrap_key_data(over_all(np.asarray(jax.random.key_data(jax.random.key(scale))))),
    }


def own(rank):
    return {
        "seed": rank,
        "rows": Rows(10 * rank),
        "wide": np.int64(2**40 + rank),
        "half": np.full(3, rank, ml_dtypes.bfloat16),
    }


def plain(state):
    """What is in it, as JSON; of an array over all processes everything."""
    def told(leaf):
        if isinstance(leaf, Rows):
            return leaf.place
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
            leaf = jax.jit(lambda x: x, out_shardings=EVERYWHERE)(leaf).addressable_data(0)
        if isinstance(leaf, (np.ndarray, np.generic, jax.Array)):
            return [str(leaf.dtype), np.asarray(leaf).astype(float).tolist()]
        return leaf
    return jax.tree.map(told, state)


def save(path, local=own):
    state = arrays(1) | {"own": local(jax.process_index())}
    write_state(Path(path), state)
    return plain(state)


def restore(path, *, with_own=True, template=True):
    state = arrays(0) | {"own": own(-1)}
    found = read_state(Path(path), state if template else None)
    if template:
        assert all(found[name].sharding == state[name].sharding for name in arrays(0))
    return plain(found)


def alike(rank):
    return own(0)


def refused(call):
    try:
        call()
    except (InvalidValueError, UnsupportedError) as error:
        return f"{type(error).__name__}: {error}"
'''


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """What two processes of two devices saved, each with values of its own."""
    path = tmp_path_factory.mktemp("parts") / "state"
    return path, run_processes(SOURCE, f"save({str(path)!r})", (2, 2))


@pytest.fixture(scope="module")
def saved_alike(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """What two processes of two devices saved, both with the same values."""
    path = tmp_path_factory.mktemp("alike") / "state"
    return path, run_processes(SOURCE, f"save({str(path)!r}, alike)", (2, 2))


@pytest.mark.parametrize("devices", [(2, 2), (3, 1)], ids=str)
def test_each_of_as_many_processes_gets_its_own_back(saved: tuple[Path, list[Any]], devices: tuple[int, ...]) -> None:
    path, told = saved
    assert told[0]["own"] != told[1]["own"]
    assert told[0]["rows"] == told[1]["rows"]

    assert run_processes(SOURCE, f"restore({str(path)!r})", devices) == told


@pytest.mark.parametrize("devices", [(4,), (1, 1, 2)], ids=str)
def test_another_number_of_processes_goes_on_from_what_is_alike(
    saved_alike: tuple[Path, list[Any]], devices: tuple[int, ...]
) -> None:
    path, told = saved_alike

    assert run_processes(SOURCE, f"restore({str(path)!r})", devices) == [told[0]] * len(devices)


def test_another_number_of_processes_is_told_which_leaf_differs(saved: tuple[Path, list[Any]]) -> None:
    (said,) = run_processes(SOURCE, f"refused(lambda: restore({str(saved[0])!r}))", (4,))

    assert said.startswith("InvalidValueError: ['own']['half'] of the checkpoint"), said
    assert "differs between the 2 processes that wrote it, so that 1 can't go on from it" in said


def test_what_one_process_saved_several_go_on_from(tmp_path: Path) -> None:
    (told,) = run_processes(SOURCE, f"save({str(tmp_path / 'state')!r})", (4,))

    assert run_processes(SOURCE, f"restore({str(tmp_path / 'state')!r})", (2, 2)) == [told, told]


def test_without_a_template_arrays_over_all_processes_come_whole(saved_alike: tuple[Path, list[Any]]) -> None:
    path, told = saved_alike
    found = run_processes(SOURCE, f"restore({str(path)!r}, template=False)", (2, 2))

    assert found[0]["rows"] == told[0]["rows"] == ["float32", np.arange(24.0).reshape(4, 6).tolist()]
    assert found[0] == found[1]


def test_an_array_over_all_processes_is_written_once(saved: tuple[Path, list[Any]]) -> None:
    path, _ = saved
    sizes = [sum(np.load(file).nbytes for file in path.glob(f"process_{i}/*.npy")) for i in (0, 1)]

    own = 8 + 8 + 6
    once = 24 * 4 + 24 * 2 + 4 + 8
    assert sum(sizes) == once + 2 * own


def test_numbered_checkpoints_of_several_processes_are_refused(tmp_path: Path) -> None:
    call = f"refused(lambda: dist.Checkpoints({str(tmp_path)!r}).save(3, arrays(1)))"
    for said in run_processes(SOURCE, call, (1, 1)):
        assert said.startswith("UnsupportedError: Checkpoints.save of a program over 2 processes"), said
        assert "run.checkpoint" in said
    assert not any(tmp_path.iterdir())
