"""What a worker clears away while it serves."""

import asyncio
import logging
from pathlib import Path

from drumline_worker.agent import compile_cache

_LOG = logging.getLogger(__name__)
_EVERY_S = 600.0


async def keep_house(compiled: Path, max_bytes: int) -> None:
    """At once and every ten minutes, until cancelled."""
    while True:
        try:
            await asyncio.to_thread(compile_cache.evict, compiled, max_bytes)
        except OSError as error:
            _LOG.warning("the compilation caches could not be cleared: %s", error)
        await asyncio.sleep(_EVERY_S)
