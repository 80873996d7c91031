"""GPUs by name, and what a user may write for chips of either kind."""

import pytest

from drumline.distribute.planning.chips import usable_of_gpu
from drumline.slices import KnownGpus, KnownSlice, SliceError, parse_chips


@pytest.mark.parametrize(
    ("name", "shown", "devices", "hosts"),
    [("h100:8", "h100:8", 8, 1), (" A100:1 ", "a100:1", 1, 1), ("b200:16", "b200:16", 16, 2)],
)
def test_gpus_are_named_by_kind_and_number(name: str, shown: str, devices: int, hosts: int) -> None:
    known = parse_chips(name)
    assert isinstance(known, KnownGpus)
    assert (str(known), known.num_devices, known.num_hosts) == (shown, devices, hosts)


def test_a_slice_is_a_slice_as_before() -> None:
    known = parse_chips("v5litepod-16")
    assert isinstance(known, KnownSlice)
    assert (str(known), known.kind) == ("v5e:4x4", "TPU v5 lite")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("h100:12", "a multiple of 8"),
        ("h100:0", "say 1 to 8"),
        ("h100:2048", "up to 1024"),
        ("k80:4", "GPUs are a100, h100, h200, b200"),
        ("v9:2x2", "there is no TPU 'v9'"),
        ("h100", "names no TPU slice"),
    ],
)
def test_what_names_no_chips_is_refused_with_what_there_is(name: str, why: str) -> None:
    with pytest.raises(SliceError, match=why):
        parse_chips(name)


def test_of_a_gpu_a_program_may_use_what_jax_takes_by_default() -> None:
    assert usable_of_gpu("NVIDIA H100 80GB HBM3") == int(84_942_979_072 * 0.75)
    assert usable_of_gpu("TPU v5 lite") is None
