"""The agent's connection to one shim."""

import asyncio
import socket
from collections.abc import AsyncIterator

from drumline_worker.host.framing import Decoder, encode_payload
from drumline_worker.host.rundir import RunDirectory
from drumline_worker.host.shim_messages import FromShim, News, Wish


class ShimLink:
    """Sends wishes, yields news until the shim ends."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, directory: RunDirectory) -> "ShimLink":
        """Raises OSError when no shim listens."""
        link: socket.socket = directory.connect()
        return cls(*await asyncio.open_unix_connection(sock=link))

    def send(self, message: Wish) -> None:
        """Sends a wish; a shim that is gone needs none."""
        if not self._writer.is_closing():
            self._writer.write(encode_payload(message.model_dump_json().encode()))

    async def news(self) -> AsyncIterator[News]:
        """Messages of the shim; ends when the shim does."""
        decoder = Decoder()
        try:
            while raw := await self._reader.read(65_536):
                for payload in decoder.feed(raw):
                    yield FromShim.validate_json(payload)
        except ConnectionError:
            return

    def close(self) -> None:
        """Hangs up; the shim keeps running."""
        self._writer.close()
