"""Drivers are seen by their files and by nvidia-smi, and what JAX leaves find_unused is told with the cure."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from drumline_worker.agent.accelerators import Driver, find_drivers, find_unused

SMI = "| NVIDIA-SMI 550.54.15    Driver Version: {driver}    CUDA Version: {cuda} |"
PROC = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Tue Mar  5 22:23:56 UTC 2024\n"
OPEN_PROC = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {driver}  Release Build\n"


def machine(tmp_path: Path, files: Mapping[str, str] | None = None, smi: str | None = None, code: int = 0) -> Path:
    """The root of a machine with those files, and an nvidia-smi in its `bin` that says so."""
    root = tmp_path / "root"
    for name, content in (files or {}).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    (root / "bin").mkdir(parents=True, exist_ok=True)
    if smi is not None:
        program = root / "bin" / "nvidia-smi"
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{smi}\nEND\nexit {code}\n")
        program.chmod(0o755)
    return root


def seen(root: Path, **environ: str) -> list[tuple[str, str]]:
    found = find_drivers(root, {"PATH": f"{root / 'bin'}:/usr/bin:/bin", **environ})
    return [(driver.platform, driver.extra) for driver in found]


@pytest.mark.parametrize(
    ("driver", "cuda", "extra"),
    [
        ("550.54.15", "12.4", "cuda12"),
        ("580.65.06", "13.0", "cuda13"),
        ("620.1.2", "14.1", "cuda13"),
        ("470.82", "11.4", ""),
    ],
)
def test_the_cuda_of_the_driver_chooses_the_extra(tmp_path: Path, driver: str, cuda: str, extra: str) -> None:
    assert seen(machine(tmp_path, smi=SMI.format(driver=driver, cuda=cuda))) == [("gpu", extra)]


@pytest.mark.parametrize("text", [PROC, OPEN_PROC])
@pytest.mark.parametrize(("driver", "extra"), [("550.54.15", "cuda12"), ("580.65.06", "cuda13"), ("470.82.01", "")])
def test_without_nvidia_smi_the_kernel_module_tells(tmp_path: Path, text: str, driver: str, extra: str) -> None:
    files = {"dev/nvidia0": "", "proc/driver/nvidia/version": text.format(driver=driver)}

    assert seen(machine(tmp_path, files)) == [("gpu", extra)]


def test_a_device_file_alone_is_enough_and_takes_what_every_driver_does(tmp_path: Path) -> None:
    assert seen(machine(tmp_path, {"dev/nvidia3": ""})) == [("gpu", "cuda12")]


@pytest.mark.parametrize(
    ("files", "smi", "code"),
    [
        ({}, None, 0),
        ({"dev/nvidiactl": "", "dev/accel/accel0": ""}, None, 0),
        ({}, "couldn't communicate with the driver", 9),
    ],
)
def test_a_machine_without_a_driver_has_none(tmp_path: Path, files: dict[str, str], smi: str | None, code: int) -> None:
    assert seen(machine(tmp_path, files, smi, code)) == []


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_gpus_that_the_operator_hides_are_not_missed(tmp_path: Path, hidden: str) -> None:
    root = machine(tmp_path, {"dev/nvidia0": ""})

    assert seen(root, CUDA_VISIBLE_DEVICES=hidden) == []
    assert seen(root, CUDA_VISIBLE_DEVICES="0,1") == [("gpu", "cuda12")]


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"dev/accel0": ""}, True),
        ({"dev/vfio/0": "", "sys/bus/pci/devices/0000:00:05.0/vendor": "0x1ae0\n"}, True),
        ({"dev/vfio/0": "", "sys/bus/pci/devices/0000:00:05.0/vendor": "0x8086\n"}, False),
        ({"dev/vfio/vfio": ""}, False),
    ],
)
def test_tpus_are_seen_by_their_device_files(tmp_path: Path, files: dict[str, str], found: bool) -> None:
    assert seen(machine(tmp_path, files)) == ([("tpu", "tpu")] if found else [])


GPU = Driver("gpu", "an NVIDIA GPU, driver 580.65.06, CUDA 13", "cuda13")


@pytest.mark.parametrize(
    ("driver", "flaws", "packages", "says", "cure"),
    [
        (GPU, {}, ("jax",), "JAX was installed without support", "pip install 'drumline[cuda13]'"),
        (GPU, {}, ("jax-cuda12-plugin",), "jax-cuda12-plugin is not for that", "'drumline[cuda13]'"),
        (
            GPU,
            {"gpu": "no libcudnn"},
            ("jax-cuda13-plugin",),
            "cannot use it with jax-cuda13-plugin",
            "'drumline[cuda13]'",
        ),
        (Driver("gpu", "an NVIDIA GPU", ""), {}, (), "too old", "Update the NVIDIA driver"),
        (Driver("tpu", "a TPU", "tpu"), {}, ("jax",), "a TPU, but JAX was installed without", "'drumline[tpu]'"),
    ],
)
def test_an_accelerator_that_jax_cannot_use_is_told_with_the_cure(
    driver: Driver, flaws: dict[str, str], packages: tuple[str, ...], says: str, cure: str
) -> None:
    (warning,) = find_unused([driver], {"cpu"}, flaws, packages)

    assert warning.code == "accelerator_unused"
    assert says in warning.message
    assert cure in warning.fix
    assert all(words in warning.message for words in flaws.values())


def test_an_accelerator_that_jax_uses_needs_no_word() -> None:
    assert find_unused([GPU], {"gpu"}, {}, ()) == ()


def test_a_long_error_of_a_driver_is_cut() -> None:
    (warning,) = find_unused([GPU], {"cpu"}, {"gpu": "x" * 10_000}, ("jax-cuda13-plugin",))

    assert len(warning.message) == 600
