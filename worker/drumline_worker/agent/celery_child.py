"""Keeps the Celery child alive. The agent works without it: heartbeats bring the same news."""

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from drumline.contracts.worker_api import Registered
from drumline_worker.agent.backoff import Backoff
from drumline_worker.agent.environment import child_environment
from drumline_worker.host.doorbell import CeleryConfig

_LOG = logging.getLogger(__name__)
_STEADY_S = 30.0
"""A child that lived so long had no trouble starting."""
_PIECE_BYTES, _MOST_CHARACTERS = 65_536, 300
_HOPELESS = 3
"""Children in a row that never listened: the next will not either."""
_BACKOFF_FIRST_S, _BACKOFF_CAP_S = 0.5, 30.0


class CeleryChild:
    """Starts the child for the broker that the server names, and again when it dies or the settings change."""

    def __init__(self, socket: Path, home: Path, on_hopeless: Callable[[str], None]) -> None:
        self._socket = socket
        self._home = home
        self._on_hopeless = on_hopeless
        self._deaf = 0
        """Children in a row that ended before they listened."""
        self._said = ""
        """The last line that a child wrote."""
        self._settled = asyncio.Event()
        self._config: CeleryConfig | None = None
        self._changed = asyncio.Event()

    def use(self, registered: Registered) -> None:
        """The broker and the doorbell key of the current registration."""
        config = None
        if registered.broker_url is not None:
            config = CeleryConfig(
                broker_url=registered.broker_url,
                queue=registered.queue,
                host=registered.host,
                kid=registered.doorbell_kid,
                key=registered.doorbell_key,
                socket=str(self._socket),
            )
        if config != self._config:
            self._config = config
            self._changed.set()
        if config is None:
            self._settled.set()

    async def until_settled(self, timeout_s: float) -> None:
        """Waits until a child listens, none is wanted, or none ever will; the broker may be away for longer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._settled.wait()

    async def run(self) -> None:
        """Until cancelled."""
        backoff = Backoff(_BACKOFF_FIRST_S, _BACKOFF_CAP_S)
        while True:
            self._changed.clear()
            if self._config is None:
                await self._changed.wait()
                continue
            started = time.monotonic()
            code = await self._serve(self._config)
            if code is None:
                continue
            if time.monotonic() - started > _STEADY_S:
                backoff.reset()
            self._deaf += 1
            if self._deaf == _HOPELESS:
                self._settled.set()
                said = self._said or f"exit code {code}"
                self._on_hopeless(f"the Celery child ended {self._deaf} times before it listened: {said}")
            wait_s = backoff.next_s()
            _LOG.warning("the Celery child ended with exit code %d; starting it again in %.1f s", code, wait_s)
            await asyncio.sleep(wait_s)

    async def _serve(self, config: CeleryConfig) -> int | None:
        """One child's life: its exit code, or None when other settings are wanted."""
        theirs, ours = os.pipe()
        listening, listens = os.pipe()
        try:
            process = await self._spawn(theirs, listens)
        finally:
            os.close(theirs)
            os.close(listens)
        self._hear_of(listening)
        os.write(ours, config.model_dump_json().encode() + b"\n")
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

    def _hear_of(self, listening: int) -> None:
        """Notes that the child listens, once it says so through the pipe; its end alone says nothing."""
        loop = asyncio.get_running_loop()

        def readable() -> None:
            loop.remove_reader(listening)
            if os.read(listening, 1):
                self._deaf = 0
                self._settled.set()
            os.close(listening)

        loop.add_reader(listening, readable)

    async def _pass_on(self, lines: asyncio.StreamReader | None) -> None:
        """What the child writes goes to our own log."""
        while lines is not None and (raw := await lines.read(_PIECE_BYTES)):
            sys.stderr.buffer.write(raw)
            sys.stderr.flush()
            told = [line for line in raw.decode(errors="replace").splitlines() if line.strip()]
            self._said = told[-1].strip()[:_MOST_CHARACTERS] if told else self._said

    async def _spawn(self, config: int, ready: int) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "drumline_worker.celery_child.celery_app",
            "--config-fd", str(config), "--ready-fd", str(ready),
            env=child_environment(), cwd=self._home, pass_fds=[config, ready], start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
