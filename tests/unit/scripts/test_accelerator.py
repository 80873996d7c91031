"""Which of JAX's wheels a machine needs, from what its driver and its device files say."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "scripts" / "accelerator.py"
SMI = """\
Thu Nov 20 10:12:01 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI {driver}             Driver Version: {driver}     CUDA Version: {cuda}     |
|-----------------------------------------+------------------------+----------------------+
"""
KERNEL = "NVRM version: NVIDIA UNIX {flavour}  {driver}  Release Build  (builder@host)\nGCC version:  gcc 12.2.0\n"


@dataclass(frozen=True, slots=True)
class Machine:
    """Device files below `root`, and programs of the driver on PATH."""

    root: Path

    def give(self, place: str, text: str = "") -> None:
        """A file."""
        (self.root / place).parent.mkdir(parents=True, exist_ok=True)
        (self.root / place).write_text(text)

    def smi(self, text: str, capabilities: str = "", code: int = 0) -> None:
        """An `nvidia-smi`."""
        self.give("said", text)
        self.give("capabilities", capabilities)
        script = (
            f'#!/bin/sh\n[ $# = 0 ] && {{ cat "{self.root}/said"; exit {code}; }}\ncat "{self.root}/capabilities"\n'
        )
        self.give("bin/nvidia-smi", script)
        (self.root / "bin/nvidia-smi").chmod(0o755)

    def find(self, *options: str) -> subprocess.CompletedProcess[str]:
        """What the script prints."""
        path = os.pathsep.join([str(self.root / "bin"), "/usr/bin", "/bin"])
        command = [sys.executable, str(SCRIPT), "--root", str(self.root), *options]
        return subprocess.run(command, env={"PATH": path}, capture_output=True, text=True, check=False)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Without accelerators."""
    return Machine(tmp_path)


def test_a_machine_without_accelerators_needs_nothing(machine: Machine) -> None:
    done = machine.find()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("driver", "cuda", "capabilities", "wanted"),
    [
        ("535.129.03", "12.2", "8.0\n", "cuda12"),
        ("575.57.08", "12.9", "9.0\n", "cuda12"),
        ("580.65.06", "13.0", "9.0\n9.0\n", "cuda13"),
        ("590.44.01", "13.1", "", "cuda13"),
        ("580.65.06", "13.0", "7.0\n", "cuda12"),
        ("580.65.06", "13.0", "12.0\n6.1\n", "cuda12"),
        ("580.65.06", "13.0", "7.5\n", "cuda13"),
        ("580.65.06", "13.0", "[N/A]\n", "cuda13"),
        ("580.65.06", "N/A", "9.0\n", "cuda13"),
        ("550.90.07", "ERR!", "9.0\n", "cuda12"),
        ("610.10", "14.0", "9.0\n", "cuda13"),
    ],
)
def test_the_drivers_cuda_version_and_the_oldest_gpu_decide(
    machine: Machine, driver: str, cuda: str, capabilities: str, wanted: str
) -> None:
    machine.smi(SMI.format(driver=driver, cuda=cuda), capabilities)
    assert machine.find().stdout == f"{wanted}\n"


@pytest.mark.parametrize(("driver", "cuda"), [("470.223.02", "11.4"), ("470.223.02", "N/A"), ("390.157", "9.1")])
def test_a_driver_that_is_too_old_is_named_with_what_to_install(machine: Machine, driver: str, cuda: str) -> None:
    machine.smi(SMI.format(driver=driver, cuda=cuda))

    done = machine.find()

    assert (done.returncode, done.stdout) == (0, "")
    assert f"driver {driver[:3]} is too old for JAX: install driver 525 or later" in done.stderr


def test_an_nvidia_smi_without_a_gpu_is_none(machine: Machine) -> None:
    machine.smi("No devices were found\n", code=6)
    assert machine.find().stdout == ""


@pytest.mark.parametrize(
    ("flavour", "driver", "wanted"),
    [
        ("x86_64 Kernel Module", "535.129.03", "cuda12"),
        ("Open Kernel Module for x86_64", "580.82.07", "cuda13"),
        ("Open Kernel Module for aarch64", "580.82.07", "cuda13"),
    ],
)
def test_without_nvidia_smi_the_kernel_module_is_asked(
    machine: Machine, flavour: str, driver: str, wanted: str
) -> None:
    machine.give("dev/nvidia0")
    machine.give("proc/driver/nvidia/version", KERNEL.format(flavour=flavour, driver=driver))
    assert machine.find().stdout == f"{wanted}\n"


def test_a_device_file_without_a_driver_is_none(machine: Machine) -> None:
    machine.give("dev/nvidia0")
    assert machine.find().stdout == ""


def test_a_tpu_with_files_of_its_own_is_found(machine: Machine) -> None:
    machine.give("dev/accel0")
    assert machine.find().stdout == "tpu\n"


@pytest.mark.parametrize(
    ("vendor", "chip", "wanted"),
    [
        ("0x1ae0", "0x0063", "tpu\n"),
        ("0x1ae0", "0x006f", "tpu\n"),
        ("0x1ae0", "0x0042", ""),  # a network card of Google's
        ("0x10de", "0x2330", ""),  # a GPU that is given to a virtual machine
    ],
)
def test_a_tpu_behind_vfio_is_known_by_its_chip(machine: Machine, vendor: str, chip: str, wanted: str) -> None:
    machine.give("dev/vfio/0")
    machine.give("sys/bus/pci/devices/0000:00:05.0/vendor", f"{vendor}\n")
    machine.give("sys/bus/pci/devices/0000:00:05.0/device", f"{chip}\n")
    assert machine.find().stdout == wanted


def test_the_folder_of_linux_accel_devices_is_no_tpu(machine: Machine) -> None:
    machine.give("dev/accel/accel0")
    assert machine.find().stdout == ""


@pytest.mark.parametrize(("named", "said"), [("cuda13", "cuda13\n"), ("tpu", "tpu\n"), ("none", "")])
def test_what_is_named_is_not_looked_for(machine: Machine, named: str, said: str) -> None:
    machine.smi(SMI.format(driver="535.1", cuda="12.2"))
    assert machine.find("--accelerator", named).stdout == said


def test_a_name_that_is_none_is_an_error(machine: Machine) -> None:
    done = machine.find("--accelerator", "cuda11")
    assert done.returncode == 2
    assert "ACCELERATOR=cuda11 is none of cuda12, cuda13, tpu, none" in done.stderr


def test_it_installs_once_and_takes_away_what_was_there_before(machine: Machine, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    machine.give("bin/uv", f'#!/bin/sh\necho "$*" >> "{machine.root}/calls"\n')
    (machine.root / "bin/uv").chmod(0o755)
    python, uv = tmp_path / "venv/bin/python", machine.root / "bin/uv"

    def install(accelerator: str) -> list[str]:
        (machine.root / "calls").write_text("")
        command = [str(python), str(SCRIPT), "--install", str(uv), "--accelerator", accelerator]
        subprocess.run(command, check=True, capture_output=True)
        return (machine.root / "calls").read_text().splitlines()

    assert install("none") == []
    removed, installed = install("cuda12")
    assert removed.endswith("jax-cuda13-plugin jax-cuda13-pjrt libtpu")
    assert installed.endswith(f"--python {python} --require-hashes -r {ROOT / 'requirements/cuda12.txt'}")
    assert install("cuda12") == []
    removed, installed = install("cuda13")
    assert "jax-cuda12-plugin jax-cuda12-pjrt" in removed
    assert installed.endswith("requirements/cuda13.txt")
    (removed,) = install("none")
    assert "jax-cuda13-plugin" in removed


@pytest.mark.parametrize("name", ["cuda12", "cuda13", "tpu"])
def test_each_accelerator_has_pins_that_agree_with_the_others(name: str) -> None:
    def jax_in(file: str) -> list[str]:
        lines = (ROOT / "requirements" / file).read_text().splitlines()
        return [line for line in lines if line.startswith(("jax==", "jaxlib==", "numpy=="))]

    assert jax_in(f"{name}.txt") == jax_in("demo.txt") != []


def test_the_sets_that_everybody_installs_have_no_wheels_of_accelerators() -> None:
    for file in ("demo.txt", "dev.txt"):
        text = (ROOT / "requirements" / file).read_text()
        assert not [word for word in ("nvidia-", "jax-cuda", "libtpu") if word in text]
