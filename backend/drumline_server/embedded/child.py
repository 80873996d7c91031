"""A child process of `drumline up`: started in a session of its own, restarted with backoff, ended in order."""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

BACKOFF_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_STEADY_S = 30.0
"""A child that lived so long starts over with the shortest backoff."""


@dataclass(frozen=True, slots=True)
class Command:
    """What to run: arguments, more environment, descriptors to hand down, which are closed here afterwards."""

    arguments: Sequence[str]
    environment: dict[str, str] = field(default_factory=dict)
    kept_fds: tuple[int, ...] = ()
    given_fds: tuple[int, ...] = ()


class Child:
    """One process. `make` gives its command anew for each start; output goes to the end of `log`."""

    def __init__(self, name: str, make: Callable[[], Command], log: Path) -> None:
        self.name = name
        self._make = make
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self._failures = 0
        self._started_at = 0.0

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def start(self) -> None:
        """Starts the process. Raises OSError if it cannot be."""
        command = self._make()
        try:
            with open(os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *command.arguments,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **command.environment},
                    pass_fds=(*command.kept_fds, *command.given_fds),
                    start_new_session=True,
                )
        finally:
            for fd in command.given_fds:
                os.close(fd)
        self._started_at = asyncio.get_running_loop().time()

    async def wait(self) -> int:
        """The exit code, once the process has ended; negative for a signal."""
        assert self._process is not None
        return await self._process.wait()

    def backoff(self) -> tuple[float, bool]:
        """Seconds to wait before the next start, longer with each failure in a row; and whether this is the first."""
        if asyncio.get_running_loop().time() - self._started_at > _STEADY_S:
            self._failures = 0
        self._failures += 1
        return BACKOFF_S[min(self._failures, len(BACKOFF_S)) - 1], self._failures == 1

    async def stop(self, timeout_s: float) -> None:
        """Asks the process to end, and kills it if it has not after `timeout_s`."""
        if self.pid is None:
            return
        self.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(timeout_s):
                await self.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """Ends the process now."""
        if self.pid is not None:
            self.signal(signal.SIGKILL)
            await self.wait()

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal; to one that has just ended, none."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def last_words(self, lines: int = 5) -> str:
        """The end of its log."""
        with suppress(OSError):
            return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])
        return ""
