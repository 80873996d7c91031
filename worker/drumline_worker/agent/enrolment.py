"""The single-use token with which a worker enrols. It may come long after the worker starts, or not be needed."""

import asyncio
import os
import stat

from pydantic import SecretStr

MAX_TOKEN_BYTES = 1_024


class EmptyTokenError(Exception):
    """The descriptor was closed before a token came."""


class OddTokenError(Exception):
    """It holds a character that no token has, and that no header carries."""


class Enrolment:
    """A descriptor of a file or a pipe with a token in its first line."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    async def token(self) -> SecretStr:
        """The token, as soon as it is there; can be had once. Raises EmptyTokenError, OddTokenError."""
        token = (await self._first_line()).decode("ascii", "replace").strip()
        if not token:
            raise EmptyTokenError
        if not all("!" <= character <= "~" for character in token):
            raise OddTokenError
        return SecretStr(token)

    async def _first_line(self) -> bytes:
        stream = os.fdopen(self._fd, "rb", buffering=0)
        if stat.S_ISREG(os.fstat(self._fd).st_mode):
            with stream:
                return stream.readline(MAX_TOKEN_BYTES)
        reader = asyncio.StreamReader(limit=MAX_TOKEN_BYTES)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), stream)
        try:
            return await reader.readline()
        except ValueError:
            return b""  # longer than any token
        finally:
            transport.close()
