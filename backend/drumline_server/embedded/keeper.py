"""Keeps the children of `drumline up` going, and ends them: in order, or all at once."""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from drumline_server.embedded.child import Child, Command

KILL_S = 5.0
"""How long children may take to end by themselves once the pipe is closed."""
_KEPT_LOG_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Care:
    """What users are told of a child that ends: what that means, and what to do where it dies in a loop."""

    consequence: str
    cure: str


class Keeper:
    """The children of one process, tied to it by a pipe: `life_fd` is the end that they watch.

    `warn` tells the user something; `on_dying` gets a child that dies in a loop, and the sentences that say so.
    """

    def __init__(self, logs: Path, warn: Callable[[str], None], on_dying: Callable[[Child, str], None]) -> None:
        self._logs = logs
        self._warn = warn
        self._on_dying = on_dying
        self._children: list[Child] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._ending = False
        self.life_fd, self._lifeline = os.pipe()

    def child(self, name: str, make: Callable[[], Command]) -> Child:
        """A child that is not started yet; its output goes to `<name>.log`."""
        log = self._logs / f"{name}.log"
        if log.exists() and log.stat().st_size > _KEPT_LOG_BYTES:
            log.replace(log.with_suffix(".log.1"))
        child = Child(name, make, log)
        self._children.append(child)
        return child

    def keep(self, child: Child, care: Care, *, started: bool = False) -> None:
        """Starts the child (unless it is `started`) and starts it again whenever it ends.

        The first of several failures in a row is told to the user, and a loop of them; of a child that never stood, as
        another start may still bring it up, only the loop.
        """
        self._tasks.append(asyncio.create_task(self._keep_going(child, care, started=started)))

    async def end_in_order(self, limits_s: Sequence[tuple[str, float]]) -> None:
        """Ends the children of each name in turn; one that takes longer than its limit is killed."""
        self._ending = True
        for name, limit_s in limits_s:
            for child in self._children:
                if child.name == name:
                    await child.stop(limit_s)

    async def end_now(self) -> None:
        """Closes the pipe, which every child takes as the end, and kills what is still there a little later."""
        self._ending = True
        for task in self._tasks:
            task.cancel()
        with suppress(OSError):
            os.close(self._lifeline)
        with suppress(TimeoutError):
            async with asyncio.timeout(KILL_S):
                for child in self._children:
                    if child.pid is not None:
                        await child.wait()
        for child in self._children:
            await child.kill()

    async def _keep_going(self, child: Child, care: Care, *, started: bool) -> None:
        while not self._ending:
            problem = None if started else await _try_start(child)
            started = False
            if problem is None:
                problem = f"ended with code {await child.wait()}"
            if self._ending:
                return
            child.note_end()
            delay_s, is_first = child.backoff()
            said, log = child.last_line(), self._logs / f"{child.name}.log"
            last = f"Its log ({log}) ends: {said}" if said else f"Its log is {log}."
            if child.is_news():
                told = f"{child.name} {problem}, {child.loop_in_words()}."
                self._on_dying(child, f"{told}\n  {last}\n  What to do: {care.cure}")
            elif is_first and child.has_stood:
                self._warn(f"{child.name} {problem}. {care.consequence} {last}")
            await asyncio.sleep(delay_s)


async def _try_start(child: Child) -> str | None:
    try:
        await child.start()
    except OSError as error:
        return f"cannot be started: {error.strerror}"
    return None
