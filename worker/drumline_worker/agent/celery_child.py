"""Keeps the Celery child alive and hears notifications from it. The agent works without: heartbeats bring all news."""

import asyncio
import contextlib
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from drumline.contracts.worker_api import Registered
from drumline_worker.agent.links import child_environment

_LOG = logging.getLogger(__name__)
_RESTART_EVERY_S = 30.0
"""Whoever can write the queue can end the child again and again: that costs the host a start in this time, no more."""
_PIECE_BYTES, _MOST_CHARACTERS = 65_536, 300
_HOPELESS = 2
"""Children in a row that never listened: the next will not either."""


class CeleryChild:
    """Starts the child for the broker that the server names, and again when it dies or the settings change."""

    def __init__(self, home: Path, on_notified: Callable[[], None], on_hopeless: Callable[[str], None]) -> None:
        self._home = home
        self._on_notified = on_notified
        self._on_hopeless = on_hopeless
        self._listens = False
        """Whether the child that runs now was ever heard."""
        self._deaf = 0
        """Children in a row that ended before they listened."""
        self._said = ""
        """The last line that a child wrote."""
        self._settled = asyncio.Event()
        self._settings: bytes | None = None
        """A line for the child, with the broker's password: it goes through a pipe, never into argv or environment."""
        self._changed = asyncio.Event()

    def use(self, registered: Registered) -> None:
        """The broker and the queue of the current registration."""
        settings = None
        if registered.broker_url is not None:
            named = {"broker_url": registered.broker_url.get_secret_value(), "queue": registered.queue}
            settings = json.dumps(named).encode() + b"\n"
        if settings != self._settings:
            self._settings = settings
            self._changed.set()
        if settings is None:
            self._settled.set()

    async def until_settled(self, timeout_s: float) -> None:
        """Waits until a child listens, none is wanted, or none ever will; the broker may be away for longer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._settled.wait()

    async def run(self) -> None:
        """Until cancelled."""
        restart_from = 0.0
        while True:
            self._changed.clear()
            if self._settings is None:
                await self._changed.wait()
                continue
            code = await self._serve(self._settings)
            if code is None:
                continue
            wait_s = max(0.0, restart_from - time.monotonic())
            self._note_end(code, wait_s)
            await self._until_changed(wait_s)
            restart_from = time.monotonic() + _RESTART_EVERY_S

    def _note_end(self, code: int, wait_s: float) -> None:
        _LOG.warning("the Celery child ended with exit code %d; starting it again in %.1f s", code, wait_s)
        self._deaf = 0 if self._listens else self._deaf + 1
        if self._deaf == _HOPELESS:
            self._settled.set()
            said = self._said or f"exit code {code}"
            self._on_hopeless(f"the Celery child ended {self._deaf} times before it listened: {said}")

    async def _until_changed(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()

    async def _serve(self, settings: bytes) -> int | None:
        """One child's life: its exit code, or None when other settings are wanted."""
        theirs, ours = os.pipe()
        news, wakes = os.pipe()
        try:
            process = await self._spawn(theirs, wakes)
        finally:
            os.close(theirs)
            os.close(wakes)
        self._listens = False
        asyncio.get_running_loop().add_reader(news, self._hear, news)
        with contextlib.suppress(BrokenPipeError):  # it has ended already
            os.write(ours, settings)
        telling = asyncio.create_task(self._pass_on(process.stderr))
        ended = asyncio.create_task(process.wait())
        changed = asyncio.create_task(self._changed.wait())
        try:
            await asyncio.wait({ended, changed}, return_when=asyncio.FIRST_COMPLETED)
            return ended.result() if ended.done() else None
        finally:
            changed.cancel()
            os.close(ours)
            await asyncio.shield(ended)
            await asyncio.shield(telling)

    def _hear(self, news: int) -> None:
        """The child listens, or had a notification: one byte each, of which many may come at once."""
        if os.read(news, _PIECE_BYTES):
            self._listens = True
            self._settled.set()
            self._on_notified()
        else:
            asyncio.get_running_loop().remove_reader(news)
            os.close(news)

    async def _pass_on(self, lines: asyncio.StreamReader | None) -> None:
        """What the child writes goes to our own log."""
        while lines is not None and (raw := await lines.read(_PIECE_BYTES)):
            told = [line for line in raw.decode(errors="replace").splitlines() if line.strip()]
            for line in told:
                _LOG.warning("Celery child: %s", line)
            self._said = told[-1].strip()[:_MOST_CHARACTERS] if told else self._said

    async def _spawn(self, settings: int, wakes: int) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "drumline_worker.celery_child.celery_app",
            "--settings-fd", str(settings), "--wake-fd", str(wakes),
            env=child_environment(), cwd=self._home, pass_fds=[settings, wakes], start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
