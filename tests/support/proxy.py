"""A line to a server that fails as networks do: it swallows, it delays, it loses an answer, it lies, it breaks.

The server is reached by TCP or a unix socket. What a held direction swallowed is delivered once it flows again.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")
Address = str | Path
"""The URL of a server, or the path of its unix socket."""
_PIECE = 65_536


class Direction(Enum):
    """Which way bytes go."""

    TO_SERVER = "to the server"
    TO_CLIENT = "to the client"


@dataclass(eq=False)
class _Line:
    """One connection through the proxy."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    is_deaf: bool = False
    """The next answer is lost, and the line with it."""

    def end(self) -> None:
        self.client.close()
        self.server.close()


class Proxy:
    """Passes bytes between clients of `address` and the server at `target`, until told otherwise."""

    def __init__(self, target: Address, listen_at: str = "127.0.0.1") -> None:
        self._target = target
        self._listen_at = listen_at
        self._lines: set[_Line] = set()
        self._is_cut = False
        self._needle: bytes | None = None
        self._lies: dict[bytes, bytes] = {}
        self._breaks: list[int] = []
        self._truncates: list[int] = []
        self.passed = 0
        """Bytes that reached the server."""
        self.lost = threading.Event()
        """The answer that `lose_answer_to` waits for was lost."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._flow, self.address = self._do(self._listen())

    @property
    def url(self) -> str:
        """What HTTP clients use in the place of the server's own address."""
        return f"http://{self.address[0]}:{self.address[1]}"

    def hold(self, *directions: Direction) -> None:
        """Nothing gets through these ways, by default neither; connections stay open and new ones are taken."""
        self._call(*(self._flow[way].clear for way in directions or Direction))

    def cut(self) -> None:
        """Breaks all connections and takes no new ones."""
        self._call(lambda: self._set_cut(True))

    def mend(self) -> None:
        """Everything gets through again, first what was held."""
        self._call(lambda: self._set_cut(False), *(event.set for event in self._flow.values()))

    def lose_answer_to(self, needle: bytes) -> None:
        """The next request with `needle` in it reaches the server, and the line breaks before its answer passes."""
        self.lost.clear()
        self._call(lambda: setattr(self, "_needle", needle))

    def answer_instead(self, needle: bytes, answer: bytes) -> None:
        """Requests with `needle` in them never reach the server, and get this answer."""
        self._call(lambda: self._lies.update({needle: answer}))

    def break_after(self, *counts: int) -> None:
        """Ends the line once so many bytes went to the server, and the line after that, and so on."""
        self._call(lambda: self._breaks.extend(counts))

    def truncate_after(self, *counts: int) -> None:
        """Ends the line once so many bytes went to the client, and the line after that, and so on."""
        self._call(lambda: self._truncates.extend(counts))

    def close(self) -> None:
        """Ends it for good."""
        self._do(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> tuple[dict[Direction, asyncio.Event], tuple[str, int]]:
        flow = {way: asyncio.Event() for way in Direction}
        for event in flow.values():
            event.set()
        self._server = await asyncio.start_server(self._join, self._listen_at, 0)
        host, port = self._server.sockets[0].getsockname()
        return flow, (host, port)

    async def _join(self, client_reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        try:
            server_reader, server = await self._connect()
        except OSError:
            client.close()
            return
        line = _Line(client, server)
        self._lines.add(line)
        try:
            with suppress(asyncio.CancelledError):  # by `close`; asyncio would log it as an error of the callback
                async with asyncio.TaskGroup() as pumps:
                    pumps.create_task(self._pump(line, client_reader, Direction.TO_SERVER))
                    pumps.create_task(self._pump(line, server_reader, Direction.TO_CLIENT))
        finally:
            self._lines.discard(line)
            line.end()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._is_cut:
            raise ConnectionRefusedError
        if isinstance(self._target, Path):
            return await asyncio.open_unix_connection(str(self._target))
        parts = urlsplit(self._target)
        return await asyncio.open_connection(parts.hostname, parts.port)

    async def _pump(self, line: _Line, source: asyncio.StreamReader, way: Direction) -> None:
        sink = line.server if way is Direction.TO_SERVER else line.client
        with suppress(OSError):
            while piece := await source.read(_PIECE):
                await self._flow[way].wait()
                if way is Direction.TO_SERVER:
                    self.passed += len(piece)
                if _is_broken_by(self._breaks if way is Direction.TO_SERVER else self._truncates, piece):
                    break
                lie = self._lie_for(piece) if way is Direction.TO_SERVER else None
                if lie is not None:
                    line.client.write(lie)
                    continue
                if way is Direction.TO_SERVER and self._needle is not None and self._needle in piece:
                    self._needle, line.is_deaf = None, True
                elif way is Direction.TO_CLIENT and line.is_deaf:
                    self.lost.set()
                    break
                sink.write(piece)
                await sink.drain()
        await self._flow[way].wait()  # the end of a connection is news too, and held with the rest
        line.end()

    def _lie_for(self, piece: bytes) -> bytes | None:
        return next((answer for needle, answer in self._lies.items() if needle in piece), None)

    def _set_cut(self, is_cut: bool) -> None:
        self._is_cut = is_cut
        for line in self._lines if is_cut else ():
            line.end()

    async def _shut(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _do(self, work: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def _call(self, *acts: Callable[[], object]) -> None:
        async def act() -> None:
            for each in acts:
                each()

        self._do(act())


def _is_broken_by(breaks: list[int], piece: bytes) -> bool:
    if breaks:
        breaks[0] -= len(piece)
        if breaks[0] < 0:
            del breaks[0]
            return True
    return False


@contextmanager
def proxy_to(target: Address, listen_at: str = "127.0.0.1") -> Iterator[Proxy]:
    """A proxy at an address of this machine that is closed at the end."""
    proxy = Proxy(target, listen_at)
    try:
        yield proxy
    finally:
        proxy.close()
