"""Values that are none, for everything that says which processes and devices there are: typed errors, at once."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import drumline.distribute as dist
from drumline.distribute.cluster_resolver import (
    KubernetesClusterResolver,
    SimpleClusterResolver,
    SlurmClusterResolver,
    TFConfigClusterResolver,
    TPUClusterResolver,
    UnionResolver,
)
from drumline.distribute.errors import DistributeError
from support.cluster_environment import cluster_environment

VALUES: list[Any] = [
    True, -1, 1.5, float("nan"), float("inf"), " ", "a", b"x", object(), 2**63, 2**200, "a:b", "a:0", "a:65536", ":1",
    "[::1]", "[::1]:99999", "h" * 100_000 + ":1", "h:1\n", "\0:1", "http://a:1/x", "a:1:2", [1], {"a": 1}, {1, 2},
]  # fmt: skip
SPEC = dist.ClusterSpec({"worker": ["a:1", "b:1"], "chief": ["c:1"]})
SLICE = dist.tpu.TpuSlice.parse("v4:2x2x4").topology()
TWO_HOSTS = {"TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "a,b", "TPU_WORKER_ID": "0"}
CALLS: dict[str, Callable[[Any], Any]] = {
    "dist.initialize": dist.initialize,
    "timeout_s": lambda value: dist.initialize(SimpleClusterResolver(SPEC, "", "worker", 0), timeout_s=value),
    "an address": lambda value: dist.Gang(value, 2, 0),
    "processes": lambda value: dist.Gang("a:1", value, 0),
    "a process": lambda value: dist.Gang("a:1", 2, value),
    "device ids": lambda value: dist.Gang("a:1", 2, 0, value),
    "a cluster": dist.ClusterSpec,
    "tasks": lambda value: SimpleClusterResolver(dist.ClusterSpec({"worker": value}), "", "worker", 0).gang(),
    "a task's type": lambda value: SPEC.task_address(value, 0),
    "a task's number": lambda value: SimpleClusterResolver(SPEC, "", "worker", value).gang(),
    "a resolver's cluster": SimpleClusterResolver,
    "a union": UnionResolver,
    "Slurm's port": lambda value: SlurmClusterResolver(port_base=value),
    "labels": lambda value: KubernetesClusterResolver(value).cluster_spec(),
    "selectors": lambda value: KubernetesClusterResolver({"worker": value}).cluster_spec(),
    "a pod's port": lambda value: KubernetesClusterResolver(tf_server_port=value).cluster_spec(),
    "namespaces": lambda value: KubernetesClusterResolver(namespaces=value).cluster_spec(),
    "a TPU": TPUClusterResolver,
    "a coordinator": lambda value: TPUClusterResolver("", coordinator_name="c", coordinator_address=value),
    "a slice": dist.tpu.TpuSlice.parse,
    "a computation's shape": lambda value: dist.tpu.DeviceAssignment.build(SLICE, value),
    "replicas": lambda value: dist.tpu.DeviceAssignment.build(SLICE, [1, 1, 1, 1], num_replicas=value),
    "an order": lambda value: dist.tpu.DeviceAssignment.build(SLICE, [1, 1, 1, 1], device_order_mode=value),
    "a multi-worker strategy": dist.MultiWorkerMirroredStrategy,
    "devices": dist.MirroredStrategy,
    "numbers of GPUs": lambda value: dist.contrib.MirroredStrategy(num_gpus=value),
    "CPU devices": dist.set_cpu_devices,
}
TAKEN = {"numbers of GPUs": {9, 10}, "device ids": {22}, "replicas": {0}}
"""Places of values that mean something: as many GPUs as there are, one device, one replica."""


def refusal(call: Callable[[Any], Any], value: Any) -> str | None:
    """What is said to that value; None where it is taken."""
    try:
        call(value)
    except DistributeError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", CALLS)
def test_a_value_that_is_none_is_a_typed_error_at_once(name: str) -> None:
    began = time.process_time()
    with cluster_environment(TWO_HOSTS):
        said = [refusal(CALLS[name], value) for value in VALUES]

    assert time.process_time() - began < 5
    assert {place for place, text in enumerate(said) if text is None} == TAKEN.get(name, set())
    assert all(0 < len(text) < 1000 for text in said if text is not None)


@pytest.mark.parametrize("index", ["1e400", "NaN", "9" * 5000, '"x"', "0.5", "-1", "[]"])
def test_a_tf_config_with_another_index_is_a_typed_error(index: str) -> None:
    text = f'{{"cluster": {{"worker": ["a:1", "b:1"]}}, "task": {{"type": "worker", "index": {index}}}}}'
    with cluster_environment({"TF_CONFIG": text}), pytest.raises(DistributeError, match=r"TF_CONFIG|has no task"):
        TFConfigClusterResolver().gang()


@pytest.mark.parametrize("layer", [1, b"grpc", ["grpc"]])
def test_a_layer_that_is_no_text_is_refused(layer: Any) -> None:
    with pytest.raises(TypeError, match="rpc_layer must be a text"):
        SimpleClusterResolver(SPEC, rpc_layer=layer)


def test_a_number_of_numpy_is_one_of_cpu_devices() -> None:
    import jax

    dist.set_cpu_devices(np.int64(len(jax.devices("cpu"))))  # type: ignore[arg-type]
