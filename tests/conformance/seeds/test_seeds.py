"""Each example of the three pages, ported by the table; where page and recorded TensorFlow differ, the record wins."""

import contextlib
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist
from conformance.seeds.pages import CENTRAL_STORAGE, TPU
from conformance.seeds.substitutions import port
from drumline.distribute.errors import DistributeError, InvalidValueError
from drumline.distribute.input.tf_records import masked_checksum

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "from-tf-distribute.md"

dist.set_cpu_devices(8)


@pytest.fixture(autouse=True)
def slice_of_eight() -> Iterator[None]:
    """As in a run: the devices stand for a v3 slice of four chips with two cores each."""
    devices = jax.devices("cpu")
    places = [place for host in dist.tpu.TpuSlice.parse("v3:2x2").device_coordinates() for place in host]
    dist.tpu.set_device_places(dict(zip(devices, places, strict=True)))
    yield
    dist.tpu.set_device_places({})


@pytest.fixture
def fixture(tmp_path: Path) -> Callable[[str], str]:
    """Four TFRecord files, of two records each."""
    for number in range(1, 5):
        with open(tmp_path / f"{number}.tfr", "wb") as file:
            for record in (b"%d" % (10 * number), b"%d" % (10 * number + 1)):
                head = len(record).to_bytes(8, "little")
                file.write(head + masked_checksum(head).to_bytes(4, "little"))
                file.write(record + masked_checksum(record).to_bytes(4, "little"))
    return lambda name: str(tmp_path / name)


def run(example: str, **given: Any) -> dict[str, Any]:
    """The names that the ported example leaves behind."""
    space: dict[str, Any] = {"dist": dist, "jnp": jnp, "np": np, **given}
    exec(compile(port(example), "page", "exec"), space)
    return space


def two_replicas() -> dist.CentralStorageStrategy:
    return dist.CentralStorageStrategy(["CPU:0", "CPU:1"], "CPU:0")


def test_no_word_of_tensorflow_is_left_in_what_was_ported() -> None:
    for example in (*CENTRAL_STORAGE.values(), *TPU.values()):
        code = re.sub(r"#.*", "", port(example))
        assert "tf." not in code
        assert "dataset_ops" not in code


def test_central_storage_class_example_runs_each_element() -> None:
    seen: list[list[int]] = []

    class Seen(dist.CentralStorageStrategy):
        def run(self, fn: Any, *args: Any, **options: Any) -> Any:
            result = super().run(fn, *args, **options)
            seen.append([int(each) for part in self.local_results(result) for each in np.asarray(part)])
            return result

        experimental_run_v2 = run

    text = CENTRAL_STORAGE["class"].replace("tf.distribute.experimental.CentralStorageStrategy", "Seen")
    run(text, Seen=lambda: Seen(["CPU:0"], "CPU:0"))
    assert seen == [[1, 2], [3, 4], [5]]


def test_central_storage_distribute_dataset_splits_each_batch_over_the_replicas() -> None:
    """Differs: the page prints whole batches per replica; a batch is the global one and is split, as recorded."""
    text = CENTRAL_STORAGE["experimental_distribute_dataset"].replace("tf.distribute.CentralStorageStrategy()", "two()")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        run(text, two=two_replicas)
    printed = [re.findall(r"\[([\d, ]+)\]", line) for line in said.getvalue().split("PerReplica")[1:]]
    assert [[int(number) for part in parts for number in part.split(",")] for parts in printed] == [
        [2 * step, 2 * step + 1] for step in range(5)
    ]
    assert all(len(parts) == 2 for parts in printed)


def test_central_storage_datasets_from_function_dequeues_a_batch_for_each_replica() -> None:
    batches: list[Any] = []

    class EnoughError(Exception):
        """The page's dataset never ends."""

    strategy = two_replicas()

    def replica_fn(batch: Any) -> Any:
        return batch * 2

    class Counted:
        def __getattr__(self, name: str) -> Any:
            return getattr(strategy, name)

        def experimental_run_v2(self, fn: Any, args: Any) -> Any:
            batches.append([np.asarray(part).tolist() for part in strategy.local_results(strategy.run(fn, args=args))])
            if len(batches) == 3:
                raise EnoughError
            return None

    with pytest.raises(EnoughError):
        run(
            CENTRAL_STORAGE["experimental_distribute_datasets_from_function"],
            strategy=Counted(),
            replica_fn=replica_fn,
            global_batch_size=4,
        )
    assert batches == [[[[[2.0]]] * 2] * 2] * 3 or batches == [[[[2.0], [2.0]], [[2.0], [2.0]]]] * 3


def test_central_storage_numpy_dataset_is_distributed_once_it_is_batched() -> None:
    space = run(
        CENTRAL_STORAGE["experimental_make_numpy_dataset"], strategy=dist.CentralStorageStrategy(["CPU:0"], "CPU:0")
    )
    assert sum(float(np.sum(space["strategy"].local_results(x)[0])) for x in space["dist_dataset"]) == 10


def test_central_storage_reduce_example_needs_a_batch() -> None:
    """Differs: the page's dataset is not batched, and its elements can't be split; nor is 8 + 10 a full batch."""
    with pytest.raises((DistributeError, ValueError)):
        run(CENTRAL_STORAGE["reduce"])


def test_central_storage_reduce_gives_the_sums_of_a_batch_of_eight() -> None:
    """Differs: the page reduces once more what is reduced already, which counts once for each replica, as recorded."""
    text = CENTRAL_STORAGE["reduce"].replace("Dataset.range(10)", "Dataset.range(8).batch(8)")
    first, _ = text.split("        result = strategy.reduce(tf.distribute.ReduceOp.SUM, result, axis=0)")
    assert run(first)["result"].tolist() == [4, 6, 8, 10]
    assert run(text)["result"].tolist() == 2 * 28
    meant = text.replace("result = strategy.reduce(tf.distribute.ReduceOp.SUM, result, axis=None).numpy()", "pass")
    assert run(meant)["result"].tolist() == 28


def test_tpu_class_example_has_a_replica_on_each_core() -> None:
    strategy = run(TPU["class"])["strategy"]
    assert (type(strategy).__name__, strategy.num_replicas_in_sync) == ("TPUStrategy", 8)


def test_tpu_assign_example_returns_the_identical_value() -> None:
    inputs = [dist.PerReplica.from_components([np.full(2, number, np.float32) for number in range(4)])]
    text = TPU["experimental_assign_to_logical_device"].replace("strategy.run(step_fn", "result = strategy.run(step_fn")
    space = run(text, inputs=inputs)
    strategy = space["strategy"]
    assert strategy.num_replicas_in_sync == 4
    assert {len(own) for own in strategy.replica_devices} == {2}
    assert [np.asarray(part).tolist() for part in strategy.local_results(space["result"])] == [
        [2.0 * number] * 2 for number in range(4)
    ]


def test_tpu_assign_to_a_device_that_is_not_there_raises() -> None:
    text = TPU["experimental_assign_to_logical_device"].replace("(output, 0)", "(output, 2)")
    with pytest.raises(InvalidValueError, match="no logical device 2"):
        run(text, inputs=[dist.PerReplica.from_components([np.ones(2, np.float32)] * 4)])


DECODED = "]).map(decode).batch(8)"


@pytest.mark.parametrize("name", ["experimental_distribute_dataset", "element_spec"])
def test_tpu_dataset_examples_read_each_record_once(name: str, fixture: Callable[[str], str]) -> None:
    """Differs: records are decoded and batched first, as no device holds strings and a record is not split."""
    seen: list[int] = []

    class Seen(dist.MirroredStrategy):
        def run(self, fn: Any, *args: Any, **options: Any) -> Any:
            (batch,) = options.get("args") or args[0]
            seen.extend(int(each) for part in self.local_results(batch) for each in np.asarray(part))
            return super().run(fn, *args, **options)

    text = TPU[name].replace("tf.distribute.MirroredStrategy", "Seen").replace('"/a/4.tfr"])', f'"/a/4.tfr"{DECODED}')
    space = run(text, Seen=Seen, fixture=fixture, replica_fn=lambda x: x, decode=lambda record: np.int32(int(record)))
    assert sorted(seen) == [10, 11, 20, 21, 30, 31, 40, 41]
    assert space["dist_dataset"].element_spec is not None


def test_contrib_mirrored_takes_a_batch_for_each_replica_and_refuses_two_numbers_of_gpus() -> None:
    strategy = dist.contrib.MirroredStrategy(["CPU:0", "CPU:1"])
    iterator = strategy.make_dataset_iterator(dist.Dataset.range(8).batch(2))
    iterator.initialize()
    first = strategy.experimental_run(lambda x: x, iterator)
    assert [np.asarray(part).tolist() for part in strategy.local_results(first)] == [[0, 1], [2, 3]]
    with pytest.raises(ValueError, match="num_gpus"):
        dist.contrib.MirroredStrategy(num_gpus=1, num_gpus_per_worker=1)
    with pytest.raises(ValueError, match="devices"):
        dist.contrib.MirroredStrategy(devices=["CPU:0"], num_gpus=1)


def test_what_differs_from_the_pages_stands_in_the_guide() -> None:
    rows = [line for line in GUIDE.read_text().splitlines() if line.startswith("| ") and "differs, " in line]
    assert len(rows) >= 5
