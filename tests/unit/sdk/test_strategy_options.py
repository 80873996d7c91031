"""Strategies from flags."""

import pytest

from drumline._validation import parse_strategy
from drumline.contracts.spec import CentralStorageSpec, MirroredSpec, OneDeviceSpec, StrategySpec, TpuSpec
from drumline.errors import ParameterError


@pytest.mark.parametrize(
    ("kind", "options", "expected"),
    [
        ("mirrored", {}, MirroredSpec()),
        ("mirrored", {"executor": "mpmd", "batch": "per_replica"}, MirroredSpec(executor="mpmd", batch="per_replica")),
        ("central_storage", {"parameter_device": "cpu:0"}, CentralStorageSpec(parameter_device="cpu:0")),
        (
            "tpu",
            {"topology": "v4-2x2x4", "computation_shape": "[1, 1, 1, 2]"},
            TpuSpec(topology="v4-2x2x4", computation_shape=(1, 1, 1, 2)),
        ),
        ("one_device", {}, OneDeviceSpec()),
    ],
)
def test_options_are_read_as_their_types(kind: str, options: dict[str, str], expected: StrategySpec) -> None:
    assert parse_strategy(kind, options) == expected


@pytest.mark.parametrize(
    ("kind", "options", "code", "said"),
    [
        ("mirored", {}, "unknown_strategy", "did you mean 'mirrored'"),
        ("horovod", {}, "unknown_strategy", "choose from mirrored, central_storage, tpu, one_device"),
        ("mirrored", {"executer": "spmd"}, "unknown_parameter", "did you mean 'executor'"),
        ("one_device", {"executor": "spmd"}, "unknown_parameter", "it takes none"),
        ("mirrored", {"executor": "gpu"}, "bad_parameter", "executor"),
        ("mirrored", {"kind": "tpu"}, "unknown_parameter", "no option 'kind'"),
        ("tpu", {"computation_shape": "[0]"}, "bad_parameter", "computation_shape"),
    ],
)
def test_wrong_kind_option_or_value_is_told_by_name(kind: str, options: dict[str, str], code: str, said: str) -> None:
    with pytest.raises(ParameterError, match=said) as caught:
        parse_strategy(kind, options)
    assert caught.value.code == code
