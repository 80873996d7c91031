"""Tells the process that started this worker how far it is, and what of it does not work."""

import contextlib
import os
from typing import Literal

from drumline.contracts.base import make_storable
from drumline.contracts.worker_reports import MAX_REPORT, WorkerReport

Part = Literal["worker", "launcher", "celery", "devices"]


class Reports:
    """Writes to a pipe; without one, nowhere. A reader that is gone or slow holds nobody up."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        if fd is not None:
            os.set_blocking(fd, False)
            os.set_inheritable(fd, False)

    def report_activity(self, text: str) -> None:
        """What the worker waits for now."""
        self._write(WorkerReport(kind="doing", text=_fit(text)))

    def ready(self, devices: int) -> None:
        """All of it stands, but for what was told as trouble."""
        self._write(WorkerReport(kind="ready", devices=devices))

    def trouble(self, part: Part, text: str) -> None:
        """A part that does not work, and what to do about it."""
        self._write(WorkerReport(kind="trouble", part=part, text=_fit(text)))

    def _write(self, report: WorkerReport) -> None:
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.write(self._fd, report.model_dump_json().encode() + b"\n")


def _fit(text: str) -> str:
    """What a line takes: a character is at most six bytes of it."""
    return str(make_storable(text))[:MAX_REPORT]
