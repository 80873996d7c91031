"""Known slices are those of the TPU compiler; a name that is none is refused with what to say instead."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from drumline.distribute import tpu
from drumline.distribute.errors import InvalidValueError

RECORDED: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "recordings" / "tpu_slices.json").read_text()
)["slices"]


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_a_slice_has_the_devices_and_hosts_that_the_tpu_compiler_shows(name: str) -> None:
    recorded, tpu_slice = RECORDED[name], tpu.TpuSlice.parse(name)

    devices = [[*device, host] for host, driven in enumerate(tpu_slice.device_coordinates()) for device in driven]

    assert devices[: len(recorded["first"])] == recorded["first"]
    assert hashlib.sha256(json.dumps(devices).encode()).hexdigest() == recorded["sha256"]
    assert (tpu_slice.num_devices, tpu_slice.num_hosts) == (recorded["devices"], recorded["hosts"])
    assert str(tpu_slice) == name


@pytest.mark.parametrize("name", ["v2:2x2", "v4:2x2x4", "v5e:4x4", "tpu7x:2x2x2"])
def test_the_topology_of_a_slice_has_a_task_for_each_host(name: str) -> None:
    tpu_slice = tpu.TpuSlice.parse(name)

    topology = tpu_slice.topology()

    assert topology.num_tasks == tpu_slice.num_hosts
    assert topology.num_tasks * topology.num_tpus_per_task == tpu_slice.num_devices
    assert topology.missing_devices.size == 0
    for x, y, z, core in topology.device_coordinates.reshape(-1, 4).tolist():
        assert topology.task_ordinal_at_coordinates((x, y, z, core)) == tpu_slice.host_of((x, y, z))


@pytest.mark.parametrize(
    ("written", "name", "devices", "hosts"),
    [
        ("v2-8", "v2:2x2", 8, 1),
        ("v3-32", "v3:4x4", 32, 4),
        ("v4-8", "v4:2x2x1", 4, 1),
        ("v4-16", "v4:2x2x2", 8, 2),
        ("v4-32", "v4:2x2x4", 16, 4),
        ("v4-512", "v4:4x8x8", 256, 64),
        ("v5litepod-16", "v5e:4x4", 16, 4),
        ("v5p-128", "v5p:4x4x4", 64, 16),
        ("v6e-256", "v6e:16x16", 256, 64),
        ("tpu7x-8", "tpu7x:2x2x1", 8, 1),
    ],
)
def test_an_accelerator_type_is_the_most_compact_box(written: str, name: str, devices: int, hosts: int) -> None:
    tpu_slice = tpu.TpuSlice.parse(written)

    assert (str(tpu_slice), tpu_slice.num_devices, tpu_slice.num_hosts) == (name, devices, hosts)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("v4", "'v4' names no TPU slice; say its generation and its chips, such as 'v4:2x2x4'"),
        ("", "names no TPU slice"),
        ("v4:2x2x4x1", "names no TPU slice"),
        ("v4:" + "2x" * 5000 + "2", "names no TPU slice"),
        ("v9:2x2", "there is no TPU 'v9'; known are v2, v3, v4, v5e, v5p, v6e, tpu7x"),
        ("v4:2x2", "a v4 slice has 3 dimensions; got 2x2: say, for example, 'v4:2x2x1'"),
        ("v5e:2x2x1", "a v5e slice has 2 dimensions; got 2x2x1"),
        ("v5e:0x4", "a v5e slice of 0x4 has 0 chips; it may have 1 to 256"),
        ("v5e:32x32", "a v5e slice of 32x32 has 1024 chips; it may have 1 to 256"),
        ("v4:3x4x4", "hosts of v4 drive 2x2x1 chips each, which do not fill a slice of 3x4x4"),
        ("v4-7", "v4 slices have 2 to 8192 cores, 2 on each chip"),
        ("v5litepod-0", "v5e slices have 1 to 256 cores"),
        ("v5litepod-7", "no box of whole v5e hosts has 7 chips"),
    ],
)
def test_what_names_no_slice_is_refused_with_the_fix(name: str, text: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        tpu.TpuSlice.parse(name)
    assert text in str(refused.value)
    assert len(str(refused.value)) < 300


def test_a_chip_outside_of_the_slice_has_no_host() -> None:
    with pytest.raises(InvalidValueError, match=r"no chip \(2, 0, 0\) on v4:2x2x4; its chips go up to \(1, 1, 3\)"):
        tpu.TpuSlice.parse("v4:2x2x4").host_of((2, 0, 0))
