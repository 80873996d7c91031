"""Keeps the Celery child alive. The agent works without it: heartbeats bring the same news."""

import asyncio
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

from drumline.contracts.worker_api import Registered
from drumline_worker.agent.backoff import Backoff
from drumline_worker.agent.environment import child_environment
from drumline_worker.doorbell import CeleryConfig

_LOG = logging.getLogger(__name__)
_STEADY_S = 30.0
"""A child that lived so long had no trouble starting."""
_BACKOFF_FIRST_S, _BACKOFF_CAP_S = 0.5, 30.0


class CeleryChild:
    """Starts the child for the broker that the server names, and again when it dies or the settings change."""

    def __init__(self, socket: Path, home: Path) -> None:
        self._socket = socket
        self._home = home
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
            wait_s = backoff.next_s()
            _LOG.warning("the Celery child ended with exit code %d; starting it again in %.1f s", code, wait_s)
            await asyncio.sleep(wait_s)

    async def _serve(self, config: CeleryConfig) -> int | None:
        """One child's life: its exit code, or None when other settings are wanted."""
        theirs, ours = os.pipe()
        try:
            process = await self._spawn(theirs)
        finally:
            os.close(theirs)
        os.write(ours, config.model_dump_json().encode() + b"\n")
        ended = asyncio.create_task(process.wait())
        changed = asyncio.create_task(self._changed.wait())
        try:
            await asyncio.wait({ended, changed}, return_when=asyncio.FIRST_COMPLETED)
            return ended.result() if ended.done() else None
        finally:
            changed.cancel()
            os.close(ours)
            await asyncio.shield(ended)

    async def _spawn(self, pipe: int) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "drumline_worker.celery_app", "--config-fd", str(pipe),
            env=child_environment(), cwd=self._home, pass_fds=[pipe], start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
