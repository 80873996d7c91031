"""The worker of `drumline up`: how it is started and enrolled, and how it is heard."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from drumline.contracts.worker_reports import WorkerReport
from drumline_server.embedded.child import Command

_PACKAGES = ("jax", "numpy", "grain", "orbax", "celery", "pydantic_settings")


def missing_package() -> str | None:
    """A package that the worker needs and that is not installed."""
    return next((package for package in _PACKAGES if find_spec(package) is None), None)


@dataclass(slots=True)
class WorkerChild:
    """Makes the commands of the worker. Each start has pipes of its own: for a fresh enrolment token, and for reports.

    `token` gives the former once the API answers; `hear` gets the latter as they come.
    """

    data_dir: Path
    url: str
    cpu_devices: int
    life_fd: int
    token: Callable[[], Awaitable[str]]
    hear: Callable[[WorkerReport], None]
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)  # Any: results are of no interest

    def command(self) -> Command:
        """What to run now."""
        token, for_token = os.pipe()
        reports, for_reports = os.pipe()
        self._begin(self._send_token(for_token))
        self._begin(self._hear(reports))
        arguments = [
            *(*python("drumline_worker"), "run", "--server", self.url, "--parent-fd", str(self.life_fd)),
            *("--data-dir", str(self.data_dir), "--enroll-fd", str(token), "--report-fd", str(for_reports)),
            *("--cpu-devices", str(self.cpu_devices)),
        ]
        return Command(arguments, kept_fds=(self.life_fd,), given_fds=(token, for_reports))

    def _begin(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_token(self, for_token: int) -> None:
        with suppress(BrokenPipeError), os.fdopen(for_token, "w") as pipe:
            pipe.write(await self.token() + "\n")

    async def _hear(self, reports: int) -> None:
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reports, "rb", buffering=0)
        )
        try:
            while line := await reader.readline():
                with suppress(ValidationError):  # a line that was cut off
                    self.hear(WorkerReport.model_validate_json(line))
        finally:
            transport.close()


def python(module: str) -> tuple[str, ...]:
    """The arguments that make our interpreter run a module of ours and nothing that lies in the working directory."""
    return sys.executable, "-P", "-m", module
