"""`python -m MODULE ...` on a machine whose wall clock, boot and network card are what DRUMLINE_CHAOS_MACHINE has now.

It stands in the place of the interpreter, so that agent, launcher, shims and programs are all on that machine.
"""

import os
import runpy
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from drumline_worker.agent import identity
from drumline_worker.host.system import SystemHostClock

_MACHINE = Path(os.environ["DRUMLINE_CHAOS_MACHINE"])
_now = SystemHostClock.now


def _shifted(self: SystemHostClock) -> datetime:
    return _now(self) + timedelta(seconds=float((_MACHINE / "offset").read_text()))


def _boot_id(self: SystemHostClock) -> str:
    del self
    return (_MACHINE / "boot_id").read_text()


def _cards(interfaces: Path) -> Iterator[str]:
    del interfaces
    yield from (_MACHINE / "cards").read_text().splitlines()


SystemHostClock.now = _shifted  # type: ignore[method-assign]  # the faults
SystemHostClock.boot_id = _boot_id  # type: ignore[method-assign]
identity._hardware_addresses = _cards

if __name__ == "__main__":
    sys.executable = str(_MACHINE / "python")
    arguments = sys.argv[sys.argv.index("-m") + 1 :]
    sys.argv = arguments
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
