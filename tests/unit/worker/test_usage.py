"""What a member's processes use, read of real processes; and what JAX tells of its devices' memory."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from drumline.contracts.usage import DeviceMemory
from drumline_worker.host.system import cpu_seconds
from drumline_worker.runner.devices import memory_of
from drumline_worker.shim.usage import EVERY_S, UsageMeter, figures_of
from support.processes import wait_until

_BUSY = "held = bytearray(50_000_000)\nwhile True:\n    pass"
_MEMORY = DeviceMemory(device="dev_00000000000000000000000001", used_bytes=3_000_000_000, limit_bytes=8_000_000_000)


def test_processor_time_and_memory_are_those_of_all_processes_below(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = UsageMeter(lambda: (_MEMORY,))
    assert meter.read(0.0) is None  # since when?
    with subprocess.Popen([sys.executable, "-c", _BUSY]) as busy:
        try:
            wait_until(lambda: cpu_seconds([busy.pid]) >= 0.5, timeout_s=60, what="it has computed for half a second")
            assert meter.read(EVERY_S - 0.1) is None
            used = meter.read(EVERY_S)
        finally:
            busy.kill()
    assert used is not None
    assert used.processor_percent >= 100 * 0.5 / EVERY_S
    assert used.memory_bytes > 50_000_000
    assert used.processes >= 1
    figures = figures_of(used)
    assert (figures["sys/memory_gb"], figures["sys/device_memory_gb"]) == (used.memory_bytes / 1e9, 3.0)

    gone = meter.read(2 * EVERY_S)  # it was reaped, so what it used until its end is known, and counts once
    assert gone is not None
    assert gone.processor_percent < 100 * 60 / EVERY_S
    assert gone.processes == used.processes - 1
    nothing = meter.read(3 * EVERY_S)
    assert nothing is not None
    assert nothing.processor_percent < used.processor_percent


class _Device:
    """A device as JAX shows it; CPU devices, the only ones here, count no memory."""

    def __init__(self, stats: dict[str, int] | None, process: int = 0) -> None:
        self.process_index = process
        self._stats = stats

    def memory_stats(self) -> dict[str, int] | None:
        if self._stats == {}:
            raise NotImplementedError
        return self._stats


def test_memory_is_told_of_own_devices_whose_platform_counts_it() -> None:
    counted = {"bytes_in_use": 5, "peak_bytes_in_use": 9, "bytes_limit": 100, "num_allocs": 2}
    devices: list[Any] = [_Device(counted), _Device(None), _Device({}), _Device(counted, process=1)]
    pairs: list[Any] = [(SimpleNamespace(device=f"dev_{place}"), device) for place, device in enumerate(devices)]
    assert memory_of(pairs) == [{"device": "dev_0", "used_bytes": 5, "peak_bytes": 9, "limit_bytes": 100}]
