"""Strategies built from their specs: the class, the devices and the options of each."""

import subprocess
import sys

import jax
import pytest

import drumline.distribute as dist
from drumline.contracts.spec import CentralStorageSpec, MirroredSpec, OneDeviceSpec, StrategySpec, TpuSpec
from drumline.errors import UnsupportedStrategyError
from drumline.local import build_strategy


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (MirroredSpec(), dist.MirroredStrategy),
        (MirroredSpec(batch="per_replica"), dist.contrib.MirroredStrategy),
        (CentralStorageSpec(), dist.CentralStorageStrategy),
        (OneDeviceSpec(), dist.OneDeviceStrategy),
    ],
)
def test_each_kind_becomes_its_class_on_the_given_devices(spec: StrategySpec, expected: type[dist.Strategy]) -> None:
    devices = jax.devices("cpu")[:1]
    strategy = build_strategy(spec, devices)
    assert type(strategy) is expected
    assert list(strategy.devices) == devices


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("auto", dist.AllReduceCrossDeviceOps),
        ("reduce_to_one", dist.ReductionToOneDevice),
        ("hierarchical", dist.HierarchicalCopyAllReduce),
    ],
)
def test_cross_device_ops_are_those_named(name: str, expected: type[dist.CrossDeviceOps]) -> None:
    spec = MirroredSpec.model_validate({"cross_device_ops": name})
    assert type(build_strategy(spec, jax.devices("cpu")[:1]).cross_device_ops) is expected


@pytest.mark.parametrize("executor", ["auto", "spmd", "pmap", "mpmd"])
def test_executor_is_the_one_asked_for(executor: str) -> None:
    for kind in (MirroredSpec, CentralStorageSpec):
        spec = kind.model_validate({"executor": executor})
        assert build_strategy(spec, jax.devices("cpu")[:1]).executor == executor


def test_parameter_device_is_the_one_named() -> None:
    strategy = build_strategy(CentralStorageSpec(parameter_device="cpu:0"), jax.devices("cpu")[:1])
    assert strategy.parameter_device == jax.devices("cpu")[0]


def test_parameter_device_that_does_not_exist_is_named() -> None:
    with pytest.raises(dist.errors.DistributeError, match="gpu:7"):
        build_strategy(CentralStorageSpec(parameter_device="gpu:7"), jax.devices("cpu")[:1])


@pytest.mark.parametrize(
    ("spec", "devices", "kind"),
    [
        (TpuSpec(executor="mpmd"), 1, "tpu"),
        (TpuSpec(computation_shape=(1, 1, 1, 2)), 1, "tpu"),
        (OneDeviceSpec(), 2, "one_device"),
        (MirroredSpec(batch="per_replica", executor="mpmd"), 1, "mirrored"),
    ],
)
def test_what_the_engine_has_not_is_an_error_that_names_the_kind(spec: StrategySpec, devices: int, kind: str) -> None:
    with pytest.raises(UnsupportedStrategyError) as caught:
        build_strategy(spec, jax.devices("cpu")[:1] * devices)
    assert caught.value.kind == kind


ON_FOUR_DEVICES = """
import sys
import jax
import drumline.distribute as dist
from drumline.contracts.spec import TpuSpec
from drumline.local import build_strategy

dist.set_cpu_devices(4)
strategy = build_strategy(TpuSpec.model_validate_json(sys.argv[1]), jax.devices())
topology = dist.tpu.initialize_tpu_system(strategy.cluster_resolver)
print(type(strategy).__name__, strategy.num_replicas_in_sync, topology.mesh_shape.tolist())
"""


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (TpuSpec(computation_shape=(1, 1, 1, 1)), "TPUStrategy 4 [4, 1, 1, 1]"),
        (TpuSpec(topology="v5e:2x2", computation_shape=(1, 2, 1, 1)), "TPUStrategy 2 [2, 2, 1, 1]"),
    ],
)
def test_tpu_strategy_stands_on_the_slice_that_its_replicas_fill(spec: TpuSpec, told: str) -> None:
    """In a process of its own: the slice is all devices that JAX shows, here as many as another test wanted."""
    command = [sys.executable, "-c", ON_FOUR_DEVICES, spec.model_dump_json()]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == told


def test_tpu_strategy_names_the_topology_that_its_replicas_do_not_fill() -> None:
    with pytest.raises(UnsupportedStrategyError, match="v4:2x2x1 has 4: ask for 4 replicas"):
        build_strategy(TpuSpec(topology="v4:2x2x1"), jax.devices("cpu")[:1])
