"""A state of several processes: each gets back what it wrote, and arrays over all of them fit any number and layout."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.jax_processes import ProcessGroups, process_groups

SOURCE = '''
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from jax.experimental import multihost_utils

import drumline.distribute as dist
from drumline.contracts.spec import CheckpointSpec
from drumline.distribute.checkpoint.saved_parts import require_one_state
from drumline.checkpoints.managers import LocalManager
from drumline.distribute.errors import DistributeError
from drumline.distribute.checkpoint.saved_state import read_state, write_state

MESH = jax.sharding.Mesh(np.array(jax.devices()), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
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


def of_types(rank):
    """One array of each type, different in each process; the bits that are kept, by type."""
    types = [np.dtype(name) for name in TYPES] + [np.dtype(getattr(ml_dtypes, name)) for name in MORE_TYPES]
    return {dtype.name: np.array([[1, 0, 1], [0, 1, rank]]).astype(dtype) for dtype in types}


TYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "complex64", "complex128", "datetime64[s]",
]
MORE_TYPES = [
    "bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
    "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn", "int2", "int4", "uint2", "uint4",
]


def types_lost(path):
    """Types of arrays that do not come back as they were written."""
    rank = jax.process_index()
    write_state(Path(path), of_types(rank))
    agree("written")
    found = read_state(Path(path))
    wanted = of_types(rank)
    same = {n: found[n].dtype == w.dtype and found[n].tobytes() == w.tobytes() for n, w in wanted.items()}
    return len(same), [name for name, is_same in same.items() if not is_same]


def odd_layouts_lost(path):
    """Layouts and orders of bytes that do not come back with the values that were written."""
    values = np.arange(24.0).reshape(4, 6)
    wanted = {
        "big-endian": values.astype(">f4"), "transposed": np.asfortranarray(values), "strided": values[::2, ::3],
        "whole number": np.array(7, ">i4"), "empty": np.zeros((0, 3)),
    }
    write_state(Path(path), wanted)
    agree("written")
    found = read_state(Path(path))
    return [name for name in wanted if found[name].tolist() != wanted[name].tolist()]


def on_some(path, count):
    """An array on the first devices only, so that some processes have none of it; what comes back to whom."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:count]), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.sharding.NamedSharding(mesh, jax.P("d"))
    def make(values):
        return jax.make_array_from_callback((4,), sharding, lambda index: values[index], dtype=np.float32)
    write_state(Path(path), {"x": make(np.arange(4, dtype=np.float32))})
    agree("written")
    found = read_state(Path(path), {"x": make(np.zeros(4, np.float32))})["x"]
    own = sorted(value for shard in found.addressable_shards for value in shard.data.tolist())
    return own, read_state(Path(path))["x"].tolist()


def agree(name):
    multihost_utils.sync_global_devices(name)


def different(path, kind):
    """States of two processes that are not one; what is said of them."""
    rank, x = jax.process_index(), over_all(np.arange(4.0), "d")
    states = {
        "more": [{"best": x}, {"best": x, "other": x}],
        "others": [{"a": x, "b": x}, {"b": x, "c": x}],
        "a text": [{"place": 3}, {"place": "three"}],
        "another shape": [{"x": x}, {"x": over_all(np.arange(8.0), "d")}],
        "alone": [{"x": x}, {"x": np.arange(4.0)}],
    }
    write_state(Path(path), states[kind][rank])
    agree("written")
    return refused(lambda: require_one_state(Path(path)))


def alike(rank):
    return own(0)


def refused(call):
    try:
        call()
    except DistributeError as error:
        return f"{type(error).__name__}: {error}"
'''


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessGroups]:
    """Each test's calls go to processes that other tests' calls went to as well."""
    with process_groups() as groups:
        yield groups


@pytest.fixture(scope="module")
def saved(processes: ProcessGroups, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """What two processes of two devices saved, each with values of its own."""
    path = tmp_path_factory.mktemp("parts") / "state"
    return path, processes.run(SOURCE, f"save({str(path)!r})", (2, 2))


@pytest.fixture(scope="module")
def saved_alike(processes: ProcessGroups, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """What two processes of two devices saved, both with the same values."""
    path = tmp_path_factory.mktemp("alike") / "state"
    return path, processes.run(SOURCE, f"save({str(path)!r}, alike)", (2, 2))


@pytest.mark.parametrize("devices", [(2, 2), (3, 1)], ids=str)
def test_each_of_as_many_processes_gets_its_own_back(
    processes: ProcessGroups, saved: tuple[Path, list[Any]], devices: tuple[int, ...]
) -> None:
    path, told = saved
    assert told[0]["own"] != told[1]["own"]
    assert told[0]["rows"] == told[1]["rows"]

    assert processes.run(SOURCE, f"restore({str(path)!r})", devices) == told


@pytest.mark.parametrize("devices", [(4,), (1, 1, 2)], ids=str)
def test_another_number_of_processes_goes_on_from_what_is_alike(
    processes: ProcessGroups, saved_alike: tuple[Path, list[Any]], devices: tuple[int, ...]
) -> None:
    path, told = saved_alike

    assert processes.run(SOURCE, f"restore({str(path)!r})", devices) == [told[0]] * len(devices)


def test_another_number_of_processes_is_told_which_leaf_differs(
    processes: ProcessGroups, saved: tuple[Path, list[Any]]
) -> None:
    (said,) = processes.run(SOURCE, f"refused(lambda: restore({str(saved[0])!r}))", (4,))

    assert said.startswith("InvalidValueError: ['own']['half'] of the checkpoint"), said
    assert "differs between the 2 processes that wrote it, so that 1 can't resume from it" in said


def test_what_one_process_saved_several_go_on_from(processes: ProcessGroups, tmp_path: Path) -> None:
    (told,) = processes.run(SOURCE, f"save({str(tmp_path / 'state')!r})", (4,))

    assert processes.run(SOURCE, f"restore({str(tmp_path / 'state')!r})", (2, 2)) == [told, told]


def test_without_a_template_arrays_over_all_processes_come_whole(
    processes: ProcessGroups, saved_alike: tuple[Path, list[Any]]
) -> None:
    path, told = saved_alike
    found = processes.run(SOURCE, f"restore({str(path)!r}, template=False)", (2, 2))

    assert found[0]["rows"] == told[0]["rows"] == ["float32", np.arange(24.0).reshape(4, 6).tolist()]
    assert found[0] == found[1]


def test_an_array_over_all_processes_is_written_once(saved: tuple[Path, list[Any]]) -> None:
    path, _ = saved
    sizes = [sum(file.stat().st_size for file in path.glob(f"process_{i}/*.bin")) for i in (0, 1)]

    own = 8 + 8 + 6
    once = 24 * 4 + 24 * 2 + 4 + 8
    assert sum(sizes) == once + 2 * own


def test_a_directory_of_each_process_s_own_is_refused(processes: ProcessGroups, tmp_path: Path) -> None:
    own = f"{str(tmp_path)!r} + '/' + str(jax.process_index())"
    first, second = processes.run(SOURCE, f"refused(lambda: dist.Checkpoints({own}).save(3, arrays(1)))", (2, 2))

    assert "the parts of 1 of 2 processes: the directory must be one that all of them see" in first, first
    assert second.startswith("ProcessesDifferError: checkpoint of step 3, committed: failed in process 0"), second
    assert not list(tmp_path.glob("*/3"))


def test_every_type_comes_back_bit_for_bit(processes: ProcessGroups, tmp_path: Path) -> None:
    for told in processes.run(SOURCE, f"types_lost({str(tmp_path / 'state')!r})", (2, 2)):
        assert told == [29, []]


def test_every_layout_and_order_of_bytes_comes_back(processes: ProcessGroups, tmp_path: Path) -> None:
    assert processes.run(SOURCE, f"odd_layouts_lost({str(tmp_path / 'state')!r})", (2, 2)) == [[], []]


def test_arrays_of_no_numbers_are_refused_by_name(processes: ProcessGroups, tmp_path: Path) -> None:
    call = f"refused(lambda: write_state(Path({str(tmp_path / 'state')!r}), {{'names': np.array(['a', 'b'])}}))"
    for said in processes.run(SOURCE, call, (2, 2)):
        assert said == (
            "InvalidValueError: ['names'] is an array of <U1, which can't be saved; save numbers, or texts as such"
        )


@pytest.mark.parametrize(("count", "pieces"), [(2, [[0, 1, 2, 3], []]), (1, [[0, 1, 2, 3], []])], ids=str)
def test_a_process_may_have_nothing_of_an_array(
    processes: ProcessGroups, tmp_path: Path, count: int, pieces: list[list[int]]
) -> None:
    told = processes.run(SOURCE, f"on_some({str(tmp_path / 'state')!r}, {count})", (2, 2))

    assert [own for own, _ in told] == pieces
    assert [whole for _, whole in told] == [[0, 1, 2, 3]] * 2


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("more", "differ in ['other']; all processes save a state of one structure"),
        ("others", "differ in ['a']; all processes save a state of one structure"),
        ("a text", "['place'] is a text in one of processes 0 and 1, an array in the other"),
        ("another shape", "['x'] is one array over several processes, but float32[4] in process 0 and float32[8] in"),
    ],
)
def test_states_that_are_not_one_are_told_apart(processes: ProcessGroups, tmp_path: Path, kind: str, said: str) -> None:
    for told in processes.run(SOURCE, f"different({str(tmp_path / 'state')!r}, {kind!r})", (2, 2)):
        assert said in told


def test_a_lost_part_is_missed(processes: ProcessGroups, saved: tuple[Path, list[Any]], tmp_path: Path) -> None:
    path = tmp_path / "state"
    shutil.copytree(saved[0] / "process_0", path / "process_0")

    (said,) = processes.run(SOURCE, f"refused(lambda: restore({str(path)!r}))", (4,))
    assert said.endswith("has the parts of 1 processes, of 2 that wrote it"), said


def test_a_lost_piece_is_missed(processes: ProcessGroups, saved: tuple[Path, list[Any]], tmp_path: Path) -> None:
    path = tmp_path / "state"
    shutil.copytree(saved[0], path)
    tree = path / "process_1" / "tree.json"
    told = json.loads(tree.read_text())
    for array in told["arrays"].values():
        array["pieces"] = array["pieces"] if array["own"] else array["pieces"][1:]
    tree.write_text(json.dumps(told))

    for said in processes.run(SOURCE, f"refused(lambda: restore({str(path)!r}, template=False))", (2, 2)):
        assert said == "InvalidValueError: of an array of shape (4, 6) 6 values were not saved"


def test_without_a_server_several_processes_save_nothing(processes: ProcessGroups, tmp_path: Path) -> None:
    manager = f"LocalManager(Path({str(tmp_path)!r}), CheckpointSpec(), print)"
    for said in processes.run(SOURCE, f"refused(lambda: {manager}.save(3, print))", (2, 2)):
        assert said.startswith("UnsupportedError: run.checkpoint of a program over 2 processes"), said
    assert not any(tmp_path.iterdir())
