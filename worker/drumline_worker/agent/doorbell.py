"""The unix socket on which the Celery child rings: one connection, one message, no answer."""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from pydantic import ValidationError

from drumline_worker.host.doorbell import Ring
from drumline_worker.host.framing import Decoder, FramingError

_LOG = logging.getLogger(__name__)
_RING_S = 5.0
_MAX_BYTES = 4_096


class DoorbellSocket:
    """Listens in a 0700 directory; `on_ring` is called for each ring."""

    def __init__(self, path: Path, on_ring: Callable[[Ring], None]) -> None:
        self._path = path
        self._on_ring = on_ring

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Open while inside."""
        self._path.unlink(missing_ok=True)
        directory = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            name = f"/proc/self/fd/{directory}/{self._path.name}"
            server = await asyncio.start_unix_server(self._serve, name)
        finally:
            os.close(directory)
        try:
            yield
        finally:
            server.close()
            self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_RING_S):
                raw = await reader.read(_MAX_BYTES)
            for payload in Decoder(_MAX_BYTES).feed(raw):
                self._on_ring(Ring.model_validate_json(payload))
        except (TimeoutError, ConnectionError, FramingError, ValidationError) as error:
            _LOG.warning("ignored a ring: %s", error)
        finally:
            writer.close()
